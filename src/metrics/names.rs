//! The names of all metrics: what `docs/metrics.md` lists, and what is served.

/// How a metric behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only ever grows while a process lives.
    Counter,
    /// Grows and shrinks.
    Gauge,
    /// Counts by buckets.
    Histogram,
}

impl Kind {
    /// As Prometheus calls it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// How it behaves.
    pub kind: Kind,
    /// Its labels, beside `pipeline` and `process`, which all have.
    pub labels: &'static [&'static str],
    /// What it means, in one sentence.
    pub help: &'static str,
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Counter, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, help }
}

const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind: Kind::Histogram, labels, help }
}

const PARTITION: &[&str] = &["topic", "partition"];
const SLICE: &[&str] = &["sink", "topic", "partition"];

/// All metrics, in the order of the documentation.
pub const METRICS: &[Metric] = &[
    gauge(
        "tidegate_info",
        &["version", "workers"],
        "1, with the program's version and how many workers the run has.",
    ),
    gauge("tidegate_start_time_seconds", &[], "When the run began, in Unix seconds."),
    gauge("tidegate_up_phase", &["phase"], "1 for what the run is doing, 0 for the other phases."),
    gauge("tidegate_ready", &[], "1 while `/readyz` answers 200, else 0."),
    gauge("tidegate_partition_position", PARTITION, "The next offset to read."),
    gauge(
        "tidegate_partition_durable",
        PARTITION,
        "The next offset to become durable in every sink that the partition reaches.",
    ),
    gauge(
        "tidegate_partition_end",
        PARTITION,
        "The end of the partition up to the last stable offset, as last heard.",
    ),
    gauge("tidegate_partition_lag", PARTITION, "Offsets between durable and end."),
    gauge(
        "tidegate_partition_durable_age_seconds",
        PARTITION,
        "For how long nothing became durable while something is behind; 0 while nothing is.",
    ),
    counter("tidegate_records_consumed_total", PARTITION, "Records read."),
    counter(
        "tidegate_consumed_bytes_total",
        PARTITION,
        "Bytes read: keys, values and 64 for each record; a poll of several partitions is shared out by records.",
    ),
    counter("tidegate_records_filtered_total", SLICE, "Records that no filter kept, as committed."),
    counter(
        "tidegate_records_written_total",
        SLICE,
        "Records of which a row was written or a key deleted, as committed.",
    ),
    counter("tidegate_records_rejected_total", SLICE, "Records that were refused, as committed."),
    counter(
        "tidegate_records_collapsed_total",
        SLICE,
        "Records superseded by a later one of their key in the same flush, as committed.",
    ),
    counter("tidegate_rows_written_total", SLICE, "Rows written or deleted, as committed."),
    histogram(
        "tidegate_record_latency_seconds",
        &["sink"],
        "From the timestamps of records to the commit of their flush; those of one poll count as spread evenly between the least and the greatest.",
    ),
    histogram(
        "tidegate_flush_seconds",
        &["store", "phase"],
        "What a flush took: `wait` of its first row, `copy` of rows, `merge` and all else before the commit, `commit`.",
    ),
    histogram("tidegate_flush_rows", &["store"], "Rows of a flush, refused records too."),
    histogram("tidegate_flush_bytes", &["store"], "Encoded bytes of a flush."),
    counter(
        "tidegate_bisections_total",
        &["store"],
        "How often a run of rows was halved to find those that the server refuses.",
    ),
    counter(
        "tidegate_fence_losses_total",
        &["store"],
        "How often a writer found that another run had taken over.",
    ),
    counter(
        "tidegate_retries_total",
        &["store", "class"],
        "Attempts to write that failed and were repeated, by the class of their SQLSTATE, or `connection`, `timeout`, `other`.",
    ),
    gauge("tidegate_queued_epochs", &["worker"], "Closed epochs that are not durable yet."),
    gauge(
        "tidegate_in_flight_bytes",
        &["worker"],
        "Bytes handed to the dataflow and not durable yet.",
    ),
    gauge(
        "tidegate_memory_budget_bytes",
        &[],
        "How much the process may hold of what it has fetched and not yet stored.",
    ),
    counter(
        "tidegate_worker_busy_seconds_total",
        &["worker"],
        "In which operators of the worker ran.",
    ),
    counter("tidegate_worker_parked_seconds_total", &["worker"], "In which the worker waited."),
    gauge(
        "tidegate_worker_skew_ratio",
        &[],
        "The busiest worker of the process over the mean of all its workers, since the start.",
    ),
    counter(
        "tidegate_operator_records_total",
        &["operator"],
        "Rows that a node of the dataflow let through.",
    ),
    counter(
        "tidegate_operator_busy_seconds_total",
        &["operator"],
        "In which a node of the dataflow ran, over the workers of the process.",
    ),
    gauge(
        "tidegate_durable_epoch_age_seconds",
        &[],
        "How old the moment is before which everything that was read is durable, in the whole cluster; 0 while nothing is behind.",
    ),
];
