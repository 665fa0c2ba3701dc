//! What refused rows cost: orders from a topic into a table, none of them bad or some, in turn.
//!
//! `cargo bench --bench rejects -- --rows 1000000 [--rounds 3] [--threads 1] [--only bad_1e3,skip]` with
//! TIDEGATE_BROKERS and DATABASE_URL set. The machine is never quiet: what counts are the ratios of runs
//! that took turns. `docs/performance.md` says what came out.

#![allow(missing_docs, clippy::print_stdout, reason = "it is a program")]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{Order, brokers, connect, mix, produce, topic, unique};
use serde::{Deserialize, Serialize};
use tidegate::cluster::Flags;
use tidegate::record::Policy;
use tidegate::sink::Postgres;
use tidegate::source::kafka::Kafka;
use tidegate::{Json, Options, Pipeline};

/// As in the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// An order as it is read.
#[derive(Clone, Deserialize)]
struct Read {
    order_id: u64,
    customer: String,
    status: String,
    amount: i64,
    currency: String,
    created_at: String,
}

/// A value of an integer column, or a text that is none.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Amount {
    Number(i64),
    Text(String),
}

/// An order as it is written.
#[derive(Clone, Serialize, Deserialize)]
struct Row {
    order_id: u64,
    customer: String,
    status: String,
    amount: Amount,
    currency: String,
    created_at: String,
    shop: i32,
}

/// Who refuses a row, if anyone does.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Check,
    Encoder,
    ForeignKey,
}

/// What runs in turn.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    /// The name of the case that it is compared with.
    base: &'static str,
    by: By,
    /// One in so many is bad; 0 is none.
    one_in: u64,
    policy: Policy,
}

const CASES: [Case; 8] = [
    Case { name: "none", base: "none", by: By::Check, one_in: 0, policy: Policy::Reject },
    Case { name: "bad_1e5", base: "none", by: By::Check, one_in: 100_000, policy: Policy::Reject },
    Case { name: "bad_1e3", base: "none", by: By::Check, one_in: 1000, policy: Policy::Reject },
    Case {
        name: "encoder_1e3",
        base: "none",
        by: By::Encoder,
        one_in: 1000,
        policy: Policy::Reject,
    },
    Case { name: "skip", base: "none", by: By::Check, one_in: 0, policy: Policy::Skip },
    Case { name: "fk_none", base: "none", by: By::ForeignKey, one_in: 0, policy: Policy::Reject },
    Case {
        name: "fk_1e5",
        base: "fk_none",
        by: By::ForeignKey,
        one_in: 100_000,
        policy: Policy::Reject,
    },
    Case {
        name: "fk_1e3",
        base: "fk_none",
        by: By::ForeignKey,
        one_in: 1000,
        policy: Policy::Reject,
    },
];

fn row(read: Read, case: Case) -> Row {
    // Spread at random, as bad records are.
    let bad = case.one_in > 0 && mix(read.order_id).is_multiple_of(case.one_in);
    let amount = match case.by {
        By::Check if bad => Amount::Number(-1),
        By::Encoder if bad => Amount::Text("a dozen".to_owned()),
        _ => Amount::Number(read.amount),
    };
    let shop = if bad && case.by == By::ForeignKey { -1 } else { (read.order_id % 100) as i32 };
    let Read { order_id, customer, status, currency, created_at, .. } = read;
    Row { order_id, customer, status, amount, currency, created_at, shop }
}

/// Runs `case` into a table of its own; how long it took, and how many rows the server inserted for each
/// one that stayed, those it took back included.
fn run(case: Case, topic: &str, schema: &str, rows: u64, threads: usize) -> (Duration, f64) {
    let mut client = connect();
    let references = if case.by == By::ForeignKey { "references shops" } else { "" };
    client
        .batch_execute(&format!(
            "set search_path = {schema};
             create table orders (order_id bigint primary key, customer text not null, status text not null,
                 amount integer not null check (amount >= 0), currency text, created_at timestamptz,
                 shop integer {references});"
        ))
        .expect("the table is new");
    let pipeline = {
        let (topic, table) = (topic.to_owned(), format!("{schema}.orders"));
        let book = schema.to_owned();
        Pipeline::new(unique("rejects"), move |engine| {
            let source = Kafka::topic(&topic, Json::<Read>::new()).policy(case.policy);
            let sink = Postgres::table(&table).schema(&book);
            engine.dataframe(source).map(move |read| row(read, case)).sink(sink);
            Ok(())
        })
    };
    let options = Options {
        flags: Flags { threads, ..Flags::default() },
        brokers: Some(brokers()),
        until_end: true,
        ..Options::default()
    };
    let summary = pipeline.run(&options).expect("the run ends well");
    let bad =
        (0..rows).filter(|id| case.one_in > 0 && mix(*id).is_multiple_of(case.one_in)).count();
    assert_eq!(summary.counters.rejected, bad as u64, "{}", case.name);
    let count = client.query_one(&format!("select count(*) from {schema}.orders"), &[]);
    let count: i64 = count.expect("the table is there").get(0);
    assert_eq!(count as u64 + summary.counters.rejected, rows, "{}", case.name);
    // The writer's session has ended, or will soon: then its figures are there.
    let tried = common::eventually(Duration::from_secs(5), || {
        let query = format!("select pg_stat_get_tuples_inserted('{schema}.orders'::regclass)");
        let tried: i64 = client.query_one(&query, &[]).ok()?.get(0);
        (tried >= count).then_some(tried)
    });
    client.batch_execute(&format!("drop table {schema}.orders")).expect("it goes");
    (summary.elapsed, tried.map_or(f64::NAN, |tried| tried as f64 / count as f64))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let flag = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    let number = |name: &str, default: u64| {
        flag(name).map_or(default, |text| text.parse().expect("a flag's value is a number"))
    };
    let (rows, rounds) = (number("--rows", 1_000_000), number("--rounds", 3).max(1) as usize);
    let threads = number("--threads", 1) as usize;
    let only = flag("--only");
    let chosen = |case: &&Case| {
        let named = |only: &String| only.split(',').any(|name| name == case.name);
        case.name == case.base || only.as_ref().is_none_or(named)
    };
    let cases: Vec<Case> = CASES.iter().filter(chosen).copied().collect();

    let topic = topic("rejects", 4);
    produce(
        &topic,
        (0..rows).map(|id| Order { order_id: id as i64, ..Order::event(id) }.message(4)),
    );
    let mut client = connect();
    let schema = unique("rejects");
    client
        .batch_execute(&format!(
            "create schema {schema};
             create table {schema}.shops as select generate_series(0, 99) as shop;
             alter table {schema}.shops add primary key (shop);"
        ))
        .expect("the schema is new");
    println!("rows={rows} rounds={rounds} threads={threads}");

    let mut times = vec![Vec::new(); cases.len()];
    let mut inserted = vec![0.0; cases.len()];
    for round in 0..rounds {
        // Each round begins elsewhere, so that none always follows the same one.
        for index in (0..cases.len()).map(|index| (index + round) % cases.len()) {
            let (time, tried) = run(cases[index], &topic, &schema, rows, threads);
            times[index].push(time.as_secs_f64());
            inserted[index] += tried / rounds as f64;
        }
    }
    let mut medians = Vec::new();
    for ((case, times), inserted) in cases.iter().zip(&mut times).zip(inserted) {
        times.sort_by(f64::total_cmp);
        medians.push(times[times.len() / 2]);
        println!(
            "{:<12} median {:.2} s, min {:.2}, max {:.2}; {:.0} rows/s; inserts a row {inserted:.3}",
            case.name,
            times[times.len() / 2],
            times[0],
            times[times.len() - 1],
            rows as f64 / times[times.len() / 2],
        );
    }
    let ratio = |case: &Case| {
        let of = |name| cases.iter().position(|case| case.name == name).map(|at| medians[at]);
        Some(format!("{}={:.3}", case.name, of(case.name)? / of(case.base)?))
    };
    let others = cases.iter().filter(|case| case.name != case.base);
    println!("{}", others.filter_map(ratio).collect::<Vec<_>>().join(" "));
    client.batch_execute(&format!("drop schema {schema} cascade")).expect("it goes");
}
