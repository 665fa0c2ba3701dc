//! Encoded rows on their way from encoder to writer.

use crate::record::At;

/// One row or delete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// The coordinates of its record.
    pub at: At,
    /// Where its tuple ends in [`Rows::bytes`]; it begins where the one before ends. A delete has none.
    pub row_end: usize,
    /// Where its key ends in [`Rows::keys`]; it begins where the one before ends.
    pub key_end: usize,
    /// Which of [`Rows::layouts`] its tuple has.
    pub layout: u16,
    /// Whether the row of its key is to be deleted.
    pub delete: bool,
}

/// The rows of one chunk, in the order in which they arrived.
///
/// A tuple stands as COPY binary has it: the number of fields (i16), then for each its length (i32,
/// -1 for NULL) and bytes, all big-endian
/// (<https://www.postgresql.org/docs/current/sql-copy.html>, "Binary Format"). A key is the fields of
/// the key columns in the order of [`Table::key`](super::table::Table::key), length and bytes each, without a count; tables
/// without a key keep none.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Which of the table's shapes they were encoded for.
    pub version: usize,
    /// The columns of a tuple, as indexes into the table's, in tuple order. Rows that lack a column
    /// (so that its default applies, or its old value stays) have a layout of their own.
    pub layouts: Vec<Vec<u16>>,
    /// One entry a row.
    pub entries: Vec<Entry>,
    /// The tuples, back to back.
    pub bytes: Vec<u8>,
    /// The keys, back to back.
    pub keys: Vec<u8>,
}
