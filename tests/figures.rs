//! What a run says of itself, without services: from before it stands until after it has ended.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::cluster::Flags;
use tidegate::figures::{Figures, Phase, Snapshot};
use tidegate::run::Stop;
use tidegate::sink::{self, Failure, MemoryStore};
use tidegate::source::{self, Script, Step};
use tidegate::{Error, Options, Pipeline};

/// Waits until the figures are as `is` wants them.
fn eventually(figures: &Figures, is: impl Fn(&Snapshot) -> bool) -> Snapshot {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let snapshot = figures.snapshot();
        if is(&snapshot) {
            return snapshot;
        }
        assert!(Instant::now() < deadline, "{snapshot:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn options(threads: usize) -> Options {
    Options { flags: Flags { threads, ..Flags::default() }, ..Options::default() }
}

/// Three partitions of ten rows, the first with a bad record in front.
fn numbers() -> Arc<Script<u64>> {
    let rows = |from: u64| (from..from + 10).map(Step::Row);
    let first = std::iter::once(Step::Bad).chain(rows(0)).collect();
    Script::new(vec![first, rows(10).collect(), rows(20).collect()])
}

/// Even numbers into one table; those from 10 on, and the small ones twice, into another.
fn pipeline(name: &str, store: &Arc<MemoryStore>) -> Pipeline {
    let script = numbers();
    let (even, all) = (sink::Memory::table(store, "even"), sink::Memory::table(store, "all"));
    Pipeline::new(name, move |engine| {
        let numbers = engine.dataframe(source::Memory::new("numbers", Arc::clone(&script)));
        numbers.clone().filter(|n| n % 2 == 0).sink(even.clone());
        let [large, small] = numbers.partition(|n| usize::from(*n < 10));
        large.concat(small.clone()).concat(small).sink(all.clone());
        Ok(())
    })
}

#[test]
fn a_run_counts_what_passes_each_node_and_what_each_slice_has_committed() {
    for threads in [1, 2, 4] {
        let options = Options { until_end: true, measure: true, ..options(threads) };
        let store = MemoryStore::new();
        let summary = pipeline("counted", &store).run(&options).unwrap();
        let snapshot = options.figures.snapshot();
        assert_eq!(
            (snapshot.phase, snapshot.ready.ok, snapshot.live.ok),
            (Phase::Ended, false, true)
        );
        assert_eq!((snapshot.consumed, snapshot.lag()), (31, 0));
        assert_eq!(snapshot.planned, Some(62), "31 offsets for each of two sinks");
        let nodes: Vec<_> = snapshot.nodes.iter().map(|n| (n.kind.as_str(), n.records)).collect();
        assert_eq!(
            nodes,
            [
                ("source", 30),
                ("filter", 15),
                ("sink", 15),
                ("partition", 30),
                ("concat", 30),
                ("concat", 40),
                ("sink", 40),
            ]
        );
        assert_eq!(snapshot.nodes[5].inputs, [4, 3]);
        let stored = store.stored("counted");
        assert_eq!((snapshot.partitions.len(), snapshot.slices.len()), (3, stored.len()));
        for slice in &snapshot.slices {
            let same = stored.iter().find(|stored| {
                (stored.key.sink.as_str(), stored.key.partition.0) == (&slice.sink, slice.partition)
            });
            let same = same.expect("it is stored");
            assert_eq!(slice.position, same.position.0);
            assert_eq!((slice.consumed, slice.rows), (same.counters.consumed, same.counters.rows));
        }
        for partition in &snapshot.partitions {
            let end = if partition.partition == 0 { 11 } else { 10 };
            assert_eq!((partition.position, partition.durable), (end, end));
            assert_eq!((partition.end, partition.durable_age_ms), (Some(end), 0));
            assert_eq!(partition.worker, partition.partition as usize % threads);
            assert!(partition.bytes > 0);
        }
        assert_eq!(snapshot.sum(|slice| slice.written), summary.counters.written);
        assert_eq!(snapshot.sum(|slice| slice.filtered), summary.counters.filtered);
        let rejects: Vec<_> =
            snapshot.rejects.iter().map(|r| (&*r.sink, &*r.step, r.count, &*r.example)).collect();
        assert_eq!(
            rejects,
            [("all", "decode", 1, "numbers[0]@0"), ("even", "decode", 1, "numbers[0]@0")]
        );
        assert_eq!(snapshot.workers.len(), threads);
        for worker in &snapshot.workers {
            assert_eq!((worker.in_flight_bytes, worker.queued_epochs), (0, 0));
        }
        assert_eq!(snapshot.stores.len(), 1);
        assert!(snapshot.stores[0].flushes > 0);
        assert_eq!(snapshot.stores[0].rows.count, snapshot.stores[0].flushes);
        assert_eq!(snapshot.stores[0].rows.sum, 15.0 + 40.0 + 2.0);
    }
}

#[test]
fn where_it_is_measured_time_is_told_apart() {
    let store = MemoryStore::new();
    let run = |measure: bool| {
        let stop = Stop::default();
        let options = Options { measure, stop: stop.clone(), ..options(1) };
        let script = Script::new(vec![(0..50).map(Step::Row).collect()]);
        let table = sink::Memory::<u64>::table(&store, "slow");
        let name = format!("measured {measure}");
        let pipeline = Pipeline::new(name, move |engine| {
            let numbers = engine.dataframe(source::Memory::new("numbers", Arc::clone(&script)));
            let slow = numbers.inspect(|_| std::thread::sleep(Duration::from_millis(2)));
            slow.sink(table.clone());
            Ok(())
        });
        std::thread::scope(|scope| {
            let run = scope.spawn(|| pipeline.run(&options));
            // Once it has nothing to do it waits, up to a second at a time.
            let told = |s: &Snapshot| s.workers.iter().any(|worker| worker.parked_ms > 0);
            eventually(&options.figures, |s| s.lag() == 0 && s.consumed == 50);
            if measure {
                eventually(&options.figures, told);
            }
            stop.request();
            run.join().unwrap().unwrap();
        });
        options.figures.snapshot()
    };
    let snapshot = run(true);
    let (worker, slow) = (&snapshot.workers[0], &snapshot.nodes[1]);
    assert!(slow.busy_ms >= 100 && worker.busy_ms >= slow.busy_ms, "{worker:?} {slow:?}");
    assert!(snapshot.nodes[2].busy_ms < 50, "{:?}", snapshot.nodes[2]);
    assert_eq!(snapshot.skew(), Some(1.0));
    let snapshot = run(false);
    assert_eq!((snapshot.workers[0].busy_ms, snapshot.nodes[1].busy_ms), (0, 0));
}

#[test]
fn a_standby_says_for_whom_it_waits_and_then_runs() {
    let store = MemoryStore::new();
    let (one, two) = (Stop::default(), Stop::default());
    let first = Options { stop: one.clone(), ..options(1) };
    let second = Options { stop: two.clone(), ..options(2) };
    assert_eq!(second.figures.snapshot().phase, Phase::Connecting, "before it runs");
    let pipeline = pipeline("standby", &store);
    std::thread::scope(|scope| {
        let run = scope.spawn(|| pipeline.run(&first));
        let ready = eventually(&first.figures, |s| s.phase == Phase::Running && s.consumed == 31);
        assert!(ready.ready.ok && ready.running_ms >= ready.started_ms);
        let standby = scope.spawn(|| pipeline.run(&second));
        let waiting = eventually(&second.figures, |s| s.phase == Phase::Standby);
        assert!(!waiting.ready.ok && waiting.live.ok);
        assert!(waiting.ready.reason.contains("held by another run"), "{}", waiting.ready.reason);
        assert_eq!((waiting.nodes.len(), waiting.sinks.len()), (7, 2), "the plan is known");
        one.request();
        run.join().unwrap().unwrap();
        assert_eq!(first.figures.snapshot().phase, Phase::Ended);
        eventually(&second.figures, |s| s.phase == Phase::Running && s.ready.ok);
        two.request();
        standby.join().unwrap().unwrap();
    });
}

#[test]
fn a_run_that_fails_says_with_what() {
    let store = MemoryStore::new();
    store.fail_after(1, Failure::Before);
    let options = options(1);
    let error: Error = pipeline("fails", &store).run(&options).unwrap_err();
    let snapshot = options.figures.snapshot();
    assert_eq!((snapshot.phase, &snapshot.detail), (Phase::Failed, &error.to_string()));
    assert!(!snapshot.ready.ok && snapshot.ready.reason.contains("scripted to fail"));
    assert_eq!(snapshot.sum(|slice| slice.consumed), 0, "nothing was committed");
}
