//! Killed at each step around the transaction: nothing is lost, nothing is there twice.

mod common;

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use common::figure;
use common::load::Load;
use common::story::{LONG, PARTITIONS, Story};

/// The steps of a run in their order, and how often they are passed before the kill.
const STEPS: [(&str, &[u32]); 11] = [
    ("locked", &[1]),
    ("generation-begun", &[1]),
    ("starts-stored", &[1]),
    ("begun", &[1, 3]),
    ("rows-sent", &[1, 3]),
    ("rejects-stored", &[2]),
    ("slices-moved", &[1, 4]),
    ("committed", &[1, 4]),
    ("stored", &[1, 3]),
    ("group-behind", &[1, 2]),
    ("group-asked", &[1, 2]),
];

const SIGKILL: i32 = 9;

#[test]
fn a_kill_at_any_step_neither_loses_nor_doubles_a_row() {
    let mut story = Story::new("steps");
    let mut events = 0;
    let mut round = 0;
    for (step, times) in STEPS {
        for count in times {
            // Starts are stored once: only the first run of a story does it.
            let mut own = (step == "starts-stored").then(|| Story::new("starts"));
            let first = if own.is_some() { 0 } else { events };
            let target = own.as_ref().unwrap_or(&story);
            let workers = (round % 3 + 1).to_string();
            let at = format!("{step}@{count}");
            // Orders come while it runs, so that there are many transactions.
            let load = Load::start(&target.topic, first, PARTITIONS);
            let flags = ["-w", &workers, "--linger", "5ms"];
            let run = target.run_with(&flags, &[("TIDEGATE_FAILPOINT", &at)]);
            let (status, out, err) = run.wait(Duration::from_secs(60));
            assert_eq!(status.signal(), Some(SIGKILL), "{at}: {status}\n{out}\n{err}");
            let last = load.stop();
            match &mut own {
                None => events = last,
                Some(own) => {
                    own.run(&["--until-end"]).success(LONG);
                    own.verify(last);
                }
            }
            round += 1;
        }
    }
    let summary = story.run(&["-w", "2", "--until-end"]).success(LONG);
    story.verify(events);
    assert_eq!(figure(&summary, "consumed"), 2 * events, "each order once at each sink");
}

#[test]
fn a_step_that_is_not_reached_kills_nothing() {
    let mut story = Story::new("none");
    story.produce(0..500);
    let never = [("TIDEGATE_FAILPOINT", "committed@1000000")];
    story.run_with(&["--until-end"], &never).success(LONG);
    story.verify(500);
}
