//! Whole runs of the program on real Kafka and PostgreSQL: killed, frozen, stopped, replaced.

mod common;

use std::collections::BTreeMap;
use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;

use common::{Order, Process, eventually, figure, mix, model, rows};
use postgres::Client;

const PARTITIONS: i32 = 8;
const LONG: Duration = Duration::from_secs(120);

/// A pipeline of `order_log` on its own topic and tables.
struct Story {
    topic: String,
    schema: String,
    client: Client,
}

impl Story {
    fn new(name: &str) -> Self {
        let topic = common::topic(name, PARTITIONS);
        let mut client = common::connect();
        let schema = common::schema(&mut client, name);
        Story { topic, schema, client }
    }

    fn produce(&self, events: std::ops::Range<u64>) {
        common::produce(&self.topic, events.map(|index| Order::event(index).message(PARTITIONS)));
    }

    /// The arguments of a run; its name is the schema's, which no other test has.
    fn args(&self, more: &[&str]) -> Vec<String> {
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

    fn run(&self, more: &[&str]) -> Process {
        let args = self.args(more);
        Process::spawn(&args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// A run of `processes` processes with `workers` workers each.
    fn cluster(&self, processes: usize, workers: usize, more: &[&str]) -> Vec<Process> {
        let workers = workers.to_string();
        if processes == 1 {
            return vec![self.run(&[&["-w", &workers], more].concat())];
        }
        let hosts = hostfile(processes);
        let count = processes.to_string();
        let start = |index: usize| {
            let index = index.to_string();
            let flags = ["-w", &workers, "-n", &count, "-p", &index, "-h", &hosts];
            self.run(&[&flags[..], more].concat())
        };
        (0..processes).map(start).collect()
    }

    /// Where each slice stands.
    fn positions(&mut self) -> BTreeMap<(String, i32), i64> {
        let query = "select sink, partition, position from tidegate.slices where pipeline = $1";
        let rows = self.client.query(query, &[&self.schema]).unwrap();
        rows.iter().map(|row| ((row.get(0), row.get(1)), row.get(2))).collect()
    }

    fn progress(&mut self) -> i64 {
        self.positions().values().sum()
    }

    /// Waits until the positions add up to `enough`, while `run` runs.
    fn until(&mut self, enough: i64, run: &mut [&mut Process]) {
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
    fn verify(&mut self, events: u64) {
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
fn hostfile(processes: usize) -> String {
    let listeners: Vec<_> =
        (0..processes).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
    let path = std::env::temp_dir().join(common::unique("tidegate_hosts"));
    let mut file = std::fs::File::create(&path).unwrap();
    for listener in &listeners {
        writeln!(file, "{}", listener.local_addr().unwrap()).unwrap();
    }
    path.to_str().unwrap().to_owned()
}

#[test]
fn twenty_sigkills_at_random_moments_neither_lose_nor_double_a_row() {
    const ORDERS: u64 = 500_000;
    const KILLS: u64 = 20;
    let mut story = Story::new("kills");
    let seed = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_micros() as u64;
    println!("seed {seed}");
    let mut peers_lost = 0;
    for kill in 0..KILLS {
        let chance = mix(seed ^ kill);
        let (processes, workers) =
            [(1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (1, 3)][(chance % 6) as usize];
        // Small transactions, so that a kill finds many of them under way.
        let more = ["--max-rows", "2000", "--linger", "10ms"];
        let mut run = story.cluster(processes, workers, &more);
        let before = story.progress();
        let share = ORDERS / KILLS;
        std::thread::scope(|scope| {
            let (topic, from) = (story.topic.clone(), kill * share);
            scope.spawn(move || {
                let events =
                    (from..from + share).map(|index| Order::event(index).message(PARTITIONS));
                common::produce(&topic, events);
            });
            // Every fourth kill may hit the start; the others wait for a first commit.
            if chance >> 8 & 3 != 0 {
                story.until(before + 1, &mut run.iter_mut().collect::<Vec<_>>());
            }
            std::thread::sleep(Duration::from_millis(chance >> 16 & 0x1ff));
        });
        let victim = (chance >> 32) as usize % run.len();
        run.swap_remove(victim).kill();
        for survivor in run {
            let (status, _, err) = survivor.wait(Duration::from_secs(30));
            assert_eq!(status.code(), Some(7), "a process that lost its peer says so\n{err}");
            peers_lost += 1;
        }
    }
    println!("peers lost {peers_lost}");
    let summary = story.run(&["-w", "2", "--until-end"]).success(LONG);
    println!("{summary}");
    story.verify(ORDERS);
    // The counters moved with the positions, so they have seen each order once per sink.
    assert_eq!(figure(&summary, "consumed"), 2 * ORDERS);
    let parts = ["filtered", "written", "rejected", "collapsed"].map(|name| figure(&summary, name));
    assert_eq!(parts.iter().sum::<u64>(), 2 * ORDERS, "{summary}");
}

#[test]
fn every_number_of_workers_and_processes_gives_the_same_tables() {
    const ORDERS: u64 = 30_000;
    let shapes: [(usize, usize, &[&str]); 6] =
        [(1, 1, &[]), (1, 2, &[]), (1, 4, &[]), (1, 2, &["-z"]), (2, 1, &[]), (2, 2, &["-z"])];
    for (processes, workers, more) in shapes {
        let mut story = Story::new("shapes");
        story.produce(0..ORDERS);
        let run = story.cluster(processes, workers, &[&["--until-end"], more].concat());
        for process in run {
            process.success(LONG);
        }
        story.verify(ORDERS);
    }
}

#[test]
fn after_a_clean_stop_the_groups_offsets_equal_the_stored_positions() {
    let mut story = Story::new("stop");
    story.produce(0..20_000);
    for processes in [1, 2] {
        let run = story.cluster(processes, 1, &["--linger", "30s"]);
        // With such a linger nothing is due: the stop itself must flush what was read.
        std::thread::sleep(Duration::from_millis(1500));
        run[processes - 1].signal("-TERM");
        for process in run {
            let (status, out, err) = process.wait(Duration::from_secs(10));
            assert!(status.success(), "{status}\n{out}\n{err}");
        }
    }
    story.verify(20_000);
    let committed = group(&format!("tidegate-{}", story.schema), &story.topic);
    for ((sink, partition), position) in story.positions() {
        assert_eq!(committed[&partition], position, "partition {partition} at {sink}");
    }
}

#[test]
fn what_one_sink_lacks_of_a_partition_that_another_has_is_not_skipped() {
    let mut story = Story::new("lacks");
    story.produce(0..1_000);
    story.run(&["--until-end"]).success(LONG);
    // As after a crash between two databases, of which one had not stored the new partition yet.
    let lacking = "delete from tidegate.slices where pipeline = $1 and partition = 3 and sink = $2";
    let table = format!("{}.valid_orders", story.schema);
    assert_eq!(story.client.execute(lacking, &[&story.schema, &table]).unwrap(), 1);
    common::delete_before(&story.topic, 3, 5);
    let (status, out, err) = story.run(&["--until-end"]).wait(LONG);
    assert_eq!(status.code(), Some(4), "{out}\n{err}");
    assert!(err.contains("[0, 5) are lost"), "{err}");
}

/// The committed offsets of a group.
fn group(group: &str, topic: &str) -> BTreeMap<i32, i64> {
    use rdkafka::consumer::{BaseConsumer, Consumer};
    let consumer: BaseConsumer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", common::brokers())
        .set("group.id", group)
        .create()
        .unwrap();
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_range(topic, 0, PARTITIONS - 1);
    let committed = consumer.committed_offsets(list, Duration::from_secs(10)).unwrap();
    let offset = |element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>| {
        (element.partition(), element.offset().to_raw().unwrap())
    };
    committed.elements().iter().map(offset).collect()
}

#[test]
fn a_second_run_stands_by_and_takes_over_when_the_first_is_killed() {
    let mut story = Story::new("standby");
    story.produce(0..10_000);
    let mut first = story.run(&[]);
    story.until(20_000, &mut [&mut first]);
    let mut second = story.run(&[]);
    let (schema, mut client) = (story.schema.clone(), common::connect());
    let mut generation = move || -> i64 {
        let query = "select generation from tidegate.pipelines where pipeline = $1";
        client.query_one(query, &[&schema]).unwrap().get(0)
    };
    assert_eq!(generation(), 1);
    story.produce(10_000..15_000);
    story.until(30_000, &mut [&mut first, &mut second]);
    assert_eq!(generation(), 1, "the second run waits");
    assert!(!second.has_ended());
    first.kill();
    story.produce(15_000..20_000);
    story.until(40_000, &mut [&mut second]);
    assert_eq!(generation(), 2, "the second run took over");
    second.signal("-TERM");
    second.success(Duration::from_secs(15));
    story.verify(20_000);
}

#[test]
fn a_frozen_run_that_was_replaced_writes_nothing_more() {
    let mut story = Story::new("frozen");
    story.produce(0..10_000);
    let mut frozen = story.run(&["--max-rows", "500", "--linger", "5ms"]);
    story.until(1, &mut [&mut frozen]);
    frozen.signal("-STOP");
    let mut second = story.run(&["--take-over"]);
    story.until(20_000, &mut [&mut second]);
    frozen.signal("-CONT");
    story.produce(10_000..20_000);
    let (status, out, err) = frozen.wait(Duration::from_secs(60));
    assert_eq!(status.code(), Some(6), "fenced\n{out}\n{err}");
    story.until(40_000, &mut [&mut second]);
    second.signal("-TERM");
    second.success(Duration::from_secs(15));
    story.verify(20_000);
}

#[test]
fn one_database_under_two_addresses_is_refused() {
    use tidegate::sink::Postgres;
    use tidegate::source::{Memory, Script, Step};
    #[derive(Clone, serde::Serialize, serde::Deserialize)]
    struct Row {
        order_id: i64,
    }
    let mut client = common::connect();
    let schema = common::unique("twice");
    client
        .batch_execute(&format!(
            "create schema {schema}; create table {schema}.a (order_id bigint);
             create table {schema}.b (order_id bigint)"
        ))
        .unwrap();
    let url = common::database();
    let other = if url.contains("127.0.0.1") {
        url.replace("127.0.0.1", "localhost")
    } else {
        url.replace("localhost", "127.0.0.1")
    };
    let script = Script::new(vec![vec![Step::Row(Row { order_id: 1 })]]);
    let (a, b) = (format!("{schema}.a"), format!("{schema}.b"));
    let pipeline = tidegate::Pipeline::new(schema, move |engine| {
        let rows = engine.dataframe(Memory::new("rows", std::sync::Arc::clone(&script)));
        rows.clone().sink(Postgres::table(&a).url(&url));
        rows.sink(Postgres::table(&b).url(&other));
        Ok(())
    });
    let options = tidegate::Options { until_end: true, ..tidegate::Options::default() };
    let error = pipeline.run(&options).unwrap_err();
    assert_eq!(error.kind(), tidegate::Kind::Config);
    assert!(error.to_string().contains("are the same database"), "{error}");
}
