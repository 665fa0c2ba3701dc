//! How long a record takes from Kafka to where a query sees it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Suite;
use super::load::{PARTITIONS, Topic, order, producer, send};
use super::place::Place;
use super::process::{Running, words};
use super::report::Report;

/// Messages a second.
const RATE: u64 = 20_000;

/// Messages that are sent before any counts: the run's first statements are prepared with them.
const WARM: u64 = RATE * 2;

pub fn measure(suite: &Suite, report: &mut Report) {
    let seconds = if suite.short { 10 } else { 30 };
    let (mut p50, mut p99) = (Vec::new(), Vec::new());
    for round in 0..suite.rounds(3, 5) {
        let mut waits = run(RATE * seconds + WARM);
        waits.sort_by(f64::total_cmp);
        let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize];
        report.run("p50_ms", round, "wait", at(0.5), "ms");
        report.run("p99_ms", round, "wait", at(0.99), "ms");
        report.run("p99_ms", round, "longest wait", at(1.0), "ms");
        p50.push(at(0.5));
        p99.push(at(0.99));
    }
    report.figure("p50_ms", p50);
    report.figure("p99_ms", p99);
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64() * 1000.0
}

/// From the time that a record is stamped with, as its producer takes it, to the first look at the
/// positions that finds it stored; in milliseconds, for each record.
fn run(messages: u64) -> Vec<f64> {
    let topic = Topic::new("visible", PARTITIONS);
    let mut place = Place::new("visible");
    let table = place.table("seen");
    let books = place.books();
    let chain = Running::start(&words(&format!(
        "chain --topic {} --table {table} --schema {books} --keep all --linger-ms 50 --endless",
        topic.0
    )));
    let sent = std::thread::spawn({
        let topic = topic.0.clone();
        move || {
            let producer = producer();
            let mut stamps = vec![Vec::new(); PARTITIONS as usize];
            let began = Instant::now();
            for index in 0..messages {
                // A burst every two milliseconds.
                if index.is_multiple_of(RATE / 500) {
                    let due = Duration::from_secs_f64(index as f64 / RATE as f64);
                    std::thread::sleep(due.saturating_sub(began.elapsed()));
                }
                let partition = (index % PARTITIONS as u64) as i32;
                stamps[partition as usize].push(now_ms());
                send(&producer, &topic, partition, &order(index));
            }
            rdkafka::producer::Producer::flush(&producer, Duration::from_secs(30))
                .expect("all sent");
            stamps
        }
    });
    // The positions move in the transaction of their rows.
    let query = format!("select partition, position from {books}.slices");
    let mut seen: Vec<Vec<(i64, f64)>> = vec![Vec::new(); PARTITIONS as usize];
    let limit = Instant::now() + Duration::from_secs(180);
    loop {
        assert!(Instant::now() < limit, "the rows do not become visible");
        // There are none before the first flush.
        let rows = place.client.query(&query, &[]).unwrap_or_default();
        let now = now_ms();
        for row in rows {
            let (partition, position): (i32, i64) = (row.get(0), row.get(1));
            let seen = &mut seen[partition as usize];
            if seen.last().is_none_or(|(last, _)| *last < position) {
                seen.push((position, now));
            }
        }
        let stored: i64 = seen.iter().filter_map(|seen| seen.last()).map(|(upto, _)| upto).sum();
        if stored as u64 >= messages {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let stamps = sent.join().expect("all messages were sent");
    chain.terminate();
    chain.wait(Duration::from_secs(600));
    let mut waits = Vec::new();
    for (stamps, seen) in stamps.iter().zip(&seen) {
        let mut seen = seen.iter().peekable();
        for (offset, stamp) in (0..).zip(stamps) {
            while seen.next_if(|(upto, _)| *upto <= offset).is_some() {}
            let (_, visible) = seen.peek().expect("all are stored");
            if offset as u64 >= WARM / PARTITIONS as u64 {
                waits.push(visible - stamp);
            }
        }
    }
    waits
}
