//! The whole chain beside COPY, a loop by hand, and a drain.

use std::path::Path;

use super::Suite;
use super::load::Topic;
use super::place::{Place, psql_copy};
use super::process::{Done, run, words};
use super::report::Report;

/// What takes turns on one topic.
struct Bench<'a> {
    topic: &'a Topic,
    orders: u64,
    place: Place,
    /// The surviving rows, as `\copy` reads them.
    file: &'a Path,
    survivors: u64,
}

impl Bench<'_> {
    /// The chain with `more` arguments into `table`.
    fn chain(&mut self, table: &str, more: &str) -> Done {
        let (topic, books) = (&self.topic.0, self.place.books());
        let done =
            run(&words(&format!("chain --topic {topic} --table {table} --schema {books} {more}")));
        assert_eq!(done.count, self.orders, "messages of {topic}");
        done
    }

    /// `\copy` of the surviving rows into a new table.
    fn copy(&mut self) -> f64 {
        let table = self.place.table("copied");
        self.place.settle();
        let wall = psql_copy(&table, "from", self.file);
        assert_eq!(self.place.count(&table), self.survivors);
        wall
    }

    fn append(&mut self, more: &str) -> Done {
        let table = self.place.table("appended");
        self.place.settle();
        let done = self.chain(&table, more);
        assert_eq!(self.place.count(&table), self.survivors);
        done
    }

    fn hand(&mut self) -> Done {
        let table = self.place.table("by_hand");
        self.place.settle();
        let done = run(&words(&format!("hand --topic {} --table {table}", self.topic.0)));
        assert_eq!((done.count, self.place.count(&table)), (self.orders, self.survivors));
        done
    }

    fn drain(&mut self) -> Done {
        let done = run(&words(&format!("drain --topic {}", self.topic.0)));
        assert_eq!(done.count, self.orders);
        done
    }
}

pub fn measure(suite: &Suite, report: &mut Report) {
    let orders = 1_000_000;
    of_size(suite, report, orders);
    if !suite.short && suite.wants(&["copy_ratio"]) {
        let (mut place, topic, file) = prepared(suite, 10_000_000);
        let survivors = survivors(&mut place, &topic, &file);
        let mut bench = Bench { topic: &topic, orders: 10_000_000, place, file: &file, survivors };
        let mut ratios = Vec::new();
        for round in 0..suite.rounds(1, 2) {
            let copy = bench.copy();
            let chain = bench.append("-w 1");
            report.run("copy_ratio_10m", round, "copy", copy, "s");
            report.run("copy_ratio_10m", round, "chain", chain.wall, "s");
            ratios.push(copy / chain.wall);
        }
        report.figure("copy_ratio_10m", ratios);
        std::fs::remove_file(&file).expect("the file was there");
    }
}

fn prepared(suite: &Suite, orders: u64) -> (Place, Topic, std::path::PathBuf) {
    let place = Place::new("throughput");
    let topic = Topic::of_orders("throughput", orders);
    let file = suite.out.join(format!("{orders}.copy"));
    let file = std::path::absolute(&file).expect("a path");
    (place, topic, file)
}

/// Writes the rows that the chain makes of `topic` into `file`; how many they are.
fn survivors(place: &mut Place, topic: &Topic, file: &Path) -> u64 {
    let table = place.table("model");
    let hand = run(&words(&format!("hand --topic {} --table {table}", topic.0)));
    let count = place.count(&table);
    psql_copy(&table, "to", file);
    eprintln!("bench: {count} of {} orders survive", hand.count);
    count
}

fn of_size(suite: &Suite, report: &mut Report, orders: u64) {
    let (mut place, topic, file) = prepared(suite, orders);
    let survivors = survivors(&mut place, &topic, &file);
    let mut bench = Bench { topic: &topic, orders, place, file: &file, survivors };
    let million = orders as f64 / 1e6;

    let wants = |name: &str| suite.wants(&[name]);
    if wants("copy_ratio") || wants("cost_ratio") || wants("us_per_message") {
        let (mut copy_ratio, mut cost_ratio) = (Vec::new(), Vec::new());
        let (mut micros, mut drains) = (Vec::new(), Vec::new());
        for round in 0..suite.rounds(3, 7) {
            let copy = bench.copy();
            let one = bench.append("-w 1");
            let hand = bench.hand();
            let two = bench.append("-w 2");
            let drain = bench.drain();
            report.run("copy_ratio", round, "copy", copy, "s");
            report.run("copy_ratio", round, "chain -w 1", one.wall, "s");
            report.run("copy_ratio", round, "chain -w 2", two.wall, "s");
            report.run("cost_ratio", round, "by hand", hand.wall, "s");
            report.run("us_per_message", round, "chain -w 1", one.cpu / million, "us");
            report.run("us_per_message", round, "chain -w 2", two.cpu / million, "us");
            report.run("us_per_message", round, "by hand", hand.cpu / million, "us");
            report.run("us_per_message", round, "drain", drain.cpu / million, "us");
            copy_ratio.push((copy / one.wall, copy / two.wall));
            cost_ratio.push(hand.wall / one.wall);
            micros.push(one.cpu / million);
            drains.push(one.cpu / drain.cpu);
        }
        // The better of the two numbers of workers, over all rounds.
        let (one, two): (Vec<f64>, Vec<f64>) = copy_ratio.into_iter().unzip();
        let better = super::report::median(&one) >= super::report::median(&two);
        report.figure("copy_ratio", if better { one } else { two });
        report.figure("cost_ratio", cost_ratio);
        report.figure("us_per_message", micros);
        report.figure("times_drain", drains);
    }
    if wants("upsert_ratio") {
        let mut ratios = Vec::new();
        for round in 0..suite.rounds(3, 5) {
            let model = format!("{}.model", bench.place.schema);
            let table = bench.place.table("merged");
            bench.place.settle();
            let merge = bench.place.timed(&format!(
                "insert into {table} select * from {model} on conflict (order_id) do update set
                     customer = excluded.customer, status = excluded.status,
                     amount = excluded.amount, currency = excluded.currency,
                     created_at = excluded.created_at"
            ));
            let table = bench.place.table("keyed");
            bench.place.settle();
            let chain = bench.chain(&table, "--keyed -w 1");
            assert_eq!(bench.place.count(&table), bench.survivors);
            report.run("upsert_ratio", round, "insert .. on conflict", merge, "s");
            report.run("upsert_ratio", round, "chain", chain.wall, "s");
            ratios.push(merge / chain.wall);
        }
        report.figure("upsert_ratio", ratios);
    }
    if wants("metrics_cost") && !suite.short {
        let mut ratios = Vec::new();
        for round in 0..suite.rounds(1, 9) {
            let mut cpu = |more: &str| {
                let table = bench.place.table("watched");
                bench.place.settle();
                bench.chain(&table, &format!("-w 1 {more}")).cpu / million
            };
            // Each of them comes first in every other round.
            let (plain, watched) = if round % 2 == 0 {
                let plain = cpu("");
                (plain, cpu("--metrics"))
            } else {
                let watched = cpu("--metrics");
                (cpu(""), watched)
            };
            report.run("metrics_cost", round, "without metrics", plain, "us");
            report.run("metrics_cost", round, "with metrics", watched, "us");
            ratios.push(watched / plain);
        }
        report.figure("metrics_cost", ratios);
    }
    if wants("filter_all") {
        let mut ratios = Vec::new();
        for round in 0..suite.rounds(3, 7) {
            let table = bench.place.table("nothing");
            let chain = bench.chain(&table, "--keep none -w 1");
            let drain = bench.drain();
            report.run("filter_all", round, "chain", chain.wall, "s");
            report.run("filter_all", round, "drain", drain.wall, "s");
            ratios.push(drain.wall / chain.wall);
        }
        report.figure("filter_all", ratios);
    }
    std::fs::remove_file(&file).expect("the file was there");
}
