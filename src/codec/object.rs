//! One JSON object, read strictly and taken apart no further than its fields.
//!
//! RFC 8259 to the letter: UTF-8, one value with blanks around it at most, no comments, no NaN, no leading
//! zeros. A field's value is checked as syntax and otherwise left as it was written, so half a surrogate
//! pair passes: what it means is up to the column that takes it. Nesting takes no stack.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::record::Refusal;

/// Calls `each` with the name and the text of every field of the object that `bytes` are, in order.
/// Names come without their escapes. Where it fails, some fields may have been handed over already.
pub(super) fn fields<'a>(
    bytes: &'a [u8],
    each: impl FnMut(Cow<'a, str>, &'a str),
) -> Result<(), Refusal> {
    // Once for the whole text is cheaper than once for each string.
    let text = std::str::from_utf8(bytes).map_err(|error| not_utf8(error.valid_up_to()))?;
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(Fields(each))
        .and_then(|()| json.end())
        .map_err(|error| wrong(text, &error))
}

/// Whether `text` is one JSON value.
pub(super) fn is_value(text: &str) -> bool {
    // Blanks around it are no part of a value as it was written.
    serde_json::from_str::<&RawValue>(text).is_ok_and(|value| value.get().len() == text.len())
}

struct Fields<F>(F);

impl<'de, F: FnMut(Cow<'de, str>, &'de str)> Visitor<'de> for Fields<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(Name(name)) = map.next_key()? {
            let value: &RawValue = map.next_value()?;
            (self.0)(name, value.get());
        }
        Ok(())
    }
}

/// A name, borrowed where it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(text.to_owned())))
            }

            fn visit_bytes<E: serde::de::Error>(self, _bytes: &[u8]) -> Result<Name<'de>, E> {
                Err(E::custom("a name is not UTF-8"))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

/// The refusal of bytes that are not UTF-8 from `at` on.
#[cold]
pub(super) fn not_utf8(at: usize) -> Refusal {
    Refusal::new("decode", format!("not UTF-8 at byte {at}")).sqlstate("22021")
}

#[cold]
fn wrong(text: &str, error: &serde_json::Error) -> Refusal {
    let first = text.trim_start_matches([' ', '\t', '\n', '\r']).bytes().next();
    let what = match first {
        None => "nothing",
        Some(b'[') => "an array",
        Some(b'"') => "a string",
        Some(b'-' | b'0'..=b'9') => "a number",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        Some(_) => "",
    };
    // A text that breaks off is worth its own sentence.
    if !what.is_empty() && (error.is_data() || first.is_none()) {
        return Refusal::new("decode", format!("{what} where a JSON object should be"));
    }
    Refusal::new("decode", format!("not JSON: {error}"))
}

/// The error of a text that should hold one JSON value.
pub(super) fn no_value<E: serde::de::Error>() -> E {
    E::custom("a text that is no JSON value")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Vec<(String, String)>, Refusal> {
        let mut all = Vec::new();
        fields(text, |name, value| all.push((name.into_owned(), value.to_owned())))?;
        Ok(all)
    }

    fn refused(text: &[u8]) -> Refusal {
        read(text).expect_err(&String::from_utf8_lossy(text))
    }

    #[test]
    fn values_stay_as_they_were_written() {
        let text = br#" { "n" : 1.50e+007 , "a\u0062\n": [ 1,{"x" :null} ],"s":"\ud83d","d":1,"d":-0, "":"\/" } "#;
        let expected = [
            ("n", "1.50e+007"),
            ("ab\n", r#"[ 1,{"x" :null} ]"#),
            ("s", r#""\ud83d""#),
            ("d", "1"),
            ("d", "-0"),
            ("", r#""\/""#),
        ];
        let expected: Vec<_> =
            expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        assert_eq!(read(text), Ok(expected));
    }

    #[test]
    fn what_is_no_object_is_said_in_one_sentence() {
        for (text, what) in [
            ("", "nothing"),
            (" \n", "nothing"),
            ("[]", "an array"),
            ("\"x\"", "a string"),
            ("-1", "a number"),
            ("true", "a boolean"),
            (" null", "null"),
        ] {
            let reason = refused(text.as_bytes()).reason;
            assert_eq!(reason, format!("{what} where a JSON object should be"), "{text}");
        }
    }

    #[test]
    fn what_is_not_strictly_json_is_refused() {
        for text in [
            "{",
            "{}{}",
            "{} x",
            "{\"a\":1,}",
            "{\"a\":01}",
            "{\"a\":+1}",
            "{\"a\":1.}",
            "{\"a\":.5}",
            "{\"a\":-}",
            "{\"a\":1e}",
            "{\"a\":NaN}",
            "{\"a\":Infinity}",
            "{\"a\":tru}",
            "{\"a\":[1,]}",
            "{\"a\":[1}",
            "{\"a\":{\"b\"}}",
            "{a:1}",
            "{'a':1}",
            "{\"a\":\"\u{1}\"}",
            "{\"a\":\"\\x\"}",
            "{\"a\":\"\\u12\"}",
            "{\"a\":1}/**/",
            "{\"a\" 1}",
            "{\"\\ud800\":1}",
            "\u{feff}{}",
            "{\"a\":1\u{b}}",
            "{\"a\":1\u{a0}}",
        ] {
            let reason = refused(text.as_bytes()).reason;
            assert!(reason.starts_with("not JSON: "), "{text}: {reason}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_named() {
        let refusal = refused(b"{\"name\":\"Ren\xe9\"}");
        assert_eq!(refusal.reason, "not UTF-8 at byte 12");
        assert_eq!(refusal.sqlstate.as_deref(), Some("22021"));
    }

    #[test]
    fn nesting_takes_no_stack() {
        let deep = 5_000_000;
        let text = format!("{{\"a\":{}{}}}", "[".repeat(deep), "]".repeat(deep));
        assert_eq!(read(text.as_bytes()).expect("legal").len(), 1);
        let text = format!("{{\"a\":{}", "[{\"a\":".repeat(deep));
        refused(text.as_bytes());
    }

    #[test]
    fn one_value_is_told_from_none_and_from_two() {
        for text in ["1", "\"\\ud800\"", "[]", "null", "{\"a\":[1 , 2]}"] {
            assert!(is_value(text), "{text}");
        }
        for text in ["", " 1", "1 ", "1 2", "x", "[", "nan"] {
            assert!(!is_value(text), "{text}");
        }
    }
}
