//! The thread between a worker and its writer: gathers closed epochs and has them stored together.
//!
//! Under load batches fill; under light load `linger` bounds the wait. An epoch is acknowledged, in
//! order, only after the transaction that holds it is durable. A fault raises the run's abort flag and
//! acknowledges nothing (contract C8).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};

use super::meter::Aged;
use super::{Chunk, Flush, FlushMeter, SinkFlush, SinkId, Writer};
use crate::epoch::Epoch;
use crate::origins::Origins;
use crate::record::{Lane, Offset, Reject, Span};
use crate::run::Abort;
use crate::source::Wake;

/// How many closed epochs one transaction takes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long the first row of a transaction waits for others.
    pub linger: Duration,
    /// Rows that make a transaction full.
    pub max_rows: usize,
    /// Encoded bytes that make a transaction full.
    pub max_bytes: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Pace { linger: Duration::from_millis(100), max_rows: 100_000, max_bytes: 32 << 20 }
    }
}

impl Pace {
    /// The longest that positions without rows wait.
    const LAZY: Duration = Duration::from_secs(1);
}

/// What reaches a store's commit, of one epoch.
#[derive(Debug)]
pub(crate) enum Part {
    /// Encoded rows.
    Rows(SinkId, Chunk),
    /// What was read.
    Span(SinkId, Span),
    /// A refused record.
    Reject(SinkId, Reject),
    /// What records held.
    Origins(SinkId, Arc<Origins>),
    /// A record that was set aside, read once more.
    Again(SinkId, Lane, Offset),
}

/// All of one epoch; no more will come.
pub(crate) struct Closed {
    pub epoch: Epoch,
    pub parts: Vec<Part>,
    /// When it closed: from then on its rows wait.
    pub at: Instant,
}

/// What a worker tells its flusher.
pub(crate) enum Order {
    /// An epoch closed.
    Closed(Closed),
    /// A source waits for what it handed over: store what there is, once, without lingering.
    Hurry,
    /// The input has ended: store what there is without lingering.
    Drain,
}

/// The flusher of one worker and store.
pub(crate) struct Flusher {
    pub orders: Receiver<Order>,
    pub acks: Sender<Epoch>,
    pub wake: Wake,
    pub writer: Box<dyn Writer>,
    pub pace: Pace,
    pub abort: Abort,
    pub meter: FlushMeter,
}

impl Flusher {
    /// Runs until the worker hangs up or a fault is raised.
    pub(crate) fn run(mut self) {
        let mut pending = Pending::default();
        let (mut hurry, mut drain) = (false, false);
        loop {
            match self.next(&pending, hurry || drain) {
                Next::Order(Order::Closed(closed)) => pending.add(closed),
                Next::Order(Order::Hurry) => hurry = true,
                Next::Order(Order::Drain) => drain = true,
                Next::Due => {
                    hurry = false;
                    let Some(taken) = pending.take() else { continue };
                    match self.writer.write(taken.flush) {
                        Ok(stored) => {
                            fail::fail_point!("stored");
                            self.meter.flushed(taken.size, taken.wait, taken.aged, stored);
                            if self.acks.send(taken.upto).is_err() {
                                return;
                            }
                            self.wake.wake();
                        }
                        Err(error) => return self.abort.raise(error),
                    }
                }
                Next::Look => {}
                Next::Over => return,
            }
        }
    }

    fn next(&self, pending: &Pending, at_once: bool) -> Next {
        if self.abort.is_raised() {
            return Next::Over;
        }
        if pending.is_full(&self.pace) {
            return Next::Due;
        }
        // What is there already joins the batch, also when the batch is due.
        if let Ok(order) = self.orders.try_recv() {
            return Next::Order(order);
        }
        let now = Instant::now();
        let due = match pending.due(&self.pace) {
            Some(_) if at_once => return Next::Due,
            Some(due) if due <= now => return Next::Due,
            Some(due) => due,
            None => now + Pace::LAZY, // only to look at the abort flag
        };
        match self.orders.recv_deadline(due) {
            Ok(order) => Next::Order(order),
            Err(RecvTimeoutError::Timeout) => Next::Look,
            Err(RecvTimeoutError::Disconnected) => Next::Over,
        }
    }
}

enum Next {
    Order(Order),
    /// Store what is pending.
    Due,
    /// Nothing came: look again.
    Look,
    Over,
}

/// Closed epochs that wait for their transaction.
#[derive(Default)]
struct Pending {
    sinks: BTreeMap<SinkId, SinkFlush>,
    upto: Epoch,
    rows: usize,
    bytes: usize,
    /// When its first epoch came.
    since: Option<Instant>,
    /// How old the records are.
    aged: Vec<Aged>,
}

/// What is stored together.
struct Taken {
    upto: Epoch,
    flush: Flush,
    /// Rows and bytes.
    size: (usize, usize),
    /// For how long its first epoch has waited.
    wait: Duration,
    aged: Vec<Aged>,
}

impl Pending {
    fn add(&mut self, closed: Closed) {
        assert!(closed.epoch > self.upto, "epochs close in order");
        self.upto = closed.epoch;
        self.since.get_or_insert(closed.at);
        for part in closed.parts {
            match part {
                Part::Rows(sink, chunk) => {
                    self.rows += chunk.rows;
                    self.bytes += chunk.bytes;
                    self.sink(sink).chunks.push(chunk);
                }
                Part::Reject(sink, reject) => {
                    self.rows += 1;
                    self.sink(sink).rejects.push(reject);
                }
                Part::Origins(sink, origins) => self.sink(sink).origins.push(origins),
                Part::Again(sink, lane, offset) => {
                    self.rows += 1;
                    self.sink(sink).again.push((lane, offset));
                }
                Part::Span(sink, span) => {
                    self.aged.extend(span.times.map(|times| (sink, times, span.records)));
                    let joined = self.sink(sink).spans.entry(span.lane).or_insert(Span {
                        upto: span.from,
                        records: 0,
                        times: None,
                        ..span
                    });
                    assert_eq!(joined.upto, span.from, "spans of a partition join");
                    joined.upto = span.upto;
                    joined.leader_epoch = span.leader_epoch;
                    joined.records += span.records;
                }
            }
        }
    }

    fn sink(&mut self, sink: SinkId) -> &mut SinkFlush {
        self.sinks.entry(sink).or_insert_with(|| SinkFlush {
            sink,
            chunks: Vec::new(),
            spans: BTreeMap::new(),
            rejects: Vec::new(),
            origins: Vec::new(),
            again: Vec::new(),
        })
    }

    fn is_full(&self, pace: &Pace) -> bool {
        // Nothing is never full, whatever the limits: there would be nothing to store, for ever.
        self.since.is_some() && (self.rows >= pace.max_rows || self.bytes >= pace.max_bytes)
    }

    /// When it must be stored at the latest.
    fn due(&self, pace: &Pace) -> Option<Instant> {
        let wait = if self.rows == 0 { pace.linger.max(Pace::LAZY) } else { pace.linger };
        self.since.map(|since| since + wait)
    }

    fn take(&mut self) -> Option<Taken> {
        let since = self.since.take()?;
        Some(Taken {
            upto: self.upto,
            flush: Flush { sinks: std::mem::take(&mut self.sinks).into_values().collect() },
            size: (std::mem::take(&mut self.rows), std::mem::take(&mut self.bytes)),
            wait: since.elapsed(),
            aged: std::mem::take(&mut self.aged),
        })
    }
}
