//! A database as a store: what happens before the writers start, and between runs.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;

use super::address::Address;
use super::catalog::{self, Look};
use super::connect::{Patience, Session, application_name, runtime};
use super::kept;
use super::keys::LockKeys;
use super::ledger::Ledger;
use super::lock::{PostgresLock, connecting, end_all, holders};
use super::pooler;
use super::retry::Fault;
use super::rows::Rows;
use super::schema;
use super::shape::LiveTable;
use super::target::Spec;
use super::watch::TableWatch;
use super::writer::PostgresWriter;
use crate::error::{Error, Kind, Result};
use crate::position::{Slice, SliceKey};
use crate::record::{At, Incarnation, Offset};
use crate::sink::{
    Audit, Chunk, Column, Generation, Lock, Selection, Shape, Standby, Store, StoredReject, Target,
    Watch, Writer, WriterContext,
};

/// How long `begin` waits for the transactions of the run before, and then for their ends.
const OLD_TRANSACTIONS: Duration = Duration::from_secs(30);

/// A database with its bookkeeping schema.
#[derive(Clone)]
pub(super) struct PostgresStore {
    pub address: Address,
    pub schema: String,
    pub time_limit: Duration,
    pub retry_for: Duration,
}

impl PostgresStore {
    pub fn new(address: Address, schema: &str, time_limit: Duration, retry_for: Duration) -> Self {
        PostgresStore { address, schema: schema.into(), time_limit, retry_for }
    }

    /// Connects as `application`, calls `then`, disconnects.
    fn with_session<T, F>(
        &self,
        application: &str,
        what: &str,
        then: impl FnOnce(Arc<Session>) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        runtime()?.block_on(async {
            let patience = Patience::of(self.time_limit);
            let session = Session::open(&self.address, application, patience)
                .await
                .map_err(|fault| connecting(&self.address, fault))?;
            let session = Arc::new(session);
            let done = then(Arc::clone(&session)).await;
            if let Some(session) = Arc::into_inner(session) {
                session.close().await;
            }
            done.map_err(|fault| fault.during(format!("{what} in `{}`", self.address.identity)))
        })
    }

    fn keys(&self, pipeline: &str) -> LockKeys {
        LockKeys::new(&self.schema, pipeline)
    }

    fn ledger(&self, pipeline: &str) -> Ledger {
        Ledger::new(&self.schema, pipeline)
    }

    /// Begins a transaction of `generation`, in which no other one begins.
    async fn begun(
        &self,
        session: &Session,
        pipeline: &str,
        generation: Generation,
    ) -> Result<Ledger, Fault> {
        let ledger = self.ledger(pipeline);
        session.batch("begin isolation level read committed").await?;
        let lock = "select pg_advisory_xact_lock_shared($1)";
        session.within(session.client.execute(lock, &[&self.keys(pipeline).write])).await?;
        match ledger.generation(session).await? {
            Some(stored) if stored == generation => Ok(ledger),
            Some(stored) => Err(ledger.fenced(generation, stored).into()),
            None => {
                let why = format!("pipeline `{pipeline}` has no generation; begin one first");
                Err(Error::internal(why).into())
            }
        }
    }
}

impl Store for PostgresStore {
    fn identity(&self) -> String {
        // Sinks with different bookkeeping cannot share a transaction's positions.
        match self.schema.as_str() {
            "tidegate" => self.address.identity.clone(),
            other => format!("{}?schema={other}", self.address.identity),
        }
    }

    fn prepare(&self, targets: &[&Target]) -> Result<Vec<Shape>> {
        let specs: Vec<Arc<Spec>> = targets
            .iter()
            .map(|target| {
                Arc::clone(&target.spec).downcast::<Spec>().map_err(|_| {
                    Error::internal(format!("sink `{}` is not of PostgreSQL", target.name))
                })
            })
            .collect::<Result<_>>()?;
        self.with_session("tidegate prepare", "prepare", async |session| {
            pooler::refuse(&session, &self.address).await?;
            schema::ensure(&session, &self.address, &self.schema).await?;
            let mut shapes = Vec::new();
            for spec in &specs {
                let prepared = catalog::read(&session, &self.address, spec, Look::First).await?;
                shapes.push(Arc::new(LiveTable::new(Arc::clone(spec), prepared)) as Shape);
            }
            Ok(shapes)
        })
    }

    fn place(&self) -> Result<Option<String>> {
        // The moment at which a server started, to the microsecond, tells it from others; any role may
        // read it, which does not go for the system identifier.
        let query = "select pg_postmaster_start_time()::text || ' ' || oid::text
                       from pg_database where datname = current_database()";
        self.with_session("tidegate prepare", "prepare", async |session| {
            let row = session.within(session.client.query_one(query, &[])).await?;
            Ok(Some(format!("{} {}", row.get::<_, String>(0), self.schema)))
        })
    }

    fn columns(&self, shape: &Shape) -> Vec<Column> {
        let Some(live) = shape.downcast_ref::<LiveTable>() else { return Vec::new() };
        let table = &live.newest().1.table;
        let column = |(index, column): (usize, &super::table::Column)| Column {
            name: column.name.clone(),
            kind: column.type_name.clone(),
            key: table.key.iter().any(|key| usize::from(*key) == index),
        };
        table.columns.iter().enumerate().map(column).collect()
    }

    fn lock(&self, pipeline: &str, standby: &Standby<'_>) -> Result<Box<dyn Lock>> {
        let keys = self.keys(pipeline);
        let address = self.address.clone();
        let limits = (self.time_limit, self.retry_for);
        Ok(Box::new(PostgresLock::take(address, pipeline, keys, limits, standby)?))
    }

    fn begin(&self, pipeline: &str) -> Result<Generation> {
        let name = application_name(pipeline, "begin");
        let what = format!("begin a generation of pipeline `{pipeline}`");
        self.with_session(&name, &what, async |session| {
            exclude_writers(&session, self.keys(pipeline).write, OLD_TRANSACTIONS).await?;
            let generation = self.ledger(pipeline).bump(&session).await?;
            session.batch("commit").await?;
            Ok(generation)
        })
    }

    fn generation(&self, pipeline: &str) -> Result<Option<Generation>> {
        let name = application_name(pipeline, "generation");
        let what = format!("read the generation of pipeline `{pipeline}`");
        self.with_session(&name, &what, async |session| {
            self.ledger(pipeline).generation(&session).await
        })
    }

    fn slices(&self, pipeline: &str) -> Result<Vec<Slice>> {
        let name = application_name(pipeline, "positions");
        let what = format!("read the positions of pipeline `{pipeline}`");
        self.with_session(&name, &what, async |session| {
            self.ledger(pipeline).slices(&session).await
        })
    }

    fn create(&self, pipeline: &str, generation: Generation, slices: &[Slice]) -> Result<()> {
        let name = application_name(pipeline, "positions");
        let what = format!("store the first positions of pipeline `{pipeline}`");
        self.with_session(&name, &what, async |session| {
            let ledger = self.begun(&session, pipeline, generation).await?;
            ledger.insert(&session, generation, slices).await.map_err(|fault| {
                if fault.code() == Some(&SqlState::UNIQUE_VIOLATION) {
                    Error::new(Kind::Sink, format!("a slice is stored already: {fault}")).into()
                } else {
                    fault
                }
            })?;
            session.batch("commit").await
        })
    }

    fn identify(
        &self,
        pipeline: &str,
        generation: Generation,
        source: &str,
        incarnation: &Incarnation,
    ) -> Result<()> {
        let name = application_name(pipeline, "positions");
        let what = format!("store which source the positions of pipeline `{pipeline}` are of");
        self.with_session(&name, &what, async |session| {
            let ledger = self.begun(&session, pipeline, generation).await?;
            ledger.identify(&session, source, incarnation).await?;
            session.batch("commit").await
        })
    }

    fn reposition(&self, pipeline: &str, changes: &[(SliceKey, Option<Offset>)]) -> Result<()> {
        let name = application_name(pipeline, "positions");
        let what = format!("move the positions of pipeline `{pipeline}`");
        self.with_session(&name, &what, async |session| {
            let keys = self.keys(pipeline);
            session.batch("begin isolation level read committed").await?;
            let sql = "select pg_try_advisory_xact_lock($1)";
            let row = session.within(session.client.query_one(sql, &[&keys.run])).await?;
            if !row.get::<_, bool>(0) {
                let holder = holders(&session, keys.run).await?;
                let holder = holder.first().map(|holder| holder.describe()).unwrap_or_default();
                return Err(Error::sink(format!(
                    "pipeline `{pipeline}` is running: its lock is {holder}; stop it first"
                ))
                .into());
            }
            let ledger = self.ledger(pipeline);
            for (key, position) in changes {
                if !ledger.reposition(&session, key, *position).await? {
                    return Err(
                        Error::config(format!("pipeline `{pipeline}` has no slice {key}")).into()
                    );
                }
            }
            session.batch("commit").await
        })
    }

    fn watch(&self, shape: &Shape) -> Option<Box<dyn Watch>> {
        let live = Arc::clone(shape).downcast::<LiveTable>().ok()?;
        Some(Box::new(TableWatch::new(self.clone(), live)))
    }

    fn rejects(
        &self,
        pipeline: &str,
        selection: &Selection,
        each: &mut dyn FnMut(StoredReject) -> Result<()>,
    ) -> Result<()> {
        let name = application_name(pipeline, "rejects");
        let what = format!("read the rejects of pipeline `{pipeline}`");
        self.with_session(&name, &what, async |session| {
            kept::read(&session, &self.schema, pipeline, selection, each).await
        })
    }

    fn discard(
        &self,
        pipeline: &str,
        selection: &Selection,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u64> {
        let name = application_name(pipeline, "rejects");
        let what = format!("delete rejects of pipeline `{pipeline}`");
        self.with_session(&name, &what, async |session| {
            kept::delete(&session, &self.schema, pipeline, selection, go_on).await
        })
    }

    fn audit(&self, pipeline: &str, sinks: &[(&str, &Shape)]) -> Result<Audit> {
        let name = application_name(pipeline, "verify");
        let what = format!("count what pipeline `{pipeline}` has stored");
        let mut tables = Vec::new();
        for (sink, shape) in sinks {
            let live = shape.downcast_ref::<LiveTable>().ok_or_else(|| {
                Error::internal(format!("sink `{sink}` has the shape of another store"))
            })?;
            tables.push((*sink, live));
        }
        let patient =
            PostgresStore { time_limit: self.time_limit.max(kept::COUNT), ..self.clone() };
        patient.with_session(&name, &what, async |session| {
            kept::audit(&session, &self.schema, pipeline, &tables).await
        })
    }

    fn coordinates(&self, shape: &Shape, chunk: &Chunk) -> Result<Vec<At>> {
        let live = shape.downcast_ref::<LiveTable>();
        let (Some(live), Some(rows)) = (live, chunk.payload.downcast_ref::<Rows>()) else {
            return Err(Error::internal("rows of another store cannot be counted"));
        };
        // A tombstone has nothing to delete in a table without a key: it counts as filtered.
        let keyed = !live.newest().1.table.key.is_empty();
        Ok(rows.entries.iter().filter(|row| keyed || !row.delete).map(|row| row.at).collect())
    }

    fn writer(&self, context: WriterContext) -> Result<Box<dyn Writer>> {
        Ok(Box::new(PostgresWriter::new(self.clone(), context)?))
    }
}

/// Opens a transaction that holds the write lock alone: all transactions of older generations have
/// ended. Those that do not within `patience` belong to a dead run of this pipeline, and are ended.
pub(super) async fn exclude_writers(
    session: &Session,
    key: i64,
    patience: Duration,
) -> Result<(), Fault> {
    let started = Instant::now();
    let mut warned = false;
    loop {
        session
            .batch("begin isolation level read committed; set local lock_timeout = '1s'")
            .await?;
        let lock = "select pg_advisory_xact_lock($1)";
        match session.within(session.client.execute(lock, &[&key])).await {
            Ok(_) => return Ok(()),
            Err(fault) if fault.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                session.batch("rollback").await?;
            }
            Err(fault) => return Err(fault),
        }
        if started.elapsed() > patience + OLD_TRANSACTIONS {
            return Err(Fault::Late(patience + OLD_TRANSACTIONS));
        }
        let blockers = holders(session, key).await?;
        if started.elapsed() > patience {
            tracing::warn!("ending {} open transactions of an older run", blockers.len());
            end_all(session, &[key]).await?;
        } else if !warned && let Some(first) = blockers.first() {
            warned = true;
            tracing::warn!(
                "waiting for open transactions of an older run; the first is {}",
                first.describe()
            );
        }
    }
}
