//! Looks for new partitions while the run goes on, how far the known ones go, and whether the topic is
//! still there; holds new partitions back where they are to wait for the older ones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded};
use rdkafka::topic_partition_list::Offset as Raw;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::catalog::offsets;
use super::config::Connection;
use super::faults;
use super::ffi::Client;
use crate::error::{Error, Result};
use crate::record::{Offset, Partition};
use crate::source::{Assignment, Bounds, Late, Ordered, Silence};

/// How long a question may take, which is how long the thread may outlive its reader.
const LIMIT: Duration = Duration::from_secs(1);

/// A bound for what is found in one go; the rest is found the next time.
const FOUND: usize = 256;

/// How often in a row a topic must be missing until it is believed: a broker that just started may
/// not know it yet.
const MISSING: u32 = 3;

/// How often it is looked whether partitions that wait may be read.
const RELEASE: Duration = Duration::from_millis(500);

/// How often it is asked how far the partitions go, for people.
const ENDS: Duration = Duration::from_secs(1);

/// The same while they stand still: an idle run should cost next to nothing.
const STILL: Duration = Duration::from_secs(4);

/// How old an answer to that may be.
const FRESH: Duration = Duration::from_secs(10);

/// How long nothing may become durable, while partitions wait for it, until that is said.
const PATIENCE: Duration = Duration::from_secs(60);

/// What was found.
pub(super) enum Found {
    /// A partition to read from now on, and where it begins.
    Partition(Partition, Offset),
    /// The topic is gone.
    Gone(Code),
}

/// How far the partitions go that this worker reads, and when that was asked; up to the last stable offset
/// where only committed records are read.
type Ends = Arc<Mutex<Option<(Instant, BTreeMap<Partition, Offset>)>>>;

/// Since when that is asked in vain, and why.
type Silent = Arc<Mutex<Option<(Instant, String)>>>;

/// A thread that asks for the topic's partitions at an interval and announces those that are new and
/// this worker's, each with its beginning, or that the topic is gone. Of an ordered source, a partition
/// is announced once the older ones are durable up to where they ended when it was found. It ends within
/// a second or so of being stopped.
pub(super) struct Discovery {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    found: Receiver<Found>,
    ends: Ends,
    silent: Silent,
}

impl Discovery {
    /// Starts looking, for all partitions but those that `assignment` knows, of which those of `late`
    /// wait. Without `every` it looks for none, and ends when none waits.
    pub(super) fn start(
        client: Arc<Client>,
        connection: &Connection,
        assignment: &Assignment,
        late: Late,
        every: Option<Duration>,
    ) -> Result<Discovery> {
        let stop = Arc::new(AtomicBool::new(false));
        let (announce, found) = bounded(FOUND);
        let (ends, silent) = (Ends::default(), Silent::default());
        let mut search = Search {
            client,
            connection: connection.clone(),
            assignment: assignment.clone(),
            known: assignment.starts.keys().chain(late_at_start(assignment)).copied().collect(),
            held: Vec::new(),
            patience: Patience::default(),
            announce,
            missing: 0,
            stop: Arc::clone(&stop),
            ends: Arc::clone(&ends),
            silent: Arc::clone(&silent),
        };
        search.hold(late);
        let every = every.map(|every| every.max(Duration::from_millis(10)));
        let thread = thread::Builder::new()
            .name(format!("tidegate-discovery-{}", assignment.worker))
            .spawn(move || search.run(every))
            .map_err(|error| Error::internal("cannot start a thread").because(error))?;
        Ok(Discovery { stop, thread: Some(thread), found, ends, silent })
    }

    /// What was found, if anything.
    pub(super) fn next(&self) -> Option<Found> {
        self.found.try_recv().ok()
    }

    /// Where `partition` ended a moment ago, if that is known.
    pub(super) fn end(&self, partition: Partition) -> Option<i64> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, ends) = ends.as_ref().filter(|(asked, _)| asked.elapsed() < FRESH)?;
        ends.get(&partition).map(|end| end.0)
    }

    /// For how long no broker has said where the partitions end, if that is so.
    pub(super) fn silence(&self) -> Option<Silence> {
        let silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let silence = |(since, cause): &(Instant, String)| Silence {
            lasts: since.elapsed(),
            cause: cause.clone(),
        };
        silent.as_ref().map(silence)
    }

    /// Asks the thread to end, without waiting for it.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.stop();
    }
}

/// All partitions that were late at the start of the run.
fn late_at_start(assignment: &Assignment) -> impl Iterator<Item = &Partition> {
    assignment.ordered.iter().flat_map(|ordered| ordered.late.starts.keys())
}

struct Search {
    client: Arc<Client>,
    connection: Connection,
    assignment: Assignment,
    /// All that were found, of whichever worker.
    known: BTreeSet<Partition>,
    held: Vec<Held>,
    patience: Patience,
    announce: Sender<Found>,
    missing: u32,
    stop: Arc<AtomicBool>,
    ends: Ends,
    silent: Silent,
}

/// Partitions that are not announced yet, and whether it was said that they wait.
struct Held {
    late: Late,
    said: bool,
}

/// Since when the offsets that are waited for have not become fewer.
#[derive(Default)]
struct Patience {
    lag: i64,
    since: Option<Instant>,
    warned: bool,
}

impl Patience {
    /// Whether to say, once, that nothing comes.
    fn is_over(&mut self, lag: Option<i64>) -> bool {
        match (self.since, lag) {
            (None, lag) => *self = Patience::begin(lag.unwrap_or(i64::MAX)),
            (_, Some(lag)) if lag != self.lag => *self = Patience::begin(lag),
            (Some(since), _) if !self.warned && since.elapsed() >= PATIENCE => {
                self.warned = true;
                return true;
            }
            _ => {}
        }
        false
    }

    fn begin(lag: i64) -> Self {
        Patience { lag, since: Some(Instant::now()), warned: false }
    }
}

impl Search {
    fn run(mut self, every: Option<Duration>) {
        let mut looked = Instant::now();
        let mut asked = None::<Instant>;
        let mut ends = ENDS;
        loop {
            self.release();
            if every.is_some() && asked.is_none_or(|asked| asked.elapsed() >= ends) {
                ends = if self.ask_ends() { ENDS } else { STILL.min(ends * 2) };
                asked = Some(Instant::now());
            }
            let next = every.map(|every| every.saturating_sub(looked.elapsed()).min(ends));
            let pause = match (next, self.held.is_empty()) {
                (None, true) => return,
                (Some(next), true) => next,
                (next, false) => next.map_or(RELEASE, |next| next.min(RELEASE)),
            };
            thread::park_timeout(pause);
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            if every.is_some_and(|every| looked.elapsed() >= every) {
                looked = Instant::now();
                self.look();
            }
        }
    }

    /// Asks how far the partitions go; whether that has changed. Without an answer what is known grows old.
    fn ask_ends(&self) -> bool {
        let owned: Vec<Partition> =
            self.known.iter().copied().filter(|known| self.assignment.owns(*known)).collect();
        if owned.is_empty() {
            return false;
        }
        let asked = Instant::now();
        let found = match offsets(&self.client, &self.connection, &owned, Raw::End, LIMIT) {
            Ok(found) => found,
            Err(code) => {
                self.unanswered(asked, code);
                return false;
            }
        };
        self.answered();
        let ends = found.into_iter().filter_map(|(partition, end)| Some((partition, end?)));
        let ends = ends.collect();
        let mut known = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let moved = known.as_ref().is_none_or(|(_, known)| *known != ends);
        *known = Some((Instant::now(), ends));
        moved
    }

    fn unanswered(&self, asked: Instant, code: Code) {
        let heard = self.client.events().last();
        let cause = heard.map_or_else(|| code.to_string(), |(_, text)| text);
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        let since = silent.as_ref().map_or(asked, |(since, _)| *since);
        *silent = Some((since, cause));
    }

    fn answered(&self) {
        let mut silent = self.silent.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, _)) = silent.take().filter(|(since, _)| since.elapsed() > FRESH) {
            tracing::info!(target: "tidegate::kafka", topic = self.connection.topic,
                seconds = since.elapsed().as_secs(), "the brokers answer again");
        }
    }

    /// Looks once. What fails is tried again at the next interval.
    fn look(&mut self) {
        let ids = match self.client.partitions(&self.connection.name, LIMIT) {
            Ok(ids) => ids,
            Err(code) => {
                // Anything else comes to the reader too, by its own fetches.
                self.missing = if faults::is_missing(code) { self.missing + 1 } else { 0 };
                if self.missing >= MISSING && self.announce.try_send(Found::Gone(code)).is_ok() {
                    self.assignment.wake.wake();
                }
                return;
            }
        };
        self.missing = 0;
        let new: Vec<Partition> = ids
            .into_iter()
            .map(Partition)
            .filter(|partition| !self.known.contains(partition))
            .collect();
        let owned: Vec<Partition> =
            new.iter().copied().filter(|partition| self.assignment.owns(*partition)).collect();
        if !owned.is_empty() {
            let Some(late) = self.late(&owned) else { return };
            self.hold(late);
        }
        self.known.extend(new);
    }

    /// Where `new` partitions begin, and what they wait for; `None` where the broker does not say.
    fn late(&self, new: &[Partition]) -> Option<Late> {
        let ask = |partitions: &[Partition], time| {
            let found = offsets(&self.client, &self.connection, partitions, time, LIMIT).ok()?;
            let found = found.into_iter().map(|(partition, offset)| Some((partition, offset?)));
            found.collect::<Option<BTreeMap<Partition, Offset>>>()
        };
        let starts = ask(new, Raw::Beginning)?;
        let known: Vec<Partition> = self.known.iter().copied().collect();
        if self.assignment.ordered.is_none() || known.is_empty() {
            return Some(Late { starts, after: BTreeMap::new() });
        }
        let ends = ask(&known, Raw::End)?;
        let firsts = ask(&known, Raw::Beginning)?;
        let bounds = ends.into_iter().filter_map(|(partition, end)| {
            Some((partition, Bounds { first: *firsts.get(&partition)?, end }))
        });
        Some(Late { starts, after: Late::barrier(bounds) })
    }

    fn hold(&mut self, late: Late) {
        if !late.starts.is_empty() {
            self.held.push(Held { late, said: false });
        }
    }

    /// Announces what need not wait any longer.
    fn release(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let asked = match &self.assignment.ordered {
            Some(Ordered { durable, .. }) => durable.ask(),
            None => Ok(BTreeMap::new()),
        };
        let topic = &self.connection.topic;
        let durable = match asked {
            Ok(durable) => durable,
            Err(error) => {
                if self.patience.is_over(None) {
                    tracing::warn!(target: "tidegate::kafka", topic, %error, "new partitions wait \
                        for the older ones, and how far those are stored cannot be read");
                }
                return;
            }
        };
        let mut announced = false;
        self.held.retain_mut(|Held { late, said }| {
            if late.lag(&durable) > 0 {
                if !*said {
                    tracing::info!(target: "tidegate::kafka", topic,
                        new = list(late.starts.keys()), after = list(late.after.keys()),
                        "new partitions wait until the older ones are stored up to the ends they have now");
                    *said = true;
                }
                return true;
            }
            while let Some((partition, start)) = late.starts.pop_first() {
                if self.announce.try_send(Found::Partition(partition, start)).is_err() {
                    late.starts.insert(partition, start);
                    break;
                }
                announced = true;
            }
            !late.starts.is_empty()
        });
        if announced {
            self.assignment.wake.wake();
        }
        let lag = self.held.iter().map(|held| held.late.lag(&durable)).sum();
        if self.held.is_empty() {
            self.patience = Patience::default();
        } else if self.patience.is_over(Some(lag)) {
            tracing::warn!(target: "tidegate::kafka", topic, offsets = lag, "new partitions wait for \
                the older ones, of which nothing was stored for a minute");
        }
    }
}

fn list<'a>(partitions: impl Iterator<Item = &'a Partition>) -> String {
    partitions.map(Partition::to_string).collect::<Vec<_>>().join(", ")
}
