//! Histograms with fixed bounds. Each bucket knows its sum too, so that means are exact and a bucket's
//! observations can be handed on as so many of its mean.

use serde::{Deserialize, Serialize};

/// The bounds of histograms of seconds that a flush takes, by its phases.
pub const FLUSH_SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];

/// The bounds of histograms of seconds from a record's timestamp to its commit: up to a week, since a
/// run may catch up with a log that was written long ago.
pub const LATENCY_SECONDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0,
    21_600.0, 86_400.0, 604_800.0,
];

/// The bounds of histograms of rows.
pub const ROWS: &[f64] =
    &[1.0, 4.0, 16.0, 64.0, 256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0];

/// The bounds of histograms of bytes, from 1 KiB to 256 MiB.
pub const BYTES: &[f64] = &[
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
    268_435_456.0,
];

/// Observations, counted by the bucket that they fall into.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Histogram {
    /// The upper bound of each bucket, which it includes, ascending. One more bucket is above them.
    pub bounds: Vec<f64>,
    /// The observations of each bucket, not cumulative; one more than `bounds`.
    pub counts: Vec<u64>,
    /// Their sum in each bucket.
    pub sums: Vec<f64>,
    /// The sum of all.
    pub sum: f64,
    /// How many there are.
    pub count: u64,
}

impl Histogram {
    /// An empty one with these upper bounds, ascending.
    pub fn new(bounds: &[f64]) -> Self {
        Histogram {
            bounds: bounds.to_vec(),
            counts: vec![0; bounds.len() + 1],
            sums: vec![0.0; bounds.len() + 1],
            sum: 0.0,
            count: 0,
        }
    }

    /// Adds an observation.
    pub fn observe(&mut self, value: f64) {
        self.observe_many(value, 1);
    }

    /// Adds an observation `count` times.
    pub fn observe_many(&mut self, value: f64, count: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.add(bucket, value * count as f64, count);
    }

    /// Adds `count` observations that lie evenly between `low` and `high`. What does not divide goes to
    /// the buckets so that none is lost.
    ///
    /// ```
    /// use tidegate::figures::Histogram;
    /// let mut histogram = Histogram::new(&[1.0, 2.0]);
    /// histogram.observe_evenly(0.5, 1.5, 10);
    /// assert_eq!(histogram.counts, [5, 5, 0]);
    /// assert_eq!(histogram.sum, 10.0);
    /// ```
    pub fn observe_evenly(&mut self, low: f64, high: f64, count: u64) {
        if count < 2 || high <= low {
            return self.observe_many((low + high) / 2.0, count);
        }
        let per_second = count as f64 / (high - low);
        let (mut from, mut done) = (low, 0);
        let mut bucket = self.bounds.partition_point(|bound| *bound < low);
        while done < count {
            let upto = self.bounds.get(bucket).map_or(high, |bound| bound.min(high));
            let until =
                if upto < high { ((upto - low) * per_second).round() as u64 } else { count };
            let here = until.clamp(done, count) - done;
            self.add(bucket, (from + upto) / 2.0 * here as f64, here);
            (from, done) = (upto, done + here);
            bucket += 1;
        }
    }

    fn add(&mut self, bucket: usize, sum: f64, count: u64) {
        // One that came from elsewhere may lack buckets: a figure is no reason to panic.
        if let (Some(counts), Some(sums)) = (self.counts.get_mut(bucket), self.sums.get_mut(bucket))
        {
            *counts += count;
            *sums += sum;
            self.count += count;
            self.sum += sum;
        }
    }

    /// The mean of all observations; `None` without any.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }

    /// About the value below which the part `q` (from 0 to 1) of the observations lie: those of a bucket
    /// count as spread evenly over it, those above the last bound as at their mean. `None` without any.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = q.clamp(0.0, 1.0) * self.count as f64;
        let mut below = 0.0;
        let mut last = None;
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let (count, sum) = (*count as f64, self.sums.get(bucket).copied().unwrap_or_default());
            last = self.bounds.get(bucket).copied().or(Some(sum / count));
            if below + count >= rank {
                let below_it = bucket.checked_sub(1).and_then(|below| self.bounds.get(below));
                let low = below_it.copied().unwrap_or(0.0);
                return match self.bounds.get(bucket) {
                    Some(high) => Some(low + (high - low) * ((rank - below) / count).max(0.0)),
                    None => Some(sum / count),
                };
            }
            below += count;
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it() {
        let mut histogram = Histogram::new(&[1.0, 2.0]);
        [0.5, 1.0, 1.5, 2.0, 7.0].into_iter().for_each(|value| histogram.observe(value));
        assert_eq!(histogram.counts, [2, 2, 1]);
        assert_eq!(histogram.sums, [1.5, 3.5, 7.0]);
        assert_eq!((histogram.count, histogram.sum), (5, 12.0));
        assert_eq!(histogram.mean(), Some(2.4));
    }

    #[test]
    fn quantiles_lie_within_their_buckets() {
        let mut histogram = Histogram::new(&[1.0, 2.0, 4.0]);
        assert_eq!(histogram.quantile(0.5), None);
        histogram.observe_many(1.5, 50);
        histogram.observe_many(3.0, 50);
        assert_eq!(histogram.quantile(0.25), Some(1.5));
        assert_eq!(histogram.quantile(0.5), Some(2.0));
        assert_eq!(histogram.quantile(1.0), Some(4.0));
        histogram.observe_many(100.0, 900);
        assert_eq!(histogram.quantile(0.99), Some(100.0));
    }

    #[test]
    fn a_histogram_from_elsewhere_does_not_panic() {
        let odd =
            Histogram { bounds: vec![1.0], count: 3, counts: vec![1, 1, 1], ..Default::default() };
        assert!(odd.quantile(0.99).is_some());
        let mut odd = odd;
        odd.counts.clear();
        odd.observe(5.0);
        assert_eq!(odd.quantile(0.5), None);
    }

    proptest! {
        #[test]
        fn spreading_loses_nothing_and_keeps_the_sum(
            low in 0.0..2_000.0f64, length in 0.0..2_000.0f64, count in 0..10_000u64
        ) {
            let mut histogram = Histogram::new(LATENCY_SECONDS);
            histogram.observe_evenly(low, low + length, count);
            prop_assert_eq!(histogram.count, count);
            prop_assert_eq!(histogram.counts.iter().sum::<u64>(), count);
            let expected = (low + length / 2.0) * count as f64;
            // Rounding moves at most one observation over each bound.
            prop_assert!((histogram.sum - expected).abs() <= length * LATENCY_SECONDS.len() as f64 + 1e-6);
            for (bucket, (count, sum)) in histogram.counts.iter().zip(&histogram.sums).enumerate() {
                if *count > 0 {
                    let mean = sum / *count as f64;
                    let low = bucket.checked_sub(1).map_or(0.0, |b| LATENCY_SECONDS[b]);
                    let high = LATENCY_SECONDS.get(bucket).copied().unwrap_or(f64::INFINITY);
                    prop_assert!(low - 1e-9 <= mean && mean <= high + 1e-9);
                }
            }
        }
    }
}
