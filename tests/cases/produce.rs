//! A case's messages into a topic, in their order, with the offsets that they get.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{DeliveryResult, Header, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};

use super::expand::expand;
use super::form::{Case, Fate, Message, Part};
use crate::common;

const LONG: Duration = Duration::from_secs(30);

/// A message in its topic.
pub struct Sent {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub timestamp_ms: Option<i64>,
    pub partition: i32,
    pub offset: i64,
    /// False in a transaction that is aborted.
    pub readable: bool,
}

/// What was produced of a case so far.
pub struct Topic {
    pub name: String,
    pub partitions: i32,
    /// In the order of production.
    pub sent: Vec<Sent>,
    messages: Vec<Message>,
    transactions: BTreeMap<String, Fate>,
    producer: ThreadedProducer<Receipts>,
}

impl Topic {
    /// A topic of its own for `case`, still empty.
    pub fn new(case: &Case) -> Self {
        let messages = expand(&case.messages);
        let partitions = 1 + messages.iter().map(|message| message.partition).max().unwrap_or(0);
        let name = common::topic(case.topic.as_deref().unwrap_or(&case.id), partitions);
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", common::brokers()).set("enable.idempotence", "true");
        config.set("message.max.bytes", "2000000").set("linger.ms", "1");
        if !case.transactions.is_empty() {
            config.set("transactional.id", &name);
        }
        let producer: ThreadedProducer<_> =
            config.create_with_context(Receipts::default()).expect("a producer");
        if !case.transactions.is_empty() {
            producer.init_transactions(LONG).expect("the broker takes transactions");
        }
        let transactions = case.transactions.clone();
        Topic { name, partitions, sent: Vec::new(), messages, transactions, producer }
    }

    /// How many messages the case has.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether a part of the messages may end before `index`: a transaction is never cut.
    pub fn may_cut(&self, index: usize) -> bool {
        let txn = |index: usize| self.messages.get(index)?.txn.as_ref();
        index == 0 || txn(index).is_none() || txn(index - 1) != txn(index)
    }

    /// Produces the messages up to `upto`, and returns when all of them are acknowledged.
    pub fn produce(&mut self, upto: usize) {
        let from = self.sent.len();
        let mut at = from;
        while at < upto {
            let txn = self.messages[at].txn.as_ref();
            let alike = self.messages[at..upto].iter().take_while(|m| m.txn.as_ref() == txn);
            let end = at + alike.count();
            if txn.is_some() {
                self.producer.begin_transaction().expect("no transaction is open");
            }
            (at..end).for_each(|index| self.send(index));
            let receipts = self.acknowledged(end - at);
            let fate = txn.map(|name| self.transactions[name]);
            match fate {
                Some(Fate::Commit) => self.producer.commit_transaction(LONG).expect("a commit"),
                Some(Fate::Abort) => self.producer.abort_transaction(LONG).expect("an abort"),
                None => {}
            }
            let sent = (at..end).map(|index| {
                let message = &self.messages[index];
                let bytes = |part: &Option<Part>| part.as_ref().map(Part::bytes);
                let headers = message.headers.iter();
                Sent {
                    key: bytes(&message.key),
                    value: bytes(&message.value),
                    headers: headers.map(|(name, value)| (name.clone(), bytes(value))).collect(),
                    timestamp_ms: message.timestamp_ms,
                    partition: message.partition,
                    offset: receipts[&index],
                    readable: fate != Some(Fate::Abort),
                }
            });
            self.sent.extend(sent);
            at = end;
        }
    }

    /// Waits for the acknowledgements of `count` messages. (`flush` looks every 100 ms only.)
    fn acknowledged(&self, count: usize) -> BTreeMap<usize, i64> {
        let receipts = &self.producer.context().0;
        common::eventually(LONG, || (receipts.lock().unwrap().len() == count).then_some(()))
            .expect("all messages are acknowledged");
        std::mem::take(&mut receipts.lock().unwrap())
    }

    fn send(&self, index: usize) {
        let message = &self.messages[index];
        let bytes = |part: &Option<Part>| part.as_ref().map(Part::bytes);
        let (key, value) = (bytes(&message.key), bytes(&message.value));
        let mut headers = OwnedHeaders::new();
        for (name, value) in &message.headers {
            let value = bytes(value);
            headers = headers.insert(Header { key: name, value: value.as_ref() });
        }
        let mut record = BaseRecord::<[u8], [u8], usize>::with_opaque_to(&self.name, index)
            .partition(message.partition);
        record.key = key.as_deref();
        record.payload = value.as_deref();
        record.timestamp = message.timestamp_ms;
        if !message.headers.is_empty() {
            record = record.headers(headers);
        }
        self.producer.send(record).map_err(|(error, _)| error).expect("the message is queued");
    }

    /// Where each partition ends, control markers counted.
    pub fn ends(&self) -> BTreeMap<i32, i64> {
        let consumer: BaseConsumer =
            ClientConfig::new().set("bootstrap.servers", common::brokers()).create().unwrap();
        let end = |partition| {
            let (_, end) = consumer.fetch_watermarks(&self.name, partition, LONG).unwrap();
            (partition, end)
        };
        (0..self.partitions).map(end).collect()
    }
}

/// The offsets of the messages that were acknowledged, by their index.
#[derive(Clone, Default)]
struct Receipts(Arc<Mutex<BTreeMap<usize, i64>>>);

impl ClientContext for Receipts {}

impl ProducerContext for Receipts {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, index: usize) {
        let message = result.as_ref().map_err(|(error, _)| error).expect("the message is stored");
        self.0.lock().unwrap().insert(index, message.offset());
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use rdkafka::message::Headers;
    use rdkafka::{Offset, TopicPartitionList};

    use super::super::form::load;
    use super::*;

    /// What a reader of `topic` finds at each place, in the form of `show`.
    fn read(topic: &Topic) -> BTreeMap<(i32, i64), String> {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", common::brokers())
            .set("group.id", &topic.name)
            .set("enable.auto.commit", "false")
            .create()
            .unwrap();
        let mut partitions = TopicPartitionList::new();
        for partition in 0..topic.partitions {
            partitions.add_partition_offset(&topic.name, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&partitions).unwrap();
        let readable = topic.sent.iter().filter(|sent| sent.readable).count();
        let started = Instant::now();
        let mut found = BTreeMap::new();
        while found.len() < readable && started.elapsed() < LONG {
            let Some(message) = consumer.poll(Duration::from_millis(100)) else { continue };
            let message = message.unwrap();
            let mut headers = Vec::new();
            for header in message.headers().into_iter().flat_map(Headers::iter) {
                headers.push((header.key.to_owned(), header.value.map(<[u8]>::to_vec)));
            }
            let place = (message.partition(), message.offset());
            let (key, value) = (message.key(), message.payload());
            found.insert(place, show(key, value, &headers, message.timestamp().to_millis()));
        }
        found
    }

    fn show(
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(String, Option<Vec<u8>>)],
        timestamp: Option<i64>,
    ) -> String {
        format!("{key:?} {value:?} {headers:?} {timestamp:?}")
    }

    fn produced(id: &str) -> Topic {
        let case = load().into_iter().find(|case| case.id == id).unwrap();
        let mut topic = Topic::new(&case);
        topic.produce(topic.len());
        topic
    }

    /// Null, empty and absent parts, headers twice and of a megabyte, timestamps.
    #[test]
    fn messages_arrive_as_the_case_has_them() {
        for id in ["c01_declared_unit", "o01_tombstones_keyed", "o04_headers_as_bytes"] {
            let topic = produced(id);
            let found = read(&topic);
            for (index, sent) in topic.sent.iter().enumerate() {
                let Sent { key, value, headers, timestamp_ms, .. } = sent;
                let sent_as = show(key.as_deref(), value.as_deref(), headers, *timestamp_ms);
                let found = &found[&(sent.partition, sent.offset)];
                // A time that the case does not give is the producer's.
                let sent_as = sent_as.strip_suffix(" None").unwrap_or(&sent_as);
                assert!(found.starts_with(sent_as), "message {index} of {id}");
            }
        }
    }

    #[test]
    fn transactions_leave_their_markers() {
        let topic = produced("h01_ends_in_a_marker");
        let offsets = |partition| {
            let sent = topic.sent.iter().filter(move |sent| sent.partition == partition);
            sent.map(|sent| sent.offset).collect::<Vec<_>>()
        };
        assert_eq!(offsets(0), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(offsets(1), [0, 1, 2, 4, 5]);
        assert_eq!(topic.ends(), BTreeMap::from([(0, 8), (1, 7)]));
        assert_eq!(read(&topic).len(), 12);
    }
}
