//! Faults inside a process end its run, also with other workers that have none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::cluster::Flags;
use tidegate::codec::Decoded;
use tidegate::record::{Change, Offset, Partition, Policy, Record, Refusal};
use tidegate::run::Stop;
use tidegate::sink::{self, MemoryStore};
use tidegate::source::{self, Script, Step};
use tidegate::{Codec, Kind, Options, Pipeline};

fn workers(threads: usize) -> Options {
    Options { flags: Flags { threads, ..Flags::default() }, ..Options::default() }
}

/// Partitions without an end, of which partition 0 has these steps.
fn endless(steps: Vec<Step<u64>>) -> Arc<Script<u64>> {
    Script::new(vec![steps, vec![Step::Row(1)], vec![Step::Row(2)], vec![Step::Row(3)]])
}

/// A source whose reader panics, as a defect of ours would: users' closures are caught, this is not.
struct Broken(source::Memory<u64>);

impl source::Source for Broken {
    type Value = u64;

    fn name(&self) -> String {
        source::Source::name(&self.0)
    }

    fn policy(&self) -> Policy {
        source::Source::policy(&self.0)
    }

    fn catalog(&self, settings: &source::Settings) -> tidegate::Result<Box<dyn source::Catalog>> {
        self.0.catalog(settings)
    }

    fn reader(
        &self,
        settings: &source::Settings,
        assignment: source::Assignment,
    ) -> tidegate::Result<Box<dyn source::Reader<u64>>> {
        Ok(Box::new(Panics(self.0.reader(settings, assignment)?)))
    }
}

struct Panics(Box<dyn source::Reader<u64>>);

impl source::Reader<u64> for Panics {
    fn poll(
        &mut self,
        limit: usize,
        batch: &mut source::Batch<u64>,
    ) -> tidegate::Result<source::Poll> {
        let poll = self.0.poll(limit, batch);
        assert!(batch.rows.iter().all(|row| row.change != Change::Put(7)), "a defect");
        poll
    }

    fn commit(
        &mut self,
        positions: &BTreeMap<Partition, Offset>,
        wait: bool,
    ) -> tidegate::Result<()> {
        self.0.commit(positions, wait)
    }

    fn standings(&self) -> Vec<source::Standing> {
        self.0.standings()
    }
}

#[test]
fn a_worker_that_panics_ends_the_run_of_all_workers_in_seconds() {
    let store = MemoryStore::new();
    let script = endless(vec![Step::Row(0), Step::Stall, Step::Row(7)]);
    let table = sink::Memory::table(&store, "table");
    let pipeline = Pipeline::new("panics", move |engine| {
        engine
            .dataframe(Broken(source::Memory::new("numbers", Arc::clone(&script))))
            .sink(table.clone());
        Ok(())
    });
    let started = Instant::now();
    let error = pipeline.run(&workers(4)).unwrap_err();
    assert_eq!(error.kind(), Kind::Internal);
    assert!(error.to_string().contains("a defect"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_refused_record_stops_the_run_with_its_coordinates_and_loses_nothing() {
    let store = MemoryStore::new();
    let script = endless(vec![Step::Row(10), Step::Stall, Step::Bad, Step::Row(11)]);
    let table = sink::Memory::table(&store, "table");
    let run = |policy| {
        let (script, table) = (Arc::clone(&script), table.clone());
        let pipeline = Pipeline::new("refused", move |engine| {
            engine
                .dataframe(source::Memory::new("numbers", Arc::clone(&script)).policy(policy))
                .sink(table.clone());
            Ok(())
        });
        pipeline.run(&Options { until_end: true, ..workers(2) })
    };
    let error = run(Policy::Stop).unwrap_err();
    assert_eq!(error.kind(), Kind::Refused);
    assert!(error.to_string().contains("`numbers[0]@1`"), "{error}");
    let stored = store.stored("refused");
    assert!(stored.iter().all(|slice| slice.position.0 <= 1), "{stored:?}");

    let summary = run(Policy::Skip).unwrap();
    assert_eq!(summary.counters.consumed, 6);
    assert_eq!(summary.counters.rejected, 1);
    let mut rows = table.rows();
    rows.sort_unstable();
    assert_eq!(rows, [1, 2, 3, 10, 11]);
}

#[test]
fn a_closure_that_panics_refuses_its_record_alone() {
    let store = MemoryStore::new();
    let script = endless(vec![Step::Row(10), Step::Row(0), Step::Row(20)]);
    let table = sink::Memory::table(&store, "table");
    let rows = table.clone();
    let pipeline = Pipeline::new("closures", move |engine| {
        engine
            .dataframe(source::Memory::new("numbers", Arc::clone(&script)).policy(Policy::Skip))
            .map(|number| 60 / number)
            .sink(table.clone());
        Ok(())
    });
    let summary = pipeline.run(&Options { until_end: true, ..workers(1) }).unwrap();
    assert_eq!(summary.counters.rejected, 1);
    let mut rows = rows.rows();
    rows.sort_unstable();
    assert_eq!(rows, [3, 6, 20, 30, 60]);
}

#[test]
fn a_dataflow_that_says_something_else_when_built_is_refused() {
    let store = MemoryStore::new();
    let script = endless(vec![]);
    let calls = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let pipeline = Pipeline::new("fickle", move |engine| {
        let frame = engine.dataframe(source::Memory::new("numbers", Arc::clone(&script)));
        let first = calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        let frame = if first { frame } else { frame.filter(|_| true) };
        frame.sink(sink::Memory::table(&store, "table"));
        Ok(())
    });
    let error = pipeline.run(&workers(1)).unwrap_err();
    assert_eq!(error.kind(), Kind::Config);
}

#[test]
fn a_stop_flushes_what_lingers_and_commits_it() {
    let store = MemoryStore::new();
    let script = endless(vec![Step::Row(10)]);
    let table = sink::Memory::table(&store, "table");
    let rows = table.clone();
    let source = Arc::clone(&script);
    let pipeline = Pipeline::new("stops", move |engine| {
        engine.dataframe(source::Memory::new("numbers", Arc::clone(&source))).sink(table.clone());
        Ok(())
    });
    let stop = Stop::default();
    let mut options = Options { stop: stop.clone(), ..workers(3) };
    options.pace.linger = Duration::from_secs(3600);
    let summary = std::thread::scope(|scope| {
        let run = scope.spawn(|| pipeline.run(&options));
        while options.figures.snapshot().consumed < 4 {
            std::thread::yield_now();
        }
        stop.request();
        run.join().unwrap().unwrap()
    });
    assert_eq!(summary.counters.written, 4);
    assert_eq!(rows.rows().len(), 4);
    assert_eq!(script.committed(), script.ends());
    assert!(summary.elapsed < Duration::from_secs(10));
}

#[test]
fn limits_of_nothing_make_a_transaction_of_every_epoch() {
    for (max_rows, max_bytes) in [(0, usize::MAX), (usize::MAX, 0)] {
        let store = MemoryStore::new();
        let script = endless(vec![Step::Row(0)]);
        let table = sink::Memory::table(&store, "table");
        let pipeline = Pipeline::new("nothing", move |engine| {
            let source = source::Memory::new("numbers", Arc::clone(&script));
            engine.dataframe(source).sink(table.clone());
            Ok(())
        });
        let mut options = Options { until_end: true, ..workers(2) };
        (options.pace.max_rows, options.pace.max_bytes) = (max_rows, max_bytes);
        let (ended, end) = std::sync::mpsc::channel();
        std::thread::spawn(move || ended.send(pipeline.run(&options)));
        let summary = end.recv_timeout(Duration::from_secs(10)).expect("it ends").unwrap();
        assert_eq!(summary.counters.written, 4);
    }
}

#[test]
fn a_source_that_waits_for_room_has_what_lingers_stored() {
    // Worker 1 has one row that lingers. Worker 0 may have few bytes under way, and writes no row.
    let dropped = (0..5000).map(|_| Step::Row(0)).collect();
    let script = Script::new(vec![dropped, vec![Step::Row(1)]]);
    let store = MemoryStore::new();
    let table = sink::Memory::table(&store, "table");
    let pipeline = Pipeline::new("lingers", move |engine| {
        engine
            .dataframe(source::Memory::new("numbers", Arc::clone(&script)))
            .filter(|number| *number > 0)
            .sink(table.clone());
        Ok(())
    });
    let mut options = Options { until_end: true, memory: 1 << 16, ..workers(2) };
    options.pace.linger = Duration::from_secs(20);
    let summary = pipeline.run(&options).unwrap();
    assert_eq!((summary.counters.filtered, summary.counters.written), (5000, 1));
    assert!(summary.elapsed < Duration::from_secs(10), "{summary}");
}

/// A codec that keeps the record's coordinates.
#[derive(Clone)]
struct Offsets;

impl Codec for Offsets {
    type Value = (i32, i64);

    fn decode(&mut self, record: &Record<'_>) -> Result<Decoded<(i32, i64)>, Refusal> {
        Ok(Decoded::Value((record.partition.0, record.offset.0)))
    }
}

#[test]
fn a_codec_of_ones_own_sees_the_whole_record() {
    let record = Record {
        topic: "orders",
        partition: tidegate::record::Partition(3),
        offset: tidegate::record::Offset(42),
        timestamp: None,
        key: None,
        value: None,
        headers: &(),
    };
    assert_eq!(Offsets.decode(&record), Ok(Decoded::Value((3, 42))));
}

#[test]
fn a_source_that_is_held_back_is_not_lingered_on() {
    let store = MemoryStore::new();
    let script = Script::new(vec![(0..2000).map(Step::Row).collect()]);
    let table = sink::Memory::table(&store, "table");
    let rows = table.clone();
    let pipeline = Pipeline::new("held", move |engine| {
        engine
            .dataframe(source::Memory::new("numbers", Arc::clone(&script)))
            .filter(|number| *number >= 1999)
            .sink(table.clone());
        Ok(())
    });
    // A hundredth of the input fits into the memory, and nothing is ever due.
    let mut options = Options { until_end: true, memory: 2 * 20 * 64, ..workers(1) };
    options.pace.linger = Duration::from_secs(3600);
    let started = Instant::now();
    let summary = pipeline.run(&options).unwrap();
    assert_eq!(summary.counters.filtered, 1999);
    assert_eq!(rows.rows(), [1999]);
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn a_replay_that_is_asked_to_end_says_so_and_claims_nothing() {
    let store = MemoryStore::new();
    let script = Script::new(vec![vec![Step::Row(1_u64)]]);
    let pipeline = Pipeline::new("replayed", move |engine| {
        let source = source::Memory::new("numbers", Arc::clone(&script));
        engine.dataframe(source).sink(sink::Memory::table(&store, "table"));
        Ok(())
    });
    let options = Options::default();
    let kept = tidegate::Kept {
        id: 1,
        sink: "table".into(),
        topic: "numbers".into(),
        partition: Partition(0),
        offset: Offset(0),
        origin: Some(tidegate::origins::Origin::default()),
    };
    let replayed = pipeline
        .replay(&options, |_, after| {
            options.stop.request();
            Ok(if after == 0 { vec![kept.clone()] } else { Vec::new() })
        })
        .expect("it ends well");
    assert!(replayed.ended);
    assert_eq!((replayed.written, replayed.rejected), (0, 0));
}
