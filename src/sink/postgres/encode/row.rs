//! One row: a struct or a map, whose fields become the fields of a tuple.

use serde::Serialize;
use serde::ser::{Impossible, SerializeMap, SerializeStruct, Serializer};

use super::columns::Slot;
use super::fault::{Fault, quoted, sqlstate};
use super::kind::Cell;
use super::value::Value;
use super::{RowEncoder, json};
use crate::sink::postgres::table::Table;

/// What is known of the row that is being written.
pub(super) struct Pending {
    /// Its number; marks of other rows count for nothing, so that none need be cleared.
    row: u64,
    /// Per column: the row that wrote it last, and where its field began.
    marks: Vec<(u64, usize)>,
    /// Its columns, in the order of its fields.
    pub layout: Vec<u16>,
    /// Whether it is a delete.
    pub delete: bool,
    /// Why it is refused, unless it turns out to be a delete.
    pub fault: Option<Fault>,
    /// Room for the text of a scalar.
    scratch: Vec<u8>,
}

impl Pending {
    /// No row, of a table with this many columns.
    pub fn new(columns: usize) -> Self {
        Pending {
            row: 0,
            marks: vec![(0, 0); columns],
            layout: Vec::with_capacity(columns),
            delete: false,
            fault: None,
            scratch: Vec::new(),
        }
    }

    /// Begins the next row.
    #[inline]
    pub fn begin(&mut self) {
        self.row += 1;
        self.layout.clear();
        self.delete = false;
        self.fault = None;
    }

    /// Where the field of `column` begins, if the row has it.
    #[inline]
    pub fn start(&self, column: u16) -> Option<usize> {
        let (row, start) = self.marks[usize::from(column)];
        (row == self.row).then_some(start)
    }
}

impl RowEncoder {
    /// Writes one field of the pending row.
    #[inline]
    fn put_field<T: Serialize + ?Sized>(&mut self, slot: Slot, value: &T) -> Result<(), Fault> {
        if slot.marker {
            self.mark(value);
        }
        let Some(column) = slot.column else { return Ok(()) };
        let index = usize::from(column);
        let cell = self.cells[index];
        let start = self.rows.bytes.len();

        let mark = &mut self.pending.marks[index];
        if mark.0 == self.pending.row {
            return Err(self.twice(index));
        }
        *mark = (self.pending.row, start);
        self.pending.layout.push(column);

        let out = &mut self.rows.bytes;
        let done = if cell.is_json() {
            json::put(cell, value, out)
        } else {
            value.serialize(Value { cell, out })
        };
        done.or_else(|fault| self.refuse(column, start, fault))
    }

    /// Whether `value` says that the row is a delete.
    #[cold]
    fn mark<T: Serialize + ?Sized>(&mut self, value: &T) {
        let Some((_, wanted)) = &self.table.delete_when else { return };
        let scratch = &mut self.pending.scratch;
        scratch.clear();
        let scalar = value.serialize(Value { cell: Cell::TEXT, out: scratch }).is_ok();
        self.pending.delete |= scalar && &scratch[4..] == wanted.as_bytes();
    }

    /// A value that is refused. If the row is a delete, only its key counts, which is not known
    /// before its end.
    #[cold]
    fn refuse(&mut self, column: u16, start: usize, fault: Fault) -> Result<(), Fault> {
        let fault = fault.column(&self.table.columns[usize::from(column)].name);
        if self.table.delete_when.is_none() || self.table.key.contains(&column) {
            return Err(fault);
        }
        self.rows.bytes.truncate(start);
        self.pending.layout.pop();
        self.pending.fault.get_or_insert(fault);
        Ok(())
    }

    #[cold]
    fn twice(&self, column: usize) -> Fault {
        let name = &self.table.columns[column].name;
        let reason = format!("the row has two fields for column `{name}`");
        Fault::new(sqlstate::DUPLICATE_COLUMN, reason).column(name)
    }

    #[cold]
    fn unknown(&self, name: &str) -> Fault {
        let Table { schema, name: table, .. } = &*self.table;
        let reason = format!("no column {} in table `{schema}.{table}`", quoted(name));
        Fault::new(sqlstate::UNDEFINED_COLUMN, reason).column(name)
    }
}

/// Takes a row apart.
pub(super) struct RowSerializer<'a> {
    /// Where its fields go.
    pub encoder: &'a mut RowEncoder,
}

/// The fields of a struct or the entries of a map.
pub(super) struct Fields<'a> {
    encoder: &'a mut RowEncoder,
    position: usize,
    /// What the last key of a map is.
    slot: Option<Slot>,
}

impl SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Fault;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), Fault> {
        let Some(slot) = self.encoder.columns.field(self.position, name) else {
            return Err(self.encoder.unknown(name));
        };
        self.position += 1;
        self.encoder.put_field(slot, value)
    }

    #[inline]
    fn skip_field(&mut self, _name: &'static str) -> Result<(), Fault> {
        self.position += 1;
        Ok(())
    }

    #[inline]
    fn end(self) -> Result<(), Fault> {
        Ok(())
    }
}

impl SerializeMap for Fields<'_> {
    type Ok = ();
    type Error = Fault;

    #[inline]
    fn serialize_key<K: Serialize + ?Sized>(&mut self, key: &K) -> Result<(), Fault> {
        let RowEncoder { pending: Pending { scratch, .. }, columns, .. } = &mut *self.encoder;
        scratch.clear();
        key.serialize(Value { cell: Cell::TEXT, out: scratch })?;
        let name = std::str::from_utf8(&scratch[4..]).expect("scalars print as UTF-8");
        self.slot = columns.entry(self.position, name);
        if self.slot.is_none() {
            let name = name.to_owned();
            return Err(self.encoder.unknown(&name));
        }
        self.position += 1;
        Ok(())
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Fault> {
        let slot = self.slot.take().expect("serde gives a key before its value");
        self.encoder.put_field(slot, value)
    }

    #[inline]
    fn end(self) -> Result<(), Fault> {
        Ok(())
    }
}

#[cold]
fn no_row(what: &str) -> Fault {
    let reason = format!("a row must be a struct or a map, and this is {what}");
    Fault::new(sqlstate::MISMATCH, reason)
}

macro_rules! no_rows {
    ($($name:ident: $type:ty => $what:literal),* $(,)?) => {
        $(fn $name(self, _: $type) -> Result<(), Fault> {
            Err(no_row($what))
        })*
    };
}

type No = Impossible<(), Fault>;

impl<'a> Serializer for RowSerializer<'a> {
    type Ok = ();
    type Error = Fault;
    type SerializeSeq = No;
    type SerializeTuple = No;
    type SerializeTupleStruct = No;
    type SerializeTupleVariant = No;
    type SerializeMap = Fields<'a>;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = No;

    no_rows! {
        serialize_bool: bool => "a boolean",
        serialize_i8: i8 => "an integer",
        serialize_i16: i16 => "an integer",
        serialize_i32: i32 => "an integer",
        serialize_i64: i64 => "an integer",
        serialize_i128: i128 => "an integer",
        serialize_u8: u8 => "an integer",
        serialize_u16: u16 => "an integer",
        serialize_u32: u32 => "an integer",
        serialize_u64: u64 => "an integer",
        serialize_u128: u128 => "an integer",
        serialize_f32: f32 => "a float",
        serialize_f64: f64 => "a float",
        serialize_char: char => "a character",
        serialize_str: &str => "a text",
        serialize_bytes: &[u8] => "bytes",
        serialize_unit_struct: &'static str => "a struct without fields",
    }

    fn serialize_none(self) -> Result<(), Fault> {
        Err(no_row("nothing"))
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Fault> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Fault> {
        Err(no_row("nothing"))
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
    ) -> Result<(), Fault> {
        Err(no_row("a variant without fields"))
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
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<(), Fault> {
        Err(no_row(VARIANT))
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<No, Fault> {
        Err(no_row("a sequence"))
    }

    fn serialize_tuple(self, _len: usize) -> Result<No, Fault> {
        Err(no_row("a tuple"))
    }

    fn serialize_tuple_struct(self, _name: &'static str, _len: usize) -> Result<No, Fault> {
        Err(no_row("a tuple"))
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _len: usize,
    ) -> Result<No, Fault> {
        Err(no_row(VARIANT))
    }

    #[inline]
    fn serialize_map(self, _len: Option<usize>) -> Result<Fields<'a>, Fault> {
        Ok(Fields { encoder: self.encoder, position: 0, slot: None })
    }

    #[inline]
    fn serialize_struct(self, _name: &'static str, _len: usize) -> Result<Fields<'a>, Fault> {
        Ok(Fields { encoder: self.encoder, position: 0, slot: None })
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _len: usize,
    ) -> Result<No, Fault> {
        Err(no_row(VARIANT))
    }
}

const VARIANT: &str =
    "an enum's variant; give the enum `#[serde(tag = ..)]` or `#[serde(untagged)]`";
