//! What an error of librdkafka means for the run, and what to say of it.

use std::time::Duration;

use rdkafka::types::RDKafkaErrorCode as Code;

use super::config::Connection;
use super::ffi::Client;
use crate::error::{Error, Kind};

/// Whether librdkafka goes on by itself: the cause is expected to pass. What is not listed ends the
/// run, since going on could mean that records are missed.
pub(super) fn passes(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::SSL
            | Code::WaitingForCoordinator
            | Code::InProgress
            | Code::Retry
            | Code::WaitCache
            | Code::PollExceeded
            | Code::DestroyBroker
            | Code::BrokerDestroy
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::BrokerNotAvailable
            | Code::ReplicaNotAvailable
            | Code::NetworkException
            | Code::KafkaStorageError
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::OffsetNotAvailable
            | Code::ListenerNotFound
            | Code::ThrottlingQuotaExceeded
            | Code::RebootstrapRequired
            // The group is for people; reading does not depend on it.
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::GroupAuthorizationFailed
    )
}

/// Whether the topic, or a partition of it, is not there.
pub(super) fn is_missing(code: Code) -> bool {
    matches!(code, Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition)
}

/// Whether the position is not one that the log holds.
pub(super) fn is_out_of_range(code: Code) -> bool {
    matches!(code, Code::AutoOffsetReset | Code::OffsetOutOfRange | Code::LogTruncation)
}

/// The error for a fault that does not pass; `text` is what librdkafka said.
pub(super) fn error(code: Code, text: &str, connection: &Connection) -> Error {
    let Connection { topic, brokers, .. } = connection;
    let sentence = match code {
        _ if is_missing(code) => {
            format!("topic `{topic}` does not exist on `{brokers}`; create it or correct the name")
        }
        Code::InvalidTopic => format!("`{topic}` is no name for a topic; correct it"),
        Code::TopicAuthorizationFailed => format!(
            "reading topic `{topic}` on `{brokers}` is not allowed; give this user the rights \
             `Describe` and `Read` on the topic"
        ),
        Code::Authentication | Code::SaslAuthenticationFailed => format!(
            "the Kafka broker refuses the login: {text}; check `security.protocol`, \
             `sasl.mechanism`, user and password"
        ),
        Code::BadMessage | Code::BadCompression | Code::Underflow | Code::InvalidMessage => {
            format!(
                "topic `{topic}` holds a damaged record: {text}; repair it, or move past it with \
             `positions --set`"
            )
        }
        _ => format!("reading topic `{topic}` from `{brokers}` failed: {text}"),
    };
    Error::new(Kind::Source, sentence).because(code)
}

/// The error for a broker that did not answer within `limit`; `code` is what the last attempt gave.
pub(super) fn unreachable(
    connection: &Connection,
    client: &Client,
    code: Code,
    limit: Duration,
) -> Error {
    let brokers = &connection.brokers;
    let (cause, advice) = match client.events().last() {
        Some((Code::SSL, text)) => (format!(": {text}"), "check the TLS settings (`ssl.*`)"),
        Some((Code::Resolve, text)) => (format!(": {text}"), "correct the host name"),
        Some((_, text)) => (format!(": {text}"), check(connection)),
        None => (format!(": {code}"), check(connection)),
    };
    let seconds = limit.as_secs();
    Error::new(
        Kind::Source,
        format!("Kafka at `{brokers}` does not answer within {seconds} s{cause}; {advice}"),
    )
    .because(code)
    .retryable(true)
}

/// What may be the matter with a connection that fails without a code that says so.
fn check(connection: &Connection) -> &'static str {
    if connection.speaks_tls() {
        "check the address, the TLS settings (`ssl.*`), and that the broker runs"
    } else {
        "check the address, that the broker runs, and `security.protocol`: a broker that asks for TLS \
         hangs up on a client without"
    }
}
