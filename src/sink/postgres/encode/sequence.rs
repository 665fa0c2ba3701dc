//! A sequence of small integers as `bytea`.

use serde::Serialize;
use serde::ser::{Impossible, SerializeSeq, Serializer};

use super::fault::{Fault, sqlstate};
use super::field;

/// Appends one byte an element.
pub(super) struct Bytes<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Bytes<'a> {
    /// Begins a field.
    pub fn new(len: Option<usize>, out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.reserve(4 + len.unwrap_or(0).min(1 << 20));
        out.extend_from_slice(&[0; 4]);
        Bytes { out, start }
    }
}

impl SerializeSeq for Bytes<'_> {
    type Ok = ();
    type Error = Fault;

    fn serialize_element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        self.out.push(value.serialize(Byte)?);
        Ok(())
    }

    fn end(self) -> Result<(), Fault> {
        field::close(self.start, self.out)
    }
}

/// One element.
struct Byte;

fn wrong() -> Fault {
    Fault::new(sqlstate::MISMATCH, "a sequence for bytea holds something other than 0 to 255")
}

macro_rules! integers {
    ($($name:ident: $type:ty),*) => {
        $(fn $name(self, value: $type) -> Result<u8, Fault> {
            u8::try_from(value).map_err(|_| wrong())
        })*
    };
}

type No = Impossible<u8, Fault>;

impl Serializer for Byte {
    type Ok = u8;
    type Error = Fault;
    type SerializeSeq = No;
    type SerializeTuple = No;
    type SerializeTupleStruct = No;
    type SerializeTupleVariant = No;
    type SerializeMap = No;
    type SerializeStruct = No;
    type SerializeStructVariant = No;

    #[inline]
    fn serialize_u8(self, value: u8) -> Result<u8, Fault> {
        Ok(value)
    }

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u16: u16, serialize_u32: u32, serialize_u64: u64,
        serialize_u128: u128
    }

    fn serialize_bool(self, _: bool) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_f32(self, _: f32) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_f64(self, _: f64) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_char(self, _: char) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_str(self, _: &str) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_bytes(self, _: &[u8]) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_none(self) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, _: &T) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_unit(self) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<u8, Fault> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<u8, Fault> {
        Err(wrong())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<No, Fault> {
        Err(wrong())
    }

    fn serialize_tuple(self, _: usize) -> Result<No, Fault> {
        Err(wrong())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<No, Fault> {
        Err(wrong())
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<No, Fault> {
        Err(wrong())
    }

    fn serialize_map(self, _: Option<usize>) -> Result<No, Fault> {
        Err(wrong())
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<No, Fault> {
        Err(wrong())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<No, Fault> {
        Err(wrong())
    }
}
