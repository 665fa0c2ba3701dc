//! Tidegate moves Kafka topics through filters into PostgreSQL, exactly once, at COPY speed.

pub mod cluster;
pub mod codec;
mod epoch;
mod error;
pub mod position;
pub mod record;
pub mod run;
pub mod sink;
pub mod source;

pub use codec::{Codec, Json};
pub use epoch::{Clock, Epoch};
pub use error::{Error, Kind, Result};
