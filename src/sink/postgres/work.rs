//! A flush in the form in which it is written, as often as need be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::arrived::{Arrived, RowId, Units};
use super::batch::{self, Batch, Collapse};
use super::ledger::Move;
use super::retry::{Fault, NEIGHBOURS};
use super::rows::Rows;
use super::shape::LiveTable;
use crate::error::{Error, Result};
use crate::origins::Origins;
use crate::position::{Counters, Moved, Outcome, tally};
use crate::record::{At, Lane, Offset, Refusal, Reject, SourceId, Span};
use crate::sink::{Count, SinkContext, SinkFlush, SinkId, WriterContext};

/// What one transaction writes.
pub(super) struct Work {
    pub tables: Vec<TableWork>,
    /// The slices' moves; their counters are known once the rows' fates are.
    pub moves: Vec<Move>,
}

/// What it writes to one table.
pub(super) struct TableWork {
    pub sink: SinkId,
    pub live: Arc<LiveTable>,
    pub rows: Arrived,
    /// Which rows belong together; `None` until the server has said which keys are equal.
    pub units: Option<Units>,
    /// What became of the rows that were refused, in the present attempt.
    pub refused: BTreeMap<RowId, Refusal>,
    /// Records refused on the way.
    pub rejects: Vec<Reject>,
    pub origins: Vec<Arc<Origins>>,
    spans: BTreeMap<Lane, Span>,
    /// In a replay, what is read once more.
    pub again: Vec<(Lane, Offset)>,
}

impl TableWork {
    pub fn new(context: &WriterContext, part: SinkFlush) -> Result<Self> {
        let sink = sink(context, part.sink)?;
        let live = Arc::clone(&sink.shape).downcast::<LiveTable>().map_err(|_| {
            Error::internal(format!("sink `{}` has the shape of another store", sink.name))
        })?;
        let chunks = part
            .chunks
            .into_iter()
            .map(|chunk| match chunk.payload.downcast::<Rows>() {
                Ok(rows) => Ok(*rows),
                Err(_) => Err(Error::internal(format!(
                    "sink `{}` was handed another sink's rows",
                    sink.name
                ))),
            })
            .collect::<Result<Vec<Rows>>>()?;
        let rows = Arrived::new(chunks);
        let table = Arc::clone(&live.newest().1.table);
        let units = if table.key.is_empty() {
            Some(Units::singles(&rows))
        } else if table.server_keys {
            None
        } else {
            Some(Units::by_bytes(&rows))
        };
        let work = TableWork {
            sink: part.sink,
            live,
            rows,
            units,
            refused: BTreeMap::new(),
            rejects: part.rejects,
            origins: part.origins,
            spans: part.spans,
            again: part.again,
        };
        work.covered(context, sink)?;
        Ok(work)
    }

    /// Begins an attempt: what an earlier one refused may be taken now.
    pub fn begin(&mut self) {
        let refused = std::mem::take(&mut self.refused);
        if !refused.is_empty() && self.live.newest().1.table.server_keys {
            // Rows whose keys the server did not take are in no unit.
            self.units = None;
        }
    }

    /// Per source, how many records were read and how many are refused for good, as far as is known:
    /// not those that may be taken once their neighbours are.
    pub fn so_far(&self) -> Vec<(SourceId, Count)> {
        let mut counts = BTreeMap::<SourceId, Count>::new();
        for span in self.spans.values() {
            counts.entry(span.lane.source).or_default().consumed += span.records;
        }
        let for_good = |refusal: &&Refusal| !may_be_taken(refusal);
        let refused = self.refused.iter().filter(|(_, refusal)| for_good(refusal));
        let refused = refused.map(|(row, _)| self.rows.at(*row).source);
        for source in refused.chain(self.rejects.iter().map(|reject| reject.at.source)) {
            counts.entry(source).or_default().rejected += 1;
        }
        counts.into_iter().collect()
    }

    /// Refuses rows that no span covers: they would be counted nowhere.
    fn covered(&self, context: &WriterContext, sink: &SinkContext) -> Result<()> {
        let rows = (0..self.rows.len()).map(|row| self.rows.at(row));
        let mut all = rows.chain(self.rejects.iter().map(|reject| reject.at));
        let again = |lane: Lane| self.again.iter().any(|(known, _)| *known == lane);
        match all.find(|at| !self.spans.contains_key(&at.lane()) && !again(at.lane())) {
            None => Ok(()),
            Some(at) => Err(Error::internal(format!(
                "sink `{}`: no span covers the row of {}[{}]@{}",
                sink.name,
                context.source_name(at.source),
                at.partition,
                at.offset
            ))),
        }
    }

    /// The moves of its slices, which must join what is `known` of them; not counted yet.
    pub fn moves(
        &self,
        context: &WriterContext,
        known: impl Fn(&crate::position::SliceKey) -> Option<(i64, Offset)>,
    ) -> Result<Vec<Move>> {
        let sink = sink(context, self.sink)?;
        let moves = context.moves(sink, &self.spans, &BTreeMap::new()).into_iter();
        let moves = moves.map(|moved| {
            let known = known(&moved.key);
            if let Some((_, position)) = known
                && position != moved.from
            {
                return Err(Error::internal(format!(
                    "slice {} stands at {position}, the flush covers [{}, {})",
                    moved.key, moved.from, moved.upto
                )));
            }
            Ok(Move { seq: known.map(|(seq, _)| seq), moved })
        });
        // A replay moves nothing, and counts anew.
        let lanes: BTreeSet<Lane> = self.again.iter().map(|(lane, _)| *lane).collect();
        let stand = lanes.into_iter().map(|lane| {
            let key = context.slice_key(sink, lane);
            let leader_epoch = None;
            let Some((seq, position)) = known(&key) else {
                return Err(Error::internal(format!("slice {key} is replayed, and not stored")));
            };
            let counters = Counters::default();
            let moved = Moved { key, from: position, upto: position, leader_epoch, counters };
            Ok(Move { seq: Some(seq), moved })
        });
        moves.chain(stand).collect()
    }

    /// The changes that `units` make; with `ordered`, row by row in the order of arrival, which tables whose
    /// rows depend on each other always need.
    pub fn batch<'a>(&self, units: impl Iterator<Item = &'a [RowId]>, ordered: bool) -> Batch {
        let table = &self.live.newest().1.table;
        if table.key.is_empty() {
            return batch::append(&self.rows, units);
        }
        let keys = &self.live.keys();
        if ordered || table.entangled {
            return batch::one_by_one(&self.rows, keys, units);
        }
        let (insert_only, judged, spelled) = (table.insert_only, table.judged, table.server_keys);
        batch::collapse(&self.rows, Collapse { keys, insert_only, judged, spelled }, units)
    }

    /// What became of each row: of the rows of a unit that were not refused the last was written.
    fn outcomes(&self) -> Vec<(At, Outcome)> {
        let mut fates: Vec<Option<Outcome>> = vec![None; self.rows.len() as usize];
        let insert_only = self.live.newest().1.table.insert_only;
        let mut taken = Vec::new();
        for mut unit in self.units.iter().flat_map(Units::iter) {
            if !self.refused.is_empty() {
                taken.clear();
                taken.extend(unit.iter().filter(|row| !self.refused.contains_key(row)));
                unit = &taken;
            }
            unit.iter().for_each(|row| fates[*row as usize] = Some(Outcome::Collapsed));
            if let Some(survivor) = self.rows.survivor(unit, insert_only) {
                fates[survivor as usize] = Some(Outcome::Written);
            }
        }
        for row in self.refused.keys() {
            fates[*row as usize] = Some(Outcome::Rejected);
        }
        // In the order of arrival, in which rows of one partition come in runs.
        let mut outcomes: Vec<_> = (0..)
            .zip(fates)
            .filter_map(|(row, fate)| fate.map(|fate| (self.rows.at(row), fate)))
            .collect();
        outcomes.extend(self.rejects.iter().map(|reject| (reject.at, Outcome::Rejected)));
        outcomes
    }

    /// All records that were refused, on the way or by the server.
    pub fn all_rejects(&self) -> Vec<Reject> {
        let refused = self.refused.iter();
        let refused = refused
            .map(|(row, refusal)| Reject { at: self.rows.at(*row), refusal: refusal.clone() });
        self.rejects.iter().cloned().chain(refused).collect()
    }

    /// The same, and nothing else of it is needed any more.
    pub fn into_rejects(self) -> impl Iterator<Item = Reject> {
        let TableWork { rows, refused, rejects, .. } = self;
        let refused = refused.into_iter();
        rejects
            .into_iter()
            .chain(refused.map(move |(row, refusal)| Reject { at: rows.at(row), refusal }))
    }

    /// The last record of `source` that was refused.
    pub fn last_reject(&self, source: SourceId) -> Option<Reject> {
        let refused = self.refused.iter().rev();
        let mut refused = refused.map(|(row, refusal)| (self.rows.at(*row), refusal));
        match refused.find(|(at, _)| at.source == source) {
            Some((at, refusal)) => Some(Reject { at, refusal: refusal.clone() }),
            None => self.rejects.iter().rfind(|reject| reject.at.source == source).cloned(),
        }
    }

    /// What is to be added to the counters of each slice.
    pub fn counters(&self, sink: &SinkContext) -> BTreeMap<Lane, Counters> {
        let read = self.spans.values().map(|span| (span.lane, span.records));
        let again = self.again.iter().map(|(lane, _)| (*lane, 1));
        let mut counters = tally(read.chain(again), &mut self.outcomes(), sink.fan_out);
        for (lane, _) in &self.again {
            if let Some(counters) = counters.get_mut(lane) {
                counters.take_back_rejected();
            }
        }
        counters
    }
}

impl Work {
    /// Counts what became of the rows into the moves. Gives what each source's limit is asked with.
    pub fn count(&mut self, context: &WriterContext) -> Result<Vec<(SinkId, SourceId, Count)>> {
        let mut counts = BTreeMap::<(SinkId, SourceId), Count>::new();
        for table in &self.tables {
            let sink = sink(context, table.sink)?;
            for (lane, counters) in table.counters(sink) {
                let key = context.slice_key(sink, lane);
                // What is replayed was held against the limit when it was refused.
                if table.again.is_empty() {
                    let count = counts.entry((sink.id, lane.source)).or_default();
                    count.consumed += counters.consumed;
                    count.rejected += counters.rejected;
                }
                if let Some(step) = self.moves.iter_mut().find(|step| step.moved.key == key) {
                    step.moved.counters = counters;
                }
            }
        }
        Ok(counts.into_iter().map(|((sink, source), count)| (sink, source, count)).collect())
    }
}

/// Whether a refusal may be the neighbours' fault.
fn may_be_taken(refusal: &Refusal) -> bool {
    refusal.sqlstate.as_deref().is_some_and(|code| NEIGHBOURS.contains(&code))
}

/// The sink with this number.
pub(super) fn sink(context: &WriterContext, id: SinkId) -> Result<&SinkContext> {
    let sink = context.sinks.iter().find(|sink| sink.id == id);
    sink.ok_or_else(|| Error::internal(format!("no sink has the number {}", id.0)))
}

/// A fault of a table's statements that ends the run, with the table's name.
pub(super) fn of_table(table: &TableWork, fault: Fault) -> Fault {
    let prepared = table.live.newest().1;
    let name = format!("{}.{}", prepared.table.schema, prepared.table.name);
    Fault::Final(fault.during(format!("write to table `{name}`")))
}
