//! One transaction at a time, repeated until its outcome is known (contracts C2 and C3).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use tokio_postgres::error::SqlState;

use super::blockers::Blockers;
use super::connect::{Patience, Session};
use super::connection::{Connected, Connection};
use super::keys::LockKeys;
use super::ledger::{Ledger, Move, Verdict, read_back};
use super::load::Loader;
use super::retry::{Backoff, Fault};
use super::store::PostgresStore;
use crate::error::{Error, Result};
use crate::sink::WriterContext;

/// What stands before the sentence of a fault that leaves a COMMIT's outcome open.
const UNKNOWN: &str = "the outcome of the last commit is unknown, the next run reads it";

/// What a transaction changes, beside the slices that it moves.
pub(super) trait Change {
    /// Puts it into the transaction that has begun, and counts it into the moves.
    async fn make(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Fault>;

    /// The moves that cover it; counted, once it was made.
    fn moves(&self) -> &[Move];

    /// COMMIT itself refused it. Whether another attempt, which looks closer, is worth it.
    fn refused_at_commit(&mut self) -> bool;

    /// It is made once more after `fault`, which was met `attempts` times before.
    fn repeats(&mut self, fault: &Fault, attempts: u32);
}

/// A transaction that has begun.
pub(super) struct Transaction<'a> {
    connection: &'a mut Connection,
    begin: String,
}

impl Transaction<'_> {
    /// To write by.
    pub async fn parts(&mut self) -> Result<(&mut Session, &mut Loader), Fault> {
        let Connected { session, loader } = self.connection.open().await?;
        Ok((session, loader))
    }

    /// Takes back all that was done, and begins anew.
    pub async fn restart(&mut self) -> Result<(), Fault> {
        let Connected { session, loader } = self.connection.open().await?;
        if session.is_out_of_step() {
            self.connection.lose();
        } else {
            session.batch("rollback").await?;
            loader.rolled_back();
        }
        self.connection.open().await?.session.batch(&self.begin).await
    }
}

/// One worker's hand in its store.
pub(super) struct Hand {
    store: PostgresStore,
    context: Arc<WriterContext>,
    ledger: Ledger,
    keys: LockKeys,
    connection: Connection,
    /// From the last COMMIT to its answer.
    commit: Duration,
}

impl Hand {
    pub fn new(store: PostgresStore, context: Arc<WriterContext>) -> Self {
        let keys = LockKeys::new(&store.schema, &context.pipeline);
        Hand {
            ledger: Ledger::new(&store.schema, &context.pipeline),
            connection: Connection::new(store.clone(), keys, &context),
            keys,
            commit: Duration::ZERO,
            store,
            context,
        }
    }

    pub fn context(&self) -> &Arc<WriterContext> {
        &self.context
    }

    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// Makes `change`, as often as it takes to know that it is stored. Gives how long COMMIT took.
    pub async fn persist(&mut self, change: &mut impl Change) -> Result<Duration> {
        let started = Instant::now();
        let mut backoff = Backoff::default();
        // Why the outcome of a COMMIT is unknown, while it is.
        let mut unknown: Option<Fault> = None;
        loop {
            let (class, public);
            let fault = match unknown.take() {
                None => {
                    let mut sent = false;
                    let Err(fault) = self.attempt(change, &mut sent).await else { break };
                    self.connection.lose();
                    (class, public) = (fault.class().to_owned(), fault.in_public());
                    let answered = matches!(fault, Fault::Final(_) | Fault::RolledBack);
                    if sent && !answered {
                        let sentence = fault.to_string();
                        unknown = Some(fault);
                        sentence
                    } else if fault.is_retryable() {
                        change.repeats(&fault, backoff.attempts());
                        fault.to_string()
                    } else {
                        return Err(self.failed(fault));
                    }
                }
                Some(cause) => match self.resolve(change.moves()).await {
                    Ok(Verdict::Done) => break,
                    Ok(Verdict::Undone) if cause.is_retryable() => {
                        change.repeats(&cause, backoff.attempts());
                        continue;
                    }
                    Ok(Verdict::Undone) if cause.is_refusal() && change.refused_at_commit() => {
                        continue;
                    }
                    Ok(Verdict::Undone) => return Err(self.failed(cause)),
                    Ok(other) => return Err(self.failed(self.decided(other))),
                    Err(fault) => {
                        self.connection.lose();
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
                let error = self.failed(Fault::Aborted);
                return Err(if unknown.is_some() { error.at(UNKNOWN) } else { error });
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
        Ok(std::mem::take(&mut self.commit))
    }

    /// `fault` as the error that ends the run.
    pub fn failed(&self, fault: Fault) -> Error {
        fault.during(format!("write to `{}`", self.store.address.identity))
    }

    /// One attempt, while it is watched who it waits for. `sent` tells whether it came as far as to send
    /// COMMIT.
    async fn attempt(&mut self, change: &mut impl Change, sent: &mut bool) -> Result<(), Fault> {
        let backend = self.connection.open().await?.session.backend.pid;
        let blockers = Blockers::new(self.store.clone(), Arc::clone(&self.context), backend);
        let attempt = std::pin::pin!(self.transact(change, sent));
        match select(attempt, std::pin::pin!(blockers.watch())).await {
            Either::Left((done, _)) => done,
            Either::Right((never, _)) => match never {},
        }
    }

    async fn transact(&mut self, change: &mut impl Change, sent: &mut bool) -> Result<(), Fault> {
        let begin = format!(
            "begin isolation level read committed; select pg_advisory_xact_lock_shared({})",
            self.keys.write
        );
        self.connection.open().await?.session.ahead(&begin);
        fail::fail_point!("begun");
        change.make(&mut Transaction { connection: &mut self.connection, begin }).await?;
        let generation = self.context.generation;
        let moves = change.moves();
        let Connected { session, loader } = self.connection.open().await?;
        let gone = |fault| gone(fault, &self.context.pipeline);
        let sources = &self.context.sources;
        self.ledger.open(session, generation, sources, moves).await.map_err(gone)?;
        let moved = self.ledger.advance(session, loader, generation, moves).await.map_err(gone)?;
        if moved != moves.len() {
            session.batch("rollback").await?;
            loader.rolled_back();
            let verdict = self.verdict(moves, false).await?;
            return Err(self.decided(verdict));
        }
        fail::fail_point!("slices-moved");
        if self.context.abort.is_raised() {
            session.batch("rollback").await?;
            return Err(Fault::Aborted);
        }
        *sent = true;
        // Nothing cuts this short but the limit: the sooner its outcome is known, the better.
        let commit = self.ledger.commit_sql(moves);
        let patience = Patience::of(self.store.time_limit);
        let began = Instant::now();
        let answers = patience.within(session.client.simple_query(&commit)).await?;
        fail::fail_point!("committed");
        self.commit = began.elapsed();
        loader.committed();
        let stored = read_back(&answers);
        match Verdict::of(moves, &stored, generation, None) {
            Verdict::Done => Ok(()),
            Verdict::Undone => Err(Fault::RolledBack),
            other => Err(self.decided(other)),
        }
    }

    /// What is stored of `moves`; with `lock`, once no transaction moves them any more.
    async fn verdict(&mut self, moves: &[Move], lock: bool) -> Result<Verdict, Fault> {
        let Connected { session, .. } = self.connection.open().await?;
        let stored = self.ledger.stored(session, moves, lock).await?;
        let pipeline = self.ledger.generation(session).await?;
        Ok(Verdict::of(moves, &stored, self.context.generation, pipeline))
    }

    /// The outcome of a transaction whose COMMIT was sent and not answered. Connecting has ended the
    /// process that it was sent to, so that nothing changes any more.
    async fn resolve(&mut self, moves: &[Move]) -> Result<Verdict, Fault> {
        self.verdict(moves, true).await
    }

    fn decided(&self, verdict: Verdict) -> Fault {
        Fault::Final(match verdict {
            Verdict::Fenced(theirs) => self.ledger.fenced(self.context.generation, theirs),
            Verdict::Torn(why) => why.at("nothing of it was written"),
            Verdict::Done | Verdict::Undone => Error::sink(format!(
                "the slices of pipeline `{}` changed while they were moved; nothing was written",
                self.context.pipeline
            )),
        })
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
}

/// The fault of a statement on the bookkeeping, whose tables may have been dropped.
fn gone(fault: Fault, pipeline: &str) -> Fault {
    if fault.code() != Some(&SqlState::UNDEFINED_TABLE) {
        return fault;
    }
    Fault::Final(Error::position(format!(
        "the positions of pipeline `{pipeline}` are gone: {fault}; nothing of this flush was written, and the \
         next run begins anew: empty append tables first"
    )))
}
