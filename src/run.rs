//! What all threads of a run share: the request to stop, and the fault that aborts it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use crate::error::Error;
use crate::position::Counters;
use crate::record::{Lane, Offset};
use crate::source::Standing;

/// The first fault of a run. Once raised, no epoch closes and nothing more is committed (contract C8):
/// whoever meets a fault raises it and keeps its capabilities.
#[derive(Clone, Default)]
pub struct Abort(Arc<Fault>);

#[derive(Default)]
struct Fault {
    raised: Flag,
    first: Mutex<Option<Error>>,
}

impl Abort {
    /// Raises the fault; only the first is kept. Wakes all workers of the process.
    pub fn raise(&self, error: Error) {
        lock(&self.0.first).get_or_insert(error);
        self.0.raised.raise();
    }

    /// Whether a fault was raised.
    pub fn is_raised(&self) -> bool {
        self.0.raised.is_raised()
    }

    /// Takes the fault, for the run's result.
    pub fn take(&self) -> Option<Error> {
        lock(&self.0.first).take()
    }

    /// Registers the calling thread to be woken by a fault.
    pub(crate) fn register(&self) {
        self.0.raised.register();
    }
}

/// The request to end a run in good order: flush, commit, leave.
#[derive(Clone, Default)]
pub struct Stop(Arc<Flag>);

impl Stop {
    /// Asks the run to end. Wakes all workers of the process.
    pub fn request(&self) {
        self.0.raise();
    }

    /// Whether the run was asked to end.
    pub fn is_requested(&self) -> bool {
        self.0.is_raised()
    }

    /// Registers the calling thread to be woken by the request.
    pub(crate) fn register(&self) {
        self.0.register();
    }
}

/// Raised once, and then wakes the threads that registered.
#[derive(Default)]
struct Flag {
    raised: AtomicBool,
    threads: Mutex<Vec<Thread>>,
}

impl Flag {
    fn raise(&self) {
        self.raised.store(true, Ordering::SeqCst);
        lock(&self.threads).iter().for_each(Thread::unpark);
    }

    fn is_raised(&self) -> bool {
        self.raised.load(Ordering::SeqCst)
    }

    fn register(&self) {
        lock(&self.threads).push(std::thread::current());
    }
}

/// What the workers of a process have done in this run, for the progress bar and the log. Changed after
/// the fact: the truth is in the stores.
#[derive(Default)]
pub struct Stats {
    consumed: AtomicU64,
    durable: AtomicU64,
    planned: AtomicU64,
    stored: Mutex<Counters>,
    standings: Mutex<BTreeMap<Lane, Standing>>,
}

impl Stats {
    /// Counts records read.
    pub(crate) fn consumed(&self, records: u64) {
        self.consumed.fetch_add(records, Ordering::Relaxed);
    }

    /// Adds what a transaction stored.
    pub(crate) fn stored(&self, counters: Counters) {
        *lock(&self.stored) += counters;
    }

    /// Notes where reading stands.
    pub(crate) fn stand(&self, standings: Vec<Standing>) {
        let mut all = lock(&self.standings);
        all.extend(standings.into_iter().map(|standing| (standing.lane, standing)));
    }

    /// Notes the durable frontier.
    pub(crate) fn durable(&self, epoch: u64) {
        self.durable.store(epoch, Ordering::Relaxed);
    }

    /// Notes how many offsets the slices of this process have before them in a bounded run.
    pub(crate) fn plan(&self, offsets: u64) {
        self.planned.store(offsets, Ordering::Relaxed);
    }

    /// How many offsets the slices of this process had before them at the start, over all sinks; `None`
    /// in a run without an end.
    pub fn planned(&self) -> Option<u64> {
        Some(self.planned.load(Ordering::Relaxed)).filter(|planned| *planned > 0)
    }

    /// Records read in this run by this process.
    pub fn records(&self) -> u64 {
        self.consumed.load(Ordering::Relaxed)
    }

    /// What this run's transactions of this process stored.
    pub fn counters(&self) -> Counters {
        *lock(&self.stored)
    }

    /// Every epoch before this one is durable, cluster-wide.
    pub fn durable_epoch(&self) -> u64 {
        self.durable.load(Ordering::Relaxed)
    }

    /// Records between reading positions and ends, over the partitions of this process, as last heard.
    pub fn lag(&self) -> u64 {
        let behind = |standing: &Standing| {
            let Offset(end) = standing.end.unwrap_or(standing.position);
            u64::try_from(end - standing.position.0).unwrap_or(0)
        };
        lock(&self.standings).values().map(behind).sum()
    }
}

/// A mutex whose data no panic can leave half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
