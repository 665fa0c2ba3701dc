//! More workers and more processes.

use std::time::Duration;

use super::Suite;
use super::load::Topic;
use super::place::Place;
use super::process::{Running, run, words};
use super::proxy::Proxy;
use super::report::Report;

/// From one worker to two, where only the processor counts.
pub fn by_processor(suite: &Suite, report: &mut Report) {
    let orders = if suite.short { 2_000_000 } else { 4_000_000 };
    let mut ratios = Vec::new();
    for round in 0..suite.rounds(3, 7) {
        let time = |workers| run(&words(&format!("parse --orders {orders} -w {workers}"))).work;
        let (one, two) = (time(1), time(2));
        report.run("scale_cpu", round, "-w 1", one, "s");
        report.run("scale_cpu", round, "-w 2", two, "s");
        ratios.push(one / two);
    }
    report.figure("scale_cpu", ratios);
}

/// From one worker to eight, where each waits for the network: every COMMIT arrives 20 ms late, and each
/// worker may hold so little that it has to wait for it. With room for more, one worker would put more
/// rows into a transaction, and the wait would vanish.
pub fn by_latency(suite: &Suite, report: &mut Report) {
    const EACH_KIB: usize = 256;
    let rows = if suite.short { 300_000 } else { 600_000 };
    let topic = Topic::of_orders("latency", rows);
    let mut place = Place::new("latency");
    let proxy = Proxy::new(Duration::from_millis(20));
    let mut ratios = Vec::new();
    for round in 0..suite.rounds(2, 5) {
        let mut time = |workers: usize| {
            let table = place.table("far");
            let books = place.books();
            let mut arguments = words(&format!(
                "chain --topic {} --table {table} --schema {books} --linger-ms 0 -w {workers} \
                 --memory-kib {}",
                topic.0,
                EACH_KIB * workers
            ));
            arguments.extend(["--url".to_owned(), proxy.url.clone()]);
            let done = run(&arguments);
            assert_eq!(done.count, rows);
            done.work
        };
        let (one, eight) = (time(1), time(8));
        report.run("scale_latency", round, "-w 1", one, "s");
        report.run("scale_latency", round, "-w 8", eight, "s");
        ratios.push(one / eight);
    }
    report.figure("scale_latency", ratios);
}

/// Two workers in one process, and in two.
pub fn by_processes(suite: &Suite, report: &mut Report) {
    let orders = 1_000_000;
    let topic = Topic::of_orders("processes", orders);
    let mut place = Place::new("processes");
    let mut ratios = Vec::new();
    for round in 0..suite.rounds(3, 5) {
        let mut time = |processes: usize, workers: usize| {
            let table = place.table("spread");
            place.settle();
            let books = place.books();
            let begun: Vec<Running> = (0..processes)
                .map(|process| {
                    Running::start(&words(&format!(
                        "chain --topic {} --table {table} --schema {books} -w {workers} \
                         -n {processes} -p {process}",
                        topic.0
                    )))
                })
                .collect();
            let limit = Duration::from_secs(300);
            let ended: Vec<_> = begun.into_iter().map(|process| process.wait(limit)).collect();
            ended.iter().map(|done| done.wall).fold(0.0, f64::max)
        };
        let (threads, processes) = (time(1, 2), time(2, 1));
        report.run("scale_processes", round, "-w 2", threads, "s");
        report.run("scale_processes", round, "-n 2 -w 1", processes, "s");
        ratios.push(threads / processes);
    }
    report.figure("scale_processes", ratios);
}
