//! Lost connections: the rows are there exactly once.

use std::time::Duration;

use super::super::testing::Row;
use super::proxy::{Cut, Proxy};
use super::rig::{PIPELINE, Rig, eventually, sink, target};
use crate::record::Policy;
use crate::sink::Writer;

fn put(k: i64) -> Row {
    Row::put(k, Some("a"), None)
}

/// Appends through a network that fails at the second COMMIT.
fn exactly_once(test: &str, cut: Cut) {
    let ddl = "create table @.t (k bigint, v text, n integer)";
    let mut rig = Rig::new(test, ddl, |p| vec![sink(p, "t")]);
    let proxy = Proxy::new();
    let through =
        target(&sink(&rig.place, "t").url(&proxy.url).time_limit(Duration::from_secs(1)), None);
    let generation = rig.store.begin(PIPELINE).expect("begin");
    let mut writer = rig.writer_of(&*through.store, generation);
    rig.write(&mut *writer, &[put(1)]).expect("the network works");
    proxy.fail(cut);
    rig.write(&mut *writer, &[put(2), put(3)]).expect("the writer finds out");
    assert!(proxy.failed());
    rig.write(&mut *writer, &[put(4).partition(1)]).expect("the network works again");
    assert_eq!(rig.rows(), ["(1,a,)", "(2,a,)", "(3,a,)", "(4,a,)"]);
    assert_eq!(rig.slices(), ["3/2 3 3 0 3", "1/1 1 1 0 1"]);
}

#[test]
fn a_commit_that_never_arrived_is_repeated() {
    exactly_once("cut_before", Cut::BeforeCommit);
}

#[test]
fn a_commit_whose_answer_was_lost_is_not_repeated() {
    exactly_once("cut_after", Cut::BeforeAnswer);
}

#[test]
fn a_commit_that_hangs_is_given_up_and_repeated() {
    exactly_once("stall_before", Cut::Stall);
}

#[test]
fn an_answer_that_hangs_is_read_from_the_slice() {
    exactly_once("stall_after", Cut::StallAnswer);
}

#[test]
fn the_first_commit_of_a_new_slice_survives_the_same() {
    for (test, cut) in [("first_before", Cut::BeforeCommit), ("first_after", Cut::BeforeAnswer)] {
        let mut rig = Rig::keyed(test);
        let proxy = Proxy::new();
        let through = target(&sink(&rig.place, "t").key("k").url(&proxy.url), None);
        let generation = rig.store.begin(PIPELINE).expect("begin");
        let mut writer = rig.writer_of(&*through.store, generation);
        proxy.fail(cut);
        rig.write(&mut *writer, &[put(1)]).expect("the writer finds out");
        assert_eq!(rig.slices(), ["1/1 1 1 0 1"]);
    }
}

#[test]
fn an_unknown_outcome_after_a_new_generation_is_fenced() {
    let mut rig = Rig::keyed("unknown_fenced");
    let proxy = Proxy::new();
    let through = target(&sink(&rig.place, "t").key("k").url(&proxy.url), None);
    let generation = rig.store.begin(PIPELINE).expect("begin");
    let mut writer = rig.writer_of(&*through.store, generation);
    rig.write(&mut *writer, &[put(1)]).expect("write");
    // The new run begins while COMMIT hangs: it ends the old transaction first.
    proxy.fail(Cut::Stall);
    let flush = rig.flush(&[&[&[put(2)]]]);
    std::thread::scope(|scope| {
        let written = scope.spawn(move || writer.write(flush));
        eventually("the commit hangs", || proxy.failed());
        let keys = super::super::keys::LockKeys::new(&rig.place.books, PIPELINE);
        let alive = keys.alive & 0xffff_ffff;
        rig.place.execute(&format!(
            "select pg_terminate_backend(pid, 5000) from pg_locks
              where locktype = 'advisory' and objid::int8 = {alive}"
        ));
        // Whoever is first: the writer repeats its transaction, or the new generation fences it.
        rig.store.begin(PIPELINE).expect("begin");
        match written.join().expect("joined") {
            Ok(_) => assert_eq!(rig.slices(), ["2/2 2 2 0 2"]),
            Err(error) => {
                assert_eq!(error.kind(), crate::error::Kind::Fenced, "{error}");
                assert_eq!(rig.slices(), ["1/1 1 1 0 1"]);
            }
        }
    });
}

/// Blocks the table, waits until the writer waits for it, and ends the writer's process.
#[test]
fn a_session_that_the_server_ends_in_mid_transaction_is_replaced() {
    let mut rig = Rig::keyed("terminated");
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[put(1)]).expect("write");
    let flush = rig.flush(&[&[&[put(1), put(2)]]]);
    rig.place.execute("begin; lock table @.t in access exclusive mode");
    let mut other = super::super::testing::client();
    let tables = rig.place.tables.clone();
    std::thread::scope(|scope| {
        let written = scope.spawn(|| writer.write(flush));
        let waiting = format!(
            "select pg_terminate_backend(pid) from pg_locks
              where not granted and relation = '{tables}.t'::regclass"
        );
        eventually("the writer waits", || {
            !other.query(&waiting, &[]).expect("the server answers").is_empty()
        });
        rig.place.execute("commit");
        written.join().expect("joined").expect("repeated");
    });
    assert_eq!(rig.rows(), ["(1,a,7)", "(2,a,7)"].map(|row| row.replace('7', "")));
    assert_eq!(rig.slices(), ["3/2 3 3 0 3"]);
}

#[test]
fn an_idle_connection_that_was_closed_is_replaced() {
    let mut rig = Rig::keyed("idle");
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[put(1)]).expect("write");
    let keys = super::super::keys::LockKeys::new(&rig.place.books, PIPELINE);
    rig.place.execute(&format!(
        "select pg_terminate_backend(pid, 5000) from pg_locks
          where locktype = 'advisory' and objid::int8 = {}",
        keys.alive & 0xffff_ffff
    ));
    rig.write(&mut *writer, &[put(2)]).expect("write");
    assert_eq!(rig.slices(), ["2/2 2 2 0 2"]);
}

#[test]
fn a_constraint_that_fails_at_commit_is_named() {
    let ddl = "create table @.t (k bigint primary key, v text, n integer,
                 constraint parent foreign key (n) references @.t (n) deferrable initially deferred,
                 unique (n))"
        .replace("references @.t (n)", "references @.p (id)");
    let ddl = format!("create table @.p (id integer primary key); {ddl}");
    let mut rig = Rig::new("deferred", &ddl, |p| vec![sink(p, "t").key("k")]);
    rig.policy = Policy::Stop;
    let mut writer = rig.begin();
    let error = rig.write(&mut *writer, &[Row::put(1, None, Some(1))]).expect_err("no such parent");
    for part in ["parent", "23503"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(!error.is_retryable());
    assert!(rig.slices().is_empty());
}

#[test]
fn a_server_that_is_away_is_given_up_in_the_end() {
    let rig = Rig::keyed("away");
    let generation = rig.store.begin(PIPELINE).expect("begin");
    let nowhere = "postgres://tidegate:hunter2@127.0.0.1:1/nowhere";
    let away = target(
        &sink(&rig.place, "t").key("k").url(nowhere).retry_for(Duration::from_millis(200)),
        None,
    );
    let mut rig = rig;
    let mut writer: Box<dyn Writer> = rig.writer_of(&*away.store, generation);
    let error = rig.write(&mut *writer, &[put(1)]).expect_err("nobody there");
    let sentence = format!("{error}");
    assert!(error.is_retryable() && sentence.contains("is the server up?"), "{sentence}");
    assert!(sentence.contains("postgres://127.0.0.1:1/nowhere"), "{sentence}");
    assert!(!format!("{error:?}").contains("hunter2"));
}
