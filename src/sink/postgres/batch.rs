//! Changes of a table in the shape in which they are copied: per list of columns, as few large pieces as
//! possible.
//!
//! Rows of one key become one put wherever the server cannot tell the difference. Where a later row lacks
//! columns of an earlier one, and the server judges more of a row than its encoder does (a CHECK, a
//! trigger), it is shown both, in *rounds*: the n-th row of each key in round n.

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

/// What is to be done to one table.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// The keys of rows to delete first, as tuples of the key columns.
    pub deletes: Vec<Tuples>,
    /// The rows to put, round by round; of a round, per list of columns. No key is twice in a round.
    pub rounds: Vec<Vec<Tuples>>,
}

impl Batch {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.deletes.is_empty() && self.rounds.is_empty()
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
    let rounds = if all.0.is_empty() { Vec::new() } else { vec![all.0] };
    Batch { deletes: Vec::new(), rounds }
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
            let version = rows.version(survivor);
            let key = &how.keys[version];
            let bytes = deletes.of(version, key, unit);
            bytes.extend_from_slice(&field_count(key.len()));
            bytes.extend_from_slice(rows.key(survivor));
        }
        let mut after = &same[cut.map_or(0, |cut| cut + 1)..];
        if how.insert_only {
            after = &after[..after.len().min(1)];
        }
        chain_of(rows, after, &mut chain);
        let one_shape = || chain.iter().all(|row| rows.version(*row) == rows.version(survivor));
        let merged = chain.len() > 1 && !how.judged && one_shape();
        let wanted = if merged { 1 } else { chain.len() };
        rounds.resize_with(rounds.len().max(wanted), Buffers::default);
        if merged {
            rounds[0].merge(rows, &chain, rows.version(survivor), unit);
            continue;
        }
        for (row, round) in chain.iter().zip(&mut rounds) {
            let bytes = round.of(rows.version(*row), rows.columns(*row), unit);
            bytes.extend_from_slice(rows.tuple(*row));
        }
    }
    Batch { deletes: deletes.finish(), rounds: rounds.into_iter().map(Buffers::finish).collect() }
}

/// Of `puts`, rows of one key in their order, those whose values can outlive the row that follows:
/// the last one, and each that has a column which the next of them lacks.
fn chain_of(rows: &Arrived, puts: &[RowId], chain: &mut Vec<RowId>) {
    chain.clear();
    for row in puts.iter().rev() {
        let columns = rows.columns(*row);
        let covered = chain.last().is_some_and(|next| {
            let over = rows.columns(*next);
            rows.version(*next) == rows.version(*row)
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

    /// One tuple with the last value of every column that any of the rows has.
    fn merge(&mut self, rows: &Arrived, same: &[RowId], version: usize, unit: u32) {
        let mut last = BTreeMap::new();
        for row in same {
            let mut rest = &rows.tuple(*row)[2..];
            for column in rows.columns(*row) {
                let (field, after) = split_field(rest);
                last.insert(*column, field);
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
        Collapse { keys, insert_only: false, judged: false }
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
        append(&rows, Units::singles(&rows).iter()).rounds.concat()
    }

    fn joined(batch: &Batch) -> Vec<(Vec<u16>, Vec<u8>)> {
        shown(&batch.rounds.concat())
    }

    fn shown(tuples: &[Tuples]) -> Vec<(Vec<u16>, Vec<u8>)> {
        tuples.iter().map(|t| (t.columns.clone(), t.pieces.concat())).collect()
    }

    #[test]
    fn the_last_row_of_a_key_survives_whatever_chunk_it_is_in() {
        let first = Row::put(1, Some("a"), Some(1));
        let done = batch(&[&[first, Row::put(2, None, None)], &[Row::put(1, Some("b"), None)]]);
        assert_eq!(done.survivors, [1, 2]);
        assert!(done.batch.deletes.is_empty());
        let expected = puts(&[Row::put(1, Some("b"), None), Row::put(2, None, None)]);
        assert_eq!(joined(&done.batch), shown(&expected));
        assert_eq!(done.batch.rounds[0][0].units, [0, 1]);
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
        assert_eq!(done.batch.deletes.len(), 1);
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
        assert!(done.batch.rounds.is_empty());
        assert_eq!(done.batch.deletes.len(), 1);
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
        assert_eq!((batch.deletes.len(), rows.survivor(units.get(0), true)), (1, Some(3)));
        assert_eq!(joined(&batch), shown(&puts(&[put("c")])));
        let batch = collapse(&rows, how, [&[0, 1][..]].into_iter());
        assert_eq!(joined(&batch), shown(&puts(&[put("a")])));
        assert!(batch.deletes.is_empty());
    }

    #[test]
    fn rows_encoded_for_different_shapes_come_in_rounds() {
        let mut later = rows(&[Row::put(1, None, Some(2))]);
        later.version = 1;
        let rows = Arrived::new(vec![rows(&[Row::put(1, Some("a"), Some(1))]), later]);
        let keys = [vec![0], vec![0]];
        let batch = collapse(&rows, how(&keys), Units::by_bytes(&rows).iter());
        let versions = |tuples: &Vec<Tuples>| tuples.iter().map(|t| t.version).collect::<Vec<_>>();
        assert_eq!(batch.rounds.iter().map(versions).collect::<Vec<_>>(), [[0], [1]]);
        let appended = append(&rows, Units::singles(&rows).iter()).rounds.concat();
        assert_eq!(versions(&appended), [0, 1]);
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
        let rounds: Vec<_> = batch.rounds.iter().map(|round| shown(round)).collect();
        let row = |index: usize| puts(&script[index..=index]);
        assert_eq!(rounds.len(), 3);
        assert_eq!(rounds[0], shown(&puts(&[script[1].clone(), script[4].clone()])));
        assert_eq!(rounds[1], shown(&row(3)));
        assert_eq!(rounds[2], shown(&row(5)));
    }
}
