//! What can be the matter with a topic, on real Kafka and PostgreSQL: created again, cut off, missing, with
//! large records, behind a sink that stands. The ids are those of cases in the field.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::http::until_ready;
use common::load::free;
use common::orders::{Story, ending, figures};
use common::{Order, eventually, figure};
use rdkafka::ClientConfig;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use serde::{Deserialize, Serialize};
use tidegate::figures::Snapshot;
use tidegate::sink::Postgres;
use tidegate::source::kafka::Kafka;
use tidegate::{Engine, Json, Kind, Options, Pipeline, Result};

const LONG: Duration = Duration::from_secs(90);

/// FR-47: the topic was deleted and created again between two runs, and holds more records than before, so
/// that the stored position lies within it.
#[test]
fn a_topic_that_was_created_again_is_not_read_from_the_old_position() {
    let mut story = Story::new("recreated", 1);
    story.orders(0..100);
    story.does("run", &["--until-end"]);
    story.recreate();
    story.orders(1000..1300);

    let told = story.fails("run", &["--until-end"], 10);
    let ids = story.client.query_one(
        "select topic_id, cluster_id from tidegate.slices where pipeline = $1",
        &[&story.schema],
    );
    let ids = ids.unwrap();
    let (id, cluster): (String, String) = (ids.get(0), ids.get(1));
    assert!(!cluster.is_empty());
    let position = format!("`{}[0]` into `{}.valid_orders`", story.topic, story.schema);
    for part in [&*position, "is stored at 100", &id, "created again", "positions --forget"] {
        assert!(told.contains(part), "{told}");
    }
    let told = story.fails("run", &[], 10);
    assert!(told.contains("created again"), "a run without an end too: {told}");
    assert_eq!(story.numbers().len(), 100, "nothing of the new topic was stored");
    let verified = story.does("verify", &[]);
    assert!(verified.contains("created again"), "{verified}");

    // Both ways out that the sentence names.
    story.does("positions", &["--forget", &story.topic]);
    assert_eq!(figure(&story.does("run", &["--until-end"]), "consumed"), 300);
    assert_eq!(story.numbers().len(), 400);
    story.recreate();
    story.orders(2000..2200);
    let place = format!("{}[0]=150", story.topic);
    story.does("positions", &["--set", &place]);
    story.does("run", &["--until-end"]);
    assert_eq!(story.numbers().len(), 450);
    assert_eq!(story.stored(), [(0, 200)].into());
    story.forget();
}

/// FR-47: the topic is deleted and created again while it is read. Twice the run is frozen meanwhile, and
/// finds a topic of the same name with records at the positions that it reads next.
#[test]
fn a_topic_that_is_created_again_while_it_is_read_ends_the_run_and_mixes_nothing() {
    for round in 0..3 {
        let mut story = Story::new("recreated_meanwhile", 2);
        story.produce(0..200);
        let run = story.start("run", &["-w", "2"]);
        let all = eventually(LONG, || {
            (story.stored().values().sum::<i64>() == 200).then(|| story.numbers())
        });
        let before = all.expect("all is stored");
        let is_frozen = round < 2;
        if is_frozen {
            run.signal("-STOP");
        }
        story.recreate();
        story.produce(10_000..11_000 + 500 * round);
        if is_frozen {
            run.signal("-CONT");
        }
        // It may be missing for so long that this is what is found.
        let (code, told) = ending(run);
        let again = code == 10 && told.contains("created again");
        assert!(again || code == 4 && told.contains("does not exist"), "{code}: {told}");
        assert!(told.contains(&story.topic), "{told}");
        assert_eq!(story.numbers(), before, "nothing of the new topic was stored");
        assert_eq!(story.stored().values().sum::<i64>(), 200);
        let told = story.fails("run", &["--until-end"], 10);
        assert!(told.contains("created again"), "{told}");
        story.forget();
    }
}

/// Which topic it is is stored with every position, also of partitions that appear later, and taken over
/// where an older version stored none. A cluster of another id is another topic.
#[test]
fn positions_know_their_topic_and_their_cluster() {
    let mut story = Story::new("identified", 1);
    story.orders(0..10);
    let run = story.start("run", &["-w", "1"]);
    story.until(10);
    common::grow(&story.topic, 2);
    let order = Order { order_id: 77, customer: "ann".into(), status: "new", amount: 1 };
    common::produce(&story.topic, [(1, b"77".to_vec(), Some(order.json()))]);
    story.until(11);
    run.signal("-TERM");
    run.success(LONG);
    let known = "select count(*), count(distinct topic_id), count(distinct cluster_id)
                   from tidegate.slices
                  where pipeline = $1 and topic_id is not null and cluster_id is not null";
    let known = |story: &mut Story| -> (i64, i64, i64) {
        let row = story.client.query_one(known, &[&story.schema]).unwrap();
        (row.get(0), row.get(1), row.get(2))
    };
    assert_eq!(known(&mut story), (2, 1, 1));

    let forget =
        "update tidegate.slices set topic_id = null, cluster_id = null where pipeline = $1";
    story.client.execute(forget, &[&story.schema]).unwrap();
    story.does("run", &["--until-end"]);
    assert_eq!(known(&mut story), (2, 1, 1));

    let elsewhere = "update tidegate.slices set cluster_id = 'elsewhere' where pipeline = $1";
    story.client.execute(elsewhere, &[&story.schema]).unwrap();
    let told = story.fails("run", &["--until-end"], 10);
    for part in ["cluster `elsewhere`", &story.topic, &story.brokers, "--set"] {
        assert!(told.contains(part), "{told}");
    }
    story.forget();
}

/// FR-48: retention removed the stored position. The run stops with the range; going on is a command.
#[test]
fn a_position_that_retention_removed_stops_the_run_with_the_range() {
    let mut story = Story::new("retention", 1);
    story.orders(0..100);
    story.does("run", &["--until-end"]);
    story.orders(100..600);
    common::delete_before(&story.topic, 0, 500);
    let told = story.fails("run", &["--until-end"], 10);
    for part in ["is stored at 100", "starts at 500", "[100, 500)", "positions --set"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(story.stored(), [(0, 100)].into());
    let place = format!("{}=earliest", story.topic);
    story.does("positions", &["--set", &place]);
    story.does("run", &["--until-end"]);
    assert_eq!(story.numbers(), (0..100).chain(500..600).collect::<Vec<_>>());
    story.forget();
}

/// FR-40: a position is the next offset to read, of partitions without a record too, and a restart writes
/// nothing.
#[test]
fn a_restart_after_a_clean_stop_reads_nothing_again() {
    let mut story = Story::new("restart", 3);
    story.orders(0..10);
    let run = story.start("run", &["-w", "2"]);
    story.until(10);
    run.signal("-TERM");
    run.success(LONG);
    assert_eq!(story.stored(), [(0, 10), (1, 0), (2, 0)].into());
    let versions =
        format!("select min(xmin::text), max(xmin::text) from {}.valid_orders", story.schema);
    let version = |story: &mut Story| -> (String, String) {
        let row = story.client.query_one(&versions, &[]).unwrap();
        (row.get(0), row.get(1))
    };
    let before = version(&mut story);
    let line = story.does("run", &["--until-end"]);
    assert_eq!(figure(&line, "consumed"), 10);
    assert_eq!(version(&mut story), before, "no row was written again");
    story.forget();
}

/// FR-41: what was read and not yet stored is committed nowhere, and read again after a crash.
#[test]
fn what_waits_in_a_batch_is_not_lost_in_a_crash() {
    let mut story = Story::new("crash", 1);
    let address = free();
    let run = story.start("run", &["--linger", "60s", "--metrics", &address]);
    until_ready(&address, 200, "", LONG);
    story.orders(0..1000);
    let read = eventually(LONG, || (figures(&address).consumed == 1000).then_some(()));
    read.expect("all is read");
    assert_eq!(story.stored(), [(0, 0)].into(), "nothing is stored");
    run.kill();
    let line = story.does("run", &["--until-end"]);
    assert_eq!(figure(&line, "consumed"), 1000);
    assert_eq!(story.numbers().len(), 1000);
    story.forget();
}

/// FR-53: an open transaction holds back what comes after it. The lag counts up to there, so it is no lag,
/// and readiness stays green; once it is over, the rest is read.
#[test]
fn what_an_open_transaction_holds_back_is_no_lag() {
    let mut story = Story::new("open", 1);
    story.orders(0..200);
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", common::brokers())
        .set("transactional.id", &story.schema)
        .create()
        .unwrap();
    producer.init_transactions(LONG).unwrap();
    producer.begin_transaction().unwrap();
    let held = Order { order_id: 200, customer: "ann".into(), status: "new", amount: 1 }.json();
    let record = BaseRecord::<(), _>::to(&story.topic).partition(0).payload(&held);
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(LONG).unwrap();
    story.orders(201..1663);
    let address = free();
    let run = story.start("run", &["--metrics", &address]);
    story.until(200);
    let known = eventually(LONG, || {
        figures_of(&address)?.partitions.first().filter(|found| found.end.is_some()).cloned()
    });
    let known = known.expect("an end was heard of");
    assert_eq!((known.durable, known.end, known.lag), (200, Some(200), Some(0)));
    until_ready(&address, 200, "", Duration::from_secs(1));
    producer.commit_transaction(LONG).unwrap();
    story.until(1663);
    run.signal("-TERM");
    run.success(LONG);
    story.forget();
}

/// FR-54: the table is locked for longer than the client's poll limit. Partitions are assigned by hand, so
/// nobody takes them away; the run waits, loses nothing, doubles nothing.
#[test]
fn a_table_that_is_locked_longer_than_the_poll_limit_costs_nothing() {
    const LOCKED: Duration = Duration::from_secs(30);
    let mut story = Story::new("locked", 2);
    let address = free();
    let limit = ["-X", "max.poll.interval.ms=6000", "--metrics", &address];
    let run = story.start("run", &[&limit[..], &["-w", "2"]].concat());
    story.produce(0..500);
    let stored = |story: &mut Story| story.stored().values().sum::<i64>();
    eventually(LONG, || (stored(&mut story) == 500).then_some(())).expect("it runs");
    let mut session = common::connect();
    let lock = format!("begin; lock table {}.valid_orders in access exclusive mode", story.schema);
    session.batch_execute(&lock).unwrap();
    story.produce(500..3000);
    // The time itself is the story.
    std::thread::sleep(LOCKED);
    let told = until_ready(&address, 503, "", Duration::from_secs(1));
    assert!(told.contains("became durable") || told.contains("has been tried"), "{told}");
    session.batch_execute("rollback").unwrap();
    eventually(LONG, || (stored(&mut story) == 3000).then_some(())).expect("it goes on");
    until_ready(&address, 200, "", Duration::from_secs(10));
    run.signal("-TERM");
    let line = run.success(LONG);
    assert_eq!(figure(&line, "consumed"), 3000);
    let expected = common::model((0..3000).map(Order::event));
    let table = format!("{}.valid_orders", story.schema);
    assert_eq!(common::rows(&mut story.client, &table), expected);
    story.forget();
}

#[derive(Clone, Serialize, Deserialize)]
struct Row {
    order_id: i64,
    customer: String,
    status: String,
    amount: i64,
}

/// One table from two topics.
fn two(engine: Engine<'_>) -> Result<()> {
    let table = Postgres::table(engine.param("table")?).key("order_id");
    let one = engine.dataframe(Kafka::topic(engine.param("one")?, Json::<Row>::new()));
    let other = engine.dataframe(Kafka::topic(engine.param("other")?, Json::<Row>::new()));
    one.concat(other).sink(table.ignore_extra_fields());
    Ok(())
}

/// FR-61: one topic of several is missing. The run ends and names it; once it is there, all are read.
#[test]
fn a_missing_topic_among_others_is_named() {
    let mut story = Story::new("one_of_two", 1);
    story.orders(0..10);
    let missing = common::unique("missing");
    let params = [
        ("one".to_owned(), story.topic.clone()),
        ("other".to_owned(), missing.clone()),
        ("table".to_owned(), format!("{}.valid_orders", story.schema)),
    ];
    let options = Options {
        params: BTreeMap::from(params),
        brokers: Some(common::brokers()),
        until_end: true,
        ..Options::default()
    };
    let pipeline = Pipeline::new(&story.schema, two);
    let error = pipeline.run(&options).expect_err("a topic is missing");
    assert_eq!(error.kind(), Kind::Source);
    let (told, brokers) = (error.to_string(), common::brokers());
    assert!(told.contains(&format!("topic `{missing}` does not exist on `{brokers}`")), "{told}");
    assert!(!told.contains(&story.topic), "{told}");

    common::create(&common::brokers(), &missing, 1, 1, &[]);
    let order = Order { order_id: 77, customer: "ann".into(), status: "new", amount: 1 };
    common::produce(&missing, [(0, b"77".to_vec(), Some(order.json()))]);
    assert_eq!(pipeline.run(&options).unwrap().counters.consumed, 11);
    assert_eq!(story.numbers().len(), 11);
    story.forget();
}

/// FR-65: 64 partitions of large records that compress well, and a sink that stands still. Memory stays
/// within what docs/faults.md states: rows on their way to a table with a key lie there more than once.
#[test]
fn memory_stays_within_its_budget_while_the_sink_stands() {
    const BUDGET: u64 = 96;
    const FIXED: u64 = 64;
    let mut story = Story::new("memory", 64);
    // Ten to one: a tenth of each is noise.
    let noise: String = (0..2_500).map(|n| format!("{:08x}", common::mix(n) as u32)).collect();
    let customer = noise + &"x".repeat(180_000);
    let messages = (0..64 * 40).map(|n: i64| {
        let order = Order { order_id: n, customer: customer.clone(), status: "new", amount: n };
        ((n % 64) as i32, n.to_string().into_bytes(), Some(order.json()))
    });
    common::produce(&story.topic, messages);
    let mut session = common::connect();
    let lock = format!("begin; lock table {}.valid_orders in access exclusive mode", story.schema);
    session.batch_execute(&lock).unwrap();
    let address = free();
    let memory = format!("{BUDGET}MB");
    let run = story.start("run", &["-w", "2", "--memory", &memory, "--metrics", &address]);
    // It must have read something, and then stand.
    let running = || figures_of(&address).is_some_and(|found| found.consumed > 0).then_some(());
    eventually(LONG, running).expect("it reads");
    let (began, mut most, mut grown) = (Instant::now(), 0, Instant::now());
    // Until it has not grown for 10 s, for a minute at the most.
    while grown.elapsed() < Duration::from_secs(10) && began.elapsed() < Duration::from_secs(60) {
        let status = std::fs::read_to_string(format!("/proc/{}/status", run.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        if kilobytes / 1024 > most {
            (most, grown) = (kilobytes / 1024, Instant::now());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let held = figures(&address).consumed;
    assert!(held < 64 * 40, "the sink stands, so not all may be read: {held}");
    assert!(most <= 2 * BUDGET + FIXED, "{most} MiB with a budget of {BUDGET} MB");
    session.batch_execute("rollback").unwrap();
    story.until(64 * 40);
    run.signal("-TERM");
    run.success(LONG);
    common::delete(&story.topic);
    story.forget();
}

/// The figures of a run, once it answers.
fn figures_of(address: &str) -> Option<Snapshot> {
    let text = common::http::ask(address, "GET", "/status.json", "")?.body;
    serde_json::from_str(&text).ok()
}

/// FR-68: records far above what the client asks for at a time are stored, and those of other partitions and
/// after them are too.
#[test]
fn records_above_the_fetch_size_pass() {
    let mut story = Story::new("oversize", 2);
    let large = |order_id: i64, size: usize| {
        let customer = "x".repeat(size);
        let order = Order { order_id, customer, status: "new", amount: order_id };
        (0, order_id.to_string().into_bytes(), Some(order.json()))
    };
    let small = |partition: i32, order_id: i64| (partition, vec![], large(order_id, 5).2);
    let messages = [
        small(0, 1),
        large(2, 1_100_000),
        small(1, 3),
        large(4, 20_000_000),
        small(0, 5),
        small(1, 6),
    ];
    common::produce(&story.topic, messages);
    let limits = ["fetch.message.max.bytes=100000", "fetch.max.bytes=100000"];
    let line = story.does(
        "run",
        &["--until-end", "-X", limits[0], "-X", limits[1], "-X", "message.max.bytes=50000"],
    );
    assert_eq!((figure(&line, "consumed"), figure(&line, "written")), (6, 6));
    let query =
        format!("select length(customer) from {}.valid_orders order by order_id", story.schema);
    let rows = story.client.query(&query, &[]).unwrap();
    let sizes: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
    assert_eq!(sizes, [5, 1_100_000, 5, 20_000_000, 5, 5]);
    story.forget();
}
