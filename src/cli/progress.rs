//! How a run is doing: a bar on a terminal, otherwise a line in the log every 10 s.

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use crate::run::Stats;

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
    pub(super) fn start(stats: Arc<Stats>) -> Self {
        let (end, ended) = bounded::<()>(0);
        let terminal = std::io::stderr().is_terminal();
        let show = move || {
            let mut watch = Watch::new(&stats);
            let bar = terminal.then(|| Shown::new(ProgressBar::no_length()));
            let every = if terminal { DRAW } else { TELL };
            while ended.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                match &bar {
                    Some(bar) => watch.draw(&bar.0),
                    None => watch.tell(),
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

/// The stats, and what they were when rates were last taken.
struct Watch<'a> {
    stats: &'a Stats,
    since: Instant,
    records: u64,
    rows: u64,
    rates: (f64, f64),
}

impl<'a> Watch<'a> {
    fn new(stats: &'a Stats) -> Self {
        Watch { stats, since: Instant::now(), records: 0, rows: 0, rates: (0.0, 0.0) }
    }

    /// Records read and rows written a second, since at least `over` ago.
    fn rates(&mut self, over: Duration) -> (u64, u64) {
        let elapsed = self.since.elapsed();
        if elapsed >= over {
            let (records, rows) = (self.stats.records(), self.stats.counters().rows);
            let rate = |now: u64, then| (now - then) as f64 / elapsed.as_secs_f64();
            self.rates = (rate(records, self.records), rate(rows, self.rows));
            (self.since, self.records, self.rows) = (Instant::now(), records, rows);
        }
        (self.rates.0.round() as u64, self.rates.1.round() as u64)
    }

    fn draw(&mut self, bar: &ProgressBar) {
        let (_, rows) = self.rates(RATE);
        let counters = self.stats.counters();
        let mut about = format!(
            "{} rows/s, lag {}, filtered {}, rejected {}, epoch {}",
            HumanCount(rows),
            HumanCount(self.stats.lag()),
            HumanCount(counters.filtered),
            HumanCount(counters.rejected),
            self.stats.durable_epoch()
        );
        let template = match self.stats.planned() {
            Some(planned) => {
                bar.set_length(planned);
                // What is durable, not what was read: the bar is full when the run is done.
                bar.set_position(counters.consumed.min(planned));
                "{elapsed_precise} [{bar:20}] {human_pos}/{human_len} {wide_msg}"
            }
            None => {
                if self.stats.records() == 0 {
                    about = "waiting for records".into();
                }
                bar.set_position(self.stats.records());
                "{elapsed_precise} {spinner} {human_pos} {wide_msg}"
            }
        };
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well-formed"));
        bar.set_message(about);
        bar.tick();
    }

    fn tell(&mut self) {
        let (records, rows) = self.rates(Duration::ZERO);
        let counters = self.stats.counters();
        tracing::info!(
            records_per_s = records,
            rows_per_s = rows,
            lag = self.stats.lag(),
            filtered = counters.filtered,
            rejected = counters.rejected,
            durable_epoch = self.stats.durable_epoch(),
            "running"
        );
    }
}
