//! `tidegate rejects --replay`

use std::fmt::Write;
use std::time::Duration;

use crate::cli::output::print;
use crate::cli::signals;
use crate::error::{Error, Result};
use crate::pipeline::{Kept, Options, Pipeline};
use crate::sink::Selection;

/// How long a replay that is asked to end may take to store the round at hand.
const GRACE: Duration = Duration::from_secs(30);

/// Sends those selected through the dataflow again.
pub(super) fn replay(pipeline: &Pipeline, options: &Options, selection: &Selection) -> Result<()> {
    signals::install(signals::Ask::new(options.stop.clone(), GRACE))?;
    let replayed = pipeline.replay(options, |store, after| {
        let round = Selection {
            after: Some(after.max(selection.after.unwrap_or(0))),
            oldest: Some(Pipeline::REPLAY_ROUND as u64),
            ..selection.clone()
        };
        let mut kept = Vec::new();
        store.rejects(pipeline.name(), &round, &mut |reject| {
            kept.push(Kept {
                id: reject.id,
                sink: reject.sink,
                topic: reject.topic,
                partition: reject.partition,
                offset: reject.offset,
                origin: reject.origin,
            });
            Ok(())
        })?;
        Ok(kept)
    })?;
    let mut lines = String::new();
    for ((sink, why), count) in &replayed.left {
        let _ = writeln!(lines, "{count} of sink `{sink}` are left: {why}");
    }
    let left: u64 = replayed.left.values().sum();
    let _ = write!(
        lines,
        "replayed={} written={} filtered={} collapsed={} rejected={} left={left}",
        replayed.written + replayed.filtered + replayed.collapsed + replayed.rejected,
        replayed.written,
        replayed.filtered,
        replayed.collapsed,
        replayed.rejected,
    );
    print(lines)?;
    if replayed.ended {
        return Err(Error::sink(
            "the replay was asked to end before all was tried; run it again for the rest",
        ));
    }
    Ok(())
}
