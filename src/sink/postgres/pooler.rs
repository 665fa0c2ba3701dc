//! Recognises a pooler that hands a server's process to another client after each transaction: a session's
//! locks, settings and statements do not outlive one there.

use super::address::Address;
use super::connect::{Patience, Session};
use super::retry::Fault;
use crate::error::{Error, Kind};

/// Refuses a pooler between `session`, which is idle, and its server. Two connections that share a process,
/// or one that changes it, show one; such poolers reuse the process that was freed last.
pub(super) async fn refuse(session: &Session, address: &Address) -> Result<(), Fault> {
    let other = Session::open(address, "tidegate prepare", Patience::of(session.patience.limit));
    let other = other.await?;
    let shared = other.backend.pid == session.backend.pid;
    other.close().await;
    let moved = !shared && {
        let answer = session.client.simple_query("select pg_catalog.pg_backend_pid()");
        let answers = session.within(answer).await?;
        let own = session.backend.pid.to_string();
        let shows = |message: &tokio_postgres::SimpleQueryMessage| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0) == Some(own.as_str()),
            _ => false,
        };
        !answers.iter().any(shows)
    };
    if !shared && !moved {
        return Ok(());
    }
    Err(Error::new(
        Kind::Config,
        format!(
            "`{}` is a pooler in transaction or statement mode (pgbouncer, for one), where neither the \
             run's lock nor its settings last: connect to the server itself, or to a pool in session mode",
            address.identity
        ),
    )
    .into())
}
