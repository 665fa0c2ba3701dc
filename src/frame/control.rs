//! A word to all workers: that records flow, so that idle sources tick fast again, that a source waits
//! for room, and that the run is to stop. It travels as a small broadcast stream in a dataflow of its own, whose time never moves.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use timely::container::CapacityContainerBuilder;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::generic::operator::{Operator, source};
use timely::dataflow::operators::vec::Broadcast;
use timely::scheduling::Activator;
use timely::worker::Worker;

use crate::epoch::Epoch;
use crate::run::Stop;

/// Records flow somewhere: tick at full pace for a while.
const BEAT: u8 = 0;
/// The run was asked to stop.
const STOP: u8 = 1;
/// A source has handed over all that it may: it waits until something of it is durable.
const FULL: u8 = 2;

/// How long after the last word of flowing records sources go on ticking at full pace.
const AWAKE: Duration = Duration::from_secs(2);
/// How often a source that reads says so.
const REPEAT: Duration = Duration::from_millis(500);
/// How long after the last word of a source that waits nothing lingers.
const HURRY: Duration = Duration::from_millis(500);
/// How often a source that waits says so.
const REMIND: Duration = Duration::from_millis(100);

/// One worker's end.
#[derive(Default)]
pub(crate) struct Control {
    outbox: RefCell<Vec<u8>>,
    finished: Cell<bool>,
    activator: RefCell<Option<Activator>>,
    operators: RefCell<Vec<Activator>>,
    awake_until: Cell<Option<Instant>>,
    said: Cell<Option<Instant>>,
    hurry_until: Cell<Option<Instant>>,
    reminded: Cell<Option<Instant>>,
}

impl Control {
    /// Builds the stream; every worker must, before its dataflow.
    pub(crate) fn build(worker: &mut Worker, stop: Stop) -> Rc<Self> {
        let control = Rc::new(Control::default());
        let (sender, receiver) = (Rc::clone(&control), Rc::clone(&control));
        worker.dataflow_named::<Epoch, _, _>("Control", |scope| {
            source::<_, CapacityContainerBuilder<Vec<u8>>, _, _>(
                scope,
                "Say",
                |capability, info| {
                    *sender.activator.borrow_mut() = Some(scope.activator_for(info.address));
                    let mut capability = Some(capability);
                    move |output| {
                        let Some(held) = &capability else { return };
                        let words = std::mem::take(&mut *sender.outbox.borrow_mut());
                        if !words.is_empty() {
                            output.session(held).give_iterator(words.into_iter());
                        }
                        if sender.finished.get() {
                            capability = None;
                        }
                    }
                },
            )
            .broadcast()
            .sink(Pipeline, "Hear", move |(input, _frontier)| {
                input.for_each_stamp(|_, containers| {
                    for word in containers.flat_map(|words| words.drain(..)) {
                        match word {
                            BEAT => receiver.awake_until.set(Some(Instant::now() + AWAKE)),
                            STOP => stop.request(),
                            FULL => receiver.hurry_until.set(Some(Instant::now() + HURRY)),
                            word => unreachable!("an unknown word {word}"),
                        }
                    }
                });
                receiver.wake();
            });
        });
        control
    }

    /// Adds an operator to be woken by words: a source, or a commit.
    pub(crate) fn register(&self, operator: Activator) {
        self.operators.borrow_mut().push(operator);
    }

    /// Wakes this worker's operators that listen.
    pub(crate) fn wake(&self) {
        self.operators.borrow().iter().for_each(Activator::activate);
    }

    /// Whether records flow, or flowed a moment ago, at any worker.
    pub(crate) fn is_awake(&self) -> bool {
        self.awake_until.get().is_some_and(|until| Instant::now() < until)
    }

    /// Tells all workers that records flow; says it again only now and then.
    pub(crate) fn beat(&self) {
        let now = Instant::now();
        self.awake_until.set(Some(now + AWAKE));
        if self.said.get().is_none_or(|said| now >= said + REPEAT) {
            self.said.set(Some(now));
            self.say(BEAT);
        }
    }

    /// Tells all workers that a source waits for what it handed over to be durable: what lingers
    /// anywhere keeps it waiting.
    pub(crate) fn full(&self) {
        let now = Instant::now();
        if self.reminded.get().is_none_or(|reminded| now >= reminded + REMIND) {
            self.reminded.set(Some(now));
            self.say(FULL);
        }
    }

    /// Whether a source of any worker waits, or waited a moment ago.
    pub(crate) fn is_hurried(&self) -> bool {
        self.hurry_until.get().is_some_and(|until| Instant::now() < until)
    }

    /// Tells all workers to stop.
    pub(crate) fn stop(&self) {
        self.say(STOP);
        self.wake();
    }

    /// Nothing more will be said.
    pub(crate) fn finish(&self) {
        self.finished.set(true);
        self.activate();
    }

    fn say(&self, word: u8) {
        if !self.finished.get() {
            self.outbox.borrow_mut().push(word);
            self.activate();
        }
    }

    fn activate(&self) {
        if let Some(activator) = &*self.activator.borrow() {
            activator.activate();
        }
    }
}
