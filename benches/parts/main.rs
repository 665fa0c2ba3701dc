//! Parts of the chain alone: the codec, a frame, the encoder, and rows that cross processes.
//!
//! `cargo bench --bench parts [-- FILTER]`; the encoder asks PostgreSQL for its table, by DATABASE_URL.

#![allow(missing_docs, reason = "it is a program")]

mod crossing;

use std::hint::black_box;
use std::sync::Arc;

use compact_str::CompactString;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde::{Deserialize, Serialize};
use tidegate::codec::{Codec, Decoded};
use tidegate::record::{At, Change, Offset, Partition, Record, SourceId};
use tidegate::sink::{Memory as Table, MemoryStore, Postgres, Sink};
use tidegate::source::{Memory, Script, Step};
use tidegate::{Json, Options, Pipeline};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many orders each measured call works on.
const ORDERS: u64 = 1000;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Order {
    order_id: i64,
    customer: CompactString,
    status: CompactString,
    amount: i64,
    currency: CompactString,
    created_at: CompactString,
}

impl Order {
    fn of(index: u64) -> Self {
        Order {
            order_id: index as i64,
            customer: format!("customer-{index:05}@shop-{:03}.example", index % 500).into(),
            status: if index % 10 < 3 { "removed" } else { "delivered" }.into(),
            amount: index as i64 * 7919 % 1_000_000,
            currency: "EUR".into(),
            created_at: format!(
                "2026-03-01T12:{:02}:{:02}.{index:06}Z",
                index / 60 % 60,
                index % 60
            )
            .into(),
        }
    }
}

fn orders() -> Vec<Order> {
    (0..ORDERS).map(Order::of).collect()
}

fn texts() -> Vec<Vec<u8>> {
    orders().iter().map(|order| sonic_rs::to_vec(order).expect("JSON")).collect()
}

fn decode_all<C: Codec>(codec: &mut C, texts: &[Vec<u8>]) -> usize {
    let mut values = 0;
    for (offset, text) in (0..).zip(texts) {
        let record = Record {
            topic: "orders",
            partition: Partition(0),
            offset: Offset(offset),
            timestamp: None,
            key: None,
            value: Some(text),
            headers: &(),
        };
        if let Ok(Decoded::Value(value)) = codec.decode(&record) {
            black_box(value);
            values += 1;
        }
    }
    values
}

fn codec(criterion: &mut Criterion) {
    let texts = texts();
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(ORDERS));
    group.bench_function("typed", |bencher| {
        let mut codec = Json::<Order>::new();
        bencher.iter(|| assert_eq!(decode_all(&mut codec, &texts), texts.len()));
    });
    group.bench_function("dynamic", |bencher| {
        let mut codec = Json::dynamic();
        bencher.iter(|| assert_eq!(decode_all(&mut codec, &texts), texts.len()));
    });
    group.finish();
}

/// A run over rows in memory: what frames cost, start and end of the run included.
fn frame(criterion: &mut Criterion) {
    const ROWS: u64 = 1_000_000;
    let script = Script::new(vec![(0..ROWS).map(Step::Row).collect()]);
    let mut group = criterion.benchmark_group("frame");
    group.throughput(Throughput::Elements(ROWS)).sample_size(10);
    for filters in [1, 3] {
        group.bench_function(format!("{filters} filters"), |bencher| {
            bencher.iter(|| {
                let (script, store) = (Arc::clone(&script), MemoryStore::new());
                let pipeline = Pipeline::new("frame", move |engine| {
                    let mut frame = engine.dataframe(Memory::new("rows", Arc::clone(&script)));
                    for _ in 1..filters {
                        frame = frame.filter(|row| black_box(*row) < ROWS);
                    }
                    frame.filter(|row| black_box(*row) >= ROWS).sink(Table::table(&store, "none"));
                    Ok(())
                });
                let options = Options { until_end: true, ..Options::default() };
                let summary = pipeline.run(&options).expect("the run ends well");
                assert_eq!(summary.counters.filtered, ROWS);
            });
        });
    }
    group.finish();
}

fn encoder(criterion: &mut Criterion) {
    let url = std::env::var("DATABASE_URL").expect("the encoder needs DATABASE_URL");
    let mut client = postgres::Client::connect(&url, postgres::NoTls).expect("the server answers");
    let schema = format!("bench_parts_{}", std::process::id());
    client
        .batch_execute(&format!(
            "create schema {schema};
             create table {schema}.orders (order_id bigint primary key, customer text not null,
                 status text not null, amount bigint not null, currency text not null,
                 created_at timestamptz not null)"
        ))
        .expect("the schema is new");
    let table = format!("{schema}.orders");
    let sinks = [
        ("append", Postgres::table(&table).url(&url).schema(&schema)),
        ("keyed", Postgres::table(&table).url(&url).schema(&schema).key("order_id")),
    ];
    let changes: Vec<Change<Order>> = orders().into_iter().map(Change::Put).collect();
    let mut group = criterion.benchmark_group("encode");
    group.throughput(Throughput::Elements(ORDERS));
    for (name, sink) in sinks {
        let target = Sink::<Order>::target(&sink).expect("a target");
        let shape = target.store.prepare(&[&target]).expect("the table fits").remove(0);
        let mut encoder = Sink::<Order>::encoder(&sink, &shape);
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for (offset, change) in (0..).zip(&changes) {
                    let (source, partition) = (SourceId(0), Partition(0));
                    let at = At { source, partition, offset: Offset(offset), ordinal: 0 };
                    encoder.encode(at, change).expect("it is taken");
                }
                black_box(encoder.take())
            });
        });
    }
    group.finish();
    client.batch_execute(&format!("drop schema {schema} cascade")).expect("it goes");
}

criterion_group!(parts, codec, frame, encoder, crossing::codecs);
criterion_main!(parts);
