//! A dataflow with a name and options: what runs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::engine::{self, Dataflow, Engine};
use crate::epoch::Clock;
use crate::error::{Error, Kind, Result};
use crate::frame::{Budget, Live, LiveSink, LiveSource, LiveStore};
use crate::launch::{Launch, launch};
use crate::plan::{Plan, StorePlan};
use crate::position::{Counters, Door};
use crate::record::{Lane, SourceId};
use crate::run::{Abort, Stats, Stop};
use crate::sink::{Column, Pace, Shape, SinkId};
use crate::source::Settings;
use crate::unwind;

/// How a pipeline runs. Everything has a default that suits one process.
#[derive(Clone)]
pub struct Options {
    /// Worker threads of this process.
    pub workers: usize,
    /// Named parameters of the dataflow.
    pub params: BTreeMap<String, String>,
    /// Kafka brokers for sources that name none.
    pub brokers: Option<String>,
    /// Client settings that win over the sources' own.
    pub client: BTreeMap<String, String>,
    /// How many closed epochs one transaction takes.
    pub pace: Pace,
    /// Bytes that this process may hold of what it has fetched and not yet stored: half of them in the
    /// clients' queues, half in the dataflow.
    pub memory: usize,
    /// Stop at the ends seen at start.
    pub until_end: bool,
    /// End the run that holds the lock, instead of waiting for it.
    pub take_over: bool,
    /// The length of an epoch.
    pub tick: Duration,
    /// How often sources look for new partitions.
    pub discovery: Duration,
    /// Ask it to end the run in good order.
    pub stop: Stop,
    /// Tells how the run is doing.
    pub stats: Arc<Stats>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            workers: 1,
            params: BTreeMap::new(),
            brokers: None,
            client: BTreeMap::new(),
            pace: Pace::default(),
            memory: 512 << 20,
            until_end: false,
            take_over: false,
            tick: Clock::TICK,
            discovery: Duration::from_secs(10),
            stop: Stop::default(),
            stats: Arc::default(),
        }
    }
}

/// What became of a pipeline's records since it first started, and how long this run took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The sum over all sinks and partitions, across all runs.
    pub counters: Counters,
    /// The length of this run.
    pub elapsed: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counters { consumed, filtered, written, rejected, collapsed, .. } = self.counters;
        write!(
            f,
            "consumed={consumed} filtered={filtered} written={written} rejected={rejected} \
             collapsed={collapsed} seconds={:.2}",
            self.elapsed.as_secs_f64()
        )
    }
}

/// A dataflow under a name. The name is what positions are stored under: keep it.
#[derive(Clone)]
pub struct Pipeline {
    name: String,
    dataflow: Dataflow,
}

impl fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A plan whose stores were connected and whose targets were verified.
pub struct Prepared {
    /// The plan.
    pub plan: Plan,
    /// Its stores, in the order in which they are locked.
    pub stores: Vec<StorePlan>,
    /// Per sink, what its store made of it.
    shapes: Vec<Shape>,
}

impl Prepared {
    /// The columns of a sink, as far as its store knows of any.
    pub fn columns(&self, sink: SinkId) -> Vec<Column> {
        let shape = &self.shapes[usize::from(sink.0)];
        self.plan.sink(sink).target.store.columns(shape)
    }
}

impl Pipeline {
    /// `dataflow` under `name`.
    pub fn new(
        name: impl Into<String>,
        dataflow: impl Fn(Engine<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        Pipeline { name: name.into(), dataflow: Arc::new(dataflow) }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The settings that its sources see.
    fn settings(&self, options: &Options) -> Settings {
        Settings {
            pipeline: self.name.clone(),
            brokers: options.brokers.clone(),
            client: options.client.clone(),
        }
    }

    /// Runs the function in plan mode. Nothing is connected.
    pub fn plan(&self, options: &Options) -> Result<Plan> {
        engine::plan(&self.dataflow, &self.settings(options), &options.params)
    }

    /// Runs the function in plan mode, connects to the stores, and verifies every target.
    pub fn prepare(&self, options: &Options) -> Result<Prepared> {
        let plan = self.plan(options)?;
        let stores = plan.stores();
        let mut shapes = BTreeMap::new();
        for store in &stores {
            let targets: Vec<_> = store.sinks.iter().map(|id| &plan.sink(*id).target).collect();
            shapes.extend(store.sinks.iter().copied().zip(store.store.prepare(&targets)?));
        }
        Ok(Prepared { shapes: shapes.into_values().collect(), plan, stores })
    }

    /// Runs the pipeline in this process until it ends, is stopped, or fails.
    pub fn run(&self, options: &Options) -> Result<Summary> {
        let started = Instant::now();
        let mut prepared = self.prepare(options)?;
        let launch = launch(&mut prepared.plan, &prepared.stores, &self.name, options.until_end)?;
        options.stats.plan(launch.planned());
        let clock = Clock::started(Duration::ZERO, options.tick);
        let live = Arc::new(self.live(options, &prepared, launch, clock));
        self.execute(&live, options)?;
        self.summary(&prepared, started)
    }

    fn summary(&self, prepared: &Prepared, started: Instant) -> Result<Summary> {
        let mut counters = Counters::default();
        for store in &prepared.stores {
            for slice in store.store.slices(&self.name)? {
                if store
                    .sinks
                    .iter()
                    .any(|id| prepared.plan.sink(*id).target.name == slice.key.sink)
                {
                    counters += slice.counters;
                }
            }
        }
        Ok(Summary { counters, elapsed: started.elapsed() })
    }

    /// What all workers of this process share.
    fn live(&self, options: &Options, prepared: &Prepared, launch: Launch, clock: Clock) -> Live {
        let Prepared { plan, stores, shapes } = prepared;
        let sources: Vec<_> = plan
            .sources
            .iter()
            .map(|source| LiveSource { name: source.name.clone(), policy: source.policy })
            .collect();
        let store_of = |id: &SinkId| {
            let store = stores.iter().position(|store| store.sinks.contains(id));
            store.expect("each sink has a store")
        };
        let sinks = plan.sinks.iter().zip(shapes).map(|(sink, shape)| {
            let store = store_of(&sink.id);
            let applied = launch.stores[store].slices.iter().filter_map(|slice| {
                let source = sources.iter().position(|source| source.name == slice.key.source)?;
                let source = SourceId(u16::try_from(source).ok()?);
                let lane = Lane { source, partition: slice.key.partition };
                (slice.key.sink == sink.target.name).then_some((lane, slice.position))
            });
            LiveSink {
                name: sink.target.name.clone(),
                store,
                shape: Arc::clone(shape),
                fan_out: sink.fan_out,
                door: Door::new(applied.collect()),
            }
        });
        // Each worker and source has an equal share of each half.
        let share = options.memory / 2 / (options.workers * sources.len()).max(1);
        let mut pace = options.pace;
        // A transaction that waits for more than back-pressure lets in would wait for ever.
        pace.max_bytes = pace.max_bytes.min((share / 2).max(1));
        Live {
            pipeline: self.name.clone(),
            nodes: plan.nodes.clone(),
            sinks: sinks.collect(),
            stores: stores
                .iter()
                .zip(&launch.stores)
                .map(|(store, launched)| LiveStore {
                    store: Arc::clone(&store.store),
                    sinks: store.sinks.clone(),
                    generation: launched.generation,
                })
                .collect(),
            sources,
            launch,
            settings: self.settings(options),
            params: options.params.clone(),
            pace,
            budget: Budget { fetched: share, in_flight: share },
            discovery: options.discovery,
            clock,
            abort: Abort::default(),
            stop: options.stop.clone(),
            stats: Arc::clone(&options.stats),
        }
    }

    /// Runs the workers of this process.
    fn execute(&self, live: &Arc<Live>, options: &Options) -> Result<()> {
        let (dataflow, shared) = (Arc::clone(&self.dataflow), Arc::clone(live));
        let config = match options.workers {
            1 => timely::Config::thread(),
            workers => timely::Config::process(workers),
        };
        let guards = timely::execute(config, move |worker| {
            let work = std::panic::AssertUnwindSafe(|| engine::work(worker, &dataflow, &shared));
            if let Err(panic) = std::panic::catch_unwind(work) {
                // timely would leave the other workers running for ever.
                let message = unwind::message(panic.as_ref());
                shared.abort.raise(Error::internal(format!("a worker panicked: {message}")));
                engine::abandon(worker);
            }
        });
        let guards = guards.map_err(|error| Error::new(Kind::Peer, error))?;
        for result in guards.join() {
            if let Err(message) = result {
                live.abort.raise(Error::internal(format!("a worker panicked: {message}")));
            }
        }
        live.abort.take().map_or(Ok(()), Err)
    }
}
