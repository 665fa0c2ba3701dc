//! The pipeline `orders` on a topic and a table of its own, as a program.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use postgres::Client;
use tidegate::figures::Snapshot;

use super::http::get;
use super::{Order, Process, eventually};

/// How long anything may take before its test fails.
const LONG: Duration = Duration::from_secs(90);

/// The pipeline has the name of its schema, which no other test has.
pub struct Story {
    pub brokers: String,
    pub topic: String,
    pub partitions: i32,
    pub schema: String,
    pub client: Client,
}

impl Story {
    pub fn new(name: &str, partitions: i32) -> Self {
        Self::on(&super::brokers(), name, partitions, 1)
    }

    /// On the cluster at `brokers`.
    pub fn on(brokers: &str, name: &str, partitions: i32, replicas: i32) -> Self {
        Self::with(brokers, name, (partitions, replicas), &[])
    }

    /// With settings of the topic.
    pub fn with(
        brokers: &str,
        name: &str,
        (partitions, replicas): (i32, i32),
        settings: &[(&str, &str)],
    ) -> Self {
        let topic = super::unique(name);
        super::create(brokers, &topic, partitions, replicas, settings);
        let mut client = super::connect();
        let schema = super::schema(&mut client, name);
        Story { brokers: brokers.to_owned(), topic, partitions, schema, client }
    }

    /// Produces these events of the sample.
    pub fn produce(&self, events: Range<u64>) {
        let messages = events.map(|index| Order::event(index).message(self.partitions));
        super::produce_to(&self.brokers, &self.topic, messages);
    }

    /// Produces new orders of these numbers to partition 0.
    pub fn orders(&self, numbers: Range<i64>) {
        let messages = numbers.map(|order_id| {
            let order = Order { order_id, customer: "ann".into(), status: "new", amount: order_id };
            (0, order_id.to_string().into_bytes(), Some(order.json()))
        });
        super::produce_to(&self.brokers, &self.topic, messages);
    }

    /// Deletes the topic and creates it again, empty.
    pub fn recreate(&self) {
        super::delete(&self.topic);
        super::create(&self.brokers, &self.topic, self.partitions, 1, &[]);
    }

    /// Starts `command` of the pipeline.
    pub fn start(&self, command: &str, more: &[&str]) -> Process {
        let topic = format!("topic={}", self.topic);
        let table = format!("table={}.valid_orders", self.schema);
        let place = ["--name", &self.schema, "--param", &topic, "--param", &table];
        let mut args = [&[command, "orders"], &place[..]].concat();
        if !more.contains(&"--brokers") {
            args.extend(["--brokers", &self.brokers]);
        }
        args.extend(more);
        Process::spawn(&args)
    }

    /// A good end of `command`, with what it printed.
    pub fn does(&self, command: &str, more: &[&str]) -> String {
        let (status, out, err) = self.start(command, more).wait(LONG);
        assert!(status.success(), "{command} {more:?} ended with {status}\n{out}\n{err}");
        out
    }

    /// A bad end of `command`, with its sentence.
    pub fn fails(&self, command: &str, more: &[&str], code: i32) -> String {
        sentence(self.start(command, more), code)
    }

    /// The numbers of the orders in the table.
    pub fn numbers(&mut self) -> Vec<i64> {
        let query = format!("select order_id from {}.valid_orders order by 1", self.schema);
        self.client.query(&query, &[]).unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// Waits until the table holds so many orders.
    pub fn until(&mut self, count: usize) {
        let there = eventually(LONG, || (self.numbers().len() == count).then_some(()));
        assert!(there.is_some(), "{} orders, not {count}", self.numbers().len());
    }

    /// Where each partition stands.
    pub fn stored(&mut self) -> BTreeMap<i32, i64> {
        let query = "select partition, position from tidegate.slices where pipeline = $1";
        let rows = self.client.query(query, &[&self.schema]).unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// Removes table, positions and topic.
    pub fn forget(mut self) {
        super::forget(&mut self.client, &self.schema);
    }
}

/// The one sentence of a bad end with this exit code.
pub fn sentence(process: Process, code: i32) -> String {
    let (found, sentence) = ending(process);
    assert_eq!(found, code, "{sentence}");
    sentence
}

/// Exit code and sentence of a bad end.
pub fn ending(process: Process) -> (i32, String) {
    let (status, out, err) = process.wait(LONG);
    let code = status.code().filter(|code| *code != 0);
    let code = code.unwrap_or_else(|| panic!("{status}\n{out}\n{err}"));
    let sentences: Vec<_> = err.lines().filter_map(|line| line.strip_prefix("error: ")).collect();
    let [sentence] = sentences[..] else { panic!("not one sentence: {err}") };
    (code, sentence.to_owned())
}

/// The figures of the run at `address`.
pub fn figures(address: &str) -> Snapshot {
    serde_json::from_str(&get(address, "/status.json").body).expect("figures")
}
