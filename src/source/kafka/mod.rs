//! Kafka topics.
//!
//! [`Kafka`] names a topic. Partitions are assigned by hand, so no group rebalances; the group only
//! shows people how far a pipeline is. librdkafka's threads fetch, and a callback wakes the worker.
//! Records are decoded where librdkafka put them, without a copy. By default only committed records
//! are read; the markers and aborted records between them are covered by spans without records.

mod catalog;
mod config;
mod cover;
mod discovery;
mod events;
mod faults;
mod ffi;
mod reader;
mod witness;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use self::catalog::TopicCatalog;
use self::config::{Connection, Wanted};
use self::reader::TopicReader;
use super::{Assignment, Catalog, Reader, Settings, Source, Start};
use crate::codec::Codec;
use crate::error::Result;
use crate::origins::Replay;
use crate::record::{Policy, RejectLimit, SourceId};
use crate::source::replay::Replayer;

/// A Kafka topic as a source.
///
/// ```
/// use tidegate::Json;
/// use tidegate::source::Start;
/// use tidegate::source::kafka::Kafka;
/// #[derive(serde::Deserialize)]
/// struct Order { order_id: i64 }
/// let orders = Kafka::topic("orders", Json::<Order>::new())
///     .from(Start::Latest)
///     .set("client.rack", "a");
/// # let _ = orders;
/// ```
#[derive(Clone)]
pub struct Kafka<C> {
    topic: String,
    codec: C,
    brokers: Option<String>,
    from: Start,
    policy: Policy,
    limit: RejectLimit,
    group: Option<String>,
    client: BTreeMap<String, String>,
    uncommitted: bool,
    discovery: Option<Duration>,
}

impl<C: Codec> Kafka<C> {
    /// The topic `topic`, whose records `codec` decodes.
    pub fn topic(topic: impl Into<String>, codec: C) -> Self {
        Kafka {
            topic: topic.into(),
            codec,
            brokers: None,
            from: Start::default(),
            policy: Policy::default(),
            limit: RejectLimit::default(),
            group: None,
            client: BTreeMap::new(),
            uncommitted: false,
            discovery: None,
        }
    }

    /// Connects to `brokers` (`host:port`, separated by commas) instead of those of the program
    /// (`TIDEGATE_BROKERS`).
    #[must_use]
    pub fn brokers(mut self, brokers: impl Into<String>) -> Self {
        self.brokers = Some(brokers.into());
        self
    }

    /// Starts partitions for which nothing is stored at `start`, by default at the first record still
    /// there.
    #[must_use]
    pub fn from(mut self, start: Start) -> Self {
        self.from = start;
        self
    }

    /// Does `policy` with records that are refused, by default sets them aside in `tidegate.rejects`.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// Stops the run when more than `count` records were refused in it: per sink, and by each process
    /// of a cluster for itself.
    #[must_use]
    pub fn max_rejects(mut self, count: u64) -> Self {
        self.limit.count = Some(count);
        self
    }

    /// Stops the run when more than this part of the records, from 0 to 1, were refused in it, once
    /// there are more than [`RejectLimit::FREE`]; a half unless given.
    #[must_use]
    pub fn max_reject_rate(mut self, rate: f64) -> Self {
        self.limit.rate = rate;
        self
    }

    /// Shows progress under the consumer group `group`, by default `tidegate-` and the pipeline's
    /// name. A restart never reads it.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets `setting` of the client, by [librdkafka's names](
    /// https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md). What is given on the
    /// command line (`-X`) wins. Settings that exactly-once rests on are refused.
    #[must_use]
    pub fn set(mut self, setting: impl Into<String>, value: impl Into<String>) -> Self {
        self.client.insert(setting.into(), value.into());
        self
    }

    /// Reads records of open and aborted transactions too.
    #[must_use]
    pub fn read_uncommitted(mut self) -> Self {
        self.uncommitted = true;
        self
    }

    /// Looks for new partitions at this interval instead of the program's.
    #[must_use]
    pub fn discover_every(mut self, interval: Duration) -> Self {
        self.discovery = Some(interval);
        self
    }

    fn connection(&self, settings: &Settings, budget: Option<usize>) -> Result<Connection> {
        let wanted = Wanted {
            topic: &self.topic,
            brokers: self.brokers.as_deref(),
            group: self.group.as_deref(),
            client: &self.client,
            uncommitted: self.uncommitted,
            budget,
        };
        Connection::new(&wanted, settings)
    }
}

/// Names only: settings may hold secrets.
impl<C> fmt::Debug for Kafka<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kafka").field("topic", &self.topic).finish_non_exhaustive()
    }
}

impl<C: Codec> Source for Kafka<C> {
    type Value = C::Value;

    fn name(&self) -> String {
        self.topic.clone()
    }

    fn policy(&self) -> Policy {
        self.policy
    }

    fn reject_limit(&self) -> RejectLimit {
        self.limit
    }

    fn catalog(&self, settings: &Settings) -> Result<Box<dyn Catalog>> {
        let connection = self.connection(settings, None)?;
        Ok(Box::new(TopicCatalog::new(connection, self.from.clone())))
    }

    fn reader(
        &self,
        settings: &Settings,
        assignment: Assignment,
    ) -> Result<Box<dyn Reader<C::Value>>> {
        let connection = self.connection(settings, Some(assignment.budget))?;
        let every = self.discovery.unwrap_or(assignment.discovery);
        Ok(Box::new(TopicReader::new(
            connection,
            self.codec.clone(),
            assignment,
            self.policy,
            every,
        )))
    }

    fn replayer(&self, id: SourceId, records: Replay) -> Result<Box<dyn Reader<C::Value>>> {
        Ok(Box::new(Replayer::new(self.topic.clone(), id, self.codec.clone(), records)))
    }
}
