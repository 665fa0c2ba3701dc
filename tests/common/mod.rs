//! What the stories share: services, topics, tables, orders and their sequential model, processes.

#![allow(dead_code, reason = "each test file uses its own part")]

pub mod http;
pub mod leaders;
pub mod load;
pub mod orders;
pub mod proxy;
pub mod services;
pub mod story;
pub mod tools;

use std::collections::BTreeMap;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, Producer, ThreadedProducer};

/// An address that `scripts/test` gives.
fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run scripts/test"))
}

pub fn brokers() -> String {
    service("TIDEGATE_BROKERS")
}

pub fn database() -> String {
    service("DATABASE_URL")
}

/// A name that no other test of this or another run has.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let micros = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros();
    format!("{name}_{micros:x}_{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub fn connect() -> Client {
    Client::connect(&database(), NoTls).expect("the test database answers")
}

/// Creates a topic of its own.
pub fn topic(name: &str, partitions: i32) -> String {
    topic_on(name, partitions, 1)
}

/// Creates a topic of which so many brokers have a copy.
pub fn topic_on(name: &str, partitions: i32, copies: i32) -> String {
    let topic = unique(name);
    // One broker may be away.
    let settings: &[_] = if copies > 2 { &[("min.insync.replicas", "2")] } else { &[] };
    create(&brokers(), &topic, partitions, copies, settings);
    topic
}

/// Creates a topic of that name, with so many replicas and with `settings`, as soon as there is none.
pub fn create(
    brokers: &str,
    topic: &str,
    partitions: i32,
    replicas: i32,
    settings: &[(&str, &str)],
) {
    let admin = admin_of(brokers);
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(replicas));
    let new = settings.iter().fold(new, |new, (name, value)| new.set(name, value));
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(20)));
    let created = eventually(Duration::from_secs(20), || {
        let created = block_on(admin.create_topics([&new], &options)).expect("the broker answers");
        match created.into_iter().next().expect("an answer") {
            // One of this name is being deleted.
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => None,
            created => Some(created),
        }
    });
    created.expect("the topic is gone").expect("the topic is new");
}

/// Deletes a topic.
pub fn delete(topic: &str) {
    let deleted = block_on(admin().delete_topics(&[topic], &AdminOptions::new()));
    deleted.expect("the broker answers").into_iter().for_each(|result| drop(result.unwrap()));
}

/// Adds partitions to a topic, to have `partitions` of them.
pub fn grow(topic: &str, partitions: usize) {
    let new = NewPartitions::new(topic, partitions);
    let grown = block_on(admin().create_partitions(&[new], &AdminOptions::new()));
    grown.expect("the broker answers").into_iter().for_each(|result| drop(result.unwrap()));
}

/// Deletes the records of a partition before `offset`, as retention would.
pub fn delete_before(topic: &str, partition: i32, offset: i64) {
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset(topic, partition, rdkafka::Offset::Offset(offset)).unwrap();
    block_on(admin().delete_records(&list, &AdminOptions::new())).expect("the broker answers");
}

fn admin() -> AdminClient<DefaultClientContext> {
    admin_of(&brokers())
}

fn admin_of(brokers: &str) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap()
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A message to produce: partition, key, value (`None`: a tombstone).
pub type Message = (i32, Vec<u8>, Option<Vec<u8>>);

/// Produces `messages` in their order, and returns when all are acknowledged.
pub fn produce(topic: &str, messages: impl IntoIterator<Item = Message>) {
    produce_to(&brokers(), topic, messages);
}

/// Produces `messages` to the cluster at `brokers`.
pub fn produce_to(brokers: &str, topic: &str, messages: impl IntoIterator<Item = Message>) {
    let producer: ThreadedProducer<_> = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("message.max.bytes", "33000000")
        .set("compression.type", "lz4")
        .set("linger.ms", "5")
        .set("batch.num.messages", "10000")
        .set("enable.idempotence", "true")
        .set("queue.buffering.max.messages", "200000")
        .create::<ThreadedProducer<rdkafka::producer::DefaultProducerContext>>()
        .unwrap();
    for (partition, key, value) in messages {
        let record = || {
            let record = BaseRecord::<[u8], [u8]>::to(topic).partition(partition).key(&key[..]);
            match &value {
                Some(value) => record.payload(&value[..]),
                None => record,
            }
        };
        let mut sent = producer.send(record());
        while let Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) = sent {
            producer.flush(Duration::from_millis(50)).ok();
            sent = producer.send(record());
        }
        sent.map_err(|(error, _)| error).expect("the message is queued");
    }
    producer.flush(Duration::from_secs(60)).expect("all messages are acknowledged");
}

/// A sample order, and what becomes of it: the row by order id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub order_id: i64,
    pub customer: String,
    pub status: &'static str,
    pub amount: i64,
}

impl Order {
    /// The order of event `index`, the same for every run. A fifth of the events update an earlier order;
    /// of all, three tenths are removed.
    pub fn event(index: u64) -> Self {
        let mixed = mix(index);
        let order_id = if mixed.is_multiple_of(5) { mix(index + 7) % (index + 1) } else { index };
        let status = match mixed >> 8 & 0xff {
            0..77 => "removed",
            77..150 => "new",
            150..210 => "paid",
            _ => "shipped",
        };
        Order {
            order_id: order_id as i64,
            customer: format!("customer-{:05}", mixed >> 16 & 0x3fff),
            status,
            amount: (mixed >> 32 & 0xfffff) as i64,
        }
    }

    pub fn json(&self) -> Vec<u8> {
        format!(
            r#"{{"order_id":{},"customer":"{}","status":"{}","amount":{},"currency":"EUR","created_at":"2026-03-01T12:{:02}:{:02}.{:06}Z"}}"#,
            self.order_id,
            self.customer,
            self.status,
            self.amount,
            self.amount % 60,
            self.order_id % 60,
            self.amount % 1_000_000,
        )
        .into_bytes()
    }

    /// As a message: the partition follows the order id, so that one order's events stay in order.
    pub fn message(&self, partitions: i32) -> Message {
        let partition = (mix(self.order_id as u64) % partitions as u64) as i32;
        (partition, self.order_id.to_string().into_bytes(), Some(self.json()))
    }
}

/// A well-mixed number (splitmix64).
pub fn mix(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The sequential model: the last order of each id that the filter kept.
pub fn model(events: impl IntoIterator<Item = Order>) -> BTreeMap<i64, Order> {
    let kept = events.into_iter().filter(|order| order.status != "removed");
    kept.map(|order| (order.order_id, order)).collect()
}

/// The rows of a table as the model has them.
pub fn rows(client: &mut Client, table: &str) -> BTreeMap<i64, Order> {
    let query = format!("select order_id, customer, status, amount from {table}");
    let rows = client.query(&query, &[]).unwrap();
    let count = rows.len();
    let rows: BTreeMap<_, _> = rows
        .iter()
        .map(|row| {
            let status: &str = row.get(2);
            let status = ["new", "paid", "shipped", "removed"].into_iter().find(|s| *s == status);
            let order = Order {
                order_id: row.get(0),
                customer: row.get(1),
                status: status.expect("a status that was produced"),
                amount: row.get(3),
            };
            (order.order_id, order)
        })
        .collect();
    assert_eq!(rows.len(), count, "no order id twice");
    rows
}

/// Drops the schema `name` and all that is stored of the pipeline of that name.
pub fn forget(client: &mut Client, name: &str) {
    // A test that has failed says more than its clean-up would.
    let _ = client.batch_execute(&format!(
        "set client_min_messages = error; drop schema {name} cascade;
         delete from tidegate.rejects where pipeline = '{name}';
         delete from tidegate.slices where pipeline = '{name}';
         delete from tidegate.pipelines where pipeline = '{name}'"
    ));
}

/// Creates a schema of its own with the tables of the dataflows `orders` and `order_log`.
pub fn schema(client: &mut Client, name: &str) -> String {
    let schema = unique(name);
    tables(client, &schema);
    schema
}

/// Creates the schema `schema` with those tables.
pub fn tables(client: &mut Client, schema: &str) {
    client
        .batch_execute(&format!(
            "create schema {schema};
             create table {schema}.valid_orders (order_id bigint primary key, customer text not null,
                 status text not null, amount bigint not null, currency text, created_at timestamptz);
             create table {schema}.order_log (partition int not null, \"offset\" bigint not null,
                 order_id bigint not null, customer text not null, status text not null,
                 amount bigint not null);"
        ))
        .unwrap();
}

/// A running `tidegate`.
pub struct Process {
    pub child: Child,
    command: String,
}

impl Process {
    /// Starts the program under test.
    pub fn spawn(args: &[&str]) -> Self {
        Self::spawn_with(args, &[])
    }

    /// Starts it with environment variables.
    pub fn spawn_with(args: &[&str], environment: &[(&str, &str)]) -> Self {
        Self::spawn_program(env!("CARGO_BIN_EXE_tidegate"), args, environment)
    }

    /// Starts another program, which runs the one under test.
    pub fn spawn_program(program: &str, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let mut command = Command::new(program);
        command.args(args).envs(environment.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().expect("the program starts");
        Process { child, command: args.join(" ") }
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// What a process that has ended said.
    pub fn output(&mut self) -> String {
        let mut text = String::new();
        if self.has_ended() {
            self.child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
            self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        }
        text
    }

    pub fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status().unwrap();
        assert!(status.success(), "kill {signal} {pid}");
    }

    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end, and returns status, standard output and standard error.
    pub fn wait(mut self, limit: Duration) -> (ExitStatus, String, String) {
        let command = self.command.clone();
        // Both pipes are drained while it runs, so that it never blocks on a full one.
        let mut out = self.child.stdout.take().unwrap();
        let mut err = self.child.stderr.take().unwrap();
        let read = |pipe: &mut dyn Read| {
            let mut text = String::new();
            pipe.read_to_string(&mut text).unwrap();
            text
        };
        let out = std::thread::spawn(move || read(&mut out));
        let err = std::thread::spawn(move || read(&mut err));
        let ended = eventually(limit, || self.child.try_wait().unwrap());
        if ended.is_none() {
            self.child.kill().unwrap();
            self.child.wait().unwrap();
        }
        let (out, err) = (out.join().unwrap(), err.join().unwrap());
        let Some(status) = ended else {
            panic!("`{command}` has not ended within {limit:?}\n{out}\n{err}")
        };
        (status, out, err)
    }

    /// Waits for a good end, and returns the last line of standard output.
    pub fn success(self, limit: Duration) -> String {
        let command = self.command.clone();
        let (status, out, err) = self.wait(limit);
        assert!(status.success(), "`{command}` ended with {status}\n{out}\n{err}");
        out.lines().last().unwrap_or_default().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A test that failed leaves nothing running; one that waited has nothing to end.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Looks again and again until there is a result, at most for `limit`.
pub fn eventually<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if started.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A value of the summary line.
pub fn figure(line: &str, name: &str) -> u64 {
    let value = line.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    value
        .and_then(|value| value.parse().ok())
        .unwrap_or_else(|| panic!("`{line}` has no whole number `{name}`"))
}
