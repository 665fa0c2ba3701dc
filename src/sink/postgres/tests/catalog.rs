//! What the catalog says, and what is refused before the run.

use super::super::catalog::Prepared;
use super::super::shape::LiveTable;
use super::super::testing::{Place, client};
use super::rig::{sink, target};
use crate::error::Kind;
use crate::sink::postgres::Unit;
use crate::sink::{Postgres, Sink};

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
fn keys_whose_equality_is_not_that_of_bytes_are_left_to_the_server() {
    let prelude =
        "create collation @.ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
                   create type @.grade as enum ('a', 'b'); create domain @.short as varchar(3);
                   create domain @.whole as integer;";
    // Of the database, not of the test's schema: a server that has just been made has none.
    client()
        .batch_execute("create extension if not exists citext with schema public")
        .expect("the server comes with its extensions");
    for (column, expected) in [
        ("text", false),
        ("varchar(3)", false),
        ("name", false),
        ("uuid", false),
        ("timestamptz(3)", false),
        ("@.grade", false),
        ("@.whole", false),
        ("text collate @.ci", true),
        ("public.citext", true),
        ("numeric", true),
        ("double precision", true),
        ("char(3)", true),
        ("@.short", false),
        ("inet", true),
        ("interval", true),
        ("int4range", true),
        ("integer[]", true),
        ("jsonb", true),
        ("bit(3)", true),
        ("money", true),
        ("timetz", true),
    ] {
        let ddl = format!("{prelude} create table @.t (k {column} primary key)");
        let shape = prepared("key_type", &ddl, None, |sink| sink.key("k")).expect(column);
        assert_eq!(shape.table.server_keys, expected, "{column}");
        assert!(shape.table.arbiter);
    }
    let ddl = "create table @.t (k bigint, n numeric, primary key (k, n))";
    let shape = prepared("key_type", ddl, None, |sink| sink.key(["k", "n"])).expect("fit");
    assert!(shape.table.server_keys);
}

#[test]
fn types_without_a_binary_form_here_travel_as_text() {
    let shape = prepared(
        "text",
        "create type @.\"Odd \"\"type\" as (a integer, b text);
         create domain @.net as inet; create domain @.nets as @.net;
         create domain @.ints as integer[]; create type @.grade as enum ('a');
         create table @.t (a inet, b @.nets, c @.\"Odd \"\"type\", d integer[], e jsonb[], f @.ints,
           g \"char\", h bit(3), i @.grade, j @.grade[], k tsvector, l int4multirange, m numeric(3,1)[])",
        Some(&["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"]),
        |sink| sink,
    )
    .expect("fit");
    let columns: Vec<_> = shape
        .table
        .columns
        .iter()
        .map(|c| (c.text.as_deref().map(|text| text.split_once('.').unwrap().1), c.element))
        .collect();
    let grade = columns[9].1;
    assert!(grade.is_some());
    assert_eq!(
        columns,
        [
            (Some("\"inet\""), None),
            (Some("\"inet\""), None),
            (Some("\"Odd \"\"type\""), None),
            (Some("\"_int4\""), Some(23)),
            (Some("\"_jsonb\""), Some(3802)),
            (Some("\"_int4\""), Some(23)),
            (Some("\"char\""), None),
            (Some("\"bit\""), None),
            (None, None),
            (Some("\"_grade\""), grade),
            (Some("\"tsvector\""), None),
            (Some("\"int4multirange\""), None),
            (Some("\"_numeric\""), Some(1700)),
        ]
    );
    assert_eq!(shape.table.columns[8].oid, 25);
}

#[test]
fn columns_that_something_else_may_fill_in_are_not_judged() {
    let table = "create table @.t (k bigint not null, v text not null)";
    let judges = |ddl: &str| {
        let ddl = format!(
            "create function @.f() returns trigger language plpgsql as 'begin return new; end'; {ddl}"
        );
        prepared("judges", &ddl, None, |sink| sink).expect(&ddl).table.judges_null
    };
    let trigger = |when: &str, each: &str| {
        format!("create trigger g {when} on @.t for each {each} execute function @.f()")
    };
    assert!(judges(table));
    assert!(!judges(&format!("{table}; {}", trigger("before insert", "row"))));
    assert!(!judges(&format!("{table}; {}", trigger("before update", "row"))));
    assert!(judges(&format!("{table}; {}", trigger("after insert", "row"))));
    assert!(judges(&format!("{table}; {}", trigger("before insert", "statement"))));
    assert!(judges(&format!("{table}; {}", trigger("before delete", "row"))));
    assert!(judges(&format!(
        "{table}; {}; alter table @.t disable trigger g",
        trigger("before insert", "row")
    )));
    assert!(!judges("create table @.a (k bigint not null); create view @.t as select * from @.a"));
    let parts = "create table @.t (k bigint not null) partition by list (k);
                 create table @.p partition of @.t default";
    assert!(judges(parts));
    assert!(!judges(&format!(
        "{parts}; create trigger g before insert on @.p for each row execute function @.f()"
    )));
    let ddl = "create function @.f() returns trigger language plpgsql as 'begin return new; end';
               create table @.t (k bigint, v text not null);
               create trigger g before insert on @.t for each row execute function @.f()";
    prepared("judges", ddl, Some(&["k"]), |sink| sink).expect("the trigger may give `v`");
}

#[test]
fn what_the_server_judges_beyond_the_types_is_seen() {
    let plain = "k bigint primary key, v text, n integer not null default 1";
    let of = |ddl: &str| {
        let table = &prepared("judged", ddl, None, |sink| sink.key("k")).expect(ddl).table;
        (table.judged, table.rivals)
    };
    let with = |columns: &str, more: &str| {
        of(&format!("create table @.t ({plain}{columns}); create index on @.t (n); {more}"))
    };
    assert_eq!(with("", ""), (false, false));
    let function = "create function @.f() returns trigger language plpgsql as $$ begin end $$;";
    for (columns, more) in [
        (", check (n > 0)", ""),
        (
            "",
            "create table @.p (k bigint primary key); alter table @.t add foreign key (n) references @.p",
        ),
        ("", "create index on @.t (v)"),
        ("", "create index on @.t ((1 / n))"),
        (", w integer generated always as (1 / n) stored", ""),
        ("", "create domain @.d as int check (value > 0); alter table @.t add d @.d"),
        ("", "create domain @.d as int check (value > 0); alter table @.t add d @.d[]"),
        (", w inet", ""),
        ("", &format!("{function} create trigger f before update on @.t execute function @.f()")),
        ("", "create rule r as on update to @.t where new.n = 1 do instead nothing"),
    ] {
        assert_eq!(with(columns, more), (true, false), "{columns} {more}");
    }
    for (columns, more) in [
        (", unique (k, n)", ""),
        ("", "create unique index on @.t (v) where n > 0"),
        ("", "create unique index on @.t (abs(n))"),
        (", exclude using btree (n with =)", ""),
    ] {
        assert_eq!(with(columns, more), (true, true), "{columns} {more}");
    }
    for (ddl, entangled) in [
        ("create table @.t (k bigint primary key, n bigint references @.t)", true),
        (
            "create table @.u (k bigint primary key);
             create table @.t (k bigint primary key, n bigint references @.u);
             alter table @.u add foreign key (k) references @.t",
            true,
        ),
        (
            "create table @.u (k bigint primary key);
             create table @.t (k bigint primary key, n bigint references @.u)",
            false,
        ),
        ("create table @.t (k bigint primary key, i int generated always as identity)", true),
        ("create table @.u (k bigint primary key); create view @.t as select * from @.u", true),
    ] {
        let shape = prepared("entangled", ddl, None, |sink| sink.key("k")).expect(ddl);
        assert_eq!(shape.table.entangled, entangled, "{ddl}");
        assert!(shape.table.judged, "{ddl}");
    }
    let parted = |more: &str| {
        of(&format!(
            "create table @.t ({plain}) partition by list (k);
             create table @.one (n integer not null default 1, gone int, v text, k bigint not null);
             alter table @.one drop column gone;
             alter table @.t attach partition @.one for values in (1); {more}"
        ))
    };
    assert_eq!(parted(""), (false, false));
    assert_eq!(parted("alter table @.one add check (n > 0)"), (true, false));
    assert_eq!(parted("create unique index on @.one (n)"), (true, true));
}

#[test]
fn views_take_rows_with_triggers_or_without() {
    let simple = "create table @.a (k bigint primary key, v text);
                  create view @.t as select k, v from @.a";
    let shape = prepared("view", simple, Some(&["k", "v"]), |sink| sink.key("k")).expect("fit");
    assert!(shape.staged && shape.table.arbiter);
    prepared("view", simple, Some(&["k", "v"]), |sink| sink).expect("fit");

    let triggers = |events: &str| {
        format!(
            "create table @.a (k bigint primary key, v text);
             create function @.f() returns trigger language plpgsql as 'begin return new; end';
             create view @.t as select k, v from @.a union all select 0, 'zero';
             create trigger g instead of {events} on @.t for each row execute function @.f()"
        )
    };
    let both = triggers("insert or update");
    let shape = prepared("view", &both, None, |sink| sink.key("k")).expect("fit");
    assert!(shape.staged && !shape.table.arbiter);
    prepared("view", &both, None, |sink| sink).expect("fit");
    refused("view", &triggers("insert"), None, &["k"], &["view `S.t` takes no update"]);
    refused("view", &triggers("update"), None, &[], &["takes no insert: give it a trigger"]);

    for index in [
        "",
        "create unique index on @.a (k) where v is null",
        "alter table @.a add unique (k) deferrable",
    ] {
        let ddl = format!(
            "create table @.a (k bigint, v text); {index}; create view @.t as select k, v from @.a"
        );
        let shape = prepared("view", &ddl, None, |sink| sink.key("k")).expect("fit");
        assert!(!shape.table.arbiter, "{index}");
    }
}

#[test]
fn what_cannot_be_written_is_refused_where_a_field_names_it() {
    let ddl = "create table @.t (k bigint, twice bigint generated always as (k * 2) stored)";
    refused(
        "computed",
        ddl,
        Some(&["k", "twice"]),
        &[],
        &["`twice` cannot be written: the server"],
    );
    let ddl = "create table @.t (k bigint primary key, x bigint generated always as identity)";
    let shape = prepared("identity", ddl, Some(&["k", "x"]), |sink| sink.key("k")).expect("fit");
    assert!(shape.table.columns[1].always);
    let ddl = "create table @.t (k bigint)";
    refused("extra", ddl, Some(&["k", "x"]), &[], &["no column `x`"]);
    prepared("extra", ddl, Some(&["k", "x"]), |sink| sink.ignore_extra_fields()).expect("ignored");
}

#[test]
fn units_and_zones_are_for_columns_of_time() {
    let ddl = "create table @.t (k bigint, d date, t timestamptz, u timestamptz, i interval)";
    let shape = prepared("units", ddl, None, |sink| {
        sink.unit("t", Unit::Seconds)
            .default_unit(Unit::Milliseconds)
            .default_zone("Asia/Tokyo")
            .zone("u", "UTC")
    })
    .expect("fit");
    let units: Vec<_> = shape.table.columns.iter().map(|column| column.unit).collect();
    let (ms, s) = (Some(Unit::Milliseconds), Some(Unit::Seconds));
    assert_eq!(units, [None, ms, s, ms, None]);
    let zones: Vec<_> = shape.table.columns.iter().map(|c| c.zone?.iana_name()).collect();
    assert_eq!(zones, [None, None, Some("Asia/Tokyo"), Some("UTC"), None]);

    for (part, narrow) in [
        (
            "column `k` (bigint) of `S.t`: no unit",
            (|s| s.unit("k", Unit::Seconds)) as fn(Postgres) -> Postgres,
        ),
        ("column `i` (interval) of `S.t`: no unit", |s| s.unit("i", Unit::Seconds)),
        ("column `d` (date) of `S.t`: no time zone", |s| s.zone("d", "UTC")),
        ("`S.t` has no column `x`, for which a unit", |s| s.unit("x", Unit::Seconds)),
        ("`S.t` has no column `x`, for which a time zone", |s| s.zone("x", "UTC")),
    ] {
        let sentence = prepared("units", ddl, None, narrow).expect_err(part);
        assert!(sentence.contains(part), "{sentence}");
    }
    let nowhere = Postgres::table("t").url("postgres://localhost/d").zone("t", "Europe/Atlantis");
    let error = Sink::<()>::target(&nowhere).expect_err("no such zone");
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("`Europe/Atlantis` is no time zone"), "{error}");
}

#[test]
fn a_constraint_that_waits_for_the_commit_is_seen() {
    let ddl = "create table @.t (k bigint); create table @.u (k bigint unique deferrable)";
    assert!(prepared("deferrable", ddl, None, |sink| sink).expect("fit").deferrable);
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
