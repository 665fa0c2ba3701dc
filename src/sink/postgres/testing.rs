//! What the tests of this module share: a server, schemas of their own, rows by hand.

use std::sync::atomic::{AtomicU32, Ordering};

use super::ident::quote;
use super::rows::{Entry, Rows};
use super::table::{Column, Table};
use crate::record::{At, Lane, Offset, Partition, SourceId};
use crate::sink::Chunk;

/// The server.
pub(super) fn url() -> String {
    std::env::var("DATABASE_URL")
        .expect("these tests need a PostgreSQL server in DATABASE_URL: run scripts/test")
}

/// A blocking client of the server.
pub(super) fn client() -> postgres::Client {
    postgres::Client::connect(&url(), postgres::NoTls).expect("the server answers")
}

/// A schema for tables and one for bookkeeping, dropped at the end.
pub(super) struct Place {
    /// The tables' schema.
    pub tables: String,
    /// The bookkeeping schema.
    pub books: String,
    /// A client.
    pub client: postgres::Client,
}

impl Place {
    /// New, empty schemas, whose names are the test's and this process's.
    pub fn new(test: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique =
            format!("{test}_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let mut place = Place {
            tables: format!("t_{unique}"),
            books: format!("tg_{unique}"),
            client: client(),
        };
        place.execute("create schema @");
        place
    }

    /// Executes SQL; `@` stands for the tables' schema, `#` for the books'.
    pub fn execute(&mut self, sql: &str) {
        let sql = self.resolve(sql);
        self.client.batch_execute(&sql).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The rows of a query, each as one line of text.
    pub fn lines(&mut self, sql: &str) -> Vec<String> {
        let sql = format!("select q::text from ({}) q", self.resolve(sql));
        let rows = self.client.query(&sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        rows.iter().map(|row| row.get(0)).collect()
    }

    fn resolve(&self, sql: &str) -> String {
        sql.replace('@', &quote(&self.tables)).replace('#', &quote(&self.books))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let sql =
            self.resolve("set client_min_messages = error; drop schema if exists @, # cascade");
        let _ = self.client.batch_execute(&sql);
    }
}

/// The table `(k bigint, v text, n integer)` of the tests.
pub(super) fn table(name: &str, key: &[&str]) -> Table {
    let column = |name: &str, oid, type_name: &str| Column {
        name: name.into(),
        oid,
        type_name: type_name.into(),
        typmod: -1,
        ..Column::default()
    };
    let columns =
        vec![column("k", 20, "bigint"), column("v", 25, "text"), column("n", 23, "integer")];
    let key = key
        .iter()
        .filter_map(|name| columns.iter().position(|column| column.name == *name))
        .map(|index| index as u16)
        .collect();
    let (schema, name) = ("public".into(), name.into());
    Table { schema, name, columns, key, judges_null: true, arbiter: true, ..Table::default() }
}

/// A row of that table.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub offset: i64,
    pub partition: i32,
    pub k: i64,
    /// The fields beside the key that the row has.
    pub v: Option<Option<String>>,
    pub n: Option<Option<i32>>,
    pub delete: bool,
}

impl Row {
    pub fn put(k: i64, v: Option<&str>, n: Option<i32>) -> Self {
        let v = Some(v.map(ToOwned::to_owned));
        Row { offset: 0, partition: 0, k, v, n: Some(n), delete: false }
    }

    pub fn delete(k: i64) -> Self {
        Row { delete: true, ..Row::put(k, None, None) }
    }

    pub fn without_n(self) -> Self {
        Row { n: None, ..self }
    }

    pub fn without_v(self) -> Self {
        Row { v: None, ..self }
    }

    pub fn offset(self, offset: i64) -> Self {
        Row { offset, ..self }
    }

    pub fn partition(self, partition: i32) -> Self {
        Row { partition, ..self }
    }
}

/// The one source's partition.
pub(super) fn lane(partition: i32) -> Lane {
    Lane { source: SourceId(0), partition: Partition(partition) }
}

/// The tiny encoder: rows by hand, keyed by `k`.
pub(super) fn rows(script: &[Row]) -> Rows {
    let mut rows = Rows::default();
    for row in script {
        let mut layout = vec![0_u16];
        let mut fields = Vec::new();
        push(&mut fields, Some(&row.k.to_be_bytes()));
        if let Some(v) = &row.v {
            layout.push(1);
            push(&mut fields, v.as_ref().map(String::as_bytes));
        }
        if let Some(n) = row.n {
            layout.push(2);
            push(&mut fields, n.map(i32::to_be_bytes).as_ref().map(<[u8; 4]>::as_slice));
        }
        let index = rows.layouts.iter().position(|known| *known == layout).unwrap_or_else(|| {
            rows.layouts.push(layout.clone());
            rows.layouts.len() - 1
        });
        if !row.delete {
            rows.bytes.extend_from_slice(&(layout.len() as u16).to_be_bytes());
            rows.bytes.extend_from_slice(&fields);
        }
        push(&mut rows.keys, Some(&row.k.to_be_bytes()));
        let Lane { source, partition } = lane(row.partition);
        rows.entries.push(Entry {
            at: At { source, partition, offset: Offset(row.offset), ordinal: 0 },
            row_end: rows.bytes.len(),
            key_end: rows.keys.len(),
            layout: index as u16,
            delete: row.delete,
        });
    }
    rows
}

fn push(bytes: &mut Vec<u8>, field: Option<&[u8]>) {
    let length = field.map_or(-1, |field| field.len() as i32);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(field.unwrap_or_default());
}

/// A chunk of rows.
pub(super) fn chunk(script: &[Row]) -> Chunk {
    let rows = rows(script);
    Chunk { rows: rows.entries.len(), bytes: rows.bytes.len(), payload: Box::new(rows) }
}
