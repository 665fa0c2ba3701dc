//! How long a worker and its operators are busy, from timely's own log.
//!
//! Two events each time that an operator is scheduled, each with a look at the clock: only where somebody
//! wants to know.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use timely::logging::{ParkEvent, StartStop, TimelyEvent, TimelyEventBuilder};
use timely::worker::Worker;

use crate::figures::{NodeMeter, WorkerMeter};
use crate::frame::Live;
use crate::plan::NodeId;

/// Follows `worker` from now on: before any dataflow is built, since operators take their log with them.
pub(super) fn watch(worker: &mut Worker, live: &Arc<Live>) {
    let Some(mut log) = worker.log_register() else { return };
    let mut clock = Busy {
        live: Arc::clone(live),
        worker: live.figures.worker(worker.index()),
        operators: HashMap::new(),
        parked: None,
    };
    log.insert::<TimelyEventBuilder, _>("timely", move |_upto, batch| {
        // No batch: the worker has made a step.
        let Some(batch) = batch else { return };
        for (at, event) in batch.drain(..) {
            clock.see(at, event);
        }
    });
}

struct Busy {
    live: Arc<Live>,
    worker: Arc<WorkerMeter>,
    operators: HashMap<usize, Operator>,
    parked: Option<Duration>,
}

/// What is followed.
struct Operator {
    /// Its node; `None` for a whole dataflow, whose time is the worker's.
    node: Option<Arc<NodeMeter>>,
    since: Option<Duration>,
}

impl Busy {
    fn see(&mut self, at: Duration, event: TimelyEvent) {
        match event {
            TimelyEvent::Operates(operator) => {
                let is_dataflow = operator.addr.len() == 1;
                let node = node(&operator.name).filter(|_| !is_dataflow);
                let node = node.map(|node| self.live.meter(node));
                if node.is_some() || is_dataflow {
                    self.operators.insert(operator.id, Operator { node, since: None });
                }
            }
            TimelyEvent::Schedule(event) => {
                let Some(operator) = self.operators.get_mut(&event.id) else { return };
                match event.start_stop {
                    StartStop::Start => operator.since = Some(at),
                    StartStop::Stop => {
                        let Some(since) = operator.since.take() else { return };
                        let time = at.saturating_sub(since);
                        match &operator.node {
                            Some(node) => node.busy(time),
                            None => self.worker.busy(time),
                        }
                    }
                }
            }
            TimelyEvent::Park(ParkEvent::Park(_)) => self.parked = Some(at),
            TimelyEvent::Park(ParkEvent::Unpark) => {
                if let Some(since) = self.parked.take() {
                    self.worker.parked(at.saturating_sub(since));
                }
            }
            _ => {}
        }
    }
}

/// The node that an operator's name begins with, as frames call them.
fn node(name: &str) -> Option<NodeId> {
    let (number, _) = name.split_once(' ')?;
    number.parse().ok().map(NodeId)
}
