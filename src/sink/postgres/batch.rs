//! Changes of a table in the shape in which they are copied: per list of columns, as few large pieces as
//! possible.
//!
//! Rows of one key become one put wherever the server cannot tell the difference. Where a later row lacks
//! columns of an earlier one, and the server judges more of a row than its encoder does (a CHECK, a
//! foreign key), it is shown both: the n-th row of each key in round n. Where what becomes of one key's
//! row depends on others' (triggers, references of the table to itself), it is shown every row, in the order of arrival.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::arrived::{Arrived, RowId};

/// Tuples of the same columns, ready for COPY.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tuples {
    /// Which shape of the table they were encoded for.
    pub version: usize,
    /// Their columns, as indexes into the table's.
    pub columns: Vec<u16>,
    /// The tuples, back to back.
    pub pieces: Vec<Bytes>,
    /// The unit of each tuple, by its place among those that were gathered.
    pub units: Vec<u32>,
}

/// What is to be done to one table, round by round.
#[derive(Debug, Default)]
pub(super) struct Batch(pub Vec<Round>);

/// What is done at once. No key is twice among its puts.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// The keys of rows to delete first, as tuples of the key columns.
    pub deletes: Vec<Tuples>,
    /// The rows to put, per list of columns.
    pub puts: Vec<Tuples>,
}

impl Batch {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All tuples.
    pub fn tuples(&self) -> impl Iterator<Item = &Tuples> {
        self.0.iter().flat_map(|round| round.deletes.iter().chain(&round.puts))
    }

    fn of(rounds: impl IntoIterator<Item = Round>) -> Self {
        let some = |round: &Round| !round.deletes.is_empty() || !round.puts.is_empty();
        Batch(rounds.into_iter().filter(some).collect())
    }
}

/// How rows of one key become changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Collapse<'a> {
    /// The key's columns in each shape of the table.
    pub keys: &'a [Vec<u16>],
    /// Whether a row that is there stays.
    pub insert_only: bool,
    /// Whether the server judges rows by more than their encoder does, so that it must see each row
    /// whose columns count.
    pub judged: bool,
    /// Whether equal keys may differ in their bytes: the first row's stay.
    pub spelled: bool,
}

/// The rows of `units`, to be appended. Not a byte is copied.
pub(super) fn append<'a>(rows: &Arrived, units: impl Iterator<Item = &'a [RowId]>) -> Batch {
    let mut all = All::default();
    let mut run: Option<(RowId, RowId)> = None;
    let mut close = |run: Option<(RowId, RowId)>, units: &mut Vec<u32>| {
        let Some((first, last)) = run else { return };
        let tuples = all.of(rows.version(first), rows.columns(first));
        tuples.pieces.push(rows.tuples(first, last));
        tuples.units.append(units);
    };
    let mut members = Vec::new();
    let numbered =
        (0..).zip(units).flat_map(|(unit, rows)| rows.iter().map(move |row| (unit, *row)));
    for (unit, row) in numbered {
        match &mut run {
            Some((_, last)) if rows.follows(*last, row) => *last = row,
            _ => {
                close(run, &mut members);
                run = Some((row, row));
            }
        }
        members.push(unit);
    }
    close(run, &mut members);
    Batch::of([Round { deletes: Vec::new(), puts: all.0 }])
}

/// The rows of `units`, each of one key, as they came: as many at once as follow on each other with the
/// same columns and different keys. `keys` are the key's columns in each shape of the table.
pub(super) fn one_by_one<'a>(
    rows: &Arrived,
    keys: &[Vec<u16>],
    units: impl Iterator<Item = &'a [RowId]>,
) -> Batch {
    let mut order: Vec<(RowId, u32)> = (0..)
        .zip(units)
        .flat_map(|(unit, rows)| rows.iter().map(move |row| (*row, unit)))
        .collect();
    order.sort_unstable();
    let mut rounds: Vec<(bool, Buffers)> = Vec::new();
    // In which round each unit was last.
    let mut last =
        vec![usize::MAX; order.iter().map(|(_, unit)| *unit as usize + 1).max().unwrap_or(0)];
    for (row, unit) in order {
        let (delete, version) = (rows.is_delete(row), rows.version(row));
        let columns = if delete { &keys[version] } else { rows.columns(row) };
        let joins = rounds.last().is_some_and(|(deletes, round)| {
            *deletes == delete
                && last[unit as usize] != rounds.len() - 1
                && round.takes(version, columns)
        });
        if !joins {
            rounds.push((delete, Buffers::default()));
        }
        last[unit as usize] = rounds.len() - 1;
        let Some((_, round)) = rounds.last_mut() else { continue };
        if delete {
            round.delete(rows, row, columns, unit);
        } else {
            round.put(rows, row, unit);
        }
    }
    Batch::of(rounds.into_iter().map(|(delete, round)| match delete {
        true => Round { deletes: round.finish(), puts: Vec::new() },
        false => Round { deletes: Vec::new(), puts: round.finish() },
    }))
}

/// The rows of `units`, each of one key, reduced to as few changes a key as equal applying the rows one
/// by one, provided that each change is taken: the deletes, then the puts.
pub(super) fn collapse<'a>(
    rows: &Arrived,
    how: Collapse<'_>,
    units: impl Iterator<Item = &'a [RowId]>,
) -> Batch {
    let (mut deletes, mut rounds) = (Buffers::default(), Vec::<Buffers>::new());
    let mut chain = Vec::new();
    for (unit, same) in (0..).zip(units) {
        let Some(survivor) = rows.survivor(same, how.insert_only) else { continue };
        // What came before the last delete is gone with it; what the puts after it lack has its
        // default, not the old row's value.
        let cut = same.iter().rposition(|row| rows.is_delete(*row));
        if cut.is_some() {
            deletes.delete(rows, survivor, &how.keys[rows.version(survivor)], unit);
        }
        let mut after = &same[cut.map_or(0, |cut| cut + 1)..];
        if how.insert_only {
            after = &after[..after.len().min(1)];
        }
        chain_of(rows, after, how.spelled, &mut chain);
        let one_shape = || chain.iter().all(|row| rows.version(*row) == rows.version(survivor));
        let merged = chain.len() > 1 && !how.judged && one_shape();
        let wanted = if merged { 1 } else { chain.len() };
        rounds.resize_with(rounds.len().max(wanted), Buffers::default);
        if merged {
            let version = rows.version(survivor);
            rounds[0].merge(rows, &chain, &how.keys[version], version, unit);
            continue;
        }
        for (row, round) in chain.iter().zip(&mut rounds) {
            round.put(rows, *row, unit);
        }
    }
    let mut rounds = rounds.into_iter().map(Buffers::finish);
    let first = Round { deletes: deletes.finish(), puts: rounds.next().unwrap_or_default() };
    let others = rounds.map(|puts| Round { deletes: Vec::new(), puts });
    Batch::of(std::iter::once(first).chain(others))
}

/// Of `puts`, rows of one key in their order, those whose values can outlive the row that follows:
/// the last one, and each that has a column which the next of them lacks, or, where keys are `spelled`, a
/// key in other bytes.
fn chain_of(rows: &Arrived, puts: &[RowId], spelled: bool, chain: &mut Vec<RowId>) {
    chain.clear();
    for row in puts.iter().rev() {
        let columns = rows.columns(*row);
        let covered = chain.last().is_some_and(|next| {
            let over = rows.columns(*next);
            rows.version(*next) == rows.version(*row)
                && (!spelled || rows.key(*next) == rows.key(*row))
                && (over == columns || columns.iter().all(|column| over.contains(column)))
        });
        if !covered {
            chain.push(*row);
        }
    }
    chain.reverse();
}

fn field_count(fields: usize) -> [u8; 2] {
    u16::try_from(fields).expect("a table has at most 1600 columns").to_be_bytes()
}

/// Tuples by their columns.
#[derive(Default)]
struct All(Vec<Tuples>);

impl All {
    fn of(&mut self, version: usize, columns: &[u16]) -> &mut Tuples {
        let known = |tuples: &Tuples| tuples.version == version && tuples.columns == columns;
        let at = self.0.iter().position(known).unwrap_or_else(|| {
            self.0.push(Tuples { version, columns: columns.to_vec(), ..Tuples::default() });
            self.0.len() - 1
        });
        &mut self.0[at]
    }
}

/// Tuples that are copied together.
#[derive(Default)]
struct Buffers(Vec<(Tuples, Vec<u8>)>);

impl Buffers {
    /// Where the tuple of `unit` goes.
    fn of(&mut self, version: usize, columns: &[u16], unit: u32) -> &mut Vec<u8> {
        let known = |(t, _): &(Tuples, _)| t.version == version && t.columns == columns;
        let at = self.0.iter().position(known).unwrap_or_else(|| {
            let tuples = Tuples { version, columns: columns.to_vec(), ..Tuples::default() };
            self.0.push((tuples, Vec::new()));
            self.0.len() - 1
        });
        let (tuples, bytes) = &mut self.0[at];
        tuples.units.push(unit);
        bytes
    }

    /// Adds the row as it is.
    fn put(&mut self, rows: &Arrived, row: RowId, unit: u32) {
        let bytes = self.of(rows.version(row), rows.columns(row), unit);
        bytes.extend_from_slice(rows.tuple(row));
    }

    /// Adds the key of the row.
    fn delete(&mut self, rows: &Arrived, row: RowId, key: &[u16], unit: u32) {
        let bytes = self.of(rows.version(row), key, unit);
        bytes.extend_from_slice(&field_count(key.len()));
        bytes.extend_from_slice(rows.key(row));
    }

    /// Whether a tuple of these columns is copied with all that are here.
    fn takes(&self, version: usize, columns: &[u16]) -> bool {
        self.0.iter().all(|(tuples, _)| tuples.version == version && tuples.columns == columns)
    }

    /// One tuple with the last value of every column that any of the rows has, but of the key's with the
    /// first: an update leaves the key as it is.
    fn merge(&mut self, rows: &Arrived, same: &[RowId], key: &[u16], version: usize, unit: u32) {
        let mut last = BTreeMap::new();
        for row in same {
            let mut rest = &rows.tuple(*row)[2..];
            for column in rows.columns(*row) {
                let (field, after) = split_field(rest);
                let value = last.entry(*column).or_insert(field);
                if !key.contains(column) {
                    *value = field;
                }
                rest = after;
            }
        }
        let columns: Vec<u16> = last.keys().copied().collect();
        let bytes = self.of(version, &columns, unit);
        bytes.extend_from_slice(&field_count(columns.len()));
        last.values().for_each(|field| bytes.extend_from_slice(field));
    }

    fn finish(self) -> Vec<Tuples> {
        let whole =
            |(tuples, bytes): (Tuples, Vec<u8>)| Tuples { pieces: vec![bytes.into()], ..tuples };
        self.0.into_iter().map(whole).collect()
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
    use super::super::arrived::Units;
    use super::super::rows::Rows;
    use super::super::testing::{Row, rows};
    use super::*;

    struct Done {
        batch: Batch,
        /// Per unit, its last row.
        survivors: Vec<RowId>,
    }

    /// The tests' table, in as many shapes as a test needs.
    fn how(keys: &[Vec<u16>]) -> Collapse<'_> {
        Collapse { keys, insert_only: false, judged: false, spelled: false }
    }

    fn batch(script: &[&[Row]]) -> Done {
        let chunks: Vec<Rows> = script.iter().map(|chunk| rows(chunk)).collect();
        let rows = Arrived::new(chunks);
        let units = Units::by_bytes(&rows);
        let batch = collapse(&rows, how(&[vec![0]]), units.iter());
        let mut survivors: Vec<_> = units.iter().map(|unit| unit[unit.len() - 1]).collect();
        survivors.sort_unstable();
        Done { batch, survivors }
    }

    /// The tuples as a single put of each of these rows would have them.
    fn puts(script: &[Row]) -> Vec<Tuples> {
        let rows = Arrived::new(vec![rows(script)]);
        all_puts(&append(&rows, Units::singles(&rows).iter()))
    }

    fn joined(batch: &Batch) -> Vec<(Vec<u16>, Vec<u8>)> {
        shown(&all_puts(batch))
    }

    fn all_puts(batch: &Batch) -> Vec<Tuples> {
        batch.0.iter().flat_map(|round| round.puts.clone()).collect()
    }

    fn all_deletes(batch: &Batch) -> usize {
        batch.0.iter().map(|round| round.deletes.len()).sum()
    }

    fn shown(tuples: &[Tuples]) -> Vec<(Vec<u16>, Vec<u8>)> {
        tuples.iter().map(|t| (t.columns.clone(), t.pieces.concat())).collect()
    }

    #[test]
    fn the_last_row_of_a_key_survives_whatever_chunk_it_is_in() {
        let first = Row::put(1, Some("a"), Some(1));
        let done = batch(&[&[first, Row::put(2, None, None)], &[Row::put(1, Some("b"), None)]]);
        assert_eq!(done.survivors, [1, 2]);
        assert_eq!(all_deletes(&done.batch), 0);
        let expected = puts(&[Row::put(1, Some("b"), None), Row::put(2, None, None)]);
        assert_eq!(joined(&done.batch), shown(&expected));
        assert_eq!(done.batch.0[0].puts[0].units, [0, 1]);
    }

    #[test]
    fn a_column_that_the_last_row_lacks_has_its_predecessors_value() {
        let done = batch(&[&[
            Row::put(1, Some("a"), Some(1)),
            Row::put(1, Some("b"), None).without_n(),
            Row::put(1, Some("c"), None).without_n(),
        ]]);
        let expected = puts(&[Row::put(1, Some("c"), Some(1))]);
        assert_eq!(joined(&done.batch), shown(&expected));
    }

    #[test]
    fn a_put_after_a_delete_starts_from_nothing() {
        let done = batch(&[&[
            Row::put(1, Some("a"), Some(1)),
            Row::delete(1),
            Row::put(1, Some("b"), None).without_n(),
        ]]);
        assert_eq!(done.survivors, [2]);
        assert_eq!(all_deletes(&done.batch), 1);
        let expected = puts(&[Row::put(1, Some("b"), None).without_n()]);
        assert_eq!(joined(&done.batch), shown(&expected));
    }

    #[test]
    fn rows_of_frames_that_met_again_count_in_the_order_of_their_records() {
        let put = |v, offset| Row::put(1, Some(v), Some(1)).offset(offset);
        // One frame's rows, then the other's; a tombstone goes to both.
        let (one, two) = ([put("a", 1), put("c", 3)], [put("b", 2)]);
        let parted = batch(&[&one, &two]);
        assert_eq!(joined(&parted.batch), shown(&puts(&one[1..])));
        let parted =
            batch(&[&[Row::delete(1).offset(1), put("a", 2)], &[Row::delete(1).offset(1)]]);
        assert_eq!(joined(&parted.batch), shown(&puts(&[put("a", 2)])));
    }

    #[test]
    fn a_delete_at_the_end_leaves_the_delete_alone() {
        let done = batch(&[&[Row::put(1, Some("a"), Some(1)), Row::delete(1)]]);
        assert!(all_puts(&done.batch).is_empty());
        assert_eq!(all_deletes(&done.batch), 1);
        assert_eq!(done.survivors, [1]);
    }

    #[test]
    fn where_a_row_that_is_there_stays_the_first_one_does() {
        let put = |v| Row::put(1, Some(v), None);
        let rows =
            Arrived::new(vec![rows(&[put("a"), put("b"), Row::delete(1), put("c"), put("d")])]);
        let units = Units::by_bytes(&rows);
        let keys = [vec![0]];
        let how = Collapse { insert_only: true, ..how(&keys) };
        let batch = collapse(&rows, how, units.iter());
        assert_eq!((all_deletes(&batch), rows.survivor(units.get(0), true)), (1, Some(3)));
        assert_eq!(joined(&batch), shown(&puts(&[put("c")])));
        let batch = collapse(&rows, how, [&[0, 1][..]].into_iter());
        assert_eq!(joined(&batch), shown(&puts(&[put("a")])));
        assert_eq!(all_deletes(&batch), 0);
    }

    #[test]
    fn rows_encoded_for_different_shapes_come_in_rounds() {
        let mut later = rows(&[Row::put(1, None, Some(2))]);
        later.version = 1;
        let rows = Arrived::new(vec![rows(&[Row::put(1, Some("a"), Some(1))]), later]);
        let keys = [vec![0], vec![0]];
        let batch = collapse(&rows, how(&keys), Units::by_bytes(&rows).iter());
        let versions = |tuples: &[Tuples]| tuples.iter().map(|t| t.version).collect::<Vec<_>>();
        assert_eq!(batch.0.len(), 2);
        assert_eq!(versions(&all_puts(&batch)), [0, 1]);
        let appended = append(&rows, Units::singles(&rows).iter());
        assert_eq!(versions(&all_puts(&appended)), [0, 1]);
    }

    #[test]
    fn a_server_that_judges_rows_sees_each_whose_columns_count() {
        let script = [
            Row::put(1, Some("gone"), Some(0)),
            Row::put(1, Some("a"), Some(1)),
            Row::put(1, Some("b"), None).without_n(),
            Row::put(1, Some("c"), None).without_n(),
            Row::put(2, Some("d"), None),
            Row::put(1, None, Some(2)).without_v(),
        ];
        let rows = Arrived::new(vec![rows(&script)]);
        let keys = [vec![0]];
        let how = Collapse { judged: true, ..how(&keys) };
        let batch = collapse(&rows, how, Units::by_bytes(&rows).iter());
        let rounds: Vec<_> = batch.0.iter().map(|round| shown(&round.puts)).collect();
        let row = |index: usize| puts(&script[index..=index]);
        assert_eq!(rounds.len(), 3);
        assert_eq!(rounds[0], shown(&puts(&[script[1].clone(), script[4].clone()])));
        assert_eq!(rounds[1], shown(&row(3)));
        assert_eq!(rounds[2], shown(&row(5)));
    }

    #[test]
    fn the_first_spelling_of_a_key_stays() {
        // The key's bytes are the tiny encoder's: 1 and 2 stand for two spellings of one key.
        let rows = Arrived::new(vec![rows(&[
            Row::put(1, Some("a"), Some(1)),
            Row::put(2, Some("b"), Some(2)),
            Row::put(2, Some("c"), None).without_n(),
        ])]);
        let keys = [vec![0]];
        let units = || [&[0, 1, 2][..]].into_iter();
        let merged = collapse(&rows, Collapse { spelled: true, ..how(&keys) }, units());
        assert_eq!(joined(&merged), shown(&puts(&[Row::put(1, Some("c"), Some(2))])));
        let judged = Collapse { spelled: true, judged: true, ..how(&keys) };
        assert_eq!(collapse(&rows, judged, units()).0.len(), 3);
    }

    #[test]
    fn rows_in_their_order_are_put_together_while_they_are_alike() {
        let put = |k, v| Row::put(k, Some(v), Some(1));
        let script = [
            put(2, "a"),
            put(1, "b"),
            put(3, "c").without_n(),
            put(4, "d").without_n(),
            Row::delete(1),
            Row::delete(2),
            put(5, "e"),
            put(5, "f"),
            put(6, "g"),
        ];
        let rows = Arrived::new(vec![rows(&script)]);
        let batch = one_by_one(&rows, &[vec![0]], Units::by_bytes(&rows).iter());
        let sizes = |tuples: &[Tuples]| tuples.iter().map(|t| t.units.len()).sum::<usize>();
        let rounds: Vec<(usize, usize)> =
            batch.0.iter().map(|round| (sizes(&round.deletes), sizes(&round.puts))).collect();
        assert_eq!(rounds, [(0, 2), (0, 2), (2, 0), (0, 1), (0, 2)]);
        assert_eq!(shown(&batch.0[0].puts), shown(&puts(&script[..2])));
    }
}
