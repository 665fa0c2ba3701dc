//! Orders, and topics of them.

use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

use super::common::{self, brokers, mix};

/// How many partitions the topics have.
pub const PARTITIONS: i32 = 8;

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

/// A topic that is deleted with it.
pub struct Topic(pub String);

impl Topic {
    /// A new, empty topic.
    pub fn new(name: &str, partitions: i32) -> Self {
        Topic(common::topic(&format!("bench_{name}"), partitions))
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
        common::delete(&self.0);
    }
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
