//! All processes start the same thing, or none starts.
//!
//! Each process tells process 0 that its plan stands. Process 0 compares, does what only one may do
//! (take the lock, read the positions), and sends the result to all. Whatever ends the start ends it
//! everywhere, with the same sentence.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cluster::follow::follow;
use crate::cluster::lead::lead;
use crate::cluster::mesh::Mesh;
use crate::error::{Error, Result};
use crate::run::Stop;

/// How an agreement ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Agreed<S> {
    /// All processes start.
    Start {
        /// What process 0 found out.
        payload: S,
        /// How long ago the first epoch began, for [`Clock::started`](crate::Clock::started).
        elapsed: Duration,
    },
    /// A process was asked to stop; nothing starts, and nothing is wrong.
    Stopped,
}

/// Agrees with the other processes to start.
///
/// `plan` is the digest of this process's plan, or why it cannot start. `alone` runs in process 0
/// once all plans are the same; it may take long, and should call its argument at least once a second
/// while it waits, with a line for people that all processes log. That argument fails once a process
/// was asked to stop or was lost; `alone` should then return at once. Its error, with its kind, is the
/// error of all processes.
///
/// A process that is asked to stop after process 0 decided to start still starts, and finds `stop`
/// requested; so does process 0.
pub fn agree<S, F>(
    mesh: &mut Mesh,
    plan: Result<String>,
    stop: &Stop,
    alone: F,
) -> Result<Agreed<S>>
where
    S: Serialize + DeserializeOwned,
    F: FnOnce(&dyn Fn(&str) -> Result<()>) -> Result<S>,
{
    agree_and_tell(mesh, plan, stop, &|_| (), alone)
}

/// As [`agree()`], and tells `told` each line that `alone` waits with, at every process but 0.
pub(crate) fn agree_and_tell<S, F>(
    mesh: &mut Mesh,
    plan: Result<String>,
    stop: &Stop,
    told: &dyn Fn(&str),
    alone: F,
) -> Result<Agreed<S>>
where
    S: Serialize + DeserializeOwned,
    F: FnOnce(&dyn Fn(&str) -> Result<()>) -> Result<S>,
{
    if mesh.process == 0 { lead(mesh, plan, stop, alone) } else { follow(mesh, plan, stop, told) }
}

/// The launch of each process, as this one knows it.
pub(crate) fn launches(mesh: &Mesh) -> Vec<String> {
    let known = mesh.links.iter().map(|link| link.as_ref().map(|link| link.launch.clone()));
    known.map(|launch| launch.unwrap_or_else(|| mesh.launch.clone())).collect()
}

/// A message that does not belong where it came.
pub(crate) fn unexpected(process: usize) -> Error {
    Error::internal(format!(
        "process {process} sent a message that does not belong to this step of the start"
    ))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;
    use crate::cluster::limits::Limits;
    use crate::cluster::link::Link;
    use crate::cluster::message::Message;
    use crate::error::Kind;

    /// Two processes with short time limits.
    fn pair() -> (Mesh, Mesh) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let here = listener.accept().unwrap().0;
        let limits = Limits {
            ready: Duration::from_millis(1000),
            silence: Duration::from_millis(1000),
            beat: Duration::from_millis(50),
            grace: Duration::from_millis(300),
            ..Limits::default()
        };
        let mesh = |process: usize, stream| {
            let other = 1 - process;
            let launch = |process| format!("launch {process}");
            let link = Link::new(other, format!("host{other}:1"), launch(other), stream).unwrap();
            let mut links = vec![None, None];
            links[other] = Some(link);
            let addresses = vec!["host0:1".to_owned(), "host1:1".to_owned()];
            Mesh { process, links, addresses, launch: launch(process), limits }
        };
        (mesh(0, here), mesh(1, there))
    }

    fn plan() -> Result<String> {
        Ok("digest".to_owned())
    }

    fn idle(_: &dyn Fn(&str) -> Result<()>) -> Result<u64> {
        unreachable!("only process 0 works alone")
    }

    #[test]
    fn a_silent_process_0_is_an_error_that_names_it() {
        let (_zero, mut one) = pair();
        let error = agree(&mut one, plan(), &Stop::default(), idle).unwrap_err();
        assert_eq!(error.kind(), Kind::Peer);
        assert!(
            error.to_string().starts_with("process 0 at host0:1 went silent for 1s"),
            "{error}"
        );
    }

    #[test]
    fn a_process_that_is_never_ready_is_named() {
        let (mut zero, _one) = pair();
        let error = agree(&mut zero, plan(), &Stop::default(), |_| Ok(1u64)).unwrap_err();
        assert_eq!(error.kind(), Kind::Peer);
        assert!(
            error.to_string().starts_with("process 1 at host1:1 was not ready within"),
            "{error}"
        );
    }

    #[test]
    fn heartbeats_bridge_work_that_says_nothing_for_a_while() {
        let (mut zero, mut one) = pair();
        std::thread::scope(|scope| {
            let other = scope.spawn(move || agree(&mut one, plan(), &Stop::default(), idle));
            let mine = agree(&mut zero, plan(), &Stop::default(), |_| {
                std::thread::sleep(Duration::from_millis(2500));
                Ok(5u64)
            });
            assert!(matches!(mine.unwrap(), Agreed::Start { payload: 5, .. }));
            assert!(matches!(other.join().unwrap().unwrap(), Agreed::Start { payload: 5, .. }));
        });
    }

    #[test]
    fn a_lead_that_is_stuck_does_not_keep_the_others_for_ever() {
        let (mut zero, mut one) = pair();
        zero.limits.stuck = Duration::from_millis(200);
        std::thread::scope(|scope| {
            let other = scope.spawn(move || agree(&mut one, plan(), &Stop::default(), idle));
            let mine = agree(&mut zero, plan(), &Stop::default(), |waiting| {
                std::thread::sleep(Duration::from_millis(2500));
                waiting("back again")?;
                Ok(5u64)
            });
            assert_eq!(mine.unwrap_err().kind(), Kind::Peer);
            assert!(other.join().unwrap().unwrap_err().to_string().contains("went silent"));
        });
    }

    #[test]
    fn a_process_lost_during_the_standby_ends_it() {
        let (mut zero, mut one) = pair();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let link = one.links[0].as_mut().unwrap();
                let launches = launches_of(2);
                link.send(&Message::Ready { plan: Ok("digest".to_owned()), launches }).unwrap();
                std::thread::sleep(Duration::from_millis(200));
                drop(one);
            });
            let started = Instant::now();
            let error = agree(&mut zero, plan(), &Stop::default(), |waiting| {
                loop {
                    waiting("standing by")?;
                    std::thread::sleep(Duration::from_millis(10));
                    assert!(started.elapsed() < Duration::from_secs(5));
                }
                #[expect(unreachable_code, reason = "names the payload's type")]
                Ok(1u64)
            });
            let error = error.unwrap_err();
            assert_eq!(error.kind(), Kind::Peer);
            assert!(error.to_string().starts_with("lost process 1 at host1:1"), "{error}");
        });
    }

    #[test]
    fn a_stop_that_comes_too_late_starts_and_stops_all() {
        let (mut zero, mut one) = pair();
        let stop = Stop::default();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let link = one.links[0].as_mut().unwrap();
                let launches = launches_of(2);
                link.send(&Message::Ready { plan: Ok("digest".to_owned()), launches }).unwrap();
                loop {
                    if let Some(Message::Start { .. }) = link.poll().unwrap() {
                        // Sent before the start was read, read after it was sent.
                        link.send(&Message::Stop).unwrap();
                        link.send(&Message::Started).unwrap();
                        return;
                    }
                }
            });
            let agreed = agree(&mut zero, plan(), &stop, |_| Ok(1u64)).unwrap();
            assert!(matches!(agreed, Agreed::Start { payload: 1, .. }));
            assert!(stop.is_requested());
        });
    }

    fn launches_of(processes: usize) -> Vec<String> {
        (0..processes).map(|process| format!("launch {process}")).collect()
    }
}
