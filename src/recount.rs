//! Counts again what became of the records (contract C1): reads the log up to where each slice stands,
//! through the same dataflow, into nothing, and compares with what is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use crate::cluster::{Joined, Mesh};
use crate::epoch::Clock;
use crate::error::{Error, Result};
use crate::figures::Phase;
use crate::frame::Live;
use crate::launch::{Launch, SourceLaunch, StoreLaunch};
use crate::pipeline::{Options, Pipeline, Prepared};
use crate::position::{Counters, Door, Slice, SliceKey};
use crate::record::{Differs, Incarnation, Lane, Offset, Partition, Policy};
use crate::sink::{Audit, AuditedSlice, Counting, Generation, Shape, Tallies};
use crate::source::Bounds;

/// What a recount found.
#[derive(Clone, Debug, Default)]
pub struct Recount {
    /// Per slice of the dataflow's sinks.
    pub slices: Vec<Recounted>,
    /// Per table that was counted.
    pub tables: Vec<CountedTable>,
}

/// A slice, and where the log and the store differ about it.
#[derive(Clone, Debug)]
pub struct Recounted {
    /// The slice as stored.
    pub slice: Slice,
    /// Where it began, if that is known.
    pub first: Option<Offset>,
    /// What the log holds of it; `None` where it cannot be read any more. Records with a row count as
    /// written, whatever the table did with it.
    pub counted: Option<Counters>,
    /// What differs, a sentence each.
    pub differences: Vec<String>,
    /// What could not be compared, or is worth knowing.
    pub notes: Vec<String>,
}

/// A table that is appended to.
#[derive(Clone, Debug)]
pub struct CountedTable {
    /// The sink's name.
    pub sink: String,
    /// How many rows were written by what is stored.
    pub written: u64,
    /// How many it holds.
    pub holds: u64,
}

impl CountedTable {
    /// Whether rows are missing; rows too many may be anybody's.
    pub fn differs(&self) -> bool {
        self.holds < self.written
    }
}

impl Recount {
    /// How many slices and tables differ.
    pub fn differences(&self) -> usize {
        self.slices.iter().filter(|slice| !slice.differences.is_empty()).count()
            + self.tables.iter().filter(|table| table.differs()).count()
    }

    /// How many records were read again, for all slices.
    pub fn records(&self) -> u64 {
        self.slices.iter().filter_map(|slice| slice.counted).map(|c| c.consumed).sum()
    }
}

/// What is read again for a slice.
struct Window {
    sink: String,
    lane: Lane,
    from: Offset,
    upto: Offset,
}

impl Pipeline {
    /// Counts again, up to the positions as they are now, and compares. Takes no lock and moves nothing:
    /// the pipeline may run meanwhile.
    pub fn recount(&self, options: &Options) -> Result<Recount> {
        options.figures.begin(self.about(options));
        let mut prepared = self.prepare(options)?;
        let mut audit = Audit::default();
        for store in &prepared.stores {
            let sinks: Vec<(&str, &Shape)> = store
                .sinks
                .iter()
                .map(|id| (prepared.plan.sink(*id).target.name.as_str(), prepared.shape(*id)))
                .collect();
            let mut found = store.store.audit(self.name(), &sinks)?;
            found
                .slices
                .retain(|s| store.sinks.iter().any(|id| prepared.plan.reaches(*id, &s.slice.key)));
            audit.slices.append(&mut found.slices);
            audit.tables.append(&mut found.tables);
        }
        if audit.slices.is_empty() {
            return Err(Error::config(format!(
                "pipeline `{}` has stored no position for this dataflow, so there is nothing to verify: \
                 is its name right?",
                self.name()
            )));
        }
        let found = found(&mut prepared)?;
        let mut windows = Vec::new();
        let mut recount = Recount::default();
        for audited in &audit.slices {
            let mut recounted = judged(audited, &prepared);
            match window(audited, &prepared, &found) {
                Ok(window) => {
                    recounted.counted = Some(Counters::default());
                    windows.push(window);
                }
                Err(Unread::Differs(why)) => recounted.differences.push(why),
                Err(Unread::Note(why)) => recounted.notes.push(format!("not recounted: {why}")),
            }
            recount.slices.push(recounted);
        }
        recount.tables = tables(&audit);
        windows.retain(|window| window.from < window.upto);
        if !windows.is_empty() {
            let counted = self.read_again(options, prepared, &found, &windows)?;
            for slice in &mut recount.slices {
                if let Some(counted) = counted.get(&slice.slice.key)
                    && slice.counted.is_some()
                {
                    slice.counted = Some(*counted);
                }
            }
        }
        recount.slices.iter_mut().for_each(compare);
        Ok(recount)
    }

    /// Reads the windows through the dataflow.
    fn read_again(
        &self,
        options: &Options,
        mut prepared: Prepared,
        found: &[Found],
        windows: &[Window],
    ) -> Result<BTreeMap<SliceKey, Counters>> {
        let tallies = Tallies::default();
        for store in &mut prepared.stores {
            let real = Arc::clone(&store.store);
            store.store = Arc::new(Counting::new(real, Arc::clone(&tallies)));
        }
        let launch = launch(&prepared, found, windows);
        let Joined::Mesh(mesh) = Mesh::connect(&options.flags, self.name(), &options.stop)? else {
            return Err(Error::internal("the recount was stopped"));
        };
        let clock = Clock::started(Duration::ZERO, options.tick);
        let mut live = self.live(options, &prepared, launch, clock);
        quieten(&mut live, windows);
        let offsets = windows.iter().map(|window| window.upto.0 - window.from.0).sum::<i64>();
        options.figures.plan(u64::try_from(offsets).unwrap_or(0));
        options.figures.phase(Phase::Running, "");
        self.execute(&Arc::new(live), options, mesh)?;
        options.figures.phase(Phase::Ended, "");
        let mut tallies = tallies.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *tallies))
    }
}

/// Makes a run of a recount: nobody is told, nothing is refused for good, and each sink sees what was
/// its own.
fn quieten(live: &mut Live, windows: &[Window]) {
    live.tells = false;
    for source in &mut live.sources {
        source.policy = Policy::Skip;
    }
    for sink in &mut live.sinks {
        let own = windows.iter().filter(|window| window.sink == sink.name);
        sink.door = Door::between(own.map(|w| (w.lane, (w.from, w.upto))).collect());
    }
}

/// What there is to read of a source now.
struct Found {
    incarnation: Incarnation,
    bounds: BTreeMap<Partition, Bounds>,
}

/// What there is of all sources, in their order.
fn found(prepared: &mut Prepared) -> Result<Vec<Found>> {
    let sources = prepared.plan.sources.iter_mut();
    let found = sources.map(|source| {
        let incarnation = source.catalog.incarnation()?;
        let partitions = source.catalog.partitions()?;
        Ok(Found { incarnation, bounds: source.catalog.bounds(&partitions)? })
    });
    found.collect()
}

/// Why a slice cannot be read again.
enum Unread {
    Differs(String),
    Note(String),
}

fn window(audited: &AuditedSlice, prepared: &Prepared, found: &[Found]) -> Result<Window, Unread> {
    let Slice { key, position, incarnation, .. } = &audited.slice;
    let note = |why: String| Unread::Note(why);
    let source = prepared.plan.sources.iter().find(|source| source.name == key.source);
    let source = source.ok_or_else(|| note("the dataflow has no such source".into()))?;
    let found = &found[usize::from(source.id.0)];
    match incarnation.differs(&found.incarnation) {
        None => {}
        Some(Differs::Place(stored, _)) => {
            return Err(note(format!("it is of another cluster, `{stored}`")));
        }
        Some(Differs::Id(stored, _)) => {
            return Err(note(format!("the topic was created again; it is of the id `{stored}`")));
        }
    }
    let bounds = found.bounds.get(&key.partition);
    let bounds = bounds.ok_or_else(|| note("the partition is gone".into()))?;
    if *position > bounds.end {
        return Err(Unread::Differs(format!("it stands behind the log's end {}", bounds.end)));
    }
    let first = audited.first.ok_or_else(|| {
        note("where it began was not stored, or its position was moved by hand since".into())
    })?;
    if first < bounds.first {
        return Err(note(format!("the log no longer holds [{first}, {})", bounds.first)));
    }
    let lane = Lane { source: source.id, partition: key.partition };
    Ok(Window { sink: key.sink.clone(), lane, from: first, upto: *position })
}

/// The decisions of a run that reads the windows.
fn launch(prepared: &Prepared, found: &[Found], windows: &[Window]) -> Launch {
    // Spans are split wherever a slice stands: at both ends of each window.
    let ends = windows.iter().flat_map(|window| [(window, window.from), (window, window.upto)]);
    let mut places = ends.map(|(window, position)| Slice {
        key: SliceKey {
            sink: window.sink.clone(),
            source: prepared.plan.sources[usize::from(window.lane.source.0)].name.clone(),
            partition: window.lane.partition,
        },
        seq: 0,
        position,
        counters: Counters::default(),
        incarnation: Incarnation::default(),
        leader_epoch: None,
    });
    let stores = prepared
        .stores
        .iter()
        .map(|_| StoreLaunch { generation: Generation(0), slices: places.by_ref().collect() });
    let stores = stores.collect();
    let sources = prepared.plan.sources.iter().map(|source| {
        let mut starts = BTreeMap::<Partition, Offset>::new();
        let mut ends = BTreeMap::<Partition, Offset>::new();
        for Window { lane, from, upto, .. } in windows.iter().filter(|w| w.lane.source == source.id)
        {
            let start = starts.entry(lane.partition).or_insert(*from);
            *start = (*start).min(*from);
            let end = ends.entry(lane.partition).or_insert(*upto);
            *end = (*end).max(*upto);
        }
        let incarnation = found[usize::from(source.id.0)].incarnation.clone();
        SourceLaunch {
            incarnation,
            starts,
            leader_epochs: BTreeMap::new(),
            late: None,
            ends: Some(ends),
        }
    });
    Launch { stores, sources: sources.collect() }
}

/// What the store alone tells of a slice.
fn judged(audited: &AuditedSlice, prepared: &Prepared) -> Recounted {
    let AuditedSlice { slice, first, rejects } = audited;
    let Counters { consumed, filtered, written, rejected, collapsed, .. } = slice.counters;
    let mut differences = Vec::new();
    let mut notes = Vec::new();
    let sum = filtered + written + rejected + collapsed;
    if consumed != sum {
        differences.push(format!(
            "consumed={consumed} is not the sum of filtered={filtered} written={written} \
             rejected={rejected} collapsed={collapsed}, which is {sum}"
        ));
    }
    let source = prepared.plan.sources.iter().find(|source| source.name == slice.key.source);
    if source.is_some_and(|source| source.policy == Policy::Reject) {
        match rejects.cmp(&rejected) {
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Less => notes.push(format!(
                "rejected={rejected}, of which {rejects} are still set aside (others were deleted or \
                 replayed)"
            )),
            std::cmp::Ordering::Greater => differences
                .push(format!("rejected={rejected}, but {rejects} records are set aside")),
        }
    }
    Recounted { slice: slice.clone(), first: *first, counted: None, differences, notes }
}

/// Compares what was counted with what is stored.
fn compare(slice: &mut Recounted) {
    let Some(counted) = slice.counted else { return };
    let named = |c: &Counters| c.written + c.rejected + c.collapsed;
    let stored = slice.slice.counters;
    for (what, log, stored) in [
        ("consumed", counted.consumed, stored.consumed),
        ("filtered", counted.filtered, stored.filtered),
        ("written+rejected+collapsed", named(&counted), named(&stored)),
    ] {
        if log != stored {
            slice.differences.push(format!("{what} is {log} by the log, {stored} as stored"));
        }
    }
}

fn tables(audit: &Audit) -> Vec<CountedTable> {
    let slices: BTreeSet<&str> = audit.slices.iter().map(|s| s.slice.key.sink.as_str()).collect();
    let counted = audit.tables.iter().filter(|(sink, _)| slices.contains(sink.as_str()));
    let table = |(sink, holds): (&String, &u64)| {
        let slices = audit.slices.iter().filter(|slice| slice.slice.key.sink == *sink);
        CountedTable {
            sink: sink.clone(),
            written: slices.map(|slice| slice.slice.counters.rows).sum(),
            holds: *holds,
        }
    };
    counted.map(table).collect()
}
