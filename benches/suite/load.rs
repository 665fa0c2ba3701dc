//! Orders, and topics of them.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

/// How many partitions the topics have.
pub const PARTITIONS: i32 = 8;

/// The brokers.
pub fn brokers() -> String {
    std::env::var("TIDEGATE_BROKERS")
        .expect("benchmarks need a Kafka broker in TIDEGATE_BROKERS: run scripts/bench")
}

/// Order `index`: about 180 bytes; three in ten are removed.
pub fn order(index: u64) -> Vec<u8> {
    let mixed = mix(index);
    let status = match mixed >> 8 & 0xff {
        0..77 => "removed",
        77..130 => "created",
        130..180 => "paid",
        180..220 => "shipped",
        _ => "delivered",
    };
    format!(
        r#"{{"order_id":{index},"customer":"customer-{:05}@shop-{:03}.example","status":"{status}","amount":{},"currency":"EUR","created_at":"2026-03-01T{:02}:{:02}:{:02}.{:06}Z"}}"#,
        mixed >> 16 & 0x3fff,
        mixed >> 30 & 0x1ff,
        mixed >> 40 & 0xfffff,
        index / 3600 % 24,
        index / 60 % 60,
        index % 60,
        mixed % 1_000_000,
    )
    .into_bytes()
}

/// The partition of order `index`.
pub fn partition(index: u64) -> i32 {
    (mix(index) >> 32) as i32 & (PARTITIONS - 1)
}

/// A well-mixed number (splitmix64).
pub fn mix(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A name that no other run of this program uses.
pub fn unique(name: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    format!("bench_{name}_{}", now.expect("after 1970").as_micros())
}

/// A topic that is deleted with it.
pub struct Topic(pub String);

impl Topic {
    /// A new, empty topic.
    pub fn new(name: &str, partitions: i32) -> Self {
        let name = unique(name);
        let new = NewTopic::new(&name, partitions, TopicReplication::Fixed(1));
        let done = block_on(admin().create_topics([&new], &AdminOptions::new()));
        for topic in done.expect("the broker answers") {
            topic.expect("the topic is new");
        }
        Topic(name)
    }

    /// A topic of orders 0 to `orders`.
    pub fn of_orders(name: &str, orders: u64) -> Self {
        let topic = Topic::new(name, PARTITIONS);
        let began = Instant::now();
        produce(&topic.0, (0..orders).map(|index| (partition(index), order(index))));
        eprintln!("bench: {orders} orders produced in {:.1} s", began.elapsed().as_secs_f64());
        topic
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // A topic that stays takes room, and nothing else.
        let _ = block_on(admin().delete_topics(&[&self.0], &AdminOptions::new()));
    }
}

fn admin() -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", brokers()).create().expect("a client")
}

fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

pub type Sender = ThreadedProducer<DefaultProducerContext>;

/// A producer of this process.
pub fn producer() -> Sender {
    ClientConfig::new()
        .set("bootstrap.servers", brokers())
        .set("linger.ms", "5")
        .set("batch.num.messages", "10000")
        .set("queue.buffering.max.messages", "500000")
        .set("message.max.bytes", "1000000")
        .create()
        .expect("a producer")
}

/// Queues a message, waiting for room.
pub fn send(producer: &Sender, topic: &str, partition: i32, value: &[u8]) {
    let record = || BaseRecord::<[u8], [u8]>::to(topic).partition(partition).payload(value);
    let mut sent = producer.send(record());
    while let Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) = sent {
        producer.flush(Duration::from_millis(20)).ok();
        sent = producer.send(record());
    }
    sent.map_err(|(error, _)| error).expect("the message is queued");
}

/// Produces messages of partition and value, and returns when all are acknowledged.
pub fn produce(topic: &str, messages: impl IntoIterator<Item = (i32, Vec<u8>)>) {
    let producer = producer();
    for (partition, value) in messages {
        send(&producer, topic, partition, &value);
    }
    producer.flush(Duration::from_secs(120)).expect("all messages are acknowledged");
}
