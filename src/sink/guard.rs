//! Stops a run that sets too many records aside.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{SinkContext, SinkId, SourceContext};
use crate::error::{Error, Kind, Result};
use crate::record::{Reject, SourceId};

/// How many records this run has read and refused so far, per sink and source; one for all workers of a
/// process. Asked before each commit, told after it, so that what passes the limit is not stored.
#[derive(Debug, Default)]
pub struct Guard(Mutex<BTreeMap<(SinkId, SourceId), Count>>);

/// Records of one source at one sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Read.
    pub consumed: u64,
    /// Refused.
    pub rejected: u64,
}

impl Guard {
    /// Whether what this run has stored, and `count` on top, is within the limit of `source`. `last` is
    /// one of those refused.
    pub fn ask(
        &self,
        sink: &SinkContext,
        (id, source): (SourceId, &SourceContext),
        count: Count,
        last: Option<&Reject>,
    ) -> Result<()> {
        let stored = self.counts().get(&(sink.id, id)).copied().unwrap_or_default();
        let consumed = stored.consumed + count.consumed;
        let rejected = stored.rejected + count.rejected;
        if count.rejected == 0 || !source.limit.is_passed(consumed, rejected) {
            return Ok(());
        }
        let name = &source.name;
        let last = last.map_or(String::new(), |Reject { at, refusal }| {
            let column = refusal.column.as_ref().map(|column| format!("column `{column}`, "));
            format!(
                "; the last is `{name}[{}]@{}`: {}{}",
                at.partition,
                at.offset,
                column.unwrap_or_default(),
                refusal.reason
            )
        });
        Err(Error::new(
            Kind::Refused,
            format!(
                "{rejected} of {consumed} records of `{name}` were refused for `{}` in this run, more \
                 than its limit{last}; the position stays before those that passed it: correct the \
                 dataflow or the table, or raise `max_rejects` and `max_reject_rate`",
                sink.name
            ),
        ))
    }

    /// Adds what was stored.
    pub fn tell(&self, sink: SinkId, source: SourceId, count: Count) {
        let mut counts = self.counts();
        let stored = counts.entry((sink, source)).or_default();
        stored.consumed += count.consumed;
        stored.rejected += count.rejected;
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<(SinkId, SourceId), Count>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
