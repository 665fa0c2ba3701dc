//! Random tables and values through the sink: what lands equals what the server makes of the same texts,
//! one row at a time; what is refused the server refuses too, with a SQLSTATE of the same class.

mod column;
mod expect;
mod judge;
mod make;
mod table;
mod value;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use postgres::{Client, NoTls};

use crate::random::Random;
use judge::Tally;

/// How many rows a table gets.
const ROWS: usize = 400;
/// So many different findings end the search.
const ENOUGH: usize = 40;

/// Runs for `limit`; fails where anything was found.
pub fn run(seed: u64, limit: Duration) -> ExitCode {
    let url = std::env::var("DATABASE_URL").expect("DATABASE_URL names a database");
    let mut client = Client::connect(&url, NoTls).expect("the database answers");
    let micros = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
    let schema = format!("fuzz_{seed}_{micros:x}");
    table::prepare(&mut client, &schema);

    let mut random = Random(seed);
    let mut tally = Tally::default();
    let mut found = BTreeMap::<String, (u64, String)>::new();
    let began = Instant::now();
    let mut tables = 0_u64;
    while began.elapsed() < limit && found.len() < ENOUGH {
        let own = random.next();
        let findings = table::round(&mut client, &schema, own, ROWS, &mut tally);
        for (what, example) in findings {
            let entry = found.entry(what).or_insert_with_key(|what| {
                println!("FOUND {what}\n      {example}");
                (0, example)
            });
            entry.0 += 1;
        }
        tables += 1;
    }
    client
        .batch_execute(&format!("drop schema if exists {schema}, {schema}_book cascade"))
        .expect("the schema goes");
    for (what, (times, example)) in &found {
        println!("{times} times: {what}\n    first {example}");
    }
    for (what, times) in &tally.deviations {
        println!("documented, {times} times: {what}");
    }
    for (what, times) in &tally.codes {
        println!("same class, {times} times: {what}");
    }
    println!(
        "tables={tables} rows={} written={} refused={} findings={} seed={seed} elapsed={:?}",
        tally.rows,
        tally.written,
        tally.refused,
        found.len(),
        began.elapsed(),
    );
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
