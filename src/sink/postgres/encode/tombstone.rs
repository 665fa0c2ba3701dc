//! Deletes by a tombstone's record key.

use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::RowEncoder;
use super::fault::{Fault, sqlstate};
use super::kind::Cell;
use super::value::Value;
use crate::record::At;

impl RowEncoder {
    /// Adds the delete of the row with `key`: the text of the key column, or a JSON object that has
    /// the key columns. A table without a key has nothing to delete.
    pub(super) fn delete(&mut self, at: At, key: Option<&[u8]>) -> Result<(), Fault> {
        if self.table.key.is_empty() {
            return Ok(());
        }
        let Some(key) = key else {
            return Err(Fault::new(sqlstate::NOT_NULL, "a tombstone needs a key"));
        };
        let Ok(text) = std::str::from_utf8(key) else {
            return Err(Fault::new(sqlstate::CHARACTER, "the key of a tombstone is not UTF-8"));
        };
        let object = object(text);
        match self.table.key[..] {
            [column] => match object.as_ref().and_then(|object| object.get(self.name(column))) {
                Some(value) => self.put_part(column, value)?,
                None => self.put_part(column, text)?,
            },
            _ => {
                let object = object.ok_or_else(|| {
                    let reason = "the key of a tombstone is not a JSON object with the key columns";
                    Fault::new(sqlstate::TEXT_REPRESENTATION, reason)
                })?;
                for index in 0..self.table.key.len() {
                    let column = self.table.key[index];
                    let value = object.get(self.name(column)).ok_or_else(|| self.absent(column))?;
                    self.put_part(column, value)?;
                }
            }
        }
        self.push(at, 0, true);
        Ok(())
    }

    fn put_part<T: Serialize + ?Sized>(&mut self, column: u16, part: &T) -> Result<(), Fault> {
        let cell: Cell = self.cells[usize::from(column)];
        part.serialize(Value { cell, out: &mut self.rows.keys })
            .map_err(|fault| fault.column(&self.table.columns[usize::from(column)].name))
    }

    fn name(&self, column: u16) -> &str {
        &self.table.columns[usize::from(column)].name
    }
}

fn object(text: &str) -> Option<Map<String, Json>> {
    if !text.starts_with('{') {
        return None;
    }
    serde_json::from_str(text).ok()
}
