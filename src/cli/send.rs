//! Sends records to Kafka: in batches, with back-pressure, every delivery accounted for.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::{FromClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::types::RDKafkaConfRes;
use rdkafka::{ClientConfig, ClientContext};

use crate::error::{Error, Result};

/// How long a question to the brokers may take.
const LIMIT: Duration = Duration::from_secs(10);
/// How many records are queued between two looks at deliveries.
const LOOK: u64 = 1_000;

/// What became of the records that were sent.
#[derive(Default)]
pub(super) struct Deliveries(Mutex<Outcome>);

#[derive(Default)]
struct Outcome {
    delivered: u64,
    failed: u64,
    first: Option<String>,
    trouble: Option<String>,
}

impl Deliveries {
    fn with<T>(&self, look: impl FnOnce(&mut Outcome) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        tracing::debug!(?level, facility, "{text}");
    }

    fn error(&self, _error: KafkaError, reason: &str) {
        self.with(|outcome| outcome.trouble = Some(reason.to_owned()));
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        self.with(|outcome| match result {
            Ok(_) => outcome.delivered += 1,
            Err((error, _)) => {
                outcome.failed += 1;
                outcome.first.get_or_insert_with(|| said(error));
            }
        });
    }
}

/// A topic, to be sent to.
pub(super) struct Sender {
    producer: BaseProducer<Deliveries>,
    topic: String,
    partitions: i32,
    sent: u64,
}

impl Sender {
    /// A sender to `topic`; where there is none, it is created with `create` partitions.
    pub(super) fn open(config: &ClientConfig, topic: &str, create: Option<i32>) -> Result<Self> {
        let partitions = match (partitions(config, topic)?, create) {
            (Some(partitions), _) => partitions,
            (None, Some(partitions)) => create_topic(config, topic, partitions)?,
            (None, None) => {
                return Err(Error::source(format!(
                    "topic `{topic}` does not exist on `{}`; create it with `--partitions`, or \
                     correct the name",
                    brokers(config)
                )));
            }
        };
        let producer = BaseProducer::from_config_and_context(config, Deliveries::default())
            .map_err(|error| refused(&error))?;
        Ok(Sender { producer, topic: topic.to_owned(), partitions, sent: 0 })
    }

    /// Sends a record: to the partition of its key, or without one to each partition in turn. Waits
    /// while the queue is full.
    pub(super) fn send(&mut self, key: Option<&[u8]>, value: &[u8]) -> Result<()> {
        let mut record = BaseRecord::<[u8], [u8]>::to(&self.topic).payload(value);
        record = match key {
            Some(key) => record.key(key),
            None => {
                let turn = i64::try_from(self.sent).unwrap_or(0) % i64::from(self.partitions);
                record.partition(turn as i32)
            }
        };
        loop {
            match self.producer.send(record) {
                Ok(()) => break,
                Err((KafkaError::MessageProduction(Code::QueueFull), unsent)) => {
                    record = unsent;
                    self.producer.poll(Duration::from_millis(10));
                    self.look()?;
                }
                Err((error, _)) => {
                    let number = self.sent + 1;
                    return Err(Error::source(format!(
                        "record {number} cannot be sent to `{}`: {}",
                        self.topic,
                        said(&error)
                    )));
                }
            }
        }
        self.sent += 1;
        if self.sent.is_multiple_of(LOOK) {
            self.producer.poll(Duration::ZERO);
            self.look()?;
        }
        Ok(())
    }

    /// Waits until every record was delivered, and returns how many there were.
    pub(super) fn finish(self) -> Result<u64> {
        loop {
            let waited = self.producer.flush(Duration::from_secs(1));
            self.look()?;
            match waited {
                Ok(()) => return Ok(self.producer.context().with(|outcome| outcome.delivered)),
                Err(KafkaError::Flush(Code::OperationTimedOut)) => {}
                Err(error) => {
                    return Err(Error::source(format!("sending failed: {}", said(&error))));
                }
            }
        }
    }

    /// An error where a record was not delivered.
    fn look(&self) -> Result<()> {
        self.producer.context().with(|outcome| match &outcome.first {
            None => Ok(()),
            Some(first) => {
                let trouble =
                    outcome.trouble.as_ref().map(|t| format!(" ({t})")).unwrap_or_default();
                Err(Error::source(format!(
                    "{} records were not delivered to `{}`, {} were: {first}{trouble}",
                    outcome.failed, self.topic, outcome.delivered
                )))
            }
        })
    }
}

fn brokers(config: &ClientConfig) -> &str {
    config.get("bootstrap.servers").unwrap_or_default()
}

/// How many partitions `topic` has; `None` where it does not exist.
fn partitions(config: &ClientConfig, topic: &str) -> Result<Option<i32>> {
    let mut consumer = ClientConfig::new();
    // Only how to connect: a consumer would not know the rest, and says so.
    for (name, value) in config.config_map() {
        if ["bootstrap.", "security.", "ssl.", "sasl.", "socket.", "broker.", "client."]
            .iter()
            .any(|prefix| name.starts_with(prefix))
            || name == "enable.ssl.certificate.verification"
        {
            consumer.set(name, value);
        }
    }
    let consumer = consumer.create_with_context::<Quiet, BaseConsumer<Quiet>>(Quiet::default());
    let consumer = consumer.map_err(|error| refused(&error))?;
    let metadata = consumer.fetch_metadata(Some(topic), LIMIT).map_err(|error| {
        let seconds = LIMIT.as_secs();
        let trouble = consumer.context().0.lock().unwrap_or_else(PoisonError::into_inner);
        let trouble = trouble.clone().unwrap_or_else(|| said(&error));
        Error::source(format!(
            "Kafka at `{}` does not answer within {seconds} s: {trouble}; check the address, and \
             that the broker runs",
            brokers(config)
        ))
        .retryable(true)
    })?;
    let Some(found) = metadata.topics().iter().find(|found| found.name() == topic) else {
        return Ok(None);
    };
    match found.error().map(Code::from) {
        None => Ok(i32::try_from(found.partitions().len()).ok().filter(|count| *count > 0)),
        Some(Code::UnknownTopicOrPartition | Code::UnknownTopic) => Ok(None),
        Some(code) => Err(Error::source(format!("topic `{topic}` cannot be used: {code}"))),
    }
}

fn create_topic(config: &ClientConfig, topic: &str, partitions: i32) -> Result<i32> {
    let cannot = |why: String| Error::source(format!("topic `{topic}` cannot be created: {why}"));
    let admin =
        AdminClient::<DefaultClientContext>::from_config(config).map_err(|e| refused(&e))?;
    let wanted = NewTopic::new(topic, partitions, TopicReplication::Fixed(-1));
    let options = AdminOptions::new().operation_timeout(Some(LIMIT)).request_timeout(Some(LIMIT));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .map_err(|error| Error::internal("start a runtime").because(error))?;
    let answers = runtime.block_on(admin.create_topics([&wanted], &options));
    for answer in answers.map_err(|error| cannot(said(&error)))? {
        match answer {
            Ok(_) | Err((_, Code::TopicAlreadyExists)) => {}
            Err((_, code)) => return Err(cannot(code.to_string())),
        }
    }
    Ok(partitions)
}

/// Keeps the last of the client's troubles for the error that comes of it.
#[derive(Default)]
struct Quiet(Mutex<Option<String>>);

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        tracing::debug!(?level, facility, "{text}");
    }

    fn error(&self, _error: KafkaError, reason: &str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason.to_owned());
    }
}

impl rdkafka::consumer::ConsumerContext for Quiet {}

/// The error for settings that the client refuses; values may be secrets and are not shown.
fn refused(error: &KafkaError) -> Error {
    match error {
        KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, _, name, _) => {
            Error::config(format!("the Kafka client has no setting `{name}`; correct its name"))
        }
        KafkaError::ClientConfig(_, _, name, _) => Error::config(format!(
            "the Kafka client refuses the value of setting `{name}`; correct it"
        )),
        KafkaError::ClientCreation(text) => {
            Error::config(format!("the Kafka client does not start: {text}; correct its settings"))
        }
        error => Error::config(format!("the Kafka client does not start: {}", said(error))),
    }
}

/// What an error says, without the names of Rust types around it.
fn said(error: &KafkaError) -> String {
    error.rdkafka_error_code().map_or_else(|| error.to_string(), |code| code.to_string())
}
