//! The part of process 0 in an agreement.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use serde::Serialize;

use crate::cluster::agree::{Agreed, launches, unexpected};
use crate::cluster::limits::Limits;
use crate::cluster::link::Link;
use crate::cluster::mesh::Mesh;
use crate::cluster::message::{Message, Refusal};
use crate::error::{Error, Kind, Result};
use crate::run::Stop;

/// A plan as a process told it.
type Plan = Result<String, Refusal>;

/// Gathers the plans, runs `alone`, and sends its result to all.
pub(crate) fn lead<S, F>(
    mesh: &mut Mesh,
    plan: Result<String>,
    stop: &Stop,
    alone: F,
) -> Result<Agreed<S>>
where
    S: Serialize,
    F: FnOnce(&dyn Fn(&str) -> Result<()>) -> Result<S>,
{
    let roster = launches(mesh);
    let mut lead = Lead {
        limits: mesh.limits,
        links: mesh.links.iter_mut().flatten().collect(),
        stop,
        ended: None,
        line: String::new(),
        beaten: None,
        spoken: Instant::now(),
    };
    let plan = plan.map_err(|error| Refusal::from(&error));
    let payload = match lead.gather(plan, &roster) {
        Ok(()) => match lead.work(alone) {
            Ok(payload) => payload,
            Err(end) => return lead.finish(end),
        },
        Err(end) => return lead.finish(end),
    };
    let base = Instant::now();
    match lead.start(&payload, base) {
        Ok(()) => Ok(Agreed::Start { payload, elapsed: base.elapsed() }),
        Err(error) => lead.finish(End::Failed(error)),
    }
}

/// Why nothing starts.
enum End {
    Stopped,
    Failed(Error),
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        End::Failed(error)
    }
}

struct Lead<'a> {
    limits: Limits,
    links: Vec<&'a mut Link>,
    stop: &'a Stop,
    /// What ended the start while `alone` was busy.
    ended: Option<End>,
    line: String,
    beaten: Option<Instant>,
    /// When `alone` last said something.
    spoken: Instant,
}

impl Lead<'_> {
    /// Waits until all processes told their plans, and compares.
    fn gather(&mut self, own: Plan, roster: &[String]) -> Result<(), End> {
        let deadline = Instant::now() + self.limits.ready;
        let mut plans: Vec<Option<Plan>> = vec![None; self.links.len()];
        loop {
            if self.stop.is_requested() {
                return Err(End::Stopped);
            }
            for (link, plan) in self.links.iter_mut().zip(&mut plans) {
                match link.poll()? {
                    None => {}
                    Some(Message::Stop) => return Err(End::Stopped),
                    Some(Message::Refused(refusal)) => return Err(Error::from(refusal).into()),
                    Some(Message::Ready { plan: told, launches }) if plan.is_none() => {
                        same_launches(link.process, &launches, roster)?;
                        *plan = Some(told);
                    }
                    Some(_) => return Err(unexpected(link.process).into()),
                }
            }
            let Some(missing) = plans.iter().position(Option::is_none) else { break };
            let (process, address) = (self.links[missing].process, &self.links[missing].address);
            if Instant::now() > deadline {
                let limit = self.limits.ready;
                let sentence = format!(
                    "process {process} at {address} was not ready within {limit:?}; restart all processes together"
                );
                return Err(Error::new(Kind::Peer, sentence).retryable(true).into());
            }
            self.line = format!("waiting for process {process} to be ready");
            self.beat()?;
            std::thread::sleep(Duration::from_millis(10));
        }
        let others =
            self.links.iter().zip(plans).filter_map(|(link, plan)| Some((link.process, plan?)));
        judge(std::iter::once((0, own)).chain(others).collect())?;
        Ok(())
    }

    /// Runs `alone` while a thread keeps the other processes patient.
    fn work<S, F>(&mut self, alone: F) -> Result<S, End>
    where
        F: FnOnce(&dyn Fn(&str) -> Result<()>) -> Result<S>,
    {
        self.line.clear();
        self.spoken = Instant::now();
        let said = Cell::new(String::new());
        let shared = Mutex::new(self);
        let result = std::thread::scope(|scope| {
            // Dropping the sender ends the thread, also when `alone` panics.
            let (pulse, over) = bounded::<()>(0);
            let _pulse: Sender<()> = pulse;
            let heart = &shared;
            scope.spawn(move || {
                while over.recv_timeout(Duration::from_millis(100))
                    == Err(RecvTimeoutError::Timeout)
                {
                    lock(heart).look();
                }
            });
            alone(&|line| {
                if said.replace(line.to_owned()) != line {
                    tracing::info!("{line}");
                }
                lock(&shared).hear(line)
            })
        });
        let lead = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        lead.look();
        match (lead.ended.take(), result) {
            (Some(end), _) => Err(end),
            (None, result) => result.map_err(End::Failed),
        }
    }

    /// `alone` said `line`; fails when it should give up.
    fn hear(&mut self, line: &str) -> Result<()> {
        self.spoken = Instant::now();
        if self.line != line {
            self.line = line.to_owned();
            self.beaten = None;
        }
        self.look();
        match &self.ended {
            None => Ok(()),
            Some(End::Stopped) => Err(Error::internal("the start was asked to stop")),
            Some(End::Failed(error)) => Err(Error::from(Refusal::from(error))),
        }
    }

    /// Looks whether the start must end, and shows a sign of life.
    fn look(&mut self) {
        if self.ended.is_some() {
            return;
        }
        if self.stop.is_requested() {
            self.ended = Some(End::Stopped);
            return;
        }
        for link in &mut self.links {
            match link.poll() {
                Ok(None) => continue,
                Ok(Some(Message::Stop)) => self.ended = Some(End::Stopped),
                Ok(Some(Message::Refused(refusal))) => {
                    self.ended = Some(Error::from(refusal).into());
                }
                Ok(Some(_)) => self.ended = Some(unexpected(link.process).into()),
                Err(error) => self.ended = Some(error.into()),
            }
            return;
        }
        if let Err(error) = self.beat() {
            self.ended = Some(error.into());
        }
    }

    fn beat(&mut self) -> Result<()> {
        let due = self.beaten.is_none_or(|beaten| beaten.elapsed() >= self.limits.beat);
        if due && self.spoken.elapsed() < self.limits.stuck {
            self.beaten = Some(Instant::now());
            for link in &mut self.links {
                link.send(&Message::Waiting { line: self.line.clone() })?;
            }
        }
        Ok(())
    }

    /// Sends the start to all, and waits until each has left the agreement.
    fn start<S: Serialize>(&mut self, payload: &S, base: Instant) -> Result<()> {
        if self.links.is_empty() {
            return Ok(());
        }
        let payload = serde_json::to_value(payload).map_err(|error| {
            Error::internal("what process 0 found out cannot be written as JSON").because(error)
        })?;
        for link in &mut self.links {
            link.send(&Message::Start { payload: payload.clone(), elapsed: base.elapsed() })?;
        }
        let deadline = Instant::now() + self.limits.silence;
        for link in &mut self.links {
            loop {
                match link.poll()? {
                    Some(Message::Started) => break,
                    // Too late to stay: all start, and stop in good order.
                    Some(Message::Stop) => self.stop.request(),
                    Some(_) => return Err(unexpected(link.process)),
                    None if Instant::now() > deadline => return Err(link.lost()),
                    None => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        }
        Ok(())
    }

    /// Tells all that nothing starts.
    fn finish<S>(&mut self, end: End) -> Result<Agreed<S>> {
        let message = match &end {
            End::Stopped => Message::Stopped,
            End::Failed(error) => Message::Refused(error.into()),
        };
        // A process that is lost already cannot be told.
        self.links.retain_mut(|link| link.send(&message).is_ok());
        for link in &mut self.links {
            link.part(Duration::from_secs(1));
        }
        match end {
            End::Stopped => Ok(Agreed::Stopped),
            End::Failed(error) => Err(error),
        }
    }
}

fn lock<'m, T>(mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// All connections must lead to the same start of each process.
fn same_launches(process: usize, theirs: &[String], roster: &[String]) -> Result<()> {
    let odd = roster.iter().zip(theirs).position(|(a, b)| a != b);
    let Some(other) = odd.or((roster.len() != theirs.len()).then_some(process)) else {
        return Ok(());
    };
    let sentence = format!(
        "process {process} is connected to an earlier start of process {other}; restart all processes together"
    );
    Err(Error::new(Kind::Peer, sentence).retryable(true))
}

/// Whether all plans stand and are the same; names the first process that differs.
fn judge(plans: Vec<(usize, Plan)>) -> Result<()> {
    let failed = plans.iter().filter_map(|(process, plan)| Some((process, plan.as_ref().err()?)));
    let failed: Vec<_> = failed.collect();
    if let Some((process, refusal)) = failed.first() {
        let shared =
            failed.len() == plans.len() && failed.iter().all(|(_, other)| other == refusal);
        let refusal =
            if shared { (*refusal).clone() } else { refusal.at(&format!("process {process}")) };
        return Err(refusal.into());
    }
    let digests: Vec<_> =
        plans.iter().filter_map(|(p, plan)| Some((p, plan.as_ref().ok()?))).collect();
    let (_, first) = digests[0];
    match digests.iter().find(|(_, digest)| digest != &first) {
        None => Ok(()),
        Some((process, other)) => Err(Error::config(format!(
            "process {process} runs another dataflow (plan digest `{other}` against `{first}`); start all processes from the same build and parameters"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(sentence: &str) -> Plan {
        Err(Refusal::from(&Error::config(sentence)))
    }

    #[test]
    fn the_process_that_fails_is_named() {
        let plans = vec![(0, Ok("a".to_owned())), (1, failed("table `x` does not exist"))];
        let error = judge(plans).unwrap_err();
        assert_eq!(error.to_string(), "process 1: table `x` does not exist");
        assert_eq!(error.kind(), Kind::Config);
    }

    #[test]
    fn what_all_say_is_said_once() {
        let plans = vec![(0, failed("no table")), (1, failed("no table"))];
        assert_eq!(judge(plans).unwrap_err().to_string(), "no table");
        assert_eq!(judge(vec![(0, failed("no table"))]).unwrap_err().to_string(), "no table");
    }

    #[test]
    fn an_earlier_start_of_a_process_is_named() {
        let roster = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
        assert!(same_launches(2, &roster, &roster).is_ok());
        let stale = ["a".to_owned(), "old".to_owned(), "c".to_owned()];
        let error = same_launches(2, &stale, &roster).unwrap_err();
        assert!(
            error.to_string().contains("process 2 is connected to an earlier start of process 1")
        );
        assert_eq!(error.kind(), Kind::Peer);
    }
}
