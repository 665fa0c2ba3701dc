//! Random scripts against a sequential model, without services: the same answer for every worker count,
//! across faults and restarts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tidegate::cluster::Flags;
use tidegate::record::{Offset, Partition, Policy};
use tidegate::sink::{self, Failure, MemoryStore, Pace};
use tidegate::source::{self, Script, Step};
use tidegate::{Kind, Options, Pipeline};

/// A key, its version, and whether a filter keeps it.
type Event = (u8, u32, bool);

#[derive(Clone, Debug)]
enum Act {
    Put(u8, bool),
    Delete(u8),
    Bad,
    Gap(u16),
    Stall,
    Fault,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        20 => (0..8u8, prop::bool::weighted(0.7)).prop_map(|(key, keep)| Act::Put(key, keep)),
        3 => (0..8u8).prop_map(Act::Delete),
        2 => Just(Act::Bad),
        2 => (1..4u16).prop_map(Act::Gap),
        2 => Just(Act::Stall),
        1 => Just(Act::Fault),
    ]
}

/// The steps of a script. Keys are kept apart by partition, as a Kafka producer's hash does.
fn script(acts: &[Vec<Act>]) -> Arc<Script<Event>> {
    let mut version = 0;
    let steps = acts.iter().enumerate().map(|(partition, acts)| {
        let own = |key: &u8| key * 16 + partition as u8;
        let step = |act: &Act| match act {
            Act::Put(key, keep) => {
                version += 1;
                Step::Row((own(key), version, *keep))
            }
            Act::Delete(key) => Step::Delete(vec![own(key)]),
            Act::Bad => Step::Bad,
            Act::Gap(offsets) => Step::Gap(*offsets),
            Act::Stall => Step::Stall,
            Act::Fault => Step::fault(),
        };
        acts.iter().map(step).collect()
    });
    Script::new(steps.collect())
}

/// The ten-line model: kept events in order, the table by key, and the counts.
fn model(acts: &[Vec<Act>]) -> (Vec<Event>, BTreeMap<u8, Event>, u64, u64) {
    let (mut log, mut table, mut consumed, mut bad, mut version) =
        (Vec::new(), BTreeMap::new(), 0, 0, 0);
    for (partition, acts) in acts.iter().enumerate() {
        for act in acts {
            match act {
                Act::Put(key, keep) => {
                    version += 1;
                    consumed += 1;
                    let event = (key * 16 + partition as u8, version, *keep);
                    if *keep {
                        log.push(event);
                        table.insert(event.0, event);
                    }
                }
                Act::Delete(key) => {
                    consumed += 1;
                    table.remove(&(key * 16 + partition as u8));
                }
                Act::Bad => (consumed, bad) = (consumed + 1, bad + 1),
                Act::Gap(_) | Act::Stall | Act::Fault => {}
            }
        }
    }
    (log, table, consumed, bad)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_run_ends_as_the_model_whatever_fails_on_the_way(
        acts in prop::collection::vec(prop::collection::vec(act(), 0..60), 1..5),
        failures in prop::collection::vec((1..6u64, any::<bool>()), 0..4),
        workers in prop::collection::vec(1..5usize, 8),
    ) {
        let script = script(&acts);
        let store = MemoryStore::new();
        let log = sink::Memory::<Event>::table(&store, "log");
        let table = sink::Memory::<Event>::table(&store, "table").key(|event| vec![event.0]);
        for (after, before) in failures {
            store.fail_after(after, if before { Failure::Before } else { Failure::After });
        }
        let met = sink::Memory::<Event>::table(&store, "met").key(|event| vec![event.0]);
        let pipeline = {
            let (script, log, table) = (Arc::clone(&script), log.clone(), table.clone());
            let met = met.clone();
            Pipeline::new("model", move |engine| {
                let kept = engine
                    .dataframe(source::Memory::new("events", Arc::clone(&script)).policy(Policy::Skip))
                    .filter(|event| event.2);
                kept.clone().sink(log.clone());
                kept.clone().sink(table.clone());
                // Frames that part and meet again keep the order of each partition.
                let [even, odd] = kept.partition(|event| event.1 as usize % 2);
                even.concat(odd).sink(met.clone());
                Ok(())
            })
        };
        let mut runs = 0;
        loop {
            let options = Options {
                flags: Flags { threads: workers[runs % workers.len()], ..Flags::default() },
                until_end: true,
                tick: Duration::from_millis(1),
                pace: Pace { linger: Duration::from_millis(3), ..Pace::default() },
                ..Options::default()
            };
            match pipeline.run(&options) {
                Ok(_) => break,
                Err(error) => prop_assert!(
                    matches!(error.kind(), Kind::Source | Kind::Sink), "{error}"
                ),
            }
            runs += 1;
            prop_assert!(runs < 1000, "each fault happens once");
        }

        let (expected_log, expected_table, consumed, bad) = model(&acts);
        let mut written = log.rows();
        written.sort_by_key(|event| event.1);
        prop_assert_eq!(written, expected_log);
        let rows: BTreeMap<u8, Event> = table.rows().into_iter().map(|row| (row.0, row)).collect();
        prop_assert_eq!(&rows, &expected_table);
        let rows: BTreeMap<u8, Event> = met.rows().into_iter().map(|row| (row.0, row)).collect();
        prop_assert_eq!(&rows, &expected_table);
        let ends = script.ends();
        for slice in store.stored("model") {
            prop_assert_eq!(slice.position, ends[&slice.key.partition]);
        }
        for sink in ["log", "table", "met"] {
            let slices = store.stored("model").into_iter().filter(|slice| slice.key.sink == sink);
            let mut total = tidegate::position::Counters::default();
            slices.for_each(|slice| total += slice.counters);
            prop_assert_eq!(total.consumed, consumed);
            prop_assert_eq!(total.rejected, bad);
            prop_assert_eq!(
                total.consumed,
                total.filtered + total.written + total.rejected + total.collapsed
            );
        }
        let expected: BTreeMap<Partition, Offset> = ends.into_iter().filter(|(_, end)| end.0 > 0).collect();
        prop_assert_eq!(script.committed().into_iter().filter(|(_, end)| end.0 > 0).collect::<BTreeMap<_, _>>(), expected);

        // The log says the same when it is counted again, and nobody notices that it is.
        let before = (store.stored("model"), script.committed(), log.rows());
        let flags = Flags { threads: workers[0], ..Flags::default() };
        let recount = pipeline.recount(&Options { flags, ..Options::default() }).unwrap();
        prop_assert_eq!(recount.differences(), 0, "{:?}", recount);
        prop_assert_eq!(recount.records(), 3 * consumed);
        prop_assert_eq!((store.stored("model"), script.committed(), log.rows()), before);
    }
}

#[test]
fn frames_that_part_and_meet_again_keep_the_order_of_a_partition() {
    let row = |key: u8, version: u32, odd: bool| Step::Row((key, version, odd));
    let steps = vec![
        row(1, 1, false),
        row(1, 2, true),
        row(1, 3, false),
        Step::Delete(vec![2]),
        row(2, 4, false),
        row(3, 5, true),
        Step::Delete(vec![3]),
    ];
    let script = Script::new(vec![steps]);
    let store = MemoryStore::new();
    let table = sink::Memory::<Event>::table(&store, "table").key(|event| vec![event.0]);
    let rows = table.clone();
    let pipeline = Pipeline::new("diamond", move |engine| {
        let [even, odd] = engine
            .dataframe(source::Memory::new("events", Arc::clone(&script)))
            .partition(|event| usize::from(event.2));
        even.concat(odd).sink(table.clone());
        Ok(())
    });
    let summary = pipeline.run(&Options { until_end: true, ..Options::default() }).unwrap();
    let rows: BTreeMap<u8, u32> = rows.rows().iter().map(|event| (event.0, event.1)).collect();
    assert_eq!(rows, [(1, 3), (2, 4)].into());
    assert_eq!((summary.counters.consumed, summary.counters.filtered), (7, 0));
}

#[test]
fn a_source_that_was_taken_from_a_sink_is_not_read_again_for_it() {
    let store = MemoryStore::new();
    let first = sink::Memory::<u64>::table(&store, "first");
    let second = sink::Memory::<u64>::table(&store, "second");
    // The first sink takes `b` too, or has had it taken away; the second follows `b`.
    let run = |both: bool, rows: u64| {
        let script = |rows| Script::new(vec![(0..rows).map(Step::Row).collect()]);
        let (a, b) = (script(2), script(rows));
        let (first, second) = (first.clone(), second.clone());
        let pipeline = Pipeline::new("taken", move |engine| {
            let a = engine.dataframe(source::Memory::new("a", Arc::clone(&a)));
            let b = engine.dataframe(source::Memory::new("b", Arc::clone(&b)));
            if both { a.concat(b.clone()) } else { a }.sink(first.clone());
            b.sink(second.clone());
            Ok(())
        });
        let options = Options { until_end: true, ..Options::default() };
        pipeline.run(&options).unwrap();
        options.figures.snapshot().consumed
    };
    assert_eq!(run(true, 3), 5);
    assert_eq!(run(false, 7), 4);
    assert_eq!(run(false, 9), 2);
    assert_eq!((first.rows().len(), second.rows().len()), (5, 9));
    // It goes on from where it was.
    assert_eq!(run(true, 9), 6);
    assert_eq!((first.rows().len(), second.rows().len()), (11, 9));
}
