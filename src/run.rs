//! What all threads of a run share: the request to stop, and the fault that aborts it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

use crate::error::Error;

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

/// A mutex whose data no panic can leave half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
