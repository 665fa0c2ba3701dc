//! One run at a time.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use super::super::keys::LockKeys;
use super::super::testing::Row;
use super::proxy::Proxy;
use super::rig::{PIPELINE, Rig, eventually, sink, standby, target};
use crate::error::{Error, Kind};
use crate::sink::Standby;

/// Ends the session that holds the run's lock, as a crash or the network would.
fn cut(rig: &mut Rig) {
    let run = LockKeys::new(&rig.place.books, PIPELINE).run & 0xffff_ffff;
    rig.place.execute(&format!(
        "select pg_terminate_backend(pid, 5000) from pg_locks
          where locktype = 'advisory' and granted and objid::int8 = {run}"
    ));
}

#[test]
fn a_standby_waits_and_takes_over_when_the_connection_of_the_lock_dies() {
    let mut rig = Rig::keyed("standby");
    let mut first = rig.store.lock(PIPELINE, &standby(false)).expect("lock");
    first.check().expect("held");
    let seen = Arc::new(Mutex::new(Vec::new()));
    let lines = Arc::clone(&seen);
    let store = Arc::clone(&rig.store);
    std::thread::scope(|scope| {
        let second = scope.spawn(move || {
            let waiting = |line: &str| {
                lines.lock().expect("not poisoned").push(line.to_owned());
                Ok(())
            };
            store.lock(PIPELINE, &Standby { waiting: &waiting, ..standby(false) })
        });
        eventually("the standby waits", || seen.lock().expect("not poisoned").len() > 2);
        let line = seen.lock().expect("not poisoned")[0].clone();
        assert!(line.starts_with("held by pid ") && line.contains("tidegate it's"), "{line}");
        cut(&mut rig);
        let mut second = second.join().expect("joined").expect("the lock is free");
        second.check().expect("held");
        let error = first.check().expect_err("somebody else has it");
        assert_eq!(error.kind(), Kind::Fenced);
    });
}

#[test]
fn a_lock_that_was_lost_is_taken_again_where_nobody_has_it() {
    let mut rig = Rig::keyed("again");
    let mut lock = rig.store.lock(PIPELINE, &standby(false)).expect("lock");
    cut(&mut rig);
    lock.check().expect("taken again");
    lock.check().expect("held");
}

#[test]
fn a_lock_is_free_as_soon_as_it_is_dropped() {
    let rig = Rig::keyed("dropped");
    drop(rig.store.lock(PIPELINE, &standby(false)).expect("lock"));
    let impatient = Standby { waiting: &|line| Err(Error::internal(line)), ..standby(false) };
    rig.store.lock(PIPELINE, &impatient).expect("lock");
}

#[test]
fn waiting_ends_when_the_caller_says_so() {
    let rig = Rig::keyed("impatient");
    let _held = rig.store.lock(PIPELINE, &standby(false)).expect("lock");
    let impatient =
        Standby { waiting: &|_| Err(Error::new(Kind::Usage, "enough")), ..standby(false) };
    let error = rig.store.lock(PIPELINE, &impatient).err().expect("not waited for");
    assert_eq!(error.to_string(), "enough");
}

#[test]
fn taking_over_ends_the_old_run() {
    let mut rig = Rig::keyed("take_over");
    let mut old_lock = rig.store.lock(PIPELINE, &standby(false)).expect("lock");
    let mut old = rig.begin();
    rig.write(&mut *old, &[Row::put(1, None, None)]).expect("write");
    let mut lock = rig.store.lock(PIPELINE, &standby(true)).expect("taken over");
    let alive = LockKeys::new(&rig.place.books, PIPELINE).alive & 0xffff_ffff;
    let sessions =
        format!("select pid from pg_locks where locktype = 'advisory' and objid::int8 = {alive}");
    assert!(rig.place.lines(&sessions).is_empty(), "the writer's session was ended too");
    assert_eq!(old_lock.check().expect_err("taken over").kind(), Kind::Fenced);
    rig.store.begin(PIPELINE).expect("begin");
    let flush = rig.flush(&[&[&[Row::put(2, None, None)]]]);
    assert_eq!(old.write(flush).expect_err("fenced").kind(), Kind::Fenced);
    lock.check().expect("held");
}

#[test]
fn pipelines_do_not_share_a_lock() {
    let rig = Rig::keyed("several");
    let _one = rig.store.lock(PIPELINE, &standby(false)).expect("lock");
    let _other = rig.store.lock("another", &standby(false)).expect("lock");
}

#[test]
fn a_lock_whose_connection_stalls_is_taken_from_our_own_old_session() {
    let rig = Rig::keyed("stalled");
    let proxy = Proxy::new();
    let through = target(
        &sink(&rig.place, "t").key("k").url(&proxy.url).time_limit(Duration::from_millis(500)),
        None,
    );
    let mut lock = through.store.lock(PIPELINE, &standby(false)).expect("lock");
    // The server does not notice: its session holds the lock on.
    proxy.stall();
    lock.check().expect("taken again");
    lock.check().expect("held");
}
