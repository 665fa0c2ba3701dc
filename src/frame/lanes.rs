//! The meters of the partitions that one worker reads of one source.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::context::Live;
use crate::figures::LaneMeter;
use crate::record::{Partition, SourceId, Span};
use crate::source::{Silence, Standing};

/// Looks each partition's meter up once. One that appears during the run has its own from its first span
/// on.
pub(crate) struct Lanes {
    live: Arc<Live>,
    source: SourceId,
    worker: usize,
    known: BTreeMap<Partition, Arc<LaneMeter>>,
}

impl Lanes {
    /// The meters of `source` at `worker`, which begins with these partitions.
    pub(crate) fn new(
        live: Arc<Live>,
        source: SourceId,
        worker: usize,
        starts: impl Iterator<Item = (Partition, i64)>,
    ) -> Self {
        let mut lanes = Lanes { live, source, worker, known: BTreeMap::new() };
        for (partition, start) in starts {
            lanes.lane(partition, start);
        }
        lanes
    }

    /// A poll has read `spans`, of `bytes` together: of which each has its share by its records.
    pub(crate) fn read(&mut self, spans: &[Span], bytes: usize) {
        let records: u64 = spans.iter().map(|span| span.records).sum();
        let mut rest = bytes as u64;
        for span in spans {
            let share = (bytes as u64 * span.records).checked_div(records).unwrap_or(0).min(rest);
            rest -= share;
            let lane = self.lane(span.lane.partition, span.from.0);
            lane.read(span.records, share, span.upto.0);
        }
    }

    /// Where the partitions end, as far as is known.
    pub(crate) fn stand(&mut self, standings: &[Standing]) {
        for standing in standings {
            if let Some(end) = standing.end {
                self.lane(standing.lane.partition, standing.position.0).end(end.0);
            }
        }
    }

    /// Whether the source answers.
    pub(crate) fn silent(&self, silence: Option<&Silence>) {
        for lane in self.known.values() {
            lane.silent(silence.map(|silence| (silence.lasts, silence.cause.as_str())));
        }
    }

    fn lane(&mut self, partition: Partition, start: i64) -> &LaneMeter {
        let Lanes { live, source, worker, known } = self;
        known.entry(partition).or_insert_with(|| {
            let name = &live.sources[usize::from(source.0)].name;
            let lane = live.figures.lane(name, partition.0, *worker, start);
            let slices = live.launch.slices();
            for slice in slices.filter(|s| s.key.source == *name && s.key.partition == partition) {
                lane.slice(&slice.key.sink, slice.position.0);
            }
            // A sink that has stored nothing of it yet begins with what is read first.
            for sink in live.sinks.iter().filter(|sink| sink.sources.contains(source)) {
                lane.slice(&sink.name, start);
            }
            lane
        })
    }
}
