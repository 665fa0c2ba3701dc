//! The input operator: a reader's records into the stream, epoch by epoch, with back-pressure.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use timely::container::CapacityContainerBuilder;
use timely::dataflow::StreamVec;
use timely::dataflow::operators::Capability;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::scheduling::SyncActivator;

use super::context::{Live, Site};
use super::durable::{Account, Durable};
use super::lanes::Lanes;
use crate::epoch::{Epoch, Stride};
use crate::error::Result;
use crate::origins::{Origins, Read};
use crate::plan::NodeId;
use crate::position::{Slice, cuts, durable};
use crate::record::{Reject, Row, SourceId, Span};
use crate::source::{Assignment, Batch, Ordered, Poll, Progress, Source, Wake};

/// Records a poll may take, and so a container: large enough that the costs per container vanish, small
/// enough that the rows stay in the processor's cache on their way to the sink.
const POLL: usize = 1024;
/// What a record is taken to count, in bytes, before any was read.
const SIZE: usize = 512;
/// Records a source reads before it lets the other operators of its worker run.
const FUEL: usize = 16 * POLL;
/// The longest pause between two epochs of an idle run; the first record wakes everyone at once.
const IDLE_TICK: Duration = Duration::from_secs(1);

/// The three streams of a source: rows, what was read, what was refused.
pub(crate) type Streams<'s, T> =
    (StreamVec<'s, Epoch, Row<T>>, StreamVec<'s, Epoch, Read>, StreamVec<'s, Epoch, Reject>);

type Output<D> = OutputBuilder<Epoch, CapacityContainerBuilder<Vec<D>>>;

/// Builds the operator of `source` at this worker.
pub(crate) fn input<'s, S: Source>(
    site: &Site<'s>,
    node: NodeId,
    id: SourceId,
    source: &S,
) -> Result<Streams<'s, S::Value>> {
    let scope = site.scope;
    let mut builder = OperatorBuilder::new(named(node, "source"), scope);
    let address = builder.operator_info().address;
    let (rows, row_stream) = builder.new_output::<Vec<Row<S::Value>>>();
    let (spans, span_stream) = builder.new_output::<Vec<Read>>();
    let (rejects, reject_stream) = builder.new_output::<Vec<Reject>>();
    let mut rows = Output::from(rows);
    let mut spans = Output::from(spans);
    let mut rejects = Output::from(rejects);

    let live = Arc::clone(&site.live);
    let control = Rc::clone(&site.control);
    let activator = scope.activator_for(Rc::clone(&address));
    control.register(scope.activator_for(Rc::clone(&address)));
    let wake = wake(scope.worker().sync_activator_for(address.to_vec()));
    let launch = &live.launch.sources[usize::from(id.0)];
    let assignment = Assignment {
        source: id,
        worker: scope.index(),
        peers: scope.peers(),
        starts: launch.starts.clone(),
        leader_epochs: launch.leader_epochs.clone(),
        ordered: launch.late.clone().map(|late| {
            let durable = progress(Arc::clone(&live), id, source.name());
            Ordered { late, durable }
        }),
        incarnation: launch.incarnation.clone(),
        ends: launch.ends.clone(),
        cuts: cuts(live.launch.slices(), &source.name()),
        budget: live.budget.fetched,
        discovery: live.discovery,
        wake,
        shared: live.shared.clone(),
    };
    let starts = assignment.owned().collect();
    let owned = assignment.owned().map(|(partition, start)| (partition, start.0));
    let lanes = Lanes::new(Arc::clone(&live), id, scope.index(), owned);
    let meter = live.meter(node);
    let replayed = live.replayed(id);
    let is_replay = replayed.is_some();
    let reader = match replayed {
        Some(records) => source.replayer(id, records)?,
        None => source.reader(&live.settings, assignment)?,
    };
    let account = Account::new(reader, starts, scope.activator_for(address), live.tells, lanes);
    site.pending.borrow_mut().push(Rc::clone(&account) as Rc<dyn Durable>);

    builder.build(move |capabilities| {
        let mut open = Open::new(capabilities);
        let mut batch = Batch::default();
        let mut armed = Instant::now(); // when the one timer goes off; each more would leak
        let mut size = SIZE;
        move |_frontiers| {
            let Some(held) = &mut open else { return };
            if live.abort.is_raised() {
                return; // with its capabilities: a fault closes no epoch
            }
            let stride = if control.is_hurried() { Stride::Quarter } else { Stride::Tick };
            let polled = Instant::now();
            let (now, left) = live.clock.now(stride);
            held.advance(now);
            if live.stop.is_requested() {
                open = None;
                return;
            }
            let epoch = held.epoch();
            let mut fuel = FUEL;
            let mut poll = Poll::More;
            while fuel > 0 && poll == Poll::More && !account.is_over(live.budget.in_flight) {
                // About as many as there is room for, if they are like those before.
                let limit = (account.room(live.budget.in_flight) / size + 1).min(POLL);
                poll = match account.reader.borrow_mut().poll(limit.min(fuel), &mut batch) {
                    Ok(poll) => poll,
                    Err(error) => return live.abort.raise(error),
                };
                let records = batch.spans.iter().map(|span| span.records).sum::<u64>();
                fuel = fuel.saturating_sub(POLL.max(records as usize));
                let bytes = batch.bytes + batch.origins.size();
                size = bytes.checked_div(records as usize).unwrap_or(size).max(1);
                account.note(epoch, batch.bytes, batch.origins.size(), &batch.spans);
                for reject in batch.rejects.drain(..) {
                    let Some(reject) = live.refuse(reject) else { return };
                    rejects.activate().session(&held.rejects).give(reject);
                }
                if !batch.rows.is_empty() {
                    meter.passed(batch.rows.len());
                    rows.activate().session(&held.rows).give_container(&mut batch.rows);
                    batch.rows.clear();
                    batch.rows.reserve(POLL);
                }
                if !batch.spans.is_empty() {
                    control.beat();
                    let mut spans = spans.activate();
                    let mut session = spans.session(&held.spans);
                    let read = |span: Span| match is_replay {
                        true => Read::Again(span.lane, span.from),
                        false => Read::Span(span),
                    };
                    session.give_iterator(batch.spans.drain(..).map(read));
                    if !batch.origins.is_empty() {
                        let next = Origins::like(&batch.origins);
                        let origins = std::mem::replace(&mut batch.origins, next);
                        session.give(Read::Origins(Arc::new(origins)));
                    }
                }
                batch.bytes = 0;
            }
            if poll == Poll::End {
                open = None;
                return;
            }
            if account.is_throttled() {
                control.full();
            }
            if fuel == 0 {
                activator.activate();
            }
            let awake = control.is_awake() || !account.is_settled();
            // At the boundary that is everyone's: until the last source has passed it, no epoch closes.
            let due = polled + if awake { left } else { IDLE_TICK };
            if armed <= Instant::now() || due < armed {
                armed = due;
                activator.activate_after(due.saturating_duration_since(Instant::now()));
            }
        }
    });
    Ok((row_stream, span_stream, reject_stream))
}

/// How far `source` is durable in every sink that it reaches: what the stores say.
fn progress(live: Arc<Live>, id: SourceId, source: String) -> Progress {
    Progress::new(move || {
        let sinks = live.sinks.iter().filter(|sink| sink.sources.contains(&id));
        let names: Vec<_> = sinks.clone().map(|sink| sink.name.as_str()).collect();
        let mut slices = Vec::<Slice>::new();
        for (index, store) in live.stores.iter().enumerate() {
            let mine = |slice: &Slice| {
                sinks.clone().any(|sink| sink.store == index && sink.name == slice.key.sink)
            };
            let stored = store.store.slices(&live.pipeline)?;
            slices.extend(stored.into_iter().filter(mine));
        }
        Ok(durable(&slices, &source, &names))
    })
}

/// What an operator is called, so that timely's log tells its node.
pub(crate) fn named(NodeId(node): NodeId, kind: &str) -> String {
    format!("{node} {kind}")
}

/// A wake-up by timely's activator.
pub(crate) fn wake(activator: SyncActivator) -> Wake {
    Wake::new(move || {
        // An error says that the worker is gone, and then nobody is left to wake.
        let _ = activator.activate();
    })
}

/// The capabilities of the three outputs, always at the same epoch.
struct Open {
    rows: Capability<Epoch>,
    spans: Capability<Epoch>,
    rejects: Capability<Epoch>,
}

impl Open {
    fn new(mut capabilities: Vec<Capability<Epoch>>) -> Option<Self> {
        let rejects = capabilities.pop()?;
        let spans = capabilities.pop()?;
        let rows = capabilities.pop()?;
        Some(Open { rows, spans, rejects })
    }

    fn epoch(&self) -> Epoch {
        *self.rows.time()
    }

    fn advance(&mut self, epoch: Epoch) {
        if self.epoch() < epoch {
            self.rows.downgrade(&epoch);
            self.spans.downgrade(&epoch);
            self.rejects.downgrade(&epoch);
        }
    }
}
