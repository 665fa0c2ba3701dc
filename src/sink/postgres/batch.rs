//! The rows of one flush in the shape in which they are copied: per list of columns, as few large
//! pieces as possible. They are kept until the transaction succeeded.

use bytes::Bytes;

use super::rows::Rows;
use super::table::Table;
use crate::position::{Outcome, in_order};
use crate::record::At;

/// Tuples of the same columns, ready for COPY.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tuples {
    /// Their columns, as indexes into the table's.
    pub columns: Vec<u16>,
    /// The tuples, back to back.
    pub pieces: Vec<Bytes>,
}

/// What is to be done to one table.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The keys of rows to delete first, as tuples of the key columns.
    pub deletes: Option<Tuples>,
    /// The rows to put, per list of columns.
    pub puts: Vec<Tuples>,
    /// What becomes of each row.
    pub outcomes: Vec<(At, Outcome)>,
}

/// All rows of `chunks`, to be appended. Not a byte is copied.
pub(super) fn append(chunks: Vec<Rows>) -> Batch {
    let mut batch = Batch::default();
    batch.outcomes.reserve(chunks.iter().map(|rows| rows.entries.len()).sum());
    for rows in chunks {
        let bytes = Bytes::from(rows.bytes);
        let mut start = 0;
        for run in rows.entries.chunk_by(|a, b| a.layout == b.layout && a.delete == b.delete) {
            let end = run[run.len() - 1].row_end;
            let piece = start..end;
            start = end;
            // There is nothing to delete by: such a record counts as filtered.
            if run[0].delete {
                continue;
            }
            batch.outcomes.extend(run.iter().map(|entry| (entry.at, Outcome::Written)));
            let columns = &rows.layouts[usize::from(run[0].layout)];
            let tuples = position_of(&mut batch.puts, columns);
            batch.puts[tuples].pieces.push(bytes.slice(piece));
        }
    }
    batch
}

/// The index of the tuples of `columns`, which are added where they are new.
fn position_of(all: &mut Vec<Tuples>, columns: &[u16]) -> usize {
    all.iter().position(|tuples| tuples.columns == columns).unwrap_or_else(|| {
        all.push(Tuples { columns: columns.to_vec(), pieces: Vec::new() });
        all.len() - 1
    })
}

/// The rows of `chunks` reduced to one change a key, such that applying the deletes and then the puts
/// equals applying the rows one by one. Changes are sorted by key, the same order in every writer,
/// so that two of them do not wait for each other's rows crosswise.
pub(super) fn collapse(table: &Table, chunks: &[Rows]) -> Batch {
    let rows = Arrived::new(chunks);
    let mut order: Vec<(u64, u32)> =
        (0..rows.len()).map(|row| (prefix(rows.key(row)), row)).collect();
    order.sort_unstable_by(|a, b| {
        a.0.cmp(&b.0).then_with(|| rows.key(a.1).cmp(rows.key(b.1))).then(a.1.cmp(&b.1))
    });

    let mut deletes = Vec::new();
    let mut puts = Puts::default();
    let mut written = vec![false; order.len()];
    for same in order.chunk_by(|a, b| a.0 == b.0 && rows.key(a.1) == rows.key(b.1)) {
        let survivor = same[same.len() - 1].1;
        written[survivor as usize] = true;
        // What came before the last delete is gone with it; what the puts after it lack has its
        // default, not the old row's value.
        let cut = same.iter().rposition(|(_, row)| rows.is_delete(*row));
        if cut.is_some() {
            deletes.extend_from_slice(&field_count(table.key.len()));
            deletes.extend_from_slice(rows.key(survivor));
        }
        let after = &same[cut.map_or(0, |cut| cut + 1)..];
        match after {
            [] => {}
            [one] => puts.copy(&rows, one.1),
            several => {
                let last = rows.columns(survivor);
                let covered = several[..several.len() - 1].iter().all(|(_, row)| {
                    let columns = rows.columns(*row);
                    columns == last || columns.iter().all(|column| last.contains(column))
                });
                if covered {
                    puts.copy(&rows, survivor);
                } else {
                    puts.merge(&rows, several.iter().map(|(_, row)| *row));
                }
            }
        }
    }

    let outcomes = (0..rows.len())
        .map(|row| {
            let outcome = if written[row as usize] { Outcome::Written } else { Outcome::Collapsed };
            (rows.at(row), outcome)
        })
        .collect();
    let deletes = (!deletes.is_empty())
        .then(|| Tuples { columns: table.key.clone(), pieces: vec![deletes.into()] });
    Batch { deletes, puts: puts.finish(), outcomes }
}

/// The first bytes of a key's first value: most comparisons end here. What is equal in keys is equal
/// in prefixes.
fn prefix(key: &[u8]) -> u64 {
    let value = key.get(4..).unwrap_or_default();
    let mut first = [0; 8];
    let known = value.len().min(8);
    first[..known].copy_from_slice(&value[..known]);
    u64::from_be_bytes(first)
}

fn field_count(fields: usize) -> [u8; 2] {
    u16::try_from(fields).expect("a table has at most 1600 columns").to_be_bytes()
}

/// The rows of several chunks under one numbering, in the order of their arrival; where frames that
/// part and meet again have mixed up the rows of a partition, in the order of their offsets.
struct Arrived<'a> {
    chunks: &'a [Rows],
    /// Chunk and entry of each row.
    places: Vec<(u32, u32)>,
}

impl<'a> Arrived<'a> {
    fn new(chunks: &'a [Rows]) -> Self {
        let mut places = Vec::with_capacity(chunks.iter().map(|rows| rows.entries.len()).sum());
        for (chunk, rows) in (0..).zip(chunks) {
            places.extend((0..).zip(&rows.entries).map(|(entry, _)| (chunk, entry)));
        }
        let at = |(chunk, entry): &(u32, u32)| chunks[*chunk as usize].entries[*entry as usize].at;
        if !in_order(places.iter().map(at)) {
            // Not by ordinals, which say nothing where one `flat_map` follows another.
            places.sort_by_key(|place| (at(place).lane(), at(place).offset));
        }
        Arrived { chunks, places }
    }

    fn len(&self) -> u32 {
        u32::try_from(self.places.len()).expect("a flush is bounded far below 4 billion rows")
    }

    fn place(&self, row: u32) -> (&'a Rows, usize) {
        let (chunk, entry) = self.places[row as usize];
        (&self.chunks[chunk as usize], entry as usize)
    }

    fn at(&self, row: u32) -> At {
        let (rows, entry) = self.place(row);
        rows.entries[entry].at
    }

    fn is_delete(&self, row: u32) -> bool {
        let (rows, entry) = self.place(row);
        rows.entries[entry].delete
    }

    fn key(&self, row: u32) -> &'a [u8] {
        let (rows, entry) = self.place(row);
        let start = entry.checked_sub(1).map_or(0, |before| rows.entries[before].key_end);
        &rows.keys[start..rows.entries[entry].key_end]
    }

    fn tuple(&self, row: u32) -> &'a [u8] {
        let (rows, entry) = self.place(row);
        let start = entry.checked_sub(1).map_or(0, |before| rows.entries[before].row_end);
        &rows.bytes[start..rows.entries[entry].row_end]
    }

    fn columns(&self, row: u32) -> &'a [u16] {
        let (rows, entry) = self.place(row);
        &rows.layouts[usize::from(rows.entries[entry].layout)]
    }
}

/// The surviving puts, copied together per list of columns.
#[derive(Default)]
struct Puts(Vec<(Vec<u16>, Vec<u8>)>);

impl Puts {
    fn of(&mut self, columns: &[u16]) -> &mut Vec<u8> {
        let at = self.0.iter().position(|(known, _)| known == columns).unwrap_or_else(|| {
            self.0.push((columns.to_vec(), Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[at].1
    }

    fn copy(&mut self, rows: &Arrived<'_>, row: u32) {
        self.of(rows.columns(row)).extend_from_slice(rows.tuple(row));
    }

    /// One tuple with the last value of every column that any of the rows has.
    fn merge(&mut self, rows: &Arrived<'_>, same: impl Iterator<Item = u32>) {
        let mut last = std::collections::BTreeMap::new();
        for row in same {
            let mut rest = &rows.tuple(row)[2..];
            for column in rows.columns(row) {
                let (field, after) = split_field(rest);
                last.insert(*column, field);
                rest = after;
            }
        }
        let columns: Vec<u16> = last.keys().copied().collect();
        let bytes = self.of(&columns);
        bytes.extend_from_slice(&field_count(columns.len()));
        last.values().for_each(|field| bytes.extend_from_slice(field));
    }

    fn finish(self) -> Vec<Tuples> {
        self.0
            .into_iter()
            .map(|(columns, bytes)| Tuples { columns, pieces: vec![bytes.into()] })
            .collect()
    }
}

/// A field, its length in front, and what follows it.
fn split_field(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (length, _) = bytes.split_first_chunk().expect("a tuple has a field for each column");
    let value = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
    bytes.split_at(4 + value)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Row, rows, table};
    use super::*;

    fn batch(script: &[&[Row]]) -> Batch {
        let chunks: Vec<Rows> = script.iter().map(|chunk| rows(chunk)).collect();
        collapse(&table("t", &["k"]), &chunks)
    }

    fn written(batch: &Batch) -> Vec<bool> {
        batch.outcomes.iter().map(|(_, outcome)| *outcome == Outcome::Written).collect()
    }

    /// The tuples as a single put of each of these rows would have them.
    fn puts(script: &[Row]) -> Vec<Tuples> {
        append(vec![rows(script)]).puts
    }

    fn joined(tuples: &[Tuples]) -> Vec<(Vec<u16>, Vec<u8>)> {
        tuples.iter().map(|t| (t.columns.clone(), t.pieces.concat())).collect()
    }

    #[test]
    fn the_last_row_of_a_key_survives_whatever_chunk_it_is_in() {
        let first = Row::put(1, Some("a"), Some(1));
        let batch = batch(&[&[first, Row::put(2, None, None)], &[Row::put(1, Some("b"), None)]]);
        assert_eq!(written(&batch), [false, true, true]);
        assert!(batch.deletes.is_none());
        let expected = puts(&[Row::put(1, Some("b"), None), Row::put(2, None, None)]);
        assert_eq!(joined(&batch.puts), joined(&expected));
    }

    #[test]
    fn a_column_that_the_last_row_lacks_has_its_predecessors_value() {
        let batch = batch(&[&[
            Row::put(1, Some("a"), Some(1)),
            Row::put(1, Some("b"), None).without_n(),
            Row::put(1, Some("c"), None).without_n(),
        ]]);
        let expected = puts(&[Row::put(1, Some("c"), Some(1))]);
        assert_eq!(joined(&batch.puts), joined(&expected));
    }

    #[test]
    fn a_put_after_a_delete_starts_from_nothing() {
        let batch = batch(&[&[
            Row::put(1, Some("a"), Some(1)),
            Row::delete(1),
            Row::put(1, Some("b"), None).without_n(),
        ]]);
        assert_eq!(written(&batch), [false, false, true]);
        assert!(batch.deletes.is_some());
        let expected = puts(&[Row::put(1, Some("b"), None).without_n()]);
        assert_eq!(joined(&batch.puts), joined(&expected));
    }

    #[test]
    fn rows_of_frames_that_met_again_count_in_the_order_of_their_records() {
        let put = |v, offset| Row::put(1, Some(v), Some(1)).offset(offset);
        // One frame's rows, then the other's; a tombstone goes to both.
        let (one, two) = ([put("a", 1), put("c", 3)], [put("b", 2)]);
        let parted = batch(&[&one, &two]);
        assert_eq!(written(&parted), [false, false, true]); // in the order of the records
        assert_eq!(joined(&parted.puts), joined(&puts(&one[1..])));
        let parted =
            batch(&[&[Row::delete(1).offset(1), put("a", 2)], &[Row::delete(1).offset(1)]]);
        assert_eq!(written(&parted), [false, false, true]); // in the order of the records
        assert_eq!(joined(&parted.puts), joined(&puts(&[put("a", 2)])));
    }

    #[test]
    fn a_delete_at_the_end_leaves_the_delete_alone() {
        let batch = batch(&[&[Row::put(1, Some("a"), Some(1)), Row::delete(1)]]);
        assert!(batch.puts.is_empty());
        assert!(batch.deletes.is_some());
        assert_eq!(written(&batch), [false, true]);
    }
}
