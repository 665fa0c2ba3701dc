//! Finds the column of a field by its name.

use std::collections::HashMap;

use crate::sink::postgres::table::Table;

/// What a field of a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// Its column, if it has one.
    pub column: Option<u16>,
    /// Whether it says that the row is a delete.
    pub marker: bool,
}

/// The columns by name, with a memory for what the n-th field was last: nearly always the same.
pub(super) struct Columns {
    by_name: HashMap<Box<str>, Slot>,
    /// By position in a struct.
    fields: Vec<(&'static str, Slot)>,
    /// By position in a map.
    entries: Vec<(Box<str>, Slot)>,
    /// What a field without a column is, where it is not refused.
    extra: Option<Slot>,
}

impl Columns {
    /// The columns of `table`, and the field that marks deletes.
    pub fn new(table: &Table) -> Self {
        let mut by_name: HashMap<Box<str>, Slot> = (0_u16..)
            .zip(&table.columns)
            .map(|(index, column)| {
                (column.name.as_str().into(), Slot { column: Some(index), marker: false })
            })
            .collect();
        if let Some((field, _)) = &table.delete_when {
            let slot = Slot { column: None, marker: true };
            by_name.entry(field.as_str().into()).or_insert(slot).marker = true;
        }
        let extra = table.ignore_extra.then_some(Slot { column: None, marker: false });
        Columns { by_name, fields: Vec::new(), entries: Vec::new(), extra }
    }

    /// What the field `name` is, which stands at `position` of a struct.
    #[inline]
    pub fn field(&mut self, position: usize, name: &'static str) -> Option<Slot> {
        match self.fields.get(position) {
            // The same address and length is the same text, as it lives for ever.
            Some((known, slot)) if std::ptr::eq(*known, name) || *known == name => Some(*slot),
            _ => self.other_field(position, name),
        }
    }

    #[cold]
    fn other_field(&mut self, position: usize, name: &'static str) -> Option<Slot> {
        let slot = self.by_name.get(name).copied().or(self.extra)?;
        remember(&mut self.fields, position, (name, slot));
        Some(slot)
    }

    /// What the entry `name` is, which stands at `position` of a map.
    #[inline]
    pub fn entry(&mut self, position: usize, name: &str) -> Option<Slot> {
        match self.entries.get(position) {
            Some((known, slot)) if **known == *name => Some(*slot),
            _ => self.other_entry(position, name),
        }
    }

    #[cold]
    fn other_entry(&mut self, position: usize, name: &str) -> Option<Slot> {
        let slot = self.by_name.get(name).copied().or(self.extra)?;
        match self.entries.get_mut(position) {
            // Maps with other keys come in turns more often than once: look up, do not copy.
            Some(_) => {}
            None => remember(&mut self.entries, position, (name.into(), slot)),
        }
        Some(slot)
    }
}

/// Keeps `value` at `position`; one behind the end means that a field before was unknown, and its row
/// is refused.
fn remember<T>(memory: &mut Vec<T>, position: usize, value: T) {
    if position < memory.len() {
        memory[position] = value;
    } else if position == memory.len() {
        memory.push(value);
    }
}
