//! The tables that Tidegate keeps for itself, in a schema of their own.

use std::fmt::Write;

use tokio_postgres::error::SqlState;

use super::address::Address;
use super::connect::Session;
use super::ident::quote;
use super::keys::schema_key;
use super::retry::Fault;
use crate::error::Error;

/// The version that this program creates and understands.
const VERSION: i32 = 3;

/// What brings the schema from the version before to each version.
const MIGRATIONS: [&str; VERSION as usize] = [
    "\
create table if not exists @.version (
    one boolean primary key default true check (one),
    version integer not null
);
create table if not exists @.pipelines (
    pipeline text primary key,
    generation bigint not null,
    updated_at timestamptz not null default now()
);
-- The row of a slice changes with every transaction: room on its page keeps those updates cheap.
create table if not exists @.slices (
    pipeline text not null,
    sink text not null,
    source text not null,
    partition integer not null,
    generation bigint not null,
    seq bigint not null,
    position bigint not null,
    consumed bigint not null default 0,
    filtered bigint not null default 0,
    written bigint not null default 0,
    rejected bigint not null default 0,
    collapsed bigint not null default 0,
    rows bigint not null default 0,
    updated_at timestamptz not null default now(),
    primary key (pipeline, sink, source, partition)
) with (fillfactor = 30);
",
    "\
-- Where a slice began: what was read lies between it and the position.
alter table @.slices add column if not exists first bigint;
create table if not exists @.rejects (
    id bigint generated always as identity primary key,
    pipeline text not null,
    sink text not null,
    topic text not null,
    partition integer not null,
    \"offset\" bigint not null,
    ordinal bigint not null,
    key bytea,
    payload bytea,
    headers jsonb,
    timestamp_ms bigint,
    stage text not null,
    \"column\" text,
    reason text not null,
    sqlstate text,
    at timestamptz not null default now()
);
create index if not exists rejects_place
    on @.rejects (pipeline, sink, topic, partition, \"offset\");
",
    "\
-- Of which of all topics of that name a position is, and in which cluster; null where nobody has looked yet.
alter table @.slices add column if not exists topic_id text;
alter table @.slices add column if not exists cluster_id text;
-- Under which leader the record right before the position was written, where that is known.
alter table @.slices add column if not exists leader_epoch integer;
",
];

/// The SQL that creates the bookkeeping schema `schema`, for those whose role may not. It may be run
/// again.
///
/// ```
/// let sql = tidegate::sink::postgres::schema_sql("tidegate");
/// assert!(sql.starts_with("create schema if not exists \"tidegate\";"));
/// ```
pub fn schema_sql(schema: &str) -> String {
    let mut sql = format!("create schema if not exists {};\n", quote(schema));
    sql.push_str(&upgrade_sql(schema, 0));
    sql
}

/// The statements from version `from` to [`VERSION`].
fn upgrade_sql(schema: &str, from: i32) -> String {
    let quoted = quote(schema);
    let done = usize::try_from(from).unwrap_or(0);
    let mut sql: String =
        MIGRATIONS.iter().skip(done).map(|step| step.replace('@', &quoted)).collect();
    let _ = write!(
        sql,
        "insert into {quoted}.version (version) values ({VERSION})\n    \
         on conflict (one) do update set version = excluded.version;\n"
    );
    sql
}

/// Creates or migrates the schema where needed. Concurrent first starts wait for each other.
pub(super) async fn ensure(
    session: &Session,
    address: &Address,
    schema: &str,
) -> Result<(), Fault> {
    if stored_version(session, schema).await? == Some(VERSION) {
        return Ok(());
    }
    session.batch("begin").await?;
    let lock = "select pg_advisory_xact_lock($1)";
    session.within(session.client.execute(lock, &[&schema_key(schema)])).await?;
    // Another may have created it while we waited.
    let stored = stored_version(session, schema).await?;
    let sql = match stored {
        Some(VERSION) => return session.batch("rollback").await,
        Some(newer) if newer > VERSION => {
            return Err(Error::config(format!(
                "schema `{schema}` in `{}` has version {newer}, this program knows {VERSION}: use a \
                 newer one",
                address.identity
            ))
            .into());
        }
        Some(older) => upgrade_sql(schema, older),
        // `create schema if not exists` needs the right to create one even where it exists.
        None if exists(session, schema).await? => upgrade_sql(schema, 0),
        None => schema_sql(schema),
    };
    let created = async {
        session.batch(&sql).await?;
        session.batch("commit").await
    };
    created.await.map_err(|fault| {
        if fault.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) {
            may_not(address, schema, "create", &fault).into()
        } else {
            fault
        }
    })
}

async fn exists(session: &Session, schema: &str) -> Result<bool, Fault> {
    let sql = "select from pg_catalog.pg_namespace where nspname = $1";
    Ok(!session.within(session.client.query(sql, &[&schema])).await?.is_empty())
}

async fn stored_version(session: &Session, schema: &str) -> Result<Option<i32>, Fault> {
    let sql = "select from pg_catalog.pg_class c
                 join pg_catalog.pg_namespace n on n.oid = c.relnamespace
                where n.nspname = $1 and c.relname = 'version'";
    if session.within(session.client.query(sql, &[&schema])).await?.is_empty() {
        return Ok(None);
    }
    let sql = format!("select version from {}.version", quote(schema));
    match session.within(session.client.query_opt(&sql, &[])).await {
        Ok(row) => Ok(row.map(|row| row.get(0))),
        Err(fault) if fault.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            Err(Error::config(format!(
                "schema `{schema}` exists, but the role may not use it: {fault}; grant it usage on \
                 the schema and select, insert, update, delete on its tables"
            ))
            .into())
        }
        Err(fault) => Err(fault),
    }
}

fn may_not(address: &Address, schema: &str, what: &str, fault: &Fault) -> Error {
    Error::config(format!(
        "the role may not {what} schema `{schema}` in `{}`: {fault}; have somebody who may run what \
         `tidegate schema` prints",
        address.identity
    ))
}
