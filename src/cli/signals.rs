//! SIGINT and SIGTERM: the first ends a run in good order, the second at once.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use super::progress;
use crate::error::{Error, Result};
use crate::run::Stop;

/// The exit code after a second signal, as a shell has it for SIGINT.
pub(super) const AT_ONCE: i32 = 130;
/// The exit code of a run that was not done within its grace period, as `timeout` has it.
const LATE: i32 = 124;

/// The request to end, wherever it comes from.
#[derive(Clone)]
pub(super) struct Ask {
    stop: Stop,
    grace: Duration,
    asked: Arc<AtomicBool>,
}

impl Ask {
    pub(super) fn new(stop: Stop, grace: Duration) -> Self {
        Ask { stop, grace, asked: Arc::default() }
    }

    /// Asks the run to end in good order; from the first time on it has its grace period.
    pub(super) fn ask(&self) {
        if self.asked.swap(true, Ordering::SeqCst) {
            return;
        }
        tracing::info!("asked to end: storing what was read; a second signal ends at once");
        self.stop.request();
        let grace = self.grace;
        let _ = thread::Builder::new().name("tidegate:grace".into()).spawn(move || {
            thread::sleep(grace);
            progress::suspended(|| {
                let _ = writeln!(
                    std::io::stderr(),
                    "error: the run was not done {grace:?} after it was asked to end, and was \
                     ended; the next one reads again what was not stored"
                );
            });
            low_level::exit(LATE);
        });
    }
}

/// Asks at the first signal, and ends the program at the second.
pub(super) fn install(ask: Ask) -> Result<()> {
    let cannot = |error| Error::internal("signals cannot be handled").because(error);
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(cannot)?;
    let handle = move || {
        let mut signalled = false;
        for _ in signals.forever() {
            if signalled {
                low_level::exit(AT_ONCE);
            }
            signalled = true;
            ask.ask();
        }
    };
    thread::Builder::new().name("tidegate:signals".into()).spawn(handle).map_err(cannot)?;
    Ok(())
}
