//! The Kafka source against a real broker: `scripts/test` starts one and names it in
//! `TIDEGATE_BROKERS`. Each test has a topic of its own.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset as Raw, TopicPartitionList};
use tidegate::codec::{Codec, Decoded, Json};
use tidegate::record::{Change, Incarnation, Offset, Partition, Record, Refusal, SourceId};
use tidegate::source::kafka::Kafka;
use tidegate::source::{
    Assignment, Batch, Bounds, Late, Ordered, Poll, Progress, Reader, Settings, Shared, Source,
    Start, Wake,
};
use tidegate::{Kind, Result};

/// How long anything may take before its test fails.
const LIMIT: Duration = Duration::from_secs(30);

fn brokers() -> String {
    std::env::var("TIDEGATE_BROKERS").expect(
        "`TIDEGATE_BROKERS` is not set: run `scripts/test`, which starts a Kafka broker first",
    )
}

fn settings() -> Settings {
    settings_at(&brokers())
}

fn settings_at(brokers: &str) -> Settings {
    Settings { pipeline: unique("pipeline"), brokers: Some(brokers.into()), ..Settings::default() }
}

fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos();
    format!("{name}-{nanos}-{}", NEXT.fetch_add(1, Ordering::SeqCst))
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

fn admin() -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", brokers()).create().unwrap()
}

/// A topic of one test.
struct Topic {
    name: String,
}

impl Topic {
    fn new(test: &str, partitions: i32) -> Topic {
        Topic::with(test, partitions, &[])
    }

    fn with(test: &str, partitions: i32, settings: &[(&str, &str)]) -> Topic {
        let name = unique(test);
        let mut topic = NewTopic::new(&name, partitions, TopicReplication::Fixed(1));
        for (setting, value) in settings {
            topic = topic.set(setting, value);
        }
        let created = block_on(admin().create_topics(&[topic], &AdminOptions::new())).unwrap();
        created.into_iter().for_each(|one| drop(one.unwrap()));
        Topic { name }
    }

    fn grow(&self, partitions: usize) {
        let wanted = NewPartitions::new(&self.name, partitions);
        let grown = block_on(admin().create_partitions(&[wanted], &AdminOptions::new())).unwrap();
        grown.into_iter().for_each(|one| drop(one.unwrap()));
    }

    fn delete_before(&self, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name, 0, Raw::Offset(offset)).unwrap();
        block_on(admin().delete_records(&list, &AdminOptions::new())).unwrap();
    }

    fn send(
        &self,
        producer: &BaseProducer,
        partition: i32,
        values: impl IntoIterator<Item = String>,
    ) {
        for value in values {
            let record =
                BaseRecord::<(), String>::to(&self.name).partition(partition).payload(&value);
            send(producer, record);
        }
        producer.flush(LIMIT).unwrap();
    }

    /// Sends `count` plain records to `partition`.
    fn fill(&self, partition: i32, count: usize) {
        self.send(&producer(&[]), partition, numbers(count));
    }

    fn source(&self) -> Kafka<Text> {
        Kafka::topic(&self.name, Text)
    }
}

fn numbers(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| number.to_string())
}

fn producer(settings: &[(&str, &str)]) -> BaseProducer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers()).set("linger.ms", "5");
    for (name, value) in settings {
        config.set(*name, *value);
    }
    config.create().unwrap()
}

fn transactional() -> BaseProducer {
    let producer = producer(&[("transactional.id", &unique("transaction"))]);
    producer.init_transactions(LIMIT).unwrap();
    producer
}

fn send<K, P>(producer: &BaseProducer, mut record: BaseRecord<'_, K, P>)
where
    K: rdkafka::message::ToBytes + ?Sized,
    P: rdkafka::message::ToBytes + ?Sized,
{
    while let Err((_, unsent)) = producer.send(record) {
        producer.poll(Duration::from_millis(10));
        record = unsent;
    }
}

/// Values as text; `bad` is refused.
#[derive(Clone)]
struct Text;

impl Codec for Text {
    type Value = String;

    fn decode(&mut self, record: &Record<'_>) -> Result<Decoded<String>, Refusal> {
        match record.value {
            None => Ok(Decoded::Tombstone),
            Some(b"bad") => Err(Refusal::new("decode", "bad")),
            Some(value) => Ok(Decoded::Value(String::from_utf8_lossy(value).into_owned())),
        }
    }
}

fn assignment(starts: impl IntoIterator<Item = (i32, i64)>) -> Assignment {
    Assignment {
        source: SourceId(0),
        worker: 0,
        peers: 1,
        starts: offsets(starts),
        leader_epochs: BTreeMap::new(),
        ordered: None,
        incarnation: Incarnation::default(),
        ends: None,
        cuts: BTreeMap::new(),
        budget: 64 << 20,
        discovery: Duration::from_secs(60),
        wake: Wake::new(|| ()),
        shared: Shared::default(),
    }
}

fn offsets(pairs: impl IntoIterator<Item = (i32, i64)>) -> BTreeMap<Partition, Offset> {
    pairs.into_iter().map(|(p, o)| (Partition(p), Offset(o))).collect()
}

/// Polls a reader as a worker does: again at once after `More`, only when woken after `Idle`.
struct Run<T> {
    reader: Box<dyn Reader<T>>,
    batch: Batch<T>,
    woken: Arc<(Mutex<bool>, Condvar)>,
}

impl<T> Run<T> {
    fn new<S: Source<Value = T>>(source: &S, assignment: Assignment) -> Self {
        Self::with(&settings(), source, assignment)
    }

    fn with<S: Source<Value = T>>(
        settings: &Settings,
        source: &S,
        mut assignment: Assignment,
    ) -> Self {
        let woken = Arc::new((Mutex::new(false), Condvar::new()));
        let waker = Arc::clone(&woken);
        assignment.wake = Wake::new(move || {
            // A failing test must not panic here too, in a thread of librdkafka.
            *waker.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            waker.1.notify_one();
        });
        let reader = source.reader(settings, assignment).unwrap();
        Run { reader, batch: Batch::default(), woken }
    }

    /// Polls until `done` or the end; says whether it ended.
    fn until(&mut self, mut done: impl FnMut(&Batch<T>) -> bool) -> Result<bool> {
        let deadline = Instant::now() + LIMIT;
        loop {
            match self.reader.poll(1000, &mut self.batch)? {
                Poll::End => return Ok(true),
                _ if done(&self.batch) => return Ok(false),
                Poll::More => {}
                Poll::Idle => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let flag = self.woken.0.lock().unwrap();
                    let (mut flag, waited) =
                        self.woken.1.wait_timeout_while(flag, left, |woken| !*woken).unwrap();
                    assert!(!waited.timed_out(), "not woken; spans so far: {:?}", self.spans());
                    *flag = false;
                }
            }
            assert!(Instant::now() < deadline, "too late; spans so far: {:?}", self.spans());
        }
    }

    /// Polls until `partition` is read up to `upto`.
    fn reach(&mut self, partition: i32, upto: i64) {
        self.until(|batch| {
            batch.spans.iter().any(|s| s.lane.partition.0 == partition && s.upto.0 >= upto)
        })
        .unwrap();
    }

    /// `(partition, from, upto, records)` of each span.
    fn spans(&self) -> Vec<(i32, i64, i64, u64)> {
        let plain =
            |s: &tidegate::record::Span| (s.lane.partition.0, s.from.0, s.upto.0, s.records);
        self.batch.spans.iter().map(plain).collect()
    }

    /// Checks that the spans of `partition` join from `from` on and count what was handed over;
    /// returns their end.
    fn joined(&self, partition: i32, from: i64) -> i64 {
        let mut position = from;
        for (_, from, upto, records) in self.spans().into_iter().filter(|s| s.0 == partition) {
            assert_eq!(from, position, "spans of {partition} join: {:?}", self.spans());
            assert!(upto > from);
            let inside = |at: &tidegate::record::At| {
                at.partition.0 == partition && (from..upto).contains(&at.offset.0)
            };
            let rows = self.batch.rows.iter().filter(|row| inside(&row.at)).count();
            let rejects = self.batch.rejects.iter().filter(|reject| inside(&reject.at)).count();
            assert_eq!(records, (rows + rejects) as u64, "{:?}", self.spans());
            position = upto;
        }
        position
    }
}

impl<T: Clone> Run<T> {
    fn values(&self) -> Vec<T> {
        let value = |change: &Change<T>| match change {
            Change::Put(value) => Some(value.clone()),
            Change::Delete(_) => None,
        };
        self.batch.rows.iter().filter_map(|row| value(&row.change)).collect()
    }
}

#[test]
fn records_of_all_four_codecs_are_read_in_order() {
    let topic = Topic::new("codecs", 1);
    let codecs = ["gzip", "snappy", "lz4", "zstd"];
    for codec in codecs {
        let values = (0..500).map(|n| format!("{codec}-{n}-{}", "x".repeat(100)));
        topic.send(&producer(&[("compression.type", codec)]), 0, values);
    }
    let mut run = Run::new(&topic.source(), assignment([(0, 0)]));
    run.reach(0, 2000);
    assert_eq!(run.joined(0, 0), 2000);
    let values = run.values();
    for (index, value) in values.iter().enumerate() {
        assert!(value.starts_with(&format!("{}-{}-", codecs[index / 500], index % 500)), "{value}");
    }
    assert_eq!(values.len(), 2000);
    let size: usize = values.iter().map(|value| value.len() + 64).sum();
    assert_eq!(run.batch.bytes, size);
}

#[test]
fn json_values_are_decoded_and_wrong_ones_are_rejected_with_their_bytes() {
    let topic = Topic::new("json", 1);
    let values = [r#"{"id": 1}"#, "{", r#"{"id": 2}"#].map(str::to_owned);
    topic.send(&producer(&[]), 0, values);
    #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
    struct Order {
        id: i64,
    }
    let source = Kafka::topic(&topic.name, Json::<Order>::new());
    let mut run = Run::new(&source, assignment([(0, 0)]));
    run.reach(0, 3);
    assert_eq!(run.joined(0, 0), 3);
    assert_eq!(run.values(), [Order { id: 1 }, Order { id: 2 }]);
    let reject = &run.batch.rejects[0];
    assert_eq!(reject.at.offset, Offset(1));
    // What it held is kept, as the policy is to set it aside.
    let place = (reject.at.lane(), reject.at.offset);
    let mut wanted = [(place, None)].into();
    run.batch.origins.find(&mut wanted);
    let origin = wanted[&place].as_ref().unwrap();
    assert_eq!(origin.value.as_deref(), Some(&b"{"[..]));
}

#[test]
fn records_that_arrive_later_wake_the_reader() {
    let topic = Topic::new("later", 1);
    let mut run = Run::new(&topic.source(), assignment([(0, 0)]));
    let name = topic.name.clone();
    let sender = std::thread::spawn(move || Topic { name }.fill(0, 10));
    run.reach(0, 10);
    sender.join().unwrap();
    assert_eq!(run.joined(0, 0), 10);
}

#[test]
fn spans_join_and_cover_a_transaction_marker_at_the_end() {
    let topic = Topic::new("marker", 1);
    let producer = transactional();
    producer.begin_transaction().unwrap();
    topic.send(&producer, 0, numbers(5));
    producer.commit_transaction(LIMIT).unwrap();
    let mut run = Run::new(&topic.source(), assignment([(0, 0)]));
    run.reach(0, 6);
    assert_eq!(run.joined(0, 0), 6, "five records and a marker");
    assert_eq!(run.values().len(), 5);
}

#[test]
fn an_aborted_transaction_is_covered_and_not_seen() {
    let topic = Topic::new("aborted", 1);
    let producer = transactional();
    producer.begin_transaction().unwrap();
    topic.send(&producer, 0, numbers(5));
    producer.abort_transaction(LIMIT).unwrap();
    topic.fill(0, 2);
    producer.begin_transaction().unwrap();
    topic.send(&producer, 0, numbers(3));
    producer.abort_transaction(LIMIT).unwrap();

    let mut run = Run::new(&topic.source(), assignment([(0, 0)]));
    run.reach(0, 12);
    assert_eq!(run.joined(0, 0), 12);
    assert_eq!(run.values(), ["0", "1"]);

    let mut all = Run::new(&topic.source().read_uncommitted(), assignment([(0, 0)]));
    all.reach(0, 12);
    assert_eq!(all.values().len(), 10);
}

#[test]
fn an_open_transaction_bounds_a_run_that_reads_committed_records() {
    let topic = Topic::new("open", 1);
    topic.fill(0, 4);
    let producer = transactional();
    producer.begin_transaction().unwrap();
    topic.send(&producer, 0, numbers(3));
    let bounds = |source: Kafka<Text>| {
        let mut catalog = source.catalog(&settings()).unwrap();
        catalog.bounds(&[Partition(0)]).unwrap()[&Partition(0)]
    };
    let stable = bounds(topic.source());
    assert_eq!(stable, Bounds { first: Offset(0), end: Offset(4) });
    assert_eq!(bounds(topic.source().read_uncommitted()).end, Offset(7));

    let mut bounded = assignment([(0, 0)]);
    bounded.ends = Some(offsets([(0, stable.end.0)]));
    let mut run = Run::new(&topic.source(), bounded);
    assert!(run.until(|_| false).unwrap(), "the run ends");
    assert_eq!(run.joined(0, 0), 4);

    let mut endless = Run::new(&topic.source(), assignment([(0, 0)]));
    endless.reach(0, 4);
    // The end that is shown is the one that can be reached.
    let deadline = Instant::now() + LIMIT;
    while endless.reader.standings()[0].end != Some(Offset(4)) {
        assert!(Instant::now() < deadline, "{:?}", endless.reader.standings());
        endless.reader.poll(10, &mut endless.batch).unwrap();
        std::thread::yield_now();
    }
    producer.commit_transaction(LIMIT).unwrap();
    endless.reach(0, 8);
    assert_eq!(endless.joined(0, 0), 8);
}

#[test]
fn a_bounded_run_ends_in_the_middle_of_the_log() {
    let topic = Topic::new("bounded", 3);
    (0..3).for_each(|partition| topic.fill(partition, 100));
    let mut bounded = assignment([(0, 0), (1, 10), (2, 0)]);
    bounded.ends = Some(offsets([(0, 50), (1, 10)]));
    let mut run = Run::new(&topic.source(), bounded);
    assert!(run.until(|_| false).unwrap());
    assert_eq!(run.joined(0, 0), 50);
    assert_eq!(run.values().len(), 50);
    assert!(run.spans().iter().all(|span| span.0 == 0), "nothing of the others");
    assert_eq!(run.reader.poll(10, &mut run.batch).unwrap(), Poll::End, "for ever");
}

#[test]
fn a_bounded_run_ends_where_the_last_offsets_hold_no_record() {
    let topic = Topic::new("tail", 1);
    let producer = transactional();
    producer.begin_transaction().unwrap();
    topic.send(&producer, 0, numbers(5));
    producer.abort_transaction(LIMIT).unwrap();
    let mut bounded = assignment([(0, 0)]);
    bounded.ends = Some(offsets([(0, 6)]));
    let mut run = Run::new(&topic.source(), bounded);
    assert!(run.until(|_| false).unwrap());
    assert_eq!(run.spans(), [(0, 0, 6, 0)]);
}

#[test]
fn a_worker_without_partitions_ends_a_bounded_run_at_once() {
    let topic = Topic::new("none", 1);
    let mut bounded = assignment([(0, 0)]);
    bounded.ends = Some(offsets([(0, 5)]));
    (bounded.worker, bounded.peers) = (1, 2);
    let mut run = Run::new(&topic.source(), bounded);
    assert_eq!(run.reader.poll(10, &mut run.batch).unwrap(), Poll::End);
}

#[test]
fn cuts_split_spans() {
    let topic = Topic::new("cuts", 1);
    topic.fill(0, 100);
    let mut cut = assignment([(0, 5)]);
    cut.cuts.insert(Partition(0), [5, 20, 21, 60].map(Offset).to_vec());
    let mut run = Run::new(&topic.source(), cut);
    run.reach(0, 100);
    assert_eq!(run.joined(0, 5), 100);
    for inside in [20, 21, 60] {
        assert!(run.spans().iter().all(|s| !(s.1 < inside && inside < s.2)), "{:?}", run.spans());
    }
}

/// Keeps all of a record.
#[derive(Clone)]
struct Whole;

#[derive(Clone, Debug, PartialEq)]
struct Kept {
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(String, Option<Vec<u8>>)>,
    timestamp: Option<i64>,
}

impl Codec for Whole {
    type Value = Kept;

    fn decode(&mut self, record: &Record<'_>) -> Result<Decoded<Kept>, Refusal> {
        let header = |index| {
            let (name, value) = record.headers.get(index)?;
            Some((name.to_owned(), value.map(<[u8]>::to_vec)))
        };
        Ok(Decoded::Value(Kept {
            key: record.key.map(<[u8]>::to_vec),
            value: record.value.map(<[u8]>::to_vec),
            headers: (0..).map_while(header).collect(),
            timestamp: record.timestamp,
        }))
    }
}

#[test]
fn null_and_empty_keys_values_and_headers_arrive_distinct() {
    let topic = Topic::new("nulls", 1);
    let producer = producer(&[]);
    let to = || BaseRecord::<[u8], [u8]>::to(&topic.name).partition(0);
    let headers = OwnedHeaders::new()
        .insert(Header { key: "null", value: None::<&[u8]> })
        .insert(Header { key: "empty", value: Some(&b""[..]) })
        .insert(Header { key: "byte", value: Some(&[0xff_u8][..]) })
        .insert(Header { key: "twice", value: Some(&b"1"[..]) })
        .insert(Header { key: "twice", value: Some(&b"2"[..]) });
    send(&producer, to().timestamp(1_700_000_000_123));
    send(&producer, to().key(b"").payload(b""));
    send(&producer, to().key(b"k").payload(b"v").headers(headers));
    producer.flush(LIMIT).unwrap();

    let mut run = Run::new(&Kafka::topic(&topic.name, Whole), assignment([(0, 0)]));
    run.reach(0, 3);
    let kept = run.values();
    assert_eq!((&kept[0].key, &kept[0].value), (&None, &None));
    assert_eq!(kept[0].timestamp, Some(1_700_000_000_123));
    assert_eq!(kept[0].headers, []);
    assert_eq!((&kept[1].key, &kept[1].value), (&Some(vec![]), &Some(vec![])));
    let expected: [(&str, Option<&[u8]>); 5] = [
        ("null", None),
        ("empty", Some(b"")),
        ("byte", Some(&[0xff])),
        ("twice", Some(b"1")),
        ("twice", Some(b"2")),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.map(<[u8]>::to_vec)));
    assert_eq!(kept[2].headers, expected);
}

#[test]
fn a_tombstone_deletes_by_the_key_of_its_record() {
    let topic = Topic::new("tombstones", 1);
    let producer = producer(&[]);
    let to = || BaseRecord::<[u8], [u8]>::to(&topic.name).partition(0);
    send(&producer, to().key(b"k"));
    send(&producer, to());
    send(&producer, to().key(b"k").payload(b""));
    producer.flush(LIMIT).unwrap();
    let mut run = Run::new(&topic.source(), assignment([(0, 0)]));
    run.reach(0, 3);
    let changes: Vec<_> = run.batch.rows.iter().map(|row| row.change.clone()).collect();
    let key = Some(Box::from(&b"k"[..]));
    assert_eq!(changes, [Change::Delete(key), Change::Delete(None), Change::Put(String::new())]);
    assert_eq!(run.joined(0, 0), 3);
}

#[test]
fn new_partitions_are_found_while_running_and_read_from_their_beginning() {
    let topic = Topic::new("grows", 1);
    topic.fill(0, 5);
    let source = topic.source().discover_every(Duration::from_millis(200));
    let mut run = Run::new(&source, assignment([(0, 0)]));
    run.reach(0, 5);
    topic.grow(3);
    topic.fill(1, 7);
    topic.fill(2, 8);
    run.reach(1, 7);
    run.reach(2, 8);
    assert_eq!([run.joined(0, 0), run.joined(1, 0), run.joined(2, 0)], [5, 7, 8]);
    let standings = run.reader.standings();
    assert_eq!(standings.iter().map(|s| s.position.0).collect::<Vec<_>>(), [5, 7, 8]);
}

/// What is durable, as a test says it, and how often it was asked.
#[derive(Clone, Default)]
struct Stored(Arc<Mutex<(BTreeMap<Partition, Offset>, usize)>>);

impl Stored {
    fn set(&self, pairs: impl IntoIterator<Item = (i32, i64)>) {
        self.0.lock().unwrap().0 = offsets(pairs);
    }

    fn order(&self, late: Late) -> Option<Ordered> {
        let stored = Arc::clone(&self.0);
        let durable = Progress::new(move || {
            let mut stored = stored.lock().unwrap_or_else(PoisonError::into_inner);
            stored.1 += 1;
            Ok(stored.0.clone())
        });
        Some(Ordered { late, durable })
    }

    /// Polls `run` until this was asked `times` times more.
    fn asked(&self, run: &mut Run<String>, times: usize) {
        let enough = self.0.lock().unwrap().1 + times;
        let deadline = Instant::now() + LIMIT;
        while self.0.lock().unwrap().1 < enough {
            assert!(Instant::now() < deadline, "not asked");
            run.reader.poll(100, &mut run.batch).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        run.reader.poll(100, &mut run.batch).unwrap();
    }
}

#[test]
fn new_partitions_of_an_ordered_source_wait_until_the_older_ones_are_durable() {
    let topic = Topic::new("waits", 2);
    topic.fill(0, 5);
    let source = topic.source().discover_every(Duration::from_millis(50));
    let stored = Stored::default();
    let mut ordered = assignment([(0, 0), (1, 0)]);
    ordered.ordered = stored.order(Late::default());
    let mut run = Run::new(&source, ordered);
    run.reach(0, 5);
    topic.grow(4);
    (2..4).for_each(|partition| topic.fill(partition, 7));
    for enough in [[].as_slice(), &[(0, 4)]] {
        stored.set(enough.iter().copied());
        stored.asked(&mut run, 2);
        assert!(run.spans().iter().all(|span| span.0 == 0), "{:?}", run.spans());
    }
    // What comes later to the older ones is not waited for, nor is partition 1, which is empty.
    topic.fill(0, 5);
    stored.set([(0, 5)]);
    run.reach(2, 7);
    run.reach(3, 7);
    // The next ones wait for those too.
    topic.grow(5);
    topic.fill(4, 3);
    stored.set([(0, 10), (2, 7), (3, 6)]);
    stored.asked(&mut run, 2);
    assert!(run.spans().iter().all(|span| span.0 < 4), "{:?}", run.spans());
    stored.set([(0, 10), (2, 7), (3, 7)]);
    run.reach(4, 3);
    assert_eq!([2, 3, 4].map(|partition| run.joined(partition, 0)), [7, 7, 3]);
}

#[test]
fn a_bounded_run_reads_late_partitions_last_and_ends() {
    let topic = Topic::new("late", 4);
    (0..3).for_each(|partition| topic.fill(partition, 10));
    let stored = Stored::default();
    let late = Late { starts: offsets([(1, 0), (2, 0), (3, 0)]), after: offsets([(0, 10)]) };
    let bounded = |worker| {
        let mut bounded = assignment([(0, 0)]);
        bounded.ends = Some(offsets([(0, 10), (1, 10), (2, 10), (3, 0)]));
        (bounded.worker, bounded.peers) = (worker, 4);
        bounded.ordered = stored.order(late.clone());
        Run::new(&topic.source(), bounded)
    };
    let [mut old, mut new, _, mut empty] = [0, 1, 2, 3].map(bounded);
    assert!(old.until(|_| false).unwrap(), "the older one is read at once");
    assert!(empty.until(|_| false).unwrap(), "nothing is waited for where nothing is to be read");
    stored.set([(0, 9)]);
    stored.asked(&mut new, 2);
    assert_eq!(new.spans(), []);
    stored.set([(0, 10)]);
    assert!(new.until(|_| false).unwrap(), "the late one is read, and ends");
    assert_eq!([old.joined(0, 0), new.joined(1, 0)], [10, 10]);
}

#[test]
fn a_worker_reads_only_what_it_owns_of_new_partitions() {
    let topic = Topic::new("shares", 1);
    let mut half = assignment([(0, 0)]);
    (half.worker, half.peers, half.discovery) = (1, 2, Duration::from_millis(50));
    let mut run = Run::new(&topic.source(), half);
    topic.grow(4);
    (0..4).for_each(|partition| topic.fill(partition, 3));
    run.reach(1, 3);
    run.reach(3, 3);
    assert!(run.spans().iter().all(|span| span.0 % 2 == 1), "{:?}", run.spans());
}

/// Four readers of one client, as of four workers of a process.
fn together(topic: &Topic, each: impl Fn(usize, &mut Assignment)) -> Vec<Run<String>> {
    let (shared, settings) = (Shared::default(), settings());
    let run = |worker| {
        let mut mine = assignment((0..8).map(|partition| (partition, 0)));
        (mine.worker, mine.peers, mine.shared) = (worker, 4, shared.clone());
        each(worker, &mut mine);
        Run::with(&settings, &topic.source(), mine)
    };
    (0..4).map(run).collect()
}

#[test]
fn readers_that_share_a_client_each_get_their_own_partitions_whole() {
    let topic = Topic::new("together", 8);
    let mut runs = together(&topic, |_, _| ());
    let producer = producer(&[]);
    for round in 1..=5 {
        (0..8).for_each(|partition| topic.send(&producer, partition, numbers(100)));
        for partition in 0..8 {
            runs[partition as usize % 4].reach(partition, round * 100);
        }
        if round == 3 {
            // The others go on without one, also the one that made the client.
            runs.remove(0);
            runs.insert(0, together(&topic, |_, _| ()).remove(0));
        }
    }
    for (worker, run) in runs.iter().enumerate() {
        let own = [worker as i32, worker as i32 + 4];
        assert_eq!(own.map(|partition| run.joined(partition, 0)), [500, 500]);
        assert!(run.spans().iter().all(|span| own.contains(&span.0)), "{:?}", run.spans());
        assert_eq!(run.values().len(), 1000);
    }
}

#[test]
fn a_reader_that_is_full_does_not_hold_up_another_of_its_client() {
    let topic = Topic::new("unequal", 8);
    (0..8).for_each(|partition| topic.fill(partition, 20_000));
    let mut runs = together(&topic, |_, mine| mine.budget = 1 << 20);
    // The first is polled once, so that it has its partitions fetched, and then never again.
    runs[0].reader.poll(1, &mut Batch::default()).unwrap();
    for partition in [1, 5, 2, 6, 3, 7] {
        runs[partition as usize % 4].reach(partition, 20_000);
    }
    runs[0].reach(0, 20_000);
    runs[0].reach(4, 20_000);
}

#[test]
fn commits_of_readers_that_share_a_client_are_answered_to_each() {
    let topic = Topic::new("answers", 8);
    (0..8).for_each(|partition| topic.fill(partition, 3));
    let mut runs = together(&topic, |_, _| ());
    for (worker, run) in runs.iter_mut().enumerate() {
        let partition = worker as i32;
        run.reach(partition, 3);
        run.reader.commit(&offsets([(partition, 3)]), false).unwrap();
    }
    for (worker, run) in runs.iter_mut().enumerate() {
        run.reader.commit(&offsets([(worker as i32, 3)]), true).unwrap();
    }
}

fn fails(run: &mut Run<String>, kind: Kind) -> String {
    let error = run.until(|_| false).expect_err("the run ends");
    assert_eq!(error.kind(), kind);
    error.to_string()
}

#[test]
fn a_position_above_the_end_is_an_error_that_names_the_range() {
    let topic = Topic::new("above", 1);
    topic.fill(0, 5);
    let text = fails(&mut Run::new(&topic.source(), assignment([(0, 1000)])), Kind::Position);
    let place = format!("position 1000 of `{}[0]`", topic.name);
    assert!(text.contains(&place) && text.contains("0 to 5"), "{text}");
}

#[test]
fn a_position_below_the_start_is_an_error_that_names_what_is_lost() {
    let topic = Topic::new("below", 1);
    topic.fill(0, 10);
    topic.delete_before(6);
    let text = fails(&mut Run::new(&topic.source(), assignment([(0, 2)])), Kind::Position);
    let place = format!("position 2 of `{}[0]`", topic.name);
    assert!(text.contains(&place) && text.contains("from 2 to 6 are gone"), "{text}");
}

#[test]
fn a_topic_that_is_deleted_stops_the_run() {
    let topic = Topic::new("deleted", 1);
    topic.fill(0, 5);
    let source = topic.source().discover_every(Duration::from_millis(200));
    let mut run = Run::new(&source, assignment([(0, 0)]));
    run.reach(0, 5);
    block_on(admin().delete_topics(&[&topic.name], &AdminOptions::new())).unwrap();
    let text = fails(&mut run, Kind::Source);
    assert!(text.contains(&format!("topic `{}` does not exist", topic.name)), "{text}");
}

#[test]
fn a_missing_topic_is_told_from_a_broker_that_does_not_answer() {
    let mut catalog = Kafka::topic("no-such-topic", Text).catalog(&settings()).unwrap();
    let error = catalog.partitions().unwrap_err();
    let brokers = brokers();
    assert_eq!(
        error.to_string(),
        format!(
            "topic `no-such-topic` does not exist on `{brokers}`; create it or correct the name"
        )
    );
    assert_eq!(error.kind(), Kind::Source);
}

#[test]
fn an_unreachable_broker_is_named_with_the_cause() {
    let settings = settings_at("127.0.0.1:1");
    let mut catalog = Kafka::topic("orders", Text).catalog(&settings).unwrap();
    let began = Instant::now();
    let error = catalog.partitions().unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with("Kafka at `127.0.0.1:1` does not answer within 10 s"), "{text}");
    assert!(text.contains("Connection refused"), "{text}");
    assert!(error.is_retryable());
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn a_broker_without_tls_is_named_when_tls_is_asked_for() {
    let source = Kafka::topic("orders", Text).set("security.protocol", "ssl");
    let text = source.catalog(&settings()).unwrap().partitions().unwrap_err().to_string();
    assert!(text.to_lowercase().contains("ssl") || text.to_lowercase().contains("tls"), "{text}");
}

#[test]
fn a_reader_of_a_broker_that_does_not_answer_neither_blocks_nor_keeps_its_drop_waiting() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    for address in [silent.local_addr().unwrap().to_string(), "127.0.0.1:1".into()] {
        let mut assignment = assignment([(0, 0)]);
        assignment.discovery = Duration::from_millis(20);
        let source = Kafka::topic("orders", Text);
        let mut reader = source.reader(&settings_at(&address), assignment).unwrap();
        let mut batch = Batch::default();
        let polling = Instant::now() + Duration::from_millis(300);
        while Instant::now() < polling {
            let began = Instant::now();
            assert_eq!(reader.poll(100, &mut batch).unwrap(), Poll::Idle);
            reader.commit(&offsets([(0, 1)]), false).unwrap();
            assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
            std::thread::yield_now();
        }
        let began = Instant::now();
        drop(reader);
        assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    }
}

#[test]
fn a_commit_that_is_waited_for_has_a_time_limit() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = silent.local_addr().unwrap().to_string();
    let source = Kafka::topic("orders", Text);
    let mut reader = source.reader(&settings_at(&address), assignment([(0, 0)])).unwrap();
    let began = Instant::now();
    let error = reader.commit(&offsets([(0, 1)]), true).unwrap_err();
    assert!(error.to_string().contains("commit to the group `tidegate-pipeline-"), "{error}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[test]
fn commits_reach_the_group_and_are_not_read_back() {
    let topic = Topic::new("commits", 2);
    topic.fill(0, 5);
    topic.fill(1, 6);
    let group = unique("group");
    let source = topic.source().group(&group);
    let mut run = Run::new(&source, assignment([(0, 0), (1, 0)]));
    run.reach(0, 5);
    run.reach(1, 6);
    run.reader.commit(&offsets([(0, 3)]), false).unwrap();
    run.reader.commit(&offsets([(0, 5), (1, 6)]), true).unwrap();

    let other: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers())
        .set("group.id", &group)
        .create()
        .unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition(&topic.name, 0);
    list.add_partition(&topic.name, 1);
    let committed = other.committed_offsets(list, LIMIT).unwrap();
    let committed: Vec<_> = committed.elements().iter().map(|e| e.offset()).collect();
    assert_eq!(committed, [Raw::Offset(5), Raw::Offset(6)]);

    let mut again = Run::new(&source, assignment([(0, 0)]));
    again.reach(0, 5);
    assert_eq!(again.joined(0, 0), 5);
}

#[test]
fn a_start_may_be_the_end_a_time_or_offsets() {
    let topic = Topic::new("starts", 2);
    // Recent, since retention deletes records by their timestamps.
    let base = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis());
    let base = base.unwrap() - 3_600_000;
    let producer = producer(&[]);
    for number in 0..10 {
        let record = BaseRecord::<(), str>::to(&topic.name).partition(0);
        send(&producer, record.payload("x").timestamp(base + number * 1000));
    }
    producer.flush(LIMIT).unwrap();
    topic.delete_before(2);
    let partitions = [Partition(0), Partition(1)];
    let resolve = |start: Start| {
        let mut catalog = topic.source().from(start).catalog(&settings()).unwrap();
        assert_eq!(catalog.partitions().unwrap(), partitions);
        catalog.resolve(&partitions)
    };
    assert_eq!(resolve(Start::Earliest).unwrap(), offsets([(0, 2), (1, 0)]));
    assert_eq!(resolve(Start::Latest).unwrap(), offsets([(0, 10), (1, 0)]));
    let time = |millis| resolve(Start::Timestamp(millis)).unwrap();
    assert_eq!(time(base + 4500), offsets([(0, 5), (1, 0)]));
    assert_eq!(time(base + 4000), offsets([(0, 4), (1, 0)]));
    assert_eq!(time(0), offsets([(0, 2), (1, 0)]));
    assert_eq!(time(base + 10_000_000), offsets([(0, 10), (1, 0)]));
    let at = |partition, offset| resolve(Start::Offsets([(partition, offset)].into()));
    assert_eq!(at(0, 7).unwrap(), offsets([(0, 7), (1, 0)]));
    assert_eq!(at(0, 10).unwrap(), offsets([(0, 10), (1, 0)]));
    for (partition, offset) in [(0, 1), (0, 11), (2, 0)] {
        let error = at(partition, offset).unwrap_err();
        assert_eq!(error.kind(), Kind::Config);
        assert!(error.to_string().contains(&topic.name), "{error}");
    }
}

#[test]
fn a_record_of_20_megabytes_passes_a_small_budget() {
    let topic = Topic::with("large", 1, &[("max.message.bytes", "25000000")]);
    let producer = producer(&[("message.max.bytes", "25000000")]);
    topic.send(&producer, 0, ["x".repeat(20_000_000), "y".into()]);
    let mut small = assignment([(0, 0)]);
    small.budget = 1 << 20;
    let mut run = Run::new(&topic.source(), small);
    run.reach(0, 2);
    assert_eq!(run.values().iter().map(String::len).collect::<Vec<_>>(), [20_000_000, 1]);
}

#[test]
fn a_small_budget_bounds_what_is_fetched_and_loses_nothing() {
    let topic = Topic::new("budget", 2);
    (0..2).for_each(|partition| topic.fill(partition, 20_000));
    let mut small = assignment([(0, 0), (1, 0)]);
    small.budget = 1 << 20;
    small.ends = Some(offsets([(0, 20_000), (1, 20_000)]));
    let mut run = Run::new(&topic.source(), small);
    assert!(run.until(|_| false).unwrap());
    assert_eq!([run.joined(0, 0), run.joined(1, 0)], [20_000, 20_000]);
}

/// How fast the reader is, for people: `cargo test --release --test kafka_source -- --ignored drain`.
#[test]
#[ignore = "a measurement"]
fn drain() {
    let topic = Topic::new("drain", 2);
    let count = 1_000_000;
    let value = "x".repeat(180);
    let producer = producer(&[("linger.ms", "50")]);
    (0..2).for_each(|p| topic.send(&producer, p, std::iter::repeat_n(value.clone(), count)));
    #[derive(Clone)]
    struct Length;
    impl Codec for Length {
        type Value = usize;
        fn decode(&mut self, record: &Record<'_>) -> Result<Decoded<usize>, Refusal> {
            Ok(Decoded::Value(record.value.map_or(0, <[u8]>::len)))
        }
    }
    let mut bounded = assignment([(0, 0), (1, 0)]);
    bounded.ends = Some(offsets([(0, count as i64), (1, count as i64)]));
    let mut run = Run::new(&Kafka::topic(&topic.name, Length), bounded);
    let began = Instant::now();
    assert!(run.until(|_| false).unwrap());
    let rate = run.batch.rows.len() as f64 / began.elapsed().as_secs_f64();
    println!("{rate:.0} records a second");
}
