//! What a process of a run knows of itself at one moment, in the form in which people get it.
//!
//! Everything that is shown (Prometheus, JSON, the page, `top`, the bar, the log) is read from one of
//! these. Nothing in it is secret: no payload, no key, no password.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Histogram;

/// The figures of one process of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// The version of the program.
    pub version: String,
    /// The pipeline's name.
    pub pipeline: String,
    /// The index of this process.
    pub process: usize,
    /// How many processes the run has.
    pub processes: usize,
    /// How many workers each process has.
    pub threads: usize,
    /// When the run began, in Unix milliseconds.
    pub started_ms: i64,
    /// When it began to read, in Unix milliseconds; 0 before.
    pub running_ms: i64,
    /// The moment of the snapshot, in Unix milliseconds.
    pub now_ms: i64,
    /// What the run is doing.
    pub phase: Phase,
    /// Who is waited for, or what the run failed with; else empty.
    pub detail: String,
    /// What `/healthz` answers.
    pub live: Health,
    /// What `/readyz` answers.
    pub ready: Health,
    /// Whether the run ends at the ends seen at its start.
    pub until_end: bool,
    /// How many offsets the slices of this process had before them at the start of a bounded run, over
    /// all sinks; `None` in a run without an end.
    pub planned: Option<u64>,
    /// Records read by this process.
    pub consumed: u64,
    /// The moment, in Unix milliseconds, before which everything that was read is durable, in the whole
    /// cluster; 0 before the first epoch.
    pub durable_epoch_ms: i64,
    /// How old that is, in milliseconds; 0 while everything read is durable and nothing is behind.
    pub durable_age_ms: i64,
    /// How long the first row of a transaction waits for others, in milliseconds.
    pub linger_ms: i64,
    /// How much this process may hold of what it has fetched and not yet stored, in bytes.
    pub memory_budget_bytes: u64,
    /// The partitions that this process reads, in order.
    pub partitions: Vec<PartitionFigures>,
    /// The sinks of the dataflow.
    pub sinks: Vec<SinkFigures>,
    /// The slices that this process moves: a partition, per sink.
    pub slices: Vec<SliceFigures>,
    /// The stores, each with the writers of this process.
    pub stores: Vec<StoreFigures>,
    /// The workers of this process.
    pub workers: Vec<WorkerFigures>,
    /// The dataflow's nodes, with what passed through them in this process.
    pub nodes: Vec<NodeFigures>,
    /// What was refused in this run and process, by reason; the largest group first.
    pub rejects: Vec<RejectFigures>,
}

/// What a run is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The processes of the cluster find each other.
    #[default]
    Connecting,
    /// Databases and topics are looked at, and the processes agree on a plan.
    Preparing,
    /// Another run holds the pipeline's lock.
    Standby,
    /// Records flow.
    Running,
    /// The run was asked to end, and stores what it has read.
    Stopping,
    /// The run has ended in good order.
    Ended,
    /// The run has failed.
    Failed,
}

impl Phase {
    /// All of them, in the order of a run.
    pub const ALL: [Phase; 7] = [
        Phase::Connecting,
        Phase::Preparing,
        Phase::Standby,
        Phase::Running,
        Phase::Stopping,
        Phase::Ended,
        Phase::Failed,
    ];

    /// Its name, as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Connecting => "connecting",
            Phase::Preparing => "preparing",
            Phase::Standby => "standby",
            Phase::Running => "running",
            Phase::Stopping => "stopping",
            Phase::Ended => "ended",
            Phase::Failed => "failed",
        }
    }
}

/// An answer to a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// Whether all is well.
    pub ok: bool,
    /// One sentence why, or why not.
    pub reason: String,
}

/// One partition that this process reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartitionFigures {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The worker that reads it, by its index in the cluster.
    pub worker: usize,
    /// The next offset to read.
    pub position: i64,
    /// The next offset to become durable: the least stored position over the sinks that it reaches.
    pub durable: i64,
    /// The next offset after the last stable one, as last heard; `None` before anything was heard.
    pub end: Option<i64>,
    /// Offsets between `durable` and `end`; `None` without an end.
    pub lag: Option<i64>,
    /// For how many milliseconds nothing of it became durable although something was behind; 0 while
    /// nothing is.
    pub durable_age_ms: i64,
    /// For how many milliseconds the source has not answered when it was asked for the end; 0 while it
    /// answers.
    pub silent_ms: i64,
    /// Why, while it does not.
    pub silence: Option<String>,
    /// Records read.
    pub consumed: u64,
    /// Bytes read: keys, values and a fixed share for each record.
    pub bytes: u64,
}

/// A sink.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SinkFigures {
    /// Its name in stored positions.
    pub name: String,
    /// The identity of its store.
    pub store: String,
    /// What is written where, in one line.
    pub describe: String,
    /// The guarantee in force, e.g. `exactly once`.
    pub guarantee: String,
    /// Seconds from the timestamps of records to the commit that made them durable. The records of one
    /// poll count as spread evenly between the least and the greatest timestamp among them.
    pub latency: Histogram,
}

/// What became of the records of a partition at a sink in this run, by what was committed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SliceFigures {
    /// The sink.
    pub sink: String,
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Its stored position: the next offset to become durable.
    pub position: i64,
    /// Records that were read; the sum of the four that follow.
    pub consumed: u64,
    /// Records that no filter kept.
    pub filtered: u64,
    /// Records of which a row was written, or a key deleted.
    pub written: u64,
    /// Records that were refused.
    pub rejected: u64,
    /// Records superseded by a later one of their key in the same flush.
    pub collapsed: u64,
    /// Rows written or deleted.
    pub rows: u64,
}

/// A store, with what the writers of this process did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoreFigures {
    /// Its identity, without a secret.
    pub identity: String,
    /// Transactions that were committed.
    pub flushes: u64,
    /// Rows a flush, refused records too.
    pub rows: Histogram,
    /// Encoded bytes a flush.
    pub bytes: Histogram,
    /// Seconds from the first row of a flush to the beginning of its transaction.
    pub wait: Histogram,
    /// Seconds of a flush in which rows were sent.
    pub copy: Histogram,
    /// Seconds of a flush between its beginning and its commit in which none were: merging, positions,
    /// failed attempts.
    pub merge: Histogram,
    /// Seconds from COMMIT to its answer.
    pub commit: Histogram,
    /// How often a run of rows was halved to find those that the server refuses.
    pub bisections: u64,
    /// Attempts that failed and were repeated, by the class of their SQLSTATE such as `08`, or
    /// `connection`, `timeout` or `other`.
    pub retries: BTreeMap<String, u64>,
    /// How often a writer found that another run had taken over.
    pub fence_losses: u64,
    /// Why writing is interrupted, while it is.
    pub interrupted: Option<String>,
    /// For how many milliseconds it has been; 0 while it is not.
    pub interrupted_ms: i64,
}

/// A worker of this process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerFigures {
    /// Its index in the cluster.
    pub worker: usize,
    /// Milliseconds in which operators ran; 0 unless the run is measured (`--metrics`).
    pub busy_ms: u64,
    /// Milliseconds in which it waited; 0 unless the run is measured.
    pub parked_ms: u64,
    /// Bytes handed to the dataflow and not durable yet.
    pub in_flight_bytes: u64,
    /// Closed epochs that are not durable yet, over its stores.
    pub queued_epochs: u64,
    /// Milliseconds since it was last seen at work. It looks up once a second at the least.
    pub stepped_ms: i64,
}

/// A node of the dataflow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFigures {
    /// Its number, from 0.
    pub id: usize,
    /// `source`, `filter`, `map`, ..., `sink`.
    pub kind: String,
    /// The name of a source or sink, else empty.
    pub label: String,
    /// The nodes that its rows come from.
    pub inputs: Vec<usize>,
    /// Rows that it let through, in this process.
    pub records: u64,
    /// Milliseconds in which it ran, over the workers of this process; 0 unless the run is measured.
    pub busy_ms: u64,
}

/// Refused records of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RejectFigures {
    /// The sink that set them aside.
    pub sink: String,
    /// The step that refused them: `decode`, `filter`, `encode`, `write`, ...
    pub step: String,
    /// Why, without the values that tell one record from another.
    pub reason: String,
    /// The SQLSTATE that the server gave, or would give.
    pub sqlstate: Option<String>,
    /// The column at fault, where one is known.
    pub column: Option<String>,
    /// How many.
    pub count: u64,
    /// The coordinates of the first, as `topic[partition]@offset`.
    pub example: String,
}

impl Snapshot {
    /// Records between what is durable and the ends, over the partitions of this process, as last heard.
    pub fn lag(&self) -> u64 {
        let behind = |partition: &PartitionFigures| partition.lag.unwrap_or(0).max(0) as u64;
        self.partitions.iter().map(behind).sum()
    }

    /// The sum of a counter over all slices.
    ///
    /// ```
    /// use tidegate::figures::{SliceFigures, Snapshot};
    /// let slice = |rows| SliceFigures { rows, ..SliceFigures::default() };
    /// let snapshot = Snapshot { slices: vec![slice(2), slice(3)], ..Snapshot::default() };
    /// assert_eq!(snapshot.sum(|slice| slice.rows), 5);
    /// ```
    pub fn sum(&self, of: impl Fn(&SliceFigures) -> u64) -> u64 {
        // A replay counts rejects back, which may pass below zero in one slice and not in the sum.
        self.slices.iter().map(of).fold(0, u64::wrapping_add)
    }

    /// The busiest worker over the mean; `None` where nothing was measured.
    pub fn skew(&self) -> Option<f64> {
        let busy: Vec<f64> = self.workers.iter().map(|worker| worker.busy_ms as f64).collect();
        let mean = busy.iter().sum::<f64>() / busy.len() as f64;
        (mean > 0.0).then(|| busy.iter().copied().fold(0.0, f64::max) / mean)
    }
}
