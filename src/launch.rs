//! What process 0 decides at the start of a run and hands out to all: generations, slices, starts and
//! ends.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::plan::{Plan, SinkPlan, SourcePlan, StorePlan};
use crate::position::{Counters, Slice, SliceKey, leader_epochs, resume};
use crate::record::{Differs, Incarnation, Offset, Partition};
use crate::sink::Generation;
use crate::source::{Bounds, Late};

/// The decisions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Launch {
    /// Per store, in the plan's order: the generation, and the slices of the plan's sinks.
    pub stores: Vec<StoreLaunch>,
    /// Per source, in the plan's order.
    pub sources: Vec<SourceLaunch>,
}

/// What is decided for a store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StoreLaunch {
    /// The run's generation in it.
    pub generation: Generation,
    /// The slices that it stores for the plan's sinks.
    pub slices: Vec<Slice>,
}

/// What is decided for a source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceLaunch {
    /// Which of all sources of its name it is.
    pub incarnation: Incarnation,
    /// Where each partition's reading begins, but for those that are late.
    pub starts: BTreeMap<Partition, Offset>,
    /// Under which leaders what lies before was written, as far as that is known.
    pub leader_epochs: BTreeMap<Partition, i32>,
    /// The partitions that wait for the older ones; `None` where the order does not matter.
    pub late: Option<Late>,
    /// Where a bounded run ends.
    pub ends: Option<BTreeMap<Partition, Offset>>,
}

impl Launch {
    /// All slices of all stores.
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.stores.iter().flat_map(|store| &store.slices)
    }
}

/// Takes the next generation in every store and settles where everything begins. Where a sink has
/// nothing stored for a source, the start that `from(..)` resolves to is stored before the first
/// record is read; a partition that appeared since starts at its beginning (contract C2), and waits for
/// the older ones where a keyed sink is reached (contract C6). Nothing is stored for one that waits, so
/// it waits again when the run ends meanwhile.
pub fn launch(
    plan: &mut Plan,
    stores: &[StorePlan],
    pipeline: &str,
    until_end: bool,
) -> Result<Launch> {
    let mut launched = Vec::new();
    for store in stores {
        let generation = store.store.begin(pipeline)?;
        fail::fail_point!("generation-begun");
        let mut slices = store.store.slices(pipeline)?;
        slices.retain(|slice| store.sinks.iter().any(|id| plan.reaches(*id, &slice.key)));
        launched.push(StoreLaunch { generation, slices });
    }

    let mut sources = Vec::new();
    let ordered: Vec<_> = plan.sources.iter().map(|source| plan.is_ordered(source.id)).collect();
    let Plan { sources: source_plans, sinks, .. } = plan;
    for (source, ordered) in source_plans.iter_mut().zip(ordered) {
        let incarnation = source.catalog.incarnation()?;
        let partitions = source.catalog.partitions()?;
        let bounds = source.catalog.bounds(&partitions)?;
        for slice in launched.iter().flat_map(|store| &store.slices) {
            if slice.key.source == source.name {
                same(slice, &incarnation, source)?;
            }
        }
        let slices = launched.iter().flat_map(|store| &store.slices);
        let stored: BTreeSet<Partition> = slices
            .filter(|slice| slice.key.source == source.name)
            .map(|slice| slice.key.partition)
            .collect();
        let late = ordered.then(|| late(&bounds, &stored));
        for (store, launched) in stores.iter().zip(&mut launched) {
            let mut fresh = Vec::new();
            for id in &store.sinks {
                let sink = &sinks[usize::from(id.0)];
                if sink.sources.contains(&source.id) {
                    let launched = &launched.slices;
                    fresh.extend(missing(source, sink, &partitions, &bounds, &stored, launched)?);
                }
            }
            for slice in &mut fresh {
                slice.incarnation = incarnation.clone();
            }
            if let Some(late) = &late {
                fresh.retain(|slice| !late.starts.contains_key(&slice.key.partition));
            }
            if !fresh.is_empty() {
                store.store.create(pipeline, launched.generation, &fresh)?;
                fail::fail_point!("starts-stored");
                launched.slices.extend(fresh);
            }
            let mut unknown = false;
            for slice in launched.slices.iter().filter(|slice| slice.key.source == source.name) {
                within(slice, &bounds)?;
                unknown |= slice.incarnation.lacks(&incarnation);
            }
            if unknown {
                let (name, generation) = (&source.name, launched.generation);
                store.store.identify(pipeline, generation, name, &incarnation)?;
            }
        }
        let starts = resume(launched.iter().flat_map(|store| &store.slices), &source.name);
        let ends = until_end.then(|| bounds.iter().map(|(p, b)| (*p, b.end)).collect());
        let slices = launched.iter().flat_map(|store| &store.slices);
        let leader_epochs = leader_epochs(slices, &source.name, &starts);
        sources.push(SourceLaunch { incarnation, starts, leader_epochs, late, ends });
    }
    Ok(Launch { stores: launched, sources })
}

/// The partitions that no sink has stored anything of, while others have: those that are new.
fn late(bounds: &BTreeMap<Partition, Bounds>, stored: &BTreeSet<Partition>) -> Late {
    let (old, new): (Vec<_>, Vec<_>) =
        bounds.iter().map(|(p, b)| (*p, *b)).partition(|(p, _)| stored.contains(p));
    if stored.is_empty() || new.is_empty() {
        return Late::default();
    }
    let starts = new.into_iter().map(|(partition, bounds)| (partition, bounds.first)).collect();
    Late { starts, after: Late::barrier(old) }
}

/// The slices of `sink` that are not stored yet, with where they start. `stored` are the partitions
/// that any sink has stored something of: what this one lacks of those begins where they began, and is
/// told from the log when it is no longer there.
fn missing(
    source: &mut SourcePlan,
    sink: &SinkPlan,
    partitions: &[Partition],
    bounds: &BTreeMap<Partition, Bounds>,
    stored: &BTreeSet<Partition>,
    launched: &[Slice],
) -> Result<Vec<Slice>> {
    let known: BTreeSet<Partition> = launched
        .iter()
        .filter(|slice| slice.key.sink == sink.target.name && slice.key.source == source.name)
        .map(|slice| slice.key.partition)
        .collect();
    let absent: Vec<_> = partitions.iter().copied().filter(|p| !known.contains(p)).collect();
    if absent.is_empty() {
        return Ok(Vec::new());
    }
    let starts = if known.is_empty() {
        source.catalog.resolve(&absent)?
    } else {
        let first = |p: &Partition| bounds.get(p).map_or(Offset(0), |bounds| bounds.first);
        let start = |p: &Partition| if stored.contains(p) { Offset(0) } else { first(p) };
        absent.iter().map(|partition| (*partition, start(partition))).collect()
    };
    Ok(starts
        .into_iter()
        .map(|(partition, position)| Slice {
            key: SliceKey {
                sink: sink.target.name.clone(),
                source: source.name.clone(),
                partition,
            },
            seq: 0,
            position,
            counters: Counters::default(),
            incarnation: Incarnation::default(),
            leader_epoch: None,
        })
        .collect())
}

/// Refuses a position that is of another source of the same name (contract C9): its offset says nothing of
/// this one, even where there is a record at it.
fn same(slice: &Slice, found: &Incarnation, source: &SourcePlan) -> Result<()> {
    let (key, position, name) = (&slice.key, slice.position, &source.name);
    let what = source.catalog.describe();
    Err(Error::position(match slice.incarnation.differs(found) {
        None => return Ok(()),
        Some(Differs::Place(stored, found)) => format!(
            "{key} is stored at {position} of cluster `{stored}`, but {what} is of cluster `{found}`, whose \
             offsets are others: correct the address, or choose where to go on there with `tidegate \
             positions --set`, or start over with `--forget {name}`"
        ),
        Some(Differs::Id(stored, found)) => format!(
            "{key} is stored at {position} of the topic with the id `{stored}`, but {what} was created \
             again since and has the id `{found}`: start over with `tidegate positions --forget {name}`, \
             or choose where to go on with `--set`"
        ),
    }))
}

/// Refuses a stored position that the log no longer holds, with the range that is lost (contract C9).
fn within(slice: &Slice, bounds: &BTreeMap<Partition, Bounds>) -> Result<()> {
    let Some(bounds) = bounds.get(&slice.key.partition) else {
        return Err(Error::position(format!(
            "{} is stored at {}, but the partition is gone; if the topic was recreated, drop its \
             positions with `tidegate positions --forget`",
            slice.key, slice.position
        )));
    };
    if slice.position < bounds.first {
        return Err(Error::position(format!(
            "{} is stored at {}, but the log starts at {}: offsets [{}, {}) are lost; to go on after \
             them, move it with `tidegate positions --set`",
            slice.key, slice.position, bounds.first, slice.position, bounds.first
        )));
    }
    if slice.position > bounds.end {
        return Err(Error::position(format!(
            "{} is stored at {}, but the log ends at {}; was the topic recreated? to read it from \
             elsewhere, move it with `tidegate positions --set` or `--forget`",
            slice.key, slice.position, bounds.end
        )));
    }
    Ok(())
}
