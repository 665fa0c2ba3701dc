//! Codecs for rows that cross processes: a batch into bytes, and back into what an operator reads.
//!
//! Only those that carry any serde type unchanged could take users' rows: MessagePack with names can,
//! bincode breaks on skipped, flattened and untagged fields, columnar and abomonation know no serde.
//! abomonation is unsound (RUSTSEC-2021-0120), and here to compare with alone.

#![allow(unsafe_code, reason = "abomonation's interface")]

use std::hint::black_box;

use columnar::bytes::stash::Stash;
use columnar::{Columnar, ContainerOf, Index, Len, Push};
use criterion::{Criterion, Throughput};
use serde::{Deserialize, Serialize};

use super::{ORDERS, Order, orders};

/// An order in types that each of the codecs knows.
type Plain = (i64, String, String, i64, String, String);

#[derive(Serialize, Deserialize)]
struct Bytes {
    number: i64,
    #[serde(with = "serde_bytes")]
    bytes: Vec<u8>,
}

#[derive(Serialize, Deserialize)]
struct List {
    number: i64,
    bytes: Vec<u8>,
}

fn plain(order: Order) -> Plain {
    let Order { order_id, customer, status, amount, currency, created_at } = order;
    (order_id, customer.into(), status.into(), amount, currency.into(), created_at.into())
}

/// Rows as columns, into bytes and back.
fn crossed(rows: &[Plain]) -> Stash<ContainerOf<Plain>, Vec<u8>> {
    let mut columns = Stash::<ContainerOf<Plain>, Vec<u8>>::default();
    rows.iter().for_each(|row| columns.push(row));
    let mut bytes = Vec::new();
    columns.write_bytes(&mut bytes).expect("a vector takes it");
    Stash::try_from_bytes(bytes).expect("columns")
}

pub fn codecs(criterion: &mut Criterion) {
    let rows: Vec<Plain> = orders().into_iter().map(plain).collect();
    let mut group = criterion.benchmark_group("crossing");
    group.throughput(Throughput::Elements(ORDERS));
    group.bench_function("bincode", |bencher| {
        bencher.iter(|| {
            let bytes = bincode::serialize(&rows).expect("bytes");
            black_box(bincode::deserialize::<Vec<Plain>>(&bytes).expect("rows"))
        });
    });
    group.bench_function("MessagePack with names", |bencher| {
        let rows = orders();
        bencher.iter(|| {
            let bytes = rmp_serde::to_vec_named(&rows).expect("bytes");
            black_box(rmp_serde::from_slice::<Vec<Order>>(&bytes).expect("rows"))
        });
    });
    group.bench_function("columnar", |bencher| {
        bencher.iter(|| {
            let read = crossed(&rows);
            let read = read.borrow();
            // In place, as an operator would read them.
            let numbers = (0..read.len()).map(|index| *read.get(index).0).sum::<i64>();
            black_box((numbers, (0..read.len()).map(|i| read.get(i).1.len()).sum::<usize>()))
        });
    });
    group.bench_function("columnar, into owned rows", |bencher| {
        bencher.iter(|| {
            let read = crossed(&rows);
            let read = read.borrow();
            let owned = (0..read.len()).map(|i| <Plain as Columnar>::into_owned(read.get(i)));
            black_box(owned.collect::<Vec<Plain>>())
        });
    });
    group.bench_function("abomonation", |bencher| {
        bencher.iter(|| {
            let mut bytes = Vec::new();
            // SAFETY: none that holds in general (the library is unsound); these types have no padding
            // that is read, and the bytes are decoded where they were encoded.
            let numbers = unsafe {
                abomonation::encode(&rows, &mut bytes).expect("bytes");
                let decoded = abomonation::decode::<Vec<Plain>>(&mut bytes).expect("rows");
                decoded.0.iter().map(|row| row.0).sum::<i64>()
            };
            black_box(numbers)
        });
    });
    let payload: Vec<u8> = (0..200).collect();
    group.bench_function("bincode, 200 bytes as a Vec<u8>", |bencher| {
        let rows: Vec<List> =
            (0..ORDERS).map(|n| List { number: n as i64, bytes: payload.clone() }).collect();
        bencher.iter(|| {
            let bytes = bincode::serialize(&rows).expect("bytes");
            black_box(bincode::deserialize::<Vec<List>>(&bytes).expect("rows"))
        });
    });
    group.bench_function("bincode, 200 bytes by serde_bytes", |bencher| {
        let rows: Vec<Bytes> =
            (0..ORDERS).map(|n| Bytes { number: n as i64, bytes: payload.clone() }).collect();
        bencher.iter(|| {
            let bytes = bincode::serialize(&rows).expect("bytes");
            black_box(bincode::deserialize::<Vec<Bytes>>(&bytes).expect("rows"))
        });
    });
    group.finish();
}
