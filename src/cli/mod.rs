//! The command line, the same for the shipped program and for one of a user's own.
//!
//! A program hands its dataflows to [`main()`] and has all commands for them:
//!
//! ```no_run
//! use std::process::ExitCode;
//! use tidegate::cli::Entry;
//! use tidegate::{Engine, Json, Result, sink::Postgres, source::kafka::Kafka};
//!
//! #[derive(Clone, serde::Serialize, serde::Deserialize)]
//! struct Payment { payment_id: i64, cents: i64 }
//!
//! fn payments(engine: Engine<'_>) -> Result<()> {
//!     engine
//!         .dataframe(Kafka::topic("payments", Json::<Payment>::new()))
//!         .filter(|payment| payment.cents > 0)
//!         .sink(Postgres::table("payments").key("payment_id"));
//!     Ok(())
//! }
//!
//! fn main() -> ExitCode {
//!     tidegate::cli::main([Entry::new("payments", "payments above zero", payments)])
//! }
//! ```
//!
//! Results go to standard output, everything else to standard error. An error is one line,
//! `error: ` and a sentence, and its kind decides the exit code ([`Kind::exit_code`]). A run that
//! is asked to end by SIGINT or SIGTERM ends in good order with 0; a second signal ends it at once
//! with 130, and one that is not done within its grace period ends with 124.

mod args;
mod check;
mod command;
mod demo;
mod entry;
mod failpoint;
mod graph;
mod list;
mod logging;
mod output;
mod params;
mod positions;
mod produce;
mod progress;
mod rejects;
mod run;
mod schema;
mod send;
mod settings;
mod signals;
mod supervise;
mod top;
mod units;
mod verify;

pub use entry::Entry;

use std::ffi::OsString;
use std::process::ExitCode;

use self::command::Command;
use self::entry::Entries;
use self::logging::Format;
use crate::cluster::panic;
use crate::error::{Error, Kind, Result};

/// Runs the command that the program's arguments name, for these dataflows. For a program's `main`:
/// it sets up logging.
pub fn main(entries: impl IntoIterator<Item = Entry>) -> ExitCode {
    panic::install_panic_hook();
    failpoint::install();
    exit(run_from(std::env::args_os(), entries.into_iter().collect()))
}

fn run_from(args: impl IntoIterator<Item = OsString>, entries: Vec<Entry>) -> Result<()> {
    let entries = Entries::new(entries)?;
    let Some(command) = command::parse(args)? else { return Ok(()) };
    logging::install(match &command {
        Command::Run(args) => args.log,
        _ => Format::Text,
    });
    match command {
        Command::Run(args) => run::run(&entries, &args),
        Command::List => list::list(&entries),
        Command::Check(args) => check::check(&entries, &args),
        Command::Positions(args) => positions::positions(&entries, &args),
        Command::Rejects(args) => rejects::rejects(&entries, &args),
        Command::Verify(args) => verify::verify(&entries, &args),
        Command::Top(args) => top::top(&args),
        Command::Schema(args) => schema::schema(&args),
        Command::Produce(args) => produce::produce(&args),
        Command::Demo(args) => demo::demo(&entries, &args),
    }
}

/// Says what went wrong, if anything did.
fn exit(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            match logging::format() {
                Format::Text => progress::suspended(|| output::complain(&error)),
                Format::Json => {
                    let exit_code = error.kind().exit_code();
                    tracing::error!(exit_code, "{error}");
                }
            }
            // Not by returning: a run that failed may have left threads behind.
            panic::exit(error.kind().exit_code())
        }
    }
}

/// An error in the arguments.
fn usage(sentence: impl Into<String>) -> Error {
    Error::new(Kind::Usage, sentence)
}
