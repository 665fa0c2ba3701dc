//! The writer: the rows, rejects and counts of a flush, put into one transaction.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;

use super::arrived::{RowId, Units};
use super::careful::{Careful, ranked};
use super::connect::{Session, runtime};
use super::fresh::Fresh;
use super::hand::{Change, Hand, Transaction};
use super::ledger::Move;
use super::load::{Loader, Way};
use super::rejects;
use super::retry::Fault;
use super::store::PostgresStore;
use super::work::{self, TableWork, Work};
use crate::error::{Error, Kind, Result};
use crate::position::SliceKey;
use crate::record::{At, Lane, Offset, Policy, Reject, SourceId};
use crate::sink::{Count, Flush, SinkId, Stored, Writer, WriterContext};

/// After a refusal, for how many flushes others are expected.
const CAREFUL: u32 = 32;

/// How often a transaction is repeated that a trigger failed under the code of a temporary fault, before
/// the row is blamed.
const RAISED: u32 = 4;

/// A worker's writer: blocks its thread while it writes.
pub(super) struct PostgresWriter {
    runtime: Runtime,
    hand: Hand,
    store: PostgresStore,
    /// Where the slices stand, as stored.
    known: HashMap<SliceKey, (i64, Offset)>,
    manner: Manner,
}

/// How rows are written, as the flushes before have taught it.
#[derive(Default)]
struct Manner {
    /// Which tables may take rows as if all of their keys were new.
    fresh: Fresh,
    /// For how many flushes more refusals are to be expected.
    careful: u32,
    /// Whether constraints that wait for COMMIT are known to fail there.
    constraints: bool,
    /// Whether what a trigger raises under the code of a temporary fault has lasted too long to be one.
    raised: bool,
}

impl PostgresWriter {
    pub fn new(store: PostgresStore, context: WriterContext) -> Result<Self> {
        let known = context
            .slices
            .iter()
            .map(|slice| (slice.key.clone(), (slice.seq, slice.position)))
            .collect();
        Ok(PostgresWriter {
            runtime: runtime()?,
            hand: Hand::new(store.clone(), Arc::new(context)),
            store,
            known,
            manner: Manner::default(),
        })
    }

    /// Brings a flush into its form, and checks that its spans join what is stored.
    fn work(&self, flush: Flush) -> Result<Work> {
        let context = self.hand.context();
        let mut work = Work { tables: Vec::new(), moves: Vec::new() };
        for part in flush.sinks {
            let table = TableWork::new(context, part)?;
            work.moves.extend(table.moves(context, |key| self.known.get(key).copied())?);
            work.tables.push(table);
        }
        Ok(work)
    }
}

/// A flush on its way into the transaction.
struct Flushing<'a> {
    store: &'a PostgresStore,
    context: Arc<WriterContext>,
    manner: &'a mut Manner,
    work: &'a mut Work,
    /// What each source's limit was asked with.
    counts: Vec<(SinkId, SourceId, Count)>,
}

impl Change for Flushing<'_> {
    async fn make(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Fault> {
        // Constraints that wait for COMMIT would fail there, and name no row.
        let constraints = self.manner.constraints
            || self.work.tables.iter().any(|table| table.live.newest().1.deferrable);
        let mut careful = self.manner.careful > 0 || self.manner.raised;
        if !careful {
            let (session, loader) = transaction.parts().await?;
            let (fresh, tables) = (&mut self.manner.fresh, &mut self.work.tables);
            match whole(session, loader, fresh, tables, constraints).await {
                Ok(done) => careful = !done,
                Err(fault) if fault.is_refusal() => careful = true,
                Err(fault) => return Err(fault),
            }
            if careful {
                transaction.restart().await?;
            }
        }
        let (session, loader) = transaction.parts().await?;
        if careful {
            if constraints {
                session.batch("set constraints all immediate").await?;
            }
            let (address, context) = (&self.store.address, &self.context);
            let limit = |table: &TableWork| ask(context, table, table.so_far());
            Careful::new(session, loader, address, &limit, self.manner.raised, &context.meter)
                .write(&mut self.work.tables)
                .await?;
            self.stopped()?;
        }
        self.counts = self.work.count(&self.context)?;
        for table in &self.work.tables {
            let counts = self.counts.iter().filter(|(sink, ..)| *sink == table.sink);
            ask(&self.context, table, counts.map(|(_, source, count)| (*source, *count)))?;
        }
        fail::fail_point!("rows-sent");
        set_aside(session, loader, &self.store.schema, &self.context, &self.work.tables).await?;
        fail::fail_point!("rejects-stored");
        Ok(())
    }

    fn moves(&self) -> &[Move] {
        &self.work.moves
    }

    fn refused_at_commit(&mut self) -> bool {
        // A constraint that waited for COMMIT: next time it is checked before.
        self.manner.careful = CAREFUL;
        !std::mem::replace(&mut self.manner.constraints, true)
    }

    fn repeats(&mut self, fault: &Fault, attempts: u32) {
        self.manner.raised |= fault.is_raised() && attempts >= RAISED;
    }
}

impl Flushing<'_> {
    /// The error of a row that the server refused, where its source's policy is to stop.
    fn stopped(&self) -> Result<(), Fault> {
        let refused = self.work.tables.iter().flat_map(|table| {
            let at = |row: &RowId| table.rows.at(*row);
            table.refused.iter().map(move |(row, refusal)| (table, at(row), refusal))
        });
        let stops = |at: &At| self.context.source(at.source).policy == Policy::Stop;
        let first = refused.filter(|(_, at, _)| stops(at)).min_by_key(|(_, at, _)| *at);
        let Some((table, at, refusal)) = first else { return Ok(()) };
        let prepared = table.live.newest().1;
        let column = refusal.column.as_ref().map(|column| format!(", column `{column}`"));
        let code = refusal.sqlstate.as_ref().map(|code| format!(" [SQLSTATE {code}]"));
        Err(Fault::Final(Error::new(
            Kind::Refused,
            format!(
                "table `{}.{}` refuses `{}[{}]@{}`{}: {}{}; the position stays before it: correct the \
                 dataflow or the table, or choose the policy `reject`",
                prepared.table.schema,
                prepared.table.name,
                self.context.source_name(at.source),
                at.partition,
                at.offset,
                column.unwrap_or_default(),
                refusal.reason,
                code.unwrap_or_default(),
            ),
        )))
    }
}

impl Writer for PostgresWriter {
    fn write(&mut self, flush: Flush) -> Result<Stored> {
        if self.hand.context().abort.is_raised() {
            return Err(self.hand.failed(Fault::Aborted));
        }
        let mut work = self.work(flush)?;
        let mut stored = Stored::default();
        if work.moves.is_empty() {
            if work.tables.iter().any(|table| table.rows.len() > 0) {
                return Err(Error::internal("rows that no span covers would not be stored"));
            }
            return Ok(stored);
        }
        let began = Instant::now();
        let context = Arc::clone(self.hand.context());
        let mut flushing = Flushing {
            store: &self.store,
            context,
            manner: &mut self.manner,
            work: &mut work,
            counts: Vec::new(),
        };
        let persisted = self.runtime.block_on(self.hand.persist(&mut flushing));
        let counts = flushing.counts;
        let WriterContext { meter, worker, guard, .. } = &**self.hand.context();
        meter.resumed(*worker);
        if persisted.as_ref().is_err_and(|error| error.kind() == Kind::Fenced) {
            meter.fenced();
        }
        stored.commit = persisted?;
        for (sink, source, count) in counts {
            guard.tell(sink, source, count);
        }
        let loader = self.hand.connection().loader();
        stored.copy = loader.map(|loader| std::mem::take(&mut loader.copied)).unwrap_or_default();
        stored.merge = began.elapsed().saturating_sub(stored.copy + stored.commit);
        let refused = work.tables.iter().any(|table| !table.refused.is_empty());
        let manner = &mut self.manner;
        manner.raised = false;
        manner.careful = if refused { CAREFUL } else { manner.careful.saturating_sub(1) };
        for step in work.moves {
            let seq = step.next_seq();
            self.known.insert(step.moved.key.clone(), (seq, step.moved.upto));
            stored.moves.push(step.moved);
        }
        for table in work.tables {
            let sink = table.sink;
            stored.refused.extend(table.into_rejects().map(|reject| (sink, reject)));
        }
        Ok(stored)
    }
}

impl Drop for PostgresWriter {
    fn drop(&mut self) {
        self.runtime.block_on(self.hand.connection().close());
    }
}

/// Writes all tables without looking at their rows; `false` where that cannot be done.
async fn whole(
    session: &Session,
    loader: &mut Loader,
    fresh: &mut Fresh,
    tables: &mut [TableWork],
    constraints: bool,
) -> Result<bool, Fault> {
    for table in tables {
        table.begin();
        if table.units.is_none() {
            let all: Vec<RowId> = (0..table.rows.len()).collect();
            table.units = Some(ranked(session, loader, table, &all).await.map_err(|r| r.fault)?);
        }
        let batch = table.batch(table.units.iter().flat_map(Units::iter), false);
        let (sink, live) = (table.sink, &table.live);
        if fresh.tries(table, &batch) {
            session.batch("savepoint fresh").await?;
            let mark = loader.mark();
            let copied = loader.load(session, sink, live, &batch, Way::Copied).await;
            match copied.map_err(|refused| refused.fault) {
                Ok(_) => {
                    fresh.note(sink, true);
                    continue;
                }
                Err(fault) if fault.code() == Some(&SqlState::UNIQUE_VIOLATION) => {
                    fresh.note(sink, false);
                    session.batch("rollback to fresh").await?;
                    loader.rolled_back_to(&mark);
                }
                Err(fault) => return Err(fault),
            }
        }
        let loaded = loader.load(session, sink, live, &batch, Way::Merged).await;
        let collapses = !table.live.newest().1.table.entangled;
        let several = || table.units.as_ref().is_some_and(Units::has_several);
        if !loaded.map_err(|r| r.fault)? && collapses && several() {
            // A trigger dropped a row: what came before it of its key may stand.
            return Ok(false);
        }
    }
    if constraints {
        session.batch("set constraints all immediate").await?;
    }
    Ok(true)
}

/// Refuses `counts` of `table`'s records that pass the limits of their sources.
fn ask(
    context: &WriterContext,
    table: &TableWork,
    counts: impl IntoIterator<Item = (SourceId, Count)>,
) -> Result<()> {
    let sink = work::sink(context, table.sink)?;
    for (id, count) in counts {
        let last = table.last_reject(id);
        context.guard.ask(sink, (id, context.source(id)), count, last.as_ref())?;
    }
    Ok(())
}

/// Stores the refused records of sources whose policy asks for it.
async fn set_aside(
    session: &Session,
    loader: &mut Loader,
    schema: &str,
    context: &WriterContext,
    tables: &[TableWork],
) -> Result<(), Fault> {
    for table in tables {
        let sink = work::sink(context, table.sink)?;
        if !table.again.is_empty() {
            let place = |(lane, offset): &(Lane, Offset)| {
                (context.source_name(lane.source), lane.partition.0, offset.0)
            };
            let again: Vec<_> = table.again.iter().map(place).collect();
            rejects::take_away(session, schema, &context.pipeline, &sink.name, &again).await?;
        }
        let mut rejects = table.all_rejects();
        rejects.retain(|reject| context.source(reject.at.source).policy == Policy::Reject);
        if rejects.is_empty() {
            continue;
        }
        let place = |reject: &Reject| (reject.at.lane(), reject.at.offset);
        let mut wanted = rejects.iter().map(|reject| (place(reject), None)).collect();
        table.origins.iter().for_each(|origins| origins.find(&mut wanted));
        let refused: Vec<_> = rejects
            .iter()
            .map(|reject| rejects::Refused {
                sink: &sink.name,
                topic: context.source_name(reject.at.source),
                reject,
                origin: wanted.get(&place(reject)).cloned().flatten(),
            })
            .collect();
        rejects::store(session, loader, schema, &context.pipeline, &refused).await?;
    }
    Ok(())
}
