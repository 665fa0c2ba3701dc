//! What was set aside: listed, grouped, exported, deleted, told on the real services.

mod common;

use std::process::Command;
use std::time::Duration;

use postgres::Client;
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use serde_json::{Value, json};

use common::{brokers, connect, eventually, figure, topic, unique};

const LIMIT: Duration = Duration::from_secs(60);

type Bytes = Option<&'static [u8]>;

/// Key, value, headers.
type Sent<'a> = (Bytes, Bytes, &'a [(&'a str, Bytes)]);

/// A topic, a table with a constraint, and a pipeline of `copy` from the one to the other.
struct Story {
    name: String,
    topic: String,
    client: Client,
}

/// What a command said.
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Story {
    fn new(test: &str) -> Self {
        let (name, mut client) = (unique(test), connect());
        let ddl = format!(
            "create schema {name}; create table {name}.t (id int check (id <> 13), v text)"
        );
        client.batch_execute(&ddl).expect("a schema");
        Story { topic: topic(test, 1), name, client }
    }

    fn send(&self, records: &[Sent<'_>]) {
        let producer: ThreadedProducer<DefaultProducerContext> =
            ClientConfig::new().set("bootstrap.servers", brokers()).create().expect("a producer");
        for (key, value, headers) in records {
            let mut record = BaseRecord::<[u8], [u8]>::to(&self.topic).partition(0).timestamp(77);
            (record.key, record.payload) = (*key, *value);
            let headers = headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                headers.insert(Header { key, value: *value })
            });
            producer.send(record.headers(headers)).map_err(|(error, _)| error).expect("queued");
        }
        producer.flush(LIMIT).expect("all records are acknowledged");
    }

    fn values(&self, values: &[&'static str]) {
        let records: Vec<_> =
            values.iter().map(|value| (None, Some(value.as_bytes()), &[][..])).collect();
        self.send(&records);
    }

    fn say(&self, command: &str, more: &[&str]) -> Said {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        program.args([command, "copy", "--name", &self.name]).env("TIDEGATE_LOG", "error");
        program.args(["--param", &format!("topic={}", self.topic)]);
        program.args(["--param", &format!("table={}.t", self.name), "--param", "name=rows"]);
        let output = program.args(more).output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    fn run(&self, more: &[&str]) -> String {
        let said = self.say("run", &[&["--until-end"], more].concat());
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        said.out.lines().last().unwrap_or_default().to_owned()
    }

    /// The output of `rejects`, which succeeds.
    fn rejects(&self, more: &[&str]) -> String {
        let said = self.say("rejects", more);
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        said.out
    }

    /// What `rejects --json` exports.
    fn exported(&self, more: &[&str]) -> Vec<Value> {
        let out = self.rejects(&[&["--json"], more].concat());
        out.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    fn offsets(&self, more: &[&str]) -> Vec<i64> {
        self.exported(more).iter().map(|r| r["offset"].as_i64().expect("a number")).collect()
    }

    /// Makes rejects of these offsets old.
    fn age(&mut self, offsets: &str, age: &str) {
        let name = &self.name;
        let sql = format!(
            "update tidegate.rejects set at = now() - interval '{age}'
              where pipeline = '{name}' and \"offset\" in ({offsets})"
        );
        self.client.batch_execute(&sql).expect("updated");
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        common::forget(&mut self.client, &self.name);
    }
}

const BAD: [&str; 7] = [
    "nonsense",
    r#"{"id":1,"v":"good"}"#,
    r#"{"id":"x1"}"#,
    r#"{"id":"x2"}"#,
    r#"{"id":13,"v":"b"}"#,
    r#"{"id":5,"v":"a\u0000b"}"#,
    r#"{"id":13,"v":"c"}"#,
];

#[test]
fn refused_records_are_listed_filtered_and_grouped() {
    let story = Story::new("rejects_list");
    story.values(&BAD);
    assert_eq!(figure(&story.run(&[]), "rejected"), 6);

    let all = story.rejects(&[]);
    assert_eq!(all.lines().count(), 7, "{all}");
    let newest = story.offsets(&["--limit", "2"]);
    assert_eq!(newest, story.offsets(&[])[4..], "the newest, and newest last");
    assert_eq!(story.offsets(&["--sqlstate", "23514"]), [4, 6]);
    assert_eq!(story.offsets(&["--stage", "write", "--reason", "(13, c)"]), [6]);
    assert_eq!(story.offsets(&["--since", "1h", "--stage", "decode"]), [0]);
    assert_eq!(story.offsets(&["--older-than", "1h"]), [0_i64; 0]);
    assert_eq!(story.offsets(&["--sink", "rows", "--partition", "0"]).len(), 6);
    assert_eq!(story.offsets(&["--topic", "other"]), [0_i64; 0]);
    let none = story.rejects(&["--topic", "other"]);
    assert!(none.contains("has set no record aside like that"), "{none}");

    let groups = story.rejects(&["--by-reason"]);
    let counts: Vec<_> = groups
        .lines()
        .skip(1)
        .map_while(|l| l.split_whitespace().next()?.parse::<u64>().ok())
        .collect();
    assert_eq!(counts, [2, 2, 1, 1], "{groups}");
    assert!(groups.contains("(Failing row contains (…))"), "{groups}");
    assert!(groups.contains("`…` is no integer"), "{groups}");
    let topic = &story.topic;
    assert!(groups.contains(&format!("{topic}[0]@4: new row for relation")), "{groups}");
}

#[test]
fn an_export_is_exact() {
    let story = Story::new("rejects_export");
    let odd: &[(&str, Bytes)] =
        &[("a", None), ("a", Some(b"")), ("b", Some(b"\xff\0")), ("c", Some("ä\"".as_bytes()))];
    story.send(&[
        (None, Some(b""), &[]),
        (Some(b""), Some(b"\xff\xfe"), odd),
        (Some(b"k\0"), Some("[\"ä\\\n\"]".as_bytes()), &[]),
        (Some(b"k"), Some(b"a\0b"), &[]),
    ]);
    story.run(&[]);
    let exported = story.exported(&[]);
    let held: Vec<_> = exported
        .iter()
        .map(|r| [&r["key"], &r["key_hex"], &r["payload"], &r["payload_hex"]].map(Clone::clone))
        .collect();
    let null = Value::Null;
    assert_eq!(
        held,
        [
            [null.clone(), null.clone(), json!(""), null.clone()],
            [json!(""), null.clone(), null.clone(), json!("fffe")],
            [null.clone(), json!("6b00"), json!("[\"ä\\\n\"]"), null.clone()],
            [json!("k"), null.clone(), null.clone(), json!("610062")],
        ]
    );
    assert!(exported[0].as_object().expect("an object").contains_key("key"), "null is said");
    assert_eq!(
        exported[1]["headers"],
        json!([{"name": "a"}, {"name": "a", "text": ""}, {"name": "b", "hex": "ff00"},
               {"name": "c", "text": "ä\""}])
    );
    assert_eq!(exported[1]["timestamp_ms"], 77);
    assert_eq!((&exported[1]["sink"], &exported[1]["ordinal"]), (&json!("rows"), &json!(0)));
    let at = exported[0]["at"].as_str().expect("text");
    assert!(at.ends_with('Z') && at.contains('T'), "{at}");
}

#[test]
fn an_export_of_many_comes_whole_and_ends_when_nobody_reads() {
    let mut story = Story::new("rejects_many");
    story.values(&["nonsense"]);
    story.run(&[]);
    let name = story.name.clone();
    let many = "insert into tidegate.rejects (pipeline, sink, topic, partition, \"offset\", ordinal,
            key, payload, headers, timestamp_ms, stage, reason)
        select pipeline, sink, topic, partition, n, 0, key, payload, headers, timestamp_ms, stage, reason
          from tidegate.rejects, generate_series(1, 20000) n where pipeline = $1";
    story.client.execute(many, &[&name]).expect("inserted");
    let offsets = story.offsets(&[]);
    assert_eq!(offsets, (0..=20_000).collect::<Vec<_>>());
    let head = Command::new("sh")
        .args(["-c", "\"$@\" | head -n 1", "sh", env!("CARGO_BIN_EXE_tidegate"), "rejects", "copy"])
        .args(["--name", &name, "--json", "--param", "topic=t", "--param", "table=t"])
        .output()
        .expect("it runs");
    assert_eq!(String::from_utf8_lossy(&head.stderr), "");
    assert_eq!(head.stdout.iter().filter(|byte| **byte == b'\n').count(), 1);
    // More than one batch.
    assert_eq!(story.rejects(&["--delete", "--keep", "1", "--yes"]), "deleted=20000\n");
    assert_eq!(story.offsets(&[]), [20_000]);
}

#[test]
fn deleting_needs_a_yes_and_takes_what_is_selected() {
    let mut story = Story::new("rejects_delete");
    story.values(&BAD);
    story.run(&[]);
    let refused = story.say("rejects", &["--delete"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert_eq!(story.offsets(&[]).len(), 6);
    assert_eq!(story.say("rejects", &["--keep", "1"]).code, Some(2), "without --delete");
    assert_eq!(story.say("rejects", &["--delete", "--json", "--yes"]).code, Some(2));

    story.age("0, 2, 3", "31 days");
    let old = ["--delete", "--yes", "--older-than", "30d"];
    assert_eq!(story.rejects(&[&old[..], &["--keep", "5"]].concat()), "deleted=1\n");
    assert_eq!(story.rejects(&old), "deleted=2\n");
    assert_eq!(story.rejects(&["--delete", "--yes", "--reason", "NUL"]), "deleted=1\n");
    assert_eq!(story.rejects(&["--delete", "--yes", "--keep", "10"]), "deleted=0\n");
    assert_eq!(story.offsets(&[]), [4, 6]);
    assert_eq!(story.rejects(&["--delete", "--yes"]), "deleted=2\n");
}

#[test]
fn what_was_set_aside_replays_once_its_cause_is_gone() {
    let mut story = Story::new("rejects_replay");
    story.values(&BAD);
    story.run(&[]);
    let last = |out: String| out.lines().last().unwrap_or_default().to_owned();
    // Nothing has changed.
    let said = last(story.rejects(&["--replay"]));
    assert_eq!(said, "replayed=6 written=0 filtered=0 collapsed=0 rejected=6 left=0");
    let mut left = story.offsets(&[]);
    left.sort_unstable(); // those that the server refuses come after those refused on the way
    assert_eq!(left, [0, 2, 3, 4, 5, 6]);

    // The table was wrong: without its constraint two of them fit.
    let name = story.name.clone();
    let drop = format!("alter table {name}.t drop constraint t_id_check");
    story.client.batch_execute(&drop).expect("altered");
    let said = last(story.rejects(&["--replay", "--sqlstate", "23514"]));
    assert_eq!(said, "replayed=2 written=2 filtered=0 collapsed=0 rejected=0 left=0");
    assert_eq!(story.offsets(&[]), [0, 2, 3, 5]);
    assert_eq!(
        last(story.rejects(&["--replay", "--sqlstate", "23514"])),
        "replayed=0 written=0 \
               filtered=0 collapsed=0 rejected=0 left=0"
    );

    // The dataflow was wrong: whole values into a column of bytes take anything.
    story.client.batch_execute(&format!("alter table {name}.t add raw bytea")).expect("altered");
    let said = last(story.rejects(&["--replay", "--param", "column.raw=value"]));
    assert_eq!(said, "replayed=4 written=4 filtered=0 collapsed=0 rejected=0 left=0");
    assert_eq!(story.rejects(&["--json"]), "");
    let rows =
        format!("select count(*), count(raw), count(*) filter (where id = 13) from {name}.t");
    let row = story.client.query_one(&rows, &[]).expect("counts");
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1), row.get::<_, i64>(2)), (7, 4, 2));
    let counters = "select consumed, written, rejected, filtered, rows, position
                      from tidegate.slices where pipeline = $1";
    let row = story.client.query_one(counters, &[&name]).expect("one slice");
    let counted: Vec<i64> = (0..6).map(|column| row.get(column)).collect();
    assert_eq!(counted, [7, 7, 0, 0, 7, 7]);
    // And the next run goes on behind.
    story.values(&[r#"{"id":8}"#]);
    assert_eq!(figure(&story.run(&[]), "written"), 8);
}

#[test]
fn an_old_record_is_not_put_over_a_newer_one() {
    let mut story = Story::new("rejects_keyed");
    let name = story.name.clone();
    let key = format!("alter table {name}.t alter id set not null, add unique (id)");
    story.client.batch_execute(&key).expect("altered");
    story.values(&[r#"{"id":13,"v":"old"}"#, r#"{"id":1,"v":"a"}"#]);
    let key = ["--param", "key=id"];
    story.run(&key);
    let drop = format!("alter table {name}.t drop constraint t_id_check");
    story.client.batch_execute(&drop).expect("altered");
    story.values(&[r#"{"id":13,"v":"new"}"#]);
    story.run(&key);
    let out = story.rejects(&[&key[..], &["--replay"]].concat());
    assert!(out.contains("1 of sink `rows` are left: it has a key"), "{out}");
    assert!(
        out.ends_with("replayed=0 written=0 filtered=0 collapsed=0 rejected=0 left=1\n"),
        "{out}"
    );
    let v = format!("select v from {name}.t where id = 13");
    assert_eq!(story.client.query_one(&v, &[]).expect("a row").get::<_, String>(0), "new");
    assert_eq!(story.offsets(&key), [0]);
}

#[test]
fn a_run_deletes_what_is_old() {
    let mut story = Story::new("rejects_retention");
    story.values(&BAD);
    story.run(&[]);
    story.age("0, 4", "2 days");
    story.run(&["--keep-rejects", "3d"]);
    assert_eq!(story.offsets(&[]).len(), 6);
    // The end of a run waits for it.
    story.run(&["--keep-rejects", "1d"]);
    let left = eventually(LIMIT, || Some(story.offsets(&[])).filter(|left| left.len() == 4));
    assert_eq!(left.map(|left| left.contains(&0) || left.contains(&4)), Some(false));
}
