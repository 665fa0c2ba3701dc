//! The writer: one transaction a flush, repeated until its outcome is known.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;

use super::arrived::{RowId, Units};
use super::careful::{Careful, ranked};
use super::connect::{Backend, Patience, Session, application_name, runtime};
use super::fresh::Fresh;
use super::keys::LockKeys;
use super::ledger::{Ledger, Verdict, read_back};
use super::load::{Loader, Way};
use super::rejects;
use super::retry::{Backoff, Fault};
use super::store::PostgresStore;
use super::work::{self, TableWork, Work};
use crate::error::{Error, Kind, Result};
use crate::position::SliceKey;
use crate::record::{At, Lane, Offset, Policy, Reject, SourceId};
use crate::sink::{Count, Flush, Stored, Writer, WriterContext};

/// What stands before the sentence of a fault that leaves a COMMIT's outcome open.
const UNKNOWN: &str = "the outcome of the last commit is unknown, the next run reads it";

/// After a refusal, for how many flushes others are expected.
const CAREFUL: u32 = 32;

/// How often a transaction is repeated that a trigger failed under the code of a temporary fault, before
/// the row is blamed.
const RAISED: u32 = 4;

/// A worker's writer: blocks its thread while it writes.
pub(super) struct PostgresWriter {
    runtime: Runtime,
    hand: Hand,
}

/// One worker's connection, and what it knows of its slices.
struct Hand {
    store: PostgresStore,
    context: WriterContext,
    ledger: Ledger,
    keys: LockKeys,
    connected: Option<Connected>,
    /// A process whose connection was lost: it may still hold locks, or commit.
    ghost: Option<Backend>,
    /// Where the slices stand, as stored.
    known: HashMap<SliceKey, (i64, Offset)>,
    /// Which tables may take rows as if all of their keys were new.
    fresh: Fresh,
    /// For how many flushes more refusals are to be expected.
    careful: u32,
    /// Whether constraints that wait for COMMIT are known to fail there.
    constraints: bool,
    /// Whether what a trigger raises under the code of a temporary fault has lasted too long to be one.
    raised: bool,
    /// From the last COMMIT to its answer.
    commit: Duration,
}

struct Connected {
    session: Session,
    loader: Loader,
}

impl PostgresWriter {
    pub fn new(store: PostgresStore, context: WriterContext) -> Result<Self> {
        let known = context
            .slices
            .iter()
            .map(|slice| (slice.key.clone(), (slice.seq, slice.position)))
            .collect();
        let hand = Hand {
            ledger: Ledger::new(&store.schema, &context.pipeline),
            keys: LockKeys::new(&store.schema, &context.pipeline),
            store,
            context,
            connected: None,
            ghost: None,
            known,
            fresh: Fresh::default(),
            careful: 0,
            constraints: false,
            raised: false,
            commit: Duration::ZERO,
        };
        Ok(PostgresWriter { runtime: runtime()?, hand })
    }
}

impl Hand {
    /// Brings a flush into its form, and checks that its spans join what is stored.
    fn work(&self, flush: Flush) -> Result<Work> {
        let mut work = Work { tables: Vec::new(), moves: Vec::new() };
        for part in flush.sinks {
            let table = TableWork::new(&self.context, part)?;
            work.moves.extend(table.moves(&self.context, |key| self.known.get(key).copied())?);
            work.tables.push(table);
        }
        Ok(work)
    }

    /// Connects if need be, and ends the process that a lost connection left behind.
    async fn connect(&mut self) -> Result<(), Fault> {
        if self.connected.is_some() {
            return Ok(());
        }
        let WriterContext { pipeline, generation, worker, abort, .. } = &self.context;
        let name = application_name(pipeline, &format!("g{} w{worker}", generation.0));
        let patience = Patience { limit: self.store.time_limit, abort: Some(abort.clone()) };
        let session = Session::open(&self.store.address, &name, patience).await?;
        session.batch(&format!("select pg_advisory_lock_shared({})", self.keys.alive)).await?;
        if let Some(ghost) = &self.ghost {
            session.end(ghost).await?;
        }
        self.ghost = None;
        self.connected = Some(Connected { session, loader: Loader::default() });
        Ok(())
    }

    /// One attempt. `sent` tells whether it came as far as to send COMMIT.
    async fn attempt(&mut self, work: &mut Work, sent: &mut bool) -> Result<(), Fault> {
        self.connect().await?;
        let Some(Connected { session, loader }) = &mut self.connected else {
            return Err(Error::internal("a session was just opened").into());
        };
        let begin = format!(
            "begin isolation level read committed; select pg_advisory_xact_lock_shared({})",
            self.keys.write
        );
        // Constraints that wait for COMMIT would fail there, and name no row.
        let constraints =
            self.constraints || work.tables.iter().any(|table| table.live.newest().1.deferrable);
        let mut careful = self.careful > 0 || self.raised;
        if !careful {
            session.ahead(&begin);
            match whole(session, loader, &mut self.fresh, &mut work.tables, constraints).await {
                Ok(done) => careful = !done,
                Err(fault) if fault.is_refusal() => careful = true,
                Err(fault) => return Err(fault),
            }
            if careful && session.is_out_of_step() {
                self.disconnect();
                self.connect().await?;
            } else if careful {
                session.batch("rollback").await?;
                loader.rolled_back();
            }
        }
        if careful {
            let Some(Connected { session, loader }) = &mut self.connected else {
                return Err(Error::internal("a session was just opened").into());
            };
            session.batch(&begin).await?;
            if constraints {
                session.batch("set constraints all immediate").await?;
            }
            let address = &self.store.address;
            let context = &self.context;
            let limit = |table: &TableWork| ask(context, table, table.so_far());
            Careful::new(session, loader, address, &limit, self.raised, &context.meter)
                .write(&mut work.tables)
                .await?;
            self.stopped(work)?;
        }
        self.finish(work, sent).await
    }

    /// The error of a row that the server refused, where its source's policy is to stop.
    fn stopped(&self, work: &Work) -> Result<(), Fault> {
        let refused = work.tables.iter().flat_map(|table| {
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

    /// Counts, sets refused records aside, moves the slices, commits.
    async fn finish(&mut self, work: &mut Work, sent: &mut bool) -> Result<(), Fault> {
        let Some(Connected { session, loader }) = &mut self.connected else {
            return Err(Error::internal("a session was just opened").into());
        };
        let generation = self.context.generation;
        let counts = work.count(&self.context)?;
        for table in &work.tables {
            let counts = counts.iter().filter(|(sink, ..)| *sink == table.sink);
            ask(&self.context, table, counts.map(|(_, source, count)| (*source, *count)))?;
        }
        set_aside(session, loader, &self.store.schema, &self.context, &work.tables).await?;
        self.ledger.open(session, generation, &self.context.sources, &work.moves).await?;
        let moved = self.ledger.advance(session, loader, generation, &work.moves).await?;
        if moved != work.moves.len() {
            session.batch("rollback").await?;
            loader.rolled_back();
            let verdict = self.verdict(work, false).await?;
            return Err(self.decided(verdict));
        }
        if self.context.abort.is_raised() {
            session.batch("rollback").await?;
            return Err(Fault::Aborted);
        }
        *sent = true;
        // Nothing cuts this short but the limit: the sooner its outcome is known, the better.
        let commit = self.ledger.commit_sql(&work.moves);
        let patience = Patience::of(self.store.time_limit);
        let began = Instant::now();
        let answers = patience.within(session.client.simple_query(&commit)).await?;
        self.commit = began.elapsed();
        loader.committed();
        let stored = read_back(&answers);
        match Verdict::of(&work.moves, &stored, generation, None) {
            Verdict::Done => {
                for (sink, source, count) in counts {
                    self.context.guard.tell(sink, source, count);
                }
                Ok(())
            }
            Verdict::Undone => Err(Fault::RolledBack),
            other => Err(self.decided(other)),
        }
    }

    /// What is stored of `work`'s moves; with `lock`, once no transaction moves them any more.
    async fn verdict(&self, work: &Work, lock: bool) -> Result<Verdict, Fault> {
        let Some(Connected { session, .. }) = &self.connected else {
            return Err(Error::internal("a session was just opened").into());
        };
        let stored = self.ledger.stored(session, &work.moves, lock).await?;
        let pipeline = self.ledger.generation(session).await?;
        Ok(Verdict::of(&work.moves, &stored, self.context.generation, pipeline))
    }

    /// The outcome of a transaction whose COMMIT was sent and not answered. Connecting has ended the
    /// process that it was sent to, so that nothing changes any more.
    async fn resolve(&mut self, work: &Work) -> Result<Verdict, Fault> {
        self.connect().await?;
        self.verdict(work, true).await
    }

    fn decided(&self, verdict: Verdict) -> Fault {
        Fault::Final(match verdict {
            Verdict::Fenced(theirs) => self.ledger.fenced(self.context.generation, theirs),
            Verdict::Torn(why) => Error::sink(format!("{why}; nothing of it was written")),
            Verdict::Done | Verdict::Undone => Error::sink(format!(
                "the slices of pipeline `{}` changed while they were moved; nothing was written",
                self.context.pipeline
            )),
        })
    }

    /// Forgets the connection; whatever its process still does is ended by the next one.
    fn disconnect(&mut self) {
        if let Some(connected) = self.connected.take() {
            self.ghost = Some(connected.session.backend.clone());
        }
    }

    /// Waits, unless the run is aborted meanwhile.
    async fn pause(&self, wait: Duration) {
        const STEP: Duration = Duration::from_millis(50);
        let until = Instant::now() + wait;
        while !self.context.abort.is_raised() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left.min(STEP)).await;
        }
    }

    /// Writes `work`, as often as it takes to know that it is stored.
    async fn persist(&mut self, work: &mut Work) -> Result<()> {
        let started = Instant::now();
        let mut backoff = Backoff::default();
        // Why the outcome of a COMMIT is unknown, while it is.
        let mut unknown: Option<Fault> = None;
        loop {
            let (class, public);
            let fault = match unknown.take() {
                None => {
                    let mut sent = false;
                    let Err(fault) = self.attempt(work, &mut sent).await else { break };
                    self.disconnect();
                    (class, public) = (fault.class().to_owned(), fault.in_public());
                    let answered = matches!(fault, Fault::Final(_) | Fault::RolledBack);
                    if sent && !answered {
                        let sentence = fault.to_string();
                        unknown = Some(fault);
                        sentence
                    } else if fault.is_retryable() {
                        self.raised |= fault.is_raised() && backoff.attempts() >= RAISED;
                        fault.to_string()
                    } else {
                        return Err(self.failed(fault));
                    }
                }
                Some(cause) => match self.resolve(work).await {
                    Ok(Verdict::Done) => break,
                    Ok(Verdict::Undone) if cause.is_retryable() => continue,
                    // A constraint that waited for COMMIT: next time it is checked before.
                    Ok(Verdict::Undone) if cause.is_refusal() && !self.constraints => {
                        self.constraints = true;
                        self.careful = CAREFUL;
                        continue;
                    }
                    Ok(Verdict::Undone) => return Err(self.failed(cause)),
                    Ok(other) => return Err(self.failed(self.decided(other))),
                    Err(fault) => {
                        self.disconnect();
                        if !fault.is_retryable() {
                            return Err(self.failed(fault).at(UNKNOWN));
                        }
                        (class, public) = (fault.class().to_owned(), fault.in_public());
                        unknown = Some(cause);
                        fault.to_string()
                    }
                },
            };
            if self.context.abort.is_raised() {
                return Err(self.failed(Fault::Aborted));
            }
            let identity = &self.store.address.identity;
            let patience = self.store.retry_for;
            if started.elapsed() > patience {
                let error = Error::sink(format!(
                    "write to `{identity}`: {fault}; given up after {} s",
                    patience.as_secs()
                ))
                .retryable(true);
                return Err(if unknown.is_some() { error.at(UNKNOWN) } else { error });
            }
            self.context.meter.retry(self.context.worker, &class, &public);
            if backoff.attempts() == 0 {
                tracing::warn!(
                    pipeline = %self.context.pipeline,
                    worker = self.context.worker,
                    "writing to `{identity}` is interrupted: {fault}; trying again for {} s",
                    patience.as_secs()
                );
            }
            self.pause(backoff.next()).await;
        }
        if backoff.attempts() > 0 {
            tracing::info!(
                pipeline = %self.context.pipeline,
                worker = self.context.worker,
                attempts = backoff.attempts() + 1,
                "writing to `{}` again",
                self.store.address.identity
            );
        }
        Ok(())
    }

    fn failed(&self, fault: Fault) -> Error {
        fault.during(format!("write to `{}`", self.store.address.identity))
    }
}

impl Writer for PostgresWriter {
    fn write(&mut self, flush: Flush) -> Result<Stored> {
        let hand = &mut self.hand;
        if hand.context.abort.is_raised() {
            return Err(hand.failed(Fault::Aborted));
        }
        let mut work = hand.work(flush)?;
        let mut stored = Stored::default();
        if work.moves.is_empty() {
            return Ok(stored);
        }
        let began = Instant::now();
        let persisted = self.runtime.block_on(hand.persist(&mut work));
        let meter = &hand.context.meter;
        meter.resumed(hand.context.worker);
        if persisted.as_ref().is_err_and(|error| error.kind() == Kind::Fenced) {
            meter.fenced();
        }
        persisted?;
        let loader = hand.connected.as_mut().map(|connected| &mut connected.loader);
        stored.copy = loader.map(|loader| std::mem::take(&mut loader.copied)).unwrap_or_default();
        stored.commit = std::mem::take(&mut hand.commit);
        stored.merge = began.elapsed().saturating_sub(stored.copy + stored.commit);
        let refused = work.tables.iter().any(|table| !table.refused.is_empty());
        hand.raised = false;
        hand.careful = if refused { CAREFUL } else { hand.careful.saturating_sub(1) };
        for step in work.moves {
            let seq = step.next_seq();
            hand.known.insert(step.moved.key.clone(), (seq, step.moved.upto));
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
        if let Some(connected) = self.hand.connected.take() {
            self.runtime.block_on(connected.session.close());
        }
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
