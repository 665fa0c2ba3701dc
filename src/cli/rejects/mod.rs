//! `tidegate rejects`

mod groups;
mod json;
mod replay;

use std::collections::VecDeque;
use std::io::{BufRead, IsTerminal, Write};
use std::time::{Duration, SystemTime};

use clap::{ArgGroup, Args};

use self::groups::Groups;
use self::replay::replay;
use super::args::DataflowArgs;
use super::entry::Entries;
use super::output::{Lines, Table, print};
use super::units::{age, ago, moment};
use super::usage;
use crate::error::{Error, Result};
use crate::figures::line;
use crate::plan::StorePlan;
use crate::sink::{Selection, StoredReject};

/// How many are listed unless told.
const LIMIT: u64 = 20;

#[derive(Args)]
#[command(group = ArgGroup::new("doing").multiple(false))]
pub(super) struct RejectsArgs {
    #[command(flatten)]
    dataflow: DataflowArgs,

    /// Only of this sink.
    #[arg(long, value_name = "NAME")]
    sink: Option<String>,

    /// Only of this topic.
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,

    /// Only of this partition.
    #[arg(long, value_name = "NUM")]
    partition: Option<i32>,

    /// Only those whose reason contains this.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,

    /// Only those with this SQLSTATE.
    #[arg(long, value_name = "CODE")]
    sqlstate: Option<String>,

    /// Only those refused by this step: `decode`, `filter`, `encode`, `write`, ...
    #[arg(long, value_name = "STEP")]
    stage: Option<String>,

    /// Only those set aside since then: a time in RFC 3339, or how long ago, such as `2h`.
    #[arg(long, value_name = "WHEN", value_parser = moment)]
    since: Option<SystemTime>,

    /// Only those set aside longer ago than this, such as `30d`.
    #[arg(long, value_name = "AGE", value_parser = age)]
    older_than: Option<Duration>,

    /// Only the newest so many [default for the list: 20].
    #[arg(long, value_name = "NUM", conflicts_with_all = ["delete", "replay"])]
    limit: Option<u64>,

    /// Counts them by step, column, SQLSTATE and reason, whatever values the reasons name.
    #[arg(long, group = "doing")]
    by_reason: bool,

    /// Prints them as JSON lines, with all that the records held.
    #[arg(long, group = "doing")]
    json: bool,

    /// Deletes them. Without a terminal to ask at, only with `--yes`.
    #[arg(long, group = "doing")]
    delete: bool,

    /// With `--delete`: but for the newest so many.
    #[arg(long, value_name = "NUM", requires = "delete")]
    keep: Option<u64>,

    /// With `--delete`: does not ask.
    #[arg(long, requires = "delete")]
    yes: bool,

    /// Sends them through the dataflow again, and deletes those that are written.
    #[arg(long, group = "doing")]
    replay: bool,
}

pub(super) fn rejects(entries: &Entries, args: &RejectsArgs) -> Result<()> {
    let pipeline = args.dataflow.pipeline(entries)?;
    let options = args.dataflow.options()?;
    let selection = selection(args)?;
    if args.replay {
        return replay(&pipeline, &options, &selection);
    }
    let plan = pipeline.plan(&options)?;
    let stores = Stores { pipeline: pipeline.name(), stores: plan.stores() };
    for store in &stores.stores {
        // Nothing of the tables: rejects can be looked at while a table is not as it must be.
        store.store.prepare(&[])?;
    }
    if args.delete {
        return delete(args, &stores, selection);
    }
    if args.json {
        return export(&stores, &selection);
    }
    if args.by_reason {
        return group(&stores, selection);
    }
    list(&stores, selection)
}

fn selection(args: &RejectsArgs) -> Result<Selection> {
    let until = args.older_than.map(|age| {
        ago(age).ok_or_else(|| usage("`--older-than` is longer ago than time can be told"))
    });
    Ok(Selection {
        sink: args.sink.clone(),
        topic: args.topic.clone(),
        partition: args.partition,
        reason: args.reason.clone(),
        sqlstate: args.sqlstate.clone(),
        stage: args.stage.clone(),
        since: args.since,
        until: until.transpose()?,
        newest: args.limit,
        ..Selection::default()
    })
}

/// The stores that keep a pipeline's rejects.
struct Stores<'a> {
    pipeline: &'a str,
    stores: Vec<StorePlan>,
}

impl Stores<'_> {
    fn each(
        &self,
        selection: &Selection,
        mut each: impl FnMut(StoredReject) -> Result<()>,
    ) -> Result<()> {
        for store in &self.stores {
            store.store.rejects(self.pipeline, selection, &mut each)?;
        }
        Ok(())
    }

    /// What is printed where none are found.
    fn none(&self, selection: &Selection) -> Result<()> {
        let such = if *selection == Selection::default() { "" } else { " like that" };
        print(format!("pipeline `{}` has set no record aside{such}", self.pipeline))
    }
}

fn list(stores: &Stores<'_>, selection: Selection) -> Result<()> {
    let newest = selection.newest.unwrap_or(LIMIT);
    let limited = Selection { newest: Some(newest), brief: true, ..selection.clone() };
    let mut found = VecDeque::new();
    stores.each(&limited, |reject| {
        found.push_back(reject);
        Ok(())
    })?;
    if found.is_empty() {
        return stores.none(&selection);
    }
    let mut found: Vec<_> = found.into();
    // Several stores have clocks and numbers of their own.
    found.sort_by_key(|reject| (reject.at, reject.id));
    let more = found.len().saturating_sub(usize::try_from(newest).unwrap_or(usize::MAX));
    let mut table =
        Table::new(["id", "at", "sink", "record", "stage", "column", "sqlstate", "reason"]);
    for reject in found.into_iter().skip(more) {
        let place = place(&reject);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        table.row([
            reject.id.to_string(),
            seconds(reject.at),
            reject.sink,
            place,
            reject.stage,
            or_none(reject.column),
            or_none(reject.sqlstate),
            line(&reject.reason),
        ]);
    }
    print(table)
}

fn group(stores: &Stores<'_>, selection: Selection) -> Result<()> {
    let brief = Selection { brief: true, ..selection.clone() };
    let mut groups = Groups::default();
    stores.each(&brief, |reject| {
        groups.add(&reject);
        Ok(())
    })?;
    if groups.is_empty() { stores.none(&selection) } else { print(groups) }
}

fn export(stores: &Stores<'_>, selection: &Selection) -> Result<()> {
    let mut lines = Lines::new();
    let exported =
        stores.each(selection, |reject| lines.print(&json::object(stores.pipeline, &reject)));
    match exported {
        Err(_) if lines.is_closed() => Ok(()),
        Err(error) => Err(error),
        Ok(()) => lines.finish(),
    }
}

fn delete(args: &RejectsArgs, stores: &Stores<'_>, selection: Selection) -> Result<()> {
    if !args.yes && !std::io::stdin().is_terminal() {
        return Err(usage(
            "`--delete` has no terminal to ask at; give `--yes` if the records may go",
        ));
    }
    let mut doomed = Vec::new();
    for store in &stores.stores {
        doomed.push((store, but_newest(args.keep, stores.pipeline, store, &selection)?));
    }
    let doomed: Vec<_> = doomed.into_iter().filter_map(|(s, doomed)| Some((s, doomed?))).collect();
    if !args.yes {
        let mut count = 0_u64;
        for (store, selection) in &doomed {
            let brief = Selection { brief: true, ..selection.clone() };
            store.store.rejects(stores.pipeline, &brief, &mut |_| {
                count += 1;
                Ok(())
            })?;
        }
        if count > 0 && !agreed(&format!("delete {count} rejects of `{}`?", stores.pipeline))? {
            return print("deleted=0");
        }
    }
    let mut deleted = 0;
    for (store, selection) in doomed {
        deleted += store.store.discard(stores.pipeline, &selection, &mut |_| true)?;
    }
    print(format!("deleted={deleted}"))
}

/// Those selected but for the newest `keep`, old or not; `None` where there are no more than those.
fn but_newest(
    keep: Option<u64>,
    pipeline: &str,
    store: &StorePlan,
    selection: &Selection,
) -> Result<Option<Selection>> {
    let mut doomed = selection.clone();
    let Some(keep) = keep.filter(|keep| *keep > 0) else { return Ok(Some(doomed)) };
    let newest = Selection { newest: Some(keep), until: None, brief: true, ..selection.clone() };
    let mut kept = 0;
    store.store.rejects(pipeline, &newest, &mut |reject| {
        kept += 1;
        doomed.before.get_or_insert(reject.id);
        Ok(())
    })?;
    Ok((kept == keep).then_some(doomed))
}

/// Asks at the terminal.
fn agreed(question: &str) -> Result<bool> {
    let failed = |error: std::io::Error| Error::internal(format!("the terminal: {error}"));
    let mut err = std::io::stderr();
    write!(err, "{question} [y/N] ").and_then(|()| err.flush()).map_err(failed)?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// Its coordinates.
fn place(reject: &StoredReject) -> String {
    format!("{}[{}]@{}", reject.topic, reject.partition, reject.offset)
}

/// The moment, to the second.
fn seconds(at: SystemTime) -> String {
    let at = jiff::Timestamp::try_from(at).unwrap_or(jiff::Timestamp::MIN);
    format!("{at:.0}")
}
