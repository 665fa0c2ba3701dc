//! Rows that are put together field by field, from whatever a record holds.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use super::exact::{Millis, RawJson, Utf8};
use super::object;

/// A row whose fields no Rust type names: names with their values, in order.
///
/// ```
/// use tidegate::codec::{Cell, Fields};
/// let mut row = Fields::default();
/// row.push("id", Cell::json("1.50"));
/// row.push("sender", Cell::bytes(b"shop-7"));
/// assert_eq!(row.get("id"), Some(Cell::json("1.50")));
/// assert_eq!(row.get("note"), None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// The names, and the values that are JSON.
    text: String,
    /// The values that are bytes.
    bytes: Vec<u8>,
    cells: Vec<Placed>,
    /// Whether it stands for a tombstone that is to be left out.
    tombstone: bool,
}

/// The value of a field of [`Fields`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Nothing, which is not the same as an absent field.
    Null,
    /// A JSON value as it was written.
    Json(RawJson<'a>),
    /// Bytes, which all columns but `bytea` take as text.
    Bytes(Utf8<'a>),
    /// A moment.
    Time(Millis),
}

impl<'a> Cell<'a> {
    /// A JSON value as it was written.
    pub fn json(text: &'a str) -> Self {
        Cell::Json(RawJson(text))
    }

    /// Bytes, which all columns but `bytea` take as text.
    pub fn bytes(bytes: &'a [u8]) -> Self {
        Cell::Bytes(Utf8(bytes))
    }
}

/// A field: where its name is, and what its value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Placed {
    /// In `text`; a JSON value follows at once.
    name: (usize, usize),
    value: Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Null,
    /// Where it ends in `text`.
    Json(usize),
    /// Where it is in `bytes`.
    Bytes(usize, usize),
    Time(i64),
}

impl Fields {
    /// No field, of a record that holds nothing and deletes nothing.
    pub(super) fn tombstone() -> Self {
        Fields { tombstone: true, ..Fields::default() }
    }

    /// No field yet, with room for so many of so many bytes together.
    pub(super) fn with_capacity(fields: usize, bytes: usize) -> Self {
        Fields {
            text: String::with_capacity(bytes),
            cells: Vec::with_capacity(fields),
            ..Fields::default()
        }
    }

    /// Adds a field.
    pub fn push(&mut self, name: &str, value: Cell<'_>) {
        let start = self.text.len();
        self.text.push_str(name);
        let name = (start, self.text.len());
        let value = match value {
            Cell::Null => Value::Null,
            Cell::Json(RawJson(json)) => {
                self.text.push_str(json);
                Value::Json(self.text.len())
            }
            Cell::Bytes(Utf8(bytes)) => {
                let start = self.bytes.len();
                self.bytes.extend_from_slice(bytes);
                Value::Bytes(start, self.bytes.len())
            }
            Cell::Time(Millis(millis)) => Value::Time(millis),
        };
        self.cells.push(Placed { name, value });
    }

    /// All fields in their order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&str, Cell<'_>)> {
        self.cells.iter().map(|Placed { name, value }| {
            let cell = match *value {
                Value::Null => Cell::Null,
                Value::Json(end) => Cell::json(&self.text[name.1..end]),
                Value::Bytes(start, end) => Cell::bytes(&self.bytes[start..end]),
                Value::Time(millis) => Cell::Time(Millis(millis)),
            };
            (&self.text[name.0..name.1], cell)
        })
    }

    /// The value of the last field `name`; `None` where there is none.
    pub fn get(&self, name: &str) -> Option<Cell<'_>> {
        self.iter().rev().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// Whether its record held nothing, and is to delete nothing; such a row should be filtered.
    pub fn is_tombstone(&self) -> bool {
        self.tombstone
    }
}

impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Cell::Null => serializer.serialize_none(),
            Cell::Json(json) => json.serialize(serializer),
            Cell::Bytes(bytes) => bytes.serialize(serializer),
            Cell::Time(millis) => millis.serialize(serializer),
        }
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// The kinds of values tell each other apart as serialized: a text is JSON, bytes are bytes, a number is
/// a moment.
impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;

        impl<'de> Visitor<'de> for Map {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of fields")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Fields::default();
                while let Some((name, value)) = map.next_entry::<String, Owned>()? {
                    let cell = match &value {
                        Owned::Null => Cell::Null,
                        Owned::Json(json) => Cell::json(json),
                        Owned::Bytes(bytes) => Cell::bytes(bytes),
                        Owned::Time(millis) => Cell::Time(Millis(*millis)),
                    };
                    fields.push(&name, cell);
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_map(Map)
    }
}

/// A [`Cell`] that was read.
enum Owned {
    Null,
    Json(String),
    Bytes(Vec<u8>),
    Time(i64),
}

impl<'de> Deserialize<'de> for Owned {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Owned;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("nothing, a text that holds JSON, bytes, or a number of milliseconds")
            }

            fn visit_unit<E>(self) -> Result<Owned, E> {
                Ok(Owned::Null)
            }

            fn visit_none<E>(self) -> Result<Owned, E> {
                Ok(Owned::Null)
            }

            fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Owned, D::Error> {
                Deserialize::deserialize(deserializer)
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Owned, D::Error> {
                Deserialize::deserialize(deserializer)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Owned, E> {
                self.visit_string(text.to_owned())
            }

            fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Owned, E> {
                if object::is_value(&text) {
                    Ok(Owned::Json(text))
                } else {
                    Err(object::no_value())
                }
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Owned, E> {
                Ok(Owned::Bytes(bytes.to_vec()))
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Owned, E> {
                Ok(Owned::Bytes(bytes))
            }

            // Formats that have no bytes write their numbers.
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Owned, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element()? {
                    bytes.push(byte);
                }
                Ok(Owned::Bytes(bytes))
            }

            fn visit_i64<E>(self, millis: i64) -> Result<Owned, E> {
                Ok(Owned::Time(millis))
            }

            fn visit_u64<E: serde::de::Error>(self, millis: u64) -> Result<Owned, E> {
                i64::try_from(millis).map(Owned::Time).map_err(E::custom)
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_serialized_row_comes_back() {
        let mut row = Fields::default();
        row.push("json", Cell::json(r#""\ud800""#));
        row.push("null", Cell::Null);
        row.push("json null", Cell::json("null"));
        row.push("", Cell::bytes(b"\xff\0"));
        row.push("text", Cell::bytes(b"7"));
        row.push("at", Cell::Time(Millis(-1)));
        row.push("then", Cell::Time(Millis(i64::MAX)));
        let text = serde_json::to_string(&row).expect("texts, bytes and numbers");
        assert_eq!(serde_json::from_str::<Fields>(&text).expect("the same"), row);
        assert_eq!(row.get("text"), Some(Cell::bytes(b"7")));
        assert_eq!(row.iter().map(|(name, _)| name).collect::<Vec<_>>().join("|"), {
            "json|null|json null||text|at|then"
        });
        assert!(serde_json::from_str::<Fields>(r#"{"a":"no JSON"}"#).is_err());
    }
}
