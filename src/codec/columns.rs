//! Records to rows by a mapping that is given at run time: which column takes what of the record.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::document::{Document, string};
use super::exact::Millis;
use super::fields::{Cell, Fields};
use super::{Codec, Decoded, object};
use crate::record::{Record, Refusal};

/// What a column takes of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Take {
    /// The field of this name, of the JSON object that the value is.
    Field(String),
    /// The key.
    Key,
    /// The whole value.
    Value,
    /// The record's timestamp.
    Timestamp,
    /// The last header of this name.
    Header(String),
    /// The topic's name.
    Topic,
    /// The partition's number.
    Partition,
    /// The record's own offset.
    Offset,
}

/// `field:NAME`, `header:NAME`, `key`, `value`, `timestamp`, `topic`, `partition` or `offset`; anything
/// else is the name of a field.
impl FromStr for Take {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "key" => Take::Key,
            "value" => Take::Value,
            "timestamp" => Take::Timestamp,
            "topic" => Take::Topic,
            "partition" => Take::Partition,
            "offset" => Take::Offset,
            "" => return Err("expected the name of a JSON field".to_owned()),
            _ => match (text.strip_prefix("field:"), text.strip_prefix("header:")) {
                (Some(name), _) => Take::Field(name.to_owned()),
                (_, Some(name)) => Take::Header(name.to_owned()),
                _ => Take::Field(text.to_owned()),
            },
        })
    }
}

impl fmt::Display for Take {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Take::Field(name) => write!(f, "field:{name}"),
            Take::Key => f.write_str("key"),
            Take::Value => f.write_str("value"),
            Take::Timestamp => f.write_str("timestamp"),
            Take::Header(name) => write!(f, "header:{name}"),
            Take::Topic => f.write_str("topic"),
            Take::Partition => f.write_str("partition"),
            Take::Offset => f.write_str("offset"),
        }
    }
}

/// What becomes of a record without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tombstones {
    /// It deletes the row of its key: the text of the one key column, or a JSON object that holds the
    /// fields of the key columns.
    Key,
    /// It is left out: [`Fields::is_tombstone`] tells.
    Filter,
    /// It is refused.
    Reject,
}

/// Makes rows of records, each column from its part of the record. JSON is parsed only where a column
/// takes a field of it. A field or header that is absent leaves its column out, one that is null is NULL.
///
/// ```
/// use tidegate::codec::{Columns, Take, Tombstones};
/// let codec = Columns::new([("id", Take::Field("order_id".into())), ("sent", Take::Timestamp)])
///     .key(["id"])
///     .delete_when("status", "removed")
///     .tombstones(Tombstones::Key);
/// assert_eq!(codec.marker(), (Columns::DELETE.into(), "true".into()));
/// ```
///
/// A row that is to delete has its key's columns and a field more, which [`marker`](Self::marker) names
/// for the sink.
#[derive(Clone, Debug)]
pub struct Columns {
    plan: Arc<Plan>,
}

#[derive(Clone, Debug)]
struct Plan {
    /// What each column takes; without any, each field goes to the column of its name.
    columns: Option<Vec<Column>>,
    /// The names of all fields that are asked for, and then whether a field is extra.
    fields: Vec<String>,
    /// The columns of the key.
    key: Vec<Column>,
    /// The field and the text that say delete.
    delete_when: Option<(String, String)>,
    tombstones: Tombstones,
    refuses_extra: bool,
}

#[derive(Clone, Debug)]
struct Column {
    name: String,
    take: Take,
    /// The field's number in `Plan::fields`.
    field: usize,
}

impl Columns {
    /// The field that says that a row deletes, unless a field of the record says it itself.
    pub const DELETE: &str = "$tidegate::delete";

    /// Rows with these columns; without any, each field goes to the column of its name.
    pub fn new<N: Into<String>>(columns: impl IntoIterator<Item = (N, Take)>) -> Self {
        let columns: Vec<_> = columns
            .into_iter()
            .map(|(name, take)| Column { name: name.into(), take, field: 0 })
            .collect();
        let plan = Plan {
            columns: (!columns.is_empty()).then_some(columns),
            fields: Vec::new(),
            key: Vec::new(),
            delete_when: None,
            tombstones: Tombstones::Filter,
            refuses_extra: false,
        };
        Columns { plan: Arc::new(plan.numbered()) }
    }

    fn with(mut self, change: impl FnOnce(&mut Plan)) -> Self {
        let mut plan = (*self.plan).clone();
        change(&mut plan);
        self.plan = Arc::new(plan.numbered());
        self
    }

    /// The columns by which rows are deleted. One that takes nothing of the record is the field of its
    /// name.
    #[must_use]
    pub fn key<N: Into<String>>(self, columns: impl IntoIterator<Item = N>) -> Self {
        self.with(|plan| {
            let column = |name: N| {
                let name = name.into();
                let known = plan.columns.iter().flatten().find(|column| column.name == name);
                known.cloned().unwrap_or_else(|| Column {
                    take: Take::Field(name.clone()),
                    name,
                    field: 0,
                })
            };
            plan.key = columns.into_iter().map(column).collect();
        })
    }

    /// A record whose `field` holds this text (of a string, number or boolean) deletes its key's row.
    #[must_use]
    pub fn delete_when(self, field: impl Into<String>, text: impl Into<String>) -> Self {
        self.with(|plan| plan.delete_when = Some((field.into(), text.into())))
    }

    /// What becomes of records without a value; unless told they are left out.
    #[must_use]
    pub fn tombstones(self, tombstones: Tombstones) -> Self {
        self.with(|plan| plan.tombstones = tombstones)
    }

    /// Refuses records with fields that no column takes. Where each field goes to the column of its
    /// name, this is up to the sink.
    #[must_use]
    pub fn refuse_extra(self) -> Self {
        self.with(|plan| plan.refuses_extra = true)
    }

    /// The names of all columns, where they are given.
    pub fn names(&self) -> Option<Vec<String>> {
        let columns = self.plan.columns.as_ref()?;
        Some(columns.iter().map(|column| column.name.clone()).collect())
    }

    /// The field that rows that delete have, and the text in it.
    pub fn marker(&self) -> (String, String) {
        match &self.plan.delete_when {
            // The field goes to the sink anyway, which may have no column for it.
            Some(marker) if self.plan.columns.is_none() => marker.clone(),
            _ => (Self::DELETE.to_owned(), "true".to_owned()),
        }
    }
}

impl Plan {
    /// Gives each field that is asked for its number.
    fn numbered(mut self) -> Self {
        let mut fields: Vec<String> = Vec::new();
        let mut number = |name: &String| {
            fields.iter().position(|known| known == name).unwrap_or_else(|| {
                fields.push(name.clone());
                fields.len() - 1
            })
        };
        for column in self.columns.iter_mut().flatten().chain(&mut self.key) {
            if let Take::Field(name) = &column.take {
                column.field = number(name);
            }
        }
        if let Some((field, _)) = &self.delete_when {
            number(field);
        }
        self.fields = fields;
        self
    }

    /// A row of the columns that are given.
    fn mapped(
        &self,
        columns: &[Column],
        record: &Record<'_>,
        value: &[u8],
    ) -> Result<Fields, Refusal> {
        let found = self.find(value)?;
        if self.deletes(|field| found.get(field)) {
            return self.delete(record, &found);
        }
        let mut row = Fields::with_capacity(columns.len(), value.len());
        for column in columns {
            column.put(&mut row, record, found.number(column.field));
        }
        Ok(row)
    }

    /// The fields that are asked for.
    fn find<'a>(&'a self, value: &'a [u8]) -> Result<Found<'a>, Refusal> {
        let mut found = Found { fields: &self.fields, values: vec![None; self.fields.len()] };
        if self.fields.is_empty() {
            return Ok(found);
        }
        let (mut next, mut extra) = (0, None);
        object::fields(value, |name, json| match found.position(&name, next) {
            Some(number) => {
                found.values[number] = Some(json);
                next = number + 1;
            }
            None if self.refuses_extra && extra.is_none() => extra = Some(name),
            None => {}
        })?;
        match extra {
            Some(name) => Err(refuse_extra(&name)),
            None => Ok(found),
        }
    }

    /// A row that has each field.
    fn all(&self, record: &Record<'_>, value: &[u8]) -> Result<Fields, Refusal> {
        let document = Document::parse(value)?;
        if self.deletes(|field| document.get(field).map(|json| json.0)) {
            let values = self.fields.iter().map(|name| document.get(name).map(|json| json.0));
            return self.delete(record, &Found { fields: &self.fields, values: values.collect() });
        }
        let mut row = Fields::with_capacity(document.len(), value.len());
        document.for_each_last(|name, json| row.push(name, Cell::Json(json)));
        Ok(row)
    }

    /// Whether the field that may say so says delete.
    fn deletes<'a>(&self, get: impl FnOnce(&str) -> Option<&'a str>) -> bool {
        let Some((field, wanted)) = &self.delete_when else { return false };
        let Some(json) = get(field) else { return false };
        match json.as_bytes().first() {
            Some(b'"') => string(json).is_some_and(|text| text == wanted.as_str()),
            Some(b'{' | b'[' | b'n') => false,
            _ => json == wanted,
        }
    }

    /// The row that deletes the row of a record's key.
    fn delete(&self, record: &Record<'_>, found: &Found<'_>) -> Result<Fields, Refusal> {
        let mut row = Fields::with_capacity(self.key.len() + 1, 64);
        for column in &self.key {
            column.put(&mut row, record, found.number(column.field));
        }
        self.mark(&mut row);
        Ok(row)
    }

    fn mark(&self, row: &mut Fields) {
        match &self.delete_when {
            Some((field, text)) if self.columns.is_none() => {
                // A key's own column may be what says it.
                if row.get(field).is_none() {
                    row.push(field, Cell::bytes(text.as_bytes()));
                }
            }
            _ => row.push(Columns::DELETE, Cell::json("true")),
        }
    }

    /// The row that deletes what the key of a record without a value names.
    fn tombstone(&self, record: &Record<'_>) -> Result<Fields, Refusal> {
        let mut row = Fields::with_capacity(self.key.len() + 1, 64);
        let fields = self.key.iter().filter(|column| matches!(column.take, Take::Field(_))).count();
        let mut found = Found { fields: &self.fields, values: vec![None; self.fields.len()] };
        let asks = self.key.iter().any(|column| matches!(column.take, Take::Field(_) | Take::Key));
        let key = match record.key {
            Some(key) => key,
            None if asks => return Err(Refusal::new("decode", "a tombstone needs a key")),
            None => &[],
        };
        // A key that is no object is a text, and so is one that is an object without the field.
        let object = fields > 0
            && key.trim_ascii_start().starts_with(b"{")
            && object::fields(key, |name, json| {
                if let Some(number) = found.position(&name, 0) {
                    found.values[number] = Some(json);
                }
            })
            .is_ok();
        for column in &self.key {
            match (&column.take, found.number(column.field)) {
                (Take::Field(_), Some(json)) if object => row.push(&column.name, Cell::json(json)),
                (Take::Field(_), _) if fields == 1 => row.push(&column.name, Cell::bytes(key)),
                (Take::Field(name), _) => return Err(no_key(object, name)),
                _ => column.put(&mut row, record, None),
            }
        }
        self.mark(&mut row);
        Ok(row)
    }
}

impl Column {
    /// Puts what it takes of `record` into `row`; `json` is its field.
    fn put(&self, row: &mut Fields, record: &Record<'_>, json: Option<&str>) {
        let bytes = |bytes: Option<_>| bytes.map_or(Cell::Null, Cell::bytes);
        let mut number = |number: i64| row.push(&self.name, Cell::json(&number.to_string()));
        let cell = match &self.take {
            Take::Field(_) => json.map(Cell::json),
            Take::Key => Some(bytes(record.key)),
            Take::Value => Some(bytes(record.value)),
            Take::Timestamp => record.timestamp.map(|millis| Cell::Time(Millis(millis))),
            Take::Header(name) => record.header(name).map(bytes),
            Take::Topic => Some(Cell::bytes(record.topic.as_bytes())),
            Take::Partition => return number(record.partition.0.into()),
            Take::Offset => return number(record.offset.0),
        };
        if let Some(cell) = cell {
            row.push(&self.name, cell);
        }
    }
}

/// The values of the fields that are asked for.
struct Found<'a> {
    fields: &'a [String],
    values: Vec<Option<&'a str>>,
}

impl<'a> Found<'a> {
    /// The number of the field `name`, which most likely is `next`.
    fn position(&self, name: &str, next: usize) -> Option<usize> {
        if self.fields.get(next).is_some_and(|known| known == name) {
            return Some(next);
        }
        self.fields.iter().position(|known| known == name)
    }

    fn number(&self, number: usize) -> Option<&'a str> {
        self.values.get(number).copied().flatten()
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.number(self.position(name, 0)?)
    }
}

#[cold]
fn refuse_extra(name: &str) -> Refusal {
    let reason = format!("no column takes the field `{name}`");
    Refusal::new("decode", reason).column(name).sqlstate("42703")
}

#[cold]
fn no_key(object: bool, field: &str) -> Refusal {
    let reason = if object {
        format!("the key of a tombstone has no field `{field}`")
    } else {
        "the key of a tombstone is not a JSON object with the fields of the key's columns"
            .to_owned()
    };
    Refusal::new("decode", reason).sqlstate("22P02")
}

impl Codec for Columns {
    type Value = Fields;

    fn decode(&mut self, record: &Record<'_>) -> Result<Decoded<Fields>, Refusal> {
        let plan = &*self.plan;
        let row = match (record.value, &plan.columns) {
            (Some(value), Some(columns)) => plan.mapped(columns, record, value)?,
            (Some(value), None) => plan.all(record, value)?,
            (None, _) => match plan.tombstones {
                Tombstones::Key => plan.tombstone(record)?,
                Tombstones::Filter => Fields::tombstone(),
                Tombstones::Reject => {
                    return Err(Refusal::new("decode", "the record has no value"));
                }
            },
        };
        Ok(Decoded::Value(row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Offset, Partition};

    type Sent<'a> = (Option<&'a str>, Option<&'a str>);

    fn decode(codec: &Columns, (key, value): Sent<'_>) -> Result<Fields, Refusal> {
        let headers: Vec<(String, Option<Vec<u8>>)> = vec![
            ("via".into(), Some(b"\xff".to_vec())),
            ("none".into(), None),
            ("via".into(), Some(b"web".to_vec())),
        ];
        let record = Record {
            topic: "orders",
            partition: Partition(3),
            offset: Offset(41),
            timestamp: Some(1_700_000_000_123),
            key: key.map(str::as_bytes),
            value: value.map(str::as_bytes),
            headers: &headers,
        };
        match codec.clone().decode(&record)? {
            Decoded::Value(row) => Ok(row),
            Decoded::Tombstone => panic!("rows say themselves that they delete"),
        }
    }

    /// The row in one line, bytes in angle brackets.
    fn row(codec: &Columns, sent: Sent<'_>) -> String {
        let row = decode(codec, sent).expect("a row");
        let cells = row.iter().map(|(name, cell)| match cell {
            Cell::Null => format!("{name}=-"),
            Cell::Json(json) => format!("{name}={}", json.0),
            Cell::Bytes(bytes) => format!("{name}=<{}>", String::from_utf8_lossy(bytes.0)),
            Cell::Time(millis) => format!("{name}@{}", millis.0),
        });
        cells.collect::<Vec<_>>().join(" ")
    }

    fn columns(list: &[(&str, &str)]) -> Columns {
        Columns::new(list.iter().map(|(name, take)| (*name, take.parse().expect("a source"))))
    }

    #[test]
    fn each_column_takes_its_part() {
        let codec = columns(&[
            ("a", "b"),
            ("k", "key"),
            ("v", "value"),
            ("t", "timestamp"),
            ("via", "header:via"),
            ("none", "header:none"),
            ("absent", "header:absent"),
            ("topic", "topic"),
            ("p", "partition"),
            ("o", "offset"),
            ("f", "field:key"),
            ("again", "b"),
            ("n", "n"),
        ]);
        let value = r#"{"n":null,"key":[1, 2],"x":0,"b":1.50,"b":1.5}"#;
        assert_eq!(
            row(&codec, (None, Some(value))),
            format!(
                "a=1.5 k=- v=<{value}> t@1700000000123 via=<web> none=- topic=<orders> p=3 o=41 f=[1, 2] \
                 again=1.5 n=null"
            )
        );
        let refusal = decode(&codec.clone().refuse_extra(), (None, Some(value))).expect_err("x");
        assert_eq!(refusal.column.as_deref(), Some("x"));
        assert_eq!(refusal.sqlstate.as_deref(), Some("42703"));
    }

    #[test]
    fn what_no_column_takes_is_not_parsed() {
        let codec = columns(&[("k", "key"), ("v", "value")]).refuse_extra();
        assert_eq!(row(&codec, (Some("7"), Some("{no"))), "k=<7> v=<{no>");
    }

    #[test]
    fn without_a_mapping_each_field_is_a_column() {
        let codec = Columns::new::<&str>([]);
        assert_eq!(row(&codec, (None, Some(r#"{"a":1,"b":"x","a":2}"#))), r#"b="x" a=2"#);
        assert!(decode(&codec, (None, Some("[1]"))).is_err());
        assert_eq!(codec.names(), None);
    }

    #[test]
    fn a_tombstone_deletes_by_its_key() {
        let mark = "$tidegate::delete=true";
        let one =
            columns(&[("id", "order_id"), ("x", "x")]).key(["id"]).tombstones(Tombstones::Key);
        assert_eq!(row(&one, (Some("7"), None)), format!("id=<7> {mark}"));
        assert_eq!(row(&one, (Some(""), None)), format!("id=<> {mark}"));
        assert_eq!(row(&one, (Some(r#" {"order_id":"7"}"#), None)), format!(r#"id="7" {mark}"#));
        assert_eq!(row(&one, (Some(r#"{"id":7}"#), None)), format!(r#"id=<{{"id":7}}> {mark}"#));
        assert_eq!(row(&one, (Some("{7"), None)), format!("id=<{{7> {mark}"));
        assert!(decode(&one, (None, None)).is_err());

        let two = columns(&[("shop", "s"), ("no", "n"), ("t", "topic")])
            .key(["no", "shop", "t"])
            .tombstones(Tombstones::Key);
        let key = r#"{"s":"a","n":1,"z":0}"#;
        assert_eq!(row(&two, (Some(key), None)), format!(r#"no=1 shop="a" t=<orders> {mark}"#));
        for key in ["7", "{", r#"{"s":"a"}"#] {
            assert_eq!(decode(&two, (Some(key), None)).expect_err(key).stage, "decode");
        }
    }

    #[test]
    fn keys_from_elsewhere_delete_too() {
        let codec =
            columns(&[("k", "key"), ("via", "header:via"), ("o", "op"), ("t", "timestamp")])
                .key(["via", "k", "t"])
                .delete_when("op", "d")
                .tombstones(Tombstones::Key);
        let deleted = "via=<web> k=<{\"k\":1}> t@1700000000123 $tidegate::delete=true";
        assert_eq!(row(&codec, (Some(r#"{"k":1}"#), None)), deleted);
        assert_eq!(row(&codec, (Some(r#"{"k":1}"#), Some(r#"{"op":"\u0064"}"#))), deleted);
        let header = columns(&[("via", "header:via")]).key(["via"]).tombstones(Tombstones::Key);
        assert_eq!(row(&header, (None, None)), "via=<web> $tidegate::delete=true");
        // The key's column may be of one field, with the others from elsewhere.
        let mixed = columns(&[("via", "header:via"), ("id", "id")])
            .key(["via", "id"])
            .tombstones(Tombstones::Key);
        assert_eq!(row(&mixed, (Some("7"), None)), "via=<web> id=<7> $tidegate::delete=true");
    }

    #[test]
    fn the_field_that_says_delete_goes_to_the_sink_where_all_do() {
        let codec = Columns::new::<&str>([])
            .key(["id"])
            .delete_when("op", "gone")
            .tombstones(Tombstones::Key);
        assert_eq!(codec.marker(), ("op".to_owned(), "gone".to_owned()));
        assert_eq!(row(&codec, (None, Some(r#"{"op":"gone","id":1,"x":2}"#))), "id=1 op=<gone>");
        assert_eq!(row(&codec, (None, Some(r#"{"op":"here","id":1}"#))), r#"op="here" id=1"#);
        assert_eq!(row(&codec, (Some("9"), None)), "id=<9> op=<gone>");
    }

    #[test]
    fn delete_is_said_by_the_text_of_a_string_a_number_or_a_boolean() {
        let says = |wanted: &str, json: &str| {
            let codec = columns(&[("id", "id")]).key(["id"]).delete_when("op", wanted);
            let value = format!(r#"{{"id":1,"op":{json}}}"#);
            row(&codec, (None, Some(&value))).contains(Columns::DELETE)
        };
        for (wanted, json) in
            [("d", "\"d\""), ("1", "1"), ("1", "\"1\""), ("true", "true"), ("", "\"\"")]
        {
            assert!(says(wanted, json), "{wanted} {json}");
        }
        for (wanted, json) in [
            ("null", "null"),
            ("d", "[\"d\"]"),
            ("1", "1.0"),
            ("d", "\"D\""),
            ("[]", "[]"),
            ("", "\"\\ud800\""),
        ] {
            assert!(!says(wanted, json), "{wanted} {json}");
        }
    }

    #[test]
    fn tombstones_are_left_out_or_refused_where_that_is_wanted() {
        let codec = columns(&[("id", "id")]);
        assert!(decode(&codec, (None, None)).expect("left out").is_tombstone());
        assert!(!decode(&codec, (None, Some("{}"))).expect("an empty row").is_tombstone());
        decode(&codec.tombstones(Tombstones::Reject), (None, None)).expect_err("refused");
    }
}
