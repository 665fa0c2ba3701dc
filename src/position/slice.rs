//! Slices, and where a run resumes when they stand at different places.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Counters;
use crate::record::{Incarnation, Offset, Partition};

/// The name of a slice within its pipeline: a partition of a source, per sink.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SliceKey {
    /// The sink's name.
    pub sink: String,
    /// The source's name.
    pub source: String,
    /// The source's partition.
    pub partition: Partition,
}

impl fmt::Display for SliceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}[{}]` into `{}`", self.source, self.partition, self.sink)
    }
}

/// A slice as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Its name.
    pub key: SliceKey,
    /// How many transactions moved it.
    pub seq: i64,
    /// The next offset to read.
    pub position: Offset,
    /// What became of the records before the position.
    pub counters: Counters,
    /// Of which of all sources of that name; nothing is known where it was stored by an older version, or
    /// moved by hand.
    pub incarnation: Incarnation,
    /// Under which leader the record right before the position was written, where that is known.
    pub leader_epoch: Option<i32>,
}

/// One move of a slice, to be stored with the rows that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The slice.
    pub key: SliceKey,
    /// Its stored position before; a slice that stands elsewhere refuses the move.
    pub from: Offset,
    /// Its position after.
    pub upto: Offset,
    /// Under which leader the record right before that was written, where that is known.
    pub leader_epoch: Option<i32>,
    /// What to add to its counters.
    pub counters: Counters,
}

/// The least position of each partition over all sinks: where its reading resumes.
pub fn resume<'a>(
    slices: impl IntoIterator<Item = &'a Slice>,
    source: &str,
) -> BTreeMap<Partition, Offset> {
    let mut least = BTreeMap::new();
    for slice in slices.into_iter().filter(|slice| slice.key.source == source) {
        least
            .entry(slice.key.partition)
            .and_modify(|offset: &mut Offset| *offset = slice.position.min(*offset))
            .or_insert(slice.position);
    }
    least
}

/// The leader epochs that go with [`resume`]'s positions, where they are known.
pub fn leader_epochs<'a>(
    slices: impl IntoIterator<Item = &'a Slice>,
    source: &str,
    starts: &BTreeMap<Partition, Offset>,
) -> BTreeMap<Partition, i32> {
    let of_source = slices.into_iter().filter(|slice| slice.key.source == source);
    let stands = of_source
        .filter(|slice| starts.get(&slice.key.partition).is_some_and(|at| *at == slice.position));
    stands.filter_map(|slice| Some((slice.key.partition, slice.leader_epoch?))).collect()
}

/// The least position of each partition that all of `sinks` have stored: what is durable everywhere. A
/// partition that one of them has nothing of is left out.
pub fn durable<'a>(
    slices: impl IntoIterator<Item = &'a Slice>,
    source: &str,
    sinks: &[&str],
) -> BTreeMap<Partition, Offset> {
    let mut least = BTreeMap::<Partition, (Offset, usize)>::new();
    for Slice { key, position, .. } in slices {
        if key.source == source && sinks.contains(&key.sink.as_str()) {
            let (offset, stored) = least.entry(key.partition).or_insert((*position, 0));
            *offset = (*offset).min(*position);
            *stored += 1;
        }
    }
    least.retain(|_, (_, stored)| *stored == sinks.len());
    least.into_iter().map(|(partition, (offset, _))| (partition, offset)).collect()
}

/// The positions of each partition's slices above its resume point, ascending: where spans must be
/// split so that each door lets whole spans through or none.
pub fn cuts<'a>(
    slices: impl IntoIterator<Item = &'a Slice>,
    source: &str,
) -> BTreeMap<Partition, Vec<Offset>> {
    let mut positions = BTreeMap::<Partition, Vec<Offset>>::new();
    for slice in slices.into_iter().filter(|slice| slice.key.source == source) {
        positions.entry(slice.key.partition).or_default().push(slice.position);
    }
    positions.retain(|_, offsets| {
        offsets.sort_unstable();
        offsets.dedup();
        offsets.remove(0);
        !offsets.is_empty()
    });
    positions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(sink: &str, partition: i32, position: i64) -> Slice {
        Slice {
            key: SliceKey {
                sink: sink.into(),
                source: "orders".into(),
                partition: Partition(partition),
            },
            seq: 0,
            position: Offset(position),
            counters: Counters::default(),
            incarnation: Incarnation::default(),
            leader_epoch: None,
        }
    }

    #[test]
    fn a_run_resumes_from_the_least_position_and_splits_at_the_others() {
        let slices = [
            slice("a", 0, 7),
            slice("b", 0, 3),
            slice("c", 0, 9),
            slice("a", 1, 5),
            slice("b", 1, 5),
        ];
        assert_eq!(
            resume(&slices, "orders"),
            [(Partition(0), Offset(3)), (Partition(1), Offset(5))].into()
        );
        assert_eq!(cuts(&slices, "orders"), [(Partition(0), vec![Offset(7), Offset(9)])].into());
        assert!(resume(&slices, "other").is_empty());
    }

    #[test]
    fn durable_is_what_every_sink_has_stored() {
        let slices = [
            slice("a", 0, 7),
            slice("b", 0, 3),
            slice("gone", 0, 1),
            slice("a", 1, 5),
            slice("gone", 1, 5),
        ];
        assert_eq!(durable(&slices, "orders", &["a", "b"]), [(Partition(0), Offset(3))].into());
        assert!(durable(&slices, "other", &["a", "b"]).is_empty());
    }
}
