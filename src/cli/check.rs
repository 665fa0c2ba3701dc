//! `tidegate check`

use std::collections::BTreeMap;
use std::fmt::Write;

use clap::Args;

use super::args::DataflowArgs;
use super::entry::Entries;
use super::graph::{Form, graph};
use super::output::{Table, print};
use crate::cluster::Flags;
use crate::error::Result;
use crate::pipeline::{Options, Prepared};
use crate::plan::{SinkPlan, SourcePlan};
use crate::record::{Partition, Policy};
use crate::source::Bounds;

#[derive(Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    dataflow: DataflowArgs,

    #[command(flatten)]
    cluster: Flags,

    /// Prints the dataflow's nodes alone, without connecting to anything.
    #[arg(long, value_name = "FORM", value_enum, num_args = 0..=1, default_missing_value = "text")]
    graph: Option<Form>,
}

pub(super) fn check(entries: &Entries, args: &CheckArgs) -> Result<()> {
    let pipeline = args.dataflow.pipeline(entries)?;
    if let Some(form) = args.graph {
        return print(graph(&pipeline.plan(&args.dataflow.options()?)?, form));
    }
    args.cluster.validate()?;
    let workers = args.cluster.workers();
    let options = Options { flags: args.cluster.clone(), ..args.dataflow.options()? };
    let mut prepared = pipeline.prepare(&options)?;
    let mut text = String::new();
    let mut say = |line: &str| writeln!(text, "{}", line.trim_end()).expect("a string takes all");

    say(&format!("pipeline `{}`, plan {}\n", pipeline.name(), prepared.plan.digest()));
    say(&prepared.plan.describe());
    let mut partitions = Vec::new();
    for source in &mut prepared.plan.sources {
        let (bounds, about) = describe_source(source, workers)?;
        partitions.push(bounds.len());
        say(&about);
    }
    let mut warnings = Vec::new();
    for sink in &prepared.plan.sinks {
        say(&describe_sink(&prepared, sink));
        let columns = prepared.columns(sink.id);
        let key: Vec<_> =
            columns.iter().filter(|c| c.key).map(|c| format!("`{}`", c.name)).collect();
        let spread: usize = sink.sources.iter().map(|id| partitions[usize::from(id.0)]).sum();
        if !key.is_empty() && spread > 1 {
            warnings.push(format!(
                "`{}` keeps the last row of each {}, and order is kept within a partition only: \
                 produce all records of one {} to one partition, as `produce --key` does",
                sink.target.name,
                key.join(", "),
                key.join(", "),
            ));
        }
    }
    for (source, partitions) in prepared.plan.sources.iter().zip(&partitions) {
        if *partitions < workers {
            warnings.push(format!(
                "`{}` has {partitions} partitions for {workers} workers: the others read nothing of it",
                source.name
            ));
        }
    }
    for warning in &warnings {
        say(&format!("warning: {warning}"));
    }
    let processes = args.cluster.processes;
    say(&format!(
        "ready: {workers} {} in {processes} {}",
        if workers == 1 { "worker" } else { "workers" },
        if processes == 1 { "process" } else { "processes" },
    ));
    print(text)
}

/// A source with its partitions, and the worker that reads each.
fn describe_source(
    source: &mut SourcePlan,
    workers: usize,
) -> Result<(BTreeMap<Partition, Bounds>, String)> {
    let partitions = source.catalog.partitions()?;
    let bounds = source.catalog.bounds(&partitions)?;
    let policy = match source.policy {
        Policy::Reject => "is set aside with the reason",
        Policy::Stop => "stops the run",
        Policy::Skip => "is skipped and counted",
    };
    let about = format!("source {}; a refused record {policy}", source.catalog.describe());
    let mut table = Table::new(["partition", "first", "end", "worker"]);
    for (partition, Bounds { first, end }) in &bounds {
        let worker = source.id.reader(*partition, workers);
        table.row([partition.to_string(), first.to_string(), end.to_string(), worker.to_string()]);
    }
    Ok((bounds, format!("{about}\n{table}")))
}

/// A sink with its columns.
fn describe_sink(prepared: &Prepared, sink: &SinkPlan) -> String {
    let mut table = Table::new(["column", "type", "about"]);
    for column in prepared.columns(sink.id) {
        let about = if column.key { "key" } else { "" };
        table.row([column.name, column.kind, about.into()]);
    }
    format!("sink `{}`: {}\n{table}", sink.target.name, sink.target.describe)
}
