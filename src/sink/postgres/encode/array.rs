//! Arrays, as PostgreSQL's array literal (<https://www.postgresql.org/docs/current/arrays.html>,
//! "Array Input and Output Syntax"), which the server reads by the type of the elements.
//!
//! Every element stands in quotes, but NULL; an array within an array is a further dimension, except
//! where the elements are JSON.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;
use serde::ser::{Impossible, SerializeSeq, SerializeTuple, Serializer};

use super::exact::{self, Form, Take};
use super::fault::{Fault, sqlstate};
use super::raw::{self, Raw};
use super::{field, float, nested};

/// Writes the JSON array `text` as a field.
pub(super) fn put_raw(text: &str, json: bool, out: &mut Vec<u8>) -> Result<(), Fault> {
    field::with(out, |out| raw_array(text, json, out))
}

fn raw_array(text: &str, json: bool, out: &mut Vec<u8>) -> Result<(), Fault> {
    out.push(b'{');
    let start = out.len();
    for part in raw::parts(text) {
        if out.len() > start {
            out.push(b',');
        }
        raw_element(part, json, out)?;
    }
    out.push(b'}');
    Ok(())
}

fn raw_element(text: &str, json: bool, out: &mut Vec<u8>) -> Result<(), Fault> {
    match Raw::of(text) {
        Raw::Null => out.extend_from_slice(b"NULL"),
        _ if json => quoted(text, out)?,
        Raw::Array(text) => raw_array(text, json, out)?,
        Raw::String(inner) => quoted(&raw::unescape(inner)?, out)?,
        Raw::Bool(text) | Raw::Number(text) | Raw::Object(text) => quoted(text, out)?,
    }
    Ok(())
}

fn quoted(text: &str, out: &mut Vec<u8>) -> Result<(), Fault> {
    if text.as_bytes().contains(&0) {
        return Err(Fault::new(sqlstate::CHARACTER, "a text holds the character NUL"));
    }
    out.push(b'"');
    for byte in text.bytes() {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
    Ok(())
}

/// A sequence that becomes an array.
pub(super) struct Array<'a> {
    out: &'a mut Vec<u8>,
    json: bool,
    /// Where the field begins, if this is not an array within one.
    field: Option<usize>,
    empty: bool,
}

impl<'a> Array<'a> {
    /// Begins a field.
    pub fn new(json: bool, out: &'a mut Vec<u8>) -> Self {
        let field = Some(out.len());
        out.extend_from_slice(&[0, 0, 0, 0, b'{']);
        Array { out, json, field, empty: true }
    }
}

impl SerializeSeq for Array<'_> {
    type Ok = ();
    type Error = Fault;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        if !self.empty {
            self.out.push(b',');
        }
        self.empty = false;
        let json = self.json;
        if !json {
            return value.serialize(Element { out: self.out, json });
        }
        if let Some(done) = exact::find(value, Element { out: self.out, json }) {
            return done;
        }
        let mut text = Vec::new();
        nested::write(value, &mut text)?;
        raw_element(super::text::utf8(&text)?, true, self.out)
    }

    fn end(self) -> Result<(), Fault> {
        self.out.push(b'}');
        self.field.map_or(Ok(()), |start| field::close(start, self.out))
    }
}

impl SerializeTuple for Array<'_> {
    type Ok = ();
    type Error = Fault;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        SerializeSeq::serialize_element(self, value)
    }

    fn end(self) -> Result<(), Fault> {
        SerializeSeq::end(self)
    }
}

/// One element.
struct Element<'a> {
    out: &'a mut Vec<u8>,
    json: bool,
}

impl Take for Element<'_> {
    fn json(self, text: &str) -> Result<(), Fault> {
        raw_element(text, self.json, self.out)
    }

    fn utf8(self, bytes: &[u8]) -> Result<(), Fault> {
        quoted(super::text::utf8(bytes)?, self.out)
    }

    fn millis(self, millis: i64) -> Result<(), Fault> {
        self.printed(millis)
    }
}

impl Element<'_> {
    fn printed(self, value: impl Display) -> Result<(), Fault> {
        write!(self.out, "\"{value}\"").map_err(serde::ser::Error::custom)
    }

    fn null(self) -> Result<(), Fault> {
        self.out.extend_from_slice(b"NULL");
        Ok(())
    }

    fn float(self, print: impl FnOnce(&mut Vec<u8>)) -> Result<(), Fault> {
        self.out.push(b'"');
        print(self.out);
        self.out.push(b'"');
        Ok(())
    }
}

#[cold]
fn wrong(what: &str) -> Fault {
    Fault::new(sqlstate::MISMATCH, format!("{what} cannot be an element of an array"))
}

macro_rules! printed {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(fn $name(self, value: $type) -> Result<(), Fault> {
            self.printed(value)
        })*
    };
}

type No = Impossible<(), Fault>;

impl<'a> Serializer for Element<'a> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = Array<'a>;
    type SerializeTuple = Array<'a>;
    type SerializeTupleStruct = No;
    type SerializeTupleVariant = No;
    type SerializeMap = No;
    type SerializeStruct = No;
    type SerializeStructVariant = No;

    printed! {
        serialize_bool: bool,
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_i128: i128,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_u128: u128,
    }

    fn serialize_f32(self, value: f32) -> Result<(), Fault> {
        self.float(|out| float::text32(value, out))
    }

    fn serialize_f64(self, value: f64) -> Result<(), Fault> {
        self.float(|out| float::text64(value, out))
    }

    fn serialize_char(self, value: char) -> Result<(), Fault> {
        quoted(value.encode_utf8(&mut [0; 4]), self.out)
    }

    fn serialize_str(self, value: &str) -> Result<(), Fault> {
        quoted(value, self.out)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Fault> {
        self.out.extend_from_slice(br#""\\x"#);
        for byte in value {
            write!(self.out, "{byte:02x}").map_err(serde::ser::Error::custom)?;
        }
        self.out.push(b'"');
        Ok(())
    }

    fn serialize_none(self) -> Result<(), Fault> {
        self.null()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Fault> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Fault> {
        self.null()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Fault> {
        self.null()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Fault> {
        quoted(variant, self.out)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        match Form::of(name) {
            Some(form) => exact::unwrap(form, value, self),
            None => value.serialize(self),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Fault> {
        Err(wrong("a variant with a value"))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Array<'a>, Fault> {
        self.out.push(b'{');
        Ok(Array { out: self.out, json: self.json, field: None, empty: true })
    }

    fn serialize_tuple(self, len: usize) -> Result<Array<'a>, Fault> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<No, Fault> {
        Err(wrong("a tuple struct"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<No, Fault> {
        Err(wrong("a variant with values"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<No, Fault> {
        Err(wrong("a map"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<No, Fault> {
        Err(wrong("a struct"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<No, Fault> {
        Err(wrong("a variant with fields"))
    }
}
