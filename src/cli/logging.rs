//! The log, on standard error, around the progress bar.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use super::progress;

/// How the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// A JSON object a line, also for the error that ends the run.
    Json,
}

static FORMAT: OnceLock<Format> = OnceLock::new();

/// How the log is written.
pub(super) fn format() -> Format {
    FORMAT.get().copied().unwrap_or_default()
}

/// Logs what `TIDEGATE_LOG` says. A program that has set up its own log keeps it.
pub(super) fn install(format: Format) {
    let filter = EnvFilter::try_from_env("TIDEGATE_LOG")
        .unwrap_or_else(|_| EnvFilter::new("warn,tidegate=info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(AroundBar);
    let installed = match format {
        Format::Text => log.with_target(false).with_ansi(io::stderr().is_terminal()).try_init(),
        Format::Json => log.json().flatten_event(true).try_init(),
    };
    if installed.is_ok() {
        let _ = FORMAT.set(format);
    }
}

/// Writes each event while the progress bar is out of the way.
struct AroundBar;

impl MakeWriter<'_> for AroundBar {
    type Writer = Event;

    fn make_writer(&self) -> Event {
        Event(Vec::new())
    }
}

/// One event, written as a whole at its end.
struct Event(Vec<u8>);

impl Write for Event {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // A log that cannot be written is no reason to end a run.
        progress::suspended(|| drop(io::stderr().write_all(&self.0)));
    }
}
