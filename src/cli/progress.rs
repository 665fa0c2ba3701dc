//! How a run is doing: a bar on a terminal, otherwise a line in the log every 10 s.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use indicatif::{HumanCount, HumanDuration, ProgressBar, ProgressStyle};

use super::logging::{self, Format};
use crate::figures::{Figures, Phase, Rate, Rates, Snapshot};

/// How often the bar is drawn.
const DRAW: Duration = Duration::from_millis(100);
/// How often the log tells.
const TELL: Duration = Duration::from_secs(10);
/// Over how long a rate on the bar is taken.
const RATE: Duration = Duration::from_millis(500);

/// The bar that is on the terminal now.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// Calls `write`, which writes to standard error, while no bar is in the way.
pub(super) fn suspended(write: impl FnOnce()) {
    let bar = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match bar {
        Some(bar) => bar.suspend(write),
        None => write(),
    }
}

/// Shows a bar from its start until it is dropped; without a terminal, it is hidden.
pub(super) struct Shown(pub ProgressBar);

impl Shown {
    pub(super) fn new(bar: ProgressBar) -> Self {
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        Shown(bar)
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.0.finish_and_clear();
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Shows how a run is doing, until it is dropped.
pub(super) struct Progress {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Follows a run until its end; also before it reads.
    pub(super) fn start(figures: Arc<Figures>) -> Self {
        let (end, ended) = bounded::<()>(0);
        let terminal = std::io::stderr().is_terminal() && logging::format() == Format::Text;
        let show = move || {
            let mut rates = Rates::default();
            rates.see(&figures.snapshot());
            let bar = terminal.then(|| Shown::new(ProgressBar::no_length()));
            let every = if terminal { DRAW } else { TELL };
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                let snapshot = figures.snapshot();
                rates.see(&snapshot);
                match &bar {
                    Some(bar) => draw(&bar.0, &snapshot, &rates),
                    None => tell(&snapshot, &rates),
                }
            }
        };
        // A run without a bar is a run all the same.
        let thread = thread::Builder::new().name("tidegate:progress".into()).spawn(show).ok();
        Progress { end: Some(end), thread }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn draw(bar: &ProgressBar, snapshot: &Snapshot, rates: &Rates) {
    let (template, about) = match (snapshot.phase, snapshot.planned) {
        (Phase::Running | Phase::Stopping, Some(planned)) => {
            bar.set_length(planned);
            // What is durable, not what was read: the bar is full when the run is done.
            bar.set_position(snapshot.sum(|slice| slice.consumed).min(planned));
            ("{elapsed_precise} [{bar:20}] {human_pos}/{human_len} {wide_msg}", None)
        }
        (Phase::Running | Phase::Stopping, None) => {
            bar.set_position(snapshot.consumed);
            let waiting = snapshot.consumed == 0;
            let about = waiting.then(|| "waiting for records".to_owned());
            ("{elapsed_precise} {spinner} {human_pos} {wide_msg}", about)
        }
        (phase, _) if snapshot.detail.is_empty() => {
            ("{elapsed_precise} {spinner} {wide_msg}", Some(phase.name().to_owned()))
        }
        _ => ("{elapsed_precise} {spinner} {wide_msg}", Some(snapshot.detail.clone())),
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
    bar.set_message(about.unwrap_or_else(|| line(snapshot, &rates.over(RATE))));
    bar.tick();
}

/// A run in one line.
fn line(snapshot: &Snapshot, rate: &Rate) -> String {
    let mut line = format!("{} rows/s", HumanCount(rate.rows.round() as u64));
    line += &match (snapshot.until_end, snapshot.lag(), rate.catch_up) {
        (true, _, Some(left)) => format!(", {} to go", HumanDuration(left)),
        (true, _, None) => String::new(),
        (false, 0, _) => ", lag 0".to_owned(),
        (false, lag, Some(left)) => {
            format!(", lag {}, caught up in {}", HumanCount(lag), HumanDuration(left))
        }
        (false, lag, None) => format!(", lag {} and not shrinking", HumanCount(lag)),
    };
    let rejected = snapshot.sum(|slice| slice.rejected);
    if rejected > 0 {
        line += &format!(", rejected {}", HumanCount(rejected));
    }
    if let Some(store) = snapshot.stores.iter().find(|store| store.interrupted.is_some()) {
        line += &format!(", writing to {} is interrupted", store.identity);
    }
    line
}

fn tell(snapshot: &Snapshot, rates: &Rates) {
    if !matches!(snapshot.phase, Phase::Running | Phase::Stopping) {
        return; // said where it began
    }
    let rate = rates.over(TELL);
    tracing::info!(
        records_per_s = rate.read.round() as u64,
        rows_per_s = rate.rows.round() as u64,
        lag = snapshot.lag(),
        caught_up_in_s = rate.catch_up.map(|left| left.as_secs()),
        filtered = snapshot.sum(|slice| slice.filtered),
        rejected = snapshot.sum(|slice| slice.rejected),
        durable_age_ms = snapshot.durable_age_ms,
        "running"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::PartitionFigures;

    #[test]
    fn the_line_says_how_far_behind_it_is_and_until_when() {
        let partition = PartitionFigures { lag: Some(1_200), ..Default::default() };
        let snapshot = Snapshot { partitions: vec![partition], ..Snapshot::default() };
        let rate = |catch_up| Rate { rows: 2_000.0, catch_up, ..Rate::default() };
        let minute = Some(Duration::from_secs(60));
        assert_eq!(
            line(&snapshot, &rate(minute)),
            "2,000 rows/s, lag 1,200, caught up in 60 seconds"
        );
        assert_eq!(line(&snapshot, &rate(None)), "2,000 rows/s, lag 1,200 and not shrinking");
        let bounded = Snapshot { until_end: true, ..snapshot };
        assert_eq!(line(&bounded, &rate(minute)), "2,000 rows/s, 60 seconds to go");
    }
}
