//! Values that kept the form in which they were read ([`crate::codec::exact`]).

use serde::Serialize;
use serde::ser::{self, Impossible, Serializer};

use super::fault::{Fault, sqlstate};
use crate::codec::exact;

/// What takes such a value.
pub(super) trait Take {
    /// One JSON value as it was written.
    fn json(self, text: &str) -> Result<(), Fault>;
    /// Bytes that are text, unless the column takes bytes.
    fn utf8(self, bytes: &[u8]) -> Result<(), Fault>;
    /// Milliseconds since 1970-01-01 UTC.
    fn millis(self, millis: i64) -> Result<(), Fault>;
}

/// Which of them a newtype is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Utf8,
    Millis,
}

impl Form {
    /// The form that the newtype `name` says.
    #[inline]
    pub fn of(name: &'static str) -> Option<Form> {
        // No name of a Rust type begins so.
        if name.as_bytes().first() == Some(&b'$') { Form::named(name) } else { None }
    }

    fn named(name: &str) -> Option<Form> {
        match name {
            exact::JSON => Some(Form::Json),
            exact::UTF8 => Some(Form::Utf8),
            exact::MILLIS => Some(Form::Millis),
            _ => None,
        }
    }
}

/// Gives the value in the newtype of this form to `take`.
pub(super) fn unwrap<T: Serialize + ?Sized>(
    form: Form,
    value: &T,
    take: impl Take,
) -> Result<(), Fault> {
    value.serialize(Inner { take, form: Some(form) }).map_err(|found| match found {
        Found::Fault(fault) => fault,
        Found::Other => Fault::new(sqlstate::MISMATCH, "a newtype of a reserved name"),
    })
}

/// Gives `value` to `take` if it is such a newtype, also within `Some`; `None` if it is anything else,
/// which may then be serialized again.
pub(super) fn find<T: Serialize + ?Sized>(value: &T, take: impl Take) -> Option<Result<(), Fault>> {
    match value.serialize(Inner { take, form: None }) {
        Ok(()) => Some(Ok(())),
        Err(Found::Fault(fault)) => Some(Err(fault)),
        Err(Found::Other) => None,
    }
}

/// Serializes what is in a newtype of a form, or looks for one.
struct Inner<T> {
    take: T,
    form: Option<Form>,
}

/// How it ended, if not well.
#[derive(Debug)]
enum Found {
    /// It is something else.
    Other,
    /// It was refused.
    Fault(Fault),
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("another value")
    }
}

impl std::error::Error for Found {}

impl ser::Error for Found {
    fn custom<T: std::fmt::Display>(_message: T) -> Self {
        Found::Other
    }
}

type No = Impossible<(), Found>;

macro_rules! others {
    ($($name:ident($($type:ty),*) -> $result:ty;)*) => {
        $(others!(@ $name ($($type),*) $result);)*
    };
    (@ $name:ident () $result:ty) => {
        fn $name(self) -> Result<$result, Found> { Err(Found::Other) }
    };
    (@ $name:ident ($a:ty) $result:ty) => {
        fn $name(self, _: $a) -> Result<$result, Found> { Err(Found::Other) }
    };
    (@ $name:ident ($a:ty, $b:ty) $result:ty) => {
        fn $name(self, _: $a, _: $b) -> Result<$result, Found> { Err(Found::Other) }
    };
    (@ $name:ident ($a:ty, $b:ty, $c:ty) $result:ty) => {
        fn $name(self, _: $a, _: $b, _: $c) -> Result<$result, Found> { Err(Found::Other) }
    };
    (@ $name:ident ($a:ty, $b:ty, $c:ty, $d:ty) $result:ty) => {
        fn $name(self, _: $a, _: $b, _: $c, _: $d) -> Result<$result, Found> { Err(Found::Other) }
    };
}

impl<T: Take> Serializer for Inner<T> {
    type Ok = ();
    type Error = Found;
    type SerializeSeq = No;
    type SerializeTuple = No;
    type SerializeTupleStruct = No;
    type SerializeTupleVariant = No;
    type SerializeMap = No;
    type SerializeStruct = No;
    type SerializeStructVariant = No;

    fn serialize_str(self, value: &str) -> Result<(), Found> {
        match self.form {
            Some(Form::Json) => self.take.json(value).map_err(Found::Fault),
            _ => Err(Found::Other),
        }
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Found> {
        match self.form {
            Some(Form::Utf8) => self.take.utf8(value).map_err(Found::Fault),
            _ => Err(Found::Other),
        }
    }

    fn serialize_i64(self, value: i64) -> Result<(), Found> {
        match self.form {
            Some(Form::Millis) => self.take.millis(value).map_err(Found::Fault),
            _ => Err(Found::Other),
        }
    }

    fn serialize_some<V: Serialize + ?Sized>(self, value: &V) -> Result<(), Found> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<V: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &V,
    ) -> Result<(), Found> {
        match (self.form, Form::of(name)) {
            (None, Some(form)) => value.serialize(Inner { form: Some(form), ..self }),
            _ => Err(Found::Other),
        }
    }

    fn serialize_newtype_variant<V: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &V,
    ) -> Result<(), Found> {
        Err(Found::Other)
    }

    others! {
        serialize_bool(bool) -> ();
        serialize_i8(i8) -> ();
        serialize_i16(i16) -> ();
        serialize_i32(i32) -> ();
        serialize_i128(i128) -> ();
        serialize_u8(u8) -> ();
        serialize_u16(u16) -> ();
        serialize_u32(u32) -> ();
        serialize_u64(u64) -> ();
        serialize_u128(u128) -> ();
        serialize_f32(f32) -> ();
        serialize_f64(f64) -> ();
        serialize_char(char) -> ();
        serialize_none() -> ();
        serialize_unit() -> ();
        serialize_unit_struct(&'static str) -> ();
        serialize_unit_variant(&'static str, u32, &'static str) -> ();
        serialize_seq(Option<usize>) -> No;
        serialize_tuple(usize) -> No;
        serialize_tuple_struct(&'static str, usize) -> No;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> No;
        serialize_map(Option<usize>) -> No;
        serialize_struct(&'static str, usize) -> No;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> No;
    }
}
