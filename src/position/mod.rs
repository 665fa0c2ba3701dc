//! Positions: what each slice has applied, where a run resumes, and what a door lets through.
//!
//! A *slice* is what one writer owns and stores a position for: here a partition, per sink. A run
//! resumes each partition from the least position of all its slices; each slice then drops, at its
//! *door*, what it has applied already. No SQL in here: a sink stores its own positions.

mod door;
mod order;
mod slice;
mod tally;

pub use door::Door;
pub use order::in_order;
pub use slice::{Moved, Slice, SliceKey, cuts, durable, leader_epochs, resume};
pub use tally::{Counters, Outcome, tally};
