//! A batch into its table: COPY, straight or by way of a staging table.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::SinkExt;
use sha2::{Digest, Sha256};
use tokio_postgres::Statement;

use super::batch::{Batch, Round, Tuples};
use super::connect::Session;
use super::retry::Fault;
use super::shape::LiveTable;
use super::sql;
use super::table::Table;
use crate::sink::SinkId;

/// The signature, no flags, no extension
/// (<https://www.postgresql.org/docs/current/sql-copy.html>, "Binary Format").
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// The field count that ends the data.
const TRAILER: &[u8] = b"\xff\xff";
/// How much goes to the client library at once: it copies each message into its buffer, which this
/// bounds, and a piece this long makes the cost of a message vanish.
const MESSAGE: usize = 256 * 1024;

/// How many dead rows a staging table may hold before it is truncated.
const DEAD: usize = 20_000;

/// What a session has prepared; gone with it.
#[derive(Default)]
pub(super) struct Loader {
    statements: HashMap<String, Statement>,
    /// Staging tables that exist.
    staged: HashSet<String>,
    /// Those made in the open transaction, in their order: a rollback takes them away.
    made: Vec<String>,
    /// Whether staging tables are emptied after use, since the transaction uses them again.
    pub emptying: bool,
    /// How many rows, dead ones too, each of them may hold.
    filled: HashMap<String, usize>,
    /// For how long data was sent, until it is taken.
    pub copied: Duration,
}

/// How rows reach a table with a key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// By a staging table and `on conflict`.
    Merged,
    /// By COPY, as if none of their keys were there: the server refuses the first one that is.
    Copied,
}

/// A place in the open transaction to which it may be rolled back.
pub(super) struct Mark(usize);

/// A trial of one column.
pub(super) struct Alone {
    staging: String,
    insert: String,
}

/// What a load met.
#[derive(Debug)]
pub(super) struct Refused {
    pub fault: Fault,
    /// The unit at fault, where the server named its line.
    pub unit: Option<usize>,
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Self {
        Refused { fault, unit: None }
    }
}

/// Tuples that were copied somewhere, for the fault that names a line.
fn line(fault: Fault, tuples: &Tuples) -> Refused {
    let unit = fault.copy_line().and_then(|line| tuples.units.get(line.checked_sub(1)?).copied());
    Refused { fault, unit: unit.map(|unit| unit as usize) }
}

impl Loader {
    /// Writes `batch` into the table, within the open transaction. `false` where the server put fewer
    /// rows than it was given, without a word: a trigger has dropped some.
    pub async fn load(
        &mut self,
        session: &Session,
        sink: SinkId,
        live: &LiveTable,
        batch: &Batch,
        way: Way,
    ) -> Result<bool, Refused> {
        let mut all = true;
        // A staging table serves several rounds.
        let reused = self.emptying || batch.0.len() > 1;
        for Round { deletes, puts } in &batch.0 {
            for deletes in deletes {
                let staging = self.delete(session, sink, live, deletes).await?;
                if reused {
                    self.clear(session, &staging).await?;
                }
            }
            for puts in puts {
                let (put, staging) = self.put(session, sink, live, puts, way).await?;
                all &= put;
                if let Some(staging) = staging.filter(|_| reused) {
                    self.clear(session, &staging).await?;
                }
            }
        }
        Ok(all)
    }

    /// Deletes the rows of these keys; gives the staging table that they went by.
    async fn delete(
        &mut self,
        session: &Session,
        sink: SinkId,
        live: &LiveTable,
        deletes: &Tuples,
    ) -> Result<String, Refused> {
        let (newest, prepared) = live.newest();
        let (table, old) = (&*prepared.table, live.at(deletes.version));
        let encoded = Encoded { table: &old.table, is_old: deletes.version != newest };
        let staging = self.stage(session, sink, "deletes", table, encoded, deletes).await?;
        self.execute(session, sql::delete(table, &old.table, &staging)).await?;
        Ok(staging)
    }

    /// Puts rows; whether all that were to be put were, and the staging table that they went by, if any.
    async fn put(
        &mut self,
        session: &Session,
        sink: SinkId,
        live: &LiveTable,
        puts: &Tuples,
        way: Way,
    ) -> Result<(bool, Option<String>), Refused> {
        let (newest, prepared) = live.newest();
        let (table, old) = (&*prepared.table, live.at(puts.version));
        let is_old = puts.version != newest;
        let count = puts.units.len() as u64;
        let copied = table.key.is_empty() || way == Way::Copied;
        if copied && !prepared.staged && !is_old && !old.table.has_texts(&puts.columns) {
            // What keeps the COPY from beginning, and whether there is still a unique index.
            let (probe, types) =
                (sql::probe(table, &puts.columns), sql::assert_types(table, &puts.columns));
            session.batch(&format!("{probe}; {types}")).await?;
            let put = self.copy(session, &sql::place(table), table, puts).await?;
            return Ok((put == count, None));
        }
        let encoded = Encoded { table: &old.table, is_old };
        let staging = self.stage(session, sink, "puts", table, encoded, puts).await?;
        if table.arbiter || table.key.is_empty() {
            let insert = sql::insert(table, &old.table, &puts.columns, &staging);
            let may_skip = sql::keeps_existing(table, &old.table, &puts.columns);
            let put = self.execute(session, insert).await?;
            return Ok((may_skip || put == count, Some(staging)));
        }
        for change in sql::update_else_insert(table, &old.table, &puts.columns, &staging) {
            self.execute(session, change).await?;
        }
        Ok((true, Some(staging)))
    }

    /// Which of `keys`, tuples of a number and the key columns, are equal by the server: per number, the
    /// rank of its key.
    pub async fn ranks(
        &mut self,
        session: &Session,
        sink: SinkId,
        live: &LiveTable,
        keys: &[Tuples],
    ) -> Result<Vec<(i64, i64)>, Refused> {
        let (newest, prepared) = live.newest();
        let table = &*prepared.table;
        let place = format!("pg_temp.\"tidegate_keys_{}_{newest}\"", sink.0);
        let types = sql::assert_types(table, &table.key);
        self.make(session, &place, sql::keys(table), Some(types)).await?;
        self.clear(session, &place).await?;
        for tuples in keys {
            let old = live.at(tuples.version);
            let raw = format!("pg_temp.\"tidegate_raw_{}_{}\"", sink.0, tuples.version);
            let is_old = tuples.version != newest;
            let texts = old.table.has_texts(&old.table.key);
            let columns = format!("n, {}", sql::columns(&old.table, &old.table.key));
            if is_old || texts {
                let types = (!is_old).then(|| sql::assert_types(table, &table.key));
                let query = sql::raw_keys(table, &old.table, is_old);
                self.make(session, &raw, query, types).await?;
                self.clear(session, &raw).await?;
                self.copy_to(session, &raw, &columns, tuples).await?;
                self.execute(session, sql::move_keys(&old.table, &raw, &place)).await?;
            } else {
                self.copy_to(session, &place, &columns, tuples).await?;
            }
        }
        let statement = self.statement(session, sql::ranks(table, &place)).await?;
        let rows = session.within(session.client.query(&statement, &[])).await?;
        Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
    }

    /// Makes what a trial of `column` of `tuples` alone needs.
    pub async fn prepare_alone(
        &mut self,
        session: &Session,
        sink: SinkId,
        live: &LiveTable,
        tuples: &Tuples,
        column: u16,
    ) -> Result<Alone, Fault> {
        let (newest, prepared) = live.newest();
        let old = live.at(tuples.version);
        let encoded = Encoded { table: &old.table, is_old: tuples.version != newest };
        let staging = self.staging(session, sink, "puts", &prepared.table, encoded, tuples).await?;
        let place = format!("pg_temp.\"tidegate_alone_{}_{newest}_{column}\"", sink.0);
        let column = &old.table.columns[usize::from(column)];
        self.make(session, &place, sql::column(&prepared.table, column), None).await?;
        Ok(Alone { insert: sql::insert_alone(column, &staging, &place), staging })
    }

    /// Assigns a column of `tuples` to one of its type, without the others and without constraints.
    pub async fn try_alone(
        &mut self,
        session: &Session,
        live: &LiveTable,
        tuples: &Tuples,
        alone: &Alone,
    ) -> Result<(), Refused> {
        self.copy(session, &alone.staging, &live.at(tuples.version).table, tuples).await?;
        self.execute(session, alone.insert.clone()).await?;
        Ok(self.clear(session, &alone.staging).await?)
    }

    /// Where the open transaction stands.
    pub fn mark(&self) -> Mark {
        Mark(self.made.len())
    }

    /// The transaction was rolled back to `mark`.
    pub fn rolled_back_to(&mut self, mark: &Mark) {
        for made in self.made.drain(mark.0..) {
            self.staged.remove(&made);
        }
    }

    /// The transaction was rolled back.
    pub fn rolled_back(&mut self) {
        self.rolled_back_to(&Mark(0));
    }

    /// The transaction was committed.
    pub fn committed(&mut self) {
        self.made.clear();
        self.filled.clear();
    }

    /// Copies `tuples` into a temporary table with the types in which they were encoded and no
    /// constraints; gives its quoted name. It is made once per connection and emptied by each commit.
    async fn stage(
        &mut self,
        session: &Session,
        sink: SinkId,
        purpose: &str,
        table: &Table,
        encoded: Encoded<'_>,
        tuples: &Tuples,
    ) -> Result<String, Refused> {
        let staging = self.staging(session, sink, purpose, table, encoded, tuples).await?;
        self.copy(session, &staging, encoded.table, tuples).await?;
        Ok(staging)
    }

    /// Makes that table; gives its quoted name.
    async fn staging(
        &mut self,
        session: &Session,
        sink: SinkId,
        purpose: &str,
        table: &Table,
        encoded: Encoded<'_>,
        tuples: &Tuples,
    ) -> Result<String, Fault> {
        let mut hash = Sha256::new();
        tuples.columns.iter().for_each(|column| hash.update(column.to_be_bytes()));
        let digest: String =
            hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        // What was encoded for an old shape is typed by its own words, not by the table's columns.
        let age = if encoded.is_old { "old" } else { "new" };
        let counted = if table.is_ordered() { "counted" } else { "" };
        let version = tuples.version;
        let staging =
            format!("pg_temp.\"tidegate_{purpose}_{}_{version}{age}{counted}_{digest}\"", sink.0);
        let query = sql::typed(table, encoded.table, encoded.is_old, &tuples.columns);
        let types = (!encoded.is_old).then(|| sql::assert_types(table, &tuples.columns));
        if self.make(session, &staging, query, types).await? && table.is_ordered() {
            session.batch(&sql::count_rows(&staging)).await?;
        }
        Ok(staging)
    }

    /// Makes the temporary table `name` with the columns of `query`, unless it is there; `types` makes sure
    /// that they are those that are meant.
    async fn make(
        &mut self,
        session: &Session,
        name: &str,
        query: String,
        types: Option<String>,
    ) -> Result<bool, Fault> {
        if self.staged.contains(name) {
            return Ok(false);
        }
        let sql =
            format!("create temporary table {name} on commit delete rows as {query} with no data");
        let sql = types.map_or(sql.clone(), |types| format!("{sql}; {types}"));
        session.batch(&sql).await?;
        self.staged.insert(name.to_owned());
        self.made.push(name.to_owned());
        Ok(true)
    }

    /// Empties a staging table. Deleted rows are still read over; a truncation costs files and
    /// invalidations, which add up over the savepoints of a transaction.
    async fn clear(&mut self, session: &Session, staging: &str) -> Result<(), Fault> {
        let filled = self.filled.get(staging).copied().unwrap_or_default();
        if filled <= DEAD {
            return session.batch(&format!("delete from {staging}")).await;
        }
        self.filled.remove(staging);
        session.batch(&format!("truncate {staging}")).await
    }

    /// Copies `tuples`; gives how many rows there are of them now, without those that triggers dropped.
    async fn copy(
        &mut self,
        session: &Session,
        place: &str,
        table: &Table,
        tuples: &Tuples,
    ) -> Result<u64, Refused> {
        self.copy_to(session, place, &sql::columns(table, &tuples.columns), tuples).await
    }

    async fn copy_to(
        &mut self,
        session: &Session,
        place: &str,
        columns: &str,
        tuples: &Tuples,
    ) -> Result<u64, Refused> {
        if self.staged.contains(place) {
            *self.filled.entry(place.to_owned()).or_default() += tuples.units.len();
        }
        let sql = format!("copy {place} ({columns}) from stdin with (format binary)");
        let statement = self.statement(session, sql).await?;
        let began = Instant::now();
        let sent = self.send(session, &statement, tuples).await;
        self.copied += began.elapsed();
        sent.map_err(|fault| line(fault, tuples))
    }

    async fn send(
        &self,
        session: &Session,
        statement: &Statement,
        tuples: &Tuples,
    ) -> Result<u64, Fault> {
        let sink = session.copy_in(statement).await?;
        let mut sink = pin!(sink);
        session.within(sink.feed(Bytes::from_static(HEADER))).await?;
        for piece in &tuples.pieces {
            let mut rest = piece.clone();
            while !rest.is_empty() {
                let message = rest.split_to(rest.len().min(MESSAGE));
                session.within(sink.feed(message)).await?;
            }
        }
        session.within(sink.feed(Bytes::from_static(TRAILER))).await?;
        session.within(sink.finish()).await
    }

    async fn execute(&mut self, session: &Session, sql: String) -> Result<u64, Fault> {
        let statement = self.statement(session, sql).await?;
        session.within(session.client.execute(&statement, &[])).await
    }

    /// `sql`, prepared once.
    pub async fn statement(&mut self, session: &Session, sql: String) -> Result<Statement, Fault> {
        if let Some(statement) = self.statements.get(&sql) {
            return Ok(statement.clone());
        }
        let statement = session.within(session.client.prepare(&sql)).await?;
        self.statements.insert(sql, statement.clone());
        Ok(statement)
    }
}

/// The shape for which tuples were encoded.
#[derive(Clone, Copy)]
struct Encoded<'a> {
    table: &'a Table,
    is_old: bool,
}
