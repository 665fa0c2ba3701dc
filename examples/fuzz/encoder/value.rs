//! A value of any shape, as rows hold it.

use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use tidegate::codec::exact::{Millis, RawJson, Utf8};

/// What a field of a row is.
#[derive(Clone, Debug)]
pub enum Val {
    Null,
    Bool(bool),
    Int(i64),
    Wide(i128),
    Huge(u128),
    F32(f32),
    F64(f64),
    Char(char),
    Str(String),
    Bytes(Vec<u8>),
    Seq(Vec<Val>),
    Map(Vec<(String, Val)>),
    /// One JSON value as it was written.
    Json(String),
    Utf8(Vec<u8>),
    Millis(i64),
}

impl Serialize for Val {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Val::Null => serializer.serialize_none(),
            Val::Bool(value) => serializer.serialize_bool(*value),
            Val::Int(value) => serializer.serialize_i64(*value),
            Val::Wide(value) => serializer.serialize_i128(*value),
            Val::Huge(value) => serializer.serialize_u128(*value),
            Val::F32(value) => serializer.serialize_f32(*value),
            Val::F64(value) => serializer.serialize_f64(*value),
            Val::Char(value) => serializer.serialize_char(*value),
            Val::Str(value) => serializer.serialize_str(value),
            Val::Bytes(value) => serializer.serialize_bytes(value),
            Val::Seq(values) => {
                let mut seq = serializer.serialize_seq(Some(values.len()))?;
                values.iter().try_for_each(|value| seq.serialize_element(value))?;
                seq.end()
            }
            Val::Map(entries) => entries_of(entries, serializer),
            Val::Json(text) => RawJson(text).serialize(serializer),
            Val::Utf8(bytes) => Utf8(bytes).serialize(serializer),
            Val::Millis(millis) => Millis(*millis).serialize(serializer),
        }
    }
}

fn entries_of<S: Serializer>(entries: &[(String, Val)], serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(entries.len()))?;
    entries.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
    map.end()
}

/// The columns that a row names, and their values.
#[derive(Clone, Debug)]
pub struct Row(pub Vec<(String, Val)>);

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        entries_of(&self.0, serializer)
    }
}

/// Sinks ask rows for their fields this way; these tell none.
impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(IgnoredAny)?;
        Ok(Row(Vec::new()))
    }
}
