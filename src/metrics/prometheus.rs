//! A snapshot as Prometheus has it: the text format, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).
//!
//! Counters and gauges go through a recorder of the exporter's own, made anew for each scrape, so that
//! nothing is served that the snapshot does not hold. The exporter's histograms take one observation after
//! the other, and here are a million a second; ours are counted already and are written as they stand.

use std::fmt::Display;

use metrics::{Key, Label, Level, Metadata, Recorder, SharedString};
use metrics_exporter_prometheus::formatting::{
    write_help_line, write_metric_line, write_type_line,
};
use metrics_exporter_prometheus::{LabelSet, PrometheusBuilder, PrometheusRecorder};

use super::names::{Kind, METRICS};
use crate::figures::{Histogram, PartitionFigures, Phase, SliceFigures, Snapshot, StoreFigures};

/// The text of a scrape.
pub fn render(snapshot: &Snapshot) -> String {
    let mut page = Page::new(snapshot);
    run(&mut page, snapshot);
    snapshot.partitions.iter().for_each(|partition| page.partition(partition));
    snapshot.slices.iter().for_each(|slice| page.slice(slice));
    for sink in &snapshot.sinks {
        page.histogram("tidegate_record_latency_seconds", &[("sink", &sink.name)], &sink.latency);
    }
    snapshot.stores.iter().for_each(|store| page.store(store));
    workers(&mut page, snapshot);
    page.finish()
}

fn run(page: &mut Page, snapshot: &Snapshot) {
    let workers = (snapshot.threads * snapshot.processes).to_string();
    page.gauge("tidegate_info", &[("version", &snapshot.version), ("workers", &workers)], 1.0);
    page.gauge("tidegate_start_time_seconds", &[], seconds(snapshot.started_ms));
    for phase in Phase::ALL {
        let now = f64::from(u8::from(phase == snapshot.phase));
        page.gauge("tidegate_up_phase", &[("phase", phase.name())], now);
    }
    page.gauge("tidegate_ready", &[], f64::from(u8::from(snapshot.ready.ok)));
    page.gauge("tidegate_memory_budget_bytes", &[], snapshot.memory_budget_bytes as f64);
    page.gauge("tidegate_durable_epoch_age_seconds", &[], seconds(snapshot.durable_age_ms));
}

fn workers(page: &mut Page, snapshot: &Snapshot) {
    for worker in &snapshot.workers {
        let labels = [("worker", worker.worker.to_string())];
        let labels = &[(labels[0].0, labels[0].1.as_str())];
        page.gauge("tidegate_queued_epochs", labels, worker.queued_epochs as f64);
        page.gauge("tidegate_in_flight_bytes", labels, worker.in_flight_bytes as f64);
        page.seconds("tidegate_worker_busy_seconds_total", labels, worker.busy_ms);
        page.seconds("tidegate_worker_parked_seconds_total", labels, worker.parked_ms);
    }
    if let Some(skew) = snapshot.skew() {
        page.gauge("tidegate_worker_skew_ratio", &[], skew);
    }
    for node in &snapshot.nodes {
        let operator = format!("{} {}", node.id, node.kind);
        let labels = &[("operator", operator.as_str())];
        page.counter("tidegate_operator_records_total", labels, node.records);
        page.seconds("tidegate_operator_busy_seconds_total", labels, node.busy_ms);
    }
}

type Labels<'a> = [(&'static str, &'a str)];

/// What is being written.
struct Page {
    recorder: PrometheusRecorder,
    /// Labels that all series have.
    common: [(&'static str, String); 2],
    /// Series whose values are seconds, which the exporter's counters cannot hold, and histograms.
    own: Vec<(&'static str, String)>,
}

impl Page {
    fn new(snapshot: &Snapshot) -> Self {
        let common =
            [("pipeline", snapshot.pipeline.clone()), ("process", snapshot.process.to_string())];
        let recorder = PrometheusBuilder::new().build_recorder();
        for metric in METRICS {
            let (name, help) = (metric.name.into(), SharedString::const_str(metric.help));
            match metric.kind {
                Kind::Counter => recorder.describe_counter(name, None, help),
                Kind::Gauge => recorder.describe_gauge(name, None, help),
                Kind::Histogram => recorder.describe_histogram(name, None, help),
            }
        }
        Page { recorder, common, own: Vec::new() }
    }

    fn counter(&self, name: &'static str, labels: &Labels<'_>, value: u64) {
        self.recorder.register_counter(&self.key(name, labels), &ABOUT).absolute(value);
    }

    fn gauge(&self, name: &'static str, labels: &Labels<'_>, value: f64) {
        self.recorder.register_gauge(&self.key(name, labels), &ABOUT).set(value);
    }

    /// A counter of seconds.
    fn seconds(&mut self, name: &'static str, labels: &Labels<'_>, millis: u64) {
        let mut lines = Lines::new(name, self.key(name, labels));
        lines.line(None, None, millis as f64 / 1000.0);
        self.own.push((name, lines.text));
    }

    /// A histogram, with its buckets as they are.
    fn histogram(&mut self, name: &'static str, labels: &Labels<'_>, histogram: &Histogram) {
        let mut lines = Lines::new(name, self.key(name, labels));
        let mut below = 0;
        for (bound, count) in histogram.bounds.iter().zip(&histogram.counts) {
            below += count;
            lines.line(Some("bucket"), Some(bound.to_string()), below);
        }
        lines.line(Some("bucket"), Some("+Inf".to_owned()), histogram.count);
        lines.line(Some("sum"), None, histogram.sum);
        lines.line(Some("count"), None, histogram.count);
        self.own.push((name, lines.text));
    }

    fn key(&self, name: &'static str, labels: &Labels<'_>) -> Key {
        let common = self.common.iter().map(|(name, value)| (*name, value.as_str()));
        let labels = common.chain(labels.iter().copied());
        let labels = labels.map(|(name, value)| Label::new(name, value.to_owned()));
        Key::from_parts(name, labels.collect::<Vec<_>>())
    }

    fn partition(&self, figures: &PartitionFigures) {
        let partition = figures.partition.to_string();
        let labels: &Labels<'_> = &[("topic", &figures.topic), ("partition", &partition)];
        self.gauge("tidegate_partition_position", labels, figures.position as f64);
        self.gauge("tidegate_partition_durable", labels, figures.durable as f64);
        if let (Some(end), Some(lag)) = (figures.end, figures.lag) {
            self.gauge("tidegate_partition_end", labels, end as f64);
            self.gauge("tidegate_partition_lag", labels, lag as f64);
        }
        let age = seconds(figures.durable_age_ms);
        self.gauge("tidegate_partition_durable_age_seconds", labels, age);
        self.counter("tidegate_records_consumed_total", labels, figures.consumed);
        self.counter("tidegate_consumed_bytes_total", labels, figures.bytes);
    }

    fn slice(&self, figures: &SliceFigures) {
        let partition = figures.partition.to_string();
        let labels: &Labels<'_> =
            &[("sink", &figures.sink), ("topic", &figures.topic), ("partition", &partition)];
        self.counter("tidegate_records_filtered_total", labels, figures.filtered);
        self.counter("tidegate_records_written_total", labels, figures.written);
        self.counter("tidegate_records_rejected_total", labels, figures.rejected);
        self.counter("tidegate_records_collapsed_total", labels, figures.collapsed);
        self.counter("tidegate_rows_written_total", labels, figures.rows);
    }

    fn store(&mut self, figures: &StoreFigures) {
        let store = figures.identity.as_str();
        let labels: &Labels<'_> = &[("store", store)];
        self.histogram("tidegate_flush_rows", labels, &figures.rows);
        self.histogram("tidegate_flush_bytes", labels, &figures.bytes);
        let phases = [
            ("wait", &figures.wait),
            ("copy", &figures.copy),
            ("merge", &figures.merge),
            ("commit", &figures.commit),
        ];
        for (phase, histogram) in phases {
            let labels: &Labels<'_> = &[("store", store), ("phase", phase)];
            self.histogram("tidegate_flush_seconds", labels, histogram);
        }
        self.counter("tidegate_bisections_total", labels, figures.bisections);
        self.counter("tidegate_fence_losses_total", labels, figures.fence_losses);
        for (class, count) in &figures.retries {
            let labels: &Labels<'_> = &[("store", store), ("class", class)];
            self.counter("tidegate_retries_total", labels, *count);
        }
    }

    fn finish(self) -> String {
        let mut text = self.recorder.handle().render();
        for metric in METRICS {
            let mut series = self.own.iter().filter(|(name, _)| *name == metric.name).peekable();
            if series.peek().is_some() {
                write_help_line(&mut text, metric.name, None, None, metric.help);
                write_type_line(&mut text, metric.name, None, None, metric.kind.name());
                series.for_each(|(_, series)| text.push_str(series));
                text.push('\n');
            }
        }
        text
    }
}

/// Where metrics come from, which the recorder does not look at.
static ABOUT: Metadata<'static> = Metadata::new(module_path!(), Level::INFO, None);

/// The lines of one series that the exporter does not keep.
struct Lines {
    name: &'static str,
    labels: LabelSet,
    text: String,
}

impl Lines {
    fn new(name: &'static str, key: Key) -> Self {
        let labels = LabelSet::from_key_and_global(&key, &Default::default());
        Lines { name, labels, text: String::new() }
    }

    fn line(&mut self, suffix: Option<&'static str>, le: Option<String>, value: impl Display) {
        let le = le.map(|bound| ("le", bound));
        write_metric_line(&mut self.text, self.name, suffix, &self.labels, le, value, None);
    }
}

fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::figures::{NodeFigures, SinkFigures, WorkerFigures};

    /// One of everything.
    fn full() -> Snapshot {
        let mut latency = Histogram::new(&[0.5, 1.0]);
        [0.25, 0.75, 8.0].into_iter().for_each(|seconds| latency.observe(seconds));
        Snapshot {
            pipeline: "a \"b\"\\".into(),
            phase: Phase::Running,
            partitions: vec![PartitionFigures {
                topic: "orders".into(),
                partition: 3,
                end: Some(7),
                lag: Some(2),
                ..PartitionFigures::default()
            }],
            slices: vec![SliceFigures { written: 5, ..SliceFigures::default() }],
            sinks: vec![SinkFigures { name: "t".into(), latency, ..SinkFigures::default() }],
            stores: vec![StoreFigures {
                retries: [("08".to_owned(), 2)].into(),
                ..StoreFigures::default()
            }],
            workers: vec![WorkerFigures { busy_ms: 1_500, ..WorkerFigures::default() }],
            nodes: vec![NodeFigures { id: 3, kind: "filter".into(), ..NodeFigures::default() }],
            ..Snapshot::default()
        }
    }

    #[test]
    fn all_metrics_are_served_with_their_kind_and_labels_and_no_other() {
        let text = render(&full());
        let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        let kinds: BTreeMap<_, _> = kinds.collect();
        assert_eq!(kinds, METRICS.iter().map(|m| (m.name, m.kind.name())).collect());
        for metric in METRICS {
            let help = format!("# HELP {} {}\n", metric.name, metric.help);
            assert!(text.contains(&help), "{help}");
            let series = text.lines().find(|line| line.starts_with(&format!("{}{{", metric.name)));
            let bucket = format!("{}_bucket{{", metric.name);
            let series = series.or_else(|| text.lines().find(|line| line.starts_with(&bucket)));
            let series = series.expect(metric.name);
            for label in metric.labels.iter().chain(&["pipeline", "process"]) {
                assert!(series.contains(&format!("{label}=\"")), "{series} lacks {label}");
            }
        }
    }

    #[test]
    fn values_stand_as_they_are() {
        let text = render(&full());
        let common = r#"pipeline="a \"b\"\\",process="0""#;
        for line in [
            format!(r#"tidegate_partition_lag{{{common},topic="orders",partition="3"}} 2"#),
            format!(r#"tidegate_up_phase{{{common},phase="running"}} 1"#),
            format!(r#"tidegate_up_phase{{{common},phase="failed"}} 0"#),
            format!(r#"tidegate_retries_total{{{common},store="",class="08"}} 2"#),
            format!(r#"tidegate_worker_busy_seconds_total{{{common},worker="0"}} 1.5"#),
            format!(r#"tidegate_record_latency_seconds_bucket{{{common},sink="t",le="0.5"}} 1"#),
            format!(r#"tidegate_record_latency_seconds_bucket{{{common},sink="t",le="1"}} 2"#),
            format!(r#"tidegate_record_latency_seconds_bucket{{{common},sink="t",le="+Inf"}} 3"#),
            format!(r#"tidegate_record_latency_seconds_sum{{{common},sink="t"}} 9"#),
            format!(r#"tidegate_record_latency_seconds_count{{{common},sink="t"}} 3"#),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
