//! The compare and set.

use std::time::Duration;

use super::super::address::Address;
use super::super::connect::{Patience, Session, runtime};
use super::super::store::exclude_writers;
use super::super::testing::{Row, url};
use super::rig::{PIPELINE, Rig};
use crate::error::Kind;
use crate::position::{Counters, Slice, SliceKey};
use crate::record::{Incarnation, Offset, Partition};
use crate::sink::Generation;

fn put(k: i64) -> Row {
    Row::put(k, Some("a"), None)
}

#[test]
fn a_run_of_an_older_generation_writes_nothing() {
    let mut rig = Rig::keyed("stale");
    let mut old = rig.begin();
    rig.write(&mut *old, &[put(1)]).expect("write");
    let mut new = rig.begin();
    let flush = rig.flush(&[&[&[put(2)]]]);
    let error = old.write(flush).expect_err("fenced");
    assert_eq!(error.kind(), Kind::Fenced);
    assert!(error.to_string().contains("by generation 2; this run (1)"), "{error}");
    assert_eq!(rig.rows(), ["(1,a,)"]);
    assert_eq!(rig.slices(), ["1/1 1 1 0 1"]);
    // A slice that the old run would have been the first to store.
    let flush = rig.flush(&[&[&[put(3).partition(9)]]]);
    assert_eq!(old.write(flush).expect_err("fenced").kind(), Kind::Fenced);
    assert_eq!(rig.slices().len(), 1);
    let flush = rig.flush(&[&[&[put(4).partition(9)]]]);
    new.write(flush).expect("the new run stores the slice where it was read first");
    assert_eq!(rig.slices(), ["1/1 1 1 0 1", "2/1 1 1 0 1"]);
}

#[test]
fn a_flush_that_does_not_join_the_position_is_refused_with_both_ends() {
    let mut rig = Rig::keyed("join");
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[put(1), put(2)]).expect("write");
    let _lost = rig.flush(&[&[&[put(3)]]]);
    let flush = rig.flush(&[&[&[put(4)]]]);
    let error = writer.write(flush).expect_err("a gap");
    assert_eq!(error.kind(), Kind::Internal);
    for part in ["stands at 2", "[3, 4)", "`orders[0]`"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(rig.slices(), ["2/1 2 2 0 2"]);
}

#[test]
fn a_position_that_somebody_moved_refuses_the_flush() {
    let mut rig = Rig::keyed("moved");
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[put(1), put(2)]).expect("write");
    rig.place.execute("update #.slices set position = 120");
    let error = rig.write(&mut *writer, &[put(3)]).expect_err("moved");
    assert_eq!(error.kind(), Kind::Sink);
    for part in ["stands at 120", "[2, 3)"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(rig.rows().len(), 2);
    // Even the same position is another history.
    rig.place.execute("update #.slices set position = 2, seq = seq + 1");
    let mut flush = rig.flush(&[&[&[put(4)]]]);
    for span in flush.sinks[0].spans.values_mut() {
        span.from = Offset(2);
    }
    assert_eq!(writer.write(flush).expect_err("moved").kind(), Kind::Sink);
    assert_eq!(rig.rows().len(), 2);
}

#[test]
fn first_positions_are_stored_once_and_by_the_generation_that_begun() {
    let rig = Rig::keyed("create");
    let generation = rig.store.begin(PIPELINE).expect("begin");
    let slice = Slice {
        key: SliceKey {
            sink: rig.targets[0].name.clone(),
            source: "orders".into(),
            partition: Partition(0),
        },
        seq: 0,
        position: Offset(42),
        counters: Counters::default(),
        incarnation: Incarnation { id: Some("first".into()), place: Some("here".into()) },
        leader_epoch: None,
    };
    let slices = [slice];
    let stale = rig.store.create(PIPELINE, Generation(0), &slices).expect_err("not its generation");
    assert_eq!(stale.kind(), Kind::Fenced);
    rig.store.create(PIPELINE, generation, &slices).expect("create");
    assert_eq!(rig.store.slices(PIPELINE).expect("slices"), slices);
    let twice = rig.store.create(PIPELINE, generation, &slices).expect_err("exists");
    assert!(twice.to_string().contains("stored already"), "{twice}");
}

#[test]
fn positions_are_moved_by_hand_only_while_nothing_runs() {
    let mut rig = Rig::keyed("reposition");
    let mut writer = rig.begin();
    rig.write(&mut *writer, &[put(1), put(2)]).expect("write");
    let key = rig.store.slices(PIPELINE).expect("slices")[0].key.clone();
    let moved = [(key.clone(), Some(Offset(1)))];
    {
        let _lock = rig.store.lock(PIPELINE, &super::rig::standby(false)).expect("lock");
        let error = rig.store.reposition(PIPELINE, &moved).expect_err("it runs");
        assert!(error.to_string().contains("held by pid"), "{error}");
    }
    rig.store.reposition(PIPELINE, &moved).expect("moved");
    assert_eq!(rig.slices(), ["1/2 2 2 0 2"]);
    let unknown = SliceKey { partition: Partition(77), ..key.clone() };
    let error = rig
        .store
        .reposition(PIPELINE, &[(key.clone(), None), (unknown, None)])
        .expect_err("no such slice");
    assert!(error.to_string().contains("orders[77]"), "{error}");
    assert_eq!(rig.slices().len(), 1, "all or nothing");
    rig.store.reposition(PIPELINE, &[(key, None)]).expect("dropped");
    assert!(rig.slices().is_empty());
}

#[test]
fn a_generation_begins_only_after_the_open_transactions_have_ended() {
    let mut rig = Rig::keyed("begin");
    rig.store.begin(PIPELINE).expect("begin");
    let key = super::super::keys::LockKeys::new(&rig.place.books, PIPELINE).write;
    rig.place.execute(&format!("begin; select pg_advisory_xact_lock_shared({key})"));
    std::thread::scope(|scope| {
        let begun = scope.spawn(|| rig.store.begin(PIPELINE).expect("begin"));
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(!begun.is_finished());
        rig.place.client.batch_execute("commit").expect("commit");
        assert_eq!(begun.join().expect("joined"), Generation(2));
    });
}

#[test]
fn open_transactions_of_a_dead_run_are_ended() {
    let mut rig = Rig::keyed("dead");
    let key = super::super::keys::LockKeys::new(&rig.place.books, PIPELINE).write;
    rig.place.execute(&format!("begin; select pg_advisory_xact_lock_shared({key})"));
    let address = Address::parse(&url()).expect("DATABASE_URL");
    runtime().expect("a runtime").block_on(async {
        let patience = Patience::of(Duration::from_secs(20));
        let session = Session::open(&address, "test", patience).await.expect("connected");
        exclude_writers(&session, key, Duration::from_millis(100)).await.expect("alone");
        session.close().await;
    });
    rig.place.client.batch_execute("commit").expect_err("the session was ended");
    rig.place.client = super::super::testing::client();
}
