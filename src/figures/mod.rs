//! What a process of a run does, in figures, while it does it.
//!
//! [`Figures`] is made by whoever starts a run and handed to it in its options, so that it can be looked
//! at before the run stands. The parts of the run look their *meters* up once and add to them: a few
//! relaxed atomics a poll, a lock a flush, nothing a record. Figures change after the fact: the truth is in
//! the stores. [`Figures::snapshot`] is the one thing that is shown to people.

mod health;
mod histogram;
mod lane;
mod pattern;
mod rates;
mod rejects;
mod snapshot;
mod store;
mod worker;

pub use health::{PARTITION_STALLED_MS, STALLED_MS, STUCK_MS, live, ready};
pub use histogram::{BYTES, FLUSH_SECONDS, Histogram, LATENCY_SECONDS, ROWS};
pub use lane::{Committed, LaneMeter};
pub(crate) use pattern::{line, pattern};
pub use rates::{Rate, Rates};
pub use snapshot::{
    Health, NodeFigures, PartitionFigures, Phase, RejectFigures, SinkFigures, SliceFigures,
    Snapshot, StoreFigures, WorkerFigures,
};
pub use store::{Flushed, SinkMeter, StoreMeter};
pub use worker::{NodeMeter, WorkerMeter};

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use self::rejects::Groups;

/// The figures of one process of a run; clones of its `Arc` share them.
#[derive(Default)]
pub struct Figures {
    state: Mutex<State>,
    /// Apart, since a flush may tell of many.
    rejects: Mutex<Groups>,
    durable_ms: AtomicI64,
}

#[derive(Default)]
struct State {
    run: About,
    started_ms: i64,
    running_ms: i64,
    phase: Phase,
    detail: String,
    planned: Option<u64>,
    lanes: BTreeMap<(String, i32), Arc<LaneMeter>>,
    sinks: BTreeMap<String, Arc<SinkMeter>>,
    stores: BTreeMap<String, Arc<StoreMeter>>,
    workers: BTreeMap<usize, Arc<WorkerMeter>>,
    nodes: BTreeMap<usize, Arc<NodeMeter>>,
}

/// What a run is, as known when it begins.
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The pipeline's name.
    pub pipeline: String,
    /// The index of this process.
    pub process: usize,
    /// How many processes there are.
    pub processes: usize,
    /// How many workers each has.
    pub threads: usize,
    /// Whether the run ends at the ends seen at its start.
    pub until_end: bool,
    /// How long the first row of a transaction waits for others.
    pub linger: Duration,
    /// How much this process may hold in memory, in bytes.
    pub memory: usize,
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}

impl Figures {
    /// Begins a run: forgets all figures of an earlier one.
    pub fn begin(&self, run: About) {
        self.durable_ms.store(0, Ordering::Relaxed);
        *lock(&self.rejects) = Groups::default();
        *lock(&self.state) = State { run, started_ms: now_ms(), ..State::default() };
    }

    /// Tells what the run is doing, and, in words, what it waits for or failed with.
    pub fn phase(&self, phase: Phase, detail: impl Into<String>) {
        let mut state = lock(&self.state);
        (state.phase, state.detail) = (phase, detail.into());
        if phase == Phase::Running {
            state.running_ms = now_ms();
        }
    }

    /// The run was asked to end, if it is running.
    pub fn stopping(&self) {
        let mut state = lock(&self.state);
        if state.phase == Phase::Running {
            (state.phase, state.detail) = (Phase::Stopping, String::new());
        }
    }

    /// How many offsets the slices of this process have before them in a bounded run.
    pub fn plan(&self, offsets: u64) {
        lock(&self.state).planned = Some(offsets).filter(|planned| *planned > 0);
    }

    /// Everything that was read `age` ago or earlier is durable, cluster-wide.
    pub fn durable(&self, age: Duration) {
        let then = now_ms().saturating_sub(age.as_millis().try_into().unwrap_or(i64::MAX));
        self.durable_ms.fetch_max(then, Ordering::Relaxed);
    }

    /// The meter of a partition, read by `worker` from `position` on.
    pub fn lane(
        &self,
        topic: &str,
        partition: i32,
        worker: usize,
        position: i64,
    ) -> Arc<LaneMeter> {
        let mut state = lock(&self.state);
        let lane = state.lanes.entry((topic.to_owned(), partition));
        Arc::clone(lane.or_insert_with(|| Arc::new(LaneMeter::new(worker, position))))
    }

    /// Notes what a transaction committed of a slice; its partition must have a meter.
    pub fn committed(&self, sink: &str, topic: &str, partition: i32, committed: &Committed) {
        let lane = lock(&self.state).lanes.get(&(topic.to_owned(), partition)).cloned();
        if let Some(lane) = lane {
            lane.committed(sink, committed);
        }
    }

    /// Notes a refused record.
    pub fn rejected(&self, sink: &str, example: &dyn fmt::Display, reject: RejectKind<'_>) {
        lock(&self.rejects).add(sink, example, reject);
    }

    /// The meter of a sink; `make` describes one that is new.
    pub fn sink(&self, name: &str, make: impl FnOnce() -> SinkMeter) -> Arc<SinkMeter> {
        let mut state = lock(&self.state);
        Arc::clone(state.sinks.entry(name.to_owned()).or_insert_with(|| Arc::new(make())))
    }

    /// The meter of a store.
    pub fn store(&self, identity: &str) -> Arc<StoreMeter> {
        Arc::clone(lock(&self.state).stores.entry(identity.to_owned()).or_default())
    }

    /// The meter of a worker, by its index in the cluster.
    pub fn worker(&self, index: usize) -> Arc<WorkerMeter> {
        Arc::clone(lock(&self.state).workers.entry(index).or_default())
    }

    /// The meter of a node; `make` describes one that is new.
    pub fn node(&self, id: usize, make: impl FnOnce() -> NodeMeter) -> Arc<NodeMeter> {
        let mut state = lock(&self.state);
        Arc::clone(state.nodes.entry(id).or_insert_with(|| Arc::new(make())))
    }

    /// All figures, as they are now.
    pub fn snapshot(&self) -> Snapshot {
        let now_ms = now_ms();
        let mut snapshot = {
            let state = lock(&self.state);
            let lanes = state.lanes.iter();
            let (partitions, slices): (Vec<_>, Vec<_>) = lanes
                .map(|((topic, partition), lane)| lane.figures(topic, *partition, now_ms))
                .unzip();
            let stores = state.stores.iter();
            Snapshot {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                pipeline: state.run.pipeline.clone(),
                process: state.run.process,
                processes: state.run.processes,
                threads: state.run.threads,
                started_ms: state.started_ms,
                running_ms: state.running_ms,
                now_ms,
                phase: state.phase,
                detail: state.detail.clone(),
                until_end: state.run.until_end,
                planned: state.planned,
                consumed: partitions.iter().map(|partition| partition.consumed).sum(),
                durable_epoch_ms: self.durable_ms.load(Ordering::Relaxed),
                linger_ms: state.run.linger.as_millis().try_into().unwrap_or(i64::MAX),
                memory_budget_bytes: state.run.memory as u64,
                partitions,
                sinks: state.sinks.iter().map(|(name, sink)| sink.figures(name)).collect(),
                slices: slices.into_iter().flatten().collect(),
                stores: stores.map(|(identity, store)| store.figures(identity)).collect(),
                workers: state.workers.iter().map(|(index, w)| w.figures(*index, now_ms)).collect(),
                nodes: state.nodes.iter().map(|(id, node)| node.figures(*id)).collect(),
                rejects: lock(&self.rejects).figures(),
                ..Snapshot::default()
            }
        };
        let held = snapshot.workers.iter().any(|worker| worker.in_flight_bytes > 0);
        let behind = snapshot.partitions.iter().any(|partition| partition.durable_age_ms > 0);
        if snapshot.durable_epoch_ms > 0 && (held || behind) {
            snapshot.durable_age_ms = (now_ms - snapshot.durable_epoch_ms).max(0);
        }
        snapshot.live = live(&snapshot);
        snapshot.ready = ready(&snapshot);
        snapshot
    }
}

/// What tells a refused record's kind.
#[derive(Clone, Copy, Debug)]
pub struct RejectKind<'a> {
    /// The step that refused it.
    pub step: &'a str,
    /// Why, as it was said of this one.
    pub reason: &'a str,
    /// The SQLSTATE, if any.
    pub sqlstate: Option<&'a str>,
    /// The column at fault, where one is known.
    pub column: Option<&'a str>,
}

/// This moment, in Unix milliseconds.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(i64::MAX)
}

/// A mutex whose data no panic can leave half changed in a way that matters: they are figures.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let figures = Figures::default();
        figures.begin(About { pipeline: "orders".into(), threads: 1, ..About::default() });
        figures
    }

    #[test]
    fn a_run_is_told_from_its_beginning_to_its_end() {
        let figures = figures();
        assert_eq!(figures.snapshot().phase, Phase::Connecting);
        assert!(!figures.snapshot().ready.ok && figures.snapshot().live.ok);
        figures.phase(Phase::Standby, "standby of pipeline `orders`, waiting: for pid 7");
        assert_eq!(figures.snapshot().ready.reason, figures.snapshot().detail);
        figures.stopping();
        assert_eq!(figures.snapshot().phase, Phase::Standby, "only a run that runs is stopping");
        figures.phase(Phase::Running, "");
        assert!(figures.snapshot().ready.ok);
        figures.stopping();
        assert_eq!(figures.snapshot().phase, Phase::Stopping);
        figures.begin(About::default());
        assert_eq!(figures.snapshot().pipeline, "");
    }

    #[test]
    fn what_is_committed_is_counted_once_a_slice_and_the_least_position_is_durable() {
        let figures = figures();
        let lane = figures.lane("orders", 3, 0, 10);
        lane.slice("a", 10);
        lane.slice("b", 12);
        lane.read(5, 100, 15);
        let commit = |sink: &str, upto, written| {
            let committed = Committed { upto, consumed: written, written, ..Committed::default() };
            figures.committed(sink, "orders", 3, &committed);
        };
        commit("a", 15, 5);
        let snapshot = figures.snapshot();
        assert_eq!((snapshot.partitions[0].position, snapshot.partitions[0].durable), (15, 12));
        commit("b", 15, 3);
        let snapshot = figures.snapshot();
        assert_eq!((snapshot.partitions[0].durable, snapshot.partitions[0].lag), (15, None));
        assert_eq!(snapshot.slices.len(), 2);
        assert_eq!((snapshot.consumed, snapshot.sum(|slice| slice.written)), (5, 8));
    }

    #[test]
    fn a_partition_ages_only_while_something_is_behind() {
        let figures = figures();
        let lane = figures.lane("orders", 0, 0, 0);
        lane.slice("a", 0);
        let age = || figures.snapshot().partitions[0].durable_age_ms;
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(age(), 0);
        lane.end(7);
        std::thread::sleep(Duration::from_millis(20));
        let behind = age();
        assert!((20..10_000).contains(&behind), "{behind}");
        figures.committed("a", "orders", 0, &Committed { upto: 7, ..Committed::default() });
        assert_eq!((age(), figures.snapshot().lag()), (0, 0));
    }

    #[test]
    fn the_json_form_reads_as_it_was_written() {
        let figures = figures();
        figures.lane("orders", 0, 0, 0).slice("a", 0);
        figures.store("memory").retry(0, "08", "connection lost");
        figures.worker(0);
        figures.rejected(
            "a",
            &"orders[0]@4",
            RejectKind { step: "decode", reason: "no 7", sqlstate: None, column: None },
        );
        let snapshot = figures.snapshot();
        let json = serde_json::to_string(&snapshot).unwrap();
        assert_eq!(serde_json::from_str::<Snapshot>(&json).unwrap(), snapshot);
        assert!(json.contains(r#""phase":"connecting""#), "{json}");
        // A `top` of another version reads what it knows.
        let other: Snapshot = serde_json::from_str(r#"{"phase":"running","new":1}"#).unwrap();
        assert_eq!(other.phase, Phase::Running);
    }
}
