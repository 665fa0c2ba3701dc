//! Frames: the chain that a user writes, `source -> filter -> ... -> sink`.
//!
//! A [`DataFrame`] is a node of the plan and, in build mode, three streams: rows, the spans that were
//! read for them, and rejects. Operators work on rows; spans go from the source straight to every sink,
//! so that a filter which drops everything still moves the position; rejects of each step go to the
//! sinks below it. Rows keep the coordinates of their records, and keep the order of their partition.

mod builder;
mod commit;
mod concat;
mod context;
mod control;
mod durable;
mod each;
mod encode;
mod input;
mod lanes;
mod partition;
mod second_look;

pub(crate) use builder::{Builder, member};
pub(crate) use commit::commit;
pub(crate) use context::{Budget, Live, LiveSink, LiveSource, LiveStore, Site, Stored};
pub(crate) use control::Control;
pub(crate) use durable::Durable;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use timely::dataflow::StreamVec;

use crate::epoch::Epoch;
use crate::origins::Read;
use crate::plan::NodeId;
use crate::record::{Reject, Row, SourceId};
use crate::sink::Sink;
use crate::source::Source;

/// A stream of rows of type `T` in the making.
///
/// ```no_run
/// use tidegate::{Engine, Json, Result, source::kafka::Kafka, sink::Postgres};
///
/// #[derive(Clone, serde::Serialize, serde::Deserialize)]
/// struct Order { order_id: i64, status: String }
///
/// fn orders(engine: Engine<'_>) -> Result<()> {
///     engine
///         .dataframe(Kafka::topic("orders", Json::<Order>::new()))
///         .filter(|order| order.status != "removed")
///         .sink(Postgres::table("valid_orders").key("order_id"));
///     Ok(())
/// }
/// ```
pub struct DataFrame<'s, T> {
    builder: Rc<Builder<'s>>,
    node: NodeId,
    lineage: Lineage,
    streams: Option<Streams<'s, T>>,
}

/// What a frame is made from.
#[derive(Clone, Default)]
pub(crate) struct Lineage {
    /// The sources whose records reach it.
    pub sources: BTreeSet<SourceId>,
    /// Whether a record may make several of its rows.
    pub fan_out: bool,
}

/// A frame in build mode. Spans are kept by source and rejects by node, so that frames which share a
/// source can meet again without doubling either.
pub(crate) struct Streams<'s, T> {
    pub rows: StreamVec<'s, Epoch, Row<T>>,
    pub spans: BTreeMap<SourceId, StreamVec<'s, Epoch, Read>>,
    pub rejects: BTreeMap<NodeId, StreamVec<'s, Epoch, Reject>>,
}

impl<T: Clone + 'static> Clone for DataFrame<'_, T> {
    fn clone(&self) -> Self {
        DataFrame {
            builder: Rc::clone(&self.builder),
            node: self.node,
            lineage: self.lineage.clone(),
            streams: self.streams.as_ref().map(|streams| Streams {
                rows: streams.rows.clone(),
                spans: streams.spans.clone(),
                rejects: streams.rejects.clone(),
            }),
        }
    }
}

impl<T> fmt::Debug for DataFrame<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataFrame").field("node", &self.node).finish_non_exhaustive()
    }
}

impl<'s, T: 'static> DataFrame<'s, T> {
    pub(crate) fn source<S: Source<Value = T>>(builder: &Rc<Builder<'s>>, source: &S) -> Self {
        let (node, id) = builder.source(source);
        let streams = builder.site().and_then(|site| match input::input(site, node, id, source) {
            Ok((rows, spans, rejects)) => Some(Streams {
                rows,
                spans: [(id, spans)].into(),
                rejects: [(node, rejects)].into(),
            }),
            Err(error) => {
                builder.fail(error);
                None
            }
        });
        let lineage = Lineage { sources: [id].into(), fan_out: false };
        DataFrame { builder: Rc::clone(builder), node, lineage, streams }
    }

    /// Keeps the rows for which `keep` says so. Tombstones pass.
    ///
    /// A closure that panics refuses the row's record (see [`Policy`](crate::record::Policy)); that goes
    /// for all closures given to a frame.
    pub fn filter(self, keep: impl Fn(&T) -> bool + 'static) -> Self {
        self.each("filter", false, each::Filter(keep))
    }

    /// Makes one row of each. Tombstones pass.
    pub fn map<U: 'static>(self, make: impl Fn(T) -> U + 'static) -> DataFrame<'s, U> {
        self.each("map", false, each::Map(make))
    }

    /// Makes one row of each, or refuses the record with a sentence that says why.
    pub fn try_map<U: 'static, E: fmt::Display>(
        self,
        make: impl Fn(T) -> std::result::Result<U, E> + 'static,
    ) -> DataFrame<'s, U> {
        self.each("try_map", false, each::TryMap(make))
    }

    /// Makes any number of rows of each. A tombstone passes once.
    pub fn flat_map<U: 'static, I: IntoIterator<Item = U>>(
        self,
        make: impl Fn(T) -> I + 'static,
    ) -> DataFrame<'s, U> {
        self.each("flat_map", true, each::FlatMap(make))
    }

    /// Looks at each row on its way.
    pub fn inspect(self, look: impl Fn(&T) + 'static) -> Self {
        self.each("inspect", false, each::Inspect(look))
    }

    /// Routes each row to the frame whose number `route` gives, from 0; a number too large refuses the
    /// record. A tombstone goes to all of them.
    ///
    /// ```no_run
    /// # use tidegate::{Engine, Json, Result, source::kafka::Kafka, sink::Postgres};
    /// # #[derive(Clone, serde::Serialize, serde::Deserialize)]
    /// # struct Order { order_id: i64, amount: i64 }
    /// # fn orders(engine: Engine<'_>) -> Result<()> {
    /// let [small, large] = engine
    ///     .dataframe(Kafka::topic("orders", Json::<Order>::new()))
    ///     .partition(|order| usize::from(order.amount >= 100_000));
    /// small.sink(Postgres::table("small_orders"));
    /// large.sink(Postgres::table("large_orders"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn partition<const N: usize>(self, route: impl Fn(&T) -> usize + 'static) -> [Self; N] {
        let node = self.builder.node("partition", "", &[self.node]);
        let routed = self.streams.map(|streams| {
            let site = self.builder.site().expect("streams exist in build mode");
            let (rows, rejects) = partition::partition(site, node, streams.rows, N, route);
            (rows, (node, rejects), streams.spans, streams.rejects)
        });
        let mut parts = routed.map(|(rows, rejects, spans, above)| {
            let streams = rows.into_iter().map(move |rows| {
                let mut all = above.clone();
                all.insert(rejects.0, rejects.1.clone());
                Streams { rows, spans: spans.clone(), rejects: all }
            });
            streams.collect::<Vec<_>>().into_iter()
        });
        std::array::from_fn(|_| DataFrame {
            builder: Rc::clone(&self.builder),
            node,
            lineage: self.lineage.clone(),
            streams: parts.as_mut().and_then(Iterator::next),
        })
    }

    /// Puts the rows of both together. Where both stem from one record, it counts once.
    pub fn concat(self, other: Self) -> Self {
        let node = self.builder.node("concat", "", &[self.node, other.node]);
        let fan_out = self.lineage.fan_out
            || other.lineage.fan_out
            || !self.lineage.sources.is_disjoint(&other.lineage.sources);
        let sources = self.lineage.sources.union(&other.lineage.sources).copied().collect();
        let streams = self.streams.zip(other.streams).map(|(mut one, two)| {
            one.spans.extend(two.spans);
            one.rejects.extend(two.rejects);
            let site = self.builder.site().expect("streams exist in build mode");
            let rows = concat::concat(site, node, one.rows, two.rows);
            Streams { rows, ..one }
        });
        DataFrame { builder: self.builder, node, lineage: Lineage { sources, fan_out }, streams }
    }

    /// Ends the chain: writes the rows to `sink`, exactly once.
    pub fn sink(self, sink: impl Sink<T>) {
        let Some((node, id)) = self.builder.sink(&sink, self.node, &self.lineage) else { return };
        if let (Some(site), Some(streams)) = (self.builder.site(), self.streams) {
            encode::encode(site, node, id, &sink, streams);
        }
    }

    fn each<U: 'static>(
        self,
        kind: &'static str,
        fan_out: bool,
        step: impl each::Step<T, U> + 'static,
    ) -> DataFrame<'s, U> {
        let node = self.builder.node(kind, "", &[self.node]);
        let streams = self.streams.map(|mut streams| {
            let site = self.builder.site().expect("streams exist in build mode");
            let (rows, rejects) = each::each(site, node, kind, streams.rows, step);
            streams.rejects.insert(node, rejects);
            Streams { rows, spans: streams.spans, rejects: streams.rejects }
        });
        let lineage = Lineage { fan_out: self.lineage.fan_out || fan_out, ..self.lineage };
        DataFrame { builder: self.builder, node, lineage, streams }
    }
}
