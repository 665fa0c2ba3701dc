//! The bookkeeping schema.

use super::super::schema::schema_sql;
use super::super::testing::{Place, url};
use super::rig::{sink, target};
use crate::error::Kind;

#[test]
fn concurrent_first_starts_create_the_schema_once() {
    let mut place = Place::new("first");
    place.execute("create table @.t (k bigint)");
    std::thread::scope(|scope| {
        let starts: Vec<_> = (0..6)
            .map(|_| {
                let target = target(&sink(&place, "t"), None);
                scope.spawn(move || target.store.prepare(&[&target]).map(|_| ()))
            })
            .collect();
        for start in starts {
            start.join().expect("joined").expect("prepared");
        }
    });
    assert_eq!(place.lines("select version from #.version"), ["(3)"]);
}

#[test]
fn the_printed_schema_is_the_one_that_is_created_and_may_be_run_again() {
    let mut place = Place::new("printed");
    let sql = schema_sql(&place.books);
    place.client.batch_execute(&sql).expect("once");
    place.client.batch_execute(&sql).expect("twice");
    place.execute("create table @.t (k bigint)");
    let target = target(&sink(&place, "t"), None);
    target.store.prepare(&[&target]).expect("nothing to create");
}

#[test]
fn a_schema_of_a_newer_program_is_refused() {
    let mut place = Place::new("newer");
    place.client.batch_execute(&schema_sql(&place.books)).expect("created");
    place.execute("update #.version set version = 99; create table @.t (k bigint)");
    let target = target(&sink(&place, "t"), None);
    let error = target.store.prepare(&[&target]).expect_err("newer");
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("version 99"), "{error}");
}

#[test]
fn a_role_that_may_not_create_is_told_what_to_run() {
    let mut place = Place::new("role");
    let role = format!("r_{}", place.books);
    place.execute(&format!("create role \"{role}\" login; create table @.t (k bigint)"));
    let url = url().replacen("tidegate@", &format!("{role}@"), 1);
    let poor = target(&sink(&place, "t").url(&url), None);
    let error = poor.store.prepare(&[&poor]).expect_err("not allowed");
    assert_eq!(error.kind(), Kind::Config);
    assert!(error.to_string().contains("`tidegate schema`"), "{error}");

    place.client.batch_execute(&schema_sql(&place.books)).expect("somebody who may");
    let error = poor.store.prepare(&[&poor]).expect_err("not granted");
    assert!(error.to_string().contains("grant it usage"), "{error}");

    place.execute(&format!(
        "grant usage on schema #, @ to \"{role}\";
         grant select, insert, update, delete on all tables in schema # to \"{role}\""
    ));
    let error = poor.store.prepare(&[&poor]).expect_err("the table is not granted");
    assert!(error.to_string().contains("may not insert on"), "{error}");
    place.execute(&format!("grant insert on @.t to \"{role}\""));
    poor.store.prepare(&[&poor]).expect("all it needs");
    // Where rows go by a staging table, its columns are taken from the table by a query.
    place.execute(
        "create function @.f() returns trigger language plpgsql as $$ begin return null; end $$;
         create trigger f before insert on @.t execute function @.f()",
    );
    let error = poor.store.prepare(&[&poor]).expect_err("it cannot be read");
    assert!(error.to_string().contains("may not select on"), "{error}");
    drop(poor);
    place.execute(&format!("drop owned by \"{role}\"; drop role \"{role}\""));
}
