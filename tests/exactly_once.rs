//! Whole runs of the program on real Kafka and PostgreSQL: killed, frozen, stopped, replaced.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::story::{LONG, PARTITIONS, Story};
use common::{Order, figure, mix};

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
    assert_eq!(status.code(), Some(10), "{out}\n{err}");
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

/// The lock is free again when it looks for it, and the generation is not its own.
#[test]
fn an_idle_run_that_another_has_come_and_gone_over_ends_as_replaced() {
    let mut story = Story::new("gone");
    story.produce(0..1_000);
    let mut idle = story.run(&[]);
    story.until(2_000, &mut [&mut idle]);
    story.run(&["--take-over", "--until-end"]).success(LONG);
    let (status, out, err) = idle.wait(Duration::from_secs(30));
    assert_eq!(status.code(), Some(6), "{out}\n{err}");
    story.verify(1_000);
}

/// A restart would read all from the beginning, unasked, and append it once more.
#[test]
fn positions_that_somebody_removed_under_a_run_need_a_person() {
    let mut story = Story::new("removed");
    story.produce(0..1_000);
    let mut run = story.run(&[]);
    story.until(2_000, &mut [&mut run]);
    let remove = "delete from tidegate.slices where pipeline = $1";
    story.client.execute(remove, &[&story.schema]).unwrap();
    story.produce(1_000..1_100);
    let (status, out, err) = run.wait(Duration::from_secs(30));
    assert_eq!(status.code(), Some(10), "{out}\n{err}");
    assert!(err.contains("is not stored any more"), "{err}");
    let count = format!("select count(*) from {}.order_log", story.schema);
    assert_eq!(story.client.query_one(&count, &[]).unwrap().get::<_, i64>(0), 1_000);
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
