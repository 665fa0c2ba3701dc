//! What a flush did, into the figures: only after it is durable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{SinkId, Stored};
use crate::figures::{Committed, Figures, Flushed, RejectKind, SinkMeter, StoreMeter};
use crate::position::Counters;
use crate::record::{Reject, Times};

/// The records of one span: of which sink, between which timestamps, how many.
pub(crate) type Aged = (SinkId, Times, u64);

/// Tells the figures of the flushes of one worker and store.
pub(crate) struct FlushMeter {
    pub figures: Arc<Figures>,
    pub store: Arc<StoreMeter>,
    /// The store's sinks, with their names.
    pub sinks: BTreeMap<SinkId, (String, Arc<SinkMeter>)>,
    /// The names of the dataflow's sources, by number.
    pub sources: Vec<String>,
}

impl FlushMeter {
    /// A flush of `rows` and `bytes`, whose first row waited for `wait`, is durable.
    pub(crate) fn flushed(
        &self,
        (rows, bytes): (usize, usize),
        wait: Duration,
        aged: Vec<Aged>,
        stored: Stored,
    ) {
        let Stored { moves, refused, copy, merge, commit } = stored;
        let (rows, bytes) = (rows as u64, bytes as u64);
        self.store.flushed(&Flushed { rows, bytes, wait, copy, merge, commit });
        for moved in moves {
            let Counters { consumed, filtered, written, rejected, collapsed, rows } =
                moved.counters;
            let upto = moved.upto.0;
            let committed =
                Committed { upto, consumed, filtered, written, rejected, collapsed, rows };
            let key = &moved.key;
            self.figures.committed(&key.sink, &key.source, key.partition.0, &committed);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let age = |millis: i64| now.as_secs_f64() - millis as f64 / 1000.0;
        for (sink, Times { least, most }, records) in aged {
            if let Some((_, meter)) = self.sinks.get(&sink) {
                meter.durable(age(most), age(least), records);
            }
        }
        for (sink, reject) in refused {
            self.refused(sink, &reject);
        }
    }

    fn refused(&self, sink: SinkId, Reject { at, refusal }: &Reject) {
        let (Some((sink, _)), Some(source)) =
            (self.sinks.get(&sink), self.sources.get(usize::from(at.source.0)))
        else {
            return;
        };
        self.figures.rejected(
            sink,
            &format_args!("{source}[{}]@{}", at.partition, at.offset),
            RejectKind {
                step: refusal.stage,
                reason: &refusal.reason,
                sqlstate: refusal.sqlstate.as_deref(),
                column: refusal.column.as_deref(),
            },
        );
    }
}
