//! Rows whose keys are new.
//!
//! Where no key of a batch is in the table yet, COPY into the table itself does what `on conflict` does,
//! at twice the speed. Whether that is so only the server knows: it is tried under a savepoint, and the
//! first key that is there ends the trial within the thousand rows that the server copies at a time. A
//! table whose rows are updated is tried more and more seldom.

use std::collections::HashMap;

use super::batch::Batch;
use super::work::TableWork;
use crate::sink::SinkId;

/// The most flushes between two trials.
const SELDOM: u32 = 1024;

/// When each sink's table is tried next.
#[derive(Debug, Default)]
pub(super) struct Fresh(HashMap<SinkId, Pause>);

#[derive(Debug, Default)]
struct Pause {
    /// Flushes that are still to be merged.
    left: u32,
    /// How many they were when the last trial failed.
    length: u32,
}

impl Fresh {
    /// Whether the batch is to be copied; counts a flush.
    pub fn tries(&mut self, table: &TableWork, batch: &Batch) -> bool {
        let prepared = table.live.newest().1;
        let plain = !prepared.table.key.is_empty()
            && prepared.table.arbiter
            && !prepared.table.judged
            && !prepared.staged
            && matches!(&batch.0[..], [round] if round.deletes.is_empty());
        if !plain {
            return false;
        }
        let pause = self.0.entry(table.sink).or_default();
        let now = pause.left == 0;
        pause.left = pause.left.saturating_sub(1);
        now
    }

    /// Notes whether all keys were new.
    pub fn note(&mut self, sink: SinkId, new: bool) {
        let pause = self.0.entry(sink).or_default();
        let length = if new { 0 } else { (2 * pause.length).clamp(1, SELDOM) };
        *pause = Pause { left: length, length };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_is_tried_more_and_more_seldom_and_what_succeeds_at_once() {
        let mut fresh = Fresh::default();
        let sink = SinkId(0);
        let lengths: Vec<u32> = (0..12)
            .map(|_| {
                fresh.note(sink, false);
                fresh.0[&sink].left
            })
            .collect();
        assert_eq!(lengths, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 1024]);
        fresh.note(sink, true);
        assert_eq!(fresh.0[&sink].left, 0);
    }
}
