//! What a source has handed to the dataflow and is not durable yet: how many bytes, for back-pressure,
//! and up to which positions, for the commits that follow durability.
//!
//! Bytes are let go once this worker's own writers have stored them, since nothing that it reads is written
//! by another; positions are told once the epoch is durable everywhere. So a worker never waits for another's
//! transaction to read on.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use timely::scheduling::Activator;

use super::lanes::Lanes;
use crate::epoch::Epoch;
use crate::error::Result;
use crate::record::{Offset, Partition, Span};
use crate::source::Reader;

/// A source's share of the worker's loop.
pub(crate) trait Durable {
    /// This worker has stored all that it read before `frontier` (`None`: everything): releases its
    /// bytes.
    fn release(&self, frontier: Option<Epoch>);

    /// Everything before `frontier` (`None`: everything) is durable everywhere: tells the source. `last`
    /// waits for its answer.
    fn settle(&self, frontier: Option<Epoch>, last: bool) -> Result<()>;

    /// Tells the figures where reading stands; gives how many bytes are not durable yet.
    fn stand(&self) -> usize;
}

/// The account of one source at one worker, shared by its operator and the worker's loop.
pub(crate) struct Account<T> {
    pub reader: RefCell<Box<dyn Reader<T>>>,
    activator: Activator,
    open: RefCell<BTreeMap<Epoch, Entry>>,
    in_flight: Cell<usize>,
    throttled: Cell<bool>,
    uncommitted: RefCell<BTreeMap<Partition, Offset>>,
    tells: bool,
    lanes: RefCell<Lanes>,
}

#[derive(Default)]
struct Entry {
    bytes: usize,
    positions: BTreeMap<Partition, Offset>,
}

impl<T> Account<T> {
    /// `starts` are the positions found stored: an earlier run may have ended between storing them and
    /// telling the source. Without `tells` the source is told nothing.
    pub(crate) fn new(
        reader: Box<dyn Reader<T>>,
        starts: BTreeMap<Partition, Offset>,
        activator: Activator,
        tells: bool,
        lanes: Lanes,
    ) -> Rc<Self> {
        Rc::new(Account {
            reader: RefCell::new(reader),
            activator,
            open: RefCell::default(),
            in_flight: Cell::new(0),
            throttled: Cell::new(false),
            uncommitted: RefCell::new(starts),
            tells,
            lanes: RefCell::new(lanes),
        })
    }

    /// Notes what a poll handed over in `epoch`: `read` bytes, and `kept` ones of copies of them.
    pub(crate) fn note(&self, epoch: Epoch, read: usize, kept: usize, spans: &[Span]) {
        let bytes = read + kept;
        if spans.is_empty() && bytes == 0 {
            return;
        }
        self.lanes.borrow_mut().read(spans, read);
        let mut open = self.open.borrow_mut();
        let entry = open.entry(epoch).or_default();
        entry.bytes += bytes;
        for span in spans {
            entry.positions.insert(span.lane.partition, span.upto);
        }
        self.in_flight.set(self.in_flight.get() + bytes);
    }

    /// How many bytes more may be handed over until `budget` are not durable yet.
    pub(crate) fn room(&self, budget: usize) -> usize {
        budget.saturating_sub(self.in_flight.get())
    }

    /// Whether more than `budget` bytes are not durable yet. The operator is woken when that may have
    /// changed.
    pub(crate) fn is_over(&self, budget: usize) -> bool {
        let over = self.in_flight.get() > budget;
        self.throttled.set(over);
        over
    }

    /// Whether it was over the budget when last asked.
    pub(crate) fn is_throttled(&self) -> bool {
        self.throttled.get()
    }

    /// Whether everything handed over is durable.
    pub(crate) fn is_settled(&self) -> bool {
        self.open.borrow().is_empty()
    }
}

/// Whether `epoch` is before `frontier`.
fn is_before(epoch: Epoch, frontier: Option<Epoch>) -> bool {
    frontier.is_none_or(|frontier| epoch < frontier)
}

impl<T> Durable for Account<T> {
    fn release(&self, frontier: Option<Epoch>) {
        let mut open = self.open.borrow_mut();
        for (_, entry) in open.iter_mut().take_while(|(epoch, _)| is_before(**epoch, frontier)) {
            self.in_flight.set(self.in_flight.get() - std::mem::take(&mut entry.bytes));
        }
        if self.throttled.get() {
            self.activator.activate();
        }
    }

    fn settle(&self, frontier: Option<Epoch>, last: bool) -> Result<()> {
        let mut open = self.open.borrow_mut();
        let mut uncommitted = self.uncommitted.borrow_mut();
        while let Some(entry) = open.first_entry() {
            if !is_before(*entry.key(), frontier) {
                break;
            }
            let entry = entry.remove();
            debug_assert_eq!(entry.bytes, 0, "what is durable everywhere is stored here");
            uncommitted.extend(entry.positions);
        }
        if !self.tells {
            uncommitted.clear();
        } else if !uncommitted.is_empty() {
            self.reader.borrow_mut().commit(&uncommitted, last)?;
            uncommitted.clear();
        } else if last {
            self.reader.borrow_mut().commit(&BTreeMap::new(), true)?;
        }
        Ok(())
    }

    fn stand(&self) -> usize {
        let reader = self.reader.borrow();
        let mut lanes = self.lanes.borrow_mut();
        lanes.stand(&reader.standings());
        lanes.silent(reader.silence().as_ref());
        self.in_flight.get()
    }
}
