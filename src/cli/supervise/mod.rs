//! `run --supervise`: the processes of this host as children, started together, and together again when
//! one of them ends in a way that passes.
//!
//! A run has no rejoin: when one process is lost, all end, and all must start again. The children are
//! this same program with the same arguments; the environment tells each which process it is, and the
//! pipe of its standard input tells it to end, also by being closed: a supervisor that dies takes its
//! children with it.

mod child;
mod leash;
mod policy;

pub(super) use leash::Leash;

use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use self::child::{Child, Word};
use self::policy::{Restarts, Verdict, verdict};
use super::usage;
use crate::cluster::{Flags, panic};
use crate::error::{Error, Result};

/// How long the others may take to end by themselves after one has failed: they hear of it at once, and
/// end after 15 s at the latest. One that is frozen hears nothing.
const OTHERS: Duration = Duration::from_secs(20);
/// The same after they were asked to end, or one ended in good order, beyond their grace period.
const LATE: Duration = Duration::from_secs(10);
/// The same after they were told to end at once.
const AT_ONCE: Duration = Duration::from_secs(5);

/// What is supervised, and how.
pub(super) struct Supervision<'a> {
    /// The flags of the run.
    pub flags: &'a Flags,
    /// The processes that are this host's; those whose address is, where none are named.
    pub here: &'a [usize],
    /// How often in a row the processes are started again.
    pub max_restarts: u32,
    /// How long the first restart waits.
    pub delay: Duration,
    /// What the children have to end in good order.
    pub grace: Duration,
    /// Whether a line of a child says which child it is of.
    pub labelled: bool,
}

/// Runs the processes of this host until they end for good.
pub(super) fn supervise(how: &Supervision<'_>) -> Result<()> {
    let here = here(how)?;
    let signals = signals()?;
    let mut restarts = Restarts::new(how.max_restarts, how.delay, how.flags.peer_wait * 2);
    loop {
        let began = Instant::now();
        let mut set = Set { how, children: Vec::new(), asked: 0, deadline: None };
        for (place, process) in here.iter().enumerate() {
            set.children.push(Child::start(*process, place, how.labelled && here.len() > 1)?);
        }
        tracing::info!(processes = ?here, "the processes of this host are started");
        let codes = set.run(&signals);
        let asked = set.asked > 0;
        drop(set);
        let pause = match verdict(&codes) {
            Verdict::Done => return Ok(()),
            Verdict::Ended(code) if asked => panic::exit(code),
            Verdict::Lasting(code) => {
                tracing::error!(
                    "a process ended with exit code {code}, which no restart would help; not restarted"
                );
                panic::exit(code);
            }
            Verdict::Ended(code) => match restarts.next(began.elapsed()) {
                Some(pause) => {
                    let count = restarts.count();
                    tracing::warn!(
                        "a process ended with exit code {code}; all of this host start again in \
                         {pause:.1?} (restart {count} of {} in a row)",
                        how.max_restarts
                    );
                    (code, pause)
                }
                None => {
                    tracing::error!(
                        "a process ended with exit code {code}, after {} restarts in a row; given up",
                        how.max_restarts
                    );
                    panic::exit(code);
                }
            },
        };
        if asked_during(&signals, pause.1) {
            panic::exit(pause.0);
        }
    }
}

/// The processes of this host, each once, in their order.
fn here(how: &Supervision<'_>) -> Result<Vec<usize>> {
    how.flags.validate()?;
    if how.flags.process != 0 {
        return Err(usage(
            "--supervise starts the processes of this host itself; say which these are by --here instead of -p",
        ));
    }
    if how.here.is_empty() {
        return how.flags.here();
    }
    let mut here = how.here.to_vec();
    here.sort_unstable();
    here.dedup();
    match here.iter().find(|process| **process >= how.flags.processes) {
        None => Ok(here),
        Some(process) => Err(usage(format!(
            "--here names process {process}, but -n {} has only the processes 0 to {}",
            how.flags.processes,
            how.flags.processes - 1
        ))),
    }
}

/// SIGINT and SIGTERM, and the end of any child.
fn signals() -> Result<Receiver<i32>> {
    let cannot = |error| Error::internal("signals cannot be handled").because(error);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGCHLD]).map_err(cannot)?;
    // A signal that finds no room tells nothing that those before it do not.
    let (told, heard) = bounded(64);
    let listen = move || {
        for signal in signals.forever() {
            let _ = told.try_send(signal);
        }
    };
    std::thread::Builder::new().name("tidegate:signals".into()).spawn(listen).map_err(cannot)?;
    Ok(heard)
}

/// Waits; whether the end was asked for meanwhile.
fn asked_during(signals: &Receiver<i32>, pause: Duration) -> bool {
    let until = Instant::now() + pause;
    loop {
        match signals.recv_deadline(until) {
            Ok(SIGCHLD) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
    }
}

/// The children of one start.
struct Set<'a> {
    how: &'a Supervision<'a>,
    children: Vec<Child>,
    /// How often they were asked to end.
    asked: u32,
    /// When those that are left are killed.
    deadline: Option<Instant>,
}

impl Set<'_> {
    /// Waits until all have ended; their exit codes in the order in which they did.
    fn run(&mut self, signals: &Receiver<i32>) -> Vec<u8> {
        let mut codes = Vec::new();
        loop {
            for child in &mut self.children {
                if let Some(code) = child.ended() {
                    codes.push(code);
                }
            }
            if codes.len() == self.children.len() {
                return codes;
            }
            if !codes.is_empty() && self.deadline.is_none() {
                let good = codes.iter().all(|code| *code == 0);
                let patience = if good { self.how.grace + LATE } else { OTHERS };
                self.deadline = Some(Instant::now() + patience);
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.children.iter_mut().for_each(Child::kill);
                self.deadline = Some(Instant::now() + AT_ONCE);
            }
            // Also without a signal now and then: one could be lost.
            let wake = Instant::now() + Duration::from_secs(5);
            let wake = self.deadline.map_or(wake, |deadline| deadline.min(wake));
            match signals.recv_deadline(wake) {
                Ok(SIGCHLD) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
                Ok(_) => self.ask(),
            }
        }
    }

    /// Passes a request to end on: the first in good order, the second at once.
    fn ask(&mut self) {
        self.asked += 1;
        let (word, patience) = match self.asked {
            1 => (Word::Stop, self.how.grace + LATE),
            _ => (Word::Now, AT_ONCE),
        };
        let deadline = Instant::now() + patience;
        // Who asks again and again does not prolong it.
        self.deadline = Some(match self.deadline {
            Some(earlier) if self.asked > 1 => earlier.min(deadline),
            _ => deadline,
        });
        self.children.iter_mut().for_each(|child| child.tell(word));
    }
}
