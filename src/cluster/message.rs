//! What processes tell each other between the handshake and the start of the dataflow.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Kind};

/// One message; all go between process 0 and another process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Message {
    /// To process 0: the plan stands, or why not.
    Ready {
        /// The plan's digest, or why this process cannot start.
        plan: Result<String, Refusal>,
        /// The launch of each process as this one knows it.
        launches: Vec<String>,
    },
    /// To process 0: this process was asked to stop.
    Stop,
    /// From process 0: it lives, and this is what it waits for.
    Waiting {
        /// For people.
        line: String,
    },
    /// From process 0: nothing starts, and nothing is wrong.
    Stopped,
    /// From process 0: nothing starts, for this reason.
    Refused(Refusal),
    /// From process 0: go.
    Start {
        /// What process 0 found out for all.
        payload: serde_json::Value,
        /// How long ago the first epoch began.
        elapsed: Duration,
    },
    /// To process 0: the last message on this socket; timely's bytes follow.
    Started,
}

/// An error on its way to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refusal {
    /// The exit code stands for the kind.
    code: u8,
    pub(crate) reason: String,
    retryable: bool,
}

impl Refusal {
    /// The same refusal with `place` in front of its sentence.
    pub(crate) fn at(&self, place: &str) -> Self {
        Refusal { reason: format!("{place}: {}", self.reason), ..self.clone() }
    }
}

impl From<&Error> for Refusal {
    fn from(error: &Error) -> Self {
        Refusal {
            code: error.kind().exit_code(),
            reason: error.to_string(),
            retryable: error.is_retryable(),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let kind = Kind::ALL.into_iter().find(|kind| kind.exit_code() == refusal.code);
        Error::new(kind.unwrap_or(Kind::Internal), refusal.reason).retryable(refusal.retryable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_travels_with_its_kind() {
        for kind in Kind::ALL {
            let sent = Error::new(kind, "x").retryable(kind == Kind::Sink);
            let got = Error::from(Refusal::from(&sent));
            assert_eq!((got.kind(), got.to_string()), (kind, "x".to_owned()));
            assert_eq!(got.is_retryable(), sent.is_retryable());
        }
    }
}
