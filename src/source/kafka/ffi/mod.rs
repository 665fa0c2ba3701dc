//! The one module with `unsafe`: librdkafka's C functions behind values that are safe to use.
//!
//! [`Client`] owns a consumer and its callbacks, [`Queue`] what it fetches for one reader; [`Messages`] owns what one call fetched
//! and lends each [`Message`], whose bytes stay where librdkafka put them. Nothing here decides
//! anything: what a code means is said by `faults`, what to read by `reader`.

#![allow(unsafe_code)]

mod client;
mod describe;
mod messages;
mod queue;

pub(super) use client::Client;
pub(super) use messages::{Message, Messages};
pub(super) use queue::{Queue, led};

use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

/// The code that a number from librdkafka stands for. A broker may answer with one that the bindings
/// do not know, so the number is never read as the enumeration itself where it comes from memory.
fn code(raw: i32) -> RDKafkaErrorCode {
    RDKafkaRespErr::try_from(raw).map_or(RDKafkaErrorCode::Unknown, RDKafkaErrorCode::from)
}
