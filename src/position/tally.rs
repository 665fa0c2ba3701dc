//! Counting what becomes of records, so that none is lost uncounted (contract C1).

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::record::{At, Lane};

/// What became of the records of a slice. `consumed` is always the sum of the four that follow;
/// `rows` counts apart, since a record may make several rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Records read.
    pub consumed: u64,
    /// Records that no filter kept.
    pub filtered: u64,
    /// Records of which a row was written (or a key deleted).
    pub written: u64,
    /// Records refused.
    pub rejected: u64,
    /// Records superseded by a later one of their key in the same flush.
    pub collapsed: u64,
    /// Rows written or deleted.
    pub rows: u64,
}

impl Counters {
    /// Takes back one record that was counted as rejected before: what becomes of it now is counted in
    /// its place. May pass below zero, since it is added to what was counted then.
    pub(crate) fn take_back_rejected(&mut self) {
        self.consumed = self.consumed.wrapping_sub(1);
        self.rejected = self.rejected.wrapping_sub(1);
    }
}

impl AddAssign for Counters {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, count: u64| *sum = sum.wrapping_add(count);
        add(&mut self.consumed, other.consumed);
        add(&mut self.filtered, other.filtered);
        add(&mut self.written, other.written);
        add(&mut self.rejected, other.rejected);
        add(&mut self.collapsed, other.collapsed);
        add(&mut self.rows, other.rows);
    }
}

/// What became of one row. Where a record made several, the greatest outcome is the record's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Superseded by a later row of its key in the same flush.
    Collapsed,
    /// Written, or its key deleted.
    Written,
    /// Refused.
    Rejected,
}

/// Sums `outcomes` up per partition. `consumed` says how many records each partition read: those
/// that no outcome names were filtered. `fan_out` says whether a record may have made several rows;
/// if not, a pass without sorting is enough.
pub fn tally(
    consumed: impl IntoIterator<Item = (Lane, u64)>,
    outcomes: &mut [(At, Outcome)],
    fan_out: bool,
) -> BTreeMap<Lane, Counters> {
    let mut counters = BTreeMap::<Lane, Counters>::new();
    for (lane, records) in consumed {
        counters.entry(lane).or_default().consumed += records;
    }
    if fan_out {
        outcomes.sort_unstable_by_key(|(at, _)| *at);
    }
    // Rows of one partition come in runs: keep its counters at hand for the length of a run.
    for run in outcomes.chunk_by(|(a, _), (b, _)| a.lane() == b.lane()) {
        let counters = counters.entry(run[0].0.lane()).or_default();
        counters.rows += run.iter().filter(|(_, o)| *o == Outcome::Written).count() as u64;
        let mut count = |outcome| match outcome {
            Outcome::Collapsed => counters.collapsed += 1,
            Outcome::Written => counters.written += 1,
            Outcome::Rejected => counters.rejected += 1,
        };
        if fan_out {
            for record in run.chunk_by(|(a, _), (b, _)| a.offset == b.offset) {
                record.iter().map(|(_, outcome)| *outcome).max().into_iter().for_each(&mut count);
            }
        } else {
            run.iter().for_each(|(_, outcome)| count(*outcome));
        }
    }
    for counters in counters.values_mut() {
        let named = counters.written + counters.rejected + counters.collapsed;
        counters.filtered = counters
            .consumed
            .checked_sub(named)
            .expect("a record is counted in the flush that covers its offset");
    }
    counters
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Offset, Partition, SourceId};

    fn at(partition: i32, offset: i64, ordinal: u32) -> At {
        At { source: SourceId(0), partition: Partition(partition), offset: Offset(offset), ordinal }
    }

    #[test]
    fn each_record_counts_once_in_the_greatest_of_its_rows_outcomes() {
        let mut outcomes = vec![
            (at(0, 5, 0), Outcome::Written),
            (at(1, 1, 0), Outcome::Collapsed),
            (at(0, 5, 1), Outcome::Rejected),
            (at(0, 6, 0), Outcome::Collapsed),
            (at(0, 6, 1), Outcome::Written),
            (at(0, 6, 2), Outcome::Written),
        ];
        let counted =
            tally([(at(0, 0, 0).lane(), 4), (at(1, 0, 0).lane(), 1)], &mut outcomes, true);
        let zero = counted[&at(0, 0, 0).lane()];
        assert_eq!(
            zero,
            Counters { consumed: 4, filtered: 2, written: 1, rejected: 1, collapsed: 0, rows: 3 }
        );
        assert_eq!(counted[&at(1, 0, 0).lane()].collapsed, 1);
    }
}
