//! A case, run by the program itself on every way to the table.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use postgres::Client;

use super::form::{Case, Expected, load};
use super::grade::{Given, grade};
use super::outcome::{Counters, Outcome, slices};
use super::params::params;
use super::policy::documented;
use super::produce::Topic;
use crate::common::{self, Process, eventually};

/// The schema of the program's own tables.
const BOOKS: &str = "tidegate";
const LONG: Duration = Duration::from_secs(60);
/// In how many flushes a long case is written where it is written in small ones.
const FLUSHES: usize = 16;

/// How rows get into the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    /// All of them in one transaction.
    OneFlush,
    /// Each in a transaction of its own, as far as a case is short.
    OneByOne,
    /// With a second worker.
    TwoWorkers,
}

/// Runs the case `id` on every path, and fails with all objections.
pub fn run(id: &str) {
    let case = load().into_iter().find(|case| case.id == id).expect("a case of that id");
    let expected = documented(&case);
    let mut wrong = Vec::new();
    if case.steps.is_empty() {
        // Produced while the first run reads it, whole for the others.
        let mut topic = Topic::new(&case);
        wrong.extend(Run::new(&case, Path::OneByOne).while_produced(&mut topic, &expected));
        let (case, topic, expected) = (&case, &topic, &expected);
        std::thread::scope(|scope| {
            let paths = [Path::OneFlush, Path::TwoWorkers];
            let bounded = paths
                .map(|path| scope.spawn(move || Run::new(case, path).until_end(topic, expected)));
            bounded.into_iter().for_each(|run| wrong.extend(run.join().expect("no panic")));
        });
    } else {
        for path in [Path::OneByOne, Path::OneFlush, Path::TwoWorkers] {
            let mut topic = Topic::new(&case);
            wrong.extend(Run::new(&case, path).while_produced(&mut topic, &expected));
        }
    }
    let Case { title, from, notes, .. } = &case;
    let policy = &expected.policy;
    assert!(
        wrong.is_empty(),
        "{id} ({from}) {title}; {policy:?}\n{notes}\n\n{}\n",
        wrong.join("\n")
    );
}

/// One run of a case, with a schema of its own, whose name is also the pipeline's.
struct Run<'a> {
    case: &'a Case,
    path: Path,
    schema: String,
    client: Client,
}

impl<'a> Run<'a> {
    fn new(case: &'a Case, path: Path) -> Self {
        let mut client = common::connect();
        let schema = common::unique(&case.schema);
        let ddl = case.ddl.replace(&case.schema, &schema);
        // An extension that two sessions create at once is an error for one of them.
        client
            .batch_execute("select pg_advisory_lock(hashtext('the ddl of cases'))")
            .and_then(|()| client.batch_execute(&ddl))
            .and_then(|()| client.batch_execute("select pg_advisory_unlock_all()"))
            .expect("the case's ddl");
        Run { case, path, schema, client }
    }

    /// Runs while the messages are produced, with the case's steps between them.
    fn while_produced(mut self, topic: &mut Topic, expected: &Expected) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut process = self.spawn(&topic.name, false);
        for cut in self.cuts(topic) {
            topic.produce(cut);
            if wrong.is_empty() && !self.is_durable(topic, &mut process) {
                wrong.push(format!("[{:?}] what precedes message {cut} is not stored", self.path));
            }
            for step in self.case.steps.iter().filter(|step| step.after + 1 == cut) {
                let sql = step.sql.replace(&self.case.schema, &self.schema);
                self.client.batch_execute(&sql).expect("the case's step");
            }
        }
        if wrong.is_empty() {
            let ends = topic.ends();
            let mut stands_at_ends = || {
                let slices = slices(&mut self.client, BOOKS, &self.schema);
                ends.iter().all(|(partition, end)| {
                    slices.get(partition).is_some_and(|slice| slice.position == *end)
                })
            };
            // Where it does not, the grader says so.
            eventually(Duration::from_secs(10), || {
                (process.has_ended() || stands_at_ends()).then_some(())
            });
        }
        if !process.has_ended() {
            process.signal("-TERM");
        }
        wrong.extend(self.verify(process, topic, expected));
        wrong
    }

    /// Runs up to the ends of a topic that was produced.
    fn until_end(self, topic: &Topic, expected: &Expected) -> Vec<String> {
        let process = self.spawn(&topic.name, true);
        self.verify(process, topic, expected)
    }

    fn spawn(&self, topic: &str, until_end: bool) -> Process {
        let file = self.file();
        fs::write(&file, params(self.case, topic, &self.schema)).expect("the file of parameters");
        let file = file.to_str().expect("a path of text");
        let mut args = vec!["run", "copy", "--name", &self.schema, "--params", file];
        match self.path {
            // The end of a bounded run flushes at once; else the time is what people wait.
            Path::OneFlush if until_end => args.extend(["--linger", "30s"]),
            Path::OneFlush => {}
            Path::OneByOne => args.extend(["--linger", "0ms", "--max-rows", "1"]),
            Path::TwoWorkers => args.extend(["-w", "2"]),
        }
        args.extend(until_end.then_some("--until-end"));
        Process::spawn_with(&args, &[("DATABASE_URL", &self.database()), ("RUST_BACKTRACE", "0")])
    }

    fn file(&self) -> PathBuf {
        PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.toml", self.schema))
    }

    /// The database, with the settings of the case's session.
    fn database(&self) -> String {
        let database = common::database();
        if self.case.settings.is_empty() {
            return database;
        }
        let escaped = |value: &str| value.replace('\\', "\\\\").replace(' ', "\\ ");
        let settings = self.case.settings.iter();
        let options: Vec<_> =
            settings.map(|(name, value)| format!("-c {name}={}", escaped(value))).collect();
        let options = options.join(" ");
        if database.contains("://") {
            let mark = if database.contains('?') { '&' } else { '?' };
            let options: String = options.bytes().map(|byte| format!("%{byte:02x}")).collect();
            format!("{database}{mark}options={options}")
        } else {
            format!("{database} options='{}'", options.replace('\\', "\\\\"))
        }
    }

    /// After how many messages the run is waited for.
    fn cuts(&self, topic: &Topic) -> Vec<usize> {
        let len = topic.len();
        let size = match self.path {
            Path::OneByOne => len.div_ceil(FLUSHES).max(1),
            _ => len,
        };
        // A short case goes message by message.
        let size = if len <= 2 * FLUSHES && self.path == Path::OneByOne { 1 } else { size };
        let asked = |cut: usize| self.case.steps.iter().any(|step| step.after + 1 == cut);
        let cut = |cut: &usize| *cut == len || asked(*cut) || cut.is_multiple_of(size);
        (1..=len).filter(cut).filter(|cut| topic.may_cut(*cut)).collect()
    }

    /// Waits until all that was produced is stored; false where that does not come.
    fn is_durable(&mut self, topic: &Topic, process: &mut Process) -> bool {
        let readable = || topic.sent.iter().filter(|sent| sent.readable);
        let stored = eventually(LONG, || {
            let slices = slices(&mut self.client, BOOKS, &self.schema);
            let stored = (0..topic.partitions).all(|partition| {
                let last = readable().rev().find(|sent| sent.partition == partition);
                let position = slices.get(&partition).map_or(0, |slice| slice.position);
                last.is_none_or(|last| position > last.offset)
            });
            (stored || process.has_ended()).then_some(stored)
        });
        stored == Some(true)
    }

    /// Waits for the end of the run, and objects to what it left.
    fn verify(mut self, process: Process, topic: &Topic, expected: &Expected) -> Vec<String> {
        let (status, out, err) = process.wait(LONG);
        let mut wrong = Vec::new();
        if status.success() {
            let query = expected.query.replace(&self.case.schema, &self.schema);
            let mut outcome = Outcome::read(&mut self.client, BOOKS, &self.schema, &query);
            for value in outcome.rows.iter_mut().flatten().flatten() {
                *value = value.replace(&self.schema, &self.case.schema);
            }
            let given = Given { topic: &topic.name, sent: &topic.sent, ends: &topic.ends() };
            wrong = grade(expected, &given, &outcome);
            let last = out.lines().last().unwrap_or_default();
            let counted = summary(outcome.slices.values());
            if !last.starts_with(&counted) {
                wrong.push(format!("the last line is `{last}`, the slices have {counted}"));
            }
        } else {
            let said: Vec<_> = err.lines().rev().take(5).collect();
            let said = said.into_iter().rev().collect::<Vec<_>>().join("\n    ");
            wrong.push(format!("it ended with {status}\n    {said}"));
        }
        if wrong.is_empty() {
            self.client.batch_execute(&format!("drop schema {} cascade", self.schema)).unwrap();
            fs::remove_file(self.file()).unwrap();
        }
        wrong.into_iter().map(|wrong| format!("[{:?}] {wrong}", self.path)).collect()
    }
}

/// The counters of some slices, as a run prints them.
fn summary<'a>(slices: impl Iterator<Item = &'a Counters>) -> String {
    let sum = slices.fold(Counters::default(), |sum, slice| Counters {
        position: 0,
        consumed: sum.consumed + slice.consumed,
        filtered: sum.filtered + slice.filtered,
        written: sum.written + slice.written,
        rejected: sum.rejected + slice.rejected,
        collapsed: sum.collapsed + slice.collapsed,
    });
    let Counters { consumed, filtered, written, rejected, collapsed, .. } = sum;
    format!(
        "consumed={consumed} filtered={filtered} written={written} rejected={rejected} \
         collapsed={collapsed} "
    )
}
