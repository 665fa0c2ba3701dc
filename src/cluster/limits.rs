//! The time limits of a start; only tests change them.

use std::time::Duration;

/// How long each step of a start may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// One handshake, from the first byte to the last.
    pub(crate) handshake: Duration,
    /// From the mesh to a process's word that it is ready, and to process 0's first word.
    pub(crate) ready: Duration,
    /// Between two words of process 0.
    pub(crate) silence: Duration,
    /// Between two heartbeats of process 0.
    pub(crate) beat: Duration,
    /// Without a word from what process 0 does, its heart stops: no lead is stuck for ever.
    pub(crate) stuck: Duration,
    /// For process 0's answer once something is known to be wrong, so that all say the same.
    pub(crate) grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            handshake: Duration::from_secs(5),
            ready: Duration::from_secs(120),
            silence: Duration::from_secs(30),
            beat: Duration::from_secs(2),
            stuck: Duration::from_secs(300),
            grace: Duration::from_secs(5),
        }
    }
}
