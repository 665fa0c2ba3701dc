//! Ends the program at a step that the environment names, as a power failure would: for tests. What it
//! needs is compiled in only where the tests are.

use std::sync::atomic::{AtomicU32, Ordering};

/// `step@n`: the program is killed when it comes to `step` for the `n`-th time.
const VARIABLE: &str = "TIDEGATE_FAILPOINT";

/// Arms the step that the environment names.
pub(super) fn install() {
    if !fail::has_failpoints() {
        return;
    }
    let Ok(text) = std::env::var(VARIABLE) else { return };
    let (step, count) = text.split_once('@').unwrap_or((&text, "1"));
    let Ok(count) = count.parse::<u32>() else { return };
    let reached = AtomicU32::new(0);
    let kill = move || {
        if reached.fetch_add(1, Ordering::SeqCst) + 1 == count {
            let _ = signal_hook::low_level::raise(signal_hook::consts::SIGKILL);
        }
    };
    let armed = fail::cfg_callback(step, kill);
    armed.unwrap_or_else(|error| tracing::error!("{VARIABLE}: {error}"));
}
