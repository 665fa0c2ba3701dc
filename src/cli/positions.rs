//! `tidegate positions`

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use clap::Args;

use super::args::DataflowArgs;
use super::entry::Entries;
use super::output::{Table, print};
use super::usage;
use crate::error::{Error, Result};
use crate::pipeline::Pipeline;
use crate::plan::{Plan, StorePlan};
use crate::position::{Slice, SliceKey};
use crate::record::{Offset, Partition};
use crate::source::Bounds;

#[derive(Args)]
pub(super) struct PositionsArgs {
    #[command(flatten)]
    dataflow: DataflowArgs,

    /// Only of this sink.
    #[arg(long, value_name = "NAME")]
    sink: Option<String>,

    /// Moves a position: `orders[3]=1042`, `orders[3]=earliest`, `orders=latest` for all partitions.
    /// Only while no run holds the pipeline's lock.
    #[arg(long, value_name = "WHERE=OFFSET")]
    set: Vec<Move>,

    /// Drops positions, with their counters: of one partition (`orders[3]`), which the next run reads
    /// from its beginning, or of a topic (`orders`) or all, which it starts as if for the first time.
    /// Only while no run holds the pipeline's lock.
    #[arg(
        long,
        value_name = "WHERE",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with = "set"
    )]
    forget: Option<Place>,
}

/// Some partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// Of this source, or of all.
    source: Option<String>,
    /// This one, or all.
    partition: Option<Partition>,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "expected a topic and partition such as `orders[3]`, or a topic".to_owned();
        let (source, partition) = match text.strip_suffix(']') {
            Some(rest) => {
                let (source, number) = rest.rsplit_once('[').ok_or_else(wrong)?;
                (source, Some(Partition(number.parse().map_err(|_| wrong())?)))
            }
            None => (text, None),
        };
        if source.is_empty() && partition.is_some() {
            return Err(wrong());
        }
        Ok(Place { source: (!source.is_empty()).then(|| source.into()), partition })
    }
}

impl Place {
    fn covers(&self, key: &SliceKey) -> bool {
        self.source.as_ref().is_none_or(|source| *source == key.source)
            && self.partition.is_none_or(|partition| partition == key.partition)
    }
}

/// Where to move a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Earliest,
    Latest,
    At(Offset),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Move {
    place: Place,
    goal: Goal,
}

impl FromStr for Move {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (place, goal) = text
            .rsplit_once('=')
            .filter(|(place, _)| !place.is_empty())
            .ok_or("expected a partition and an offset such as `orders[3]=1042`")?;
        let place: Place = place.parse()?;
        let goal = match goal {
            "earliest" => Goal::Earliest,
            "latest" => Goal::Latest,
            offset => match offset.parse() {
                Ok(offset) if offset >= 0 && place.partition.is_some() => Goal::At(Offset(offset)),
                Ok(_) => return Err("an offset needs its partition, as in `orders[3]=1042`".into()),
                Err(_) => return Err("an offset is a number, `earliest` or `latest`".into()),
            },
        };
        Ok(Move { place, goal })
    }
}

/// What the plan's sources hold now.
type Ends = BTreeMap<(String, Partition), Bounds>;

pub(super) fn positions(entries: &Entries, args: &PositionsArgs) -> Result<()> {
    let pipeline = args.dataflow.pipeline(entries)?;
    let mut plan = pipeline.plan(&args.dataflow.options()?)?;
    if let Some(sink) = &args.sink
        && !plan.sinks.iter().any(|known| known.target.name == *sink)
    {
        let known: Vec<_> = plan.sinks.iter().map(|s| format!("`{}`", s.target.name)).collect();
        return Err(usage(format!("there is no sink `{sink}`; there is {}", known.join(", "))));
    }
    let stores = plan.stores();
    for store in &stores {
        // Nothing of the tables: positions can be moved while a table is not as it must be.
        store.store.prepare(&[])?;
    }
    if let Some(place) = &args.forget {
        // Also of topics that are gone, which is what it is for; so no source is asked.
        let changes = changes(&pipeline, &plan, &stores, args, place, |_| Ok(None))?;
        apply(&pipeline, &plan, &stores, changes)?;
    }
    let ends = ends(&mut plan)?;
    // All are looked at before any is made: one that cannot be leaves the others alone.
    let mut moves = Changes::new();
    for Move { place, goal } in &args.set {
        moves.extend(changes(&pipeline, &plan, &stores, args, place, |slice| {
            resolve(&slice.key, *goal, &ends).map(Some)
        })?);
    }
    apply(&pipeline, &plan, &stores, moves)?;
    let mut table = Table::new(["sink", "source", "partition", "position", "end", "lag"]);
    for store in &stores {
        for slice in stored(&pipeline, &plan, store, args.sink.as_deref())? {
            let SliceKey { sink, source, partition } = slice.key;
            let end = ends.get(&(source.clone(), partition)).map(|bounds| bounds.end);
            let or_unknown = |number: Option<i64>| number.map_or("-".into(), |n| n.to_string());
            table.row([
                sink,
                source,
                partition.to_string(),
                slice.position.to_string(),
                or_unknown(end.map(|end| end.0)),
                or_unknown(end.map(|end| end.0 - slice.position.0)),
            ]);
        }
    }
    if table.is_empty() {
        return print(format!(
            "pipeline `{}` has no position yet; its next run stores them as it starts",
            pipeline.name()
        ));
    }
    print(table)
}

/// The slices of a store that belong to the plan's sinks, in order.
fn stored(
    pipeline: &Pipeline,
    plan: &Plan,
    store: &StorePlan,
    only: Option<&str>,
) -> Result<Vec<Slice>> {
    let mut slices = store.store.slices(pipeline.name())?;
    slices.retain(|slice| {
        only.is_none_or(|sink| sink == slice.key.sink)
            && store.sinks.iter().any(|id| plan.sink(*id).target.name == slice.key.sink)
    });
    slices.sort_by(|one, two| one.key.cmp(&two.key));
    Ok(slices)
}

/// By store and slice, where it stands and where it is to stand; `None` drops it.
type Changes = BTreeMap<(usize, SliceKey), (Offset, Option<Offset>)>;

/// What is to become of all slices that `place` covers; one at least, or the user had another in mind.
fn changes(
    pipeline: &Pipeline,
    plan: &Plan,
    stores: &[StorePlan],
    args: &PositionsArgs,
    place: &Place,
    goal: impl Fn(&Slice) -> Result<Option<Offset>>,
) -> Result<Changes> {
    let mut changes = Changes::new();
    for (index, store) in stores.iter().enumerate() {
        for slice in stored(pipeline, plan, store, args.sink.as_deref())? {
            if place.covers(&slice.key) {
                let goal = goal(&slice)?;
                changes.insert((index, slice.key), (slice.position, goal));
            }
        }
    }
    if !changes.is_empty() || place.source.is_none() {
        return Ok(changes);
    }
    let source = place.source.as_deref().unwrap_or_default();
    let partition = place.partition.map(|p| format!("[{p}]")).unwrap_or_default();
    Err(Error::config(format!(
        "pipeline `{}` has no position of `{source}{partition}`; see `positions` without a change",
        pipeline.name()
    )))
}

/// Makes `changes`, and says what they mean for tables to which rows are appended.
fn apply(pipeline: &Pipeline, plan: &Plan, stores: &[StorePlan], changes: Changes) -> Result<()> {
    let mut again = BTreeSet::new();
    for (index, store) in stores.iter().enumerate() {
        let here = changes.iter().filter(|((at, _), _)| *at == index);
        let moves: Vec<_> = here.map(|((_, key), (_, goal))| (key.clone(), *goal)).collect();
        if !moves.is_empty() {
            store.store.reposition(pipeline.name(), &moves)?;
        }
    }
    for ((_, key), (position, goal)) in changes {
        let keyed = plan.sinks.iter().any(|s| s.target.name == key.sink && s.target.keyed);
        if !keyed && goal.is_none_or(|goal| goal < position) {
            again.insert(key.sink);
        }
    }
    for sink in again {
        tracing::warn!(
            "sink `{sink}` has no key: what it holds of these records stays, and the next run adds them \
             once more; empty the table first if that is not meant, and delete what was set aside \
             of them (`rejects --delete`), which a replay would add once more too"
        );
    }
    Ok(())
}

fn ends(plan: &mut Plan) -> Result<Ends> {
    let mut ends = Ends::new();
    for source in &mut plan.sources {
        let partitions = source.catalog.partitions()?;
        let bounds = source.catalog.bounds(&partitions)?;
        ends.extend(bounds.into_iter().map(|(p, bounds)| ((source.name.clone(), p), bounds)));
    }
    Ok(ends)
}

fn resolve(key: &SliceKey, goal: Goal, ends: &Ends) -> Result<Offset> {
    let Some(Bounds { first, end }) = ends.get(&(key.source.clone(), key.partition)).copied()
    else {
        return Err(Error::source(format!(
            "`{}[{}]` is gone; drop its position with `--forget`",
            key.source, key.partition
        )));
    };
    match goal {
        Goal::Earliest => Ok(first),
        Goal::Latest => Ok(end),
        Goal::At(offset) if (first..=end).contains(&offset) => Ok(offset),
        Goal::At(offset) => Err(Error::config(format!(
            "`{}[{}]` can be read from {first} to {end}, not from {offset}",
            key.source, key.partition
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_moves_read_as_they_are_printed() {
        let at = |source: &str, partition: Option<i32>| Place {
            source: (!source.is_empty()).then(|| source.into()),
            partition: partition.map(Partition),
        };
        assert_eq!("orders[3]".parse(), Ok(at("orders", Some(3))));
        assert_eq!("a.b-c".parse(), Ok(at("a.b-c", None)));
        assert_eq!("".parse(), Ok(at("", None)));
        assert!("[3]".parse::<Place>().is_err() && "orders[x]".parse::<Place>().is_err());
        let moved = |place, goal| Ok(Move { place, goal });
        assert_eq!("orders[3]=1042".parse(), moved(at("orders", Some(3)), Goal::At(Offset(1042))));
        assert_eq!("orders=latest".parse(), moved(at("orders", None), Goal::Latest));
        for wrong in ["orders=7", "orders[3]", "=7", "orders[3]=-1", "orders[3]=soon"] {
            assert!(wrong.parse::<Move>().is_err(), "{wrong}");
        }
    }
}
