//! What records held as they were read, kept until they are durable for those that come to be refused.
//!
//! One arena a poll: bytes are copied, and not allocated record by record. Filled only where a source's policy asks for it, and charged to the
//! memory budget.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
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
///
/// A record's bytes lie one behind the other (key, value, the names and values of its headers), so that
/// their lengths say where.
#[derive(Debug, Default)]
pub struct Origins {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The lengths of each header's name and value.
    headers: Vec<(Length, Length)>,
}

/// How many bytes there are, if there is anything.
type Length = Option<NonZeroU32>;

#[derive(Debug)]
struct Entry {
    lane: Lane,
    offset: Offset,
    timestamp: Option<i64>,
    key: Length,
    value: Length,
    headers: u32,
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
        let key = self.copy(record.key);
        let value = self.copy(record.value);
        let first = self.headers.len();
        for (name, value) in (0..).map_while(|index| record.headers.get(index)) {
            let name = self.copy(Some(name.as_bytes()));
            let value = self.copy(value);
            self.headers.push((name, value));
        }
        self.entries.push(Entry {
            lane: Lane { source, partition: record.partition },
            offset: record.offset,
            timestamp: record.timestamp,
            key,
            value,
            headers: (self.headers.len() - first) as u32,
        });
    }

    /// Keeps `bytes`; their length, one more than it is.
    fn copy(&mut self, bytes: Option<&[u8]>) -> Length {
        let bytes = bytes?;
        let length = u32::try_from(bytes.len()).expect("the protocol counts in 31 bits");
        self.bytes.extend_from_slice(bytes);
        NonZeroU32::MIN.checked_add(length)
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
        let mut rest = &self.bytes[..];
        let mut next = |length: Length| {
            let length = length?.get() - 1;
            let (bytes, after) = rest.split_at(length as usize);
            rest = after;
            Some(bytes)
        };
        let mut headers = self.headers.iter();
        for entry in &self.entries {
            let (key, value) = (next(entry.key), next(entry.value));
            let headers: Vec<_> = headers
                .by_ref()
                .take(entry.headers as usize)
                .map(|(name, value)| (next(*name).unwrap_or_default(), next(*value)))
                .collect();
            let Some(origin) = wanted.get_mut(&(entry.lane, entry.offset)) else { continue };
            let headers = headers.into_iter().map(|(name, value)| {
                (String::from_utf8_lossy(name).into_owned(), value.map(<[u8]>::to_vec))
            });
            *origin = Some(Origin {
                timestamp: entry.timestamp,
                key: key.map(<[u8]>::to_vec),
                value: value.map(<[u8]>::to_vec),
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
