//! Refused records as a store keeps them, and which of them are meant.

use std::time::SystemTime;

use crate::origins::Origin;
use crate::record::{Offset, Partition};

/// Some of a pipeline's refused records; by default all. What is given must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Refused for this sink.
    pub sink: Option<String>,
    /// Of this topic.
    pub topic: Option<String>,
    /// Of this partition.
    pub partition: Option<i32>,
    /// Whose reason contains this.
    pub reason: Option<String>,
    /// With this SQLSTATE.
    pub sqlstate: Option<String>,
    /// Refused by this step.
    pub stage: Option<String>,
    /// Set aside then or later.
    pub since: Option<SystemTime>,
    /// Set aside earlier.
    pub until: Option<SystemTime>,
    /// With a greater id.
    pub after: Option<i64>,
    /// With a lesser id.
    pub before: Option<i64>,
    /// Of all these the newest so many. Not for [`Store::discard`](super::Store::discard).
    pub newest: Option<u64>,
    /// Of all these the oldest so many, where `newest` is not said. Not for
    /// [`Store::discard`](super::Store::discard).
    pub oldest: Option<u64>,
    /// Without what the records held.
    pub brief: bool,
}

/// A refused record as it was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReject {
    /// Its number in the store; later ones are greater.
    pub id: i64,
    /// The sink's name.
    pub sink: String,
    /// The source's name.
    pub topic: String,
    /// The record's partition.
    pub partition: Partition,
    /// The record's offset.
    pub offset: Offset,
    /// Which row of the record.
    pub ordinal: i64,
    /// What the record held; `None` where that was not asked for, or not kept.
    pub origin: Option<Origin>,
    /// The step that refused it.
    pub stage: String,
    /// The column at fault.
    pub column: Option<String>,
    /// Why.
    pub reason: String,
    /// The SQLSTATE.
    pub sqlstate: Option<String>,
    /// When it was set aside.
    pub at: SystemTime,
}
