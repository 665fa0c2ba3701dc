//! Reads the partitions that one worker owns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::topic_partition_list::{Offset as Raw, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::catalog::offsets;
use super::config::Connection;
use super::cover::Cover;
use super::discovery::{Discovery, Found};
use super::faults;
use super::ffi::{self, Client, Message, Messages, Queue};
use super::witness::Witness;
use crate::codec::Codec;
use crate::error::{Error, Result};
use crate::record::{Offset, Partition, Policy, Record};
use crate::source::decode::decode;
use crate::source::{Assignment, Batch, Poll, Reader, Silence, Standing};

/// How many messages are taken from the queue at a time: few enough to stay in the cache.
const CHUNK: usize = 256;

/// How many bytes one poll hands over, roughly: each record lies twice in memory until its row is encoded,
/// so that few large ones are enough.
const ROUND: usize = 1 << 20;

/// What a record is taken to count before any was read.
const LARGE: usize = 64 << 10;

/// What a record counts beside its key and value.
const RECORD: usize = 64;

/// How long a commit that is waited for may take.
const COMMIT: Duration = Duration::from_secs(5);

/// How long an error may take to find out which offsets there are instead.
const RANGE: Duration = Duration::from_secs(2);

/// How long dropping a reader waits for its client to be closed, so that a program seldom exits while
/// the client's threads are running.
const CLOSE: Duration = Duration::from_millis(500);

/// A reader of one topic for one worker.
pub(super) struct TopicReader<C> {
    connection: Connection,
    codec: C,
    assignment: Assignment,
    /// Whether what records held is kept, for those that come to be refused.
    keeps_origins: bool,
    discover_every: Duration,
    queue: Option<Arc<Queue>>,
    discovery: Option<Discovery>,
    opened: bool,
    tracks: Tracks,
    /// The mean size of the records that were taken last.
    size: usize,
    witness: Witness,
    /// Partitions that were late at start and still wait.
    late: BTreeSet<Partition>,
    /// How many commits have not been answered.
    unanswered: usize,
}

/// One partition that is read.
struct Track {
    cover: Cover,
    end: Option<i64>,
    /// Whether the log's end was seen and nothing after it.
    at_end: bool,
    touched: bool,
    finished: bool,
}

impl Track {
    fn position(&self) -> i64 {
        self.cover.position()
    }

    fn is_over(&self) -> bool {
        self.end.is_some_and(|end| self.position() >= end)
    }
}

/// The partitions that are read, by number.
#[derive(Default)]
struct Tracks {
    by_number: Vec<Option<Track>>,
    /// How many have not reached the end of a bounded run.
    open: usize,
}

impl Tracks {
    fn get_mut(&mut self, partition: i32) -> Option<&mut Track> {
        self.by_number.get_mut(usize::try_from(partition).ok()?)?.as_mut()
    }

    fn iter(&self) -> impl Iterator<Item = &Track> {
        self.by_number.iter().flatten()
    }

    fn insert(&mut self, partition: Partition, track: Track) {
        let index = usize::try_from(partition.0).expect("partitions are numbered from 0");
        if self.by_number.len() <= index {
            self.by_number.resize_with(index + 1, || None);
        }
        self.open += usize::from(!track.finished);
        self.by_number[index] = Some(track);
    }
}

impl<C: Codec> TopicReader<C> {
    pub(super) fn new(
        connection: Connection,
        codec: C,
        assignment: Assignment,
        policy: Policy,
        discover_every: Duration,
    ) -> Self {
        let expected = assignment.incarnation.id.clone();
        let witness = Witness::new(&connection.topic, &connection.brokers, expected);
        TopicReader {
            witness,
            connection,
            codec,
            assignment,
            keeps_origins: policy == Policy::Reject,
            discover_every,
            queue: None,
            discovery: None,
            opened: false,
            tracks: Tracks::default(),
            size: LARGE,
            late: BTreeSet::new(),
            unanswered: 0,
        }
    }

    /// Begins to read, where there is anything to read or to wait for.
    fn open(&mut self) -> Result<()> {
        let owned: Vec<(Partition, Offset)> = self.assignment.owned().collect();
        let mut list = TopicPartitionList::with_capacity(owned.len());
        for (partition, start) in owned {
            let Some(track) = self.track(partition, start) else { continue };
            if !track.finished {
                add(&mut list, &self.connection.topic, partition, start)?;
            }
            self.tracks.insert(partition, track);
        }
        ffi::led(&mut list, &self.assignment.leader_epochs);
        let late = self.assignment.owned_late();
        self.late = late.starts.keys().copied().collect();
        let bounded = self.assignment.ends.is_some();
        let waits = !late.starts.is_empty();
        if !bounded || waits || list.count() > 0 {
            let queue = self.queue()?;
            if list.count() > 0 {
                queue.assign(&list).map_err(|code| self.fault(code, &code.to_string()))?;
            }
            if !bounded || waits {
                self.discovery = Some(Discovery::start(
                    Arc::clone(queue.client()),
                    &self.connection,
                    &self.assignment,
                    late,
                    (!bounded).then_some(self.discover_every),
                )?);
            }
        }
        self.opened = true;
        Ok(())
    }

    /// A track of `partition`; `None` where a bounded run does not name it.
    fn track(&self, partition: Partition, start: Offset) -> Option<Track> {
        let end = match &self.assignment.ends {
            None => None,
            Some(ends) => Some(ends.get(&partition)?.0),
        };
        let cuts = self.assignment.cuts.get(&partition).map_or(&[][..], Vec::as_slice);
        let cover = Cover::new(self.assignment.lane(partition), start, cuts);
        let finished = end.is_some_and(|end| start.0 >= end);
        Some(Track { cover, end, at_end: false, touched: false, finished })
    }

    fn queue(&mut self) -> Result<Arc<Queue>> {
        if let Some(queue) = &self.queue {
            return Ok(Arc::clone(queue));
        }
        let Assignment { shared, worker, wake, .. } = &self.assignment;
        let client = self.connection.shared_client(shared, *worker)?;
        let queue = Arc::new(Queue::new(client, wake.clone()));
        self.queue = Some(Arc::clone(&queue));
        Ok(queue)
    }

    /// Begins to read partitions that were found, or have waited long enough.
    fn welcome(&mut self) -> Result<()> {
        while let Some(found) = self.discovery.as_ref().and_then(Discovery::next) {
            let (partition, start) = match found {
                Found::Partition(partition, start) => (partition, start),
                Found::Gone(code) => return Err(self.fault(code, &code.to_string())),
            };
            let topic = &self.connection.topic;
            tracing::info!(target: "tidegate::kafka", topic, partition = partition.0,
                start = start.0, "reading a new partition");
            let mut list = TopicPartitionList::new();
            add(&mut list, topic, partition, start)?;
            let queue = self.queue()?;
            queue.assign(&list).map_err(|code| self.fault(code, &code.to_string()))?;
            if let Some(track) = self.track(partition, start) {
                self.tracks.insert(partition, track);
            }
            self.late.remove(&partition);
        }
        Ok(())
    }

    fn fault(&self, code: Code, text: &str) -> Error {
        faults::error(code, text, &self.connection)
    }

    /// Takes from the queue what is there, up to `limit` records or about [`ROUND`] bytes. Says whether it was
    /// emptied.
    fn fetch(&mut self, queue: &Queue, limit: usize, batch: &mut Batch<C::Value>) -> Result<bool> {
        let mut left = limit.max(1);
        let begun = batch.bytes;
        while left > 0 && batch.bytes - begun < ROUND {
            let asked = left.min(CHUNK).min(ROUND / self.size + 1);
            let before = batch.bytes;
            let messages = queue.consume(asked);
            // After they were taken, and before any of them is looked at.
            self.witness.attest(queue.client().events(), messages.len() > 0)?;
            self.sort(queue.client(), &messages, batch)?;
            left -= messages.len();
            if let Some(size) = (batch.bytes - before).checked_div(messages.len()) {
                self.size = size.max(RECORD);
            }
            if messages.len() < asked {
                let events = queue.client().serve();
                self.sort(queue.client(), &events, batch)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes records and events.
    fn sort(
        &mut self,
        client: &Client,
        messages: &Messages<'_>,
        batch: &mut Batch<C::Value>,
    ) -> Result<()> {
        for message in messages.iter() {
            match message.code() {
                Code::NoError => self.take(&message, batch)?,
                Code::PartitionEOF => self.reach(&message, batch),
                code => self.event(client, code, &message)?,
            }
        }
        Ok(())
    }

    /// Takes a record.
    fn take(&mut self, message: &Message<'_>, batch: &mut Batch<C::Value>) -> Result<()> {
        let (partition, offset) = (message.partition(), message.offset());
        let Some(track) = self.tracks.get_mut(partition) else {
            // Whoever it belongs to would take it for a gap in the log.
            return Err(Error::internal(format!(
                "`{}[{partition}]@{offset}` came to worker {}, which does not read this partition",
                self.connection.topic, self.assignment.worker
            )));
        };
        // After a reconnect librdkafka may hand over again what it has handed over.
        if track.finished || offset < track.position() {
            return Ok(());
        }
        track.touched = true;
        if let Some(end) = track.end.filter(|end| offset >= *end) {
            track.cover.reach(end, &mut batch.spans);
            return Ok(());
        }
        track.at_end = false;
        let timestamp = message.timestamp();
        track.cover.record(offset, &mut batch.spans);
        track.cover.stamp(timestamp);
        track.cover.led(message.leader_epoch());

        let (key, value) = (message.key(), message.value());
        batch.bytes += key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len) + RECORD;
        let (partition, offset) = (Partition(partition), Offset(offset));
        let record = Record {
            topic: &self.connection.topic,
            partition,
            offset,
            timestamp,
            key,
            value,
            headers: &message.headers(),
        };
        let source = self.assignment.source;
        decode(&mut self.codec, source, &record, self.keeps_origins, batch);
        Ok(())
    }

    /// Takes the end of a partition, as it is now: what lies between the last record and here holds
    /// none for us.
    fn reach(&mut self, message: &Message<'_>, batch: &mut Batch<C::Value>) {
        let Some(track) = self.tracks.get_mut(message.partition()) else { return };
        if track.finished || message.offset() < track.position() {
            return;
        }
        let upto = track.end.map_or(message.offset(), |end| end.min(message.offset()));
        track.cover.reach(upto, &mut batch.spans);
        track.at_end = true;
        track.touched = true;
    }

    /// Takes an error that came on the queue.
    fn event(&self, client: &Client, code: Code, message: &Message<'_>) -> Result<()> {
        let text = message.text();
        if faults::passes(code) {
            client.events().passing(code, &self.connection.topic, message.partition(), &text);
            return Ok(());
        }
        if faults::is_out_of_range(code) {
            return Err(self.out_of_range(client, message.partition(), code));
        }
        Err(self.fault(code, &text))
    }

    /// The error for a position that the log does not hold. The run is over, so there is time to ask
    /// which offsets there are.
    fn out_of_range(&self, client: &Client, partition: i32, code: Code) -> Error {
        let topic = &self.connection.topic;
        let partition = Partition(partition);
        let position = self.tracks.iter().find(|track| track.cover.lane().partition == partition);
        let position = position.map_or(-1, Track::position);
        let bound = |time| {
            let found = offsets(client, &self.connection, &[partition], time, RANGE).ok()?;
            found.get(&partition).copied().flatten()
        };
        let sentence = match (bound(Raw::Beginning), bound(Raw::End)) {
            (Some(first), _) if position < first.0 => format!(
                "position {position} of `{topic}[{partition}]` is below the log's start {first}: \
                 the records from {position} to {first} are gone; accept the loss with \
                 `positions --set {first}`, or restore them"
            ),
            (Some(first), Some(end)) if (first.0..=end.0).contains(&position) => format!(
                "position {position} of `{topic}[{partition}]` lies in a log that was cut off and written \
                 again, as an unclean leader election does: some records before it are others than those \
                 that were read; choose where to go on with `positions --set`, or start over with \
                 `--forget`"
            ),
            (Some(first), Some(end)) => format!(
                "position {position} of `{topic}[{partition}]` is outside of the log, which holds \
                 {first} to {end}: was the topic recreated or cut off? choose where to go on with \
                 `positions --set`, or start over with `--forget`"
            ),
            _ => format!(
                "position {position} of `{topic}[{partition}]` is outside of the log; choose where \
                 to go on with `positions --set`, or start over with `--forget`"
            ),
        };
        Error::position(sentence).because(code)
    }

    /// Hands out the spans of this poll, and stops fetching what has reached its end.
    fn settle(&mut self, queue: &Queue, batch: &mut Batch<C::Value>) -> Result<()> {
        let mut over = TopicPartitionList::new();
        for track in self.tracks.by_number.iter_mut().flatten().filter(|track| track.touched) {
            track.touched = false;
            track.cover.flush(&mut batch.spans);
            if track.is_over() {
                track.finished = true;
                self.tracks.open -= 1;
                over.add_partition(&self.connection.topic, track.cover.lane().partition.0);
            }
        }
        if over.count() > 0 {
            queue.unassign(&over).map_err(|code| self.fault(code, &code.to_string()))?;
        }
        Ok(())
    }

    /// Takes the answers to commits that are there, or waits for all until `deadline`.
    fn answers(&mut self, queue: &Queue, deadline: Option<Instant>) -> Result<()> {
        let mut last = Ok(());
        while self.unanswered > 0 {
            let wait = deadline.map_or(Duration::ZERO, |deadline| {
                deadline.saturating_duration_since(Instant::now())
            });
            let Some(answer) = queue.committed(wait) else {
                if deadline.is_some() {
                    last = Err(self.uncommitted(Code::OperationTimedOut));
                }
                break;
            };
            self.unanswered -= 1;
            last = answer.map_err(|code| self.uncommitted(code));
        }
        last
    }

    fn uncommitted(&self, code: Code) -> Error {
        let group = &self.connection.group;
        tracing::warn!(target: "tidegate::kafka", group, code = ?code,
            "commit to the group failed; stored positions are not affected");
        Error::source(format!(
            "commit to the group `{group}` failed: {code}; lag tools show an older position, the \
             stored ones are not affected"
        ))
        .because(code)
        .retryable(faults::passes(code))
    }
}

fn add(
    list: &mut TopicPartitionList,
    topic: &str,
    partition: Partition,
    offset: Offset,
) -> Result<()> {
    list.add_partition_offset(topic, partition.0, Raw::Offset(offset.0)).map_err(|error| {
        Error::internal(format!("no position: {offset} of `{topic}[{partition}]`")).because(error)
    })
}

impl<C: Codec> Reader<C::Value> for TopicReader<C> {
    fn poll(&mut self, limit: usize, batch: &mut Batch<C::Value>) -> Result<Poll> {
        if !self.opened {
            self.open()?;
        }
        self.welcome()?;
        let over = |reader: &Self| {
            reader.assignment.ends.is_some() && reader.tracks.open == 0 && reader.late.is_empty()
        };
        if over(self) {
            return Ok(Poll::End);
        }
        let Some(queue) = self.queue.clone() else { return Ok(Poll::Idle) };
        if let Some((code, text)) = queue.client().events().fatal() {
            return Err(self.fault(code, &text));
        }
        let emptied = self.fetch(&queue, limit, batch)?;
        self.settle(&queue, batch)?;
        Ok(match (over(self), emptied) {
            (true, _) => Poll::End,
            (false, true) => Poll::Idle,
            (false, false) => Poll::More,
        })
    }

    fn commit(&mut self, positions: &BTreeMap<Partition, Offset>, wait: bool) -> Result<()> {
        if positions.is_empty() && self.unanswered == 0 {
            return Ok(());
        }
        let queue = self.queue()?;
        // Each failure is logged where it is found; only the one that is waited for is returned.
        let _earlier = self.answers(&queue, None);
        if !positions.is_empty() {
            let mut list = TopicPartitionList::with_capacity(positions.len());
            for (partition, offset) in positions {
                add(&mut list, &self.connection.topic, *partition, *offset)?;
            }
            fail::fail_point!("group-behind");
            match queue.commit(&list) {
                Ok(()) => {
                    fail::fail_point!("group-asked");
                    self.unanswered += 1;
                }
                Err(code) => {
                    let error = self.uncommitted(code);
                    return if wait { Err(error) } else { Ok(()) };
                }
            }
        }
        if wait { self.answers(&queue, Some(Instant::now() + COMMIT)) } else { Ok(()) }
    }

    fn standings(&self) -> Vec<Standing> {
        let standing = |track: &Track| {
            let lane = track.cover.lane();
            let position = track.position();
            // The cached watermark ignores transactions that are open; an end that was seen does not, nor
            // does one that was asked for.
            let asked = || self.discovery.as_ref()?.end(lane.partition);
            let end = if track.at_end {
                Some(position)
            } else if let Some(end) = asked() {
                Some(end.max(position))
            } else {
                let client = self.queue.as_ref().map(|queue| queue.client());
                client
                    .and_then(|c| c.high_watermark(&self.connection.name, lane.partition.0))
                    .map(|high| high.max(position))
            };
            Standing { lane, position: Offset(position), end: end.map(Offset) }
        };
        self.tracks.iter().map(standing).collect()
    }

    fn silence(&self) -> Option<Silence> {
        self.discovery.as_ref()?.silence()
    }
}

impl<C> Drop for TopicReader<C> {
    /// Closing the last queue of a client joins its threads, which may take a while where a broker does not answer, so
    /// a thread does it.
    fn drop(&mut self) {
        self.discovery = None;
        let Some(queue) = self.queue.take() else { return };
        queue.silence();
        let (closed, wait) = mpsc::channel::<()>();
        let closer = thread::Builder::new().name("tidegate-kafka-close".into()).spawn(move || {
            drop(queue);
            drop(closed);
        });
        if closer.is_ok() {
            // Disconnected when closed; a discovery that is still asking closes the client itself.
            let _ = wait.recv_timeout(CLOSE);
        }
    }
}
