//! Two tables of one database, in one transaction: a log of every order with its coordinates, and the
//! last valid state of each.
//!
//! ```sql
//! create table order_log (partition integer, "offset" bigint, order_id bigint, customer text,
//!     status text, amount bigint);
//! create table valid_orders (order_id bigint primary key, customer text, status text, amount bigint,
//!     currency text, created_at timestamptz);
//! ```

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use tidegate::sink::Postgres;
use tidegate::source::kafka::Kafka;
use tidegate::{Codec, Engine, Json, Result};

use super::orders::Order;

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Logged {
    partition: i32,
    offset: i64,
    order_id: i64,
    customer: CompactString,
    status: CompactString,
    amount: i64,
}

/// Appends every order to one table, and upserts those that are not removed into another.
pub fn order_log(engine: Engine<'_>) -> Result<()> {
    let codec =
        Json::<Order>::new().with_record(|record, order| (record.partition, record.offset, order));
    let orders = engine.dataframe(Kafka::topic(engine.param_or("topic", "orders"), codec));

    orders
        .clone()
        .map(|(partition, offset, order)| Logged {
            partition: partition.0,
            offset: offset.0,
            order_id: order.order_id,
            customer: order.customer,
            status: order.status,
            amount: order.amount,
        })
        .sink(Postgres::table(engine.param_or("log", "order_log")));
    orders
        .map(|(_, _, order)| order)
        .filter(|order| order.status != "removed")
        .sink(Postgres::table(engine.param_or("table", "valid_orders")).key("order_id"));
    Ok(())
}
