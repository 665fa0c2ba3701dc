//! A door: where a sink drops what its slices have applied already.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::{At, Lane, Offset, Span};

/// The positions of one sink's slices at the start of the run. Rows before them were applied by an
/// earlier run, and are dropped; spans are clipped the same way. The source splits spans at every
/// slice's position, so a span is let through whole or not at all.
#[derive(Clone, Debug, Default)]
pub struct Door {
    applied: BTreeMap<Lane, Offset>,
    /// In a replay, all that is let in.
    only: Option<BTreeSet<(Lane, Offset)>>,
    /// Where it closes again; then it is closed for partitions that are not named.
    ends: Option<BTreeMap<Lane, Offset>>,
}

impl Door {
    /// A door that stands at these positions; it is open for partitions that are not named.
    pub fn new(applied: BTreeMap<Lane, Offset>) -> Self {
        Door { applied, ..Door::default() }
    }

    /// A door that lets in these records, and nothing else.
    pub fn only(records: BTreeSet<(Lane, Offset)>) -> Self {
        Door { only: Some(records), ..Door::default() }
    }

    /// A door that is open between two positions of each of these partitions, and closed for all others.
    pub fn between(bounds: BTreeMap<Lane, (Offset, Offset)>) -> Self {
        let part = |of: fn(&(Offset, Offset)) -> Offset| {
            bounds.iter().map(|(lane, bounds)| (*lane, of(bounds))).collect()
        };
        Door { applied: part(|(from, _)| *from), ends: Some(part(|(_, upto)| *upto)), only: None }
    }

    /// Whether a row at these coordinates is new.
    pub fn admits(&self, at: &At) -> bool {
        if let Some(only) = &self.only {
            return only.contains(&(at.lane(), at.offset));
        }
        self.applied.get(&at.lane()).is_none_or(|applied| at.offset >= *applied)
            && self.is_before_end(at.lane(), at.offset)
    }

    fn is_before_end(&self, lane: Lane, offset: Offset) -> bool {
        self.ends.as_ref().is_none_or(|ends| ends.get(&lane).is_some_and(|end| offset < *end))
    }

    /// The part of `span` that is new, if any.
    ///
    /// # Panics
    ///
    /// Where the door stands inside the span, which its source was told to split there.
    pub fn clip(&self, span: Span) -> Option<Span> {
        match self.applied.get(&span.lane) {
            _ if !self.is_before_end(span.lane, span.from) => None,
            Some(applied) if span.upto <= *applied => None,
            Some(applied) if span.from < *applied => {
                panic!("a span is split at every door: [{}, {}) at {applied}", span.from, span.upto)
            }
            _ => Some(span),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Partition, SourceId};

    #[test]
    fn what_was_applied_stays_out_and_the_rest_comes_in() {
        let lane = Lane { source: SourceId(0), partition: Partition(2) };
        let door = Door::new([(lane, Offset(10))].into());
        let at = |offset| At {
            source: lane.source,
            partition: lane.partition,
            offset: Offset(offset),
            ordinal: 0,
        };
        assert!(!door.admits(&at(9)));
        assert!(door.admits(&at(10)));
        let (records, times) = (1, None);
        let span = |from, upto| Span {
            lane,
            from: Offset(from),
            upto: Offset(upto),
            records,
            times,
            leader_epoch: None,
        };
        assert_eq!(door.clip(span(5, 10)), None);
        assert_eq!(door.clip(span(10, 12)), Some(span(10, 12)));
        let other = Span { lane: Lane { partition: Partition(3), ..lane }, ..span(0, 4) };
        assert_eq!(door.clip(other), Some(other));

        let window = Door::between([(lane, (Offset(10), Offset(12)))].into());
        assert!(!window.admits(&at(9)) && window.admits(&at(11)) && !window.admits(&at(12)));
        assert_eq!(window.clip(span(10, 12)), Some(span(10, 12)));
        assert_eq!(window.clip(span(12, 14)), None);
        assert_eq!(window.clip(other), None);
    }
}
