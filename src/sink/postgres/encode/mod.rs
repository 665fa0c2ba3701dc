//! Turns rows into COPY binary tuples, straight from serde: a row's fields are written by the types
//! of the columns with their names, with no value in between.
//!
//! What the server would refuse for the value alone is refused here, with its SQLSTATE, so that a
//! wrong row stops at itself and not its batch. What the server would change silently (an offset
//! dropped, a time cut to its date) is refused as well.

mod array;
mod bool;
mod bytea;
mod columns;
mod exact;
mod fault;
mod field;
mod float;
mod int;
mod json;
mod kind;
mod moment;
mod nested;
mod numeric;
mod raw;
mod row;
mod sequence;
mod temporal;
#[cfg(test)]
mod tests;
mod text;
mod tombstone;
mod uuid;
mod value;

use std::mem;
use std::sync::Arc;

use serde::Serialize;

use self::columns::Columns;
use self::fault::{Fault, sqlstate};
use self::kind::Cell;
use self::row::{Pending, RowSerializer};
use super::rows::{Entry, Rows};
use super::table::{Column, Table};
use crate::record::{At, Change, Refusal};
use crate::sink::{Chunk, Encoder};

pub(crate) use self::kind::{equal_bytes, is_binary, supported, takes_unit, takes_zone};

/// Encodes the rows of one table for one worker.
pub(crate) struct RowEncoder {
    table: Arc<Table>,
    /// What to know of each column to write it.
    cells: Vec<Cell>,
    /// Finds columns by name.
    columns: Columns,
    /// What was encoded since the last take.
    rows: Rows,
    /// The layout that the row before had.
    last_layout: u16,
    /// The row that is being written.
    pending: Pending,
}

impl RowEncoder {
    /// An encoder for `table`, whose columns were checked with [`supported`].
    pub(crate) fn new(table: Arc<Table>) -> Self {
        let cells = (0_u16..)
            .zip(&table.columns)
            .map(|(index, column)| {
                let not_null = column.not_null && table.judges_null;
                Cell::of(column, not_null || table.key.contains(&index))
            })
            .collect();
        let columns = Columns::new(&table);
        let pending = Pending::new(table.columns.len());
        RowEncoder { table, cells, columns, rows: Rows::default(), last_layout: 0, pending }
    }

    /// The rows are of the table's shape with this number.
    pub(crate) fn versioned(mut self, version: usize) -> Self {
        self.rows.version = version;
        self
    }

    fn put<T: Serialize>(&mut self, at: At, row: &T) -> Result<(), Fault> {
        let start = self.rows.bytes.len();
        // The number of fields, set when it is known.
        self.rows.bytes.extend_from_slice(&[0; 2]);
        self.pending.begin();
        row.serialize(RowSerializer { encoder: self })?;

        if self.pending.delete {
            if !self.table.key.is_empty() {
                self.put_key()?;
                self.rows.bytes.truncate(start);
                self.push(at, 0, true);
            } else {
                self.rows.bytes.truncate(start);
            }
            return Ok(());
        }
        if let Some(fault) = self.pending.fault.take() {
            return Err(fault);
        }
        self.put_key()?;
        let layout = self.layout()?;
        let count = (self.pending.layout.len() as u16).to_be_bytes();
        self.rows.bytes[start..start + 2].copy_from_slice(&count);
        self.push(at, layout, false);
        Ok(())
    }

    /// Copies the key's fields out of the tuple.
    #[inline]
    fn put_key(&mut self) -> Result<(), Fault> {
        for &column in &self.table.key {
            let Some(start) = self.pending.start(column) else { return Err(self.absent(column)) };
            self.rows.keys.extend_from_slice(field::at(start, &self.rows.bytes));
        }
        Ok(())
    }

    /// The number of the layout that the pending row has.
    #[inline]
    fn layout(&mut self) -> Result<u16, Fault> {
        let last = self.rows.layouts.get(usize::from(self.last_layout));
        if last != Some(&self.pending.layout) {
            self.last_layout = self.other_layout()?;
        }
        Ok(self.last_layout)
    }

    #[cold]
    fn other_layout(&mut self) -> Result<u16, Fault> {
        self.complete()?;
        let (layouts, layout) = (&mut self.rows.layouts, &self.pending.layout);
        let known = layouts.iter().position(|known| known == layout);
        let index = known.unwrap_or(layouts.len());
        let Ok(number) = u16::try_from(index) else {
            let reason = "a batch holds too many different sets of columns";
            return Err(Fault::new(sqlstate::LIMIT_EXCEEDED, reason));
        };
        if known.is_none() {
            layouts.push(layout.clone());
        }
        Ok(number)
    }

    /// Whether the pending row's layout has the columns that the server would miss; known layouts have.
    #[cold]
    fn complete(&mut self) -> Result<(), Fault> {
        let Table { columns, judges_null, .. } = &*self.table;
        let layout = &mut self.pending.layout;
        if *judges_null {
            for (index, column) in (0_u16..).zip(columns) {
                if column.not_null && !column.has_default && !layout.contains(&index) {
                    let reason =
                        format!("the row lacks the column `{}`, which has no default", column.name);
                    return Err(Fault::new(sqlstate::NOT_NULL, reason).column(&column.name));
                }
            }
        }
        if !layout.is_empty() {
            return Ok(());
        }
        // COPY knows no row without a column: name one whose default is NULL.
        let plain = |column: &Column| *judges_null && !column.has_default;
        match columns.iter().position(plain) {
            Some(column) => {
                layout.push(column as u16);
                field::null(&mut self.rows.bytes);
                Ok(())
            }
            None => Err(Fault::new(sqlstate::MISMATCH, "the row has no field")),
        }
    }

    #[inline]
    fn push(&mut self, at: At, layout: u16, delete: bool) {
        let (row_end, key_end) = (self.rows.bytes.len(), self.rows.keys.len());
        self.rows.entries.push(Entry { at, row_end, key_end, layout, delete });
    }

    /// The refusal of a row without the key column `column`.
    #[cold]
    fn absent(&self, column: u16) -> Fault {
        let name = &self.table.columns[usize::from(column)].name;
        let reason = format!("the row lacks the key column `{name}`");
        Fault::new(sqlstate::NOT_NULL, reason).column(name)
    }

    /// Drops what stands behind the last entry.
    fn roll_back(&mut self) {
        let (row_end, key_end) =
            self.rows.entries.last().map_or((0, 0), |entry| (entry.row_end, entry.key_end));
        self.rows.bytes.truncate(row_end);
        self.rows.keys.truncate(key_end);
    }
}

impl<T: Serialize> Encoder<T> for RowEncoder {
    fn encode(&mut self, at: At, change: &Change<T>) -> Result<(), Refusal> {
        // A row whose `Serialize` panicked left its beginning behind.
        self.roll_back();
        let done = match change {
            Change::Put(row) => self.put(at, row),
            Change::Delete(key) => self.delete(at, key.as_deref()),
        };
        done.map_err(|Fault(refusal)| {
            self.roll_back();
            *refusal
        })
    }

    fn buffered(&self) -> usize {
        self.rows.bytes.len() + self.rows.keys.len()
    }

    fn take(&mut self) -> Option<Chunk> {
        self.roll_back();
        if self.rows.entries.is_empty() {
            return None;
        }
        // The next chunk is most likely about as large: an eighth more than the last.
        let room = |len: usize| len + len / 8;
        let next = Rows {
            version: self.rows.version,
            layouts: Vec::new(),
            entries: Vec::with_capacity(room(self.rows.entries.len())),
            bytes: Vec::with_capacity(room(self.rows.bytes.len())),
            keys: Vec::with_capacity(room(self.rows.keys.len())),
        };
        let rows = mem::replace(&mut self.rows, next);
        let bytes = rows.bytes.len() + rows.keys.len();
        Some(Chunk { rows: rows.entries.len(), bytes, payload: Box::new(rows) })
    }
}
