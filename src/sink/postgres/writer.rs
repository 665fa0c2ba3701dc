//! The writer: one transaction a flush, repeated until its outcome is known.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::batch::{self, Batch};
use super::catalog::Prepared;
use super::connect::{Backend, Patience, Session, application_name, runtime};
use super::keys::LockKeys;
use super::ledger::{Ledger, Move, Verdict, read_back};
use super::load::Loader;
use super::retry::{Backoff, Fault};
use super::rows::Rows;
use super::store::PostgresStore;
use crate::error::{Error, Result};
use crate::position::{Counters, Outcome, SliceKey, tally};
use crate::record::Offset;
use crate::sink::{Flush, SinkContext, SinkId, Writer, WriterContext};

/// What stands before the sentence of a fault that leaves a COMMIT's outcome open.
const UNKNOWN: &str = "the outcome of the last commit is unknown, the next run reads it";

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
}

struct Connected {
    session: Session,
    loader: Loader,
}

/// A flush in the form in which it is written, as often as need be.
struct Work {
    tables: Vec<TableWork>,
    moves: Vec<Move>,
}

struct TableWork {
    sink: SinkId,
    prepared: Arc<Prepared>,
    batch: Batch,
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
        };
        Ok(PostgresWriter { runtime: runtime()?, hand })
    }
}

impl Hand {
    /// Brings a flush into its form, and checks that its spans join what is stored.
    fn work(&self, flush: Flush) -> Result<Work> {
        let mut work = Work { tables: Vec::new(), moves: Vec::new() };
        for part in flush.sinks {
            let sink = self.sink(part.sink)?;
            let prepared = Arc::clone(&sink.shape).downcast::<Prepared>().map_err(|_| {
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
            let mut batch = if prepared.table.key.is_empty() {
                batch::append(chunks)
            } else {
                batch::collapse(&prepared.table, &chunks)
            };
            let mut outcomes = std::mem::take(&mut batch.outcomes);
            outcomes.extend(part.rejects.iter().map(|reject| (reject.at, Outcome::Rejected)));
            let read = part.spans.values().map(|span| (span.lane, span.records));
            if let Some((at, _)) =
                outcomes.iter().find(|(at, _)| !part.spans.contains_key(&at.lane()))
            {
                return Err(Error::internal(format!(
                    "sink `{}`: no span covers the row of {}[{}]@{}",
                    sink.name,
                    self.context.source_name(at.source),
                    at.partition,
                    at.offset
                )));
            }
            let counters = tally(read, &mut outcomes, sink.fan_out);
            for moved in self.context.moves(sink, &part.spans, &counters) {
                let known = self.known.get(&moved.key);
                if let Some((_, position)) = known
                    && *position != moved.from
                {
                    return Err(Error::internal(format!(
                        "slice {} stands at {position}, the flush covers [{}, {})",
                        moved.key, moved.from, moved.upto
                    )));
                }
                work.moves.push(Move { seq: known.map(|(seq, _)| *seq), moved });
            }
            work.tables.push(TableWork { sink: part.sink, prepared, batch });
        }
        Ok(work)
    }

    fn sink(&self, id: SinkId) -> Result<&SinkContext> {
        self.context
            .sinks
            .iter()
            .find(|sink| sink.id == id)
            .ok_or_else(|| Error::internal(format!("no sink has the number {}", id.0)))
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
    async fn attempt(&mut self, work: &Work, sent: &mut bool) -> Result<(), Fault> {
        self.connect().await?;
        let Some(Connected { session, loader }) = &mut self.connected else {
            return Err(Error::internal("a session was just opened").into());
        };
        let generation = self.context.generation;
        session
            .batch(&format!(
                "begin isolation level read committed; select pg_advisory_xact_lock_shared({})",
                self.keys.write
            ))
            .await?;
        for table in &work.tables {
            let loaded = loader.load(session, table.sink, &table.prepared, &table.batch).await;
            if let Err(fault) = loaded {
                return Err(refused(table, fault));
            }
        }
        self.ledger.open(session, generation, &work.moves).await?;
        let moved = self.ledger.advance(session, loader, generation, &work.moves).await?;
        if moved != work.moves.len() {
            session.batch("rollback").await?;
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
        let answers = patience.within(session.client.simple_query(&commit)).await?;
        let stored = read_back(&answers);
        match Verdict::of(&work.moves, &stored, generation, None) {
            Verdict::Done => Ok(()),
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
    async fn persist(&mut self, work: &Work) -> Result<()> {
        let started = Instant::now();
        let mut backoff = Backoff::default();
        // Why the outcome of a COMMIT is unknown, while it is.
        let mut unknown: Option<Fault> = None;
        loop {
            let fault = match unknown.take() {
                None => {
                    let mut sent = false;
                    let Err(fault) = self.attempt(work, &mut sent).await else { break };
                    self.disconnect();
                    let answered = matches!(fault, Fault::Final(_) | Fault::RolledBack);
                    if sent && !answered {
                        let sentence = fault.to_string();
                        unknown = Some(fault);
                        sentence
                    } else if fault.is_retryable() {
                        fault.to_string()
                    } else {
                        return Err(self.failed(fault));
                    }
                }
                Some(cause) => match self.resolve(work).await {
                    Ok(Verdict::Done) => break,
                    Ok(Verdict::Undone) if cause.is_retryable() => continue,
                    Ok(Verdict::Undone) => return Err(self.failed(cause)),
                    Ok(other) => return Err(self.failed(self.decided(other))),
                    Err(fault) => {
                        self.disconnect();
                        if !fault.is_retryable() {
                            return Err(self.failed(fault).at(UNKNOWN));
                        }
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
    fn write(&mut self, flush: Flush) -> Result<Counters> {
        let hand = &mut self.hand;
        if hand.context.abort.is_raised() {
            return Err(hand.failed(Fault::Aborted));
        }
        let work = hand.work(flush)?;
        let mut counters = Counters::default();
        if work.moves.is_empty() {
            return Ok(counters);
        }
        self.runtime.block_on(hand.persist(&work))?;
        for step in work.moves {
            let seq = step.next_seq();
            counters += step.moved.counters;
            hand.known.insert(step.moved.key, (seq, step.moved.upto));
        }
        Ok(counters)
    }
}

impl Drop for PostgresWriter {
    fn drop(&mut self) {
        if let Some(connected) = self.hand.connected.take() {
            self.runtime.block_on(connected.session.close());
        }
    }
}

/// What the server refused in a table: a fault that stays gets the table's name and ends the run.
/// Finding the row at fault, and rejecting it alone (C7), is to come: the flush is still at hand here.
fn refused(work: &TableWork, fault: Fault) -> Fault {
    if fault.is_retryable() || !matches!(fault, Fault::Server(_)) {
        return fault;
    }
    let table = &work.prepared.table;
    Fault::Final(fault.during(format!("write to table `{}.{}`", table.schema, table.name)))
}
