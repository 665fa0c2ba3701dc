//! A pipeline of `order_log` from its topic to its tables, and what must be there in the end.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use postgres::Client;

use super::{Order, Process, eventually, model, rows};

pub const PARTITIONS: i32 = 8;
pub const LONG: Duration = Duration::from_secs(120);

/// A pipeline of `order_log` on its own topic and tables.
pub struct Story {
    pub topic: String,
    pub schema: String,
    pub client: Client,
    /// What the runs see of the environment.
    pub environment: Vec<(&'static str, String)>,
}

impl Story {
    pub fn new(name: &str) -> Self {
        Story::on(super::connect(), name)
    }

    /// In the database of `client`.
    pub fn on(client: Client, name: &str) -> Self {
        Story::of(client, name, super::topic(name, PARTITIONS))
    }

    /// With so many partitions, each of which so many brokers have.
    pub fn wide(name: &str, partitions: i32, brokers: i32) -> Self {
        Story::of(super::connect(), name, super::topic_on(name, partitions, brokers))
    }

    fn of(mut client: Client, name: &str, topic: String) -> Self {
        let schema = super::schema(&mut client, name);
        Story { topic, schema, client, environment: Vec::new() }
    }

    pub fn produce(&self, events: std::ops::Range<u64>) {
        super::produce(&self.topic, events.map(|index| Order::event(index).message(PARTITIONS)));
    }

    /// The arguments of a run; its name is the schema's, which no other test has.
    pub fn args(&self, more: &[&str]) -> Vec<String> {
        let Story { topic, schema, .. } = self;
        let mut args = vec!["run".to_owned(), "order_log".to_owned()];
        args.extend(["--name".to_owned(), schema.clone()]);
        for param in [
            format!("topic={topic}"),
            format!("log={schema}.order_log"),
            format!("table={schema}.valid_orders"),
        ] {
            args.extend(["--param".to_owned(), param]);
        }
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        args
    }

    pub fn run(&self, more: &[&str]) -> Process {
        self.run_with(more, &[])
    }

    /// A run with more of the environment.
    pub fn run_with(&self, more: &[&str], also: &[(&str, &str)]) -> Process {
        let args = self.args(more);
        let own = self.environment.iter().map(|(name, value)| (*name, value.as_str()));
        let environment: Vec<_> = own.chain(also.iter().copied()).collect();
        Process::spawn_with(&args.iter().map(String::as_str).collect::<Vec<_>>(), &environment)
    }

    /// The generation that writes.
    pub fn generation(&mut self) -> i64 {
        let query = "select generation from tidegate.pipelines where pipeline = $1";
        let row = self.client.query_opt(query, &[&self.schema]).unwrap();
        row.map_or(0, |row| row.get(0))
    }

    /// A run of `processes` processes with `workers` workers each.
    pub fn cluster(&self, processes: usize, workers: usize, more: &[&str]) -> Vec<Process> {
        let workers = workers.to_string();
        if processes == 1 {
            return vec![self.run(&[&["-w", &workers], more].concat())];
        }
        self.cluster_at(&hostfile(processes), processes, &[&["-w", &workers], more].concat())
    }

    /// A run of processes at the addresses of a hostfile.
    pub fn cluster_at(&self, hosts: &str, processes: usize, more: &[&str]) -> Vec<Process> {
        let count = processes.to_string();
        let start = |index: usize| {
            let index = index.to_string();
            let flags = ["-n", &count, "-p", &index, "-h", hosts];
            self.run(&[&flags[..], more].concat())
        };
        (0..processes).map(start).collect()
    }

    /// Where each slice stands.
    pub fn positions(&mut self) -> BTreeMap<(String, i32), i64> {
        // A server of one's own has nothing before the first run.
        let begun = "select to_regclass('tidegate.slices') is not null";
        if !self.client.query_one(begun, &[]).unwrap().get::<_, bool>(0) {
            return BTreeMap::new();
        }
        let query = "select sink, partition, position from tidegate.slices where pipeline = $1";
        let rows = self.client.query(query, &[&self.schema]).unwrap();
        rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect()
    }

    pub fn progress(&mut self) -> i64 {
        self.positions().values().sum()
    }

    /// Waits until the positions add up to `enough`, while `run` runs.
    pub fn until(&mut self, enough: i64, run: &mut [&mut Process]) {
        let reached = eventually(LONG, || {
            let ended = run.iter_mut().any(|process| process.has_ended());
            (ended || self.progress() >= enough).then_some(ended)
        });
        match reached {
            Some(false) => {}
            Some(true) => {
                let output = run.iter_mut().map(|process| process.output()).collect::<String>();
                panic!("a process ended by itself\n{output}");
            }
            None => panic!("the positions add up to {}, not {enough}", self.progress()),
        }
    }

    /// Compares both tables with the model of `events`, and the positions with the ends.
    pub fn verify(&mut self, events: u64) {
        let table = format!("{}.valid_orders", self.schema);
        let found = rows(&mut self.client, &table);
        let expected = model((0..events).map(Order::event));
        if let Some((id, order)) = expected.iter().find(|(id, order)| found.get(id) != Some(order))
        {
            panic!("order {id} should be {order:?}, but is {:?}", found.get(id));
        }
        assert_eq!(found.len(), expected.len(), "no row too many");

        let mut ends = BTreeMap::<i32, i64>::new();
        let mut log = Vec::new();
        for order in (0..events).map(Order::event) {
            let (partition, ..) = order.message(PARTITIONS);
            let offset = ends.entry(partition).or_default();
            log.push((partition, *offset, order.order_id, order.amount));
            *offset += 1;
        }
        log.sort_unstable();
        let query = format!(
            "select partition, \"offset\", order_id, amount from {}.order_log order by 1, 2",
            self.schema
        );
        let written: Vec<(i32, i64, i64, i64)> = self
            .client
            .query(&query, &[])
            .unwrap()
            .iter()
            .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3)))
            .collect();
        assert_eq!(written.len(), log.len(), "every order is logged once");
        assert!(written == log, "the log holds the orders in their order");

        for ((sink, partition), position) in self.positions() {
            let end = ends.get(&partition).copied().unwrap_or(0);
            assert_eq!(position, end, "position of partition {partition} at {sink}");
        }
    }
}

/// A hostfile of free loopback addresses.
pub fn hostfile(processes: usize) -> String {
    let listeners: Vec<_> =
        (0..processes).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let path = std::env::temp_dir().join(super::unique("tidegate_hosts"));
    let mut file = std::fs::File::create(&path).unwrap();
    for listener in &listeners {
        writeln!(file, "{}", listener.local_addr().unwrap()).unwrap();
    }
    path.to_str().unwrap().to_owned()
}
