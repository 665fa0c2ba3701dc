//! Tables, and what PostgreSQL does with the same rows by itself.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use postgres::Client;

use super::common::{connect, database, unique};

/// The columns of the orders' table.
const COLUMNS: &str = "order_id bigint primary key, customer text not null, status text not null,
     amount bigint not null, currency text not null, created_at timestamptz not null";

/// A schema, and one for positions, that are dropped with it.
pub struct Place {
    pub schema: String,
    pub client: Client,
}

impl Place {
    pub fn new(name: &str) -> Self {
        let (mut client, schema) = (connect(), unique(&format!("bench_{name}")));
        client.batch_execute(&format!("create schema {schema}")).expect("it is new");
        Place { schema, client }
    }

    /// Makes an empty table `name` of orders, in the place of an older one; gives its full name.
    pub fn table(&mut self, name: &str) -> String {
        let table = format!("{}.{name}", self.schema);
        let sql = format!("drop table if exists {table}; create table {table} ({COLUMNS})");
        self.client.batch_execute(&sql).expect("the table is made");
        table
    }

    /// The name of a schema for positions in which there are none: the next run is its pipeline's first.
    pub fn books(&mut self) -> String {
        let books = format!("{}_books", self.schema);
        let sql = format!("set client_min_messages = error; drop schema if exists {books} cascade");
        self.client.batch_execute(&sql).expect("no positions");
        books
    }

    /// How many rows `table` has.
    pub fn count(&mut self, table: &str) -> u64 {
        let row = self.client.query_one(&format!("select count(*) from {table}"), &[]);
        row.expect("the table is there").get::<_, i64>(0) as u64
    }

    /// Makes the next run of a bench begin with as little left to write as this one's.
    pub fn settle(&mut self) {
        self.client.batch_execute("checkpoint").expect("a checkpoint");
    }

    /// Executes `sql`; how long it took, in seconds.
    pub fn timed(&mut self, sql: &str) -> f64 {
        let began = Instant::now();
        self.client.batch_execute(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        began.elapsed().as_secs_f64()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let sql = "set client_min_messages = error; drop schema if exists";
        let sql = format!("{sql} {0}, {0}_books cascade", self.schema);
        // A benchmark that failed says more than its clean-up would.
        let _ = self.client.batch_execute(&sql);
    }
}

/// Has psql copy between `what` and a file; how long that took, in seconds.
pub fn psql_copy(what: &str, direction: &str, file: &Path) -> f64 {
    let command = format!(r"\copy {what} {direction} '{}' with (format binary)", file.display());
    let began = Instant::now();
    let done = Command::new("psql").args(["-X", "-q", "-c", &command, &database()]).status();
    let wall = began.elapsed().as_secs_f64();
    assert!(done.expect("psql is there").success(), "{command}");
    wall
}
