//! What `cases.json` holds. A word in it that is not known here is an error, never passed over.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// All cases of the file.
pub fn load() -> Vec<Case> {
    serde_json::from_str(include_str!("../cases.json")).expect("cases.json is of its form")
}

/// A table, messages, and what they must make of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub id: String,
    #[serde(rename = "group")]
    _group: IgnoredAny,
    #[serde(rename = "kind")]
    _kind: IgnoredAny,
    pub from: String,
    pub title: String,
    pub notes: String,
    pub ddl: String,
    /// The exact name of the schema that the SQL makes.
    pub schema: String,
    /// The exact name of the table in it.
    pub table: String,
    pub mode: Mode,
    /// A name for the topic, where it matters.
    pub topic: Option<String>,
    /// Of the program's database session.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    pub columns: Vec<Column>,
    pub delete_when: Option<DeleteWhen>,
    /// How the key of a null value is written. The program is not told: it takes either form.
    #[serde(rename = "tombstone")]
    _tombstone: Option<IgnoredAny>,
    pub messages: Vec<Item>,
    #[serde(default)]
    pub transactions: BTreeMap<String, Fate>,
    #[serde(default)]
    pub steps: Vec<Step>,
    pub expected: Option<Expected>,
    pub expected_any: Option<Vec<Expected>>,
}

/// How records become rows.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Append,
    /// Upsert by these columns.
    Key(Vec<String>),
}

/// What goes into a column.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Column {
    pub name: String,
    #[serde(rename = "pg_type")]
    _pg_type: IgnoredAny,
    pub json_field: Option<String>,
    #[serde(rename = "absent_ok")]
    _absent_ok: IgnoredAny,
    /// `key`, `value`, `timestamp` or `header:<name>` where it is no field.
    pub source: Option<String>,
    pub unit: Option<String>,
    pub zone: Option<String>,
}

/// Such a record deletes the row of its key.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeleteWhen {
    pub json_field: String,
    pub equals: String,
}

/// What a producer does with a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fate {
    Commit,
    Abort,
}

/// A message, or many that are alike.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub enum Item {
    Repeat(Repeat),
    One(Message),
}

/// Copies of messages, with the number of the copy filled in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    pub repeat: u64,
    pub messages: Vec<Item>,
}

/// A message as it is produced.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    pub key: Option<Part>,
    pub value: Option<Part>,
    pub headers: Vec<(String, Option<Part>)>,
    pub partition: i32,
    pub timestamp_ms: Option<i64>,
    /// The transaction that it belongs to.
    pub txn: Option<String>,
}

/// Bytes, as text or as digits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    Utf8(String),
    Hex(String),
}

/// SQL from another session, once the message of index `after` is durable.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    pub after: usize,
    pub sql: String,
}

/// An outcome that is right.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// What the program must document for this outcome to be right.
    #[serde(default)]
    pub policy: BTreeMap<String, String>,
    pub query: String,
    /// Its result, each value as text.
    pub rows: Vec<Vec<Option<String>>>,
    pub rejects: Vec<Rejected>,
}

/// A record that is refused.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rejected {
    /// Of the message, counted after expansion.
    pub index: usize,
    /// The column at fault, where only one can be.
    pub column: Option<String>,
    /// What the server says to the one row, where it can be asked.
    pub sqlstate: Option<String>,
}
