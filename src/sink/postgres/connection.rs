//! A writer's connection: opened when it is needed; where it was lost, the server's process that it left
//! behind is ended before another begins.

use super::connect::{Backend, Patience, Session, application_name};
use super::keys::LockKeys;
use super::load::Loader;
use super::retry::Fault;
use super::store::PostgresStore;
use crate::error::Error;
use crate::run::Abort;
use crate::sink::WriterContext;

/// One worker's way to its store.
pub(super) struct Connection {
    store: PostgresStore,
    application: String,
    alive: i64,
    abort: Abort,
    open: Option<Connected>,
    /// A process whose connection was lost: it may still hold locks, or commit.
    ghost: Option<Backend>,
}

/// A connection that stands.
pub(super) struct Connected {
    pub session: Session,
    pub loader: Loader,
}

impl Connection {
    /// Not connected yet.
    pub fn new(store: PostgresStore, keys: LockKeys, context: &WriterContext) -> Self {
        let WriterContext { pipeline, generation, worker, abort, .. } = context;
        Connection {
            store,
            application: application_name(pipeline, &format!("g{} w{worker}", generation.0)),
            alive: keys.alive,
            abort: abort.clone(),
            open: None,
            ghost: None,
        }
    }

    /// Connects if need be, and ends the process that a lost connection left behind.
    pub async fn open(&mut self) -> Result<&mut Connected, Fault> {
        if self.open.is_none() {
            let patience =
                Patience { limit: self.store.time_limit, abort: Some(self.abort.clone()) };
            let session = Session::open(&self.store.address, &self.application, patience).await?;
            session.batch(&format!("select pg_advisory_lock_shared({})", self.alive)).await?;
            if let Some(ghost) = &self.ghost {
                session.end(ghost).await?;
            }
            self.ghost = None;
            self.open = Some(Connected { session, loader: Loader::default() });
        }
        self.open.as_mut().ok_or_else(|| Error::internal("a session was just opened").into())
    }

    /// Forgets the connection; whatever its process still does is ended by the next one.
    pub fn lose(&mut self) {
        if let Some(open) = self.open.take() {
            self.ghost = Some(open.session.backend.clone());
        }
    }

    /// The loader of the connection that stands, if one does.
    pub fn loader(&mut self) -> Option<&mut Loader> {
        self.open.as_mut().map(|open| &mut open.loader)
    }

    /// Says good-bye to the server.
    pub async fn close(&mut self) {
        if let Some(open) = self.open.take() {
            open.session.close().await;
        }
    }
}
