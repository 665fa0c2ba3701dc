//! Deletes what was set aside long ago, while a run lasts.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};

use crate::error::{Error, Result};
use crate::sink::{Selection, Store};

/// How often it looks.
const EVERY: Duration = Duration::from_secs(3600);

/// How long the end of a run waits for a transaction that deletes.
const END: Duration = Duration::from_secs(5);

/// Looks at once and then every hour, on a thread of its own, until it is dropped.
pub(crate) struct Retention {
    over: Option<Sender<()>>,
    ended: Receiver<()>,
}

impl Retention {
    /// Keeps what `pipeline` has set aside for `keep`.
    pub(crate) fn start(
        pipeline: &str,
        stores: Vec<Arc<dyn Store>>,
        keep: Duration,
    ) -> Result<Self> {
        let (over, ends) = bounded::<()>(0);
        let (end, ended) = bounded::<()>(0);
        let pipeline = pipeline.to_owned();
        let look = move || {
            loop {
                stores.iter().for_each(|store| apply(&**store, &pipeline, keep, &ends));
                if ends.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    break;
                }
            }
            drop(end);
        };
        thread::Builder::new()
            .name("retention".to_owned())
            .spawn(look)
            .map_err(|error| Error::internal(format!("start a thread: {error}")))?;
        Ok(Retention { over: Some(over), ended })
    }
}

/// A failure is for people: the run goes on.
fn apply(store: &dyn Store, pipeline: &str, keep: Duration, ends: &Receiver<()>) {
    let Some(until) = SystemTime::now().checked_sub(keep) else { return };
    let old = Selection { until: Some(until), ..Selection::default() };
    let mut go_on = |_| ends.try_recv() == Err(TryRecvError::Empty);
    match store.discard(pipeline, &old, &mut go_on) {
        Ok(0) => {}
        Ok(deleted) => tracing::info!(pipeline, deleted, "deleted old rejects"),
        Err(error) => tracing::warn!(pipeline, "old rejects stay for now: {error}"),
    }
}

impl Drop for Retention {
    fn drop(&mut self) {
        drop(self.over.take());
        // What it has not deleted by then stays for the next run.
        let _ = self.ended.recv_timeout(END);
    }
}
