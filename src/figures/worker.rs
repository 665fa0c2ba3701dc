//! The meters of a worker and of a node of the dataflow.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use super::{NodeFigures, WorkerFigures, now_ms};

/// Counts what one worker does.
#[derive(Debug)]
pub struct WorkerMeter {
    busy_ns: AtomicU64,
    parked_ns: AtomicU64,
    in_flight: AtomicU64,
    queued: AtomicI64,
    stepped_ms: AtomicI64,
}

impl Default for WorkerMeter {
    fn default() -> Self {
        WorkerMeter {
            busy_ns: AtomicU64::new(0),
            parked_ns: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            queued: AtomicI64::new(0),
            stepped_ms: AtomicI64::new(now_ms()),
        }
    }
}

impl WorkerMeter {
    /// It is at work.
    pub fn stepped(&self) {
        self.stepped_ms.store(now_ms(), Ordering::Relaxed);
    }

    /// Operators ran.
    pub fn busy(&self, time: Duration) {
        self.busy_ns.fetch_add(nanos(time), Ordering::Relaxed);
    }

    /// It waited.
    pub fn parked(&self, time: Duration) {
        self.parked_ns.fetch_add(nanos(time), Ordering::Relaxed);
    }

    /// So many bytes are handed over and not durable.
    pub fn in_flight(&self, bytes: usize) {
        self.in_flight.store(bytes as u64, Ordering::Relaxed);
    }

    /// So many closed epochs more, or fewer, are not durable.
    pub fn queued(&self, change: i64) {
        self.queued.fetch_add(change, Ordering::Relaxed);
    }

    pub(super) fn figures(&self, worker: usize, now_ms: i64) -> WorkerFigures {
        WorkerFigures {
            worker,
            busy_ms: self.busy_ns.load(Ordering::Relaxed) / 1_000_000,
            parked_ms: self.parked_ns.load(Ordering::Relaxed) / 1_000_000,
            in_flight_bytes: self.in_flight.load(Ordering::Relaxed),
            queued_epochs: self.queued.load(Ordering::Relaxed).max(0) as u64,
            stepped_ms: (now_ms - self.stepped_ms.load(Ordering::Relaxed)).max(0),
        }
    }
}

/// Counts what passes through one node of the dataflow, at all workers of the process.
#[derive(Debug)]
pub struct NodeMeter {
    kind: &'static str,
    label: String,
    inputs: Vec<usize>,
    records: AtomicU64,
    busy_ns: AtomicU64,
}

impl NodeMeter {
    /// The meter of a node of this kind and label, whose rows come from `inputs`.
    pub fn new(kind: &'static str, label: impl Into<String>, inputs: Vec<usize>) -> Self {
        NodeMeter {
            kind,
            label: label.into(),
            inputs,
            records: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
        }
    }

    /// It let rows through.
    pub fn passed(&self, records: usize) {
        self.records.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// It ran.
    pub fn busy(&self, time: Duration) {
        self.busy_ns.fetch_add(nanos(time), Ordering::Relaxed);
    }

    pub(super) fn figures(&self, id: usize) -> NodeFigures {
        NodeFigures {
            id,
            kind: self.kind.to_owned(),
            label: self.label.clone(),
            inputs: self.inputs.clone(),
            records: self.records.load(Ordering::Relaxed),
            busy_ms: self.busy_ns.load(Ordering::Relaxed) / 1_000_000,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos().try_into().unwrap_or(u64::MAX)
}
