//! One run at a time: a session lock, and who holds it.

use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;

use super::address::Address;
use super::connect::{Backend, Patience, Session, application_name, runtime};
use super::keys::LockKeys;
use super::retry::Fault;
use crate::error::{Error, Kind, Result};
use crate::sink::{Lock, Standby};

/// A run that is silent for so long has lost the lock: its host may be gone behind something that keeps the
/// connection. It is asked for every two seconds. PostgreSQL 13 does not know the setting.
const IDLE: &str = "select set_config(name, '60s', false) from pg_catalog.pg_settings
                     where name = 'idle_session_timeout'";

/// The lock of one pipeline, held by a session of its own. Dropping it closes the session, and the
/// server frees the lock.
pub(super) struct PostgresLock {
    runtime: Runtime,
    session: Option<Session>,
    address: Address,
    pipeline: String,
    keys: LockKeys,
    limit: Duration,
    retry_for: Duration,
    /// Our own process whose connection was lost: it may hold the lock still.
    ghost: Option<Backend>,
    /// Since when nobody answers whether the lock is held.
    lost: Option<Instant>,
}

impl PostgresLock {
    /// Takes the lock, waiting as a standby or ending its holder.
    pub fn take(
        address: Address,
        pipeline: &str,
        keys: LockKeys,
        (limit, retry_for): (Duration, Duration),
        standby: &Standby<'_>,
    ) -> Result<Self> {
        let mut lock = PostgresLock {
            runtime: runtime()?,
            session: None,
            address,
            pipeline: pipeline.into(),
            keys,
            limit,
            retry_for,
            ghost: None,
            lost: None,
        };
        let what = format!("lock pipeline `{pipeline}` in `{}`", lock.address.identity);
        let started = Instant::now();
        lock.connect().map_err(|fault| connecting(&lock.address, fault))?;
        loop {
            let tried = lock.attempt(standby.take_over);
            let waiting = match tried {
                Ok(None) => return Ok(lock),
                Ok(Some(_)) if standby.take_over => {
                    if started.elapsed() > limit {
                        return Err(Error::sink(format!("{what}: its holders do not end")));
                    }
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
                Ok(Some(holder)) => holder,
                Err(fault) if fault.is_retryable() => {
                    lock.disconnect();
                    format!("`{}` does not answer: {fault}", lock.address.identity)
                }
                Err(fault) => return Err(fault.during(&what)),
            };
            (standby.waiting)(&waiting)?;
            std::thread::sleep(standby.every);
        }
    }

    fn connect(&mut self) -> Result<(), Fault> {
        let name = application_name(&self.pipeline, "lock");
        let patience = Patience::of(self.limit);
        let session = self.runtime.block_on(async {
            let session = Session::open(&self.address, &name, patience).await?;
            session.batch(IDLE).await?;
            if let Some(ghost) = &self.ghost {
                session.end(ghost).await?;
            }
            Ok::<_, Fault>(session)
        })?;
        self.ghost = None;
        self.session = Some(session);
        Ok(())
    }

    /// Forgets the connection; the next one ends its process, if it still runs.
    fn disconnect(&mut self) {
        if let Some(session) = self.session.take() {
            self.ghost = Some(session.backend);
        }
    }

    /// Takes the lock, or says who holds it, after having ended them if so asked.
    fn attempt(&mut self, take_over: bool) -> Result<Option<String>, Fault> {
        if self.session.is_none() {
            self.connect()?;
        }
        let Some(session) = &self.session else {
            return Err(Error::internal("a session was just opened").into());
        };
        let keys = self.keys;
        self.runtime.block_on(async {
            if try_lock(session, keys.run).await? {
                if take_over {
                    // The holder may have died alone: its writers may still be at work.
                    end_all(session, &[keys.write, keys.alive]).await?;
                }
                return Ok(None);
            }
            let holder = holders(session, keys.run)
                .await?
                .first()
                .map_or_else(|| "held by a session that just ended".into(), Holder::describe);
            if take_over {
                tracing::warn!("taking over: the lock is {holder}");
                end_all(session, &[keys.run, keys.write, keys.alive]).await?;
            }
            Ok(Some(holder))
        })
    }
}

impl Lock for PostgresLock {
    fn check(&mut self) -> Result<bool> {
        if let Some(session) = &self.session {
            let alive = session.client.batch_execute("select 1");
            match self.runtime.block_on(session.within(alive)) {
                Ok(()) => return Ok(false),
                Err(fault) => tracing::warn!(
                    pipeline = %self.pipeline,
                    "the connection that holds the run's lock was lost: {fault}"
                ),
            }
        }
        self.disconnect();
        match self.attempt(false) {
            Ok(None) => {
                tracing::info!(pipeline = %self.pipeline, "the run's lock was taken again");
                self.lost = None;
                Ok(true)
            }
            Ok(Some(holder)) => Err(Error::new(
                Kind::Fenced,
                format!("pipeline `{}` was taken over: its lock is {holder}", self.pipeline),
            )),
            Err(fault) => {
                self.disconnect();
                // Nothing commits meanwhile either, and the positions guard what commits later.
                let since = *self.lost.get_or_insert_with(Instant::now);
                if fault.is_retryable() && since.elapsed() < self.retry_for {
                    return Ok(false);
                }
                Err(fault.during(format!("check the lock of pipeline `{}`", self.pipeline)))
            }
        }
    }
}

impl Drop for PostgresLock {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            self.runtime.block_on(session.close());
        }
    }
}

/// A session that holds an advisory lock.
pub(super) struct Holder {
    /// Its process.
    pub backend: Backend,
    application: String,
    since: String,
    client: Option<String>,
}

impl Holder {
    /// `held by pid 7, application `..`, from 10.0.0.1, since ..`.
    pub fn describe(&self) -> String {
        let from = self.client.as_ref().map(|host| format!("from {host}, ")).unwrap_or_default();
        format!(
            "held by pid {}, application `{}`, {from}since {}",
            self.backend.pid, self.application, self.since
        )
    }
}

/// Tries to take a session lock.
pub(super) async fn try_lock(session: &Session, key: i64) -> Result<bool, Fault> {
    let row = session
        .within(session.client.query_one("select pg_try_advisory_lock($1)", &[&key]))
        .await?;
    Ok(row.get(0))
}

/// The other sessions that hold the advisory lock `key` of this database.
pub(super) async fn holders(session: &Session, key: i64) -> Result<Vec<Holder>, Fault> {
    // A key of 64 bits stands in two columns of 32 (pg_locks, "advisory").
    let sql = "select a.pid, a.backend_start::text, coalesce(a.application_name, ''),
                      date_trunc('second', a.backend_start)::text, host(a.client_addr)
                 from pg_catalog.pg_locks l
                 join pg_catalog.pg_stat_activity a on a.pid = l.pid
                where l.locktype = 'advisory' and l.granted and l.objsubid = 1
                  and l.database =
                      (select oid from pg_catalog.pg_database where datname = current_database())
                  and l.classid::int8 = ($1::int8 >> 32) & 4294967295
                  and l.objid::int8 = $1::int8 & 4294967295
                  and l.pid <> pg_backend_pid()
                order by a.backend_start";
    let rows = session.within(session.client.query(sql, &[&key])).await?;
    Ok(rows
        .iter()
        .map(|row| Holder {
            backend: Backend {
                pid: row.get(0),
                // Another role's sessions are shown without their times.
                started: row.get::<_, Option<String>>(1).unwrap_or_default(),
            },
            application: row.get(2),
            since: row.get::<_, Option<String>>(3).unwrap_or_else(|| "an unknown time".into()),
            client: row.get(4),
        })
        .collect())
}

/// Ends all other sessions that hold one of `keys`, and waits until they are gone.
pub(super) async fn end_all(session: &Session, keys: &[i64]) -> Result<(), Fault> {
    for key in keys {
        for holder in holders(session, *key).await? {
            session.end(&holder.backend).await.map_err(|fault| {
                if fault.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
                    let who = holder.describe();
                    Error::sink(format!("the role may not end the session ({who}): {fault}")).into()
                } else {
                    fault
                }
            })?;
        }
    }
    Ok(())
}

/// The error of a connection that could not be made.
pub(super) fn connecting(address: &Address, fault: Fault) -> Error {
    fault.during(format!("connect to `{}`", address.identity))
}
