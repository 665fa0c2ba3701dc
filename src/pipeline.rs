//! A dataflow with a name and options: what runs.

mod fenced;
mod keeper;
mod replay;

use keeper::Keeper;
pub use replay::{Kept, Replayed};

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;

use crate::cluster::{Agreed, Flags, Joined, Mesh, agree_and_tell, builders};
use crate::engine::{self, Dataflow, Engine};
use crate::epoch::Clock;
use crate::error::{Error, Kind, Result};
use crate::figures::{About, Figures, NodeMeter, Phase, SinkMeter};
use crate::frame::{Budget, Live, LiveSink, LiveSource, LiveStore};
use crate::launch::{Launch, launch};
use crate::plan::{Plan, SinkPlan, StorePlan};
use crate::position::{Counters, Door};
use crate::record::{Lane, SourceId};
use crate::retention::Retention;
use crate::run::{Abort, Stop};
use crate::sink::{Column, Lock, Pace, Shape, SinkId, Standby};
use crate::source::{Settings, Shared};
use crate::unwind;

/// How a pipeline runs. Everything has a default that suits one process.
#[derive(Clone)]
pub struct Options {
    /// Workers, processes, hosts.
    pub flags: Flags,
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
    /// Delete what was set aside longer ago than this; `None` to keep it all.
    pub keep_rejects: Option<Duration>,
    /// Ask it to end the run in good order.
    pub stop: Stop,
    /// What the run tells of itself; look at it from any thread, also before the run stands.
    pub figures: Arc<Figures>,
    /// Measure how long workers and operators are busy, which costs a little.
    pub measure: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            flags: Flags::default(),
            params: BTreeMap::new(),
            brokers: None,
            client: BTreeMap::new(),
            pace: Pace::default(),
            memory: 256 << 20,
            until_end: false,
            take_over: false,
            tick: Clock::TICK,
            discovery: Duration::from_secs(10),
            keep_rejects: None,
            stop: Stop::default(),
            figures: Arc::default(),
            measure: false,
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
    /// Verifies every target, as it is now.
    fn refresh(&mut self) -> Result<()> {
        let mut shapes = BTreeMap::new();
        for store in &self.stores {
            let sink = |id: &SinkId| &self.plan.sink(*id).target;
            let targets: Vec<_> = store.sinks.iter().map(sink).collect();
            shapes.extend(store.sinks.iter().copied().zip(store.store.prepare(&targets)?));
        }
        self.shapes = shapes.into_values().collect();
        self.distinct()
    }

    /// Refuses one store under two identities: it would wait for its own lock.
    fn distinct(&self) -> Result<()> {
        if self.stores.len() < 2 {
            return Ok(());
        }
        let mut places = BTreeMap::new();
        for store in &self.stores {
            let Some(place) = store.store.place()? else { continue };
            let identity = store.store.identity();
            if let Some(other) = places.insert(place, identity.clone()) {
                return Err(Error::config(format!(
                    "`{other}` and `{identity}` are the same database; address it in one way in all \
                     sinks"
                )));
            }
        }
        Ok(())
    }

    /// What its store made of a sink.
    pub(crate) fn shape(&self, sink: SinkId) -> &Shape {
        &self.shapes[usize::from(sink.0)]
    }

    /// The columns of a sink, as far as its store knows of any.
    pub fn columns(&self, sink: SinkId) -> Vec<Column> {
        self.plan.sink(sink).target.store.columns(self.shape(sink))
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
        let mut prepared = Prepared { plan, stores, shapes: Vec::new() };
        prepared.refresh()?;
        Ok(prepared)
    }

    /// Runs the pipeline, as this process of it, until it ends, is stopped, or fails.
    ///
    /// Where another process of a cluster fails, or this one does, threads may be left behind: the
    /// process should end then.
    pub fn run(&self, options: &Options) -> Result<Summary> {
        let figures = &options.figures;
        figures.begin(self.about(options));
        let ended = self.run_as_told(options);
        match &ended {
            Ok(_) => figures.phase(Phase::Ended, ""),
            Err(error) => figures.phase(Phase::Failed, in_public(error)),
        }
        ended
    }

    /// What the figures say of a run.
    pub(crate) fn about(&self, options: &Options) -> About {
        About {
            pipeline: self.name.clone(),
            process: options.flags.process,
            processes: options.flags.processes,
            threads: options.flags.threads,
            until_end: options.until_end,
            linger: options.pace.linger,
            memory: options.memory,
        }
    }

    fn run_as_told(&self, options: &Options) -> Result<Summary> {
        let from = Instant::now();
        let figures = &options.figures;
        let stopped = Summary { counters: Counters::default(), elapsed: Duration::ZERO };
        let Joined::Mesh(mut mesh) = Mesh::connect(&options.flags, &self.name, &options.stop)?
        else {
            return Ok(stopped);
        };
        let watch = mesh.watch(options.flags.peer_timeout)?;
        figures.phase(Phase::Preparing, "");
        let (digest, mut prepared) = match self.prepare(options) {
            Ok(prepared) => {
                introduce(figures, &prepared.plan);
                (Ok(prepared.plan.digest()), Some(prepared))
            }
            Err(error) => (Err(error), None),
        };
        let mut locks = Vec::new();
        let waited = Cell::new(false);
        let told = |line: &str| figures.phase(Phase::Standby, line);
        let agreed = agree_and_tell(&mut mesh, digest, &options.stop, &told, |waiting| {
            let prepared = prepared.as_mut().expect("all processes agreed on a plan");
            let waiting = |line: &str| {
                waited.set(true);
                let line = format!("standby of pipeline `{}`, waiting: {line}", self.name);
                told(&line);
                waiting(&line)
            };
            let standby = Standby {
                take_over: options.take_over,
                every: Duration::from_secs(1),
                waiting: &waiting,
            };
            for store in &prepared.stores {
                locks.push(store.store.lock(&self.name, &standby)?);
                fail::fail_point!("locked");
            }
            figures.phase(Phase::Preparing, "");
            let launch =
                launch(&mut prepared.plan, &prepared.stores, &self.name, options.until_end)?;
            Ok((launch, waited.get()))
        })?;
        let Agreed::Start { payload: (launch, waited), elapsed } = agreed else {
            return Ok(stopped);
        };
        let mut prepared = prepared.expect("all processes agreed on a plan");
        // The tables may have changed since, under the run that was waited for.
        let refreshed = if waited { prepared.refresh() } else { Ok(()) };
        if let Err(error) = refreshed {
            // The others have begun, and should know why this one has not.
            let ended = Err(error);
            watch.close(&ended);
            return ended;
        }
        let clock = Clock::started(elapsed, options.tick);
        let live = Arc::new(self.live(options, &prepared, launch, clock));
        watch.guard(&live.abort);
        let ended = self.run_guarded(options, &live, locks, mesh);
        let ended = ended.map_err(|error| self.unless_fenced(&live, error));
        watch.close(&ended);
        ended?;
        self.summary(&prepared, from)
    }

    /// Runs the workers of this process, with what looks after the run beside them.
    fn run_guarded(
        &self,
        options: &Options,
        live: &Arc<Live>,
        locks: Vec<Box<dyn Lock>>,
        mesh: Mesh,
    ) -> Result<()> {
        let figures = &options.figures;
        let locks = Keeper::start(locks, Arc::clone(live))?;
        let keep = options.keep_rejects.filter(|_| options.flags.process == 0);
        let stores = || live.stores.iter().map(|store| Arc::clone(&store.store)).collect();
        let retention =
            keep.map(|keep| Retention::start(&self.name, stores(), keep)).transpose()?;
        figures.plan(planned(live, &options.flags));
        figures.phase(Phase::Running, "");
        let ended = self.execute(live, options, mesh);
        if ended.as_ref().is_err_and(|error| error.kind() == Kind::Peer) {
            // What cut off the other processes may have cut off the databases, and they free a lock by
            // themselves.
            locks.abandon();
        }
        drop(retention);
        ended
    }

    fn summary(&self, prepared: &Prepared, started: Instant) -> Result<Summary> {
        let mut counters = Counters::default();
        for store in &prepared.stores {
            for slice in store.store.slices(&self.name)? {
                if store.sinks.iter().any(|id| prepared.plan.reaches(*id, &slice.key)) {
                    counters += slice.counters;
                }
            }
        }
        Ok(Summary { counters, elapsed: started.elapsed() })
    }

    /// What all workers of this process share.
    pub(crate) fn live(
        &self,
        options: &Options,
        prepared: &Prepared,
        launch: Launch,
        clock: Clock,
    ) -> Live {
        let Prepared { plan, stores, shapes } = prepared;
        let sources: Vec<_> = plan
            .sources
            .iter()
            .map(|source| LiveSource {
                name: source.name.clone(),
                policy: source.policy,
                limit: source.limit,
            })
            .collect();
        let store_of = |id: &SinkId| {
            let store = stores.iter().position(|store| store.sinks.contains(id));
            store.expect("each sink has a store")
        };
        let meters = introduce(&options.figures, plan);
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
                sources: sink.sources.clone(),
                door: Door::new(applied.collect()),
                meter: meter_of(&options.figures, sink),
            }
        });
        // Each worker and source has an equal share of each half.
        let share = options.memory / 2 / (options.flags.threads * sources.len()).max(1);
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
            shared: Shared::default(),
            clock,
            abort: Abort::default(),
            stop: options.stop.clone(),
            figures: Arc::clone(&options.figures),
            meters,
            measure: options.measure,
            guard: Arc::default(),
            replay: None,
            tells: true,
        }
    }

    /// Runs the workers of this process.
    pub(crate) fn execute(&self, live: &Arc<Live>, options: &Options, mesh: Mesh) -> Result<()> {
        let (dataflow, shared) = (Arc::clone(&self.dataflow), Arc::clone(live));
        let (builders, guard) = builders(&options.flags, mesh)?;
        let workers = builders.len();
        let (ended, ends) = crossbeam_channel::bounded(workers);
        let config = timely::WorkerConfig::default();
        let guards = timely::execute::execute_from(builders, guard, config, move |worker| {
            let work = std::panic::AssertUnwindSafe(|| engine::work(worker, &dataflow, &shared));
            if let Err(panic) = std::panic::catch_unwind(work) {
                // timely would leave the other workers running for ever.
                let message = unwind::message(&*panic);
                shared.abort.raise(Error::internal(format!("a worker panicked: {message}")));
                engine::abandon(worker);
            }
            let _ = ended.send(()); // nobody listens any more after a fault
        });
        let guards = guards.map_err(|error| Error::new(Kind::Peer, error))?;
        let mut left = workers;
        while left > 0 {
            match ends.recv_timeout(Duration::from_millis(200)) {
                Ok(()) => left -= 1,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if live.abort.is_raised() && options.flags.processes > 1 {
                // The communication threads would wait for the other processes, which wait for this one:
                // its end is what tells them.
                std::mem::forget(guards);
                return live.abort.take().map_or(Ok(()), Err);
            }
        }
        for result in guards.join() {
            if let Err(message) = result {
                live.abort.raise(Error::internal(format!("a worker panicked: {message}")));
            }
        }
        live.abort.take().map_or(Ok(()), Err)
    }
}

/// Makes the dataflow known to the figures; gives the meters of its nodes.
fn introduce(figures: &Figures, plan: &Plan) -> Vec<Arc<NodeMeter>> {
    for sink in &plan.sinks {
        figures.store(&sink.target.store.identity());
        meter_of(figures, sink);
    }
    let nodes = plan.nodes.iter().enumerate().map(|(id, node)| {
        let inputs = node.inputs.iter().map(|input| input.0 as usize).collect();
        figures.node(id, || NodeMeter::new(node.kind, node.label.clone(), inputs))
    });
    nodes.collect()
}

fn meter_of(figures: &Figures, SinkPlan { target, .. }: &SinkPlan) -> Arc<SinkMeter> {
    let make = || SinkMeter::new(target.store.identity(), target.describe.clone());
    figures.sink(&target.name, make)
}

/// An error as anybody may read it: the sentence of a refused record may hold what it held.
fn in_public(error: &Error) -> String {
    match error.kind() {
        Kind::Refused => {
            "a record was refused, and that stops the run; the error says which".into()
        }
        _ => error.to_string(),
    }
}

/// How many offsets of a bounded run the slices of this process have before them.
fn planned(live: &Live, flags: &Flags) -> u64 {
    let ahead = live.launch.slices().filter_map(|slice| {
        let index = live.sources.iter().position(|source| source.name == slice.key.source)?;
        let source = SourceId(u16::try_from(index).ok()?);
        let reader = source.reader(slice.key.partition, flags.workers());
        let end = live.launch.sources[index].ends.as_ref()?.get(&slice.key.partition)?;
        (reader / flags.threads == flags.process).then_some(end.0 - slice.position.0)
    });
    ahead.map(|offsets| u64::try_from(offsets).unwrap_or(0)).sum()
}
