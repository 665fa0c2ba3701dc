//! Sources: where records come from.
//!
//! A source has *partitions*; a partition has records at increasing offsets. A [`Catalog`] answers,
//! before the run, which partitions there are and where they begin and end. A [`Reader`] yields each
//! assigned partition's records in offset order, and with them the spans that they cover: the spans
//! of a partition join without a gap from its start on. `poll` never blocks: a reader fetches on
//! threads of its own and wakes the worker through [`Wake`]. Bounded inputs end by an explicit
//! [`Poll::End`]; anything else that stops a reader is an error and ends the run.

mod decode;
pub mod kafka;
mod memory;
mod replay;

pub use memory::{Memory, Script, Step};

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::origins::{Origins, Replay};
use crate::record::{
    Incarnation, Lane, Offset, Partition, Policy, Reject, RejectLimit, Row, SourceId, Span,
};

/// Wakes the worker that a reader or writer works for. Cheap to clone; may be called from any thread.
#[derive(Clone)]
pub struct Wake(Arc<dyn Fn() + Send + Sync>);

impl Wake {
    /// A wake-up that calls `wake`.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Wake(Arc::new(wake))
    }

    /// Whether `other` is a clone of it.
    pub(crate) fn is(&self, other: &Wake) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Wakes the worker; call it once per batch.
    pub fn wake(&self) {
        (self.0)()
    }
}

/// Where to start a partition for which nothing is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At the first record still there.
    #[default]
    Earliest,
    /// At the end, as it is when the pipeline starts for the first time.
    Latest,
    /// At the first record whose timestamp (milliseconds since 1970-01-01 UTC) is not before this.
    Timestamp(i64),
    /// At these offsets; partitions that are not named start at the beginning.
    Offsets(BTreeMap<i32, i64>),
}

/// The first and the next offset of a partition, as a reader may see them (up to the last stable one
/// where uncommitted transactions are not read).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// The offset of the first record still there.
    pub first: Offset,
    /// The next offset that would be read after the last one.
    pub end: Offset,
}

/// What the outer world tells every source: the pipeline, and settings passed through to clients.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The pipeline's name.
    pub pipeline: String,
    /// Where a source without servers of its own connects to (`TIDEGATE_BROKERS`).
    pub brokers: Option<String>,
    /// Client settings by name (`-X name=value`), which win over the source's own.
    pub client: BTreeMap<String, String>,
}

/// A kind of input, as a dataflow names it.
pub trait Source: 'static {
    /// What its records are decoded into.
    type Value: 'static;

    /// What stored positions call it; unique within a dataflow. For Kafka, the topic.
    fn name(&self) -> String;

    /// What happens to its records that are refused.
    fn policy(&self) -> Policy;

    /// How many of them a run takes.
    fn reject_limit(&self) -> RejectLimit {
        RejectLimit::default()
    }

    /// The untyped half, used before the run. Does no I/O itself.
    fn catalog(&self, settings: &Settings) -> Result<Box<dyn Catalog>>;

    /// A reader for one worker. Does no I/O before its first `poll`.
    fn reader(
        &self,
        settings: &Settings,
        assignment: Assignment,
    ) -> Result<Box<dyn Reader<Self::Value>>>;

    /// A reader of kept `records` instead of its own, for a replay; `id` is the source's number.
    fn replayer(&self, id: SourceId, records: Replay) -> Result<Box<dyn Reader<Self::Value>>> {
        let _ = (id, records);
        Err(Error::config(format!("records of `{}` cannot be replayed", self.name())))
    }
}

/// What is known of a source before the run. All calls do I/O under a time limit.
pub trait Catalog: Send {
    /// One line for people: what it is and where.
    fn describe(&self) -> String;

    /// Which of all sources that ever had its name it is. Asked before its bounds: a reader makes sure that
    /// it reads no other.
    fn incarnation(&mut self) -> Result<Incarnation> {
        Ok(Incarnation::default())
    }

    /// The partitions there are, in order. An error where the source does not exist.
    fn partitions(&mut self) -> Result<Vec<Partition>>;

    /// The bounds of each of `partitions`.
    fn bounds(&mut self, partitions: &[Partition]) -> Result<BTreeMap<Partition, Bounds>>;

    /// Where each of `partitions` starts when nothing is stored for it: what `from(..)` says.
    fn resolve(&mut self, partitions: &[Partition]) -> Result<BTreeMap<Partition, Offset>>;
}

/// Partitions that are read only after older ones have passed where those ended when these were found:
/// a key whose newer records are in one of these may have older ones in one of those.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// Where the late partitions begin, for all workers.
    pub starts: BTreeMap<Partition, Offset>,
    /// How far the older ones must be durable; those that held nothing are left out.
    pub after: BTreeMap<Partition, Offset>,
}

impl Late {
    /// What the older partitions must pass, by the `bounds` that they have now.
    pub fn barrier(
        bounds: impl IntoIterator<Item = (Partition, Bounds)>,
    ) -> BTreeMap<Partition, Offset> {
        let held = bounds.into_iter().filter(|(_, bounds)| bounds.end > bounds.first);
        held.map(|(partition, bounds)| (partition, bounds.end)).collect()
    }

    /// How many offsets are still to become durable before the late partitions may be read; 0: now.
    pub fn lag(&self, durable: &BTreeMap<Partition, Offset>) -> i64 {
        let position = |partition| durable.get(partition).map_or(0, |offset| offset.0);
        self.after.iter().map(|(partition, end)| (end.0 - position(partition)).max(0)).sum()
    }
}

/// Asks how far a source is durable in every sink that it reaches, whichever worker read it. Does I/O
/// under a time limit; may be called from any thread.
#[derive(Clone)]
pub struct Progress(Arc<dyn Fn() -> Result<BTreeMap<Partition, Offset>> + Send + Sync>);

impl Progress {
    /// A question that `ask` answers.
    pub fn new(
        ask: impl Fn() -> Result<BTreeMap<Partition, Offset>> + Send + Sync + 'static,
    ) -> Self {
        Progress(Arc::new(ask))
    }

    /// Asks.
    pub fn ask(&self) -> Result<BTreeMap<Partition, Offset>> {
        (self.0)()
    }
}

/// What a source needs whose records must be applied in their order, since some sink has keys: new
/// partitions wait for the older ones (contract C6).
#[derive(Clone)]
pub struct Ordered {
    /// The partitions that were new at the start of the run.
    pub late: Late,
    /// How far older ones are.
    pub durable: Progress,
}

/// What the readers of a process have in common in a run, such as connections: made by the first that asks
/// for it, and dropped by the last that holds it.
#[derive(Clone, Default)]
pub struct Shared(Arc<Mutex<HashMap<String, Weak<dyn Any + Send + Sync>>>>);

impl Shared {
    /// What goes by `name`, or else what `make` makes. Others that ask meanwhile wait.
    pub fn get<T: Send + Sync + 'static>(
        &self,
        name: String,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<Arc<T>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let there = all.get(&name).and_then(Weak::upgrade);
        if let Some(Ok(there)) = there.map(Arc::downcast) {
            return Ok(there);
        }
        let made = Arc::new(make()?);
        let weak: Weak<T> = Arc::downgrade(&made);
        all.insert(name, weak);
        Ok(made)
    }
}

/// Which part of a source one worker reads.
#[derive(Clone)]
pub struct Assignment {
    /// The source's number, for coordinates.
    pub source: SourceId,
    /// This worker's index.
    pub worker: usize,
    /// How many workers there are.
    pub peers: usize,
    /// Where the partitions known at start begin, for all workers. A partition that appears later
    /// begins at its beginning.
    pub starts: BTreeMap<Partition, Offset>,
    /// Under which leaders what lies before the starts was written, where that is known.
    pub leader_epochs: BTreeMap<Partition, i32>,
    /// Where partitions that are new, now or later, wait for the older ones; `None` where they are read
    /// at once.
    pub ordered: Option<Ordered>,
    /// Of which source the positions are, of all that ever had its name: no other may be read from them.
    pub incarnation: Incarnation,
    /// Where a bounded run ends, for all workers; `None` for a run without an end. A partition that
    /// is not named is not read.
    pub ends: Option<BTreeMap<Partition, Offset>>,
    /// Offsets, ascending, at which spans must be split, since some slice's door stands there.
    pub cuts: BTreeMap<Partition, Vec<Offset>>,
    /// How many bytes the reader may hold fetched but not yet handed over.
    pub budget: usize,
    /// How often to look for new partitions.
    pub discovery: Duration,
    /// Wakes this worker.
    pub wake: Wake,
    /// What the readers of this process share.
    pub shared: Shared,
}

impl Assignment {
    /// Whether `partition` is this worker's to read, by [`SourceId::reader`].
    pub fn owns(&self, partition: Partition) -> bool {
        self.source.reader(partition, self.peers) == self.worker
    }

    /// The lane of `partition`.
    pub fn lane(&self, partition: Partition) -> Lane {
        Lane { source: self.source, partition }
    }

    /// The partitions known at start that are this worker's, with where they begin.
    pub fn owned(&self) -> impl Iterator<Item = (Partition, Offset)> + '_ {
        self.starts.iter().map(|(p, o)| (*p, *o)).filter(|(p, _)| self.owns(*p))
    }

    /// The partitions that were late at start, and are this worker's and hold something to read.
    pub fn owned_late(&self) -> Late {
        let mut late =
            self.ordered.as_ref().map(|ordered| ordered.late.clone()).unwrap_or_default();
        late.starts.retain(|partition, start| {
            let end = self.ends.as_ref().map(|ends| ends.get(partition));
            self.owns(*partition) && end.is_none_or(|end| end.is_some_and(|end| end > start))
        });
        late
    }
}

/// What one poll yields; reused from poll to poll, and emptied by its user.
#[derive(Debug)]
pub struct Batch<T> {
    /// Rows, in offset order within each partition.
    pub rows: Vec<Row<T>>,
    /// What was read, rows or not.
    pub spans: Vec<Span>,
    /// Records that the codec refused.
    pub rejects: Vec<Reject>,
    /// What the records held; filled under the policy [`Policy::Reject`] alone.
    pub origins: Origins,
    /// The size of what was read, in bytes: keys, values, and a fixed share for each record.
    pub bytes: usize,
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Batch {
            rows: Vec::new(),
            spans: Vec::new(),
            rejects: Vec::new(),
            origins: Origins::default(),
            bytes: 0,
        }
    }
}

/// What a poll found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// There may be more at once: poll again.
    More,
    /// Nothing more now; the reader wakes the worker when there is.
    Idle,
    /// Nothing more, ever: each partition has reached its end.
    End,
}

/// Where one partition's reading stands, for people.
#[derive(Clone, Copy, Debug)]
pub struct Standing {
    /// The partition.
    pub lane: Lane,
    /// The next offset to read.
    pub position: Offset,
    /// The end as last heard of, without asking.
    pub end: Option<Offset>,
}

/// How long a source has answered nothing that it was asked, and what was heard instead.
#[derive(Clone, Debug)]
pub struct Silence {
    /// Since the last answer.
    pub lasts: Duration,
    /// The cause, in one line and without a secret.
    pub cause: String,
}

/// One worker's reading end.
pub trait Reader<T> {
    /// Adds up to about `limit` records to `batch`, without blocking.
    fn poll(&mut self, limit: usize, batch: &mut Batch<T>) -> Result<Poll>;

    /// Tells the source that everything before `positions` is durable, for people and lag tools;
    /// a restart never reads it. With `wait`, returns only when the source has answered or a time
    /// limit of a few seconds is over.
    fn commit(&mut self, positions: &BTreeMap<Partition, Offset>, wait: bool) -> Result<()>;

    /// Where reading stands.
    fn standings(&self) -> Vec<Standing>;

    /// Whether the source has stopped to answer; `None` while it answers, and where it is not asked.
    fn silence(&self) -> Option<Silence> {
        None
    }
}
