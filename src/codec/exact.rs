//! Values that keep the form in which they were read, for sinks that know their columns' types.
//!
//! Serde has no word for "a number as it was written" or "bytes that should be text". These wrappers
//! say it by the name of a newtype: a sink that knows the names takes the value by its column, any other
//! serializer sees what is inside.

use serde::{Serialize, Serializer};

/// The name under which [`RawJson`] reaches a serializer.
pub const JSON: &str = "$tidegate::json";
/// The name under which [`Utf8`] reaches a serializer.
pub const UTF8: &str = "$tidegate::utf8";
/// The name under which [`Millis`] reaches a serializer.
pub const MILLIS: &str = "$tidegate::millis";

/// One JSON value, as it was written: digits, escapes and all. A text column takes a JSON string's text
/// and a number's literal, a JSON column the value, an array column the elements of a JSON array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawJson<'a>(pub &'a str);

impl Serialize for RawJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(JSON, self.0)
    }
}

/// Bytes that a `bytea` column takes as they are and any other column as text in UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Utf8<'a>(pub &'a [u8]);

impl Serialize for Utf8<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        struct Bytes<'a>(&'a [u8]);
        impl Serialize for Bytes<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_bytes(self.0)
            }
        }
        serializer.serialize_newtype_struct(UTF8, &Bytes(self.0))
    }
}

/// Milliseconds since 1970-01-01 UTC, as Kafka stamps its records: a time column takes the instant, any
/// other the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub i64);

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct(MILLIS, &self.0)
    }
}
