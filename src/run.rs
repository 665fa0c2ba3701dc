//! What all threads of a run share: the request to stop, and the fault that aborts it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Thread;

use crate::error::Error;

/// The first fault of a run. Once raised, no epoch closes and nothing more is committed (contract C8):
/// whoever meets a fault raises it and keeps its capabilities.
#[derive(Clone, Default)]
pub struct Abort(Arc<Inner>);

#[derive(Default)]
struct Inner {
    raised: AtomicBool,
    first: Mutex<Option<Error>>,
    workers: Mutex<Vec<Thread>>,
}

impl Abort {
    /// Raises the fault; only the first is kept. Wakes all workers of the process.
    pub fn raise(&self, error: Error) {
        {
            let mut first = self.0.first.lock().unwrap_or_else(PoisonError::into_inner);
            if first.is_none() {
                *first = Some(error);
            }
            self.0.raised.store(true, Ordering::SeqCst);
        }
        self.wake();
    }

    /// Whether a fault was raised.
    pub fn is_raised(&self) -> bool {
        self.0.raised.load(Ordering::SeqCst)
    }

    /// Takes the fault, for the run's result.
    pub fn take(&self) -> Option<Error> {
        self.0.first.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Registers the calling thread to be woken by a fault.
    pub(crate) fn register(&self) {
        let mut workers = self.0.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.push(std::thread::current());
    }

    /// Wakes all registered threads.
    pub(crate) fn wake(&self) {
        for worker in self.0.workers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            worker.unpark();
        }
    }
}

/// The request to end a run in good order: flush, commit, leave.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks the run to end.
    pub fn request(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether the run was asked to end.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}
