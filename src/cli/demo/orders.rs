//! The sample: orders and their updates, the same at every run, and what a table must hold of them.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A row of the sample's table.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Order {
    pub order_id: i64,
    pub customer: String,
    pub status: &'static str,
    pub amount: i64,
    pub currency: &'static str,
    /// In RFC 3339, in whole seconds of UTC.
    pub created_at: String,
}

/// What an order may be that is not removed, in the order of its life.
const STATUS: [&str; 4] = ["created", "paid", "shipped", "delivered"];
const CURRENCY: [&str; 4] = ["EUR", "USD", "GBP", "CHF"];
const NAMES: [&str; 12] = [
    "Ada",
    "Barbara",
    "Edsger",
    "Frances",
    "Grace",
    "Hedy",
    "Jean",
    "Katherine",
    "Leslie",
    "Margaret",
    "Niklaus",
    "Radia",
];

/// 2026-01-01T00:00:00Z, when the first order was made.
const EPOCH: i64 = 1_767_225_600;

/// The records of the sample, in the order in which they are produced.
pub(super) struct Sample {
    left: u64,
    chance: Chance,
    /// All orders so far, of which later records may be updates: when they were made, and by whom.
    made: Vec<(i64, u64)>,
}

impl Sample {
    pub(super) fn new(records: u64) -> Self {
        Sample { left: records, chance: Chance(2_026), made: Vec::new() }
    }
}

impl Iterator for Sample {
    type Item = Order;

    fn next(&mut self) -> Option<Order> {
        self.left = self.left.checked_sub(1)?;
        let index = match self.made.len() as u64 {
            made if made > 0 && self.chance.below(100) < 15 => self.chance.below(made) as usize,
            made => {
                // One every three seconds or so.
                let after = self.made.last().map_or(EPOCH, |(at, _)| *at);
                let at = after + self.chance.below(7) as i64;
                self.made.push((at, self.chance.below(10_000)));
                made as usize
            }
        };
        let (at, customer) = self.made[index];
        let status = match self.chance.below(100) {
            0..30 => "removed",
            other => STATUS[(other % 4) as usize],
        };
        Some(Order {
            order_id: 1_000_000 + index as i64,
            customer: format!("{}-{customer:04}", NAMES[(customer % NAMES.len() as u64) as usize]),
            status,
            amount: 100 + self.chance.below(500_000) as i64,
            currency: CURRENCY[(customer % 4) as usize],
            created_at: rfc3339(at),
        })
    }
}

fn rfc3339(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map(|at| at.to_string()).unwrap_or_default()
}

impl Order {
    /// The record's value.
    pub(super) fn write_json(&self, text: &mut String) {
        text.clear();
        let Order { order_id, customer, status, amount, currency, created_at } = self;
        write!(
            text,
            r#"{{"order_id":{order_id},"customer":"{customer}","status":"{status}","amount":{amount},"currency":"{currency}","created_at":"{created_at}"}}"#
        )
        .expect("a string takes all");
    }
}

/// What the dataflow `orders` makes of records, one after the other: the last that was not removed,
/// of each order.
#[derive(Default)]
pub(super) struct Model {
    pub table: BTreeMap<i64, Order>,
    pub removed: u64,
    pub records: u64,
}

impl Model {
    pub(super) fn apply(&mut self, order: Order) {
        self.records += 1;
        if order.status == "removed" {
            self.removed += 1;
        } else {
            self.table.insert(order.order_id, order);
        }
    }
}

/// A small generator of numbers (SplitMix64), so that the sample is the same everywhere.
struct Chance(u64);

impl Chance {
    /// A number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_the_same_at_every_run_and_has_what_it_should() {
        let orders: Vec<_> = Sample::new(10_000).collect();
        assert_eq!(orders, Sample::new(10_000).collect::<Vec<_>>());
        let mut model = Model::default();
        orders.iter().cloned().for_each(|order| model.apply(order));
        assert_eq!(model.records, 10_000);
        assert!((2_800..3_200).contains(&model.removed), "{} removed", model.removed);
        let distinct: std::collections::BTreeSet<_> = orders.iter().map(|o| o.order_id).collect();
        assert!((8_000..9_000).contains(&distinct.len()), "{} distinct", distinct.len());
        let mut text = String::new();
        orders[0].write_json(&mut text);
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["order_id"], 1_000_000);
        assert_eq!(orders[0].created_at.len(), "2026-01-01T00:00:00Z".len());
    }
}
