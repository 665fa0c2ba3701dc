//! Memory while the sink stands still, and processor time while nothing comes.

use std::time::Duration;

use super::Suite;
use super::common::eventually;
use super::load::{PARTITIONS, Topic, produce};
use super::place::Place;
use super::process::{Running, words};
use super::proxy::Proxy;
use super::report::Report;

/// The stated budget of the runs, in MiB.
const BUDGET: f64 = 256.0;

/// How long the sink stands still.
const STILL: Duration = Duration::from_secs(60);

/// The greatest memory, of ten million messages that wait and of 64 partitions of large ones.
pub fn memory(_suite: &Suite, report: &mut Report) {
    let mut peaks = Vec::new();
    let small = Topic::of_orders("memory", 10_000_000);
    peaks.push(stalled(&small));
    drop(small);
    let large = Topic::new("memory_large", 64);
    // Orders with a field that nobody reads.
    let filler = "x".repeat(200_000);
    produce(
        &large.0,
        (0..6400_u64).map(|index| {
            let order = String::from_utf8(super::load::order(index)).expect("JSON is text");
            let order = order.trim_end_matches('}');
            ((index % 64) as i32, format!(r#"{order},"filler":"{filler}"}}"#).into_bytes())
        }),
    );
    peaks.push(stalled(&large));
    for (part, peak) in ["10M small", "64 x 100 large"].into_iter().zip(&peaks) {
        report.run("rss_mb", 0, part, *peak, "MiB");
    }
    report.bounded("rss_mb", peaks, BUDGET + 64.0, BUDGET);
}

/// The peak of a run whose sink stands still once it has begun.
fn stalled(topic: &Topic) -> f64 {
    let mut place = Place::new("memory");
    let table = place.table("slow");
    let books = place.books();
    let proxy = Proxy::new(Duration::ZERO);
    let mut arguments = words(&format!(
        "chain --topic {} --table {table} --schema {books} --memory-kib {} --endless",
        topic.0,
        BUDGET * 1024.0
    ));
    arguments.extend(["--url".to_owned(), proxy.url.clone()]);
    let chain = Running::start(&arguments);
    let begun = || (place.count(&table) > 0).then_some(());
    eventually(Duration::from_secs(60), begun).expect("a row comes");
    proxy.pause(true);
    std::thread::sleep(STILL);
    proxy.pause(false);
    chain.terminate();
    chain.wait(Duration::from_secs(240)).peak
}

/// Processor time of two processes of four workers that wait for messages.
pub fn idle(_suite: &Suite, report: &mut Report) {
    let topic = Topic::new("idle", PARTITIONS);
    let mut place = Place::new("idle");
    let table = place.table("empty");
    let books = place.books();
    let processes: Vec<Running> = (0..2)
        .map(|process| {
            Running::start(&words(&format!(
                "chain --topic {} --table {table} --schema {books} --endless -w 4 -n 2 -p {process}",
                topic.0
            )))
        })
        .collect();
    // Until they have begun.
    std::thread::sleep(Duration::from_secs(5));
    let spent = || processes.iter().map(Running::cpu).sum::<f64>();
    let (before, time) = (spent(), Duration::from_secs(60));
    std::thread::sleep(time);
    let share = 100.0 * (spent() - before) / time.as_secs_f64();
    processes.iter().for_each(Running::terminate);
    for process in processes {
        process.wait(Duration::from_secs(240));
    }
    report.run("idle_cpu", 0, "both processes", share, "% of a core");
    report.figure("idle_cpu", vec![share]);
}
