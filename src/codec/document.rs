//! JSON objects whose fields no Rust type names.
//!
//! A [`Document`] keeps each value as it was written, so that a sink which knows its columns' types may
//! take it exactly: all digits of a number, a field that is null apart from one that is absent.
//!
//! serde_json finds the fields. It is strict, hands out values as they were written, skips nested ones
//! without recursion, and is the faster one at this: an order of 7 fields in 182 bytes becomes a document
//! in 0.56 us, with sonic-rs, whose iterator also overlooks what follows the object, in 0.73 us.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::exact::RawJson;
use super::{Codec, Decoded, Json, object};
use crate::record::{Record, Refusal};

/// One JSON object, exactly as it was written but for the blanks between its fields.
///
/// ```
/// use tidegate::codec::Document;
/// let order = Document::parse(br#"{"id": 9007199254740993, "note": null}"#).unwrap();
/// assert_eq!(order.get("id").unwrap().0, "9007199254740993");
/// assert_eq!(order.i64("id"), Some(9007199254740993));
/// assert!(order.is_null("note") && !order.is_null("customer"));
/// ```
///
/// A name may come twice; the last of its fields counts, and is the one that a sink sees.
///
/// Serialized it is a map from names to [`RawJson`], deserialized the same: each value a text that holds
/// the value's JSON. To read JSON itself there is [`Json::dynamic`] or [`Document::parse`].
#[derive(Clone, PartialEq, Eq)]
pub struct Document {
    /// Name, value, name, value, without anything between.
    text: String,
    fields: Vec<Field>,
    /// Whether a name comes twice.
    doubled: bool,
}

/// Where a field's name and its value end; the name begins where the value before ended.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Field {
    name: usize,
    value: usize,
}

impl Document {
    /// The object in `bytes`: strict JSON in UTF-8, blanks around it at most.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let mut document = Document::with_capacity(bytes.len());
        object::fields(bytes, |name, value| document.push(&name, value))?;
        document.doubled = document.find_doubled();
        Ok(document)
    }

    fn with_capacity(bytes: usize) -> Self {
        Document {
            text: String::with_capacity(bytes),
            fields: Vec::with_capacity(8),
            doubled: false,
        }
    }

    fn push(&mut self, name: &str, value: &str) {
        self.text.push_str(name);
        let name = self.text.len();
        self.text.push_str(value);
        self.fields.push(Field { name, value: self.text.len() });
    }

    /// How many fields it has; a name that comes twice counts twice.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Whether it has no field.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// All fields in their order, also those that a later one of the same name hides.
    pub fn fields(&self) -> impl DoubleEndedIterator<Item = (&str, RawJson<'_>)> {
        (0..self.fields.len()).map(|index| self.field(index))
    }

    fn field(&self, index: usize) -> (&str, RawJson<'_>) {
        let start = index.checked_sub(1).map_or(0, |before| self.fields[before].value);
        let Field { name, value } = self.fields[index];
        (&self.text[start..name], RawJson(&self.text[name..value]))
    }

    /// The value of the field `name`, as it was written; `None` where there is no such field.
    pub fn get(&self, name: &str) -> Option<RawJson<'_>> {
        self.fields().rev().find(|(other, _)| *other == name).map(|(_, value)| value)
    }

    /// The text of the field `name`, if it is a string. Half a surrogate pair is no text.
    pub fn str(&self, name: &str) -> Option<Cow<'_, str>> {
        string(self.get(name)?.0)
    }

    /// The field `name`, if it is a number without fraction and exponent that fits.
    pub fn i64(&self, name: &str) -> Option<i64> {
        self.get(name)?.0.parse().ok()
    }

    /// The double nearest to the field `name`, if it is a number. One that is too large for a double is
    /// infinite.
    pub fn f64(&self, name: &str) -> Option<f64> {
        let text = self.get(name)?.0;
        text.starts_with(['-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9'])
            .then(|| text.parse().ok())?
    }

    /// The field `name`, if it is `true` or `false`.
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.get(name)?.0.parse().ok()
    }

    /// Whether the field `name` is there, and null.
    pub fn is_null(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| value.0 == "null")
    }

    /// Whether a name comes twice.
    fn find_doubled(&self) -> bool {
        // Few names are compared faster than hashed.
        if self.fields.len() <= 16 {
            let mut fields = self.fields().enumerate();
            return fields.any(|(index, (name, _))| {
                self.fields().take(index).any(|(before, _)| before == name)
            });
        }
        let mut names = HashSet::with_capacity(self.fields.len());
        !self.fields().all(|(name, _)| names.insert(name))
    }

    /// Calls `each` with the fields that no later one of the same name hides.
    pub(super) fn for_each_last(&self, mut each: impl FnMut(&str, RawJson<'_>)) {
        if !self.doubled {
            return self.fields().for_each(|(name, value)| each(name, value));
        }
        let fields = || self.fields().enumerate();
        let last: HashMap<_, _> = fields().map(|(index, (name, _))| (name, index)).collect();
        fields()
            .filter(|(index, (name, _))| last[name] == *index)
            .for_each(|(_, (name, value))| each(name, value));
    }
}

/// The text of a JSON string.
pub(super) fn string(json: &str) -> Option<Cow<'_, str>> {
    let inner = json.strip_prefix('"')?.strip_suffix('"')?;
    match inner.contains('\\') {
        false => Some(Cow::Borrowed(inner)),
        true => serde_json::from_str(json).ok().map(Cow::Owned),
    }
}

impl fmt::Debug for Document {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut map = f.debug_map();
        for (name, value) in self.fields() {
            map.entry(&name, &format_args!("{}", value.0));
        }
        map.finish()
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map((!self.doubled).then_some(self.len()))?;
        let mut done = Ok(());
        self.for_each_last(|name, value| {
            if done.is_ok() {
                done = map.serialize_entry(name, &value);
            }
        });
        done?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Document;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a map from names to texts that hold JSON; `Json::dynamic()` reads JSON",
                )
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
                let mut document = Document::with_capacity(0);
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    document.push(&name, &value.0);
                }
                document.doubled = document.find_doubled();
                Ok(document)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// A text that holds one JSON value.
struct Value(String);

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text that holds JSON; `Json::dynamic()` reads JSON")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Value, E> {
                self.visit_string(text.to_owned())
            }

            fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Value, E> {
                if object::is_value(&text) { Ok(Value(text)) } else { Err(object::no_value()) }
            }
        }

        deserializer.deserialize_string(Text)
    }
}

/// Decodes a record's value into a [`Document`]; see [`Json::dynamic`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Dynamic(());

impl Json<Document> {
    /// The codec of JSON objects whose fields no Rust type names. It is strict: one object in UTF-8 and
    /// nothing behind it, no comments, no NaN, no leading zeros.
    ///
    /// ```
    /// use tidegate::Json;
    /// use tidegate::source::kafka::Kafka;
    /// let orders = Kafka::topic("orders", Json::dynamic());
    /// # let _ = orders;
    /// ```
    pub fn dynamic() -> Dynamic {
        Dynamic(())
    }
}

impl Codec for Dynamic {
    type Value = Document;

    fn decode(&mut self, record: &Record<'_>) -> Result<Decoded<Document>, Refusal> {
        let Some(value) = record.value else { return Ok(Decoded::Tombstone) };
        Document::parse(value).map(Decoded::Value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn document(text: &str) -> Document {
        Document::parse(text.as_bytes()).expect(text)
    }

    #[test]
    fn readers_take_what_is_there() {
        let document = document(
            r#"{"i":-7,"big":9223372036854775808,"f":1.5e3,"huge":1e999,"s":"a\u0062","half":"\ud800","t":true,"n":null,"x":1,"x":"2"}"#,
        );
        assert_eq!(document.i64("i"), Some(-7));
        assert_eq!(document.i64("big"), None);
        assert_eq!(document.i64("f"), None);
        assert_eq!(document.f64("f"), Some(1500.0));
        assert_eq!(document.f64("big"), Some(9_223_372_036_854_775_808.0));
        assert_eq!(document.f64("huge"), Some(f64::INFINITY));
        assert_eq!(document.f64("s"), None);
        assert_eq!(document.str("s").as_deref(), Some("ab"));
        assert_eq!(document.str("half"), None);
        assert_eq!(document.get("half").map(|json| json.0), Some(r#""\ud800""#));
        assert_eq!(document.str("i"), None);
        assert_eq!(document.bool("t"), Some(true));
        assert_eq!(document.bool("n"), None);
        assert!(document.is_null("n") && !document.is_null("absent"));
        assert_eq!(document.str("x").as_deref(), Some("2"));
        assert_eq!(document.len(), 10);
        assert!(format!("{document:?}").starts_with(r#"{"i": -7, "big": 9223372036854775808, "#));
    }

    #[test]
    fn only_the_last_field_of_a_name_is_serialized() {
        let few = document(r#"{"a":1,"b":2,"a":3}"#);
        assert_eq!(serde_json::to_string(&few).expect("texts"), r#"{"b":"2","a":"3"}"#);
        let names: String = (0..40).map(|index| format!(r#""n{index}":{index},"#)).collect();
        let many = document(&format!(r#"{{{names}"n7":"x"}}"#));
        let text = serde_json::to_string(&many).expect("texts");
        assert!(text.contains(r#""n7":"\"x\"""#) && !text.contains(r#""n7":"7""#), "{text}");
    }

    #[test]
    fn many_fields_take_no_quadratic_time() {
        let fields: Vec<_> = (0..100_000).map(|index| format!(r#""{index}":0"#)).collect();
        let document = document(&format!(r#"{{{},"7":1}}"#, fields.join(",")));
        assert!(document.doubled);
        assert_eq!(serde_json::to_value(&document).expect("texts")["7"], "1");
    }

    #[test]
    fn json_itself_is_not_taken_for_a_serialized_document() {
        for text in [r#"{"a":1}"#, r#"{"a":"b"}"#, r#"{"a":null}"#, "[]", "7"] {
            assert!(serde_json::from_str::<Document>(text).is_err(), "{text}");
        }
    }

    /// Any JSON value, written with blanks.
    fn json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|value| value.to_string()),
            "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,5})?",
            any::<String>().prop_map(|text| serde_json::to_string(&text).expect("a text")),
            "\"(\\\\u[0-9a-fA-F]{4}|\\\\[\"\\\\/bfnrt]|[a-z æ🙂]){0,8}\"",
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            let name =
                any::<String>().prop_map(|text| serde_json::to_string(&text).expect("a text"));
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4)
                    .prop_map(|items| format!("[ {}]", items.join(" ,\n"))),
                prop::collection::vec((name, inner), 0..4).prop_map(|fields| {
                    let fields: Vec<_> = fields.iter().map(|(n, v)| format!("{n} :{v}")).collect();
                    format!("{{{} }}", fields.join(", "))
                }),
            ]
        })
    }

    fn text(fields: &[(String, String)]) -> String {
        let name = |name: &String| serde_json::to_string(name).expect("a text");
        let fields: Vec<_> = fields.iter().map(|(n, v)| format!("\t{} : {v}\r", name(n))).collect();
        format!(" {{{}}}\n", fields.join(","))
    }

    proptest! {
        #[test]
        fn every_field_comes_back_as_it_was_written(
            fields in prop::collection::vec(("[ab]?\\PC{0,4}", json()), 0..24),
        ) {
            let document = document(&text(&fields));
            let back: Vec<_> =
                document.fields().map(|(n, v)| (n.to_owned(), v.0.to_owned())).collect();
            prop_assert_eq!(&back, &fields);
            for (name, _) in &fields {
                let last = fields.iter().rfind(|(other, _)| other == name).map(|(_, v)| &**v);
                prop_assert_eq!(document.get(name).map(|value| value.0), last);
            }
        }

        #[test]
        fn a_serialized_document_comes_back(
            fields in prop::collection::btree_map("\\PC{0,4}", json(), 0..24),
        ) {
            let fields: Vec<_> = fields.into_iter().collect();
            let document = document(&text(&fields));
            let written = serde_json::to_string(&document).expect("texts");
            prop_assert_eq!(serde_json::from_str::<Document>(&written).expect("the same"), document);
        }

        #[test]
        fn strings_are_read_as_serde_json_reads_them(value in json()) {
            let expected = serde_json::from_str::<String>(&value).ok();
            prop_assert_eq!(string(&value).map(Cow::into_owned), expected);
        }
    }
}
