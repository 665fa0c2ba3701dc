//! The dataflows of the program: a file each, and a line each below.

mod copy;
mod order_log;
mod orders;

use tidegate::cli::Entry;

/// All of them, as `tidegate list` shows them.
pub fn all() -> Vec<Entry> {
    vec![
        Entry::new("copy", "any topic into any table, as the parameters say", copy::copy),
        Entry::new("orders", "orders that were not removed, a row each", orders::orders),
        Entry::new(
            "order_log",
            "a log of all orders, and the last valid state of each",
            order_log::order_log,
        ),
    ]
}
