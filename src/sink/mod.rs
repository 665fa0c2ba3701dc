//! Sinks: where rows go, exactly once.
//!
//! A sink belongs to a *store* (a database): the sinks of one store share its writers and their
//! transactions. The store holds, beside the rows, a row for each slice: generation, `seq`, position
//! and counters. Three promises make a sink:
//!
//! * An [`Encoder`] turns rows, as they arrive, into the form in which they travel. It does no I/O.
//! * A [`Writer`] stores a [`Flush`] in one transaction: its rows, and the moves of the slices that
//!   cover them, by compare and set. When `write` returns `Ok` all of it is durable; when it returns
//!   an error the run ends, and nothing of it is known to be. A writer resolves unknown outcomes (a
//!   connection lost at COMMIT) itself, by reading what is stored.
//! * A [`Store`] hands out generations: once [`Store::begin`] has returned, no transaction of an
//!   earlier generation can commit.

mod audit;
mod counting;
mod flusher;
mod guard;
mod memory;
mod meter;
pub mod postgres;
mod rejects;

pub use audit::{Audit, AuditedSlice};
pub(crate) use counting::{Counting, Tallies};
pub use flusher::Pace;
pub(crate) use flusher::{Closed, Flusher, Order, Part};
pub use guard::{Count, Guard};
pub use memory::{Failure, Memory, MemoryStore};
pub(crate) use meter::FlushMeter;
pub use postgres::Postgres;
pub use rejects::{Selection, StoredReject};

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::figures::StoreMeter;
use crate::origins::Origins;
use crate::position::{Counters, Moved, Slice, SliceKey};
use crate::record::{
    At, Change, Incarnation, Lane, Offset, Policy, Refusal, Reject, RejectLimit, SourceId, Span,
};

/// Which run of a pipeline: each start takes the next. A writer of an earlier one is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Generation(pub i64);

/// The number of a sink within its dataflow, in the order in which the dataflow names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SinkId(pub u16);

/// What a store made of a sink before the run (for a table: its columns and their types), handed to
/// its encoders and writers.
pub type Shape = Arc<dyn Any + Send + Sync>;

/// A kind of output for rows of type `T`, as a dataflow names it.
pub trait Sink<T>: 'static {
    /// The untyped half: what plan mode needs. Does no I/O.
    fn target(&self) -> Result<Target>;

    /// An encoder for one worker. `shape` is what the store prepared for this sink.
    fn encoder(&self, shape: &Shape) -> Box<dyn Encoder<T>>;
}

/// The untyped half of a sink.
#[derive(Clone)]
pub struct Target {
    /// Its identity in stored positions; unique within a dataflow. Default: the table.
    pub name: String,
    /// One line for people: what is written where, and with what guarantee.
    pub describe: String,
    /// Whether its rows have keys, so that a later row takes the place of an earlier one.
    pub keyed: bool,
    /// The store. Sinks whose stores have equal identities share the first one's.
    pub store: Arc<dyn Store>,
    /// What only the store understands: table, keys, the names of the rows' fields.
    pub spec: Shape,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("name", &self.name)
            .field("describe", &self.describe)
            .field("store", &self.store.identity())
            .finish_non_exhaustive()
    }
}

/// A column that a sink writes to, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type, as the store calls it.
    pub kind: String,
    /// Whether it belongs to the key.
    pub key: bool,
}

/// Turns rows into the form in which they travel to the store.
pub trait Encoder<T> {
    /// Adds a row, or says why it is refused; a refused row leaves nothing behind.
    fn encode(&mut self, at: At, change: &Change<T>) -> Result<(), Refusal>;

    /// How many bytes are encoded and not taken yet.
    fn buffered(&self) -> usize;

    /// Takes what was encoded since the last call, if anything.
    fn take(&mut self) -> Option<Chunk>;

    /// Encodes from now on for the newest shape that anyone of this process knows; whether that is
    /// another one than before. Called when everything encoded was taken.
    fn renew(&mut self) -> bool {
        false
    }
}

/// Encoded rows of one sink; what is in it only its writer understands.
pub struct Chunk {
    /// How many rows.
    pub rows: usize,
    /// How many bytes they take.
    pub bytes: usize,
    /// The rows.
    pub payload: Box<dyn Any + Send>,
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} rows, {} bytes)", self.rows, self.bytes)
    }
}

/// Everything of one sink that one transaction stores.
#[derive(Debug)]
pub struct SinkFlush {
    /// The sink.
    pub sink: SinkId,
    /// Its rows, in the order in which they arrived: for each partition that of its records, but where
    /// frames that parted have met again.
    pub chunks: Vec<Chunk>,
    /// What was read for them: at most one span per partition, joined from those of all epochs.
    pub spans: BTreeMap<Lane, Span>,
    /// Records refused on the way.
    pub rejects: Vec<Reject>,
    /// What the records held, of sources whose refused records are set aside.
    pub origins: Vec<Arc<Origins>>,
    /// In a replay, the records that were set aside and are read once more: what becomes of them takes
    /// the place of what became of them then, and moves no position.
    pub again: Vec<(Lane, Offset)>,
}

/// What one transaction stores.
#[derive(Debug)]
pub struct Flush {
    /// Per sink of the store; sinks with nothing to move are left out.
    pub sinks: Vec<SinkFlush>,
}

/// What a writer needs to know of a sink.
#[derive(Clone)]
pub struct SinkContext {
    /// The sink.
    pub id: SinkId,
    /// Its name in stored positions.
    pub name: String,
    /// What the store prepared.
    pub shape: Shape,
    /// Whether a record may make several of its rows (a `flat_map` or `concat` stands above it).
    pub fan_out: bool,
}

/// What a writer needs to know of a source.
#[derive(Clone, Debug)]
pub struct SourceContext {
    /// Its name in stored positions.
    pub name: String,
    /// What happens to its refused records.
    pub policy: Policy,
    /// How many of them a run takes.
    pub limit: RejectLimit,
    /// Which of all of its name it is, to be stored with the first position of a partition.
    pub incarnation: Incarnation,
}

/// What a writer needs to know of the run.
#[derive(Clone)]
pub struct WriterContext {
    /// The pipeline.
    pub pipeline: String,
    /// The generation that this run holds in the store.
    pub generation: Generation,
    /// The dataflow's sources, by number.
    pub sources: Vec<SourceContext>,
    /// Counts refused records against the sources' limits.
    pub guard: Arc<Guard>,
    /// The sinks of the store.
    pub sinks: Vec<SinkContext>,
    /// All slices of the store as the run found them. A writer moves those of its own worker.
    pub slices: Vec<Slice>,
    /// The worker, for `application_name` and the log.
    pub worker: usize,
    /// Raised when the run is to end at once: checked between attempts and before a commit.
    pub abort: crate::run::Abort,
    /// Told of retries, and of what else goes wrong and is repaired.
    pub meter: Arc<StoreMeter>,
}

impl WriterContext {
    /// The name of the slice of `lane` at `sink`.
    pub fn slice_key(&self, sink: &SinkContext, lane: Lane) -> SliceKey {
        SliceKey {
            sink: sink.name.clone(),
            source: self.source_name(lane.source).to_owned(),
            partition: lane.partition,
        }
    }

    /// A source.
    pub fn source(&self, source: SourceId) -> &SourceContext {
        &self.sources[usize::from(source.0)]
    }

    /// The name of a source.
    pub fn source_name(&self, source: SourceId) -> &str {
        &self.source(source).name
    }

    /// The moves of one sink's slices: its spans, with what was counted for each.
    pub fn moves(
        &self,
        sink: &SinkContext,
        spans: &BTreeMap<Lane, Span>,
        counters: &BTreeMap<Lane, Counters>,
    ) -> Vec<Moved> {
        spans
            .values()
            .map(|span| Moved {
                key: self.slice_key(sink, span.lane),
                from: span.from,
                upto: span.upto,
                leader_epoch: span.leader_epoch,
                counters: counters.get(&span.lane).copied().unwrap_or_default(),
            })
            .collect()
    }
}

/// One worker's end of a store, used by one thread.
pub trait Writer: Send {
    /// Stores `flush` in one transaction, and returns what it stored.
    fn write(&mut self, flush: Flush) -> Result<Stored>;
}

/// What a transaction has made durable, and what it took.
#[derive(Debug, Default)]
pub struct Stored {
    /// The moves of the slices, each with what it added to the counters.
    pub moves: Vec<Moved>,
    /// The records that were refused, on the way or by the store.
    pub refused: Vec<(SinkId, Reject)>,
    /// In which rows were sent.
    pub copy: Duration,
    /// In which none were, before the commit.
    pub merge: Duration,
    /// From the commit to its answer.
    pub commit: Duration,
}

/// Looks at what a sink's rows are written to, while the run lasts.
pub trait Watch: Send {
    /// Reads the shape again, and tells the sink's encoders where it has changed. Tries as long as a
    /// writer would, unless `abort` is raised.
    fn look(&mut self, abort: &crate::run::Abort) -> Result<()>;
}

/// Held while a run lives; dropping it lets a standby take over.
pub trait Lock: Send {
    /// Makes sure that it is still held; called every few seconds. Tries to take it again where the
    /// connection was lost and nobody else has it, and says whether it did: another run may have come and
    /// gone meanwhile.
    fn check(&mut self) -> Result<bool>;
}

/// How to wait for the lock.
#[derive(Clone, Copy)]
pub struct Standby<'a> {
    /// End the run that holds it instead of waiting.
    pub take_over: bool,
    /// How often to look.
    pub every: Duration,
    /// Called while waiting, about once in `every`, with one line on who is waited for; an error
    /// ends the wait.
    pub waiting: &'a dyn Fn(&str) -> Result<()>,
}

/// Where sinks keep rows and positions: a database. All calls do I/O, under a time limit.
pub trait Store: Send + Sync {
    /// What it is, the same for all its sinks and without a secret, e.g. `postgres://host:5432/db`.
    fn identity(&self) -> String;

    /// Connects, creates or migrates what the store needs for itself, verifies `targets` and returns
    /// a shape for each. Every process calls it.
    fn prepare(&self, targets: &[&Target]) -> Result<Vec<Shape>>;

    /// What tells the place where it keeps positions from all others, however it is addressed; `None`
    /// where its identity does. Called after [`Store::prepare`].
    fn place(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// What it writes to of a sink, for people.
    fn columns(&self, shape: &Shape) -> Vec<Column> {
        let _ = shape;
        Vec::new()
    }

    /// Takes the pipeline's lock, waiting as a standby while another run holds it. Process 0 only.
    fn lock(&self, pipeline: &str, standby: &Standby<'_>) -> Result<Box<dyn Lock>>;

    /// Takes the next generation, after every open transaction of the old one has ended. Process 0
    /// only, under the lock.
    fn begin(&self, pipeline: &str) -> Result<Generation>;

    /// The generation that writes now; `None` where the pipeline never ran.
    fn generation(&self, pipeline: &str) -> Result<Option<Generation>>;

    /// The slices as stored. Read after [`Store::begin`], in a statement of its own.
    fn slices(&self, pipeline: &str) -> Result<Vec<Slice>>;

    /// Stores new slices, before their first record is read. Fails where one exists or the generation
    /// is not the pipeline's.
    fn create(&self, pipeline: &str, generation: Generation, slices: &[Slice]) -> Result<()>;

    /// Stores which `source` its slices are of, where that is not known yet. Fails where the generation is
    /// not the pipeline's.
    fn identify(
        &self,
        pipeline: &str,
        generation: Generation,
        source: &str,
        incarnation: &Incarnation,
    ) -> Result<()>;

    /// Moves slices by hand (`Some`) or drops them (`None`), and forgets which source they are of: the next
    /// run takes the one that it finds. Only while no run holds the lock.
    fn reposition(
        &self,
        pipeline: &str,
        changes: &[(SliceKey, Option<crate::record::Offset>)],
    ) -> Result<()>;

    /// Looks whether the shape of a sink has changed; `None` where shapes never do. Does no I/O before
    /// its first look.
    fn watch(&self, shape: &Shape) -> Option<Box<dyn Watch>> {
        let _ = shape;
        None
    }

    /// Hands what was set aside of `pipeline`, as far as it is selected, to `each`, in the order in which
    /// it was set aside: as of one moment, and never much of it in memory. An error of `each` ends it.
    fn rejects(
        &self,
        pipeline: &str,
        selection: &Selection,
        each: &mut dyn FnMut(StoredReject) -> Result<()>,
    ) -> Result<()> {
        let _ = (pipeline, selection, each);
        Ok(())
    }

    /// Deletes what was set aside of `pipeline`, as far as it is selected, in small transactions, and
    /// returns how many. After each `go_on` is told how many so far, and may end it.
    fn discard(
        &self,
        pipeline: &str,
        selection: &Selection,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64> {
        let _ = (pipeline, selection, go_on);
        Ok(0)
    }

    /// What it says of a pipeline at one moment; `sinks` are those whose tables are to be counted.
    fn audit(&self, pipeline: &str, sinks: &[(&str, &Shape)]) -> Result<Audit> {
        let _ = sinks;
        Err(Error::config(format!(
            "`{}` does not tell where the slices of `{pipeline}` began; it cannot be verified",
            self.identity()
        )))
    }

    /// The coordinates of the rows of a chunk that its encoders made, but for those that its writers
    /// filter.
    fn coordinates(&self, shape: &Shape, chunk: &Chunk) -> Result<Vec<At>> {
        let _ = (shape, chunk);
        Err(Error::config(format!("rows for `{}` cannot be recounted", self.identity())))
    }

    /// A writer for one worker. Does no I/O before its first `write`.
    fn writer(&self, context: WriterContext) -> Result<Box<dyn Writer>>;
}
