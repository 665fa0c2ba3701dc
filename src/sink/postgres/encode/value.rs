//! One value: what serde says of it, written as its column's type.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;
use serde::ser::{self, Impossible, Serializer};

use super::array::{self, Array};
use super::exact::{self, Form, Take};
use super::fault::{Fault, sqlstate};
use super::kind::{Cell, Kind};
use super::raw::{self, Raw};
use super::sequence::Bytes;
use super::{bool, bytea, field, float, int, json, numeric, temporal, text, uuid};
use crate::sink::postgres::unit::Unit;

/// Appends one field to `out`; after an error, part of it may stand there.
pub(super) struct Value<'a> {
    /// The column.
    pub cell: Cell,
    /// Where to.
    pub out: &'a mut Vec<u8>,
}

/// The name under which serde_json passes on a number whose digits it kept as they are.
const JSON_NUMBER: &str = "$serde_json::private::Number";

/// The kinds that are written as text.
macro_rules! text_kinds {
    () => {
        Kind::Text
            | Kind::Varchar
            | Kind::Bpchar
            | Kind::Name
            | Kind::Cast
            | Kind::Array
            | Kind::JsonArray
    };
}

/// The kinds of a time.
macro_rules! time_kinds {
    () => {
        Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz
    };
}

/// NULL, where the column takes it.
#[inline]
pub(super) fn null(cell: Cell, out: &mut Vec<u8>) -> Result<(), Fault> {
    if cell.not_null {
        return Err(Fault::new(sqlstate::NOT_NULL, "null in a column that must not be null"));
    }
    field::null(out);
    Ok(())
}

/// A value whose shape the column's type does not take.
#[cold]
pub(super) fn mismatch(cell: Cell, what: impl Display) -> Fault {
    let reason = format!("{what} cannot be written to {}", cell.kind.name());
    Fault::new(sqlstate::MISMATCH, reason)
}

impl Value<'_> {
    /// Integers beyond 64 bits.
    #[cold]
    fn wide(self, value: impl Display, exact: Option<i128>, float: f64) -> Result<(), Fault> {
        let Value { cell, out } = self;
        match cell.kind {
            Kind::Numeric => match exact {
                Some(value) => numeric::put_int(value, cell.typmod, out),
                None => numeric::put_text(&value.to_string(), cell.typmod, out),
            },
            Kind::Int2 | Kind::Int4 | Kind::Int8 => Err(Fault::range(value, cell.kind.name())),
            Kind::Float4 | Kind::Float8 => float::put(cell.kind, float, out),
            text_kinds!() => printed(cell, value, out),
            time_kinds!() => temporal::put_number(cell, &value.to_string(), out),
            _ => Err(mismatch(cell, "an integer")),
        }
    }

    /// A text as the server reads it, where the type of its source says nothing.
    fn any_text(self, text: &str) -> Result<(), Fault> {
        let Value { cell, out } = self;
        match cell.kind {
            Kind::Json | Kind::Jsonb => json::put_text(cell, text, out),
            Kind::Bytea => bytea::put_any_text(text, out),
            _ => Value { cell, out }.serialize_str(text),
        }
    }
}

/// The text of a tombstone's key.
pub(super) struct Text<'a>(pub &'a str);

impl Text<'_> {
    /// Writes it as the server would read it.
    pub fn put(self, cell: Cell, out: &mut Vec<u8>) -> Result<(), Fault> {
        Value { cell, out }.any_text(self.0)
    }
}

impl Take for Value<'_> {
    #[inline]
    fn json(self, text: &str) -> Result<(), Fault> {
        let Value { cell, out } = self;
        let raw = Raw::of(text);
        if raw == Raw::Null {
            return null(cell, out);
        }
        if cell.is_json() {
            return json::put_raw(cell, text, out);
        }
        match raw {
            Raw::String(inner) => {
                let text = raw::unescape(inner)?;
                // Wherever it should go, the server does not take it as a text.
                if text.as_bytes().contains(&0) {
                    return Err(Fault::new(sqlstate::CHARACTER, "a text holds the character NUL"));
                }
                Value { cell, out }.any_text(&text)
            }
            Raw::Number(text) => match cell.kind {
                time_kinds!() => temporal::put_number(cell, text, out),
                _ => Value { cell, out }.any_text(text),
            },
            Raw::Bool(text) => Value { cell, out }.any_text(text),
            Raw::Array(text) => match cell.kind {
                Kind::Array => array::put_raw(text, false, out),
                Kind::JsonArray => array::put_raw(text, true, out),
                _ => Value { cell, out }.composite(text, "an array"),
            },
            Raw::Object(text) => Value { cell, out }.composite(text, "an object"),
            Raw::Null => null(cell, out),
        }
    }

    fn utf8(self, bytes: &[u8]) -> Result<(), Fault> {
        match self.cell.kind {
            Kind::Bytea => field::slice(bytes, self.out),
            _ => {
                let text = text::utf8(bytes)?;
                if text.as_bytes().contains(&0) {
                    return Err(Fault::new(sqlstate::CHARACTER, "a text holds the character NUL"));
                }
                self.any_text(text)
            }
        }
    }

    fn millis(self, millis: i64) -> Result<(), Fault> {
        match self.cell.kind {
            time_kinds!() => {
                let cell = Cell { unit: Some(Unit::Milliseconds), ..self.cell };
                temporal::put_integer(cell, i128::from(millis), self.out)
            }
            Kind::Json | Kind::Jsonb => json::put_raw(self.cell, &millis.to_string(), self.out),
            _ => self.serialize_i64(millis),
        }
    }
}

impl Value<'_> {
    /// A JSON array or object for a column that is neither JSON nor an array: its text may be what the
    /// type reads (`[1,5]` is a range), but is no text.
    fn composite(self, text: &str, what: &str) -> Result<(), Fault> {
        match self.cell.kind {
            Kind::Cast | Kind::Array | Kind::JsonArray => self.any_text(text),
            Kind::Text | Kind::Varchar | Kind::Bpchar | Kind::Name | Kind::Bytea => {
                let reason = format!("{what} cannot be written to {}", self.cell.kind.name());
                Err(Fault::new(sqlstate::TEXT_REPRESENTATION, reason))
            }
            _ => self.serialize_str(text),
        }
    }
}

fn printed(cell: Cell, value: impl Display, out: &mut Vec<u8>) -> Result<(), Fault> {
    text::put_with(cell, out, |out| write!(out, "{value}").expect("a vector takes all bytes"))
}

impl<'a> Serializer for Value<'a> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Sequence<'a>;
    type SerializeTuple = Sequence<'a>;
    type SerializeTupleStruct = Impossible<(), Fault>;
    type SerializeTupleVariant = Impossible<(), Fault>;
    type SerializeMap = Impossible<(), Fault>;
    type SerializeStruct = Number<'a>;
    type SerializeStructVariant = Impossible<(), Fault>;

    #[inline]
    fn serialize_bool(self, value: bool) -> Result<(), Fault> {
        match self.cell.kind {
            Kind::Bool => {
                field::one(u8::from(value), self.out);
                Ok(())
            }
            text_kinds!() => printed(self.cell, value, self.out),
            _ => Err(mismatch(self.cell, "a boolean")),
        }
    }

    #[inline]
    fn serialize_i8(self, value: i8) -> Result<(), Fault> {
        self.serialize_i64(i64::from(value))
    }

    #[inline]
    fn serialize_i16(self, value: i16) -> Result<(), Fault> {
        self.serialize_i64(i64::from(value))
    }

    #[inline]
    fn serialize_i32(self, value: i32) -> Result<(), Fault> {
        self.serialize_i64(i64::from(value))
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result<(), Fault> {
        let Value { cell, out } = self;
        match cell.kind {
            Kind::Int2 | Kind::Int4 | Kind::Int8 => int::put(cell.kind, value, out),
            Kind::Numeric => numeric::put_int(i128::from(value), cell.typmod, out),
            Kind::Float8 => float::put(cell.kind, value as f64, out),
            // Not by way of f64, which would round twice.
            Kind::Float4 => float::put(cell.kind, f64::from(value as f32), out),
            text_kinds!() => printed(cell, value, out),
            time_kinds!() => temporal::put_integer(cell, i128::from(value), out),
            _ => Err(mismatch(cell, "an integer")),
        }
    }

    #[inline]
    fn serialize_u8(self, value: u8) -> Result<(), Fault> {
        self.serialize_i64(i64::from(value))
    }

    #[inline]
    fn serialize_u16(self, value: u16) -> Result<(), Fault> {
        self.serialize_i64(i64::from(value))
    }

    #[inline]
    fn serialize_u32(self, value: u32) -> Result<(), Fault> {
        self.serialize_i64(i64::from(value))
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result<(), Fault> {
        match i64::try_from(value) {
            Ok(value) => self.serialize_i64(value),
            Err(_) => self.serialize_i128(i128::from(value)),
        }
    }

    fn serialize_i128(self, value: i128) -> Result<(), Fault> {
        if let Ok(value) = i64::try_from(value) {
            return self.serialize_i64(value);
        }
        let narrow = self.cell.kind == Kind::Float4;
        let float = if narrow { f64::from(value as f32) } else { value as f64 };
        self.wide(value, Some(value), float)
    }

    fn serialize_u128(self, value: u128) -> Result<(), Fault> {
        if let Ok(value) = i128::try_from(value) {
            return self.serialize_i128(value);
        }
        let narrow = self.cell.kind == Kind::Float4;
        let float = if narrow { f64::from(value as f32) } else { value as f64 };
        if float.is_infinite() {
            return Err(Fault::range(value, self.cell.kind.name()));
        }
        self.wide(value, None, float)
    }

    #[inline]
    fn serialize_f32(self, value: f32) -> Result<(), Fault> {
        let Value { cell, out } = self;
        match cell.kind {
            Kind::Numeric => numeric::put_f32(value, cell.typmod, out),
            text_kinds!() => text::put_with(cell, out, |out| float::text32(value, out)),
            _ => Value { cell, out }.serialize_f64(f64::from(value)),
        }
    }

    #[inline]
    fn serialize_f64(self, value: f64) -> Result<(), Fault> {
        let Value { cell, out } = self;
        match cell.kind {
            Kind::Float4 | Kind::Float8 => float::put(cell.kind, value, out),
            Kind::Numeric => numeric::put_f64(value, cell.typmod, out),
            Kind::Int2 | Kind::Int4 | Kind::Int8 => int::put_float(cell.kind, value, out),
            text_kinds!() => text::put_with(cell, out, |out| float::text64(value, out)),
            time_kinds!() => temporal::put_number(cell, &value.to_string(), out),
            _ => Err(mismatch(cell, "a float")),
        }
    }

    fn serialize_char(self, value: char) -> Result<(), Fault> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<(), Fault> {
        let Value { cell, out } = self;
        match cell.kind {
            text_kinds!() => text::put(cell, value, out),
            time_kinds!() => temporal::put_text(cell, value, out),
            Kind::Bool => bool::put_text(value, out),
            Kind::Int2 | Kind::Int4 | Kind::Int8 => int::put_text(cell.kind, value, out),
            Kind::Float4 | Kind::Float8 => float::put_text(cell.kind, value, out),
            Kind::Numeric => numeric::put_text(value, cell.typmod, out),
            Kind::Bytea => bytea::put_text(value, out),
            Kind::Uuid => uuid::put_text(value, out),
            Kind::Json | Kind::Jsonb | Kind::Unsupported => Err(mismatch(cell, "a text")),
        }
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Fault> {
        match self.cell.kind {
            Kind::Bytea => field::slice(value, self.out),
            Kind::Uuid => uuid::put_bytes(value, self.out),
            _ => Err(mismatch(self.cell, "bytes")),
        }
    }

    #[inline]
    fn serialize_none(self) -> Result<(), Fault> {
        null(self.cell, self.out)
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Fault> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Fault> {
        null(self.cell, self.out)
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), Fault> {
        null(self.cell, self.out)
    }

    #[inline]
    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<(), Fault> {
        self.serialize_str(variant)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        match Form::of(name) {
            None => value.serialize(self),
            Some(form) => exact::unwrap(form, value, self),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
        _value: &T,
    ) -> Result<(), Fault> {
        Err(mismatch(self.cell, format_args!("the variant `{name}::{variant}` with a value")))
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Sequence<'a>, Fault> {
        match self.cell.kind {
            Kind::Bytea => Ok(Sequence::Bytes(Bytes::new(len, self.out))),
            Kind::Array => Ok(Sequence::Array(Array::new(false, self.out))),
            Kind::JsonArray => Ok(Sequence::Array(Array::new(true, self.out))),
            _ => Err(mismatch(self.cell, "a sequence")),
        }
    }

    fn serialize_tuple(self, len: usize) -> Result<Sequence<'a>, Fault> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        _len: usize,
    ) -> Result<Self::SerializeTupleStruct, Fault> {
        Err(mismatch(self.cell, format_args!("the tuple `{name}`")))
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Self::SerializeTupleVariant, Fault> {
        Err(mismatch(self.cell, format_args!("the variant `{name}::{variant}` with values")))
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Self::SerializeMap, Fault> {
        Err(mismatch(self.cell, "a map"))
    }

    fn serialize_struct(self, name: &'static str, _len: usize) -> Result<Number<'a>, Fault> {
        if name == JSON_NUMBER {
            return Ok(Number(self));
        }
        Err(mismatch(self.cell, format_args!("the struct `{name}`")))
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Self::SerializeStructVariant, Fault> {
        Err(mismatch(self.cell, format_args!("the variant `{name}::{variant}` with fields")))
    }

    fn collect_str<T: Display + ?Sized>(self, value: &T) -> Result<(), Fault> {
        // Longer than any date, time, address or UUID.
        let mut buffer = [0; 64];
        let mut rest = &mut buffer[..];
        if write!(rest, "{value}").is_err() {
            return self.serialize_str(&value.to_string());
        }
        let used = 64 - rest.len();
        let text = std::str::from_utf8(&buffer[..used]).expect("whole texts are printed");
        self.serialize_str(text)
    }
}

/// What a sequence becomes.
pub(super) enum Sequence<'a> {
    Bytes(Bytes<'a>),
    Array(Array<'a>),
}

impl ser::SerializeSeq for Sequence<'_> {
    type Ok = ();
    type Error = Fault;

    #[inline]
    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        match self {
            Sequence::Bytes(bytes) => bytes.serialize_element(value),
            Sequence::Array(array) => array.serialize_element(value),
        }
    }

    fn end(self) -> Result<(), Fault> {
        match self {
            Sequence::Bytes(bytes) => bytes.end(),
            Sequence::Array(array) => array.end(),
        }
    }
}

impl ser::SerializeTuple for Sequence<'_> {
    type Ok = ();
    type Error = Fault;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        ser::SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<(), Fault> {
        ser::SerializeSeq::end(self)
    }
}

/// A number whose digits serde_json kept as they are: a struct with one text.
pub(super) struct Number<'a>(Value<'a>);

impl ser::SerializeStruct for Number<'_> {
    type Ok = ();
    type Error = Fault;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        _name: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        let cell = self.0.cell;
        match cell.kind {
            time_kinds!() => exact::unwrap(Form::Json, value, Value { cell, out: self.0.out }),
            Kind::Bool | Kind::Uuid | Kind::Bytea => Err(mismatch(cell, "a number")),
            _ => value.serialize(Value { cell, out: self.0.out }),
        }
    }

    fn end(self) -> Result<(), Fault> {
        Ok(())
    }
}
