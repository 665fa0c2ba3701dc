//! What a dataflow function is given: in plan mode it yields the plan, in build mode the operators.

mod busy;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use timely::dataflow::ProbeHandle;
use timely::dataflow::operators::{Concatenate, Probe};
use timely::worker::Worker;

use crate::epoch::Epoch;
use crate::error::{Error, Result};
use crate::frame::{Builder, Control, DataFrame, Durable, Live, Site, Stored, commit, member};
use crate::nearest::nearest;
use crate::plan::Plan;
use crate::source::{Settings, Source};

/// A dataflow: a function of an [`Engine`]. It is called once to plan and then once at every worker to
/// build, and must say the same each time: no I/O, no clock, no chance. What varies by environment
/// reaches it as [parameters](Engine::param).
pub type Dataflow = Arc<dyn Fn(Engine<'_>) -> Result<()> + Send + Sync>;

/// The start of every chain.
pub struct Engine<'s> {
    builder: Rc<Builder<'s>>,
}

impl fmt::Debug for Engine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").finish_non_exhaustive()
    }
}

impl<'s> Engine<'s> {
    /// The frame of a source's records.
    pub fn dataframe<S: Source>(&self, source: S) -> DataFrame<'s, S::Value> {
        DataFrame::source(&self.builder, &source)
    }

    /// The parameter `name`, as given by `--param name=value`; an error where it is not given.
    pub fn param(&self, name: &str) -> Result<String> {
        self.builder.param(name).map(str::to_owned).ok_or_else(|| {
            Error::config(format!(
                "parameter `{name}` is not set; give it with `--param {name}=..`"
            ))
        })
    }

    /// The parameter `name`, or `default` where it is not given.
    pub fn param_or(&self, name: &str, default: &str) -> String {
        self.builder.param(name).unwrap_or(default).to_owned()
    }

    /// The parameter `name`, where it is given.
    pub fn param_if(&self, name: &str) -> Option<String> {
        self.builder.param(name).map(str::to_owned)
    }

    /// All parameters `family.NAME` that are given, by `NAME`.
    pub fn params(&self, family: &str) -> BTreeMap<String, String> {
        self.builder.params(family)
    }
}

/// Runs `dataflow` in plan mode.
pub(crate) fn plan(
    dataflow: &Dataflow,
    settings: &Settings,
    params: &BTreeMap<String, String>,
) -> Result<Plan> {
    let builder = Rc::new(Builder::plan(settings.clone(), params.clone()));
    dataflow(Engine { builder: Rc::clone(&builder) })?;
    let plan = builder.take()?;
    plan.validate()?;
    if let Some(name) = params.keys().find(|name| !plan.params.contains_key(*name)) {
        return Err(unasked(name, &plan));
    }
    Ok(plan)
}

/// The error of the parameter `name`, for which the dataflow does not ask.
fn unasked(name: &str, plan: &Plan) -> Error {
    // A given member of a family is named by its family.
    let given = |known: &str| {
        let family = known.split_once('.').map(|(family, _)| member(family));
        family.is_some_and(|family| family != known && plan.params.contains_key(&family))
    };
    let known: Vec<&str> =
        plan.params.keys().map(String::as_str).filter(|known| !given(known)).collect();
    let family = |known: &&str| known.strip_suffix(&member("")).is_some();
    let (families, single): (Vec<&str>, Vec<&str>) = known.iter().copied().partition(family);
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    let near = nearest(name, single).map(str::to_owned).or_else(|| {
        let stems = families.iter().filter_map(|family| family.strip_suffix(&member("")));
        let family = nearest(stem, stems)?;
        let rest = &name[stem.len()..];
        Some(if rest.is_empty() { member(family) } else { format!("{family}{rest}") })
    });
    let near = near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"));
    let known: Vec<_> = known.iter().map(|known| format!("`{known}`")).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Error::config(format!("the dataflow has no parameter `{name}`{near}; it asks for {known}"))
}

/// How long a worker parks at most: it is woken for records, epochs, acknowledgements, faults and stops;
/// this only bounds the harm of a wake-up that was lost.
const PARK: Duration = Duration::from_secs(1);
/// How often a worker tells where it stands.
const STAND: Duration = Duration::from_millis(200);

/// Runs `dataflow` at this worker until it has ended, or the run's abort flag is raised.
pub(crate) fn work(worker: &mut Worker, dataflow: &Dataflow, live: &Arc<Live>) {
    live.abort.register();
    live.stop.register();
    let meter = live.figures.worker(worker.index());
    if live.measure {
        busy::watch(worker, live);
    }
    let control = Control::build(worker, live.stop.clone());
    let built = match build(worker, dataflow, live, &control) {
        Ok(built) => built,
        Err(error) => {
            live.abort.raise(error);
            return abandon(worker);
        }
    };
    let Built { durable, pending, stored, threads } = built;
    let mut stopping = false;
    let mut frontier = Some(0);
    let mut released = Some(0);
    let mut stood = std::time::Instant::now();
    loop {
        if live.abort.is_raised() {
            return abandon(worker);
        }
        if live.stop.is_requested() && !stopping {
            stopping = true;
            live.figures.stopping();
            control.stop();
        }
        // `None`, the end of all epochs, is last.
        let here =
            stored.iter().map(|stored| stored.get()).min_by_key(|at| at.unwrap_or(Epoch::MAX));
        if let Some(here) = here
            && here != released
        {
            released = here;
            pending.iter().for_each(|source| source.release(here));
        }
        let now = durable.with_frontier(|frontier| frontier.first().copied());
        let done = now.is_none();
        if now != frontier {
            frontier = now;
            live.figures.durable(now.map_or(Duration::ZERO, |epoch| live.clock.age(epoch)));
            for source in &pending {
                if let Err(error) = source.settle(now, done) {
                    // Everything is durable all the same: these commits are for people.
                    tracing::warn!("{error}");
                }
            }
        }
        if done || stood.elapsed() >= STAND {
            stood = std::time::Instant::now();
            meter.stepped();
            meter.in_flight(pending.iter().map(|source| source.stand()).sum());
        }
        if done {
            break;
        }
        worker.step_or_park(Some(PARK));
    }
    control.finish();
    // The commit operators have let their flushers go; what is left of the dataflows ends now.
    while worker.has_dataflows() && !live.abort.is_raised() {
        worker.step_or_park(Some(PARK));
    }
    if live.abort.is_raised() {
        return abandon(worker);
    }
    for thread in threads {
        if thread.join().is_err() {
            live.abort.raise(Error::internal("a flusher panicked"));
        }
    }
}

/// Leaves all dataflows as they are: a fault closes no epoch.
pub(crate) fn abandon(worker: &mut Worker) {
    for dataflow in worker.installed_dataflows() {
        worker.drop_dataflow(dataflow);
    }
}

/// What one worker's loop needs of its dataflow.
struct Built {
    durable: ProbeHandle<Epoch>,
    pending: Vec<Rc<dyn Durable>>,
    stored: Vec<Rc<Stored>>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

fn build(
    worker: &mut Worker,
    dataflow: &Dataflow,
    live: &Arc<Live>,
    control: &Rc<Control>,
) -> Result<Built> {
    let name = live.pipeline.clone();
    worker.dataflow_named(&name, |scope| {
        let durable = ProbeHandle::new();
        let builder = Rc::new(Builder::build(Site {
            scope,
            live: Arc::clone(live),
            control: Rc::clone(control),
            pending: Default::default(),
            stored: Default::default(),
            parts: Default::default(),
            threads: Default::default(),
        }));
        dataflow(Engine { builder: Rc::clone(&builder) })?;
        let plan = builder.take()?;
        if plan.nodes != live.nodes {
            return Err(Error::config(
                "the dataflow function said something else when it was called again; it must not \
                 depend on I/O, time or chance",
            ));
        }
        let site = builder.site().expect("build mode has a site");
        let parts = site.parts.take();
        let stores = parts
            .into_iter()
            .map(|(store, parts)| commit(site, store, scope.concatenate(parts)))
            .collect::<Result<Vec<_>>>()?;
        scope.concatenate(stores).probe_with(&durable);
        Ok(Built {
            durable,
            pending: site.pending.take(),
            stored: site.stored.take(),
            threads: site.threads.take(),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sink::{Memory as Table, MemoryStore};
    use crate::source::{Memory, Script};

    #[test]
    fn a_parameter_that_only_a_closure_uses_changes_the_digest() {
        let (store, script) = (MemoryStore::new(), Script::<u64>::new(vec![]));
        let dataflow: Dataflow = Arc::new(move |engine| {
            let least = engine.param("least")?;
            engine
                .dataframe(Memory::new("numbers", Arc::clone(&script)))
                .filter(move |number| number.to_string() >= least)
                .sink(Table::table(&store, "table"));
            Ok(())
        });
        let digest = |least: &str| {
            let params = [("least".to_owned(), least.to_owned())].into();
            plan(&dataflow, &Settings::default(), &params).unwrap().digest()
        };
        assert_eq!(digest("1"), digest("1"));
        assert_ne!(digest("1"), digest("2"));
    }

    #[test]
    fn a_mistyped_parameter_is_answered_with_the_nearest() {
        let (store, script) = (MemoryStore::new(), Script::<u64>::new(vec![]));
        let dataflow: Dataflow = Arc::new(move |engine| {
            engine.param_if("table");
            let columns = engine.params("column");
            engine
                .dataframe(Memory::new("numbers", Arc::clone(&script)))
                .filter(move |number| columns.contains_key(&number.to_string()))
                .sink(Table::table(&store, "table"));
            Ok(())
        });
        let planned = |params: &[(&str, &str)]| {
            let params = params.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            plan(&dataflow, &Settings::default(), &params)
        };
        let error =
            |name| planned(&[(name, "x"), ("column.7", "x")]).err().expect(name).to_string();
        let asks = "it asks for `column.<name>`, `table`";
        assert_eq!(
            error("tabel"),
            format!("the dataflow has no parameter `tabel` (did you mean `table`?); {asks}")
        );
        assert_eq!(
            error("columns.a.b"),
            format!(
                "the dataflow has no parameter `columns.a.b` (did you mean `column.a.b`?); {asks}"
            )
        );
        assert_eq!(error("colour"), format!("the dataflow has no parameter `colour`; {asks}"));
        assert_eq!(
            error("column"),
            format!(
                "the dataflow has no parameter `column` (did you mean `column.<name>`?); {asks}"
            )
        );
        let digest = |value| planned(&[("column.7", value)]).expect("a plan").digest();
        assert_ne!(digest("x"), digest("y"));
    }
}
