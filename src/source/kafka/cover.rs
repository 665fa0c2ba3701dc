//! The spans of one partition, while it is read.

use std::collections::VecDeque;

use crate::record::{Lane, Offset, Span, Times};

/// Follows one partition and turns what was read into spans that join: none crosses a cut, and a
/// record at a cut belongs to the span after it.
#[derive(Debug)]
pub(super) struct Cover {
    lane: Lane,
    from: i64,
    upto: i64,
    records: u64,
    times: Option<Times>,
    /// The last record and its leader epoch.
    last: Option<(i64, i32)>,
    cuts: VecDeque<i64>,
}

impl Cover {
    /// Starts at `start`; `cuts` ascend.
    pub(super) fn new(lane: Lane, start: Offset, cuts: &[Offset]) -> Self {
        let cuts = cuts.iter().map(|cut| cut.0).filter(|cut| *cut > start.0).collect();
        Cover { lane, from: start.0, upto: start.0, records: 0, times: None, last: None, cuts }
    }

    /// The next offset to read.
    pub(super) fn position(&self) -> i64 {
        self.upto
    }

    /// Which partition it follows.
    pub(super) fn lane(&self) -> Lane {
        self.lane
    }

    /// Covers the record at `offset`, which is not before the position, and the gap before it.
    pub(super) fn record(&mut self, offset: i64, spans: &mut Vec<Span>) {
        if self.cuts.front().is_some_and(|cut| *cut <= offset) {
            self.cut(offset, spans);
        }
        self.records += 1;
        self.upto = offset + 1;
    }

    /// Notes the timestamp of the record that was covered last, if it has one.
    pub(super) fn stamp(&mut self, timestamp: Option<i64>) {
        if let Some(stamp) = timestamp {
            let Times { least, most } = self.times.unwrap_or(Times { least: stamp, most: stamp });
            self.times = Some(Times { least: least.min(stamp), most: most.max(stamp) });
        }
    }

    /// Notes the leader epoch of the record that was covered last, if it has one.
    pub(super) fn led(&mut self, epoch: Option<i32>) {
        self.last = epoch.map(|epoch| (self.upto - 1, epoch));
    }

    /// Covers everything before `upto`, where no record is left.
    pub(super) fn reach(&mut self, upto: i64, spans: &mut Vec<Span>) {
        if upto > self.upto {
            self.cut(upto, spans);
            self.upto = upto;
        }
    }

    /// Hands out what is covered and not handed out yet, if anything.
    pub(super) fn flush(&mut self, spans: &mut Vec<Span>) {
        if self.upto > self.from {
            spans.push(Span {
                lane: self.lane,
                from: Offset(self.from),
                upto: Offset(self.upto),
                records: self.records,
                times: self.times.take(),
                // What lies between a record and the position may be of a later leader.
                leader_epoch: self
                    .last
                    .filter(|(at, _)| at + 1 == self.upto)
                    .map(|(_, epoch)| epoch),
            });
            self.from = self.upto;
            self.records = 0;
        }
    }

    /// Ends a span at each cut up to and including `upto`.
    fn cut(&mut self, upto: i64, spans: &mut Vec<Span>) {
        while let Some(cut) = self.cuts.front().copied().filter(|cut| *cut <= upto) {
            self.cuts.pop_front();
            self.upto = cut;
            self.flush(spans);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::{Partition, SourceId};

    fn cover(start: i64, cuts: &[i64]) -> Cover {
        let lane = Lane { source: SourceId(0), partition: Partition(3) };
        let cuts: Vec<Offset> = cuts.iter().copied().map(Offset).collect();
        Cover::new(lane, Offset(start), &cuts)
    }

    fn plain(spans: &[Span]) -> Vec<(i64, i64, u64)> {
        spans.iter().map(|span| (span.from.0, span.upto.0, span.records)).collect()
    }

    #[test]
    fn records_of_one_poll_make_one_span() {
        let (mut cover, mut spans) = (cover(5, &[]), Vec::new());
        (5..9).for_each(|offset| cover.record(offset, &mut spans));
        cover.flush(&mut spans);
        cover.flush(&mut spans);
        assert_eq!(plain(&spans), [(5, 9, 4)]);
    }

    #[test]
    fn only_a_record_right_before_the_position_tells_its_leader() {
        let (mut cover, mut spans) = (cover(0, &[8]), Vec::new());
        cover.record(5, &mut spans);
        cover.led(Some(3));
        cover.flush(&mut spans);
        cover.record(6, &mut spans);
        cover.led(Some(4));
        // The cut lies behind the record.
        cover.record(9, &mut spans);
        cover.led(Some(4));
        cover.reach(12, &mut spans);
        cover.flush(&mut spans);
        let epochs: Vec<_> = spans.iter().map(|span| (span.upto.0, span.leader_epoch)).collect();
        assert_eq!(epochs, [(6, Some(3)), (8, None), (12, None)]);
    }

    #[test]
    fn a_gap_belongs_to_the_span_that_reaches_over_it() {
        let (mut cover, mut spans) = (cover(0, &[]), Vec::new());
        cover.record(0, &mut spans);
        cover.flush(&mut spans);
        cover.record(10, &mut spans);
        cover.reach(12, &mut spans);
        cover.flush(&mut spans);
        cover.reach(15, &mut spans);
        cover.flush(&mut spans);
        assert_eq!(plain(&spans), [(0, 1, 1), (1, 12, 1), (12, 15, 0)]);
    }

    #[test]
    fn a_record_at_a_cut_belongs_to_the_later_span() {
        let (mut cover, mut spans) = (cover(0, &[0, 3, 6]), Vec::new());
        (0..=3).for_each(|offset| cover.record(offset, &mut spans));
        cover.record(9, &mut spans);
        cover.flush(&mut spans);
        assert_eq!(plain(&spans), [(0, 3, 3), (3, 6, 1), (6, 10, 1)]);
    }

    #[test]
    fn each_span_has_the_timestamps_of_its_own_records() {
        let (mut cover, mut spans) = (cover(0, &[2]), Vec::new());
        for (offset, stamp) in [(0, Some(50)), (1, Some(40)), (2, Some(70)), (3, None)] {
            cover.record(offset, &mut spans);
            cover.stamp(stamp);
        }
        cover.flush(&mut spans);
        cover.reach(9, &mut spans);
        cover.flush(&mut spans);
        let times = |least, most| Some(Times { least, most });
        let found: Vec<_> = spans.iter().map(|span| span.times).collect();
        assert_eq!(found, [times(40, 50), times(70, 70), None]);
    }

    #[test]
    fn a_cut_in_a_gap_splits_the_gap() {
        let (mut cover, mut spans) = (cover(0, &[2, 4, 8]), Vec::new());
        cover.reach(6, &mut spans);
        cover.flush(&mut spans);
        assert_eq!(plain(&spans), [(0, 2, 0), (2, 4, 0), (4, 6, 0)]);
    }

    proptest! {
        #[test]
        fn spans_join_count_all_and_cross_no_cut(
            start in 0i64..20,
            steps in prop::collection::vec((0i64..5, any::<bool>(), any::<bool>()), 0..60),
            cuts in prop::collection::btree_set(0i64..120, 0..10),
        ) {
            let cuts: Vec<i64> = cuts.into_iter().collect();
            let (mut cover, mut spans) = (cover(start, &cuts), Vec::new());
            let mut offsets = Vec::new();
            for (gap, is_record, flush) in steps {
                let at = cover.position() + gap;
                if is_record {
                    cover.record(at, &mut spans);
                    offsets.push(at);
                } else {
                    cover.reach(at, &mut spans);
                }
                if flush {
                    cover.flush(&mut spans);
                }
            }
            cover.flush(&mut spans);
            let mut expected = start;
            for span in &spans {
                prop_assert_eq!(span.from.0, expected);
                prop_assert!(span.upto > span.from);
                prop_assert!(!cuts.iter().any(|cut| span.from.0 < *cut && *cut < span.upto.0));
                let inside = offsets.iter().filter(|o| span.from.0 <= **o && **o < span.upto.0);
                prop_assert_eq!(span.records, inside.count() as u64);
                expected = span.upto.0;
            }
            prop_assert_eq!(expected, cover.position());
        }
    }
}
