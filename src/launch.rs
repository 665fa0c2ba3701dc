//! What process 0 decides at the start of a run and hands out to all: generations, slices, starts and
//! ends.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::plan::{Plan, SinkPlan, SourcePlan, StorePlan};
use crate::position::{Counters, Slice, SliceKey, resume};
use crate::record::{Offset, Partition};
use crate::sink::Generation;
use crate::source::Bounds;

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
    /// Where each partition's reading begins.
    pub starts: BTreeMap<Partition, Offset>,
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
/// record is read; a partition that appeared since starts at its beginning (contract C2).
pub fn launch(
    plan: &mut Plan,
    stores: &[StorePlan],
    pipeline: &str,
    until_end: bool,
) -> Result<Launch> {
    let mut launched = Vec::new();
    for store in stores {
        let generation = store.store.begin(pipeline)?;
        let mut slices = store.store.slices(pipeline)?;
        slices.retain(|slice| store.sinks.iter().any(|id| feeds(plan, plan.sink(*id), &slice.key)));
        launched.push(StoreLaunch { generation, slices });
    }

    let mut sources = Vec::new();
    let Plan { sources: source_plans, sinks, .. } = plan;
    for source in source_plans {
        let partitions = source.catalog.partitions()?;
        let bounds = source.catalog.bounds(&partitions)?;
        for (store, launched) in stores.iter().zip(&mut launched) {
            let mut fresh = Vec::new();
            for id in &store.sinks {
                let sink = &sinks[usize::from(id.0)];
                if sink.sources.contains(&source.id) {
                    fresh.extend(missing(source, sink, &partitions, &bounds, &launched.slices)?);
                }
            }
            if !fresh.is_empty() {
                store.store.create(pipeline, launched.generation, &fresh)?;
                launched.slices.extend(fresh);
            }
            for slice in launched.slices.iter().filter(|slice| slice.key.source == source.name) {
                within(slice, &bounds)?;
            }
        }
        let starts = resume(launched.iter().flat_map(|store| &store.slices), &source.name);
        let ends = until_end.then(|| bounds.iter().map(|(p, b)| (*p, b.end)).collect());
        sources.push(SourceLaunch { starts, ends });
    }
    Ok(Launch { stores: launched, sources })
}

/// Whether the slice of this name is one of `sink`'s, and its source still reaches it: one that no
/// longer does stays where it is and must not hold the others back.
fn feeds(plan: &Plan, sink: &SinkPlan, key: &SliceKey) -> bool {
    let mut sources = plan.sources.iter().filter(|source| sink.sources.contains(&source.id));
    sink.target.name == key.sink && sources.any(|source| source.name == key.source)
}

/// The slices of `sink` that are not stored yet, with where they start.
fn missing(
    source: &mut SourcePlan,
    sink: &SinkPlan,
    partitions: &[Partition],
    bounds: &BTreeMap<Partition, Bounds>,
    stored: &[Slice],
) -> Result<Vec<Slice>> {
    let known: BTreeSet<Partition> = stored
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
        absent.iter().map(|p| (*p, bounds.get(p).map_or(Offset(0), |b| b.first))).collect()
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
        })
        .collect())
}

/// Refuses a stored position that the log no longer holds, with the range that is lost (contract C9).
fn within(slice: &Slice, bounds: &BTreeMap<Partition, Bounds>) -> Result<()> {
    let Some(bounds) = bounds.get(&slice.key.partition) else {
        return Err(Error::source(format!(
            "{} is stored at {}, but the partition is gone; if the topic was recreated, drop its \
             positions with `tidegate positions --forget`",
            slice.key, slice.position
        )));
    };
    if slice.position < bounds.first {
        return Err(Error::source(format!(
            "{} is stored at {}, but the log starts at {}: offsets [{}, {}) are lost; to go on after \
             them, move it with `tidegate positions --set`",
            slice.key, slice.position, bounds.first, slice.position, bounds.first
        )));
    }
    if slice.position > bounds.end {
        return Err(Error::source(format!(
            "{} is stored at {}, but the log ends at {}; was the topic recreated? to read it from \
             elsewhere, move it with `tidegate positions --set` or `--forget`",
            slice.key, slice.position, bounds.end
        )));
    }
    Ok(())
}
