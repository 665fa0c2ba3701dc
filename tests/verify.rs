//! The log and what is stored, compared: after bad records, kills and tampering, on the real services.

mod common;

use std::process::Command;
use std::time::Duration;

use postgres::Client;

use common::{Order, Process, connect, eventually, figure, mix, produce, schema, topic, unique};

const LONG: Duration = Duration::from_secs(120);

/// What `verify` said.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    fn last(&self) -> &str {
        self.out.lines().last().unwrap_or_default()
    }

    fn differences(&self) -> u64 {
        let expected = if figure(self.last(), "differences") == 0 { 0 } else { 9 };
        assert_eq!(self.code, Some(expected), "{}{}", self.out, self.err);
        figure(self.last(), "differences")
    }
}

struct Story {
    /// Of the schema and the pipeline.
    name: String,
    /// A dataflow and its parameters.
    args: Vec<String>,
    client: Client,
}

impl Story {
    fn new(name: String, dataflow: &str, params: &[String]) -> Self {
        let mut args = vec![dataflow.to_owned(), "--name".into(), name.clone()];
        params.iter().for_each(|param| args.extend(["--param".to_owned(), param.clone()]));
        Story { name, args, client: connect() }
    }

    /// `copy` into an append table that refuses 13.
    fn copy(test: &str, topic: &str) -> Self {
        let name = unique(test);
        let ddl = format!(
            "create schema {name}; create table {name}.t (id int check (id <> 13), v text)"
        );
        connect().batch_execute(&ddl).expect("a schema");
        let params = [format!("topic={topic}"), format!("table={name}.t"), "name=rows".to_owned()];
        Story::new(name, "copy", &params)
    }

    fn start(&self, command: &str, more: &[&str]) -> Process {
        let args = [command].into_iter().chain(self.args.iter().map(String::as_str));
        Process::spawn(&args.chain(more.iter().copied()).collect::<Vec<_>>())
    }

    fn run(&self, more: &[&str]) -> String {
        self.start("run", &[&["--until-end"], more].concat()).success(LONG)
    }

    fn verify(&self, more: &[&str]) -> Said {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("verify")
            .args(&self.args)
            .args(more)
            .env("TIDEGATE_LOG", "error")
            .output()
            .expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn position(&mut self) -> i64 {
        let query =
            "select coalesce(sum(position), 0)::int8 from tidegate.slices where pipeline = $1";
        self.client.query_one(query, &[&self.name]).expect("a sum").get(0)
    }

    /// Changes the pipeline's slices.
    fn tamper(&mut self, change: &str) {
        let name = &self.name;
        let sql = format!("update tidegate.slices set {change} and pipeline = '{name}'");
        self.client.batch_execute(&sql).expect("changed");
    }

    fn execute(&mut self, sql: &str) {
        let sql = sql.replace("{s}", &self.name);
        self.client.batch_execute(&sql).expect("done");
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        common::forget(&mut self.client, &self.name);
    }
}

/// Record `index` of a log of which one in a hundred is bad in some way.
fn value(index: u64) -> Option<Vec<u8>> {
    let good = format!(r#"{{"id":{},"v":"row {index}"}}"#, index + 100);
    let value = match (index % 100 == 57, mix(index) % 7) {
        (false, _) => good.into_bytes(),
        (true, 0) => b"not JSON".to_vec(),
        (true, 1) => b"\xff\xfe".to_vec(),
        (true, 2) => format!(r#"{{"id":"x{index}"}}"#).into_bytes(),
        (true, 3) => format!(r#"{{"id":13,"v":"{index}"}}"#).into_bytes(),
        (true, 4) => format!(r#"{{"id":{index},"v":"a\u0000b"}}"#).into_bytes(),
        (true, 5) => format!(r#"{{"id":{index}000000000}}"#).into_bytes(),
        (true, _) => b"[1]".to_vec(),
    };
    // Tombstones, which a table without a key leaves out.
    (index % 1000 != 3).then_some(value)
}

#[test]
fn a_thousand_bad_records_and_a_kill_add_up() {
    let topic = topic("verify_bad", 4);
    let mut story = Story::copy("verify_bad", &topic);
    let records = 100_000_u64;
    let place = |index: u64| i32::try_from(mix(index) % 4).expect("one of four");
    produce(&topic, (0..records).map(|index| (place(index), Vec::new(), value(index))));

    let mut run = story.start("run", &["-w", "2", "--max-rows", "2000"]);
    let far = eventually(LONG, || (run.has_ended() || story.position() > 30_000).then_some(()));
    assert!(far.is_some() && !run.has_ended(), "{}", run.output());
    run.kill();
    assert!(story.position() < 100_000, "it was killed on its way");
    // As it stands.
    assert_eq!(story.verify(&["-w", "2"]).differences(), 0);

    let summary = story.run(&["-w", "2"]);
    assert_eq!(figure(&summary, "consumed"), records);
    assert_eq!(figure(&summary, "filtered"), 100);
    assert_eq!(figure(&summary, "rejected"), 1000);
    let said = story.verify(&["-w", "2"]);
    assert_eq!(said.differences(), 0, "{}", said.out);
    assert_eq!(said.last(), "verified slices=4 records=100000 differences=0");
    assert!(!said.out.contains("note"), "{}", said.out);

    // Nothing of the run's was touched.
    let position = story.position();
    assert_eq!(position, 100_000);

    story.tamper("filtered = filtered + 1, written = written - 1 where partition = 2");
    let said = story.verify(&[]);
    assert_eq!(said.differences(), 1, "{}", said.out);
    assert!(said.out.contains("filtered is "), "{}", said.out);
    story.tamper("filtered = filtered - 1, written = written + 1 where partition = 2");
    assert_eq!(story.verify(&[]).differences(), 0);

    story.tamper("collapsed = collapsed + 1 where partition = 1");
    let said = story.verify(&[]);
    assert!(said.out.contains("is not the sum of"), "{}", said.out);
    assert_eq!(said.differences(), 1);
    story.tamper("collapsed = collapsed - 1 where partition = 1");

    story.execute("delete from {s}.t where id = 100");
    let said = story.verify(&[]);
    assert_eq!(said.differences(), 1);
    assert!(said.out.contains("98900 rows were written, and it holds 98899"), "{}", said.out);
    story.execute("insert into {s}.t select 100 from generate_series(1, 2)");
    let said = story.verify(&[]);
    assert_eq!(said.differences(), 0);
    assert!(said.out.contains("note: table of `rows`: 98900 rows"), "{}", said.out);

    // Fewer rejects: a note. More: a difference.
    story.execute(
        "delete from tidegate.rejects where pipeline = '{s}' and \"offset\" < 5000 and partition = 0",
    );
    let said = story.verify(&[]);
    assert_eq!(said.differences(), 0);
    assert!(said.out.contains("are still set aside"), "{}", said.out);
    story.execute(
        "insert into tidegate.rejects (pipeline, sink, topic, partition, \"offset\", ordinal, stage, reason)
         select pipeline, sink, source, partition, n, 0, 'decode', 'made up'
           from tidegate.slices, generate_series(0, 2000) n where pipeline = '{s}' and partition = 3",
    );
    let said = story.verify(&[]);
    assert_eq!(said.differences(), 1);
    assert!(said.out.contains("records are set aside"), "{}", said.out);

    // Every reject replays once its cause is gone: the constraint, and the taste for JSON.
    story.execute(
        "delete from tidegate.rejects where pipeline = '{s}' and reason = 'made up';
         alter table {s}.t drop constraint t_id_check, add raw bytea",
    );
    let kept = "select count(*) from tidegate.rejects where pipeline = $1";
    let kept: i64 = story.client.query_one(kept, &[&story.name]).expect("a count").get(0);
    assert!(kept > 900, "{kept}");
    let raw = ["--replay", "--param", "column.raw=value"];
    let replayed = story.start("rejects", &raw).success(LONG);
    let done = (figure(&replayed, "replayed"), figure(&replayed, "written"));
    assert_eq!(done, (kept as u64, kept as u64), "{replayed}");
    let said = story.verify(&["-w", "2"]);
    assert_eq!(said.differences(), 0, "{}", said.out);
}

#[test]
fn each_sink_is_counted_over_its_own_part() {
    let topic = topic("verify_sinks", 2);
    let mut client = connect();
    let name = schema(&mut client, "verify_sinks");
    let params = [
        format!("topic={topic}"),
        format!("log={name}.order_log"),
        format!("table={name}.valid_orders"),
    ];
    let mut story = Story::new(name, "order_log", &params);
    let events = 4000;
    produce(&topic, (0..events).map(|index| Order::event(index).message(2)));
    story.run(&["-w", "2"]);
    assert_eq!(story.verify(&["-w", "2"]).differences(), 0);

    // One sink stands in the middle, with what belongs to it there.
    let key = format!("{}.valid_orders", story.name);
    let in_zero: Vec<Order> =
        (0..events).map(Order::event).filter(|order| order.message(2).0 == 0).collect();
    let half = in_zero.len() / 2;
    let removed = in_zero[..half].iter().filter(|order| order.status == "removed").count();
    story.tamper(&format!(
        "position = {half}, consumed = {half}, filtered = {removed}, written = {}, collapsed = 0
          where partition = 0 and sink = '{key}'",
        half - removed
    ));
    let said = story.verify(&["-w", "2"]);
    assert_eq!(said.differences(), 0, "{}", said.out);
    assert_eq!(figure(said.last(), "records"), 2 * events - (in_zero.len() - half) as u64);

    // And where one begins in the middle.
    story.tamper(&format!(
        "first = {half}, position = {}, consumed = {1}, filtered = 0, written = {1}, collapsed = 0
          where partition = 0 and sink like '%order_log'",
        in_zero.len(),
        in_zero.len() - half
    ));
    let said = story.verify(&["-w", "2"]);
    assert_eq!(said.differences(), 0, "{}", said.out);
}

#[test]
fn what_the_log_has_lost_is_named() {
    let topic = topic("verify_lost", 1);
    let mut story = Story::copy("verify_lost", &topic);
    produce(&topic, (0..500).map(|index| (0, Vec::new(), value(index))));
    let unknown = story.verify(&[]);
    assert_eq!(unknown.code, Some(3), "{}", unknown.out);
    assert!(unknown.err.contains("has stored no position"), "{}", unknown.err);
    story.run(&[]);
    common::delete_before(&topic, 0, 200);
    let said = story.verify(&[]);
    assert_eq!(said.differences(), 0, "{}", said.out);
    assert!(said.out.contains("not recounted: the log no longer holds [0, 200)"), "{}", said.out);
    story.tamper("consumed = consumed + 1 where partition = 0");
    assert_eq!(story.verify(&[]).differences(), 1, "what is stored must add up all the same");
    story.tamper("consumed = consumed - 1 where partition = 0");

    let moved = story.start("positions", &["--set", &format!("{topic}[0]=300")]);
    moved.success(LONG);
    let said = story.verify(&[]);
    assert_eq!(said.differences(), 0, "{}", said.out);
    assert!(said.out.contains("moved by hand"), "{}", said.out);
}

#[test]
fn a_pipeline_is_verified_while_it_runs() {
    let topic = topic("verify_live", 2);
    let mut story = Story::copy("verify_live", &topic);
    let place = |index: u64| i32::try_from(index % 2).expect("one of two");
    produce(&topic, (0..2000).map(|index| (place(index), Vec::new(), value(index))));
    let mut run = story.start("run", &["-w", "2"]);
    let mut sent = 2000;
    for _ in 0..3 {
        produce(&topic, (sent..sent + 2000).map(|index| (place(index), Vec::new(), value(index))));
        sent += 2000;
        let said = story.verify(&[]);
        assert_eq!(said.differences(), 0, "{}", said.out);
    }
    let done = eventually(LONG, || (story.position() == sent as i64).then_some(()));
    assert!(done.is_some() && !run.has_ended(), "it was not disturbed");
    run.signal("-TERM");
    assert_eq!(figure(&run.success(LONG), "consumed"), sent);
}
