//! `tidegate verify`

use std::fmt::Write;
use std::sync::Arc;

use clap::Args;

use super::args::DataflowArgs;
use super::entry::Entries;
use super::output::{Table, print};
use super::progress::Progress;
use crate::cluster::Flags;
use crate::error::{Error, Kind, Result};
use crate::pipeline::Options;
use crate::recount::Recount;

#[derive(Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    dataflow: DataflowArgs,

    /// Workers that read.
    #[arg(short = 'w', long = "threads", value_name = "NUM", default_value_t = 1)]
    threads: usize,
}

pub(super) fn verify(entries: &Entries, args: &VerifyArgs) -> Result<()> {
    let pipeline = args.dataflow.pipeline(entries)?;
    let flags = Flags { threads: args.threads, ..Flags::default() };
    flags.validate()?;
    let options = Options { flags, ..args.dataflow.options()? };
    let progress = Progress::start(Arc::clone(&options.figures));
    let recount = pipeline.recount(&options);
    drop(progress);
    let recount = recount?;
    print(report(&recount))?;
    match recount.differences() {
        0 => Ok(()),
        differences => Err(Error::new(
            Kind::Differs,
            format!(
                "pipeline `{}`: the log and what is stored differ in {differences} {}",
                pipeline.name(),
                if differences == 1 { "place" } else { "places" }
            ),
        )),
    }
}

fn report(recount: &Recount) -> String {
    let mut text = String::new();
    let mut say = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("a string takes all");
    };
    let mut table =
        Table::new(["sink", "source", "partition", "first", "position", "records", "verdict"]);
    for slice in &recount.slices {
        let key = &slice.slice.key;
        let or_unknown = |number: Option<i64>| number.map_or("-".into(), |n| n.to_string());
        let counted = slice.counted.and_then(|counted| i64::try_from(counted.consumed).ok());
        let verdict = match (slice.differences.is_empty(), slice.counted) {
            (false, _) => slice.differences.join("; "),
            (true, Some(_)) => "ok".into(),
            (true, None) => "ok as far as it can be told".into(),
        };
        table.row([
            key.sink.clone(),
            key.source.clone(),
            key.partition.to_string(),
            or_unknown(slice.first.map(|first| first.0)),
            slice.slice.position.to_string(),
            or_unknown(counted),
            verdict,
        ]);
    }
    if !table.is_empty() {
        say(format_args!("{table}"));
    }
    for slice in &recount.slices {
        for note in &slice.notes {
            say(format_args!("note: {}: {note}", slice.slice.key));
        }
    }
    for table in &recount.tables {
        let (sink, written, holds) = (&table.sink, table.written, table.holds);
        if table.differs() {
            say(format_args!(
                "table of `{sink}`: {written} rows were written, and it holds {holds}"
            ));
        } else if holds > written {
            say(format_args!(
                "note: table of `{sink}`: {written} rows were written, and it holds {holds}; the \
                 others are not of these positions"
            ));
        }
    }
    say(format_args!(
        "verified slices={} records={} differences={}",
        recount.slices.len(),
        recount.records(),
        recount.differences()
    ));
    text
}
