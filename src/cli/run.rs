//! `tidegate run`

use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::args::DataflowArgs;
use super::entry::Entries;
use super::logging::Format;
use super::output::print;
use super::progress::Progress;
use super::signals::{self, Ask};
use super::supervise::{Leash, Supervision, supervise};
use super::units::{age, duration, size};
use crate::cluster::Flags;
use crate::error::Result;
use crate::metrics::Server;
use crate::pipeline::Options;
use crate::sink::Pace;

#[derive(Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    dataflow: DataflowArgs,

    #[command(flatten)]
    cluster: Flags,

    /// How long the first row of a transaction waits for others.
    #[arg(long, value_name = "DURATION", default_value = "100ms", value_parser = duration)]
    linger: Duration,

    /// Rows that make a transaction full.
    #[arg(long, value_name = "NUM", default_value_t = Pace::default().max_rows)]
    max_rows: usize,

    /// Encoded bytes that make a transaction full.
    #[arg(long, value_name = "SIZE", default_value = "32MiB", value_parser = size)]
    max_bytes: usize,

    /// Bytes that this process may hold of what it has fetched and not yet stored.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = size)]
    memory: usize,

    /// Stop at the ends that the topics have at the start.
    #[arg(long)]
    until_end: bool,

    /// End the run that holds the pipeline's lock, instead of waiting for it as a standby.
    #[arg(long)]
    take_over: bool,

    /// Delete rejects that were set aside longer ago than this, such as `30d`: at the start and every hour.
    #[arg(long, value_name = "AGE", value_parser = age)]
    keep_rejects: Option<Duration>,

    /// How long a run that is asked to end may take to store what it has read.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    grace: Duration,

    /// Serves figures at `host:port`: a page, `/metrics` for Prometheus, `/readyz` and `/healthz`.
    #[arg(long, value_name = "ADDR", env = "TIDEGATE_METRICS")]
    metrics: Option<String>,

    /// Starts the processes of this host itself, and all of them again when one is lost or fails in a way that passes.
    #[arg(long, help_heading = "Supervision")]
    supervise: bool,

    /// The processes that are this host's, such as `0,1` [default: those whose address is one of this host].
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        requires = "supervise",
        help_heading = "Supervision"
    )]
    here: Vec<usize>,

    /// Restarts in a row, each of a run that lasted less than a minute or twice `--peer-wait`, after which to give up.
    #[arg(
        long,
        value_name = "NUM",
        default_value_t = 10,
        requires = "supervise",
        help_heading = "Supervision"
    )]
    max_restarts: u32,

    /// How long the first restart waits; each next one twice as long, up to 30s.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration, requires = "supervise", help_heading = "Supervision")]
    restart_delay: Duration,

    /// How the log is written.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub log: Format,
}

pub(super) fn run(entries: &Entries, args: &RunArgs) -> Result<()> {
    let pipeline = args.dataflow.pipeline(entries)?;
    let leash = Leash::find()?;
    if args.supervise && leash.is_none() {
        return supervise(&Supervision {
            flags: &args.cluster,
            here: &args.here,
            max_restarts: args.max_restarts,
            delay: args.restart_delay,
            grace: args.grace,
            // A label would spoil a line of JSON.
            labelled: args.log == Format::Text,
        });
    }
    let mut flags = args.cluster.clone();
    flags.process = leash.as_ref().map_or(flags.process, |leash| leash.process);
    flags.validate()?;
    // An empty variable is none.
    let metrics = args.metrics.as_deref().filter(|address| !address.trim().is_empty());
    let metrics = metrics.map(|address| match &leash {
        Some(leash) => leash.shifted(address),
        None => Ok(address.to_owned()),
    });
    let metrics = metrics.transpose()?;
    let options = Options {
        flags,
        pace: Pace { linger: args.linger, max_rows: args.max_rows, max_bytes: args.max_bytes },
        memory: args.memory,
        until_end: args.until_end,
        take_over: args.take_over,
        keep_rejects: args.keep_rejects,
        measure: metrics.is_some(),
        ..args.dataflow.options()?
    };
    let server =
        metrics.as_deref().map(|at| Server::start(at, Arc::clone(&options.figures))).transpose()?;
    if let Some(server) = &server {
        tracing::info!("figures at http://{}/", server.address());
    }
    let ask = Ask::new(options.stop.clone(), args.grace);
    signals::install(ask.clone())?;
    if let Some(leash) = leash {
        leash.hold(ask)?;
    }
    let progress = Progress::start(Arc::clone(&options.figures));
    let summary = pipeline.run(&options);
    drop(progress);
    let summary = summary?;
    if options.figures.snapshot().running_ms == 0 {
        // The counters were not read, and are not zero.
        tracing::info!("ended before anything was read");
        return Ok(());
    }
    print(summary)
}
