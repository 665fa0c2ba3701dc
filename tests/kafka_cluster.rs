//! Brokers that go away, come back, and hand partitions to each other. The tests start their own.

mod common;

use std::time::{Duration, Instant};

use common::http::until_ready;
use common::leaders::lead;
use common::load::free;
use common::orders::{Story, figures};
use common::services::Services;
use common::{Order, eventually, figure, model, rows};
use rdkafka::consumer::{BaseConsumer, Consumer};

const LONG: Duration = Duration::from_secs(90);

/// A broker that is away at the start ends the run soon, in one sentence; one that goes away meanwhile turns
/// readiness red, also of a run that has nothing to do, and the run goes on by itself once it is back.
/// FR-64: it can be asked to end all the while.
#[test]
fn a_broker_that_is_away_is_told_waited_for_and_no_obstacle_to_an_end() {
    let services = Services::start(0, 1, false);
    let brokers = services.brokers();
    let mut story = Story::on(&brokers, "away", 2, 1);
    story.produce(0..500);
    let address = free();
    let run = story.start("run", &["-w", "2", "--metrics", &address]);
    let stored = |story: &mut Story| story.stored().values().sum::<i64>();
    eventually(LONG, || (stored(&mut story) == 500).then_some(())).expect("it runs");
    until_ready(&address, 200, "", LONG);

    services.kill(0);
    let away = Instant::now();
    let told = until_ready(&address, 503, "", Duration::from_secs(30));
    assert!(away.elapsed() > Duration::from_secs(5), "a moment is no reason: {told}");
    for part in ["no broker has said", &story.topic, "Connect"] {
        assert!(told.contains(part), "{told}");
    }
    services.restart(0);
    until_ready(&address, 200, "", Duration::from_secs(30));
    story.produce(500..1500);
    eventually(LONG, || (stored(&mut story) == 1500).then_some(())).expect("it goes on");
    let table = format!("{}.valid_orders", story.schema);
    assert_eq!(rows(&mut story.client, &table), model((0..1500).map(Order::event)));

    // With the broker away, a run ends within its grace period, in good order.
    services.kill(0);
    until_ready(&address, 503, "", Duration::from_secs(30));
    let asked = Instant::now();
    run.signal("-TERM");
    let line = run.success(Duration::from_secs(20));
    assert!(asked.elapsed() < Duration::from_secs(10), "{:?}", asked.elapsed());
    assert_eq!(figure(&line, "consumed"), 1500);

    // And none begins.
    let began = Instant::now();
    let told = story.fails("run", &[], 4);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    for part in [&*brokers, "does not answer within 10 s", "Connection refused"] {
        assert!(told.contains(part), "{told}");
    }
    // One that waits for its broker can be asked to end as well.
    let run = story.start("run", &[]);
    std::thread::sleep(Duration::from_millis(500));
    run.signal("-TERM");
    let (status, out, err) = run.wait(Duration::from_secs(15));
    assert!(matches!(status.code(), Some(0 | 4)), "{status}\n{out}\n{err}");
    story.forget();
}

/// FR-59: the leader of a partition moves 50 times under load. Every partition advances, the table is as the
/// model has it, and no position jumps.
#[test]
fn a_leader_that_moves_fifty_times_costs_nothing() {
    let services = Services::start(1, 3, false);
    let mut story = Story::on(&services.brokers(), "moved", 4, 3);
    let address = free();
    let run = story.start("run", &["-w", "2", "--metrics", &address]);
    until_ready(&address, 200, "", LONG);
    let mut events = 0;
    for round in 0..50 {
        story.produce(events..events + 400);
        events += 400;
        let first = round % 3;
        lead(&story.brokers, &story.topic, [first, (first + 1) % 3, (first + 2) % 3]);
    }
    story.produce(events..events + 400);
    events += 400;
    let stored = |story: &mut Story| story.stored().values().sum::<i64>();
    let all = eventually(LONG, || (stored(&mut story) == events as i64).then_some(()));
    assert!(all.is_some(), "{} of {events}: {:?}", stored(&mut story), story.stored());
    let figures = figures(&address);
    assert!(figures.ready.ok, "{}", figures.ready.reason);
    assert!(figures.partitions.iter().all(|partition| partition.consumed > 0));
    // A broker that dies takes its leaders with it, and the others go on.
    services.kill(2);
    story.produce(events..events + 400);
    events += 400;
    let all = eventually(LONG, || (stored(&mut story) == events as i64).then_some(()));
    assert!(all.is_some(), "{} of {events}: {:?}", stored(&mut story), story.stored());
    run.signal("-TERM");
    let (status, out, err) = run.wait(LONG);
    assert!(status.success(), "{status}\n{out}\n{err}");
    let line = out.lines().last().unwrap_or_default();
    assert_eq!(figure(line, "consumed"), events);
    assert!(!err.contains("outside of the log"), "{err}");
    let table = format!("{}.valid_orders", story.schema);
    assert!(rows(&mut story.client, &table) == model((0..events).map(Order::event)));
    story.forget();
}

/// Leader and replicas of partition 0.
fn leader(brokers: &str, topic: &str) -> (i32, Vec<i32>) {
    let mut client = rdkafka::ClientConfig::new();
    let client: BaseConsumer = client.set("bootstrap.servers", brokers).create().unwrap();
    let metadata = eventually(LONG, || client.fetch_metadata(Some(topic), LONG).ok());
    let metadata = metadata.expect("a broker answers");
    let partition = &metadata.topics()[0].partitions()[0];
    (partition.leader(), partition.replicas().to_vec())
}

/// FR-48, FR-59: a replica that had not followed became the leader, the log was cut off and written again,
/// beyond the stored position. What lies before it now is not what was read: the run says so, between two runs
/// too.
#[test]
fn a_log_that_was_cut_off_and_written_again_is_not_read_from_the_old_position() {
    let services = Services::start(2, 3, false);
    let mut story = Story::with(
        &services.brokers(),
        "unclean",
        (1, 2),
        &[("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")],
    );
    story.produce(0..50);
    let (first, replicas) = leader(&story.brokers, &story.topic);
    let second = *replicas.iter().find(|replica| **replica != first).expect("two replicas");
    services.kill(second as u16);
    story.produce(50..150);
    story.does("run", &["--until-end"]);
    assert_eq!(story.stored(), [(0, 150)].into());

    services.kill(first as u16);
    services.restart(second as u16);
    let led = || (leader(&story.brokers, &story.topic).0 == second).then_some(());
    eventually(LONG, led).expect("the one that had not followed leads");
    story.produce(1000..1200);
    let told = story.fails("run", &["--until-end"], 10);
    for part in ["position 150", &story.topic, "cut off and written again", "positions --set"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(story.stored(), [(0, 150)].into());
    let place = format!("{}[0]=50", story.topic);
    story.does("positions", &["--set", &place]);
    assert_eq!(figure(&story.does("run", &["--until-end"]), "consumed"), 350);
    story.forget();
}
