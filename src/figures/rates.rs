//! How fast a run goes: what changed between snapshots.

use std::collections::VecDeque;
use std::time::Duration;

use super::Snapshot;

/// Over how long a lag is followed, in milliseconds: it is heard of once a second, and transactions make
/// it jump.
const TREND_MS: i64 = 10_000;

/// Follows the snapshots of one run.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    seen: VecDeque<Seen>,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at_ms: i64,
    read: u64,
    rows: u64,
    /// Offsets that are still to become durable.
    left: u64,
}

/// How fast a run goes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rate {
    /// Records read a second.
    pub read: f64,
    /// Rows written a second.
    pub rows: f64,
    /// How long until nothing is behind, if it goes on like this; `None` where it does not come nearer.
    pub catch_up: Option<Duration>,
}

impl Rates {
    /// Adds a snapshot. One of another run begins anew.
    pub fn see(&mut self, snapshot: &Snapshot) {
        let rows = snapshot.sum(|slice| slice.rows);
        let left = match snapshot.planned {
            Some(planned) => planned.saturating_sub(snapshot.sum(|slice| slice.consumed)),
            None => snapshot.lag(),
        };
        let seen = Seen { at_ms: snapshot.now_ms, read: snapshot.consumed, rows, left };
        if self.seen.back().is_some_and(|last| {
            last.read > seen.read || last.rows > seen.rows || last.at_ms > seen.at_ms
        }) {
            self.seen.clear();
        }
        self.seen.push_back(seen);
        while self.seen.get(1).is_some_and(|second| second.at_ms <= seen.at_ms - TREND_MS) {
            self.seen.pop_front();
        }
    }

    /// The rates since `over` ago, or since what is the oldest; a time to catch up is taken over some
    /// seconds.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::figures::{Rates, Snapshot};
    /// let mut rates = Rates::default();
    /// rates.see(&Snapshot { now_ms: 1_000, consumed: 10, ..Snapshot::default() });
    /// rates.see(&Snapshot { now_ms: 3_000, consumed: 50, ..Snapshot::default() });
    /// assert_eq!(rates.over(Duration::from_secs(2)).read, 20.0);
    /// ```
    pub fn over(&self, over: Duration) -> Rate {
        let (Some(last), Some(oldest)) = (self.seen.back(), self.seen.front()) else {
            return Rate::default();
        };
        let since = last.at_ms.saturating_sub(i64::try_from(over.as_millis()).unwrap_or(i64::MAX));
        let from = self.seen.iter().rev().find(|seen| seen.at_ms <= since).unwrap_or(oldest);
        let per_second = |from: &Seen, change: f64| match last.at_ms - from.at_ms {
            elapsed if elapsed > 0 => change * 1000.0 / elapsed as f64,
            _ => 0.0,
        };
        let gained = per_second(oldest, oldest.left as f64 - last.left as f64);
        let catch_up = match last.left {
            0 => Some(Duration::ZERO),
            left if gained > 0.0 => Duration::try_from_secs_f64(left as f64 / gained).ok(),
            _ => None,
        };
        Rate {
            read: per_second(from, (last.read - from.read) as f64),
            rows: per_second(from, (last.rows - from.rows) as f64),
            catch_up,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{PartitionFigures, SliceFigures};

    fn at(now_ms: i64, consumed: u64, rows: u64, lag: i64) -> Snapshot {
        let partition = PartitionFigures { lag: Some(lag), ..Default::default() };
        let slice = SliceFigures { rows, ..Default::default() };
        Snapshot {
            now_ms,
            consumed,
            partitions: vec![partition],
            slices: vec![slice],
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_lag_that_shrinks_has_an_end_and_one_that_grows_has_none() {
        let mut rates = Rates::default();
        assert_eq!(rates.over(Duration::from_secs(1)), Rate::default());
        rates.see(&at(0, 0, 0, 1_000));
        rates.see(&at(1_000, 200, 100, 900));
        rates.see(&at(2_000, 600, 400, 800));
        let rate = rates.over(Duration::from_secs(1));
        assert_eq!((rate.read, rate.rows), (400.0, 300.0));
        assert_eq!(rate.catch_up, Some(Duration::from_secs(8)));
        rates.see(&at(3_000, 700, 500, 1_200));
        assert_eq!(rates.over(Duration::from_secs(1)).catch_up, None);
        rates.see(&at(4_000, 1_900, 1_700, 0));
        assert_eq!(rates.over(Duration::from_secs(1)).catch_up, Some(Duration::ZERO));
    }

    #[test]
    fn another_run_begins_anew_and_old_snapshots_are_forgotten() {
        let mut rates = Rates::default();
        (0..100).for_each(|second| rates.see(&at(second * 1_000, second as u64, 0, 0)));
        assert!(rates.seen.len() <= 12, "{}", rates.seen.len());
        rates.see(&at(200_000, 5, 0, 0));
        assert_eq!((rates.seen.len(), rates.over(Duration::from_secs(1)).read), (1, 0.0));
    }
}
