//! `tidegate top`

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use clap::Args;
use indicatif::{HumanBytes, HumanCount, HumanDuration};

use super::output::{Table, print};
use crate::error::Result;
use crate::figures::{Histogram, Rates, Snapshot, WorkerFigures};
use crate::metrics::fetch;

/// How often it is drawn anew, and over how long rates are taken.
const EVERY: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(super) struct TopArgs {
    /// The metrics addresses of a run's processes, `host:port`.
    #[arg(required = true, value_name = "ADDR")]
    addresses: Vec<String>,

    /// Prints it once, as plain text, as it does where there is no terminal.
    #[arg(long)]
    once: bool,
}

pub(super) fn top(args: &TopArgs) -> Result<()> {
    if args.once || !std::io::stdout().is_terminal() {
        return once(args);
    }
    let mut runs: Vec<_> =
        args.addresses.iter().map(|address| (address, Rates::default(), None)).collect();
    loop {
        let mut text = String::new();
        for (address, rates, last) in &mut runs {
            match fetch(address) {
                Ok(snapshot) => {
                    rates.see(&snapshot);
                    text += &view(&snapshot, rates, last.as_ref());
                    *last = Some(snapshot);
                }
                // A process that ends or starts anew is a thing to see, not an end.
                Err(error) => text += &format!("{error}\n"),
            }
        }
        let mut out = std::io::stdout().lock();
        // Home, each line cleared to its end, then what is below.
        let drawn = format!("\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n"));
        if out.write_all(drawn.as_bytes()).and_then(|()| out.flush()).is_err() {
            return Ok(()); // nobody looks any more
        }
        drop(out);
        std::thread::sleep(EVERY);
    }
}

/// Two looks at each, for the rates, and the second as text.
fn once(args: &TopArgs) -> Result<()> {
    let mut seen = Vec::new();
    for address in &args.addresses {
        seen.push(fetch(address)?);
    }
    std::thread::sleep(EVERY);
    let mut text = String::new();
    for (address, last) in args.addresses.iter().zip(&seen) {
        let snapshot = fetch(address)?;
        let mut rates = Rates::default();
        rates.see(last);
        rates.see(&snapshot);
        text += &view(&snapshot, &rates, Some(last));
    }
    print(text)
}

/// A run as text; `last` is the snapshot before, for shares of time.
fn view(snapshot: &Snapshot, rates: &Rates, last: Option<&Snapshot>) -> String {
    let mut text = String::new();
    let mut say = |line: String| {
        writeln!(text, "{}", plain(line.trim_end())).expect("a string takes all");
    };
    head(snapshot, rates, &mut say);
    section(&mut say, partitions(snapshot));
    section(&mut say, sinks(snapshot));
    section(&mut say, stores(snapshot));
    for store in &snapshot.stores {
        if let Some(why) = &store.interrupted {
            say(format!(
                "  writing to `{}` is interrupted for {} s: {why}",
                store.identity,
                store.interrupted_ms / 1000
            ));
        }
    }
    section(&mut say, nodes(snapshot));
    section(&mut say, workers(snapshot, last));
    section(&mut say, rejects(snapshot));
    text
}

/// What other processes say goes to a terminal, which must not take it for commands.
fn plain(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn section(say: &mut impl FnMut(String), table: Table) {
    if !table.is_empty() {
        say(String::new());
        table.to_string().lines().for_each(|line| say(line.to_owned()));
    }
}

fn head(snapshot: &Snapshot, rates: &Rates, say: &mut impl FnMut(String)) {
    let since = Duration::from_millis((snapshot.now_ms - snapshot.started_ms).max(0) as u64);
    say(format!(
        "pipeline `{}`, process {} of {}, {} workers, {} since {}",
        snapshot.pipeline,
        snapshot.process,
        snapshot.processes,
        snapshot.threads,
        snapshot.phase.name(),
        HumanDuration(since)
    ));
    say(format!(
        "{}: {}",
        if snapshot.ready.ok { "ready" } else { "not ready" },
        snapshot.ready.reason
    ));
    let rate = rates.over(EVERY);
    let catch_up = match (snapshot.lag(), rate.catch_up) {
        (0, _) => String::new(),
        (_, Some(left)) => format!(", caught up in {}", HumanDuration(left)),
        (_, None) => ", not shrinking".to_owned(),
    };
    say(format!(
        "{} records/s read, {} rows/s written, lag {}{catch_up}, oldest not durable {}",
        HumanCount(rate.read.round() as u64),
        HumanCount(rate.rows.round() as u64),
        HumanCount(snapshot.lag()),
        seconds(snapshot.durable_age_ms as f64 / 1000.0),
    ));
}

fn partitions(snapshot: &Snapshot) -> Table {
    let mut table = Table::new([
        "topic",
        "partition",
        "worker",
        "position",
        "durable",
        "end",
        "lag",
        "age s",
        "records",
    ]);
    let or_unknown = |number: Option<i64>| number.map_or("-".into(), |n: i64| n.to_string());
    for partition in &snapshot.partitions {
        table.row([
            partition.topic.clone(),
            partition.partition.to_string(),
            partition.worker.to_string(),
            partition.position.to_string(),
            partition.durable.to_string(),
            or_unknown(partition.end),
            or_unknown(partition.lag),
            format!("{:.1}", partition.durable_age_ms as f64 / 1000.0),
            partition.consumed.to_string(),
        ]);
    }
    table
}

fn sinks(snapshot: &Snapshot) -> Table {
    let mut table = Table::new([
        "sink",
        "guarantee",
        "filtered",
        "written",
        "rejected",
        "collapsed",
        "rows",
        "latency p50",
        "p99",
    ]);
    for sink in &snapshot.sinks {
        let slices = || snapshot.slices.iter().filter(|slice| slice.sink == sink.name);
        let sum = |of: fn(&crate::figures::SliceFigures) -> u64| {
            slices().map(of).fold(0, u64::wrapping_add).to_string()
        };
        table.row([
            sink.name.clone(),
            sink.guarantee.clone(),
            sum(|slice| slice.filtered),
            sum(|slice| slice.written),
            sum(|slice| slice.rejected),
            sum(|slice| slice.collapsed),
            sum(|slice| slice.rows),
            quantile(&sink.latency, 0.5),
            quantile(&sink.latency, 0.99),
        ]);
    }
    table
}

fn stores(snapshot: &Snapshot) -> Table {
    let mut table = Table::new([
        "store",
        "flushes",
        "rows each",
        "wait",
        "copy",
        "merge",
        "commit",
        "bisections",
        "retries",
        "fenced",
    ]);
    for store in &snapshot.stores {
        let mean = |histogram: &Histogram| histogram.mean().map_or("-".into(), seconds);
        table.row([
            store.identity.clone(),
            store.flushes.to_string(),
            store.rows.mean().map_or("-".into(), |rows| format!("{rows:.0}")),
            mean(&store.wait),
            mean(&store.copy),
            mean(&store.merge),
            mean(&store.commit),
            store.bisections.to_string(),
            store.retries.values().sum::<u64>().to_string(),
            store.fence_losses.to_string(),
        ]);
    }
    table
}

fn nodes(snapshot: &Snapshot) -> Table {
    let mut table = Table::new(["node", "kind", "name", "from", "rows", "busy s"]);
    for node in &snapshot.nodes {
        let inputs: Vec<_> = node.inputs.iter().map(ToString::to_string).collect();
        table.row([
            node.id.to_string(),
            node.kind.clone(),
            node.label.clone(),
            inputs.join(", "),
            node.records.to_string(),
            format!("{:.1}", node.busy_ms as f64 / 1000.0),
        ]);
    }
    table
}

fn workers(snapshot: &Snapshot, last: Option<&Snapshot>) -> Table {
    let mut table = Table::new(["worker", "busy %", "parked %", "in flight", "queued epochs"]);
    for worker in &snapshot.workers {
        let before = last.and_then(|last| last.workers.iter().find(|w| w.worker == worker.worker));
        let elapsed = match last {
            Some(last) => snapshot.now_ms - last.now_ms,
            None => snapshot.now_ms - snapshot.running_ms,
        };
        let share = |of: fn(&WorkerFigures) -> u64| {
            let spent = of(worker).saturating_sub(before.map_or(0, of));
            format!("{:.0}", (spent as f64 * 100.0 / elapsed.max(1) as f64).min(100.0))
        };
        table.row([
            worker.worker.to_string(),
            share(|worker| worker.busy_ms),
            share(|worker| worker.parked_ms),
            HumanBytes(worker.in_flight_bytes).to_string(),
            worker.queued_epochs.to_string(),
        ]);
    }
    table
}

fn rejects(snapshot: &Snapshot) -> Table {
    let mut table =
        Table::new(["rejected", "sink", "step", "column", "sqlstate", "example", "reason"]);
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
    for reject in snapshot.rejects.iter().take(10) {
        table.row([
            reject.count.to_string(),
            reject.sink.clone(),
            reject.step.clone(),
            or_none(&reject.column),
            or_none(&reject.sqlstate),
            reject.example.clone(),
            reject.reason.clone(),
        ]);
    }
    table
}

fn quantile(histogram: &Histogram, q: f64) -> String {
    histogram.quantile(q).map_or("-".into(), seconds)
}

/// Seconds, short.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.001 => format!("{:.0}us", s * 1e6),
        s if s < 1.0 => format!("{:.0}ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1}s"),
        s => format!("{}", HumanDuration(Duration::try_from_secs_f64(s).unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Health, PartitionFigures, Phase, RejectFigures};

    #[test]
    fn a_view_shows_the_partitions_and_lets_no_command_through() {
        let partition = PartitionFigures {
            topic: "orders".into(),
            position: 12,
            durable: 10,
            end: Some(20),
            lag: Some(10),
            ..PartitionFigures::default()
        };
        let reject = RejectFigures {
            count: 3,
            reason: "\u{1b}[2Jgone\nnext".into(),
            ..RejectFigures::default()
        };
        let snapshot = Snapshot {
            pipeline: "shop".into(),
            phase: Phase::Running,
            ready: Health { ok: true, reason: "running, 10 offsets behind".into() },
            partitions: vec![partition],
            rejects: vec![reject],
            ..Snapshot::default()
        };
        let text = view(&snapshot, &Rates::default(), None);
        assert!(text.starts_with("pipeline `shop`, process 0 of 0"), "{text}");
        assert!(text.contains("ready: running, 10 offsets behind"), "{text}");
        let row = text.lines().find(|line| line.trim_start().starts_with("orders")).unwrap();
        let cells: Vec<_> = row.split_whitespace().collect();
        assert_eq!(cells, ["orders", "0", "0", "12", "10", "20", "10", "0.0", "0"]);
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
