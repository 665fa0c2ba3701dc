//! The commit operator of a store: hands each closed epoch to the flusher, and lets the frontier go
//! once it is durable.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::{Sender, TrySendError, bounded};
use timely::container::CapacityContainerBuilder;
use timely::dataflow::StreamVec;
use timely::dataflow::channels::pact::Pipeline;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::operator::Operator;

use super::context::Site;
use super::input::wake;
use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::sink::{
    Closed, FlushMeter, Flusher, Order, Part, SinkContext, SinkId, SourceContext, WriterContext,
};
use crate::unwind;

/// Closed epochs on their way to the flusher: a second's worth of ticks, so that the channel is full
/// only while a transaction takes longer than that; what does not fit waits in the operator, bounded by
/// the source's back-pressure.
const ORDERS: usize = 64;

/// Builds the operator for `parts`, all parts of store `store` at this worker. Its output carries no
/// data: its frontier is that of durable epochs.
pub(crate) fn commit<'s>(
    site: &Site<'s>,
    store: usize,
    parts: StreamVec<'s, Epoch, Part>,
) -> Result<StreamVec<'s, Epoch, ()>> {
    let live = Arc::clone(&site.live);
    let here = &live.stores[store];
    let meter = live.figures.store(&here.store.identity());
    let writer = here.store.writer(WriterContext {
        pipeline: live.pipeline.clone(),
        generation: here.generation,
        sources: live
            .sources
            .iter()
            .zip(&live.launch.sources)
            .map(|(source, launch)| SourceContext {
                name: source.name.clone(),
                policy: source.policy,
                limit: source.limit,
                incarnation: launch.incarnation.clone(),
            })
            .collect(),
        guard: Arc::clone(&live.guard),
        sinks: here
            .sinks
            .iter()
            .map(|id| {
                let sink = &live.sinks[usize::from(id.0)];
                SinkContext {
                    id: *id,
                    name: sink.name.clone(),
                    shape: Arc::clone(&sink.shape),
                    fan_out: sink.fan_out,
                }
            })
            .collect(),
        slices: live.launch.stores[store].slices.clone(),
        worker: site.scope.index(),
        abort: live.abort.clone(),
        meter: Arc::clone(&meter),
    })?;
    let name = format!("Commit {}", here.store.identity());
    let scope = site.scope;
    let control = Rc::clone(&site.control);
    let sink = |id: &SinkId| {
        let sink = &live.sinks[usize::from(id.0)];
        (*id, (sink.name.clone(), Arc::clone(&sink.meter)))
    };
    let meter = FlushMeter {
        figures: Arc::clone(&live.figures),
        store: meter,
        sinks: here.sinks.iter().map(sink).collect(),
        sources: live.sources.iter().map(|source| source.name.clone()).collect(),
    };
    let queue = live.figures.worker(scope.index());
    let mut spawned = Ok(());
    let stored = Rc::new(Cell::new(Some(0)));
    site.stored.borrow_mut().push(Rc::clone(&stored));
    let stream = parts.unary_frontier::<CapacityContainerBuilder<Vec<()>>, _, _, _>(
        Pipeline,
        &name,
        |initial, info| {
            drop(initial); // it would hold everything back
            let (orders, receiver) = bounded(ORDERS);
            // Never more than the epochs sent, and taken at every activation.
            let (acks, acknowledged) = crossbeam_channel::unbounded();
            let activator = scope.worker().sync_activator_for(info.address.to_vec());
            control.register(scope.activator_for(info.address));
            let flusher = Flusher {
                orders: receiver,
                acks,
                wake: wake(activator),
                writer,
                pace: live.pace,
                abort: live.abort.clone(),
                meter,
            };
            let thread = std::thread::Builder::new()
                .name(format!("flusher {}", scope.index()))
                .spawn(move || {
                    let abort = flusher.abort.clone();
                    let run = std::panic::AssertUnwindSafe(|| flusher.run());
                    if let Err(panic) = std::panic::catch_unwind(run) {
                        let message = unwind::message(&*panic);
                        abort.raise(Error::internal(format!("a flusher panicked: {message}")));
                    }
                });
            match thread {
                Ok(thread) => site.threads.borrow_mut().push(thread),
                Err(error) => {
                    spawned = Err(Error::internal(format!("start a flusher's thread: {error}")));
                }
            }
            let mut orders = Some(orders);
            let mut open = BTreeMap::<Epoch, Vec<Part>>::new();
            let mut closed = VecDeque::<Closed>::new();
            let mut unacknowledged = VecDeque::<Epoch>::new();
            let mut held: Option<Capability<Epoch>> = None; // at the least epoch of all three
            let mut drained = false;
            let mut queued = 0; // as the figures know it
            move |(input, frontier), output| {
                // In the order of arrival, which grouping by stamp would not keep.
                input.for_each(|capability, arrived| {
                    let Some(&epoch) = capability.least() else { return };
                    if held.as_ref().is_none_or(|held| epoch < *held.time()) {
                        held = capability.retain_least(output.output_index());
                    }
                    open.entry(epoch).or_default().append(arrived);
                });
                if live.abort.is_raised() {
                    return; // holding its capability: nothing closes any more
                }
                while let Some(entry) = open.first_entry() {
                    if frontier.less_equal(entry.key()) {
                        break; // still reachable
                    }
                    let (epoch, parts) = entry.remove_entry();
                    closed.push_back(Closed { epoch, parts, at: Instant::now() });
                }
                if let Some(sender) = &orders {
                    let done = frontier.is_empty() && !drained;
                    match send(sender, &mut closed, &mut unacknowledged, done) {
                        Ok(told) => drained |= told,
                        Err(()) => {
                            return live.abort.raise(Error::internal("a flusher ended by itself"));
                        }
                    }
                    if control.is_hurried() && !unacknowledged.is_empty() {
                        // No room: the flusher has enough to do, and the word is repeated.
                        let _ = sender.try_send(Order::Hurry);
                    }
                }
                for durable in acknowledged.try_iter() {
                    while unacknowledged.front().is_some_and(|epoch| *epoch <= durable) {
                        unacknowledged.pop_front();
                    }
                }
                let waiting = (unacknowledged.len() + closed.len()) as i64;
                queue.queued(waiting - std::mem::replace(&mut queued, waiting));
                let least = unacknowledged
                    .front()
                    .or(closed.front().map(|closed| &closed.epoch))
                    .or(open.keys().next());
                stored.set(match (least, frontier.frontier().first()) {
                    (Some(least), Some(coming)) => Some(*least.min(coming)),
                    (least, coming) => least.or(coming).copied(),
                });
                match least {
                    Some(least) => {
                        if let Some(held) = held.as_mut()
                            && held.time() < least
                        {
                            held.downgrade(least);
                        }
                    }
                    None => {
                        held = None;
                        if frontier.is_empty() {
                            orders = None; // lets the flusher go
                        }
                    }
                }
            }
        },
    );
    spawned.map(|()| stream)
}

/// Sends what fits, without blocking; then, with `done`, that nothing more comes. Returns whether that
/// was said; an error where the flusher is gone.
fn send(
    sender: &Sender<Order>,
    closed: &mut VecDeque<Closed>,
    unacknowledged: &mut VecDeque<Epoch>,
    done: bool,
) -> std::result::Result<bool, ()> {
    while let Some(next) = closed.pop_front() {
        let epoch = next.epoch;
        match sender.try_send(Order::Closed(next)) {
            Ok(()) => unacknowledged.push_back(epoch),
            Err(TrySendError::Full(Order::Closed(next))) => {
                closed.push_front(next);
                return Ok(false);
            }
            Err(_) => return Err(()),
        }
    }
    if !done {
        return Ok(false);
    }
    match sender.try_send(Order::Drain) {
        Ok(()) => Ok(true),
        Err(TrySendError::Full(_)) => Ok(false),
        Err(TrySendError::Disconnected(_)) => Err(()),
    }
}
