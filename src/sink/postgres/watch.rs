//! Reads a table's shape again while a run lasts, on a connection of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::catalog::{self, Look};
use super::connect::{Patience, Session, runtime};
use super::retry::{Backoff, Fault};
use super::shape::LiveTable;
use super::store::PostgresStore;
use crate::error::Result;
use crate::run::Abort;
use crate::sink::Watch;

pub(super) struct TableWatch {
    store: PostgresStore,
    live: Arc<LiveTable>,
    connected: Option<(Runtime, Session)>,
}

impl TableWatch {
    pub fn new(store: PostgresStore, live: Arc<LiveTable>) -> Self {
        TableWatch { store, live, connected: None }
    }

    fn attempt(&mut self, abort: &Abort) -> Result<(), Fault> {
        let (runtime, session) = match self.connected.take() {
            Some(connected) => connected,
            None => {
                let runtime = runtime()?;
                let patience =
                    Patience { limit: self.store.time_limit, abort: Some(abort.clone()) };
                let open = Session::open(&self.store.address, "tidegate watch", patience);
                let session = runtime.block_on(open)?;
                (runtime, session)
            }
        };
        let read = catalog::read(&session, &self.store.address, &self.live.spec, Look::Again);
        let prepared = runtime.block_on(read)?;
        self.live.publish(prepared);
        self.connected = Some((runtime, session));
        Ok(())
    }
}

impl Watch for TableWatch {
    fn look(&mut self, abort: &Abort) -> Result<()> {
        let started = Instant::now();
        let mut backoff = Backoff::default();
        loop {
            let Err(fault) = self.attempt(abort) else { return Ok(()) };
            if !fault.is_retryable() || started.elapsed() > self.store.retry_for {
                let spec = &self.live.spec;
                return Err(fault.during(format!("read the columns of table `{}`", spec.table)));
            }
            let until = Instant::now() + backoff.next();
            while Instant::now() < until && !abort.is_raised() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for TableWatch {
    fn drop(&mut self) {
        if let Some((runtime, session)) = self.connected.take() {
            runtime.block_on(session.close());
        }
    }
}
