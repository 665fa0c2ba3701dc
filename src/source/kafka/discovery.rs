//! Looks for new partitions while the run goes on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use rdkafka::topic_partition_list::Offset as Raw;

use super::catalog::offsets;
use super::config::Connection;
use super::ffi::Client;
use crate::error::{Error, Result};
use crate::record::{Offset, Partition};
use crate::source::Assignment;

/// How long a question may take, which is how long the thread may outlive its reader.
const LIMIT: Duration = Duration::from_secs(1);

/// A bound for what is found in one go; the rest is found the next time.
const FOUND: usize = 256;

/// A thread that asks for the topic's partitions at an interval and announces those that are new and
/// this worker's, each with its beginning. It ends within a second or so of being stopped.
pub(super) struct Discovery {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    found: Receiver<(Partition, Offset)>,
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
            stop: stop.clone(),
        };
        let every = every.max(Duration::from_millis(10));
        let thread = thread::Builder::new()
            .name(format!("tidegate-discovery-{}", assignment.worker))
            .spawn(move || search.run(every))
            .map_err(|error| Error::internal("cannot start a thread").because(error))?;
        Ok(Discovery { stop, thread: Some(thread), found })
    }

    /// A partition that was found, if any.
    pub(super) fn next(&self) -> Option<(Partition, Offset)> {
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
    announce: Sender<(Partition, Offset)>,
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

    /// Looks once. What fails is tried again at the next interval: the reader reports lasting errors.
    fn look(&mut self) {
        let Ok(ids) = self.client.partitions(&self.connection.name, LIMIT) else { return };
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
            if self.announce.try_send((partition, first)).is_err() {
                break;
            }
            self.known.insert(partition);
        }
        self.assignment.wake.wake();
    }
}
