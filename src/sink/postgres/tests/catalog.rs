//! What the catalog says, and what is refused before the run.

use super::super::catalog::Prepared;
use super::super::shape::LiveTable;
use super::super::testing::Place;
use super::rig::{sink, target};
use crate::error::Kind;
use crate::sink::Postgres;

/// Prepares a sink for table `t` of `ddl`; the shape, or the sentence.
fn prepared(
    test: &str,
    ddl: &str,
    fields: Option<&[&str]>,
    narrow: impl Fn(Postgres) -> Postgres,
) -> Result<std::sync::Arc<Prepared>, String> {
    let mut place = Place::new(test);
    place.execute(ddl);
    let target = target(&narrow(sink(&place, "t")), fields);
    match target.store.prepare(&[&target]) {
        Ok(mut shapes) => {
            let live: std::sync::Arc<LiveTable> = shapes.remove(0).downcast().expect("ours");
            Ok(live.newest().1)
        }
        Err(error) => {
            assert_eq!(error.kind(), Kind::Config, "{error}");
            Err(error.to_string().replace(&place.tables, "S"))
        }
    }
}

fn refused(test: &str, ddl: &str, fields: Option<&[&str]>, key: &[&str], parts: &[&str]) {
    let sentence = prepared(test, ddl, fields, |sink| sink.key(key)).expect_err(ddl);
    for part in parts {
        assert!(sentence.contains(part), "{sentence}");
    }
}

#[test]
fn the_shape_is_the_tables() {
    let shape = prepared(
        "shape",
        "create domain @.code as varchar(5) default 'x' not null;
         create domain @.codes as @.code;
         create table @.t (
           gone integer, k bigint generated always as identity, c @.codes, p numeric(10, 2),
           twice numeric generated always as (p * 2) stored, s text not null,
           unique (s, k));
         alter table @.t drop column gone",
        None,
        |sink| sink.key(["k", "s"]),
    )
    .expect("fit");
    let table = &shape.table;
    let columns: Vec<_> = table
        .columns
        .iter()
        .map(|c| (c.name.as_str(), c.oid, c.typmod, c.not_null, c.has_default))
        .collect();
    assert_eq!(
        columns,
        [
            ("k", 20, -1, true, true),
            ("c", 1043, 9, true, true),
            ("p", 1700, ((10 << 16) | 2) + 4, false, false),
            ("s", 25, -1, true, false),
        ]
    );
    assert_eq!(table.columns[1].type_name.split('.').next_back(), Some("codes"));
    assert_eq!(table.key, [0, 3]);
    assert!(!shape.staged);
}

#[test]
fn a_table_that_is_missing_is_named() {
    refused("none", "select", None, &[], &["table `S.t` does not exist in `postgres://", "create"]);
    refused("case", "create table @.\"T\" (k bigint)", None, &[], &["there is ", ".\"T\"`"]);
    refused("sequence", "create sequence @.t", None, &[], &["neither a table nor a view"]);
}

#[test]
fn all_columns_that_do_not_fit_are_named_at_once() {
    refused(
        "misfit",
        "create table @.t (k bigint not null, a text, b text not null, c text not null default '')",
        Some(&["x", "a", "y"]),
        &["k", "z"],
        &["no column `x`, `y`, `z` (it has `k`, `a`, `b`, `c`)", "; `b` must not be null", "`k`"],
    );
    let ddl = "create table @.t (k bigint)";
    prepared("marker", ddl, Some(&["k", "op"]), |s| s.key("k").delete_when("op", "d"))
        .expect_err("no index");
    let ddl = "create table @.t (k bigint primary key)";
    prepared("marker", ddl, Some(&["k", "op"]), |s| s.key("k").delete_when("op", "d"))
        .expect("the marker of deletes needs no column");
}

#[test]
fn a_key_needs_a_unique_index_over_exactly_its_columns() {
    let create = "`create unique index on \"S\".\"t\" (\"k\", \"a\")`";
    for (ddl, parts) in [
        ("", vec![create]),
        ("create index on @.t (k, a)", vec![create]),
        ("create unique index on @.t (k)", vec![create]),
        ("create unique index on @.t (k, a, b)", vec![create]),
        ("create unique index on @.t (k) include (a)", vec![create]),
        ("create unique index x on @.t (k, a) where b is null", vec![create, "`x` is partial"]),
        (
            "alter table @.t add constraint x unique (k, a) deferrable",
            vec![create, "`x` is deferrable"],
        ),
    ] {
        let ddl = format!("create table @.t (k bigint, a text, b text); {ddl}");
        refused("unique", &ddl, None, &["k", "a"], &parts);
    }
    for ddl in ["create unique index on @.t (a, k)", "alter table @.t add primary key (a, k)"] {
        let ddl = format!("create table @.t (k bigint, a text, b text); {ddl}");
        prepared("unique", &ddl, None, |sink| sink.key(["k", "a"])).expect("any order");
    }
}

#[test]
fn keys_whose_equality_is_not_that_of_bytes_are_refused() {
    refused(
        "collation",
        "create collation @.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         create table @.t (k text collate @.ci primary key)",
        None,
        &["k"],
        &["column `k` (text) of `S.t`", "not deterministic"],
    );
    refused("key_type", "create table @.t (k numeric primary key)", None, &["k"], &["as a key"]);
}

#[test]
fn types_that_cannot_be_written_are_refused_where_a_field_names_them() {
    let ddl = "create table @.t (k bigint, x tsvector)";
    refused("type", ddl, Some(&["k", "x"]), &[], &["column `x` (tsvector) of `S.t`"]);
    prepared("type", ddl, Some(&["k"]), |sink| sink).expect("it is not written");
    let ddl = "create table @.t (k bigint primary key, x bigint generated always as identity)";
    refused("identity", ddl, Some(&["k", "x"]), &["k"], &["`x`", "cannot be updated"]);
}

#[test]
fn a_database_that_is_missing_or_away_is_one_sentence_without_secrets() {
    let place = Place::new("away");
    let insisting = format!("{}?sslmode=require", super::super::testing::url());
    for (url, part) in [
        ("postgres://u:hunter2@127.0.0.1:1/d", "connect to `postgres://127.0.0.1:1/d"),
        (
            "postgres://u:hunter2@127.0.0.1:1/d?sslmode=require",
            "`: connection refused; is the server up?",
        ),
        // The tests' server has no certificate.
        (&insisting, "TLS"),
        ("postgres://u:hunter2@no-such-host.invalid/d", "no-such-host.invalid"),
    ] {
        let target = target(&sink(&place, "t").url(url), None);
        let error = target.store.prepare(&[&target]).expect_err(url);
        assert!(error.to_string().contains(part), "{error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}
