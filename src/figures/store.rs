//! The meters of a store and of a sink: what its writers of this process did.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::{
    BYTES, FLUSH_SECONDS, Histogram, LATENCY_SECONDS, ROWS, SinkFigures, StoreFigures, lock,
};

/// What one committed transaction took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flushed {
    /// Rows, refused records too.
    pub rows: u64,
    /// Encoded bytes.
    pub bytes: u64,
    /// From the first row to the beginning of the transaction.
    pub wait: Duration,
    /// In which rows were sent.
    pub copy: Duration,
    /// Between beginning and commit, in which none were.
    pub merge: Duration,
    /// From COMMIT to its answer.
    pub commit: Duration,
}

/// Counts what the writers of one store do.
#[derive(Debug, Default)]
pub struct StoreMeter {
    flushes: Mutex<Flushes>,
    bisections: AtomicU64,
    fence_losses: AtomicU64,
    retries: Mutex<BTreeMap<String, u64>>,
    /// Since when, and why, each worker's writer is interrupted.
    interrupted: Mutex<BTreeMap<usize, (Instant, String)>>,
}

#[derive(Debug)]
struct Flushes {
    count: u64,
    rows: Histogram,
    bytes: Histogram,
    wait: Histogram,
    copy: Histogram,
    merge: Histogram,
    commit: Histogram,
}

impl Default for Flushes {
    fn default() -> Self {
        let seconds = || Histogram::new(FLUSH_SECONDS);
        Flushes {
            count: 0,
            rows: Histogram::new(ROWS),
            bytes: Histogram::new(BYTES),
            wait: seconds(),
            copy: seconds(),
            merge: seconds(),
            commit: seconds(),
        }
    }
}

impl StoreMeter {
    /// A transaction was committed.
    pub fn flushed(&self, flushed: &Flushed) {
        let mut flushes = lock(&self.flushes);
        flushes.count += 1;
        flushes.rows.observe(flushed.rows as f64);
        flushes.bytes.observe(flushed.bytes as f64);
        flushes.wait.observe(flushed.wait.as_secs_f64());
        flushes.copy.observe(flushed.copy.as_secs_f64());
        flushes.merge.observe(flushed.merge.as_secs_f64());
        flushes.commit.observe(flushed.commit.as_secs_f64());
    }

    /// A run of rows was halved to find those that are refused.
    pub fn bisected(&self) {
        self.bisections.fetch_add(1, Ordering::Relaxed);
    }

    /// A writer found that another run has taken over.
    pub fn fenced(&self) {
        self.fence_losses.fetch_add(1, Ordering::Relaxed);
    }

    /// An attempt of `worker`'s writer failed for `reason`, and is repeated; `class` is that of the
    /// SQLSTATE or a word for what has none.
    pub fn retry(&self, worker: usize, class: &str, reason: &str) {
        *lock(&self.retries).entry(class.to_owned()).or_default() += 1;
        self.blocked(worker, reason);
    }

    /// `worker`'s writer is held up for `reason`, and has not failed.
    pub fn blocked(&self, worker: usize, reason: &str) {
        let mut interrupted = lock(&self.interrupted);
        interrupted.entry(worker).or_insert_with(|| (Instant::now(), String::new())).1 =
            reason.to_owned();
    }

    /// The writer of `worker` writes again, or has given up.
    pub fn resumed(&self, worker: usize) {
        lock(&self.interrupted).remove(&worker);
    }

    pub(super) fn figures(&self, identity: &str) -> StoreFigures {
        let interrupted = lock(&self.interrupted);
        let longest = interrupted.values().min_by_key(|(since, _)| *since);
        let flushes = lock(&self.flushes);
        StoreFigures {
            identity: identity.to_owned(),
            flushes: flushes.count,
            rows: flushes.rows.clone(),
            bytes: flushes.bytes.clone(),
            wait: flushes.wait.clone(),
            copy: flushes.copy.clone(),
            merge: flushes.merge.clone(),
            commit: flushes.commit.clone(),
            bisections: self.bisections.load(Ordering::Relaxed),
            retries: lock(&self.retries).clone(),
            fence_losses: self.fence_losses.load(Ordering::Relaxed),
            interrupted: longest.map(|(_, reason)| reason.clone()),
            interrupted_ms: longest.map_or(0, |(since, _)| since.elapsed().as_millis() as i64),
        }
    }
}

/// Counts what reaches one sink.
#[derive(Debug)]
pub struct SinkMeter {
    store: String,
    describe: String,
    latency: Mutex<Histogram>,
}

impl SinkMeter {
    /// The meter of a sink in the store of this identity, with the line that describes it.
    pub fn new(store: impl Into<String>, describe: impl Into<String>) -> Self {
        SinkMeter {
            store: store.into(),
            describe: describe.into(),
            latency: Mutex::new(Histogram::new(LATENCY_SECONDS)),
        }
    }

    /// `records` whose timestamps lie between these ages, in seconds, have become durable now. A record
    /// from the future counts as new.
    pub fn durable(&self, youngest: f64, oldest: f64, records: u64) {
        lock(&self.latency).observe_evenly(youngest.max(0.0), oldest.max(0.0), records);
    }

    pub(super) fn figures(&self, name: &str) -> SinkFigures {
        SinkFigures {
            name: name.to_owned(),
            store: self.store.clone(),
            describe: self.describe.clone(),
            guarantee: "exactly once".to_owned(),
            latency: lock(&self.latency).clone(),
        }
    }
}
