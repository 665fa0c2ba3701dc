//! Random scripts against a model of ten lines.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::super::testing::Row;
use super::rig::{Rig, sink};

type Model = BTreeMap<i64, (Option<String>, Option<i32>)>;

/// What one row does to the table.
fn apply(model: &mut Model, row: &Row) {
    if row.delete {
        model.remove(&row.k);
        return;
    }
    let stored = model.entry(row.k).or_insert((None, Some(7)));
    stored.0 = row.v.clone().unwrap_or(stored.0.clone());
    stored.1 = row.n.unwrap_or(stored.1);
}

fn row() -> impl Strategy<Value = Row> {
    let v = prop::option::of(prop::option::of("[a-z]{0,3}"));
    let n = prop::option::of(prop::option::of(0..9_i32));
    (0..4_i64, v, n, prop::bool::weighted(0.25), 0..2)
        .prop_map(|(k, v, n, delete, partition)| Row { offset: 0, partition, k, v, n, delete })
}

/// Flushes of chunks of rows.
fn script() -> impl Strategy<Value = Vec<Vec<Vec<Row>>>> {
    let chunk = prop::collection::vec(row(), 0..6);
    let flush = prop::collection::vec(chunk, 1..4);
    prop::collection::vec(flush, 1..5)
}

/// As [`apply`], where the table refuses a 3 and a 5 in `n`.
fn apply_judged(model: &mut Model, row: &Row) {
    let mut after = model.clone();
    apply(&mut after, row);
    if after.values().all(|(_, n)| *n != Some(3) && *n != Some(5)) {
        *model = after;
    }
}

fn stored(rig: &mut Rig) -> Model {
    rig.place
        .client
        .query(&format!("select k, v, n from \"{}\".t", rig.place.tables), &[])
        .expect("the table is there")
        .iter()
        .map(|row| (row.get(0), (row.get(1), row.get(2))))
        .collect()
}

#[test]
fn rows_that_lack_columns_in_a_table_that_refuses_some_end_as_they_would_one_by_one() {
    let ddl = "create table @.t (k bigint primary key, v text, n integer default 7 check (n <> 3 and n <> 5))";
    let mut rig = Rig::new("judged", ddl, |p| vec![sink(p, "t").key("k")]);
    let mut writer = rig.begin();
    let mut model = Model::new();
    let mut runner = TestRunner::default();
    for _ in 0..60 {
        for flush in script().new_tree(&mut runner).expect("a script").current() {
            let chunks: Vec<&[Row]> = flush.iter().map(Vec::as_slice).collect();
            writer.write(rig.flush(&[&chunks])).expect("write");
            flush.iter().flatten().for_each(|row| apply_judged(&mut model, row));
            assert_eq!(stored(&mut rig), model, "after {flush:?}");
        }
    }
    let refused = rig.place.lines("select 1 from #.rejects").len();
    assert!(refused > 0, "no script had a row that is refused");
    rig.slices(); // the sums hold
}

#[test]
fn any_cuts_into_flushes_equal_applying_the_rows_one_by_one() {
    let mut rig = Rig::keyed("model");
    let mut writer = rig.begin();
    let mut model = Model::new();
    let mut written = 0;
    let mut runner = TestRunner::default();
    let mut flushes = Vec::new();
    for _ in 0..60 {
        flushes.extend(script().new_tree(&mut runner).expect("a script").current());
    }
    for flush in flushes {
        let chunks: Vec<&[Row]> = flush.iter().map(Vec::as_slice).collect();
        let made = rig.flush(&[&chunks]);
        writer.write(made).expect("write");
        for row in flush.iter().flatten() {
            apply(&mut model, row);
            written += 1;
        }
        assert_eq!(stored(&mut rig), model, "after {flush:?}");
    }
    let slices = rig.store.slices(super::rig::PIPELINE).expect("slices");
    assert_eq!(slices.iter().map(|slice| slice.counters.consumed).sum::<u64>(), written);
}
