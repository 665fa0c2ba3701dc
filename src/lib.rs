//! Tidegate moves Kafka topics through filters into PostgreSQL, exactly once, at COPY speed.

pub mod cli;
pub mod cluster;
pub mod codec;
mod engine;
mod epoch;
mod error;
pub mod figures;
mod frame;
mod launch;
pub mod metrics;
mod nearest;
pub mod origins;
mod pipeline;
pub mod plan;
pub mod position;
pub mod record;
mod recount;
mod retention;
pub mod run;
pub mod sink;
pub mod source;
mod unwind;

pub use codec::{Codec, Json};
pub use engine::{Dataflow, Engine};
pub use epoch::{Clock, Epoch, Stride};
pub use error::{Error, Kind, Result};
pub use frame::DataFrame;
pub use pipeline::{Kept, Options, Pipeline, Prepared, Replayed, Summary};
pub use recount::{CountedTable, Recount, Recounted};
