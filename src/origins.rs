//! What records held as they were read, kept until they are durable for those that come to be refused.
//!
//! One arena a poll: bytes are copied, and not allocated record by record. Filled only where a source's policy asks for it, and charged to the
//! memory budget.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::record::{Lane, Offset, Partition, Record, SourceId, Span};

/// What a source tells beside its rows.
#[derive(Clone, Debug)]
pub enum Read {
    /// What was read.
    Span(Span),
    /// What its records held.
    Origins(Arc<Origins>),
    /// A record that was set aside is read once more.
    Again(Lane, Offset),
}

/// What one record held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// Milliseconds since 1970-01-01 UTC.
    pub timestamp: Option<i64>,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Option<Vec<u8>>,
    /// The headers, in their order.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Records of one source that were kept, with where they stood, for a replay.
pub type Replay = Vec<(Partition, Offset, Origin)>;

/// What the records of a poll held.
#[derive(Debug, Default)]
pub struct Origins {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    headers: Vec<(Range<usize>, Option<Range<usize>>)>,
}

#[derive(Debug)]
struct Entry {
    lane: Lane,
    offset: Offset,
    timestamp: Option<i64>,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    headers: Range<usize>,
}

impl Origins {
    /// Room for as much again as `last` held.
    pub fn like(last: &Origins) -> Self {
        Origins {
            bytes: Vec::with_capacity(last.bytes.len()),
            entries: Vec::with_capacity(last.entries.len()),
            headers: Vec::with_capacity(last.headers.len()),
        }
    }

    /// Keeps `record` of `source`.
    pub fn push(&mut self, source: SourceId, record: &Record<'_>) {
        let key = record.key.map(|key| self.copy(key));
        let value = record.value.map(|value| self.copy(value));
        let first = self.headers.len();
        for (name, value) in (0..).map_while(|index| record.headers.get(index)) {
            let name = self.copy(name.as_bytes());
            let value = value.map(|value| self.copy(value));
            self.headers.push((name, value));
        }
        self.entries.push(Entry {
            lane: Lane { source, partition: record.partition },
            offset: record.offset,
            timestamp: record.timestamp,
            key,
            value,
            headers: first..self.headers.len(),
        });
    }

    fn copy(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How much memory it takes, in bytes.
    pub fn size(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    /// Fills in those of `wanted` that it holds.
    pub fn find(&self, wanted: &mut BTreeMap<(Lane, Offset), Option<Origin>>) {
        let bytes = |range: &Range<usize>| self.bytes[range.clone()].to_vec();
        for entry in &self.entries {
            let Some(origin) = wanted.get_mut(&(entry.lane, entry.offset)) else { continue };
            let headers = self.headers[entry.headers.clone()].iter().map(|(name, value)| {
                let name = String::from_utf8_lossy(&self.bytes[name.clone()]).into_owned();
                (name, value.as_ref().map(bytes))
            });
            *origin = Some(Origin {
                timestamp: entry.timestamp,
                key: entry.key.as_ref().map(bytes),
                value: entry.value.as_ref().map(bytes),
                headers: headers.collect(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_empty_and_absent_stay_apart() {
        let headers = vec![
            ("a".to_owned(), None),
            ("a".to_owned(), Some(vec![])),
            ("b".into(), Some(vec![255])),
        ];
        let record = Record {
            topic: "t",
            partition: Partition(1),
            offset: Offset(7),
            timestamp: Some(5),
            key: None,
            value: Some(b""),
            headers: &headers,
        };
        let mut origins = Origins::default();
        origins.push(SourceId(2), &record);
        origins.push(
            SourceId(2),
            &Record { offset: Offset(8), key: Some(b"k"), headers: &(), ..record },
        );
        let lane = Lane { source: SourceId(2), partition: Partition(1) };
        let mut wanted = [((lane, Offset(7)), None), ((lane, Offset(9)), None)].into();
        origins.find(&mut wanted);
        let found = wanted[&(lane, Offset(7))].as_ref().unwrap();
        assert_eq!((&found.key, &found.value), (&None, &Some(vec![])));
        assert_eq!(found.headers, headers);
        assert_eq!(wanted[&(lane, Offset(9))], None);
    }
}
