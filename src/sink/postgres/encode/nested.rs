//! Serde values as JSON text, with JSON values that were kept as they were written anywhere within.
//!
//! `serde_json` would print such a value as a string. Here it goes through it as one too, since only so
//! it knows where it stands, but with a formatter that is told to leave the text alone.

use std::cell::Cell;
use std::io;

use serde::Serialize;
use serde::ser::{
    Error as _, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};
use serde_json::ser::{CharEscape, CompactFormatter, Formatter};

use super::exact::{self, Form, Take};
use super::fault::Fault;
use super::text;

/// Appends `value` as JSON.
pub(super) fn write<T: Serialize + ?Sized>(value: &T, out: &mut Vec<u8>) -> Result<(), Fault> {
    let raw = Cell::new(false);
    let mut serializer = serde_json::Serializer::with_formatter(out, Leave(&raw));
    let nested = Nested { inner: &mut serializer, raw: &raw };
    value.serialize(nested).map_err(serde::ser::Error::custom)
}

/// Writes strings as they are while the flag says so.
struct Leave<'c>(&'c Cell<bool>);

impl Formatter for Leave<'_> {
    #[inline]
    fn begin_string<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.0.get() { Ok(()) } else { CompactFormatter.begin_string(writer) }
    }

    #[inline]
    fn end_string<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        if self.0.get() { Ok(()) } else { CompactFormatter.end_string(writer) }
    }

    #[inline]
    fn write_char_escape<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        escape: CharEscape,
    ) -> io::Result<()> {
        if !self.0.get() {
            return CompactFormatter.write_char_escape(writer, escape);
        }
        let byte = match escape {
            CharEscape::Quote => b'"',
            CharEscape::ReverseSolidus => b'\\',
            CharEscape::Solidus => b'/',
            CharEscape::Backspace => 8,
            CharEscape::FormFeed => 12,
            CharEscape::LineFeed => b'\n',
            CharEscape::CarriageReturn => b'\r',
            CharEscape::Tab => b'\t',
            CharEscape::AsciiControl(byte) => byte,
        };
        writer.write_all(&[byte])
    }
}

/// A serializer, or a part of one, that looks for such values.
struct Nested<'c, S> {
    inner: S,
    raw: &'c Cell<bool>,
}

/// A value on its way through it.
struct Within<'c, 'v, T: ?Sized> {
    value: &'v T,
    raw: &'c Cell<bool>,
}

impl<T: Serialize + ?Sized> Serialize for Within<'_, '_, T> {
    #[inline]
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(Nested { inner: serializer, raw: self.raw })
    }
}

impl<'c, S> Nested<'c, S> {
    fn within<'v, T: ?Sized>(&self, value: &'v T) -> Within<'c, 'v, T> {
        Within { value, raw: self.raw }
    }

    fn wrap<P>(self, begin: impl FnOnce(S) -> P) -> Nested<'c, P> {
        Nested { inner: begin(self.inner), raw: self.raw }
    }
}

/// Puts what it is given where it stands.
struct Place<'c, 'o, S: Serializer> {
    nested: Nested<'c, S>,
    done: &'o mut Option<Result<S::Ok, S::Error>>,
}

impl<S: Serializer> Take for Place<'_, '_, S> {
    fn json(self, text: &str) -> Result<(), Fault> {
        let Place { nested: Nested { inner, raw }, done } = self;
        raw.set(true);
        *done = Some(inner.serialize_str(text));
        raw.set(false);
        Ok(())
    }

    fn utf8(self, bytes: &[u8]) -> Result<(), Fault> {
        *self.done = Some(self.nested.inner.serialize_str(text::utf8(bytes)?));
        Ok(())
    }

    fn millis(self, millis: i64) -> Result<(), Fault> {
        *self.done = Some(self.nested.inner.serialize_i64(millis));
        Ok(())
    }
}

macro_rules! scalars {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(#[inline]
        fn $name(self, value: $type) -> Result<S::Ok, S::Error> {
            self.inner.$name(value)
        })*
    };
}

impl<'c, S: Serializer> Serializer for Nested<'c, S> {
    type Ok = S::Ok;
    type Error = S::Error;
    type SerializeSeq = Nested<'c, S::SerializeSeq>;
    type SerializeTuple = Nested<'c, S::SerializeTuple>;
    type SerializeTupleStruct = Nested<'c, S::SerializeTupleStruct>;
    type SerializeTupleVariant = Nested<'c, S::SerializeTupleVariant>;
    type SerializeMap = Nested<'c, S::SerializeMap>;
    type SerializeStruct = Nested<'c, S::SerializeStruct>;
    type SerializeStructVariant = Nested<'c, S::SerializeStructVariant>;

    scalars! {
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
        serialize_f32: f32,
        serialize_f64: f64,
        serialize_char: char,
        serialize_str: &str,
        serialize_bytes: &[u8],
        serialize_unit_struct: &'static str,
    }

    fn serialize_none(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_none()
    }

    fn serialize_unit(self) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        let value = self.within(value);
        self.inner.serialize_some(&value)
    }

    fn serialize_unit_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
    ) -> Result<S::Ok, S::Error> {
        self.inner.serialize_unit_variant(name, index, variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let Some(form) = Form::of(name) else {
            let value = self.within(value);
            return self.inner.serialize_newtype_struct(name, &value);
        };
        let mut done = None;
        exact::unwrap(form, value, Place { nested: self, done: &mut done })
            .map_err(S::Error::custom)?;
        done.unwrap_or_else(|| Err(S::Error::custom("a newtype of a reserved name")))
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<S::Ok, S::Error> {
        let value = self.within(value);
        self.inner.serialize_newtype_variant(name, index, variant, &value)
    }

    fn serialize_seq(self, len: Option<usize>) -> Result<Self::SerializeSeq, S::Error> {
        self.wrap(|inner| inner.serialize_seq(len)).lift()
    }

    fn serialize_tuple(self, len: usize) -> Result<Self::SerializeTuple, S::Error> {
        self.wrap(|inner| inner.serialize_tuple(len)).lift()
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleStruct, S::Error> {
        self.wrap(|inner| inner.serialize_tuple_struct(name, len)).lift()
    }

    fn serialize_tuple_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeTupleVariant, S::Error> {
        self.wrap(|inner| inner.serialize_tuple_variant(name, index, variant, len)).lift()
    }

    fn serialize_map(self, len: Option<usize>) -> Result<Self::SerializeMap, S::Error> {
        self.wrap(|inner| inner.serialize_map(len)).lift()
    }

    fn serialize_struct(
        self,
        name: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStruct, S::Error> {
        self.wrap(|inner| inner.serialize_struct(name, len)).lift()
    }

    fn serialize_struct_variant(
        self,
        name: &'static str,
        index: u32,
        variant: &'static str,
        len: usize,
    ) -> Result<Self::SerializeStructVariant, S::Error> {
        self.wrap(|inner| inner.serialize_struct_variant(name, index, variant, len)).lift()
    }

    fn collect_str<T: std::fmt::Display + ?Sized>(self, value: &T) -> Result<S::Ok, S::Error> {
        self.inner.collect_str(value)
    }
}

impl<'c, P, E> Nested<'c, Result<P, E>> {
    fn lift(self) -> Result<Nested<'c, P>, E> {
        let raw = self.raw;
        self.inner.map(|inner| Nested { inner, raw })
    }
}

macro_rules! parts {
    ($($part:ident: $element:ident),*) => {
        $(impl<S: $part> $part for Nested<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn $element<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
                let value = self.within(value);
                self.inner.$element(&value)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.inner.end()
            }
        })*
    };
}

parts! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field
}

impl<S: SerializeMap> SerializeMap for Nested<'_, S> {
    type Ok = S::Ok;
    type Error = S::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), S::Error> {
        self.inner.serialize_key(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), S::Error> {
        let value = self.within(value);
        self.inner.serialize_value(&value)
    }

    fn end(self) -> Result<S::Ok, S::Error> {
        self.inner.end()
    }
}

macro_rules! structs {
    ($($part:ident),*) => {
        $(impl<S: $part> $part for Nested<'_, S> {
            type Ok = S::Ok;
            type Error = S::Error;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), S::Error> {
                let value = self.within(value);
                self.inner.serialize_field(name, &value)
            }

            fn skip_field(&mut self, name: &'static str) -> Result<(), S::Error> {
                self.inner.skip_field(name)
            }

            fn end(self) -> Result<S::Ok, S::Error> {
                self.inner.end()
            }
        })*
    };
}

structs!(SerializeStruct, SerializeStructVariant);
