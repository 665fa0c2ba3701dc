//! Finds the names of a row's fields before any record is read.
//!
//! A dummy row is read from a deserializer that answers whatever is asked, then written to a
//! serializer that keeps the names only. So `rename`, `rename_all`, `skip_serializing` and the like
//! need no thought: the names come from `Serialize` itself. Where a dummy value is refused (a text
//! that must be a date), the whole attempt is made again with the next one.

use std::cell::RefCell;
use std::fmt;

use serde::Serialize;
use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::ser::{self, Impossible, SerializeStruct, Serializer};

/// A field of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// Its name as it is serialized.
    pub name: String,
}

/// The fields that rows of type `T` have when serialized, or `None` where that shows only with the
/// first record: maps, flattened structs, enums, types that no dummy value fits.
pub(crate) fn field_names<T: Serialize + DeserializeOwned>() -> Option<Vec<Field>> {
    let tracer = Tracer::default();
    for _ in 0..ATTEMPTS {
        tracer.begin();
        if let Ok(row) = T::deserialize(Dummy { tracer: &tracer, depth: 0 }) {
            return row.serialize(Names).ok();
        }
        if !tracer.next() {
            break;
        }
    }
    None
}

/// How often to try; an attempt takes microseconds.
const ATTEMPTS: usize = 5000;
/// How deep dummies nest, for types that contain themselves.
const DEPTH: usize = 8;
/// Texts that types read from text accept.
const TEXTS: [&str; 12] = [
    "",
    "0",
    "a",
    "1970-01-01T00:00:00Z",
    "1970-01-01T00:00:00",
    "1970-01-01",
    "00:00:00",
    "00000000-0000-0000-0000-000000000000",
    "127.0.0.1",
    "true",
    "{}",
    "http://localhost/",
];

/// Which dummy to give at each place where there is a choice, in the order in which they are asked
/// for; the last is varied first.
#[derive(Default)]
struct Tracer(RefCell<Choices>);

#[derive(Default)]
struct Choices {
    /// The choice taken and how many there are.
    taken: Vec<(usize, usize)>,
    /// How many were asked for in this attempt.
    asked: usize,
}

impl Tracer {
    fn begin(&self) {
        self.0.borrow_mut().asked = 0;
    }

    fn choose(&self, count: usize) -> usize {
        let mut choices = self.0.borrow_mut();
        let place = choices.asked;
        choices.asked += 1;
        if place == choices.taken.len() {
            choices.taken.push((0, count));
        }
        choices.taken[place].0
    }

    /// Goes on to the next combination, if there is one.
    fn next(&self) -> bool {
        let choices = &mut *self.0.borrow_mut();
        // What failed was asked for last.
        choices.taken.truncate(choices.asked);
        while let Some((taken, count)) = choices.taken.pop() {
            if taken + 1 < count {
                choices.taken.push((taken + 1, count));
                return true;
            }
        }
        false
    }
}

/// An attempt that failed; why does not matter.
#[derive(Debug)]
struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the dummy does not fit")
    }
}

impl std::error::Error for Failed {}

impl de::Error for Failed {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Failed
    }
}

impl ser::Error for Failed {
    fn custom<T: fmt::Display>(_message: T) -> Self {
        Failed
    }
}

/// Answers what is asked with a dummy.
#[derive(Clone, Copy)]
struct Dummy<'t> {
    tracer: &'t Tracer,
    depth: usize,
}

impl Dummy<'_> {
    fn choose<T: Copy>(self, choices: &[T]) -> T {
        choices[self.tracer.choose(choices.len())]
    }

    /// What stands in this one.
    fn inner(self) -> Result<Self, Failed> {
        if self.depth == DEPTH {
            return Err(Failed);
        }
        Ok(Dummy { depth: self.depth + 1, ..self })
    }
}

macro_rules! choices {
    ($($deserialize:ident => $visit:ident: $choices:expr),* $(,)?) => {
        $(fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
            visitor.$visit(self.choose(&$choices))
        })*
    };
}

impl<'de> Deserializer<'de> for Dummy<'_> {
    type Error = Failed;

    choices! {
        deserialize_bool => visit_bool: [false, true],
        deserialize_i8 => visit_i8: [0, 1],
        deserialize_i16 => visit_i16: [0, 1],
        deserialize_i32 => visit_i32: [0, 1],
        deserialize_i64 => visit_i64: [0, 1],
        deserialize_i128 => visit_i128: [0, 1],
        deserialize_u8 => visit_u8: [0, 1],
        deserialize_u16 => visit_u16: [0, 1],
        deserialize_u32 => visit_u32: [0, 1],
        deserialize_u64 => visit_u64: [0, 1],
        deserialize_u128 => visit_u128: [0, 1],
        deserialize_f32 => visit_f32: [0.0, 1.0],
        deserialize_f64 => visit_f64: [0.0, 1.0],
        deserialize_char => visit_char: ['a', '0'],
        deserialize_str => visit_str: TEXTS,
        deserialize_string => visit_str: TEXTS,
        deserialize_bytes => visit_bytes: [&[][..], &[0; 16][..]],
        deserialize_byte_buf => visit_bytes: [&[][..], &[0; 16][..]],
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        let choice = self.tracer.choose(TEXTS.len() + 6);
        match choice.checked_sub(TEXTS.len()) {
            None => visitor.visit_str(TEXTS[choice]),
            Some(0) => visitor.visit_i64(0),
            Some(1) => visitor.visit_f64(0.0),
            Some(2) => visitor.visit_bool(false),
            Some(3) => visitor.visit_unit(),
            Some(4) => visitor.visit_seq(Items { dummy: self.inner()?, left: 0 }),
            Some(_) => visitor.visit_map(Empty),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        // Only a row's own fields may be left out where they are empty.
        if self.depth <= 1 && self.choose(&[true, false]) {
            return visitor.visit_some(self.inner()?);
        }
        visitor.visit_none()
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_seq(Items { dummy: self.inner()?, left: self.choose(&[0, 1]) })
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        visitor.visit_seq(Items { dummy: self.inner()?, left: len })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Failed> {
        self.deserialize_tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_map(Empty)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        // `fields` lists aliases too; what is too much is not asked for.
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        if variants.is_empty() {
            return Err(Failed);
        }
        let variant = self.choose(variants);
        visitor.visit_enum(Variant { dummy: self.inner()?, variant })
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failed> {
        visitor.visit_unit()
    }
}

/// A number of dummies.
struct Items<'t> {
    dummy: Dummy<'t>,
    left: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Failed;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Failed> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(self.dummy).map(Some)
    }
}

/// A map without entries.
struct Empty;

impl<'de> MapAccess<'de> for Empty {
    type Error = Failed;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        _seed: S,
    ) -> Result<Option<S::Value>, Failed> {
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, _seed: S) -> Result<S::Value, Failed> {
        Err(Failed)
    }
}

/// A variant of an enum.
struct Variant<'t> {
    dummy: Dummy<'t>,
    variant: &'static str,
}

impl<'de, 't> EnumAccess<'de> for Variant<'t> {
    type Error = Failed;
    type Variant = Variant<'t>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Variant<'t>), Failed> {
        let name: StrDeserializer<'_, Failed> = StrDeserializer::new(self.variant);
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = Failed;

    fn unit_variant(self) -> Result<(), Failed> {
        Ok(())
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Failed> {
        seed.deserialize(self.dummy)
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Failed> {
        self.dummy.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failed> {
        self.dummy.deserialize_tuple(fields.len(), visitor)
    }
}

/// Takes a struct and keeps the names of its fields.
struct Names;

/// The names so far.
struct Collected(Vec<Field>);

impl SerializeStruct for Collected {
    type Ok = Vec<Field>;
    type Error = Failed;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        _value: &T,
    ) -> Result<(), Failed> {
        self.0.push(Field { name: name.to_owned() });
        Ok(())
    }

    /// A field that this dummy leaves out and other rows may have.
    fn skip_field(&mut self, name: &'static str) -> Result<(), Failed> {
        self.0.push(Field { name: name.to_owned() });
        Ok(())
    }

    fn end(self) -> Result<Vec<Field>, Failed> {
        Ok(self.0)
    }
}

macro_rules! no_structs {
    ($($name:ident: $type:ty),* $(,)?) => {
        $(fn $name(self, _: $type) -> Result<Vec<Field>, Failed> {
            Err(Failed)
        })*
    };
}

type No = Impossible<Vec<Field>, Failed>;

impl Serializer for Names {
    type Ok = Vec<Field>;
    type Error = Failed;
    type SerializeSeq = No;
    type SerializeTuple = No;
    type SerializeTupleStruct = No;
    type SerializeTupleVariant = No;
    type SerializeMap = No;
    type SerializeStruct = Collected;
    type SerializeStructVariant = No;

    no_structs! {
        serialize_bool: bool,
        serialize_i8: i8,
        serialize_i16: i16,
        serialize_i32: i32,
        serialize_i64: i64,
        serialize_u8: u8,
        serialize_u16: u16,
        serialize_u32: u32,
        serialize_u64: u64,
        serialize_f32: f32,
        serialize_f64: f64,
        serialize_char: char,
        serialize_str: &str,
        serialize_bytes: &[u8],
        serialize_unit_struct: &'static str,
    }

    fn serialize_none(self) -> Result<Vec<Field>, Failed> {
        Err(Failed)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Vec<Field>, Failed> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Vec<Field>, Failed> {
        Err(Failed)
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
    ) -> Result<Vec<Field>, Failed> {
        Err(Failed)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<Vec<Field>, Failed> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<Vec<Field>, Failed> {
        Err(Failed)
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<No, Failed> {
        Err(Failed)
    }

    fn serialize_tuple(self, _len: usize) -> Result<No, Failed> {
        Err(Failed)
    }

    fn serialize_tuple_struct(self, _name: &'static str, _len: usize) -> Result<No, Failed> {
        Err(Failed)
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _len: usize,
    ) -> Result<No, Failed> {
        Err(Failed)
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<No, Failed> {
        Err(Failed)
    }

    fn serialize_struct(self, _name: &'static str, len: usize) -> Result<Collected, Failed> {
        Ok(Collected(Vec::with_capacity(len)))
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _len: usize,
    ) -> Result<No, Failed> {
        Err(Failed)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::IpAddr;
    use std::num::NonZeroU32;

    use serde::Deserialize;

    use super::*;

    fn names<T: Serialize + DeserializeOwned>() -> Option<Vec<String>> {
        Some(field_names::<T>()?.into_iter().map(|field| field.name).collect())
    }

    fn some(names: &[&str]) -> Option<Vec<String>> {
        Some(names.iter().map(|name| (*name).to_owned()).collect())
    }

    #[derive(Serialize, Deserialize)]
    struct Id(u64);

    #[derive(Serialize, Deserialize)]
    enum Status {
        Heavy(Box<Status>, Box<Status>),
        Open,
    }

    #[derive(Serialize, Deserialize)]
    struct Tree {
        left: Option<Box<Tree>>,
        right: Option<Box<Tree>>,
        many: Vec<Tree>,
    }

    #[derive(Serialize, Deserialize)]
    struct Order {
        id: Id,
        name: String,
        note: Option<String>,
        tags: Vec<String>,
        status: Status,
        tree: Tree,
        tree_or_not: Option<Tree>,
        labels: BTreeMap<String, i32>,
        pair: (u8, [f32; 2]),
        unit: (),
        letter: char,
        wide: i128,
        json: serde_json::Value,
    }

    #[test]
    fn a_plain_struct_has_its_fields_in_order() {
        let expected = some(&[
            "id",
            "name",
            "note",
            "tags",
            "status",
            "tree",
            "tree_or_not",
            "labels",
            "pair",
            "unit",
            "letter",
            "wide",
            "json",
        ]);
        assert_eq!(names::<Order>(), expected);
    }

    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    #[allow(dead_code, reason = "fields that are not serialized are read by nobody")]
    struct Renamed {
        order_id: i64,
        #[serde(rename = "Sum")]
        amount: f64,
        #[serde(rename(serialize = "out", deserialize = "in"))]
        both: bool,
        #[serde(alias = "a", alias = "b")]
        aliased: u8,
        #[serde(skip_serializing)]
        read_only: u8,
        #[serde(skip_deserializing)]
        write_only: u8,
        #[serde(skip)]
        neither: u8,
        #[serde(default)]
        defaulted: u8,
        #[serde(skip_serializing_if = "Option::is_none")]
        option: Option<u8>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        empty: Vec<u8>,
    }

    #[test]
    fn names_are_those_that_are_serialized() {
        let expected = some(&[
            "orderId",
            "Sum",
            "out",
            "aliased",
            "writeOnly",
            "defaulted",
            "option",
            "empty",
        ]);
        assert_eq!(names::<Renamed>(), expected);
    }

    #[derive(Serialize, Deserialize)]
    #[serde(try_from = "String", into = "String")]
    struct Day(String);

    impl TryFrom<String> for Day {
        type Error = &'static str;

        fn try_from(text: String) -> Result<Self, Self::Error> {
            if text.len() == 10 { Ok(Day(text)) } else { Err("no day") }
        }
    }

    impl From<Day> for String {
        fn from(day: Day) -> String {
            day.0
        }
    }

    impl Clone for Day {
        fn clone(&self) -> Self {
            Day(self.0.clone())
        }
    }

    /// A type that is read from whatever comes, and takes only a UUID.
    #[derive(Serialize)]
    struct Uuid(String);

    impl<'de> Deserialize<'de> for Uuid {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let serde_json::Value::String(text) = serde_json::Value::deserialize(deserializer)?
            else {
                return Err(de::Error::custom("no text"));
            };
            if text.len() == 36 { Ok(Uuid(text)) } else { Err(de::Error::custom("no UUID")) }
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Parsed {
        address: IpAddr,
        day: Day,
        count: NonZeroU32,
        maybe: Option<Day>,
        uuid: Uuid,
        plain: String,
    }

    #[test]
    fn values_that_are_parsed_get_the_text_that_fits() {
        let expected = some(&["address", "day", "count", "maybe", "uuid", "plain"]);
        assert_eq!(names::<Parsed>(), expected);
    }

    #[derive(Serialize)]
    struct Never;

    impl<'de> Deserialize<'de> for Never {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            String::deserialize(deserializer)?;
            Err(de::Error::custom("never"))
        }
    }

    #[derive(Serialize, Deserialize)]
    struct Optional {
        before: String,
        never: Option<Never>,
        after: u8,
    }

    #[test]
    fn an_option_that_no_dummy_fits_is_left_empty() {
        assert_eq!(names::<Optional>(), some(&["before", "never", "after"]));
    }

    #[derive(Serialize, Deserialize)]
    struct Impossible {
        one: String,
        two: String,
        three: String,
        four: String,
        never: Never,
    }

    #[test]
    fn a_type_that_no_dummy_fits_is_given_up_soon() {
        assert_eq!(names::<Impossible>(), None);
    }

    #[derive(Serialize, Deserialize)]
    struct Inner {
        b: Option<u8>,
    }

    #[derive(Serialize, Deserialize)]
    struct Flat {
        a: Option<u8>,
        #[serde(flatten)]
        inner: Inner,
        #[serde(flatten)]
        rest: BTreeMap<String, u8>,
    }

    #[derive(Serialize, Deserialize)]
    #[serde(tag = "type")]
    enum Tagged {
        A { x: u8 },
    }

    #[test]
    fn maps_flattened_structs_and_enums_show_with_the_first_record() {
        assert_eq!(names::<BTreeMap<String, u8>>(), None);
        assert_eq!(names::<Flat>(), None);
        assert_eq!(names::<Tagged>(), None);
        assert_eq!(names::<Status>(), None);
        assert_eq!(names::<serde_json::Value>(), None);
        assert_eq!(names::<(u8, u8)>(), None);
        assert_eq!(names::<u8>(), None);
    }

    #[derive(Serialize, Deserialize)]
    struct Wrapper(Inner);

    #[derive(Serialize, Deserialize)]
    #[serde(transparent)]
    struct Transparent {
        inner: Inner,
    }

    #[test]
    fn wrappers_are_seen_through() {
        assert_eq!(names::<Wrapper>(), some(&["b"]));
        assert_eq!(names::<Transparent>(), some(&["b"]));
    }
}
