//! What a source has handed to the dataflow and is not durable yet: how many bytes, for back-pressure,
//! and up to which positions, for the commits that follow durability.

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
    /// Everything before `frontier` (`None`: everything) is durable: releases its bytes and tells the
    /// source. `last` waits for the source's answer.
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

impl<T> Durable for Account<T> {
    fn settle(&self, frontier: Option<Epoch>, last: bool) -> Result<()> {
        let mut open = self.open.borrow_mut();
        let mut uncommitted = self.uncommitted.borrow_mut();
        while let Some(entry) = open.first_entry() {
            if frontier.is_some_and(|frontier| *entry.key() >= frontier) {
                break;
            }
            let entry = entry.remove();
            self.in_flight.set(self.in_flight.get() - entry.bytes);
            uncommitted.extend(entry.positions);
        }
        if self.throttled.get() {
            self.activator.activate();
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
        self.lanes.borrow_mut().stand(&self.reader.borrow().standings());
        self.in_flight.get()
    }
}
