//! The rows of a flush under one numbering, and which of them stand or fall together.

use bytes::Bytes;

use super::rows::{Entry, Rows};
use crate::position::in_order;
use crate::record::At;

/// The number of a row within its flush.
pub(super) type RowId = u32;

/// The rows of several chunks, in the order of their arrival; where frames that part and meet again have
/// mixed up the rows of a partition, in the order of their offsets. They are kept until the transaction
/// succeeded.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    chunks: Vec<Chunk>,
    /// Chunk and entry of each row.
    places: Vec<(u32, u32)>,
}

#[derive(Debug)]
struct Chunk {
    version: usize,
    layouts: Vec<Vec<u16>>,
    entries: Vec<Entry>,
    bytes: Bytes,
    keys: Vec<u8>,
}

impl Arrived {
    pub fn new(chunks: Vec<Rows>) -> Self {
        let chunks: Vec<Chunk> = chunks
            .into_iter()
            .map(|Rows { version, layouts, entries, bytes, keys }| Chunk {
                version,
                layouts,
                entries,
                bytes: bytes.into(),
                keys,
            })
            .collect();
        let mut places = Vec::with_capacity(chunks.iter().map(|rows| rows.entries.len()).sum());
        for (chunk, rows) in (0..).zip(&chunks) {
            places.extend((0..).zip(&rows.entries).map(|(entry, _)| (chunk, entry)));
        }
        let at = |(chunk, entry): &(u32, u32)| chunks[*chunk as usize].entries[*entry as usize].at;
        if !in_order(places.iter().map(at)) {
            // Not by ordinals, which say nothing where one `flat_map` follows another.
            places.sort_by_key(|place| (at(place).lane(), at(place).offset));
        }
        Arrived { chunks, places }
    }

    pub fn len(&self) -> u32 {
        u32::try_from(self.places.len()).expect("a flush is bounded far below 4 billion rows")
    }

    fn place(&self, row: RowId) -> (&Chunk, usize) {
        let (chunk, entry) = self.places[row as usize];
        (&self.chunks[chunk as usize], entry as usize)
    }

    fn entry(&self, row: RowId) -> &Entry {
        let (chunk, entry) = self.place(row);
        &chunk.entries[entry]
    }

    /// The coordinates of its record.
    pub fn at(&self, row: RowId) -> At {
        self.entry(row).at
    }

    /// Whether the row of its key is to be deleted.
    pub fn is_delete(&self, row: RowId) -> bool {
        self.entry(row).delete
    }

    /// Which shape of the table it was encoded for.
    pub fn version(&self, row: RowId) -> usize {
        self.place(row).0.version
    }

    /// The fields of the key columns.
    pub fn key(&self, row: RowId) -> &[u8] {
        let (chunk, entry) = self.place(row);
        let start = entry.checked_sub(1).map_or(0, |before| chunk.entries[before].key_end);
        &chunk.keys[start..chunk.entries[entry].key_end]
    }

    /// The tuple.
    pub fn tuple(&self, row: RowId) -> &[u8] {
        let (chunk, entry) = self.place(row);
        &chunk.bytes[start(chunk, entry)..chunk.entries[entry].row_end]
    }

    /// The columns of the tuple.
    pub fn columns(&self, row: RowId) -> &[u16] {
        let (chunk, entry) = self.place(row);
        &chunk.layouts[usize::from(chunk.entries[entry].layout)]
    }

    /// The tuples of the rows from `first` to `last`, which follow on each other; not a byte is copied.
    pub fn tuples(&self, first: RowId, last: RowId) -> Bytes {
        let (chunk, entry) = self.place(first);
        chunk.bytes.slice(start(chunk, entry)..self.entry(last).row_end)
    }

    /// Which of `unit`, rows of one key in their order, is the one that stands in the end: the last, or,
    /// where a row that is there stays, the first after the last delete.
    pub fn survivor(&self, unit: &[RowId], insert_only: bool) -> Option<RowId> {
        if !insert_only {
            return unit.last().copied();
        }
        let cut = unit.iter().rposition(|row| self.is_delete(*row));
        unit.get(cut.map_or(0, |cut| cut + 1)).or(unit.last()).copied()
    }

    /// Whether the tuple of `next` follows on that of `row` and has the same columns.
    pub fn follows(&self, row: RowId, next: RowId) -> bool {
        let (chunk, entry) = self.places[row as usize];
        let (next_chunk, next_entry) = self.places[next as usize];
        chunk == next_chunk
            && entry + 1 == next_entry
            && self.entry(row).layout == self.entry(next).layout
    }
}

fn start(chunk: &Chunk, entry: usize) -> usize {
    entry.checked_sub(1).map_or(0, |before| chunk.entries[before].row_end)
}

/// Rows that are written by one change of the table: for an append each row for itself, with a key all
/// rows of one key, of which the last survives.
#[derive(Debug, Default)]
pub(super) struct Units {
    order: Vec<RowId>,
    /// Where each unit ends in `order`; `None` where each has one row.
    ends: Option<Vec<u32>>,
}

impl Units {
    /// Each row for itself. Deletes have nothing to delete by: such a record counts as filtered.
    pub fn singles(rows: &Arrived) -> Self {
        let order = (0..rows.len()).filter(|row| !rows.is_delete(*row)).collect();
        Units { order, ends: None }
    }

    /// The rows of each key, by the bytes of the key, sorted by them: the same order in every writer,
    /// so that two of them do not wait for each other's rows crosswise.
    pub fn by_bytes(rows: &Arrived) -> Self {
        let mut order: Vec<(u64, RowId)> =
            (0..rows.len()).map(|row| (prefix(rows.key(row)), row)).collect();
        order.sort_unstable_by(|a, b| {
            a.0.cmp(&b.0).then_with(|| rows.key(a.1).cmp(rows.key(b.1))).then(a.1.cmp(&b.1))
        });
        Self::grouped(&order, |a, b| a.0 == b.0 && rows.key(a.1) == rows.key(b.1))
    }

    /// The rows of each group, sorted by it.
    pub fn by_group(mut groups: Vec<(i64, RowId)>) -> Self {
        groups.sort_unstable();
        Self::grouped(&groups, |a, b| a.0 == b.0)
    }

    fn grouped<G>(rows: &[(G, RowId)], same: impl Fn(&(G, RowId), &(G, RowId)) -> bool) -> Self {
        let mut ends = Vec::with_capacity(rows.len());
        let mut end = 0;
        for unit in rows.chunk_by(same) {
            end += unit.len() as u32;
            ends.push(end);
        }
        Units { order: rows.iter().map(|(_, row)| *row).collect(), ends: Some(ends) }
    }

    pub fn len(&self) -> usize {
        self.ends.as_ref().map_or(self.order.len(), Vec::len)
    }

    /// Whether any unit has more than one row.
    pub fn has_several(&self) -> bool {
        self.iter().any(|unit| unit.len() > 1)
    }

    /// The rows of unit `index`, in their order.
    pub fn get(&self, index: usize) -> &[RowId] {
        let Some(ends) = &self.ends else { return &self.order[index..=index] };
        let start = index.checked_sub(1).map_or(0, |before| ends[before]);
        &self.order[start as usize..ends[index] as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &[RowId]> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// Adds a unit of these rows.
    pub fn push(&mut self, rows: impl IntoIterator<Item = RowId>) {
        self.order.extend(rows);
        let end = self.order.len() as u32;
        self.ends.get_or_insert_default().push(end);
    }

    /// The number of each row's unit, of `rows` rows.
    pub fn of_rows(&self, rows: u32) -> Vec<u32> {
        let mut units = vec![u32::MAX; rows as usize];
        for (unit, rows) in (0..).zip(self.iter()) {
            rows.iter().for_each(|row| units[*row as usize] = unit);
        }
        units
    }

    /// All units in the order in which their last rows arrived.
    pub fn by_arrival(&self) -> Vec<usize> {
        let mut units: Vec<usize> = (0..self.len()).collect();
        units.sort_by_key(|unit| self.get(*unit).last().copied());
        units
    }
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
