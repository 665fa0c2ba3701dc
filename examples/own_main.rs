//! A program of one's own: dataflows of another crate behind the same command line.
//!
//! `cargo run --example own_main -- list`

use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use tidegate::cli::Entry;
use tidegate::{Engine, Json, Result, sink::Postgres, source::kafka::Kafka};

#[derive(Clone, Serialize, Deserialize)]
struct Payment {
    payment_id: i64,
    cents: i64,
}

fn payments(engine: Engine<'_>) -> Result<()> {
    engine
        .dataframe(Kafka::topic("payments", Json::<Payment>::new()))
        .filter(|payment| payment.cents > 0)
        .sink(Postgres::table("payments").key("payment_id"));
    Ok(())
}

fn main() -> ExitCode {
    tidegate::cli::main([Entry::new("payments", "payments above zero", payments)])
}
