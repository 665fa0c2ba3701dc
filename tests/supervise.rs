//! `run --supervise`: the processes of a host, started together, and together again.

mod common;

use std::time::{Duration, Instant};

use common::load::Load;
use common::story::{LONG, PARTITIONS, Story, hostfile};
use common::{Process, eventually};

/// The children of a process: their ids by the process of the run that they are.
fn children(parent: u32) -> Vec<(usize, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        if fields[1] != parent.to_string() || fields[0] == "Z" {
            continue;
        }
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let which =
            environment.split('\0').find_map(|line| line.strip_prefix("TIDEGATE_SUPERVISED="));
        // Between fork and exec it has the supervisor's own environment.
        let Some(which) = which else { continue };
        found.push((which.split(' ').next().unwrap().parse().unwrap(), pid));
    }
    found.sort_unstable();
    found
}

fn all(supervisor: &Process, count: usize) -> Vec<(usize, u32)> {
    let found = eventually(Duration::from_secs(30), || {
        Some(children(supervisor.child.id())).filter(|found| found.len() == count)
    });
    found.expect("all processes are started")
}

fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next())
        .is_some_and(|state| state != "Z")
}

fn kill(pid: u32) {
    let status =
        std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_killed_child_brings_all_back_and_nothing_is_lost_or_doubled() {
    let mut story = Story::new("supervised");
    let load = Load::start(&story.topic, 0, PARTITIONS);
    let hosts = hostfile(3);
    let mut run = story.run(&[
        "--supervise",
        "-n",
        "3",
        "-h",
        &hosts,
        "--restart-delay",
        "200ms",
        "--linger",
        "10ms",
        "--max-rows",
        "500",
    ]);
    for (round, victim) in [2, 0].into_iter().enumerate() {
        let enough = story.progress() + 2000;
        story.until(enough, &mut [&mut run]);
        assert_eq!(story.generation(), round as i64 + 1);
        let before = all(&run, 3);
        assert_eq!(before.iter().map(|child| child.0).collect::<Vec<_>>(), [0, 1, 2]);
        kill(before[victim].1);
        // All are others afterwards.
        let back = eventually(Duration::from_secs(30), || {
            let now = children(run.child.id());
            (now.len() == 3 && now.iter().all(|child| !before.contains(child))).then_some(())
        });
        back.expect("all processes are started again");
    }
    let enough = story.progress() + 2000;
    story.until(enough, &mut [&mut run]);
    let orders = load.stop();
    story.until(2 * orders as i64, &mut [&mut run]);
    run.signal("-TERM");
    let (status, out, err) = run.wait(LONG);
    assert!(status.success(), "{status}\n{err}");
    // Every line says whose it is.
    assert!(out.lines().any(|line| line.starts_with("[0] consumed=")), "{out}");
    assert!(err.lines().any(|line| line.starts_with("[2] ")), "{err}");
    assert!(err.contains("process 2 was ended by signal 9"), "{err}");
    story.verify(orders);
}

#[test]
fn a_frozen_child_is_killed_and_all_come_back() {
    let mut story = Story::new("frozen_child");
    story.produce(0..1_000);
    let hosts = hostfile(2);
    let flags = ["--supervise", "-n", "2", "-h", &hosts, "--peer-timeout", "3s"];
    let mut run = story.run(&flags);
    story.until(2_000, &mut [&mut run]);
    let (_, frozen) = all(&run, 2)[1];
    let status = std::process::Command::new("kill").args(["-STOP", &frozen.to_string()]).status();
    assert!(status.unwrap().success());
    story.produce(1_000..2_000);
    story.until(4_000, &mut [&mut run]);
    assert!(!lives(frozen));
    run.signal("-TERM");
    let (status, _, err) = run.wait(LONG);
    assert!(status.success(), "{status}\n{err}");
    assert!(err.contains("process 1 does not end; killed"), "{err}");
    story.verify(2_000);
}

#[test]
fn a_supervisor_that_is_killed_takes_its_children_with_it() {
    let mut story = Story::new("orphans");
    story.produce(0..1_000);
    let hosts = hostfile(2);
    let mut run = story.run(&["--supervise", "-n", "2", "-h", &hosts]);
    story.until(2_000, &mut [&mut run]);
    let children = all(&run, 2);
    let killed = Instant::now();
    run.kill();
    let ended = eventually(Duration::from_secs(10), || {
        children.iter().all(|(_, pid)| !lives(*pid)).then_some(())
    });
    ended.expect("the children end");
    println!("after {:?}", killed.elapsed());
    // Another supervisor finds nothing in its way.
    story.produce(1_000..2_000);
    let again = story.run(&["--supervise", "-n", "2", "-h", &hosts, "--until-end"]);
    again.success(LONG);
    story.verify(2_000);
}

#[test]
fn a_run_that_was_fenced_is_not_started_again() {
    let mut story = Story::new("fenced");
    story.produce(0..1_000);
    let mut run = story.run(&["--supervise", "--restart-delay", "10ms"]);
    story.until(2_000, &mut [&mut run]);
    let mut other = story.run(&["--take-over"]);
    let (status, _, err) = run.wait(Duration::from_secs(60));
    assert_eq!(status.code(), Some(6), "{err}");
    assert!(err.contains("not restarted"), "{err}");
    story.produce(1_000..2_000);
    story.until(4_000, &mut [&mut other]);
    assert_eq!(story.generation(), 2, "nobody took it back");
    other.signal("-TERM");
    other.success(LONG);
    story.verify(2_000);
}

#[test]
fn what_a_person_must_mend_is_not_tried_again_and_what_may_pass_is() {
    let story = Story::new("mend");
    let hosts = hostfile(2);
    let table = ["--param", "table=no_such.table"];
    let flags = ["--supervise", "-n", "2", "-h", &hosts, "--restart-delay", "10ms"];
    let (status, _, err) = story.run(&[&flags[..], &table].concat()).wait(LONG);
    assert_eq!(status.code(), Some(3), "{err}");
    assert_eq!(err.matches("are started").count(), 1, "{err}");

    let nowhere = [("DATABASE_URL", "postgres://nobody@127.0.0.1:9/nothing")];
    let flags = [&flags[..], &["--max-restarts", "2"]].concat();
    let (status, _, err) = story.run_with(&flags, &nowhere).wait(LONG);
    assert_eq!(status.code(), Some(5), "{err}");
    assert_eq!(err.matches("are started").count(), 3, "{err}");
    assert!(err.contains("after 2 restarts in a row; given up"), "{err}");
}

#[test]
fn a_bounded_run_ends_with_its_children_and_wrong_flags_are_refused() {
    let mut story = Story::new("bounded");
    story.produce(0..5_000);
    let hosts = hostfile(2);
    story.run(&["--supervise", "-n", "2", "-w", "2", "-h", &hosts, "--until-end"]).success(LONG);
    story.verify(5_000);
    for (flags, sentence) in [
        (&["--supervise", "-n", "2", "-p", "1"][..], "by --here instead of -p"),
        (&["--supervise", "-n", "2", "--here", "2"], "--here names process 2, but -n 2 has only"),
        (&["--here", "0"], "--supervise"),
    ] {
        let (status, _, err) = story.run(flags).wait(LONG);
        assert_eq!(status.code(), Some(2), "{err}");
        assert!(err.contains(sentence), "{err}");
    }
}
