//! Who holds up a writer: asked on a connection of its own, once the writer has waited for a while.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use super::connect::{Patience, Session};
use super::retry::Fault;
use super::store::PostgresStore;
use crate::sink::WriterContext;

/// For how long a transaction may take before it is asked whether it waits for others, and how often it is
/// asked again.
const EVERY: Duration = Duration::from_secs(5);

/// Looks whom a server process waits for.
pub(super) struct Blockers {
    store: PostgresStore,
    context: Arc<WriterContext>,
    waiting: i32,
}

impl Blockers {
    /// Whom the process `waiting` waits for.
    pub fn new(store: PostgresStore, context: Arc<WriterContext>, waiting: i32) -> Self {
        Blockers { store, context, waiting }
    }

    /// Tells the log and the figures; never ends by itself.
    pub async fn watch(&self) -> Infallible {
        let (mut said, mut session) = (String::new(), None);
        loop {
            tokio::time::sleep(EVERY).await;
            match self.look(&mut session).await {
                Ok(Some(who)) => {
                    let identity = &self.store.address.identity;
                    let sentence = format!("it waits for a lock that is held by {who}");
                    self.context.meter.blocked(self.context.worker, &sentence);
                    if who != said {
                        tracing::warn!(
                            pipeline = %self.context.pipeline,
                            worker = self.context.worker,
                            "writing to `{identity}` is held up: {sentence}"
                        );
                        said = who;
                    }
                }
                Ok(None) => {}
                // The writer meets the same fault, and says so.
                Err(fault) => {
                    tracing::debug!(%fault, "nobody can say who holds up the writer");
                    session = None;
                }
            }
        }
    }

    /// The first process that it waits for; connects where there is no session yet.
    async fn look(&self, session: &mut Option<Session>) -> Result<Option<String>, Fault> {
        let session = match session {
            Some(session) => session,
            None => {
                let abort = Some(self.context.abort.clone());
                let patience = Patience { limit: self.store.time_limit, abort };
                let open = Session::open(&self.store.address, "tidegate watch", patience);
                session.insert(open.await?)
            }
        };
        let sql = "select a.pid, coalesce(a.application_name, ''), host(a.client_addr),
                          date_trunc('second', a.xact_start)::text, a.state
                     from pg_catalog.pg_stat_activity a
                    where a.pid = any (pg_catalog.pg_blocking_pids($1))
                    order by a.xact_start limit 1";
        let row = session.within(session.client.query_opt(sql, &[&self.waiting])).await?;
        Ok(row.map(|row| {
            let pid: i32 = row.get(0);
            let mut who = format!("pid {pid}, application `{}`", row.get::<_, &str>(1));
            let also = |who: &mut String, before: &str, text: Option<String>| {
                if let Some(text) = text {
                    who.push_str(before);
                    who.push_str(&text);
                }
            };
            also(&mut who, ", from ", row.get(2));
            also(&mut who, ", in a transaction since ", row.get(3));
            also(&mut who, ", ", row.get(4));
            who
        }))
    }
}
