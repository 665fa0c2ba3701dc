//! What Tidegate costs, as ratios of things that take turns in one run.
//!
//! `scripts/bench` starts Kafka and PostgreSQL and runs this; `docs/performance.md` says what came out.
//! What is measured runs in processes of their own, this program called with `child`, so that their
//! processor time and memory are theirs alone.

#![allow(missing_docs, clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]

mod child;
#[path = "../../tests/common/mod.rs"]
mod common;
mod latency;
mod load;
mod place;
mod plot;
mod process;
mod proxy;
mod report;
mod resources;
mod scale;
mod scaling;
mod throughput;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use report::Report;

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(
    about = "Measures Tidegate on the Kafka and PostgreSQL of TIDEGATE_BROKERS and DATABASE_URL"
)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    suite: Suite,
}

#[derive(Subcommand)]
enum Command {
    /// Rows a second by the number of workers, of a dataflow of any program.
    Scaling(scaling::Scaling),
    /// What runs in a process of its own.
    #[command(hide = true)]
    Child {
        #[command(subcommand)]
        what: child::Child,
    },
}

/// How much is measured, and where the figures go.
#[derive(Args)]
struct Suite {
    /// Less of everything, in less than five minutes; without the load of ten million orders, memory
    /// and idle processor time.
    #[arg(long)]
    short: bool,

    /// Only these figures, such as `copy_ratio,filter_all`.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,

    /// How often each figure's parts take turns; each figure has its own number otherwise.
    #[arg(long)]
    rounds: Option<usize>,

    /// A folder for the runs as CSV and the plots as SVG.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
}

impl Suite {
    fn wants(&self, names: &[&str]) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| names.contains(&only.as_str()))
    }

    fn rounds(&self, short: usize, full: usize) -> usize {
        self.rounds.unwrap_or(if self.short { short } else { full }).max(1)
    }
}

fn main() -> ExitCode {
    let mut arguments: Vec<_> = std::env::args_os().collect();
    // `cargo bench` adds it to all others, also behind a `--`.
    arguments.pop_if(|last| last == "--bench");
    let Cli { command, suite } = Cli::parse_from(arguments);
    match command {
        Some(Command::Child { what }) => return child::run(what),
        Some(Command::Scaling(scaling)) => scaling.run(),
        None => measure(&suite),
    }
    ExitCode::SUCCESS
}

fn measure(suite: &Suite) {
    let mut report = Report::new(&suite.out);
    let throughput = [
        "copy_ratio",
        "cost_ratio",
        "us_per_message",
        "upsert_ratio",
        "filter_all",
        "metrics_cost",
    ];
    if suite.wants(&throughput) {
        throughput::measure(suite, &mut report);
    }
    if suite.wants(&["scale_cpu"]) {
        scale::by_processor(suite, &mut report);
    }
    if suite.wants(&["scale_latency"]) {
        scale::by_latency(suite, &mut report);
    }
    if suite.wants(&["scale_processes"]) {
        scale::by_processes(suite, &mut report);
    }
    if suite.wants(&["p50_ms", "p99_ms"]) {
        latency::measure(suite, &mut report);
    }
    let asked = |name: &str| suite.only.iter().any(|only| only == name);
    if asked("rss_mb") || !suite.short && suite.wants(&["rss_mb"]) {
        resources::memory(suite, &mut report);
    }
    if asked("idle_cpu") || !suite.short && suite.wants(&["idle_cpu"]) {
        resources::idle(suite, &mut report);
    }
    report.finish();
}
