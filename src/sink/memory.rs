//! A store in memory, for tests and benchmarks: the contracts of a database, without one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use super::{
    Audit, AuditedSlice, Chunk, Encoder, Flush, Generation, Lock, Shape, Sink, Standby, Store,
    Stored, Target, Writer, WriterContext,
};
use crate::error::{Error, Kind, Result};
use crate::position::{Counters, Outcome, Slice, SliceKey, in_order, tally};
use crate::record::{At, Change, Incarnation, Offset, Refusal};

/// A scripted failure of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Nothing of it is stored, and the writer fails.
    Before,
    /// All of it is stored, and the writer fails before anyone hears of it.
    After,
}

/// Slices and tables that outlive the runs that write them.
#[derive(Default)]
pub struct MemoryStore {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    pipelines: BTreeMap<String, PipelineState>,
    failures: Vec<(u64, Failure)>,
    transactions: u64,
}

#[derive(Default)]
struct PipelineState {
    generation: i64,
    slices: BTreeMap<SliceKey, Slice>,
    holder: Option<ThreadId>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Makes the transaction after `transactions` more fail.
    pub fn fail_after(&self, transactions: u64, failure: Failure) {
        let mut state = self.state();
        let at = state.transactions + transactions;
        state.failures.push((at, failure));
    }

    /// The slices of a pipeline as stored.
    pub fn stored(&self, pipeline: &str) -> Vec<Slice> {
        let state = self.state();
        let slices = state.pipelines.get(pipeline).map(|p| p.slices.values().cloned().collect());
        slices.unwrap_or_default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A table in a [`MemoryStore`]: rows in the order of their transactions or, with [`Memory::key`], the
/// last row of each key.
pub struct Memory<T> {
    name: String,
    store: Arc<MemoryStore>,
    key: Option<Key<T>>,
    rows: Arc<Mutex<Vec<T>>>,
}

type Key<T> = Arc<dyn Fn(&T) -> Vec<u8> + Send + Sync>;

impl<T> Clone for Memory<T> {
    fn clone(&self) -> Self {
        Memory {
            name: self.name.clone(),
            store: Arc::clone(&self.store),
            key: self.key.clone(),
            rows: Arc::clone(&self.rows),
        }
    }
}

impl<T> fmt::Debug for Memory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T: Clone + Send + 'static> Memory<T> {
    /// An empty table called `name`; clones share its rows.
    pub fn table(store: &Arc<MemoryStore>, name: &str) -> Self {
        Memory { name: name.to_owned(), store: Arc::clone(store), key: None, rows: Arc::default() }
    }

    /// Keeps one row per key.
    #[must_use]
    pub fn key(mut self, key: impl Fn(&T) -> Vec<u8> + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// The rows.
    pub fn rows(&self) -> Vec<T> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Applies what an encoder made to a table, without knowing its type.
trait Apply: Send + Sync {
    /// The outcome of each row, and what to do once the transaction stands.
    fn apply(&self, chunks: Vec<Chunk>) -> Applied;

    /// The coordinates of a chunk's rows.
    fn coordinates(&self, chunk: &Chunk) -> Vec<At>;
}

type Applied = (Vec<(At, Outcome)>, Box<dyn FnOnce() + Send>);
type Encoded<T> = Vec<(At, Change<T>)>;

impl<T: Clone + Send + 'static> Apply for Memory<T> {
    fn coordinates(&self, chunk: &Chunk) -> Vec<At> {
        let rows = chunk.payload.downcast_ref::<Encoded<T>>();
        rows.into_iter().flatten().map(|(at, _)| *at).collect()
    }

    fn apply(&self, chunks: Vec<Chunk>) -> Applied {
        let rows = chunks.into_iter().flat_map(|chunk| {
            *chunk.payload.downcast::<Encoded<T>>().expect("an encoder of this table made it")
        });
        let table = Arc::clone(&self.rows);
        let mut rows: Encoded<T> = rows.collect();
        if !in_order(rows.iter().map(|(at, _)| *at)) {
            rows.sort_by_key(|(at, _)| (at.lane(), at.offset));
        }
        let mut outcomes: Vec<_> = rows.iter().map(|(at, _)| (*at, Outcome::Written)).collect();
        let Some(key) = self.key.clone() else {
            return (
                outcomes,
                Box::new(move || {
                    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
                    table.extend(rows.into_iter().filter_map(|(_, change)| match change {
                        Change::Put(value) => Some(value),
                        Change::Delete(_) => None,
                    }));
                }),
            );
        };
        let mut last = BTreeMap::new();
        for (index, (_, change)) in rows.into_iter().enumerate() {
            let (key, value) = match change {
                Change::Put(value) => (key(&value), Some(value)),
                Change::Delete(key) => (key.unwrap_or_default().into_vec(), None),
            };
            if let Some((superseded, _)) = last.insert(key, (index, value)) {
                outcomes[superseded].1 = Outcome::Collapsed;
            }
        }
        (
            outcomes,
            Box::new(move || {
                let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
                table.retain(|row| !last.contains_key(&key(row)));
                table.extend(last.into_values().filter_map(|(_, value)| value));
            }),
        )
    }
}

impl<T: Clone + Send + 'static> Sink<T> for Memory<T> {
    fn target(&self) -> Result<Target> {
        Ok(Target {
            name: self.name.clone(),
            describe: format!("memory table `{}`", self.name),
            keyed: self.key.is_some(),
            store: Arc::new(Shared(Arc::clone(&self.store))),
            spec: Arc::new(Arc::new(self.clone()) as Arc<dyn Apply>),
        })
    }

    fn encoder(&self, _shape: &Shape) -> Box<dyn Encoder<T>> {
        Box::new(Collect { rows: Vec::new(), keyed: self.key.is_some() })
    }
}

struct Collect<T> {
    rows: Encoded<T>,
    keyed: bool,
}

impl<T: Clone + Send + 'static> Encoder<T> for Collect<T> {
    fn encode(&mut self, at: At, change: &Change<T>) -> Result<(), Refusal> {
        match change {
            Change::Delete(None) if self.keyed => {
                return Err(Refusal::new("encode", "a tombstone needs a key"));
            }
            Change::Delete(_) if !self.keyed => {}
            change => self.rows.push((at, change.clone())),
        }
        Ok(())
    }

    fn buffered(&self) -> usize {
        self.rows.len() * size_of::<(At, Change<T>)>()
    }

    fn take(&mut self) -> Option<Chunk> {
        let rows = std::mem::take(&mut self.rows);
        (!rows.is_empty()).then(|| Chunk {
            rows: rows.len(),
            bytes: rows.len() * size_of::<(At, Change<T>)>(),
            payload: Box::new(rows),
        })
    }
}

/// The store as its sinks share it.
struct Shared(Arc<MemoryStore>);

impl Store for Shared {
    fn identity(&self) -> String {
        format!("memory {:p}", Arc::as_ptr(&self.0))
    }

    fn prepare(&self, targets: &[&Target]) -> Result<Vec<Shape>> {
        Ok(targets.iter().map(|target| Arc::clone(&target.spec)).collect())
    }

    fn lock(&self, pipeline: &str, standby: &Standby<'_>) -> Result<Box<dyn Lock>> {
        let store = &self.0;
        let mut state = store.state();
        loop {
            let holder = &mut state.pipelines.entry(pipeline.to_owned()).or_default().holder;
            if holder.is_none() || standby.take_over {
                *holder = Some(std::thread::current().id());
                let held = Held { store: Arc::clone(store), pipeline: pipeline.to_owned() };
                return Ok(Box::new(held));
            }
            (state, _) = store
                .freed
                .wait_timeout(state, standby.every)
                .unwrap_or_else(PoisonError::into_inner);
            (standby.waiting)("held by another run of this process")?;
        }
    }

    fn begin(&self, pipeline: &str) -> Result<Generation> {
        let mut state = self.0.state();
        let pipeline = state.pipelines.entry(pipeline.to_owned()).or_default();
        pipeline.generation += 1;
        Ok(Generation(pipeline.generation))
    }

    fn generation(&self, pipeline: &str) -> Result<Option<Generation>> {
        Ok(self.0.state().pipelines.get(pipeline).map(|state| Generation(state.generation)))
    }

    fn slices(&self, pipeline: &str) -> Result<Vec<Slice>> {
        Ok(self.0.stored(pipeline))
    }

    fn create(&self, pipeline: &str, generation: Generation, slices: &[Slice]) -> Result<()> {
        let mut state = self.0.state();
        let pipeline = state.pipelines.entry(pipeline.to_owned()).or_default();
        fence(pipeline, generation)?;
        for slice in slices {
            if pipeline.slices.insert(slice.key.clone(), slice.clone()).is_some() {
                return Err(Error::internal(format!("slice {} exists", slice.key)));
            }
        }
        Ok(())
    }

    fn identify(
        &self,
        pipeline: &str,
        generation: Generation,
        source: &str,
        incarnation: &Incarnation,
    ) -> Result<()> {
        let mut state = self.0.state();
        let pipeline = state.pipelines.entry(pipeline.to_owned()).or_default();
        fence(pipeline, generation)?;
        for slice in pipeline.slices.values_mut().filter(|slice| slice.key.source == source) {
            let Incarnation { id, place } = incarnation.clone();
            slice.incarnation.id = slice.incarnation.id.take().or(id);
            slice.incarnation.place = slice.incarnation.place.take().or(place);
        }
        Ok(())
    }

    fn reposition(&self, pipeline: &str, changes: &[(SliceKey, Option<Offset>)]) -> Result<()> {
        let mut state = self.0.state();
        let pipeline = state.pipelines.entry(pipeline.to_owned()).or_default();
        for (key, position) in changes {
            match position {
                None => drop(pipeline.slices.remove(key)),
                Some(position) => {
                    if let Some(slice) = pipeline.slices.get_mut(key) {
                        slice.position = *position;
                        slice.incarnation = Incarnation::default();
                        slice.seq += 1;
                    }
                }
            }
        }
        Ok(())
    }

    fn coordinates(&self, shape: &Shape, chunk: &Chunk) -> Result<Vec<At>> {
        let table = shape.downcast_ref::<Arc<dyn Apply>>();
        table
            .map(|table| table.coordinates(chunk))
            .ok_or_else(|| Error::internal("the shape is not of a memory table"))
    }

    fn audit(&self, pipeline: &str, _sinks: &[(&str, &Shape)]) -> Result<Audit> {
        // Its logs are scripts, which begin at 0.
        let audited = |slice| AuditedSlice { slice, first: Some(Offset(0)), rejects: 0 };
        let slices = self.0.stored(pipeline).into_iter().map(audited).collect();
        Ok(Audit { slices, ..Audit::default() })
    }

    fn writer(&self, context: WriterContext) -> Result<Box<dyn Writer>> {
        Ok(Box::new(Applier { store: Arc::clone(&self.0), context }))
    }
}

struct Held {
    store: Arc<MemoryStore>,
    pipeline: String,
}

impl Lock for Held {
    fn check(&mut self) -> Result<bool> {
        Ok(false)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(pipeline) = self.store.state().pipelines.get_mut(&self.pipeline) {
            pipeline.holder = None;
        }
        self.store.freed.notify_all();
    }
}

struct Applier {
    store: Arc<MemoryStore>,
    context: WriterContext,
}

impl Writer for Applier {
    fn write(&mut self, flush: Flush) -> Result<Stored> {
        let mut state = self.store.state();
        state.transactions += 1;
        let now = state.transactions;
        let failure = state.failures.iter().position(|(at, _)| *at == now);
        let failure = failure.map(|index| state.failures.swap_remove(index).1);
        if failure == Some(Failure::Before) {
            return Err(Error::sink("scripted to fail before the commit"));
        }
        let pipeline = state.pipelines.entry(self.context.pipeline.clone()).or_default();
        fence(pipeline, self.context.generation)?;
        let mut commits = Vec::new();
        let mut stored = Stored::default();
        for part in flush.sinks {
            let sink = self.context.sinks.iter().find(|sink| sink.id == part.sink);
            let sink = sink.expect("a flush holds sinks of its store");
            let table = sink.shape.downcast_ref::<Arc<dyn Apply>>().expect("a memory table's");
            let (mut outcomes, commit) = table.apply(part.chunks);
            outcomes.extend(part.rejects.iter().map(|reject| (reject.at, Outcome::Rejected)));
            let consumed = part.spans.values().map(|span| (span.lane, span.records));
            let counters = tally(consumed, &mut outcomes, sink.fan_out);
            stored.moves.extend(self.context.moves(sink, &part.spans, &counters));
            stored.refused.extend(part.rejects.into_iter().map(|reject| (part.sink, reject)));
            commits.push(commit);
        }
        let mut slices = pipeline.slices.clone();
        for moved in &stored.moves {
            let slice = slices.entry(moved.key.clone()).or_insert_with(|| Slice {
                key: moved.key.clone(),
                seq: 0,
                position: moved.from,
                counters: Counters::default(),
                incarnation: Incarnation::default(),
                leader_epoch: None,
            });
            if slice.position != moved.from {
                return Err(Error::sink(format!(
                    "slice {} stands at {}, but the flush covers [{}, {})",
                    moved.key, slice.position, moved.from, moved.upto
                )));
            }
            slice.seq += 1;
            slice.position = moved.upto;
            slice.leader_epoch = moved.leader_epoch;
            slice.counters += moved.counters;
        }
        if self.context.abort.is_raised() {
            return Err(Error::sink("the run was aborted"));
        }
        pipeline.slices = slices;
        commits.into_iter().for_each(|commit| commit());
        if failure == Some(Failure::After) {
            return Err(Error::sink("scripted to fail after the commit"));
        }
        Ok(stored)
    }
}

fn fence(pipeline: &PipelineState, generation: Generation) -> Result<()> {
    if pipeline.generation == generation.0 {
        return Ok(());
    }
    Err(Error::new(
        Kind::Fenced,
        format!(
            "generation {} took over from {}; this run wrote nothing more",
            pipeline.generation, generation.0
        ),
    ))
}
