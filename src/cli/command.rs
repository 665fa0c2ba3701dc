//! The commands and how arguments become one.

use std::ffi::OsString;
use std::path::Path;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

use super::check::CheckArgs;
use super::demo::DemoArgs;
use super::output::print;
use super::positions::PositionsArgs;
use super::produce::ProduceArgs;
use super::rejects::RejectsArgs;
use super::run::RunArgs;
use super::schema::SchemaArgs;
use super::top::TopArgs;
use super::usage;
use super::verify::VerifyArgs;
use crate::error::Result;

const AFTER: &str = "\
Environment:
  DATABASE_URL      the PostgreSQL database, with libpq's options
  TIDEGATE_BROKERS  the Kafka brokers, `host:port` separated by commas
  TIDEGATE_KAFKA_CONFIG  a file of settings of the Kafka client, `name=value` a line
  TIDEGATE_METRICS  where `run` serves its figures, `host:port`
  TIDEGATE_LOG      what is logged: `error`, `warn`, `info` (the default), `debug`, or by module

Exit codes:
    0  done, or stopped in good order
    1  an error of Tidegate itself
    2  the command line is wrong
    3  a dataflow, parameter, table or column is not as it must be
    4  the source failed: broker, topic, position
    5  the sink failed: database, table, transaction
    6  another run took over; nothing more was written
    7  another process of the cluster was lost
    8  a record was refused, and its source's policy is to stop
    9  `verify` found that the log and what is stored differ
   10  a stored position and the log do not fit together
  124  asked to end, but not done within the grace period
  130  ended at once by a second signal";

/// Moves Kafka topics through filters into PostgreSQL, exactly once.
#[derive(Parser)]
#[command(version, subcommand_required = true, after_help = AFTER)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
pub(super) enum Command {
    /// Runs a dataflow until it is stopped, or has reached the end with --until-end.
    Run(RunArgs),
    /// Lists the dataflows of this program.
    List,
    /// Connects, verifies and prints the plan of a dataflow, without running it.
    Check(CheckArgs),
    /// Shows where a dataflow stands, and moves or drops positions.
    Positions(PositionsArgs),
    /// Lists, groups, exports or deletes the records that were set aside.
    Rejects(RejectsArgs),
    /// Counts the log again and compares it with what is stored.
    Verify(VerifyArgs),
    /// Shows what runs do that serve their figures (`run --metrics`), once a second.
    Top(TopArgs),
    /// Prints the SQL that creates the bookkeeping tables, for those whose role may not.
    Schema(SchemaArgs),
    /// Sends JSON lines into a topic.
    Produce(ProduceArgs),
    /// Shows the main job: makes orders, moves them through a filter into a table, checks the table.
    Demo(DemoArgs),
}

/// Reads the arguments; `None` where help or the version was asked for, and printed.
pub(super) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Option<Command>> {
    let args: Vec<OsString> = args.into_iter().collect();
    let parsed = command()
        .try_get_matches_from(&args)
        .and_then(|matches| Program::from_arg_matches(&matches));
    match parsed {
        Ok(program) => Ok(Some(program.command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                print(error.render())?;
                Ok(None)
            }
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                Err(usage(format!("no command is given; see `{} --help`", called(&args))))
            }
            _ => Err(usage(sentence(&error, &called(&args)))),
        },
    }
}

/// All commands. Help is `--help` only, since `-h` names the hostfile of a cluster.
fn command() -> clap::Command {
    let help =
        Arg::new("help").long("help").global(true).action(ArgAction::Help).help("Print help");
    Program::command()
        .arg(help)
        .disable_help_flag(true)
        .disable_help_subcommand(true)
        .mut_subcommands(|command| command.disable_help_flag(true))
}

/// The program as it was called, with its command where that is one.
fn called(args: &[OsString]) -> String {
    let program = args.first().and_then(|path| Path::new(path).file_name()?.to_str());
    let program = program.unwrap_or(env!("CARGO_PKG_NAME"));
    let command = args.get(1).and_then(|name| {
        command().get_subcommands().find(|known| name == known.get_name()).map(ToString::to_string)
    });
    command.map_or_else(|| program.to_owned(), |command| format!("{program} {command}"))
}

/// What is wrong, in one line, without the usage that follows it. Not every error has one, hence `called`.
fn sentence(error: &clap::Error, called: &str) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let mut parts =
        text.split("\n\n").map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "));
    let wrong = parts.next().unwrap_or_default();
    let usage = parts.find_map(|part| part.strip_prefix("Usage: ").map(str::to_owned));
    let words = usage.as_deref().unwrap_or(called).split(' ');
    let command: Vec<_> = words.take_while(|word| !word.starts_with(['[', '<', '-'])).collect();
    format!("{wrong}; see `{} --help`", command.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_line(line: &str) -> Result<Option<Command>> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_commands_are_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn a_wrong_flag_is_one_sentence() {
        for (line, expected) in [
            (
                "tidegate run orders --wrokers 2",
                "unexpected argument '--wrokers' found; see `tidegate run --help`",
            ),
            (
                "tidegate run",
                "the following required arguments were not provided: <DATAFLOW>; see `tidegate run --help`",
            ),
            ("tidegate", "no command is given; see `tidegate --help`"),
            ("tidegate rnu", "unrecognized subcommand 'rnu'; see `tidegate --help`"),
            (
                "somewhere/else run orders -w x",
                "invalid value 'x' for '--threads <NUM>': invalid digit found in string; see `else run --help`",
            ),
        ] {
            let error = parse_line(line).err().expect(line);
            assert_eq!(error.to_string(), expected);
            assert_eq!(error.kind().exit_code(), 2);
        }
    }

    #[test]
    fn the_hostfile_keeps_its_letter() {
        let Ok(Some(Command::Run(_))) = parse_line("tidegate run orders -n 2 -p 1 -h hosts.txt")
        else {
            panic!("-h names the hostfile")
        };
    }
}
