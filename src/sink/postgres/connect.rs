//! A session: connected, with its settings pinned, every call under a time limit.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, CopyInSink, SimpleQueryMessage, Statement};

use super::address::Address;
use super::retry::Fault;
use crate::error::{Error, Result};
use crate::run::Abort;

/// How often a waiting call looks whether the run was aborted.
const TICK: Duration = Duration::from_millis(250);

/// What every session sets. The settings pin how values are read (`IntervalStyle` changes how signs
/// are, for one) and bound what a session that lost its client may hold: the server notices a dead
/// client within a minute.
const SETTINGS: &str = "\
set TimeZone = 'UTC'; \
set DateStyle = 'ISO, MDY'; \
set IntervalStyle = 'postgres'; \
set client_encoding = 'UTF8'; \
set extra_float_digits = 3; \
set standard_conforming_strings = on; \
set temp_buffers = '32MB'; \
set lock_timeout = '30s'; \
set idle_in_transaction_session_timeout = '60s'; \
set tcp_keepalives_idle = 30; \
set tcp_keepalives_interval = 10; \
set tcp_keepalives_count = 3; \
select set_config('synchronous_commit', 'on', false)
 where current_setting('synchronous_commit') = 'off'; \
select pid, backend_start::text from pg_stat_activity where pid = pg_backend_pid()";

/// A runtime for one thread, which blocks on it.
pub(super) fn runtime() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Error::internal("start a runtime for PostgreSQL").because(error))
}

/// A server process. Its number alone would be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Backend {
    /// Its process.
    pub pid: i32,
    /// When it started, as the server prints it.
    pub started: String,
}

/// How long a call may take.
#[derive(Clone)]
pub(super) struct Patience {
    /// The limit.
    pub limit: Duration,
    /// Ends the call too.
    pub abort: Option<Abort>,
}

impl Patience {
    /// A limit that nothing cuts short.
    pub fn of(limit: Duration) -> Self {
        Patience { limit, abort: None }
    }

    /// Waits for `call`. A call that was given up leaves its connection unusable.
    pub async fn within<T, E>(&self, call: impl Future<Output = Result<T, E>>) -> Result<T, Fault>
    where
        Fault: From<E>,
    {
        let mut call = pin!(call);
        let deadline = Instant::now() + self.limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let tick = if self.abort.is_some() { left.min(TICK) } else { left };
            if let Ok(done) = timeout(tick, call.as_mut()).await {
                return done.map_err(Fault::from);
            }
            if self.abort.as_ref().is_some_and(Abort::is_raised) {
                return Err(Fault::Aborted);
            }
            if Instant::now() >= deadline {
                return Err(Fault::Late(self.limit));
            }
        }
    }
}

/// A connection.
pub(super) struct Session {
    /// To call the server by; always within [`Session::patience`].
    pub client: Client,
    /// How long calls may take.
    pub patience: Patience,
    /// The process at the other end.
    pub backend: Backend,
    connection: JoinHandle<()>,
    out_of_step: AtomicBool,
    /// What is sent with the next call.
    ahead: Mutex<Option<String>>,
}

impl Session {
    /// Connects, as `application`.
    pub async fn open(
        address: &Address,
        application: &str,
        patience: Patience,
    ) -> Result<Session, Fault> {
        let connector = address.tls.connector()?;
        let mut config = address.config.clone();
        config.application_name(application);
        // Per host the library limits the socket only: a stopped server accepts, and says nothing.
        let hosts = config.get_hosts().len().max(config.get_hostaddrs().len()).max(1);
        let each = config.get_connect_timeout().copied().unwrap_or(patience.limit);
        let whole = Patience {
            limit: each * u32::try_from(hosts).unwrap_or(1) + Duration::from_secs(5),
            abort: patience.abort.clone(),
        };
        let attempts = address.tls.attempts()?;
        let mut first = None;
        for mode in attempts {
            config.ssl_mode(*mode);
            let fault = match whole.within(config.connect(connector.clone())).await {
                Ok((client, connection)) => {
                    let connection = tokio::spawn(async move {
                        // Its end shows in the calls.
                        if let Err(error) = connection.await {
                            tracing::debug!(%error, "a connection to PostgreSQL ended");
                        }
                    });
                    let backend = settle(&client, &patience).await?;
                    let out_of_step = AtomicBool::new(false);
                    let ahead = Mutex::default();
                    return Ok(Session {
                        client,
                        patience,
                        backend,
                        connection,
                        out_of_step,
                        ahead,
                    });
                }
                Err(fault) => fault,
            };
            // The other way helps only where this way was refused, not where nobody answers.
            let refused = match &fault {
                Fault::Server(error) => {
                    // The library has no other sign of a handshake that failed.
                    error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
                        || error.to_string().contains("TLS")
                }
                _ => false,
            };
            first.get_or_insert(fault);
            if !refused {
                break;
            }
        }
        Err(first.unwrap_or(Fault::Late(whole.limit)))
    }

    /// Begins a COPY. Where the server refuses to begin it, the library sends one message too many, and
    /// from then on takes each answer for that of the statement after: the session must be left.
    pub async fn copy_in(&self, statement: &Statement) -> Result<CopyInSink<Bytes>, Fault> {
        let begun = self.within(self.client.copy_in::<_, Bytes>(statement)).await;
        self.out_of_step.fetch_or(begun.is_err(), Ordering::Relaxed);
        begun
    }

    /// Whether its answers can no longer be told apart; see [`Session::copy_in`].
    pub fn is_out_of_step(&self) -> bool {
        self.out_of_step.load(Ordering::Relaxed)
    }

    /// Waits for `call` within the session's limit.
    pub async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Fault> {
        if let Some(ahead) = self.pending() {
            self.patience.within(self.client.batch_execute(&ahead)).await?;
        }
        self.patience.within(call).await
    }

    /// Executes statements without parameters.
    pub async fn batch(&self, sql: &str) -> Result<(), Fault> {
        let ahead = self.pending().map(|ahead| format!("{ahead}; {sql}"));
        self.within(self.client.batch_execute(ahead.as_deref().unwrap_or(sql))).await
    }

    fn pending(&self) -> Option<String> {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Executes `sql` before the next call, in one message with it where that is a batch. A failure is that
    /// call's.
    pub fn ahead(&self, sql: &str) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        *ahead = Some(match ahead.take() {
            Some(before) => format!("{before}; {sql}"),
            None => sql.to_owned(),
        });
    }

    /// Ends `backend`, if it still runs, and waits until it is gone.
    pub async fn end(&self, backend: &Backend) -> Result<(), Fault> {
        let started = Instant::now();
        loop {
            let left = self
                .within(self.client.query(
                    "select pg_terminate_backend(pid) from pg_stat_activity
                      where pid = $1 and backend_start::text = $2",
                    &[&backend.pid, &backend.started],
                ))
                .await?;
            if left.is_empty() {
                return Ok(());
            }
            if started.elapsed() > self.patience.limit {
                return Err(Fault::Late(self.patience.limit));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Says good-bye, so that the server frees at once what the session holds.
    pub async fn close(self) {
        drop(self.client);
        // Without an answer the operating system closes the socket all the same.
        let _ = timeout(Duration::from_secs(1), self.connection).await;
    }
}

/// Applies the settings and asks who is at the other end.
async fn settle(client: &Client, patience: &Patience) -> Result<Backend, Fault> {
    let answers = patience.within(client.simple_query(SETTINGS)).await?;
    let row = answers
        .iter()
        .rev()
        .find_map(|answer| match answer {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        })
        .ok_or_else(|| Error::sink("the server does not show this session in pg_stat_activity"))?;
    let pid = row.get(0).and_then(|pid| pid.parse().ok());
    let started = row.get(1).map(ToOwned::to_owned);
    match (pid, started) {
        (Some(pid), Some(started)) => Ok(Backend { pid, started }),
        _ => Err(Error::sink("the server does not show this session in pg_stat_activity").into()),
    }
}

/// `tidegate <pipeline> <rest>`, cut so that the server need not (it keeps 63 bytes).
pub(super) fn application_name(pipeline: &str, rest: &str) -> String {
    let room = 63_usize.saturating_sub("tidegate  ".len() + rest.len());
    let mut end = pipeline.len().min(room);
    while !pipeline.is_char_boundary(end) {
        end -= 1;
    }
    format!("tidegate {} {rest}", &pipeline[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_worker_survives_a_long_name() {
        assert_eq!(application_name("orders", "g7 w0"), "tidegate orders g7 w0");
        let long = application_name(&"ä".repeat(60), "g7 w0");
        assert!(long.len() <= 63 && long.ends_with("ä g7 w0"), "{long}");
    }
}
