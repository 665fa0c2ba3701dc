//! A store that counts what reaches another one, and writes nothing: for a recount of the log.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{
    Chunk, Column, Flush, Generation, Lock, Shape, Standby, Store, Stored, Target, Watch, Writer,
    WriterContext,
};
use crate::error::{Error, Result};
use crate::position::{Counters, Outcome, Slice, SliceKey, tally};
use crate::record::{At, Incarnation, Offset};

/// What became of the records, as far as that is known without a table: those with a row count as
/// written.
pub(crate) type Tallies = Arc<Mutex<BTreeMap<SliceKey, Counters>>>;

/// Counts what reaches `real`. Generations and slices are its own, so that nobody notices it.
pub(crate) struct Counting {
    real: Arc<dyn Store>,
    tallies: Tallies,
}

impl Counting {
    /// Counts into `tallies`.
    pub(crate) fn new(real: Arc<dyn Store>, tallies: Tallies) -> Self {
        Counting { real, tallies }
    }
}

impl Store for Counting {
    fn identity(&self) -> String {
        self.real.identity()
    }

    fn prepare(&self, targets: &[&Target]) -> Result<Vec<Shape>> {
        self.real.prepare(targets)
    }

    fn columns(&self, shape: &Shape) -> Vec<Column> {
        self.real.columns(shape)
    }

    fn lock(&self, _pipeline: &str, _standby: &Standby<'_>) -> Result<Box<dyn Lock>> {
        Ok(Box::new(Nothing))
    }

    fn begin(&self, _pipeline: &str) -> Result<Generation> {
        Ok(Generation(0))
    }

    fn generation(&self, _pipeline: &str) -> Result<Option<Generation>> {
        Ok(None)
    }

    fn slices(&self, _pipeline: &str) -> Result<Vec<Slice>> {
        Ok(Vec::new())
    }

    fn create(&self, _pipeline: &str, _generation: Generation, _slices: &[Slice]) -> Result<()> {
        Ok(())
    }

    fn identify(
        &self,
        _pipeline: &str,
        _generation: Generation,
        _source: &str,
        _incarnation: &Incarnation,
    ) -> Result<()> {
        Ok(())
    }

    fn reposition(&self, _pipeline: &str, _changes: &[(SliceKey, Option<Offset>)]) -> Result<()> {
        Err(Error::internal("a recount moves no positions"))
    }

    fn watch(&self, shape: &Shape) -> Option<Box<dyn Watch>> {
        self.real.watch(shape)
    }

    fn coordinates(&self, shape: &Shape, chunk: &Chunk) -> Result<Vec<At>> {
        self.real.coordinates(shape, chunk)
    }

    fn writer(&self, context: WriterContext) -> Result<Box<dyn Writer>> {
        let (real, tallies) = (Arc::clone(&self.real), Arc::clone(&self.tallies));
        Ok(Box::new(Counter { real, tallies, context }))
    }
}

/// Nothing is locked.
struct Nothing;

impl Lock for Nothing {
    fn check(&mut self) -> Result<bool> {
        Ok(false)
    }
}

struct Counter {
    real: Arc<dyn Store>,
    tallies: Tallies,
    context: WriterContext,
}

impl Writer for Counter {
    fn write(&mut self, flush: Flush) -> Result<Stored> {
        let mut stored = Stored::default();
        for part in flush.sinks {
            let sink = self.context.sinks.iter().find(|sink| sink.id == part.sink);
            let sink =
                sink.ok_or_else(|| Error::internal("a flush holds a sink that is unknown"))?;
            let mut outcomes = Vec::new();
            for chunk in &part.chunks {
                let rows = self.real.coordinates(&sink.shape, chunk)?;
                outcomes.extend(rows.into_iter().map(|at| (at, Outcome::Written)));
            }
            outcomes.extend(part.rejects.iter().map(|reject| (reject.at, Outcome::Rejected)));
            let read = part.spans.values().map(|span| (span.lane, span.records));
            let counted = tally(read, &mut outcomes, sink.fan_out);
            let mut tallies = self.tallies.lock().unwrap_or_else(PoisonError::into_inner);
            for (lane, counters) in &counted {
                *tallies.entry(self.context.slice_key(sink, *lane)).or_default() += *counters;
            }
            stored.moves.extend(self.context.moves(sink, &part.spans, &counted));
        }
        Ok(stored)
    }
}
