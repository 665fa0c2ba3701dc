//! Whether a run that lost its other processes was replaced meanwhile.

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::bounded;

use super::Pipeline;
use crate::error::{Error, Kind};
use crate::frame::Live;
use crate::sink::Generation;

impl Pipeline {
    /// How long the question may take: what cut off the other processes may have cut off the database.
    const QUESTION: Duration = Duration::from_secs(3);

    /// Another error for the loss of a process, where another run of the pipeline has begun since: this
    /// process was frozen or cut off until then, and a supervisor must not start it again.
    pub(super) fn unless_fenced(&self, live: &Arc<Live>, error: Error) -> Error {
        if error.kind() != Kind::Peer {
            return error;
        }
        let (answer, answered) = bounded(1);
        let (name, live) = (self.name.clone(), Arc::clone(live));
        let ask = move || {
            let newer = live.stores.iter().find_map(|store| {
                let stored = store.store.generation(&name).ok().flatten()?;
                (stored > store.generation).then_some((stored, store.generation))
            });
            let _ = answer.send(newer);
        };
        let asked = std::thread::Builder::new().name("tidegate:fenced".to_owned()).spawn(ask);
        match asked.map(|_| answered.recv_timeout(Pipeline::QUESTION)) {
            Ok(Ok(Some((theirs, mine)))) => by(&self.name, theirs, mine).because(error),
            _ => error,
        }
    }
}

/// The error of the run `mine`, which `theirs` has replaced.
pub(super) fn by(pipeline: &str, theirs: Generation, mine: Generation) -> Error {
    Error::new(
        Kind::Fenced,
        format!(
            "pipeline `{pipeline}` was taken over by generation {}; this run ({}) wrote nothing more",
            theirs.0, mine.0
        ),
    )
}
