//! The README's examples, compiled; `tests/readme.rs` compares them.
#![allow(missing_docs, reason = "the README shows them as a reader would write them")]

use serde::{Deserialize, Serialize};
use tidegate::{Engine, Json, Result, sink::Postgres, source::kafka::Kafka};

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    order_id: i64,
    status: String,
}

pub fn orders(engine: Engine<'_>) -> Result<()> {
    let source = Kafka::topic("orders", Json::<Order>::new());
    let valid = Postgres::table("valid_orders").key("order_id");

    engine.dataframe(source).filter(|order| order.status != "removed").sink(valid);
    Ok(())
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Payment {
    id: i64,
    method: String,
    cents: i64,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct Alert {
    id: i64,
}

pub fn payments(engine: Engine<'_>) -> Result<()> {
    let source = Kafka::topic(engine.param_or("topic", "payments"), Json::<Payment>::new());
    let [small, large] = engine
        .dataframe(source)
        .filter(|payment| payment.method == "card")
        .partition(|payment| usize::from(payment.cents >= 100_000));

    small.sink(Postgres::table("small_payments")); // append
    large.clone().sink(Postgres::table("large_payments").key("id")); // upsert
    large.map(|payment| Alert { id: payment.id }).sink(Postgres::table("alerts"));
    Ok(())
}

fn main() -> std::process::ExitCode {
    tidegate::cli::main([
        tidegate::cli::Entry::new("orders", "orders that were not removed", orders),
        tidegate::cli::Entry::new("payments", "card payments by size", payments),
    ])
}
