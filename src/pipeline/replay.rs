//! Replays records that were set aside, after their cause was removed.
//!
//! A replay is a run of the same dataflow, by one process, whose sources hand out kept records and whose
//! doors let in nothing else. It moves no position: in one transaction each record leaves the place where
//! it was set aside and is counted as what became of it now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use super::{Options, Pipeline, Prepared};
use crate::cluster::{Flags, Joined, Mesh};
use crate::epoch::Clock;
use crate::error::{Error, Result};
use crate::launch::{Launch, SourceLaunch, StoreLaunch};
use crate::origins::{Origin, Replay};
use crate::plan::{SinkPlan, StorePlan};
use crate::position::Door;
use crate::record::{Incarnation, Lane, Offset, Partition, Policy, RejectLimit, SourceId};
use crate::sink::{Generation, SinkId, Standby, Store};

/// A record that was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Its number in the store; newer ones have greater numbers.
    pub id: i64,
    /// The sink that it was meant for.
    pub sink: String,
    /// Its source.
    pub topic: String,
    /// Its partition.
    pub partition: Partition,
    /// Its offset.
    pub offset: Offset,
    /// What it held; `None` where that was not kept.
    pub origin: Option<Origin>,
}

/// What became of replayed records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Written.
    pub written: u64,
    /// Filtered.
    pub filtered: u64,
    /// Refused again, and set aside anew.
    pub rejected: u64,
    /// Superseded by a later one of their key.
    pub collapsed: u64,
    /// What was left where it is: per sink and reason, how many.
    pub left: BTreeMap<(String, &'static str), u64>,
    /// Whether it was asked to end before all was tried; what was refused again in its last transactions
    /// is not counted then.
    pub ended: bool,
}

const KEYED: &str = "it has a key: a newer record may have been applied since, over which an old one must \
                     not be put; export it with `--json`, correct its payload, and produce that to the topic again";
const FAN_OUT: &str = "a record may make several of its rows, some of which were written; export it with \
                       `--json`";
const GONE: &str = "the dataflow has no such sink or source any more; export it with `--json`";
const UNKNOWN: &str = "what it held was not kept";

impl Pipeline {
    /// How many records a replay takes at a time, so that memory stays bounded.
    pub const REPLAY_ROUND: usize = 5000;

    /// Replays what `next` gives: asked for each store, with the greatest number that it gave before, it
    /// gives at most [`Pipeline::REPLAY_ROUND`] further records, in the order of their numbers; none at the end.
    ///
    /// Waits for the pipeline's lock as a run does: no run of it goes on meanwhile.
    pub fn replay(
        &self,
        options: &Options,
        mut next: impl FnMut(&dyn Store, i64) -> Result<Vec<Kept>>,
    ) -> Result<Replayed> {
        let mut options = options.clone();
        options.flags = Flags::default();
        options.until_end = true;
        let prepared = self.prepare(&options)?;
        let standby = Standby {
            take_over: options.take_over,
            every: std::time::Duration::from_secs(1),
            waiting: &|line| {
                if options.stop.is_requested() {
                    return Err(Error::sink("the replay was asked to end"));
                }
                tracing::info!("waiting: {line}");
                Ok(())
            },
        };
        let mut locks = Vec::new();
        for store in &prepared.stores {
            locks.push(store.store.lock(&self.name, &standby)?);
        }
        let mut generations = Vec::new();
        for store in &prepared.stores {
            generations.push(store.store.begin(&self.name)?);
        }
        let mut replayed = Replayed::default();
        for store in &prepared.stores {
            let mut after = 0;
            // What is refused again is set aside anew, with a greater number.
            let mut seen = BTreeSet::new();
            loop {
                let kept = next(&*store.store, after)?;
                let Some(last) = kept.iter().map(|kept| kept.id).max() else { break };
                after = last;
                let fresh: Vec<Kept> = kept
                    .into_iter()
                    .filter(|kept| {
                        let Kept { sink, topic, partition, offset, .. } = kept;
                        seen.insert((sink.clone(), topic.clone(), *partition, *offset))
                    })
                    .collect();
                if fresh.is_empty() {
                    break;
                }
                if options.stop.is_requested() {
                    replayed.ended = true;
                    break;
                }
                let fresh =
                    fresh.into_iter().filter_map(|kept| fit(&prepared, store, kept, &mut replayed));
                let round = Round::new(&prepared, fresh.collect());
                self.round(&options, &prepared, &generations, round, &mut replayed)?;
            }
        }
        drop(locks);
        Ok(replayed)
    }

    fn round(
        &self,
        options: &Options,
        prepared: &Prepared,
        generations: &[Generation],
        round: Round,
        replayed: &mut Replayed,
    ) -> Result<()> {
        if round.count == 0 {
            return Ok(());
        }
        let mut stores = Vec::new();
        for (store, generation) in prepared.stores.iter().zip(generations) {
            let mut slices = store.store.slices(&self.name)?;
            slices.retain(|slice| {
                store.sinks.iter().any(|id| prepared.plan.reaches(*id, &slice.key))
            });
            stores.push(StoreLaunch { generation: *generation, slices });
        }
        let nothing = SourceLaunch {
            incarnation: Incarnation::default(),
            starts: BTreeMap::new(),
            leader_epochs: BTreeMap::new(),
            late: None,
            ends: Some(BTreeMap::new()),
        };
        let sources = prepared.plan.sources.iter().map(|_| nothing.clone()).collect();
        let Joined::Mesh(mesh) = Mesh::connect(&options.flags, &self.name, &options.stop)? else {
            return Ok(());
        };
        options.figures.begin(self.about(options));
        let clock = Clock::started(std::time::Duration::ZERO, options.tick);
        let mut live = self.live(options, prepared, Launch { stores, sources }, clock);
        for source in &mut live.sources {
            // Nothing that was kept is thrown away, and all of it was counted before.
            if source.policy == Policy::Skip {
                source.policy = Policy::Reject;
            }
            source.limit = RejectLimit { count: None, rate: 1.0 };
        }
        for (sink, door) in live.sinks.iter_mut().zip(round.doors) {
            sink.door = Door::only(door);
        }
        live.replay = Some(Mutex::new(round.records));
        let live = Arc::new(live);
        self.execute(&live, options, mesh)?;
        let snapshot = options.figures.snapshot();
        let (filtered, written) = (snapshot.sum(|s| s.filtered), snapshot.sum(|s| s.written));
        let (rejected, collapsed) = (snapshot.sum(|s| s.rejected), snapshot.sum(|s| s.collapsed));
        // Each record that was replayed was taken out of the rejected ones first.
        let done = filtered + written + collapsed;
        let again = rejected.wrapping_add(round.count);
        replayed.ended |= options.stop.is_requested();
        replayed.filtered += filtered;
        replayed.written += written;
        replayed.collapsed += collapsed;
        if !replayed.ended {
            replayed.rejected += again.min(round.count.saturating_sub(done));
        }
        Ok(())
    }
}

/// The record, where it may be replayed; else it is counted as left, and why.
fn fit(
    prepared: &Prepared,
    store: &StorePlan,
    kept: Kept,
    replayed: &mut Replayed,
) -> Option<Kept> {
    let sink = sink(prepared, store, &kept.sink);
    let known = prepared.plan.sources.iter().any(|source| source.name == kept.topic);
    let why = match sink {
        Some(sink) if known && sink.target.keyed => KEYED,
        Some(sink) if known && sink.fan_out => FAN_OUT,
        Some(_) if known && kept.origin.is_none() => UNKNOWN,
        Some(_) if known => return Some(kept),
        _ => GONE,
    };
    *replayed.left.entry((kept.sink, why)).or_default() += 1;
    None
}

fn sink<'a>(prepared: &'a Prepared, store: &StorePlan, name: &str) -> Option<&'a SinkPlan> {
    let named = |id: &&SinkId| prepared.plan.sink(**id).target.name == name;
    store.sinks.iter().find(named).map(|id| prepared.plan.sink(*id))
}

/// What one round replays.
struct Round {
    /// Per source.
    records: Vec<Replay>,
    /// Per sink.
    doors: Vec<BTreeSet<(Lane, Offset)>>,
    /// How many, over all sinks.
    count: u64,
}

impl Round {
    fn new(prepared: &Prepared, kept: Vec<Kept>) -> Self {
        let plan = &prepared.plan;
        let mut doors = vec![BTreeSet::new(); plan.sinks.len()];
        let mut by_place = BTreeMap::new();
        for kept in kept {
            let Some(source) = plan.sources.iter().find(|source| source.name == kept.topic) else {
                continue;
            };
            let Some(sink) = plan.sinks.iter().find(|sink| sink.target.name == kept.sink) else {
                continue;
            };
            let lane = Lane { source: source.id, partition: kept.partition };
            doors[usize::from(sink.id.0)].insert((lane, kept.offset));
            by_place.insert((lane, kept.offset), kept.origin.unwrap_or_default());
        }
        let count = doors.iter().map(|door| door.len() as u64).sum();
        let mut records = vec![Vec::new(); plan.sources.len()];
        for ((lane, offset), origin) in by_place {
            let SourceId(source) = lane.source;
            records[usize::from(source)].push((lane.partition, offset, origin));
        }
        Round { records, doors, count }
    }
}
