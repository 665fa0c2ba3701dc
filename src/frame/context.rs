//! What build mode builds with: the run's decisions, shared by all workers of a process, and one
//! worker's own ends.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use timely::dataflow::{Scope, StreamVec};

use super::control::Control;
use super::durable::Durable;
use crate::epoch::{Clock, Epoch};
use crate::error::{Error, Kind};
use crate::figures::{Figures, NodeMeter, SinkMeter};
use crate::launch::Launch;
use crate::origins::Replay;
use crate::plan::{Node, NodeId};
use crate::position::Door;
use crate::record::{Policy, Reject, RejectLimit, SourceId};
use crate::run::{Abort, Stop};
use crate::sink::{Generation, Guard, Pace, Part, Shape, SinkId, Store};
use crate::source::{Settings, Shared};

/// A source as the run has it.
pub(crate) struct LiveSource {
    pub name: String,
    pub policy: Policy,
    pub limit: RejectLimit,
}

/// A sink as the run has it.
pub(crate) struct LiveSink {
    pub name: String,
    /// Index into [`Live::stores`].
    pub store: usize,
    pub shape: Shape,
    pub fan_out: bool,
    /// The sources whose records reach it.
    pub sources: BTreeSet<SourceId>,
    pub door: Door,
    pub meter: Arc<SinkMeter>,
}

/// A store as the run has it.
pub(crate) struct LiveStore {
    pub store: Arc<dyn Store>,
    pub sinks: Vec<SinkId>,
    pub generation: Generation,
}

/// How much the process may hold in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Bytes fetched and not yet handed to the dataflow, per worker and source.
    pub fetched: usize,
    /// Bytes handed to the dataflow and not yet durable, per worker and source.
    pub in_flight: usize,
}

/// The run, the same for all workers of a process.
pub(crate) struct Live {
    pub pipeline: String,
    pub nodes: Vec<Node>,
    pub sources: Vec<LiveSource>,
    pub sinks: Vec<LiveSink>,
    pub stores: Vec<LiveStore>,
    pub launch: Launch,
    pub settings: Settings,
    pub params: BTreeMap<String, String>,
    pub pace: Pace,
    pub budget: Budget,
    pub discovery: Duration,
    /// What the readers share.
    pub shared: Shared,
    pub clock: Clock,
    pub abort: Abort,
    pub stop: Stop,
    pub figures: Arc<Figures>,
    /// The meters of `nodes`.
    pub meters: Vec<Arc<NodeMeter>>,
    /// Whether it is measured how long workers and operators are busy, which costs a little.
    pub measure: bool,
    pub guard: Arc<Guard>,
    /// In a replay, the records of each source.
    pub replay: Option<Mutex<Vec<Replay>>>,
    /// Whether sources are told how far they are durable.
    pub tells: bool,
}

impl Live {
    /// The meter of a node; of one that the plan does not have, one that nobody looks at.
    pub(crate) fn meter(&self, NodeId(node): NodeId) -> Arc<NodeMeter> {
        self.meters
            .get(node as usize)
            .map_or_else(|| Arc::new(NodeMeter::new("unknown", "", Vec::new())), Arc::clone)
    }

    /// In a replay, the records of `source`; they are handed out once.
    pub(crate) fn replayed(&self, source: SourceId) -> Option<Replay> {
        let mut replay = self.replay.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
        replay.get_mut(usize::from(source.0)).map(std::mem::take)
    }

    /// What becomes of a refused record: `Some` to pass on and count; `None` where its source's policy
    /// is to stop, after raising that.
    pub(crate) fn refuse(&self, reject: Reject) -> Option<Reject> {
        self.refuse_for(None, reject)
    }

    /// As [`refuse`](Self::refuse), where it is `sink` that has no place for it.
    pub(crate) fn refuse_for(&self, sink: Option<SinkId>, reject: Reject) -> Option<Reject> {
        let source = &self.sources[usize::from(reject.at.source.0)];
        match source.policy {
            Policy::Reject | Policy::Skip => Some(reject),
            Policy::Stop => {
                self.abort.raise({
                    let sink = sink.map(|id| self.sinks[usize::from(id.0)].name.as_str());
                    stopped(&source.name, sink, &reject)
                });
                None
            }
        }
    }
}

fn stopped(source: &str, sink: Option<&str>, reject: &Reject) -> Error {
    let Reject { at, refusal, .. } = reject;
    let sink = sink.map(|sink| format!(" for `{sink}`"));
    let column = refusal.column.as_ref().map(|column| format!(", column `{column}`"));
    Error::new(
        Kind::Refused,
        format!(
            "{} `{source}[{}]@{}`{}{}: {}; the position stays before it: correct the dataflow or the \
             table, or choose the policy `reject`",
            refusal.stage,
            at.partition,
            at.offset,
            sink.unwrap_or_default(),
            column.unwrap_or_default(),
            refusal.reason
        ),
    )
}

/// An epoch before which all is stored; `None`: all of the run is.
pub(crate) type Stored = Cell<Option<Epoch>>;

/// One worker's building site: its scope, and what the operators leave for the worker's loop.
pub(crate) struct Site<'s> {
    pub scope: Scope<'s, Epoch>,
    pub live: Arc<Live>,
    pub control: Rc<Control>,
    /// What is read and not yet durable, a source each.
    pub pending: RefCell<Vec<Rc<dyn Durable>>>,
    /// Per store, before which epoch this worker has stored all that it read.
    pub stored: RefCell<Vec<Rc<Stored>>>,
    /// What reaches each store, by its index.
    pub parts: RefCell<BTreeMap<usize, Vec<StreamVec<'s, Epoch, Part>>>>,
    /// The flushers' threads.
    pub threads: RefCell<Vec<JoinHandle<()>>>,
}
