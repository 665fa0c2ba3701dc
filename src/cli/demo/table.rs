//! The demo's table, in a schema of its own, and the comparison with the model.

use postgres::Client;

use super::orders::{Model, Order};
use crate::error::{Error, Result};
use crate::sink::postgres::{connect, quote};

/// How the schema says that it is the demo's, which may drop it.
const MARK: &str = "made by `tidegate demo`, which drops and makes it anew";

/// The table.
pub(super) struct Target {
    client: Client,
    /// Its name, with the schema, as SQL has it.
    table: String,
}

/// A row as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub order_id: i64,
    pub customer: String,
    pub status: String,
    pub amount: i64,
    pub currency: String,
    pub created_at: String,
}

impl Row {
    fn is(&self, order: &Order) -> bool {
        self.order_id == order.order_id
            && self.customer == order.customer
            && self.status == order.status
            && self.amount == order.amount
            && self.currency == order.currency
            && self.created_at == order.created_at
    }
}

impl Target {
    /// An empty table in the schema `schema`, in the place of an earlier demo's.
    pub(super) fn create(schema: &str) -> Result<Self> {
        let url = std::env::var("DATABASE_URL")
            .map_err(|_| Error::config("no database is given; set `DATABASE_URL`"))?;
        let mut client = connect(&url, "tidegate demo")?;
        let mark =
            "select obj_description(oid, 'pg_namespace') from pg_namespace where nspname = $1";
        let found = client.query_opt(mark, &[&schema]).map_err(|error| failed(&error))?;
        if let Some(row) = found
            && row.get::<_, Option<String>>(0).as_deref() != Some(MARK)
        {
            return Err(Error::config(format!(
                "schema `{schema}` exists and is not the demo's; give another one with --schema"
            )));
        }
        let (quoted, table) = (quote(schema), format!("{}.valid_orders", quote(schema)));
        client
            .batch_execute(&format!(
                "set client_min_messages = warning;
                 drop schema if exists {quoted} cascade;
                 create schema {quoted};
                 comment on schema {quoted} is '{MARK}';
                 create table {table} (
                     order_id bigint primary key,
                     customer text not null,
                     status text not null,
                     amount bigint not null,
                     currency text not null,
                     created_at timestamptz not null
                 )"
            ))
            .map_err(|error| failed(&error))?;
        let plain =
            schema.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let table = if plain { format!("{schema}.valid_orders") } else { table };
        Ok(Target { client, table })
    }

    /// Its name, with the schema.
    pub(super) fn table(&self) -> String {
        self.table.clone()
    }

    /// The first rows by key.
    pub(super) fn first(&mut self, rows: i64) -> Result<Vec<Row>> {
        self.rows(&format!("limit {rows}"))
    }

    /// Compares all rows with the model's.
    pub(super) fn compare(&mut self, model: &Model) -> Result<()> {
        let rows = self.rows("")?;
        let wrong = rows.iter().zip(model.table.values()).find(|(row, order)| !row.is(order));
        if let Some((row, order)) = wrong {
            return Err(Error::internal(format!(
                "the table is wrong: it holds {row:?} where the model has {order:?}"
            )));
        }
        if rows.len() != model.table.len() {
            return Err(Error::internal(format!(
                "the table is wrong: it holds {} rows, the model {}",
                rows.len(),
                model.table.len()
            )));
        }
        Ok(())
    }

    fn rows(&mut self, limit: &str) -> Result<Vec<Row>> {
        let sql = format!(
            r#"select order_id, customer, status, amount, currency,
                      to_char(created_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
                 from {} order by order_id {limit}"#,
            self.table
        );
        let rows = self.client.query(&sql, &[]).map_err(|error| failed(&error))?;
        let row = |row: &postgres::Row| Row {
            order_id: row.get(0),
            customer: row.get(1),
            status: row.get(2),
            amount: row.get(3),
            currency: row.get(4),
            created_at: row.get(5),
        };
        Ok(rows.iter().map(row).collect())
    }
}

/// The error of a statement, by what the server said of it.
fn failed(error: &postgres::Error) -> Error {
    let said = error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().to_owned());
    Error::sink(format!("the demo's table: {said}"))
}
