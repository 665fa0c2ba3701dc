//! A scripted source, for tests and benchmarks: partitions of steps that play out in order.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{
    Assignment, Batch, Bounds, Catalog, Ordered, Poll, Reader, Settings, Source, Standing, Wake,
};
use crate::error::{Error, Result};
use crate::record::{
    At, Change, Offset, Partition, Policy, Refusal, Reject, RejectLimit, Row, Span,
};

/// One step of a partition.
#[derive(Debug)]
pub enum Step<T> {
    /// A record that makes this row; it takes one offset.
    Row(T),
    /// A tombstone for this key; it takes one offset.
    Delete(Vec<u8>),
    /// A record that the codec refuses; it takes one offset.
    Bad,
    /// Offsets without a record, as transaction markers and compaction leave them.
    Gap(u16),
    /// Nothing more for now: the reader wakes its worker at once, and what follows is a later poll.
    Stall,
    /// The source fails. Each fault happens once: a later run passes it.
    Fault(AtomicBool),
}

impl<T> Step<T> {
    /// A fault that has not happened yet.
    pub fn fault() -> Self {
        Step::Fault(AtomicBool::new(false))
    }
}

/// The script, shared by the runs that read it; its offsets are those of its steps' records.
pub struct Script<T> {
    partitions: Vec<Vec<Step<T>>>,
    committed: Mutex<BTreeMap<Partition, Offset>>,
}

impl<T> Script<T> {
    /// A script of these partitions.
    pub fn new(partitions: Vec<Vec<Step<T>>>) -> Arc<Self> {
        Arc::new(Script { partitions, committed: Mutex::default() })
    }

    /// What was committed to the source, as the Kafka group's offsets would be.
    pub fn committed(&self) -> BTreeMap<Partition, Offset> {
        self.committed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The end of each partition.
    pub fn ends(&self) -> BTreeMap<Partition, Offset> {
        let end = |steps: &Vec<Step<T>>| Offset(steps.iter().map(length).sum());
        (0..).map(Partition).zip(self.partitions.iter().map(end)).collect()
    }
}

fn length<T>(step: &Step<T>) -> i64 {
    match step {
        Step::Row(_) | Step::Delete(_) | Step::Bad => 1,
        Step::Gap(offsets) => i64::from(*offsets),
        Step::Stall | Step::Fault(_) => 0,
    }
}

/// Reads a [`Script`].
///
/// ```
/// use tidegate::source::{Memory, Script, Step};
/// let script = Script::new(vec![vec![Step::Row(1), Step::Row(2)], vec![Step::Row(3)]]);
/// let source = Memory::new("numbers", script);
/// # let _ = source;
/// ```
pub struct Memory<T> {
    name: String,
    script: Arc<Script<T>>,
    policy: Policy,
    limit: RejectLimit,
}

impl<T> Memory<T> {
    /// A source called `name` that reads `script`.
    pub fn new(name: &str, script: Arc<Script<T>>) -> Self {
        Memory {
            name: name.to_owned(),
            script,
            policy: Policy::default(),
            limit: RejectLimit::default(),
        }
    }

    /// What happens to refused records.
    #[must_use]
    pub fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How many of them a run takes.
    #[must_use]
    pub fn reject_limit(mut self, limit: RejectLimit) -> Self {
        self.limit = limit;
        self
    }
}

impl<T> fmt::Debug for Memory<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<T: Clone + Send + Sync + 'static> Source for Memory<T> {
    type Value = T;

    fn name(&self) -> String {
        self.name.clone()
    }

    fn policy(&self) -> Policy {
        self.policy
    }

    fn reject_limit(&self) -> RejectLimit {
        self.limit
    }

    fn catalog(&self, _settings: &Settings) -> Result<Box<dyn Catalog>> {
        Ok(Box::new(Ends { name: self.name.clone(), ends: self.script.ends() }))
    }

    fn reader(&self, _settings: &Settings, assignment: Assignment) -> Result<Box<dyn Reader<T>>> {
        let script = Arc::clone(&self.script);
        let cursor = |(partition, start)| Cursor::new(&script, &assignment, partition, start);
        let cursors = assignment.owned().map(cursor).collect();
        let late = assignment.owned_late().starts.into_iter().map(cursor).collect();
        Ok(Box::new(Player {
            source: self.name.clone(),
            cursors,
            late,
            ordered: assignment.ordered.clone(),
            bounded: assignment.ends.is_some(),
            turn: AtomicUsize::new(0),
            wake: assignment.wake.clone(),
            script,
        }))
    }
}

struct Ends {
    name: String,
    ends: BTreeMap<Partition, Offset>,
}

impl Catalog for Ends {
    fn describe(&self) -> String {
        format!("memory source `{}`", self.name)
    }

    fn partitions(&mut self) -> Result<Vec<Partition>> {
        Ok(self.ends.keys().copied().collect())
    }

    fn bounds(&mut self, partitions: &[Partition]) -> Result<BTreeMap<Partition, Bounds>> {
        let bounds =
            |p: &Partition| Some((*p, Bounds { first: Offset(0), end: *self.ends.get(p)? }));
        Ok(partitions.iter().filter_map(bounds).collect())
    }

    fn resolve(&mut self, partitions: &[Partition]) -> Result<BTreeMap<Partition, Offset>> {
        Ok(partitions.iter().map(|partition| (*partition, Offset(0))).collect())
    }
}

/// Where one partition's play stands.
struct Cursor {
    lane: crate::record::Lane,
    /// The step to come.
    step: usize,
    /// Where the steps before it end. The position may be further, inside a gap.
    ended: i64,
    position: Offset,
    end: Offset,
    cuts: Vec<Offset>,
}

impl Cursor {
    fn new<T>(
        script: &Script<T>,
        assignment: &Assignment,
        partition: Partition,
        start: Offset,
    ) -> Self {
        let steps = &script.partitions[partition.0 as usize];
        let (mut step, mut ended) = (0, 0);
        while let Some(next) = steps.get(step).map(length)
            && ended + next <= start.0
        {
            ended += next;
            step += 1;
        }
        Cursor {
            lane: assignment.lane(partition),
            step,
            ended,
            position: start,
            end: script.ends()[&partition],
            cuts: assignment.cuts.get(&partition).cloned().unwrap_or_default(),
        }
    }
}

struct Player<T> {
    source: String,
    script: Arc<Script<T>>,
    cursors: Vec<Cursor>,
    /// Those that wait for the older ones; a worker polls often enough to see when they may go.
    late: Vec<Cursor>,
    ordered: Option<Ordered>,
    bounded: bool,
    turn: AtomicUsize,
    wake: Wake,
}

impl<T: Clone> Reader<T> for Player<T> {
    fn poll(&mut self, limit: usize, batch: &mut Batch<T>) -> Result<Poll> {
        if let Some(Ordered { late, durable }) = self.ordered.as_ref()
            && !self.late.is_empty()
            && late.lag(&durable.ask()?) == 0
        {
            self.cursors.append(&mut self.late);
        }
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let count = self.cursors.len();
        let mut taken = 0;
        let mut stalled = false;
        for index in 0..count {
            let cursor = &mut self.cursors[(turn + index) % count];
            let steps = &self.script.partitions[cursor.lane.partition.0 as usize];
            while taken < limit {
                let Some(step) = steps.get(cursor.step) else { break };
                cursor.step += 1;
                let at = At {
                    source: cursor.lane.source,
                    partition: cursor.lane.partition,
                    offset: cursor.position,
                    ordinal: 0,
                };
                let records = match step {
                    Step::Row(value) => {
                        batch.rows.push(Row { at, change: Change::Put(value.clone()) });
                        1
                    }
                    Step::Delete(key) => {
                        let change = Change::Delete(Some(key.clone().into()));
                        batch.rows.push(Row { at, change });
                        1
                    }
                    Step::Bad => {
                        let refusal = Refusal::new("decode", "scripted to be bad");
                        batch.rejects.push(Reject { at, refusal });
                        1
                    }
                    Step::Gap(_) => 0,
                    Step::Stall => {
                        stalled = true;
                        break;
                    }
                    Step::Fault(happened) if !happened.swap(true, Ordering::SeqCst) => {
                        let place = format!("`{}[{}]@{}`", self.source, at.partition, at.offset);
                        return Err(Error::source("scripted to fail").at(place));
                    }
                    Step::Fault(_) => continue,
                };
                taken += 1;
                batch.bytes += 64;
                // A start may stand inside a gap: the span covers what is left of it.
                cursor.ended += length(step);
                let through = Offset(cursor.ended);
                read(cursor, through, records, &mut batch.spans);
            }
        }
        if stalled {
            self.wake.wake();
            return Ok(Poll::Idle);
        }
        let over = self.cursors.iter().all(|cursor| {
            cursor.step == self.script.partitions[cursor.lane.partition.0 as usize].len()
        });
        Ok(match (over, self.bounded && self.late.is_empty()) {
            (true, true) => Poll::End,
            (true, false) => Poll::Idle,
            (false, _) => Poll::More,
        })
    }

    fn commit(&mut self, positions: &BTreeMap<Partition, Offset>, _wait: bool) -> Result<()> {
        let mut committed = self.script.committed.lock().unwrap_or_else(PoisonError::into_inner);
        committed.extend(positions);
        Ok(())
    }

    fn standings(&self) -> Vec<Standing> {
        let standing = |cursor: &Cursor| Standing {
            lane: cursor.lane,
            position: cursor.position,
            end: Some(cursor.end),
        };
        self.cursors.iter().map(standing).collect()
    }
}

/// Moves a cursor to `upto`, splitting its span at every cut on the way; records stand at a span's start.
fn read(cursor: &mut Cursor, upto: Offset, records: u64, spans: &mut Vec<Span>) {
    let mut records = records;
    let cuts: Vec<_> =
        cursor.cuts.iter().copied().filter(|cut| *cut > cursor.position && *cut < upto).collect();
    for end in cuts.into_iter().chain([upto]) {
        let last = spans.last_mut().filter(|span| {
            span.lane == cursor.lane
                && span.upto == cursor.position
                && !cursor.cuts.contains(&cursor.position)
        });
        match last {
            Some(span) => {
                span.upto = end;
                span.records += records;
            }
            None => {
                let (lane, from) = (cursor.lane, cursor.position);
                spans.push(Span { lane, from, upto: end, records, times: None, leader_epoch: None })
            }
        }
        records = 0;
        cursor.position = end;
    }
}
