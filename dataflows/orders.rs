//! Orders that were not removed, a row each.

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use tidegate::sink::Postgres;
use tidegate::source::kafka::Kafka;
use tidegate::{Engine, Json, Result};

/// An order, as the topic has it and as the table has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    /// Its number, and the table's key.
    pub order_id: i64,
    /// Who ordered.
    pub customer: CompactString,
    /// `created`, `paid`, `shipped`, `delivered` or `removed`.
    pub status: CompactString,
    /// In the currency's minor units, such as cents.
    pub amount: i64,
    /// By its ISO 4217 code.
    pub currency: CompactString,
    /// In RFC 3339; a `timestamptz` in the table.
    pub created_at: CompactString,
}

/// Topic `orders` into table `valid_orders`, unless the parameters `topic` and `table` say otherwise.
///
/// A later record of an order takes the place of its row. One that says `removed` is filtered, which
/// leaves the row as it was.
pub fn orders(engine: Engine<'_>) -> Result<()> {
    let source = Kafka::topic(engine.param_or("topic", "orders"), Json::<Order>::new());
    let valid = Postgres::table(engine.param_or("table", "valid_orders")).key("order_id");

    engine.dataframe(source).filter(|order| order.status != "removed").sink(valid);
    Ok(())
}
