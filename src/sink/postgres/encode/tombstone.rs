//! Deletes by a tombstone's record key.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Serialize;
use serde::de::IgnoredAny;

use super::fault::{Fault, sqlstate};
use super::kind::Cell;
use super::raw::{self, Raw};
use super::value::{Text, Value};
use super::{RowEncoder, json};
use crate::codec::exact::RawJson;
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
        let object = object(text)?;
        match self.table.key[..] {
            [column] => match object.as_ref().and_then(|object| object.get(self.name(column))) {
                Some(value) => self.put_part(column, &RawJson(value))?,
                None => self.put_text(column, text)?,
            },
            _ => {
                let object = object.ok_or_else(|| {
                    let reason = "the key of a tombstone is not a JSON object with the key columns";
                    Fault::new(sqlstate::TEXT_REPRESENTATION, reason)
                })?;
                for index in 0..self.table.key.len() {
                    let column = self.table.key[index];
                    let value = object.get(self.name(column)).ok_or_else(|| self.absent(column))?;
                    self.put_part(column, &RawJson(value))?;
                }
            }
        }
        self.push(at, 0, true);
        Ok(())
    }

    fn put_part<T: Serialize + ?Sized>(&mut self, column: u16, part: &T) -> Result<(), Fault> {
        let cell: Cell = self.cells[usize::from(column)];
        let out = &mut self.rows.keys;
        let done = if cell.is_json() {
            json::put(cell, part, out)
        } else {
            part.serialize(Value { cell, out })
        };
        done.map_err(|fault| fault.column(&self.table.columns[usize::from(column)].name))
    }

    fn put_text(&mut self, column: u16, text: &str) -> Result<(), Fault> {
        let cell: Cell = self.cells[usize::from(column)];
        Text(text)
            .put(cell, &mut self.rows.keys)
            .map_err(|fault| fault.column(&self.table.columns[usize::from(column)].name))
    }

    fn name(&self, column: u16) -> &str {
        &self.table.columns[usize::from(column)].name
    }
}

/// The members of a JSON object, each value as it was written; of two of one name the last counts.
fn object(text: &str) -> Result<Option<HashMap<Cow<'_, str>, &str>>, Fault> {
    if !text.starts_with('{') || serde_json::from_str::<IgnoredAny>(text).is_err() {
        return Ok(None);
    }
    let mut members = HashMap::new();
    let mut parts = raw::parts(text.trim_end());
    while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
        if let Raw::String(name) = Raw::of(name) {
            members.insert(raw::unescape(name)?, value);
        }
    }
    Ok(Some(members))
}
