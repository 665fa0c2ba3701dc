//! What is read: partitions, offsets, spans, records, and the rows made from them.
//!
//! An [`Offset`] is always the next to read. A [`Span`] is half open, `[from, upto)`, and covers
//! offsets that hold no record for us too (transaction markers, compacted ones), which is why it
//! counts its records apart.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of a partition within its topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(pub i32);

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The next offset to read in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub i64);

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of a source within its dataflow, in the order in which the dataflow names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SourceId(pub u16);

impl SourceId {
    /// Which of `workers` reads `partition`: by index, the same in every process. Sources are shifted
    /// against each other so that small topics do not all fall to the first workers.
    pub fn reader(self, partition: Partition, workers: usize) -> usize {
        (usize::from(self.0) + partition.0 as usize) % workers
    }
}

/// Where a row comes from: the coordinates of its record, and which of the record's rows it is.
///
/// Ordered by source, partition, offset, ordinal, so rows of one partition sort as they were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct At {
    /// The source of the record.
    pub source: SourceId,
    /// The partition of the record.
    pub partition: Partition,
    /// The offset of the record.
    pub offset: Offset,
    /// Which row of the record: 0 where it made one.
    pub ordinal: u32,
}

impl At {
    /// Where the records of this row's partition are counted.
    pub fn lane(&self) -> Lane {
        Lane { source: self.source, partition: self.partition }
    }
}

/// One partition of one source of the dataflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lane {
    /// The source.
    pub source: SourceId,
    /// Its partition.
    pub partition: Partition,
}

/// Which of all sources that ever had this name it is, as far as a source can tell: the offsets of one say
/// nothing of another.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// What each creation gets anew; for Kafka, the topic's id.
    pub id: Option<String>,
    /// What tells the place where it is; for Kafka, the cluster's id.
    pub place: Option<String>,
}

impl Incarnation {
    /// What is known of it and not the same as in `other`.
    pub fn differs(&self, other: &Incarnation) -> Option<Differs> {
        let differ = |mine: &Option<String>, theirs: &Option<String>| {
            mine.clone().zip(theirs.clone()).filter(|(mine, theirs)| mine != theirs)
        };
        // What is elsewhere has another id as well.
        if let Some((mine, theirs)) = differ(&self.place, &other.place) {
            return Some(Differs::Place(mine, theirs));
        }
        differ(&self.id, &other.id).map(|(mine, theirs)| Differs::Id(mine, theirs))
    }

    /// Whether `other` knows what this one does not.
    pub fn lacks(&self, other: &Incarnation) -> bool {
        (self.id.is_none() && other.id.is_some()) || (self.place.is_none() && other.place.is_some())
    }
}

/// In what two incarnations differ: this one's, the other's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Differs {
    /// They are in two places.
    Place(String, String),
    /// The place is the same, but it was made anew.
    Id(String, String),
}

/// Half-open offsets `[from, upto)` of one partition, all read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The partition.
    pub lane: Lane,
    /// The first offset covered.
    pub from: Offset,
    /// The next offset to read.
    pub upto: Offset,
    /// How many records were read in it; less than `upto - from` where offsets have gaps.
    pub records: u64,
    /// Between which timestamps they lie, where they have any.
    pub times: Option<Times>,
    /// Under which leader the record right before `upto` was written; `None` where there is none, or the
    /// source has no leaders.
    pub leader_epoch: Option<i32>,
}

/// The least and the greatest timestamp of some records, in milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The least.
    pub least: i64,
    /// The greatest.
    pub most: i64,
}

/// The headers of a record, in their order; a name may come twice.
pub trait Headers {
    /// The name and value of header `index`, or `None` past the last. A header may hold no value
    /// (`None`), which is not the same as an empty one.
    fn get(&self, index: usize) -> Option<(&str, Option<&[u8]>)>;
}

/// No headers.
impl Headers for () {
    fn get(&self, _index: usize) -> Option<(&str, Option<&[u8]>)> {
        None
    }
}

impl Headers for Vec<(String, Option<Vec<u8>>)> {
    fn get(&self, index: usize) -> Option<(&str, Option<&[u8]>)> {
        let (name, value) = self.as_slice().get(index)?;
        Some((name, value.as_deref()))
    }
}

/// One record as it was read: coordinates, key, value, headers, timestamp. It borrows the client's
/// buffer, and what a dataflow wants to keep of it is copied by the codec.
#[derive(Clone, Copy)]
pub struct Record<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The partition.
    pub partition: Partition,
    /// The record's own offset.
    pub offset: Offset,
    /// Milliseconds since 1970-01-01 UTC, where the record has a timestamp.
    pub timestamp: Option<i64>,
    /// The key; `None` is not the same as empty.
    pub key: Option<&'a [u8]>,
    /// The value; `None` is a tombstone, not an empty value.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: &'a dyn Headers,
}

impl<'a> Record<'a> {
    /// The value of the last header called `name`: `None` where there is none, `Some(None)` where it
    /// holds no value.
    pub fn header(&self, name: &str) -> Option<Option<&'a [u8]>> {
        (0..)
            .map_while(|index| self.headers.get(index))
            .filter(|(candidate, _)| *candidate == name)
            .last()
            .map(|(_, value)| value)
    }
}

impl fmt::Debug for Record<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}[{}]@{}`", self.topic, self.partition, self.offset)
    }
}

/// What a row does at its sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// Append it, or put it in the place of the row with its key.
    Put(T),
    /// Delete the row with this key (a tombstone's record key, as it was read; `None` where the
    /// record had none). A sink without keys filters it.
    Delete(Option<Box<[u8]>>),
}

/// A row on its way, with the coordinates of its record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row<T> {
    /// Where it comes from.
    pub at: At,
    /// What it does.
    pub change: Change<T>,
}

/// Why a record was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The step that refused it: `decode`, `filter`, `map`, `encode`, ...
    pub stage: &'static str,
    /// The column at fault, where one is known.
    pub column: Option<String>,
    /// One sentence: lower case, no full stop.
    pub reason: String,
    /// The SQLSTATE that the server gave, or would give.
    pub sqlstate: Option<String>,
}

impl Refusal {
    /// A refusal by `stage` for `reason`.
    pub fn new(stage: &'static str, reason: impl Into<String>) -> Self {
        Refusal { stage, column: None, reason: reason.into(), sqlstate: None }
    }

    /// Names the column at fault.
    #[must_use]
    pub fn column(mut self, column: impl Into<String>) -> Self {
        self.column = Some(column.into());
        self
    }

    /// Gives the SQLSTATE.
    #[must_use]
    pub fn sqlstate(mut self, sqlstate: impl Into<String>) -> Self {
        self.sqlstate = Some(sqlstate.into());
        self
    }
}

/// A refused record. What it held travels beside it, in [`Origins`](crate::origins::Origins).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reject {
    /// Its coordinates.
    pub at: At,
    /// Why.
    pub refusal: Refusal,
}

/// What happens to a record that is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Set it aside, with its key, payload, headers and the reason, in the transaction of its
    /// neighbours; count it as rejected.
    #[default]
    Reject,
    /// Stop the run with the record's coordinates; nothing at or after it is committed.
    Stop,
    /// Go on without it, and count it as rejected.
    Skip,
}

/// How many refused records a run takes before it stops: a mistake in a schema must not set a whole
/// topic aside. Counted per source, sink and process, over one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RejectLimit {
    /// The most records.
    pub count: Option<u64>,
    /// The largest part of the records read, from 0 to 1, once [`RejectLimit::FREE`] were refused.
    pub rate: f64,
}

impl RejectLimit {
    /// How many refused records the rate lets pass in any case.
    pub const FREE: u64 = 1000;

    /// Whether `rejected` of `consumed` records are too many.
    pub fn is_passed(&self, consumed: u64, rejected: u64) -> bool {
        self.count.is_some_and(|count| rejected > count)
            || rejected > Self::FREE && rejected as f64 > self.rate * consumed as f64
    }
}

impl Default for RejectLimit {
    fn default() -> Self {
        RejectLimit { count: None, rate: 0.5 }
    }
}
