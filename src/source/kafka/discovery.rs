//! Looks for new partitions while the run goes on, and whether the topic is still there.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use rdkafka::topic_partition_list::Offset as Raw;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::catalog::offsets;
use super::config::Connection;
use super::faults;
use super::ffi::Client;
use crate::error::{Error, Result};
use crate::record::{Offset, Partition};
use crate::source::Assignment;

/// How long a question may take, which is how long the thread may outlive its reader.
const LIMIT: Duration = Duration::from_secs(1);

/// A bound for what is found in one go; the rest is found the next time.
const FOUND: usize = 256;

/// How often in a row a topic must be missing until it is believed: a broker that just started may
/// not know it yet.
const MISSING: u32 = 3;

/// What was found.
pub(super) enum Found {
    /// A partition that is new, and where it begins.
    Partition(Partition, Offset),
    /// The topic is gone.
    Gone(Code),
}

/// A thread that asks for the topic's partitions at an interval and announces those that are new and
/// this worker's, each with its beginning, or that the topic is gone. It ends within a second or so of being stopped.
pub(super) struct Discovery {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    found: Receiver<Found>,
}

impl Discovery {
    /// Starts looking, for all partitions but those that `assignment` knows.
    pub(super) fn start(
        client: Arc<Client>,
        connection: &Connection,
        assignment: &Assignment,
        every: Duration,
    ) -> Result<Discovery> {
        let stop = Arc::new(AtomicBool::new(false));
        let (announce, found) = bounded(FOUND);
        let search = Search {
            client,
            connection: connection.clone(),
            assignment: assignment.clone(),
            known: assignment.starts.keys().copied().collect(),
            announce,
            missing: 0,
            stop: Arc::clone(&stop),
        };
        let every = every.max(Duration::from_millis(10));
        let thread = thread::Builder::new()
            .name(format!("tidegate-discovery-{}", assignment.worker))
            .spawn(move || search.run(every))
            .map_err(|error| Error::internal("cannot start a thread").because(error))?;
        Ok(Discovery { stop, thread: Some(thread), found })
    }

    /// What was found, if anything.
    pub(super) fn next(&self) -> Option<Found> {
        self.found.try_recv().ok()
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

struct Search {
    client: Arc<Client>,
    connection: Connection,
    assignment: Assignment,
    known: BTreeSet<Partition>,
    announce: Sender<Found>,
    missing: u32,
    stop: Arc<AtomicBool>,
}

impl Search {
    fn run(mut self, every: Duration) {
        while !self.stop.load(Ordering::SeqCst) {
            thread::park_timeout(every);
            if !self.stop.load(Ordering::SeqCst) {
                self.look();
            }
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
            .filter(|partition| !self.known.contains(partition) && self.assignment.owns(*partition))
            .collect();
        if new.is_empty() {
            return;
        }
        let Ok(firsts) = offsets(&self.client, &self.connection, &new, Raw::Beginning, LIMIT)
        else {
            return;
        };
        for (partition, first) in firsts {
            let Some(first) = first else { continue };
            if self.announce.try_send(Found::Partition(partition, first)).is_err() {
                break;
            }
            self.known.insert(partition);
        }
        self.assignment.wake.wake();
    }
}
