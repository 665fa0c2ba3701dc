//! What a flush leaves in the tables.

use std::slice::from_ref;

use super::super::testing::Row;
use super::rig::{Rig, sink};
use crate::error::Kind;
use crate::record::{Offset, Policy, Refusal, Reject};

#[test]
fn appended_rows_and_their_position_move_together() {
    let ddl = "create table @.t (k bigint, v text, n integer)";
    let mut rig = Rig::new("append", ddl, |p| vec![sink(p, "t")]);
    let mut writer = rig.begin();
    let same = Row::put(1, Some("a"), None);
    let flush = rig.flush(&[&[
        &[same.clone(), same.clone()],
        &[Row::put(2, None, Some(5)).partition(3), Row::delete(1)],
    ]]);
    writer.write(flush).expect("write");
    assert_eq!(rig.rows(), ["(1,a,)", "(1,a,)", "(2,,5)"]);
    // The delete has nothing to delete by: it was filtered.
    assert_eq!(rig.slices(), ["3/1 3 2 0 2", "1/1 1 1 0 1"]);
    rig.write(&mut *writer, &[same]).expect("a second flush");
    assert_eq!(rig.slices(), ["4/2 4 3 0 3", "1/1 1 1 0 1"]);
}

#[test]
fn keyed_rows_collapse_as_if_applied_one_by_one() {
    let mut rig = Rig::keyed("collapse");
    let mut writer = rig.begin();
    let old = |k| Row::put(k, Some("old"), Some(1));
    rig.write(&mut *writer, &[old(1), old(2), old(3), old(4), old(5)]).expect("the first flush");
    rig.write(
        &mut *writer,
        &[
            // put, put: the last one, with the column that it lacks from the one before.
            Row::put(1, None, Some(2)),
            Row::put(1, Some("new"), None).without_n(),
            // put, delete
            Row::put(2, Some("new"), None),
            Row::delete(2),
            // delete, put: the default, not the old row's value.
            Row::delete(3),
            Row::put(3, Some("new"), None).without_n(),
            // a put without a column keeps the old row's value.
            Row::put(4, Some("new"), None).without_n(),
            Row::put(5, None, Some(9)).without_v(),
            // a new row has the default.
            Row::put(6, Some("new"), None).without_n(),
        ],
    )
    .expect("the second flush");
    assert_eq!(rig.rows(), ["(1,new,2)", "(3,new,7)", "(4,new,1)", "(5,old,9)", "(6,new,7)"]);
    assert_eq!(rig.slices(), ["14/2 14 11 3 11"]);
}

#[test]
fn a_flush_of_new_keys_and_one_with_a_known_key_end_alike() {
    let ddl = "create table @.t (k bigint primary key, v text, n integer default 7);
               create table @.u (k bigint primary key, v text, n integer)";
    let mut rig = Rig::new("fresh", ddl, |p| vec![sink(p, "t").key("k"), sink(p, "u").key("k")]);
    let mut writer = rig.begin();
    let put = |k, v| Row::put(k, Some(v), None).without_n();
    // All new; then one of the second table's is known, behind two thousand that are new; then new ones
    // again, while no trial is due.
    let mut more: Vec<Row> = (10..2010).map(|k| put(k, "more")).collect();
    more.push(put(9999, "known, and updated"));
    for (first, second) in [
        (vec![put(1, "a"), put(2, "b")], vec![put(9999, "known")]),
        (vec![put(3, "c")], more),
        (vec![put(4, "d"), put(1, "e")], vec![put(5, "f")]),
        (vec![put(6, "g")], vec![put(6, "h"), put(6, "i")]),
    ] {
        let flush = rig.flush(&[&[&first], &[&second]]);
        writer.write(flush).expect("write");
    }
    assert_eq!(rig.rows(), ["(1,e,7)", "(2,b,7)", "(3,c,7)", "(4,d,7)", "(6,g,7)"]);
    let others = "select k, v from @.u where v <> 'more' order by k";
    assert_eq!(rig.place.lines(others), ["(5,f)", "(6,i)", "(9999,\"known, and updated\")"]);
    assert_eq!(rig.place.lines("select count(*) from @.u"), ["(2003)"]);
    assert!(rig.place.lines("select 1 from #.rejects").is_empty());
}

#[test]
fn a_table_that_is_all_key_takes_the_same_row_twice() {
    let ddl = "create table @.t (k bigint, v text, n integer, unique (n, k, v))";
    let mut rig = Rig::new("all_key", ddl, |p| vec![sink(p, "t").key(["k", "v", "n"])]);
    let mut writer = rig.begin();
    // The tiny encoder's key is `k` alone, which is as good here.
    for _ in 0..2 {
        rig.write(&mut *writer, &[Row::put(1, Some("a"), Some(1))]).expect("write");
    }
    assert_eq!(rig.rows(), ["(1,a,1)"]);
}

#[test]
fn rows_without_a_column_get_its_default() {
    let ddl = "create table @.t (k bigint, v text default 'd', n integer default 7)";
    let mut rig = Rig::new("layouts", ddl, |p| vec![sink(p, "t")]);
    let mut writer = rig.begin();
    let full = Row::put(1, Some("a"), Some(1));
    let rows = [full.clone(), full.clone().without_n(), full.clone(), full.without_v()];
    rig.write(&mut *writer, &rows).expect("write");
    assert_eq!(rig.rows(), ["(1,a,1)", "(1,a,1)", "(1,a,7)", "(1,d,1)"]);
}

#[test]
fn two_tables_share_one_transaction() {
    let ddl = "create table @.t (k bigint, v text, n integer);
               create table @.u (k bigint primary key, v text check (v <> 'bad'), n integer)";
    let mut rig = Rig::new("two", ddl, |p| vec![sink(p, "t"), sink(p, "u").key("k")]);
    rig.policy = Policy::Stop;
    let mut writer = rig.begin();
    let good = Row::put(1, Some("good"), None);
    let flush = rig.flush(&[&[from_ref(&good)], &[from_ref(&good)]]);
    writer.write(flush).expect("both");
    assert_eq!(rig.slices(), ["1/1 1 1 0 1", "1/1 1 1 0 1"]);
    let flush = rig.flush(&[&[&[good]], &[&[Row::put(2, Some("bad"), None)]]]);
    let error = writer.write(flush).expect_err("the second table refuses");
    assert_eq!(error.kind(), Kind::Refused);
    let sentence = error.to_string();
    for part in [".u` refuses `orders[0]@1`", "u_v_check", "23514"] {
        assert!(sentence.contains(part), "{sentence}");
    }
    assert_eq!(rig.rows(), ["(1,good,)"]);
    assert_eq!(rig.slices(), ["1/1 1 1 0 1", "1/1 1 1 0 1"]);
}

#[test]
fn a_flush_without_rows_moves_the_position_and_counts_refusals() {
    let mut rig = Rig::keyed("empty");
    let mut writer = rig.begin();
    let mut flush = rig.flush(&[&[&[Row::put(1, None, None), Row::put(2, None, None)]]]);
    flush.sinks[0].chunks.clear();
    let lane = super::super::testing::lane(0);
    let at = crate::record::At {
        source: lane.source,
        partition: lane.partition,
        offset: Offset(1),
        ordinal: 0,
    };
    let refusal = Refusal::new("decode", "no number");
    flush.sinks[0].rejects.push(Reject { at, refusal });
    writer.write(flush).expect("write");
    let slice = &rig.store.slices(super::rig::PIPELINE).expect("slices")[0];
    assert_eq!(slice.position, Offset(2));
    assert_eq!((slice.counters.filtered, slice.counters.rejected), (1, 1));
}

#[test]
fn views_and_partitioned_tables_are_written_where_the_server_allows_it() {
    let ddl = "create table @.base (k bigint primary key, v text, n integer);
               create view @.t as select * from @.base;
               create table @.parts (k bigint primary key, v text, n integer)
                 partition by range (k);
               create table @.low partition of @.parts for values from (0) to (10);
               create table @.high partition of @.parts for values from (10) to (20)";
    let mut rig = Rig::new("kinds", ddl, |p| vec![sink(p, "t"), sink(p, "parts").key("k")]);
    let mut writer = rig.begin();
    let rows = [Row::put(1, Some("a"), None), Row::put(11, Some("b"), None)];
    let flush = rig.flush(&[&[&rows], &[&rows]]);
    writer.write(flush).expect("write");
    assert_eq!(rig.rows(), ["(1,a,)", "(11,b,)"]);
    let flush = rig.flush(&[&[], &[&[Row::put(1, Some("c"), None), Row::delete(11)]]]);
    writer.write(flush).expect("write");
    assert_eq!(rig.place.lines("select * from @.parts"), ["(1,c,)"]);
}

#[test]
fn hostile_names_are_only_names() {
    let ddl = r#"create table @."Or""der.x; drop" (
                   "select" bigint primary key, "a""b" text, "Ü $1 '" integer generated always as identity)"#;
    let mut rig = Rig::new("Sales-EU' \" $1", ddl, |p| {
        let name = r#""Or""der.x; drop""#;
        vec![sink(p, name).name("it's; a \"name\"").key("select")]
    });
    let mut writer = rig.begin();
    let put = |k| Row::put(k, Some("x"), None).without_n();
    rig.write(&mut *writer, &[put(1), put(2)]).expect("write");
    rig.write(&mut *writer, &[put(1), Row::delete(2)]).expect("write");
    assert_eq!(rig.place.lines(r#"select * from @."Or""der.x; drop""#), ["(1,x,1)"]);
    assert_eq!(rig.slices(), ["4/2 4 4 0 4"]);
}

#[test]
fn an_aborted_run_commits_nothing() {
    let mut rig = Rig::keyed("abort");
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[Row::put(1, None, None)]).expect("write");
    rig.abort.raise(crate::error::Error::internal("a fault"));
    let flush = rig.flush(&[&[&[Row::put(2, None, None)]]]);
    let error = writer.write(flush).expect_err("aborted");
    assert!(error.to_string().contains("aborted"), "{error}");
    assert_eq!(rig.rows().len(), 1);
}

#[test]
fn a_large_flush_travels_in_pieces() {
    let mut rig = Rig::keyed("large");
    let mut writer = rig.begin();
    let text = "x".repeat(1000);
    let rows: Vec<Row> = (0..3000).map(|k| Row::put(k % 2000, Some(&text), None)).collect();
    rig.write(&mut *writer, &rows).expect("write");
    assert_eq!(rig.place.lines("select count(*), sum(length(v)) from @.t"), ["(2000,2000000)"]);
    assert_eq!(rig.slices(), ["3000/1 3000 2000 1000 2000"]);
}
