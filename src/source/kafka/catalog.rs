//! What is known of a topic before the run.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::topic_partition_list::{Offset as Raw, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode as Code;

use super::config::Connection;
use super::faults;
use super::ffi::Client;
use crate::error::{Error, Result};
use crate::record::{Incarnation, Offset, Partition};
use crate::source::{Bounds, Catalog, Start};

/// How long a question to the brokers may take altogether.
const LIMIT: Duration = Duration::from_secs(10);

/// How long one attempt may take; between attempts the client's errors are looked at.
const ATTEMPT: Duration = Duration::from_secs(3);

/// For how long a topic that was just created may be unknown to some broker.
const PROPAGATION: Duration = Duration::from_secs(1);

/// The catalog of one topic.
pub(super) struct TopicCatalog {
    connection: Connection,
    from: Start,
    client: Option<Client>,
}

impl TopicCatalog {
    pub(super) fn new(connection: Connection, from: Start) -> Self {
        TopicCatalog { connection, from, client: None }
    }

    /// Asks until there is an answer, or an error that does not pass, or no time is left.
    fn ask<T>(
        &mut self,
        mut attempt: impl FnMut(&Client, &Connection, Duration) -> Result<T, Code>,
    ) -> Result<T> {
        if self.client.is_none() {
            self.client = Some(self.connection.client()?);
        }
        let client = self.client.as_ref().expect("just created");
        let began = Instant::now();
        loop {
            let left = LIMIT.saturating_sub(began.elapsed());
            let answer = attempt(client, &self.connection, left.min(ATTEMPT));
            // Errors of connections arrive on the client's queue.
            drop(client.serve());
            let code = match answer {
                Ok(answer) => return Ok(answer),
                Err(code) => code,
            };
            if let Some((code, text)) = client.events().fatal() {
                return Err(faults::error(code, &text, &self.connection));
            }
            let elapsed = began.elapsed();
            let missing = faults::is_missing(code);
            if (missing && elapsed > PROPAGATION) || !(missing || faults::passes(code)) {
                return Err(faults::error(code, &code.to_string(), &self.connection));
            }
            if elapsed >= LIMIT {
                return Err(faults::unreachable(&self.connection, client, code, LIMIT));
            }
            thread::sleep(Duration::from_millis(50).min(LIMIT - elapsed));
        }
    }

    /// The offset of each of `partitions` at `time`, which may be the beginning or the end; `None`
    /// where no record is that late.
    fn at(
        &mut self,
        partitions: &[Partition],
        time: Raw,
    ) -> Result<BTreeMap<Partition, Option<Offset>>> {
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        self.ask(|client, connection, limit| offsets(client, connection, partitions, time, limit))
    }
}

/// Looks up where each of `partitions` stands at `time`, in one request a broker. The end is the last
/// stable offset where only committed records are read: librdkafka asks at the client's isolation.
pub(super) fn offsets(
    client: &Client,
    connection: &Connection,
    partitions: &[Partition],
    time: Raw,
    limit: Duration,
) -> Result<BTreeMap<Partition, Option<Offset>>, Code> {
    let mut list = TopicPartitionList::with_capacity(partitions.len());
    for partition in partitions {
        list.add_partition_offset(&connection.topic, partition.0, time)
            .map_err(|_| Code::InvalidArgument)?;
    }
    client.offsets(&mut list, limit)?;
    let mut found = BTreeMap::new();
    for element in list.elements() {
        if let Err(error) = element.error() {
            return Err(error.rdkafka_error_code().unwrap_or(Code::Fail));
        }
        let offset = match element.offset() {
            Raw::Offset(offset) => Some(Offset(offset)),
            _ => None,
        };
        found.insert(Partition(element.partition()), offset);
    }
    Ok(found)
}

impl Catalog for TopicCatalog {
    fn describe(&self) -> String {
        format!("Kafka topic `{}` on `{}`", self.connection.topic, self.connection.brokers)
    }

    fn incarnation(&mut self) -> Result<Incarnation> {
        self.ask(|client, connection, limit| {
            let id = client.topic_id(&connection.name, limit)?;
            // The answer told the cluster as well, so nothing is waited for.
            Ok(Incarnation { id, place: client.cluster_id(limit) })
        })
    }

    fn partitions(&mut self) -> Result<Vec<Partition>> {
        let ids = self.ask(|client, connection, limit| {
            let ids = client.partitions(&connection.name, limit)?;
            // A topic that is being created has none yet.
            if ids.is_empty() { Err(Code::LeaderNotAvailable) } else { Ok(ids) }
        })?;
        Ok(ids.into_iter().map(Partition).collect())
    }

    fn bounds(&mut self, partitions: &[Partition]) -> Result<BTreeMap<Partition, Bounds>> {
        // The end first: if records are deleted in between, it is not before the beginning for long.
        let ends = self.at(partitions, Raw::End)?;
        let firsts = self.at(partitions, Raw::Beginning)?;
        let topic = &self.connection.topic;
        let mut bounds = BTreeMap::new();
        for partition in partitions {
            let known = |of: &BTreeMap<Partition, Option<Offset>>| {
                of.get(partition).copied().flatten().ok_or_else(|| {
                    Error::source(format!(
                        "the broker does not say where `{topic}[{partition}]` begins and ends; \
                         check that the partition has a leader"
                    ))
                    .retryable(true)
                })
            };
            let first = known(&firsts)?;
            let end = known(&ends)?.max(first);
            bounds.insert(*partition, Bounds { first, end });
        }
        Ok(bounds)
    }

    fn resolve(&mut self, partitions: &[Partition]) -> Result<BTreeMap<Partition, Offset>> {
        let bounds = self.bounds(partitions)?;
        let topic = self.connection.topic.clone();
        match self.from.clone() {
            Start::Earliest => Ok(bounds.into_iter().map(|(p, b)| (p, b.first)).collect()),
            Start::Latest => Ok(bounds.into_iter().map(|(p, b)| (p, b.end)).collect()),
            Start::Timestamp(millis) => {
                let found = self.at(partitions, Raw::Offset(millis.max(0)))?;
                let start = |(partition, bounds): (Partition, Bounds)| {
                    let offset = found.get(&partition).copied().flatten();
                    (partition, offset.map_or(bounds.end, |o| o.clamp(bounds.first, bounds.end)))
                };
                Ok(bounds.into_iter().map(start).collect())
            }
            Start::Offsets(offsets) => {
                if let Some(unknown) =
                    offsets.keys().find(|wanted| !bounds.contains_key(&Partition(**wanted)))
                {
                    return Err(Error::config(format!(
                        "`from` names partition {unknown}, which topic `{topic}` does not have; \
                         correct it"
                    )));
                }
                let start = |(partition, Bounds { first, end }): (Partition, Bounds)| {
                    let offset = offsets.get(&partition.0).map_or(first, |offset| Offset(*offset));
                    if (first..=end).contains(&offset) {
                        return Ok((partition, offset));
                    }
                    Err(Error::config(format!(
                        "`from` gives offset {offset} for `{topic}[{partition}]`, which can be read \
                         from {first} to {end}; correct it"
                    )))
                };
                bounds.into_iter().map(start).collect()
            }
        }
    }
}
