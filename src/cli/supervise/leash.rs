//! What a child has of its supervisor.

use std::io::BufRead;

use signal_hook::low_level;

use crate::cli::output;
use crate::cli::signals::{AT_ONCE, Ask};
use crate::cluster::panic;
use crate::error::{Error, Kind, Result};

/// Tells a child which process it is, and the how manieth of its host.
pub(super) const VARIABLE: &str = "TIDEGATE_SUPERVISED";
/// Lines of its standard input.
pub(super) const STOP: &str = "stop";
pub(super) const NOW: &str = "now";

/// This process is the child of a supervisor.
pub(in crate::cli) struct Leash {
    /// Which process of the run it is.
    pub process: usize,
    /// The how manieth of its host, from 0.
    pub place: u16,
}

impl Leash {
    /// The leash that the environment tells of.
    pub fn find() -> Result<Option<Self>> {
        let Some(text) = std::env::var_os(VARIABLE) else { return Ok(None) };
        let text = text.to_string_lossy();
        let parsed = text.split_once(' ').and_then(|(process, place)| {
            Some(Leash { process: process.parse().ok()?, place: place.parse().ok()? })
        });
        let wrong = || {
            Error::config(format!(
                "{VARIABLE} is `{text}`; only `run --supervise` sets it, so unset it"
            ))
        };
        parsed.map(Some).ok_or_else(wrong)
    }

    /// Does from now on what the supervisor says, and ends when it does.
    pub fn hold(&self, ask: Ask) -> Result<()> {
        let hear = move || {
            for line in std::io::stdin().lock().lines().map_while(std::result::Result::ok) {
                match line.trim() {
                    STOP => ask.ask(),
                    NOW => low_level::exit(AT_ONCE),
                    _ => {}
                }
            }
            // At once: the supervisor that takes its place must not meet this run.
            let error = Error::new(Kind::Peer, "the supervisor was lost, so its processes end");
            output::complain(&error);
            panic::exit(error.kind().exit_code());
        };
        std::thread::Builder::new()
            .name("tidegate:leash".into())
            .spawn(hear)
            .map(drop)
            .map_err(|error| Error::internal("the supervisor cannot be listened to").because(error))
    }

    /// Where this process serves what the first of its host serves at `address`: each at the next port.
    pub fn shifted(&self, address: &str) -> Result<String> {
        let shifted = address.rsplit_once(':').and_then(|(host, port)| {
            let port: u16 = port.parse().ok()?;
            // Port 0 is any that is free.
            let port = if port == 0 { 0 } else { port.checked_add(self.place)? };
            Some(format!("{host}:{port}"))
        });
        shifted.ok_or_else(|| {
            Error::config(format!("`{address}` leaves no port for each process of this host"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_of_a_host_has_a_port_of_its_own() {
        let leash = |place| Leash { process: 7, place };
        assert_eq!(leash(0).shifted("127.0.0.1:9464").unwrap(), "127.0.0.1:9464");
        assert_eq!(leash(2).shifted("[::1]:9464").unwrap(), "[::1]:9466");
        assert_eq!(leash(2).shifted("127.0.0.1:0").unwrap(), "127.0.0.1:0");
        assert!(leash(1).shifted("127.0.0.1:65535").is_err());
    }
}
