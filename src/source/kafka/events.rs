//! What librdkafka says outside of answers: errors and log lines.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::types::RDKafkaErrorCode;

/// The same warning is not logged again within this time: a broker that is away would fill the log.
const QUIET: Duration = Duration::from_secs(30);

/// Keeps the last error of a client, for the sentences of others, and sends what it says to `tracing`.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    last: Option<(RDKafkaErrorCode, String)>,
    fatal: Option<(RDKafkaErrorCode, String)>,
    warned: HashMap<i32, Instant>,
}

impl Events {
    /// Takes an error of the client, which librdkafka goes on from by itself unless it is a refused
    /// login or its own end.
    pub(super) fn error(&self, code: RDKafkaErrorCode, reason: &str) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.may_warn(code) {
            tracing::warn!(target: "tidegate::kafka", code = ?code, topic, partition, text,
                "kafka fetch error; it is retried");
        }
    }

    /// Takes a log line of the client. Its errors come by [`Events::error`] too, so they are for
    /// debugging here.
    pub(super) fn log(&self, level: i32, facility: &str, line: &str) {
        match (level, facility) {
            (_, "FAIL" | "ERROR") | (5.., _) => {
                tracing::debug!(target: "tidegate::kafka", facility, line, "librdkafka");
            }
            _ => tracing::warn!(target: "tidegate::kafka", facility, line, "librdkafka"),
        }
    }

    /// The last error, in librdkafka's words.
    pub(super) fn last(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).last.clone()
    }

    /// An error that retrying does not cure.
    pub(super) fn fatal(&self) -> Option<(RDKafkaErrorCode, String)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fatal.clone()
    }
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
