//! What librdkafka says outside of answers: errors and log lines.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode;

use crate::source::Wake;

/// The same warning is not logged again within this time: a broker that is away would fill the log.
const QUIET: Duration = Duration::from_secs(30);

/// Keeps the last error of a client, for the sentences of others, and which topics it reads, and sends what
/// it says to `tracing`.
#[derive(Default)]
pub(super) struct Events {
    inner: Mutex<Inner>,
    listeners: Mutex<Vec<Wake>>,
    ids: Mutex<HashMap<String, String>>,
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct Inner {
    last: Option<(RDKafkaErrorCode, String)>,
    /// Why a connection ended, where that is only logged.
    ended: Option<String>,
    fatal: Option<(RDKafkaErrorCode, String)>,
    warned: HashMap<i32, Instant>,
}

impl Events {
    /// Takes an error of the client, which librdkafka goes on from by itself unless it is a refused
    /// login or its own end.
    pub(super) fn error(&self, code: RDKafkaErrorCode, reason: &str) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let reason = reason.trim();
        // "all brokers down" follows upon its causes, and names none.
        if code != RDKafkaErrorCode::AllBrokersDown || inner.last.is_none() {
            inner.last = Some((code, reason.to_owned()));
        }
        if matches!(
            code,
            RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::Fatal
        ) {
            inner.fatal.get_or_insert_with(|| (code, reason.to_owned()));
        }
        if inner.may_warn(code) {
            tracing::warn!(target: "tidegate::kafka", code = ?code, reason, "kafka client error");
        }
    }

    /// Warns of a passing error that came with a partition, not too often.
    pub(super) fn passing(&self, code: RDKafkaErrorCode, topic: &str, partition: i32, text: &str) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.may_warn(code) {
            tracing::warn!(target: "tidegate::kafka", code = ?code, topic, partition, text,
                "kafka fetch error; it is retried");
        }
    }

    /// Has `wake` called for events that belong to no partition.
    pub(super) fn listen(&self, wake: Wake) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    /// Undoes [`listen`](Self::listen).
    pub(super) fn unlisten(&self, wake: &Wake) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| !listener.is(wake));
    }

    /// Wakes all that listen.
    pub(super) fn wake(&self) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.iter().for_each(Wake::wake);
    }

    /// How often the client began to read a topic of another id. Whoever has taken a record of the new
    /// topic from the client finds the count changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// The id of `topic` as the client reads it, once it has heard of it.
    pub(super) fn topic_id(&self, topic: &str) -> Option<String> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).get(topic).cloned()
    }

    /// Takes a log line of the client. Its errors come by [`Events::error`] too, so they are for
    /// debugging here.
    pub(super) fn log(&self, level: i32, facility: &str, line: &str) {
        if facility == "METADATA"
            && let Some((topic, id)) = changed_id(line)
        {
            let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
            ids.insert(topic.to_owned(), id.to_owned());
            drop(ids);
            self.changes.fetch_add(1, Ordering::SeqCst);
            self.wake();
        }
        if facility == "FAIL" {
            // The name of the thread comes first.
            let cause = line.split_once("]: ").map_or(line, |(_, cause)| cause);
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.ended = Some(cause.to_owned());
        }
        match (level, facility) {
            (_, "FAIL" | "ERROR") | (5.., _) => {
                tracing::debug!(target: "tidegate::kafka", facility, line, "librdkafka");
            }
            _ => tracing::warn!(target: "tidegate::kafka", facility, line, "librdkafka"),
        }
    }

    /// The last error, in librdkafka's words; that all brokers are down says less than why a connection to
    /// one of them ended.
    pub(super) fn last(&self) -> Option<(RDKafkaErrorCode, String)> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = || Some((RDKafkaErrorCode::BrokerTransportFailure, inner.ended.clone()?));
        match &inner.last {
            Some(last) if last.0 != RDKafkaErrorCode::AllBrokersDown => Some(last.clone()),
            last => ended().or_else(|| last.clone()),
        }
    }

    /// An error that retrying does not cure.
    pub(super) fn fatal(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).fatal.clone()
    }
}

/// The topic and its new id, where `line` says that the client goes on with a topic of another id. There
/// is no other way to learn it from librdkafka, and it says so before it fetches anything of that topic.
/// Where its words change, no id is known, and nothing is read (see `Witness`).
fn changed_id(line: &str) -> Option<(&str, &str)> {
    let (before, ids) = line.split_once(" changed id from ")?;
    let (_, topic) = before.split_once("Topic ")?;
    let (_, id) = ids.trim_end().split_once(" to ")?;
    Some((topic, id))
}

impl Inner {
    fn may_warn(&mut self, code: RDKafkaErrorCode) -> bool {
        let now = Instant::now();
        let silent =
            self.warned.get(&(code as i32)).is_some_and(|last| now.duration_since(*last) < QUIET);
        if !silent {
            self.warned.insert(code as i32, now);
        }
        !silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_topics_id_is_read_from_the_clients_own_words() {
        let line =
            "[thrd:main]: Topic a.b-c changed id from AAAAAAAAAAAAAAAAAAAAAA to 5kR9-xQ_Q0mXb1";
        assert_eq!(changed_id(line), Some(("a.b-c", "5kR9-xQ_Q0mXb1")));
        assert_eq!(changed_id("[thrd:main]: Topic a [0] Leader 1 Epoch 0"), None);
    }
}
