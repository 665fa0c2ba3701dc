//! One value: what serde says of it, written as its column's type.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;
use serde::ser::{self, Impossible, Serializer};

use super::fault::{Fault, sqlstate};
use super::kind::{Cell, Kind};
use super::sequence::Bytes;
use super::{bool, bytea, field, float, int, numeric, temporal, text, uuid};

/// Appends one field to `out`; after an error, part of it may stand there.
pub(super) struct Value<'a> {
    /// The column.
    pub cell: Cell,
    /// Where to.
    pub out: &'a mut Vec<u8>,
}

/// The name under which serde_json passes on a number whose digits it kept as they are.
const JSON_NUMBER: &str = "$serde_json::private::Number";

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
            Kind::Text | Kind::Varchar | Kind::Bpchar | Kind::Name => printed(cell, value, out),
            _ => Err(number(cell, "an integer")),
        }
    }
}

/// A number for a column that takes none.
#[cold]
fn number(cell: Cell, what: &str) -> Fault {
    match cell.kind {
        Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz => {
            temporal::number(cell.kind)
        }
        _ => mismatch(cell, what),
    }
}

fn printed(cell: Cell, value: impl Display, out: &mut Vec<u8>) -> Result<(), Fault> {
    text::put_with(cell, out, |out| write!(out, "{value}").expect("a vector takes all bytes"))
}

impl<'a> Serializer for Value<'a> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Bytes<'a>;
    type SerializeTuple = Bytes<'a>;
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
            Kind::Text | Kind::Varchar | Kind::Bpchar | Kind::Name => {
                printed(self.cell, value, self.out)
            }
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
            Kind::Text | Kind::Varchar | Kind::Bpchar | Kind::Name => printed(cell, value, out),
            _ => Err(number(cell, "an integer")),
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
        self.wide(value, None, float)
    }

    #[inline]
    fn serialize_f32(self, value: f32) -> Result<(), Fault> {
        let Value { cell, out } = self;
        match cell.kind {
            Kind::Numeric => numeric::put_f32(value, cell.typmod, out),
            Kind::Text | Kind::Varchar | Kind::Bpchar | Kind::Name => {
                text::put_with(cell, out, |out| float::text32(value, out))
            }
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
            Kind::Text | Kind::Varchar | Kind::Bpchar | Kind::Name => {
                text::put_with(cell, out, |out| float::text64(value, out))
            }
            _ => Err(number(cell, "a float")),
        }
    }

    fn serialize_char(self, value: char) -> Result<(), Fault> {
        self.serialize_str(value.encode_utf8(&mut [0; 4]))
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<(), Fault> {
        let Value { cell, out } = self;
        match cell.kind {
            Kind::Text | Kind::Varchar | Kind::Bpchar | Kind::Name => text::put(cell, value, out),
            Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz => {
                temporal::put_text(cell, value, out)
            }
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
        _name: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        value.serialize(self)
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

    fn serialize_seq(self, len: Option<usize>) -> Result<Bytes<'a>, Fault> {
        match self.cell.kind {
            Kind::Bytea => Ok(Bytes::new(len, self.out)),
            _ => Err(mismatch(self.cell, "a sequence")),
        }
    }

    fn serialize_tuple(self, len: usize) -> Result<Bytes<'a>, Fault> {
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
            Kind::Date | Kind::Time | Kind::Timestamp | Kind::Timestamptz => {
                Err(temporal::number(cell.kind))
            }
            Kind::Bool | Kind::Uuid | Kind::Bytea => Err(mismatch(cell, "a number")),
            _ => value.serialize(Value { cell, out: self.0.out }),
        }
    }

    fn end(self) -> Result<(), Fault> {
        Ok(())
    }
}
