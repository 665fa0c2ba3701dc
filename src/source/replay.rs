//! Records that were set aside, read once more.

use std::collections::{BTreeMap, VecDeque};

use super::decode::decode;
use super::{Batch, Poll, Reader, Standing};
use crate::codec::Codec;
use crate::error::Result;
use crate::origins::{Origin, Replay};
use crate::record::{Lane, Offset, Partition, Record, SourceId, Span};

/// Hands out kept records instead of a source's own. Each has a span of its own, which moves nothing.
pub(super) struct Replayer<C> {
    topic: String,
    source: SourceId,
    codec: C,
    records: VecDeque<(Partition, Offset, Origin)>,
}

impl<C> Replayer<C> {
    pub(super) fn new(topic: String, source: SourceId, codec: C, records: Replay) -> Self {
        Replayer { topic, source, codec, records: records.into() }
    }
}

impl<C: Codec> Reader<C::Value> for Replayer<C> {
    fn poll(&mut self, limit: usize, batch: &mut Batch<C::Value>) -> Result<Poll> {
        for (partition, offset, origin) in self.records.drain(..limit.min(self.records.len())) {
            let record = Record {
                topic: &self.topic,
                partition,
                offset,
                timestamp: origin.timestamp,
                key: origin.key.as_deref(),
                value: origin.value.as_deref(),
                headers: &origin.headers,
            };
            decode(&mut self.codec, self.source, &record, true, batch);
            batch.bytes += record.value.map_or(0, <[u8]>::len);
            batch.spans.push(Span {
                lane: Lane { source: self.source, partition },
                from: offset,
                upto: Offset(offset.0 + 1),
                records: 1,
                times: None,
                leader_epoch: None,
            });
        }
        Ok(if self.records.is_empty() { Poll::End } else { Poll::More })
    }

    fn commit(&mut self, _positions: &BTreeMap<Partition, Offset>, _wait: bool) -> Result<()> {
        Ok(()) // the group's offsets are the run's
    }

    fn standings(&self) -> Vec<Standing> {
        Vec::new()
    }
}
