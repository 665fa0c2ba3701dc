//! A pipeline by hand: targets, a store, a writer, flushes whose offsets count by themselves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::ident::quote;
use super::super::target::Spec;
use super::super::testing::{Place, Row, chunk, lane, url};
use crate::error::Result;
use crate::figures::StoreMeter;
use crate::record::{Incarnation, Lane, Offset, Policy, RejectLimit, Span};
use crate::run::Abort;
use crate::sink::{
    Flush, Generation, Postgres, Shape, Sink, SinkContext, SinkFlush, SinkId, SourceContext,
    Standby, Store, Target, Writer, WriterContext,
};

/// A writer's thread, as the engine has it, is this test's.
pub(super) struct Rig {
    pub place: Place,
    pub store: Arc<dyn Store>,
    pub targets: Vec<Target>,
    pub shapes: Vec<Shape>,
    pub abort: Abort,
    pub meter: Arc<StoreMeter>,
    pub policy: Policy,
    next: BTreeMap<(usize, i32), i64>,
}

/// The fields of the tests' rows.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Fields {
    k: i64,
    v: Option<String>,
    n: Option<i32>,
}

/// The target of `sink`, as if the rows' fields were `fields`.
pub(super) fn target(sink: &Postgres, fields: Option<&[&str]>) -> Target {
    let mut target = Sink::<Fields>::target(sink).expect("the target is well formed");
    let spec = Arc::clone(&target.spec).downcast::<Spec>().expect("the spec is ours");
    let fields = fields.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
    target.spec = Arc::new(Spec { fields, ..(*spec).clone() });
    target
}

/// A sink for a table of this place.
pub(super) fn sink(place: &Place, table: &str) -> Postgres {
    Postgres::table(format!("{}.{table}", quote(&place.tables))).url(url()).schema(&place.books)
}

pub(super) const PIPELINE: &str = "it's \"p\"";

impl Rig {
    /// The tables of `ddl`, and sinks that `sinks` makes for them.
    pub fn new(test: &str, ddl: &str, sinks: impl Fn(&Place) -> Vec<Postgres>) -> Self {
        let mut place = Place::new(test);
        place.execute(ddl);
        let targets: Vec<Target> = sinks(&place).iter().map(|sink| target(sink, None)).collect();
        let store = Arc::clone(&targets[0].store);
        let shapes = store.prepare(&targets.iter().collect::<Vec<_>>()).expect("prepare");
        Rig {
            place,
            store,
            targets,
            shapes,
            abort: Abort::default(),
            meter: Arc::default(),
            policy: Policy::Reject,
            next: BTreeMap::new(),
        }
    }

    /// One keyed table `t`.
    pub fn keyed(test: &str) -> Self {
        Rig::new(
            test,
            "create table @.t (k bigint primary key, v text, n integer default 7)",
            |p| vec![sink(p, "t").key("k")],
        )
    }

    /// Begins a generation and gives its writer.
    pub fn begin(&self) -> Box<dyn Writer> {
        let generation = self.store.begin(PIPELINE).expect("begin");
        self.writer(generation)
    }

    pub fn writer(&self, generation: Generation) -> Box<dyn Writer> {
        self.writer_of(&*self.store, generation)
    }

    pub fn writer_of(&self, store: &dyn Store, generation: Generation) -> Box<dyn Writer> {
        let sinks = self.targets.iter().zip(&self.shapes).zip(0..).map(|((target, shape), id)| {
            SinkContext {
                id: SinkId(id),
                name: target.name.clone(),
                shape: Arc::clone(shape),
                fan_out: false,
            }
        });
        let context = WriterContext {
            pipeline: PIPELINE.into(),
            generation,
            sources: vec![SourceContext {
                name: "orders".into(),
                policy: self.policy,
                limit: RejectLimit::default(),
                incarnation: Incarnation::default(),
            }],
            guard: Arc::default(),
            sinks: sinks.collect(),
            slices: self.store.slices(PIPELINE).expect("slices"),
            worker: 0,
            abort: self.abort.clone(),
            meter: Arc::clone(&self.meter),
        };
        store.writer(context).expect("a writer")
    }

    /// A flush of these chunks for each sink; offsets follow on per sink and partition.
    pub fn flush(&mut self, sinks: &[&[&[Row]]]) -> Flush {
        let mut flush = Flush { sinks: Vec::new() };
        for (index, chunks) in sinks.iter().enumerate() {
            let mut spans = BTreeMap::<Lane, Span>::new();
            let mut made = Vec::new();
            for rows in *chunks {
                let mut placed = Vec::new();
                for row in *rows {
                    let next = self.next.entry((index, row.partition)).or_default();
                    let lane = lane(row.partition);
                    let from = Offset(*next);
                    let span = spans.entry(lane).or_insert(Span {
                        lane,
                        from,
                        upto: from,
                        records: 0,
                        times: None,
                        leader_epoch: None,
                    });
                    placed.push(row.clone().offset(*next));
                    *next += 1;
                    span.upto = Offset(*next);
                    span.records += 1;
                }
                made.push(chunk(&placed));
            }
            flush.sinks.push(SinkFlush {
                origins: Vec::new(),
                again: Vec::new(),
                sink: SinkId(index as u16),
                chunks: made,
                spans,
                rejects: Vec::new(),
            });
        }
        flush
    }

    /// Writes one flush of one sink's rows.
    pub fn write(&mut self, writer: &mut dyn Writer, rows: &[Row]) -> Result<()> {
        let flush = self.flush(&[&[rows]]);
        writer.write(flush).map(drop)
    }

    /// `position/seq consumed written collapsed rows` of each slice.
    pub fn slices(&self) -> Vec<String> {
        let slices = self.store.slices(PIPELINE).expect("slices");
        let line = |slice: &crate::position::Slice| {
            let c = slice.counters;
            assert_eq!(c.consumed, c.filtered + c.written + c.rejected + c.collapsed);
            format!(
                "{}/{} {} {} {} {}",
                slice.position, slice.seq, c.consumed, c.written, c.collapsed, c.rows
            )
        };
        slices.iter().map(line).collect()
    }

    /// The rows of table `t`, sorted.
    pub fn rows(&mut self) -> Vec<String> {
        self.place.lines("select * from @.t order by k, v")
    }
}

/// How to wait for a lock: forget who is waited for.
pub(super) fn standby(take_over: bool) -> Standby<'static> {
    Standby { take_over, every: Duration::from_millis(20), waiting: &|_| Ok(()) }
}

/// Waits until `condition` holds.
pub(super) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
