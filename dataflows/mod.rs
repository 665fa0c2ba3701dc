//! The dataflows of the program: a file each, and a line each below.

mod orders;

use tidegate::cli::Entry;

/// All of them, as `tidegate list` shows them.
pub fn all() -> Vec<Entry> {
    vec![Entry::new("orders", "orders that were not removed, a row each", orders::orders)]
}
