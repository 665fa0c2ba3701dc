//! What a run left in the database.

use std::collections::BTreeMap;

use postgres::{Client, SimpleQueryMessage};

use super::expand::unhex;

/// Rows of the case's query, each value as text.
pub type Rows = Vec<Vec<Option<String>>>;

/// Rows, rejects and positions of one pipeline.
#[derive(Debug)]
pub struct Outcome {
    pub rows: Rows,
    pub rejects: Vec<Parked>,
    /// By partition.
    pub slices: BTreeMap<i32, Counters>,
}

/// A record that was refused, as the table of rejects has it.
#[derive(Clone, Debug)]
pub struct Parked {
    pub topic: String,
    pub partition: i32,
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub payload: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    pub timestamp_ms: Option<i64>,
    pub column: Option<String>,
    pub reason: String,
    pub sqlstate: Option<String>,
}

/// Where a partition stands, and what became of its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub position: i64,
    pub consumed: i64,
    pub filtered: i64,
    pub written: i64,
    pub rejected: i64,
    pub collapsed: i64,
}

impl Outcome {
    /// Reads all of `pipeline` from the bookkeeping tables in `books`, and the result of `query`.
    pub fn read(client: &mut Client, books: &str, pipeline: &str, query: &str) -> Self {
        Outcome {
            rows: rows(client, query),
            rejects: rejects(client, books, pipeline),
            slices: slices(client, books, pipeline),
        }
    }
}

fn rows(client: &mut Client, query: &str) -> Rows {
    client
        .batch_execute(
            "set timezone = 'UTC'; set datestyle = 'ISO, MDY'; set intervalstyle = 'postgres';
             set bytea_output = 'hex'; set extra_float_digits = 1",
        )
        .expect("the settings of psql");
    let messages = client.simple_query(query).expect("the case's query");
    let row = |message| match message {
        SimpleQueryMessage::Row(row) => {
            Some((0..row.len()).map(|column| row.get(column).map(str::to_owned)).collect())
        }
        _ => None,
    };
    messages.into_iter().filter_map(row).collect()
}

fn rejects(client: &mut Client, books: &str, pipeline: &str) -> Vec<Parked> {
    let query = format!(
        "select topic, partition, \"offset\", key, payload, headers::text, timestamp_ms, \"column\",
                reason, sqlstate
           from {books}.rejects where pipeline = $1 order by partition, \"offset\", id"
    );
    let rows = client.query(&query, &[&pipeline]).expect("the table of rejects");
    let parked = |row: &postgres::Row| Parked {
        topic: row.get(0),
        partition: row.get(1),
        offset: row.get(2),
        key: row.get(3),
        payload: row.get(4),
        headers: headers(row.get(5)),
        timestamp_ms: row.get(6),
        column: row.get(7),
        reason: row.get(8),
        sqlstate: row.get(9),
    };
    rows.iter().map(parked).collect()
}

/// The headers of a reject: an array of objects, of which each has the bytes as text, as digits, or none.
fn headers(stored: Option<&str>) -> Vec<(String, Option<Vec<u8>>)> {
    #[derive(serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Header {
        name: String,
        text: Option<String>,
        hex: Option<String>,
    }
    let headers: Vec<Header> = serde_json::from_str(stored.unwrap_or("[]")).expect("an array");
    let bytes = |header: Header| {
        let text = header.text.map(String::into_bytes);
        (header.name, text.or(header.hex.map(|digits| unhex(&digits))))
    };
    headers.into_iter().map(bytes).collect()
}

/// Where each partition of `pipeline` stands.
pub fn slices(client: &mut Client, books: &str, pipeline: &str) -> BTreeMap<i32, Counters> {
    let query = format!(
        "select partition, position, consumed, filtered, written, rejected, collapsed
           from {books}.slices where pipeline = $1"
    );
    let rows = client.query(&query, &[&pipeline]).expect("the table of slices");
    let counters = |row: &postgres::Row| {
        let counters = Counters {
            position: row.get(1),
            consumed: row.get(2),
            filtered: row.get(3),
            written: row.get(4),
            rejected: row.get(5),
            collapsed: row.get(6),
        };
        (row.get(0), counters)
    };
    rows.iter().map(counters).collect()
}
