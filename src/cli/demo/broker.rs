//! The demo's broker: real, or inside this process.

use std::time::{SystemTime, UNIX_EPOCH};

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;

use crate::error::{Error, Result};

/// librdkafka's mock cluster keeps 5 MB a partition and drops what is older; filled to half at most,
/// since keys do not spread evenly.
const RECORDS_A_PARTITION: u64 = 12_500;
const PARTITIONS: i32 = 16;

/// A broker and a topic of the demo's own on it.
pub(super) struct Broker {
    brokers: String,
    topic: String,
    partitions: i32,
    /// Keeps the broker inside this process alive.
    embedded: Option<MockCluster<'static, DefaultProducerContext>>,
}

impl Broker {
    /// A broker inside this process, with room for `records`.
    pub(super) fn embedded(records: u64) -> Result<Self> {
        let cannot = |error| {
            Error::internal("the broker inside this process does not start; use --kafka")
                .because(error)
        };
        let room = records.div_ceil(RECORDS_A_PARTITION);
        let partitions = i32::try_from(room).unwrap_or(i32::MAX).max(PARTITIONS);
        if partitions > 1_000 {
            return Err(Error::config(format!(
                "{records} records are too many for the broker inside this process; use --kafka"
            )));
        }
        let cluster = MockCluster::new(1).map_err(cannot)?;
        let topic = "orders".to_owned();
        cluster.create_topic(&topic, partitions, 1).map_err(cannot)?;
        let brokers = cluster.bootstrap_servers();
        Ok(Broker { brokers, topic, partitions, embedded: Some(cluster) })
    }

    /// The brokers at `brokers`, with a topic that nobody has used.
    pub(super) fn external(brokers: String) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        let topic = format!("tidegate-demo-{now}");
        Broker { brokers, topic, partitions: PARTITIONS, embedded: None }
    }

    pub(super) fn brokers(&self) -> &str {
        &self.brokers
    }

    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    pub(super) fn partitions(&self) -> i32 {
        self.partitions
    }

    pub(super) fn describe(&self) -> String {
        let Broker { brokers, topic, partitions, embedded } = self;
        match embedded {
            Some(_) => format!(
                "librdkafka's broker inside this process, topic `{topic}` with {partitions} partitions"
            ),
            None => format!("`{brokers}`, topic `{topic}` with {partitions} partitions"),
        }
    }
}
