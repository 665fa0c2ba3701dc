//! What a store says of a pipeline, all at one moment, to compare with a recount of the log.

use std::collections::BTreeMap;

use crate::position::Slice;
use crate::record::Offset;

/// Slices, refused records and tables in one snapshot.
#[derive(Clone, Debug, Default)]
pub struct Audit {
    /// The pipeline's slices.
    pub slices: Vec<AuditedSlice>,
    /// How many rows the tables hold that are appended to, by the sink's name; tables whose rows are not
    /// those that were written (views, triggers) are left out.
    pub tables: BTreeMap<String, u64>,
}

/// A slice and what was set aside of it.
#[derive(Clone, Debug)]
pub struct AuditedSlice {
    /// As it is stored.
    pub slice: Slice,
    /// Where it began; `None` where that is not known, or it was moved by hand since.
    pub first: Option<Offset>,
    /// Of how many of its records a reject is stored.
    pub rejects: u64,
}
