//! Brokers that go away, come back, and hand partitions to each other. The tests start their own.

mod common;

use std::time::{Duration, Instant};

use common::leaders::lead;
use common::load::free;
use common::orders::{Story, figures, until_probed};
use common::services::Services;
use common::{Order, eventually, figure, model, rows};

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
    until_probed(&address, 200, LONG);

    services.kill(0);
    let away = Instant::now();
    let told = until_probed(&address, 503, Duration::from_secs(30));
    assert!(away.elapsed() > Duration::from_secs(5), "a moment is no reason: {told}");
    for part in ["no broker has said", &story.topic, "Connect"] {
        assert!(told.contains(part), "{told}");
    }
    services.restart(0);
    until_probed(&address, 200, Duration::from_secs(30));
    story.produce(500..1500);
    eventually(LONG, || (stored(&mut story) == 1500).then_some(())).expect("it goes on");
    let table = format!("{}.valid_orders", story.schema);
    assert_eq!(rows(&mut story.client, &table), model((0..1500).map(Order::event)));

    // With the broker away, a run ends within its grace period, in good order.
    services.kill(0);
    until_probed(&address, 503, Duration::from_secs(30));
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
    until_probed(&address, 200, LONG);
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
