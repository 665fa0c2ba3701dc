//! The meter of one partition: how far it is read, how far it is durable at each sink.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use super::{PartitionFigures, SliceFigures, lock, now_ms};

/// No end was heard of.
const UNKNOWN: i64 = -1;

/// Counts one partition. Written by the worker that reads it and by the threads that write its rows.
#[derive(Debug)]
pub struct LaneMeter {
    worker: usize,
    consumed: AtomicU64,
    bytes: AtomicU64,
    position: AtomicI64,
    durable: AtomicI64,
    end: AtomicI64,
    /// When something of it became durable last, or when nothing was behind.
    since_ms: AtomicI64,
    /// Since when the source answers nothing, and why.
    silent: Mutex<Option<(i64, String)>>,
    slices: Mutex<BTreeMap<String, SliceFigures>>,
}

/// What a transaction committed of a slice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Committed {
    /// Its position after.
    pub upto: i64,
    /// Records read.
    pub consumed: u64,
    /// Records that no filter kept.
    pub filtered: u64,
    /// Records of which a row was written.
    pub written: u64,
    /// Records refused.
    pub rejected: u64,
    /// Records superseded by a later one.
    pub collapsed: u64,
    /// Rows written or deleted.
    pub rows: u64,
}

impl LaneMeter {
    pub(super) fn new(worker: usize, position: i64) -> Self {
        LaneMeter {
            worker,
            consumed: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            position: AtomicI64::new(position),
            durable: AtomicI64::new(position),
            end: AtomicI64::new(UNKNOWN),
            since_ms: AtomicI64::new(now_ms()),
            silent: Mutex::default(),
            slices: Mutex::default(),
        }
    }

    /// Its slice at `sink` stands at `position`, unless it is known already.
    pub fn slice(&self, sink: &str, position: i64) {
        let mut slices = lock(&self.slices);
        slices
            .entry(sink.to_owned())
            .or_insert_with(|| SliceFigures { position, ..SliceFigures::default() });
        self.settle(&slices);
    }

    /// Records were read, and the next offset to read is `upto`.
    pub fn read(&self, records: u64, bytes: u64, upto: i64) {
        self.unless_behind();
        self.consumed.fetch_add(records, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.position.store(upto, Ordering::Relaxed);
    }

    /// The partition ends at `end`, up to the last stable offset.
    pub fn end(&self, end: i64) {
        self.unless_behind();
        self.end.store(end, Ordering::Relaxed);
    }

    /// The source has answered nothing for so long, with the cause; `None`: it answers.
    pub fn silent(&self, silence: Option<(Duration, &str)>) {
        let since = |lasts: Duration| now_ms() - i64::try_from(lasts.as_millis()).unwrap_or(0);
        *lock(&self.silent) = silence.map(|(lasts, cause)| (since(lasts), cause.to_owned()));
    }

    /// A transaction has committed.
    pub(super) fn committed(&self, sink: &str, committed: &Committed) {
        let mut slices = lock(&self.slices);
        let slice = slices.entry(sink.to_owned()).or_default();
        slice.position = committed.upto;
        let add = |sum: &mut u64, count: u64| *sum = sum.wrapping_add(count);
        add(&mut slice.consumed, committed.consumed);
        add(&mut slice.filtered, committed.filtered);
        add(&mut slice.written, committed.written);
        add(&mut slice.rejected, committed.rejected);
        add(&mut slice.collapsed, committed.collapsed);
        add(&mut slice.rows, committed.rows);
        self.settle(&slices);
    }

    /// What is durable everywhere is the least position of all slices.
    fn settle(&self, slices: &BTreeMap<String, SliceFigures>) {
        let Some(least) = slices.values().map(|slice| slice.position).min() else { return };
        if self.durable.swap(least, Ordering::Relaxed) != least {
            self.since_ms.store(now_ms(), Ordering::Relaxed);
        }
    }

    fn is_behind(&self) -> bool {
        let durable = self.durable.load(Ordering::Relaxed);
        durable < self.position.load(Ordering::Relaxed)
            || durable < self.end.load(Ordering::Relaxed)
    }

    /// Before something new is behind: whatever was there before is no older than this moment.
    fn unless_behind(&self) {
        if !self.is_behind() {
            self.since_ms.store(now_ms(), Ordering::Relaxed);
        }
    }

    pub(super) fn figures(
        &self,
        topic: &str,
        partition: i32,
        now_ms: i64,
    ) -> (PartitionFigures, Vec<SliceFigures>) {
        let (position, durable) =
            (self.position.load(Ordering::Relaxed), self.durable.load(Ordering::Relaxed));
        // What was read was there: an end that was heard of before is older.
        let end = Some(self.end.load(Ordering::Relaxed)).filter(|end| *end != UNKNOWN);
        let end = end.map(|end| end.max(position).max(durable));
        let age = (now_ms - self.since_ms.load(Ordering::Relaxed)).max(1);
        let silent = lock(&self.silent).clone();
        let partitions = PartitionFigures {
            topic: topic.to_owned(),
            partition,
            worker: self.worker,
            position: position.max(durable),
            durable,
            end,
            lag: end.map(|end| end - durable),
            durable_age_ms: if self.is_behind() { age } else { 0 },
            silent_ms: silent.as_ref().map_or(0, |(since, _)| (now_ms - since).max(1)),
            silence: silent.map(|(_, cause)| cause),
            consumed: self.consumed.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        };
        let slices = lock(&self.slices);
        let slices = slices.iter().map(|(sink, slice)| SliceFigures {
            sink: sink.clone(),
            topic: topic.to_owned(),
            partition,
            ..slice.clone()
        });
        (partitions, slices.collect())
    }
}
