//! A batch into its table: COPY, straight or by way of a staging table.

use std::collections::{HashMap, HashSet};
use std::pin::pin;

use bytes::Bytes;
use futures_util::SinkExt;
use sha2::{Digest, Sha256};
use tokio_postgres::Statement;

use super::batch::{Batch, Tuples};
use super::catalog::Prepared;
use super::connect::Session;
use super::ident::{quote, quote_all};
use super::retry::Fault;
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

/// What a session has prepared; gone with it.
#[derive(Default)]
pub(super) struct Loader {
    statements: HashMap<String, Statement>,
    staged: HashSet<String>,
}

impl Loader {
    /// Writes `batch` into the table, within the open transaction.
    pub async fn load(
        &mut self,
        session: &Session,
        sink: SinkId,
        prepared: &Prepared,
        batch: &Batch,
    ) -> Result<(), Fault> {
        let table = &*prepared.table;
        if let Some(deletes) = &batch.deletes {
            let staging = self.stage(session, sink, "deletes", table, deletes).await?;
            self.execute(session, delete_sql(table, &staging)).await?;
        }
        for puts in &batch.puts {
            if table.key.is_empty() && !prepared.staged {
                let place = format!("{}.{}", quote(&table.schema), quote(&table.name));
                self.copy(session, &place, table, puts).await?;
            } else {
                let staging = self.stage(session, sink, "puts", table, puts).await?;
                self.execute(session, insert_sql(table, &puts.columns, &staging)).await?;
            }
        }
        Ok(())
    }

    /// Copies `tuples` into a temporary table with the types of their columns and no constraints;
    /// gives its quoted name. It is made once per connection and emptied by each commit.
    async fn stage(
        &mut self,
        session: &Session,
        sink: SinkId,
        purpose: &str,
        table: &Table,
        tuples: &Tuples,
    ) -> Result<String, Fault> {
        let mut hash = Sha256::new();
        tuples.columns.iter().for_each(|column| hash.update(column.to_be_bytes()));
        let digest: String =
            hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let staging = format!("pg_temp.\"tidegate_{purpose}_{}_{digest}\"", sink.0);
        if self.staged.insert(staging.clone()) {
            let sql = format!(
                "create temporary table {staging} on commit delete rows as \
                 select {} from {}.{} with no data",
                columns(table, &tuples.columns),
                quote(&table.schema),
                quote(&table.name),
            );
            session.batch(&sql).await?;
        }
        self.copy(session, &staging, table, tuples).await?;
        Ok(staging)
    }

    async fn copy(
        &mut self,
        session: &Session,
        place: &str,
        table: &Table,
        tuples: &Tuples,
    ) -> Result<(), Fault> {
        let sql = format!(
            "copy {place} ({}) from stdin with (format binary)",
            columns(table, &tuples.columns)
        );
        let statement = self.statement(session, sql).await?;
        let sink = session.within(session.client.copy_in::<_, Bytes>(&statement)).await?;
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
        session.within(sink.finish()).await?;
        Ok(())
    }

    async fn execute(&mut self, session: &Session, sql: String) -> Result<(), Fault> {
        let statement = self.statement(session, sql).await?;
        session.within(session.client.execute(&statement, &[])).await?;
        Ok(())
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

/// The names of `indexes`, quoted.
fn columns(table: &Table, indexes: &[u16]) -> String {
    quote_all(names(table, indexes))
}

fn names<'a>(table: &'a Table, indexes: &'a [u16]) -> impl Iterator<Item = &'a str> {
    indexes.iter().map(|index| table.columns[usize::from(*index)].name.as_str())
}

fn delete_sql(table: &Table, staging: &str) -> String {
    let same: Vec<String> =
        names(table, &table.key).map(|name| format!("t.{0} = gone.{0}", quote(name))).collect();
    format!(
        "delete from {}.{} as t using {staging} as gone where {}",
        quote(&table.schema),
        quote(&table.name),
        same.join(" and ")
    )
}

/// COPY overrides `generated always as identity` by itself; INSERT must be told.
fn insert_sql(table: &Table, layout: &[u16], staging: &str) -> String {
    let columns = columns(table, layout);
    let mut sql = format!(
        "insert into {}.{} ({columns}) overriding system value select {columns} from {staging}",
        quote(&table.schema),
        quote(&table.name),
    );
    if table.key.is_empty() {
        return sql;
    }
    sql.push_str(&format!(" on conflict ({})", quote_all(names(table, &table.key))));
    let others: Vec<u16> =
        layout.iter().filter(|column| !table.key.contains(column)).copied().collect();
    if others.is_empty() {
        sql.push_str(" do nothing");
    } else {
        let set: Vec<String> =
            names(table, &others).map(|name| format!("{0} = excluded.{0}", quote(name))).collect();
        sql.push_str(&format!(" do update set {}", set.join(", ")));
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::super::testing::table;
    use super::*;

    #[test]
    fn a_table_that_is_all_key_has_nothing_to_update() {
        let table = table("a\"b", &["k", "v"]);
        assert_eq!(
            insert_sql(&table, &[1, 0], "s"),
            "insert into \"public\".\"a\"\"b\" (\"v\", \"k\") overriding system value \
             select \"v\", \"k\" from s on conflict (\"k\", \"v\") do nothing"
        );
        assert!(
            insert_sql(&table, &[0, 1, 2], "s").ends_with("do update set \"n\" = excluded.\"n\"")
        );
        assert_eq!(
            delete_sql(&table, "s"),
            "delete from \"public\".\"a\"\"b\" as t using s as gone \
             where t.\"k\" = gone.\"k\" and t.\"v\" = gone.\"v\""
        );
    }
}
