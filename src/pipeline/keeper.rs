//! Looks after the locks of a run while it lasts.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::RecvTimeoutError;

use crate::error::{Error, Result};
use crate::frame::Live;
use crate::sink::Lock;

/// Looks after the locks of a run, on a thread of its own.
pub(super) struct Keeper {
    over: Option<crossbeam_channel::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Keeper {
    /// How often it makes sure that the locks are still held.
    const EVERY: Duration = Duration::from_secs(2);

    /// `locks` are those of the stores, in their order.
    pub fn start(mut locks: Vec<Box<dyn Lock>>, live: Arc<Live>) -> Result<Self> {
        let (over, ends) = crossbeam_channel::bounded(0);
        let watch = move || {
            let mut unsure = vec![false; locks.len()];
            while let Err(RecvTimeoutError::Timeout) = ends.recv_timeout(Keeper::EVERY) {
                for ((lock, store), unsure) in locks.iter_mut().zip(&live.stores).zip(&mut unsure) {
                    match lock.check() {
                        Ok(again) => *unsure |= again,
                        Err(error) => return live.abort.raise(error),
                    }
                    // While nobody had the lock, another run may have come and gone.
                    if *unsure && let Ok(stored) = store.store.generation(&live.pipeline) {
                        *unsure = false;
                        if let Some(theirs) = stored.filter(|stored| *stored > store.generation) {
                            return live.abort.raise(super::fenced::by(
                                &live.pipeline,
                                theirs,
                                store.generation,
                            ));
                        }
                    }
                }
            }
        };
        let thread = std::thread::Builder::new().name("locks".to_owned()).spawn(watch);
        let thread =
            thread.map_err(|error| Error::internal(format!("start the locks' thread: {error}")))?;
        Ok(Keeper { over: Some(over), thread: Some(thread) })
    }

    /// Lets go of the locks without waiting for it.
    pub fn abandon(mut self) {
        self.thread = None;
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.over.take());
        if let Some(thread) = self.thread.take() {
            // A lock that panics has nothing left to release.
            let _ = thread.join();
        }
    }
}
