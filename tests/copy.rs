//! Topics into tables by parameters alone, told on the real services. `scripts/test` starts them.

mod common;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use postgres::{Client, SimpleQueryMessage};
use rdkafka::ClientConfig;
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};

use common::{brokers, connect, figure, topic, unique};

const LIMIT: Duration = Duration::from_secs(60);

/// A record to send.
#[derive(Clone, Default)]
struct Sent<'a> {
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
    headers: &'a [(&'a str, Option<&'a [u8]>)],
    timestamp: Option<i64>,
}

/// A record with a key and a value.
fn record<'a>(key: &'a str, value: &'a str) -> Sent<'a> {
    Sent { key: Some(key.as_bytes()), value: Some(value.as_bytes()), ..Sent::default() }
}

fn value(value: &str) -> Sent<'_> {
    Sent { value: Some(value.as_bytes()), ..Sent::default() }
}

fn tombstone(key: &str) -> Sent<'_> {
    Sent { key: Some(key.as_bytes()), ..Sent::default() }
}

/// A topic, a schema of tables, and a pipeline from the one to the other.
struct Story {
    name: String,
    topic: String,
    client: Client,
}

impl Story {
    /// `ddl` has `{s}` where the schema stands.
    fn new(test: &str, ddl: &str) -> Self {
        let (name, mut client) = (unique(test), connect());
        let ddl = ddl.replace("{s}", &name);
        client.batch_execute(&format!("create schema {name}; {ddl}")).expect("a schema");
        Story { topic: topic(test, 1), name, client }
    }

    fn send<'a>(&self, records: impl IntoIterator<Item = Sent<'a>>) {
        let producer: ThreadedProducer<DefaultProducerContext> =
            ClientConfig::new().set("bootstrap.servers", brokers()).create().expect("a producer");
        for Sent { key, value, headers, timestamp } in records {
            let mut record = BaseRecord::<[u8], [u8]>::to(&self.topic).partition(0);
            record.key = key;
            record.payload = value;
            record.timestamp = timestamp;
            let headers = headers.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                headers.insert(Header { key, value: *value })
            });
            producer.send(record.headers(headers)).map_err(|(error, _)| error).expect("queued");
        }
        producer.flush(LIMIT).expect("all records are acknowledged");
    }

    fn command(&self, command: &str, params: &[(&str, &str)], more: &[&str]) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        program.args([command, "copy", "--name", &self.name]).env("TIDEGATE_LOG", "error");
        let topic = ("topic", &*self.topic);
        for (name, value) in [topic].iter().chain(params) {
            program.args(["--param", &format!("{name}={}", value.replace("{s}", &self.name))]);
        }
        program.args(more);
        program
    }

    /// Runs to the end of the topic; returns the summary.
    fn run(&self, params: &[(&str, &str)]) -> String {
        self.run_with(params, &[])
    }

    fn run_with(&self, params: &[(&str, &str)], more: &[&str]) -> String {
        let output =
            self.command("run", params, more).arg("--until-end").output().expect("it runs");
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{out}{err}");
        out.lines().last().unwrap_or_default().to_owned()
    }

    /// The sentence with which it is refused before the first record.
    fn refused(&self, params: &[(&str, &str)]) -> String {
        let output = self.command("run", params, &["--until-end"]).output().expect("it runs");
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{err}");
        err
    }

    /// The rows of a query, as `|` between texts; NULL is `~`.
    fn rows(&mut self, query: &str) -> Vec<String> {
        let query = query.replace("{s}", &self.name);
        let messages = self.client.simple_query(&format!("set time zone 'UTC'; {query}"));
        let rows = messages.expect("a result").into_iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => {
                let cells = (0..row.len()).map(|index| row.get(index).unwrap_or("~"));
                Some(cells.collect::<Vec<_>>().join("|"))
            }
            _ => None,
        });
        rows.collect()
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        common::forget(&mut self.client, &self.name);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of a test's own.
fn file(test: &str, content: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("{}.toml", unique(test)));
    std::fs::write(&path, content).expect("a file");
    path
}

#[test]
fn appends_take_the_columns_that_are_mapped_and_every_digit() {
    let mut story = Story::new(
        "copy_append",
        "create table {s}.t (id bigint, exact numeric, price numeric(12, 2), doc jsonb, words text,
             kept text default 'none', loaded bool)",
    );
    story.send([
        value(
            r#"{"no": 9007199254740993, "x": 122637770461000000000.1234567890123456789, "price": 12.345,
                "doc": {"b": [1, null]}, "words": "R\u00f8yk \ud83d\ude42", "loaded": true, "extra": {}}"#,
        ),
        value(r#"{"no": -1, "x": 1e310, "doc": null, "words": 1.50, "kept": null, "loaded": null}"#),
        value(r#"{"no": 1, "no": 2, "x": 0, "doc": "text", "words": "two", "ignored": "\ud800"}"#),
    ]);
    let columns = [
        ("table", "{s}.t"),
        ("column.id", "no"),
        ("column.exact", "x"),
        ("column.price", "price"),
        ("column.doc", "doc"),
        ("column.words", "words"),
        ("column.kept", "kept"),
        ("column.loaded", "field:loaded"),
    ];
    let line = story.run(&columns);
    assert_eq!((figure(&line, "consumed"), figure(&line, "written")), (3, 3), "{line}");
    assert_eq!(
        story.rows(
            "select id, length(exact::text), price, doc, words, kept, loaded from {s}.t order by id"
        ),
        [
            "-1|311|~|~|1.50|~|~",
            "2|1|~|\"text\"|two|none|~",
            "9007199254740993|41|12.35|{\"b\": [1, null]}|Røyk 🙂|none|t",
        ]
    );
}

#[test]
fn without_a_mapping_fields_go_to_the_columns_of_their_names() {
    let mut story = Story::new("copy_plain", "create table {s}.t (id int, name text, day date)");
    story.send([
        value(r#"{"day": "2026-01-31", "id": 1, "name": "a", "more": 1}"#),
        value(r#"{"id": 2, "name": null}"#),
    ]);
    let line = story.run(&[("table", "t"), ("schema", "{s}"), ("name", "first")]);
    assert_eq!(figure(&line, "written"), 2, "{line}");
    assert_eq!(story.rows("select * from {s}.t order by id"), ["1|a|2026-01-31", "2|~|~"]);
    // Under another name the sink starts anew, and extra fields may be refused.
    let line = story.run(&[
        ("table", "{s}.t"),
        ("extra", "reject"),
        ("policy", "skip"),
        ("name", "second"),
    ]);
    assert_eq!((figure(&line, "written"), figure(&line, "rejected")), (1, 1), "{line}");
}

#[test]
fn a_tombstone_deletes_by_the_text_of_its_key() {
    let mut story = Story::new("copy_text", "create table {s}.t (sku text primary key, qty int)");
    story.send([
        tombstone("zz"),
        record("aa", r#"{"qty": 1}"#),
        record("bb", r#"{"qty": 2}"#),
        tombstone("aa"),
        Sent { key: None, ..value(r#"{"qty": 3}"#) },
        Sent::default(),
        record("", r#"{"qty": 4}"#),
        record("null", r#"{"qty": 5}"#),
        tombstone("bb"),
        record("aa", r#"{"qty": 7}"#),
    ]);
    let params = [
        ("table", "{s}.t"),
        ("key", "sku"),
        ("column.sku", "key"),
        ("column.qty", "qty"),
        ("policy", "skip"),
    ];
    let line = story.run(&params);
    assert_eq!((figure(&line, "consumed"), figure(&line, "rejected")), (10, 2), "{line}");
    assert_eq!(story.rows("select * from {s}.t order by sku"), ["|4", "aa|7", "null|5"]);
}

#[test]
fn a_tombstone_deletes_by_an_object_with_the_fields_of_the_key() {
    let mut story = Story::new(
        "copy_object",
        "create table {s}.t (shop uuid, \"No\" numeric(20), n int, unique (shop, \"No\"))",
    );
    let value = |shop: char, no: &str, n: u32| {
        format!(
            r#"{{"s": "{0}1111111-1111-1111-1111-111111111111", "number": {no}, "n": {n}}}"#,
            shop
        )
    };
    let (a, b, c) = (value('a', "1", 1), value('a', "99999999999999999999", 2), value('b', "1", 3));
    let sent = [a.as_str(), &b, &c];
    let key =
        r#"{"number": 99999999999999999999, "s": "A1111111-1111-1111-1111-111111111111", "x": 0}"#;
    story.send(sent.map(|value| record("x", value)).into_iter().chain([
        tombstone(key),
        tombstone("a1111111-1111-1111-1111-111111111111"),
        tombstone(r#"{"s": "b1111111-1111-1111-1111-111111111111"}"#),
    ]));
    let params = [
        ("table", "{s}.t"),
        ("key", r#"["shop", "No"]"#),
        ("column.shop", "s"),
        ("column.No", "number"),
        ("column.n", "n"),
        ("policy", "skip"),
    ];
    let line = story.run(&params);
    assert_eq!((figure(&line, "consumed"), figure(&line, "rejected")), (6, 2), "{line}");
    assert_eq!(story.rows("select n from {s}.t order by n"), ["1", "3"]);
}

#[test]
fn a_field_says_that_a_row_is_deleted() {
    let sent = [
        record("a", r#"{"cart": "a", "n": 1}"#),
        record("b", r#"{"cart": "b", "n": 2, "op": "keep"}"#),
        record("b", r#"{"cart": "b", "op": "drop", "n": "no number"}"#),
        record("c", r#"{"op": "drop", "cart": "c"}"#),
        record("c", r#"{"cart": "c", "n": 3, "op": null}"#),
        tombstone("a"),
        record("d", r#"{"cart": "d", "n": 4, "op": "drop"}"#),
        record("e", r#"{"n": 5, "cart": "e", "op": "drop it"}"#),
    ];
    let rows = ["c|3", "e|5"];
    // Where the field has a column, where it has none, and where columns are mapped.
    for (columns, params) in [
        ("cart text primary key, n int, op text", vec![("key", "cart")]),
        ("cart text primary key, n int", vec![("key", "cart")]),
        (
            "cart text, n int, id text primary key",
            vec![("key", "id"), ("column.id", "cart"), ("column.n", "n"), ("column.cart", "cart")],
        ),
    ] {
        let mut story = Story::new("copy_delete", &format!("create table {{s}}.t ({columns})"));
        story.send(sent.clone());
        let mut params = params;
        params.extend([("table", "{s}.t"), ("delete_when", "op=drop")]);
        let line = story.run(&params);
        assert_eq!(
            (figure(&line, "consumed"), figure(&line, "rejected")),
            (8, 0),
            "{columns}: {line}"
        );
        assert_eq!(story.rows("select cart, n from {s}.t order by cart"), rows, "{columns}");
    }
}

#[test]
fn headers_timestamps_and_coordinates_are_columns_and_keys() {
    let mut story = Story::new(
        "copy_record",
        "create table {s}.t (via text, span bytea default 'none', sent timestamptz, millis bigint,
             topic text, part int, off bigint, raw bytea, note text, primary key (via, sent))",
    );
    let at = |headers, millis, value| Sent { headers, timestamp: Some(millis), value, key: None };
    let first = 1_700_000_000_123;
    story.send([
        at(
            &[("via", Some(b"web")), ("span", Some(b"\xff\x00"))],
            first,
            Some(b"{\"note\":1}".as_slice()),
        ),
        at(&[("via", Some(b"x")), ("via", Some(b"app")), ("span", None)], first, Some(b"{}")),
        at(&[("via", Some(b"web"))], first + 1, Some(b"{}")),
        at(&[("via", Some(b"web")), ("via", None)], first, Some(b"{}")),
        at(&[("Via", Some(b"web"))], first, Some(b"{}")),
        at(&[("via", Some(b"\xff"))], first, Some(b"{}")),
        at(&[("via", Some(b"app"))], first, None),
    ]);
    let params = [
        ("table", "{s}.t"),
        ("key", "via, sent"),
        ("column.via", "header:via"),
        ("column.span", "header:span"),
        ("column.sent", "timestamp"),
        ("column.millis", "timestamp"),
        ("column.topic", "topic"),
        ("column.part", "partition"),
        ("column.off", "offset"),
        ("column.raw", "value"),
        ("column.note", "note"),
        ("policy", "skip"),
    ];
    let line = story.run(&params);
    assert_eq!((figure(&line, "consumed"), figure(&line, "rejected")), (7, 3), "{line}");
    let topic = &story.topic.clone();
    assert_eq!(
        story.rows(&format!(
            "select via, span, sent, millis, topic = '{topic}', part, off, convert_from(raw, 'UTF8'), note
               from {{s}}.t order by off"
        )),
        [
            "web|\\xff00|2023-11-14 22:13:20.123+00|1700000000123|t|0|0|{\"note\":1}|1",
            "web|\\x6e6f6e65|2023-11-14 22:13:20.124+00|1700000000124|t|0|2|{}|~",
        ]
    );
}

#[test]
fn tombstones_are_left_out_or_refused_where_that_is_wanted() {
    let mut story = Story::new("copy_tombstones", "create table {s}.t (id int primary key, n int)");
    story.send([
        record("1", r#"{"id": 1, "n": 1}"#),
        tombstone("1"),
        Sent::default(),
        record("2", "{}"),
        record("2", "[2]"),
    ]);
    let table = ("table", "{s}.t");
    for (name, params, filtered, rejected) in [
        ("append", vec![], 2, 2),
        ("filter", vec![("key", "id"), ("tombstones", "filter")], 2, 2),
        ("reject", vec![("key", "id"), ("tombstones", "reject")], 0, 4),
    ] {
        let mut params = params;
        params.extend([table, ("name", name), ("policy", "skip")]);
        let line = story.run(&params);
        let outcome = (figure(&line, "filtered"), figure(&line, "rejected"));
        assert_eq!(outcome, (filtered, rejected), "{name}: {line}");
        assert_eq!(story.rows("select * from {s}.t"), ["1|1"], "{name}");
    }
}

#[test]
fn names_are_exact_whatever_is_in_them() {
    let mut story = Story::new(
        "copy_names",
        r#"create table {s}."Order ""Lines""" ("select" int primary key, "Random Text" text,
               "we""ird" text, "user" text, "æ ß" int, "x); DROP TABLE witness; --" text, qty int,
               "Qty" int);
           create table {s}."order ""lines""" ("select" int); create table {s}.witness (n int);
           create table {s}."a.b" ("c,d" int primary key)"#,
    );
    story.send([
        record(
            "1",
            r#"{"select": 1, "randomText": "a", "q\"q": "b", "user.name": "c", "Æ": 4, "'; DROP": "d",
                "qty": 5, "Qty": 6}"#,
        ),
        record("2", r#"{"select": 2, "Æ": "four"}"#),
    ]);
    let params = file(
        "copy_names",
        r#"
        table = 'Order "Lines"'
        key = ["select"]
        policy = "skip"
        [column]
        select = "select"
        "Random Text" = "randomText"
        'we"ird' = 'q"q'
        user = "user.name"
        "æ ß" = "Æ"
        "x); DROP TABLE witness; --" = "'; DROP"
        qty = "qty"
        Qty = "Qty"
        "#,
    );
    let params = params.to_str().expect("a path").to_owned();
    let line = story.run_with(&[("schema", "{s}")], &["--params", &params]);
    assert_eq!((figure(&line, "written"), figure(&line, "rejected")), (1, 1), "{line}");
    assert_eq!(story.rows(r#"select * from {s}."Order ""Lines""""#), ["1|a|b|c|4|d|5|6"]);
    assert_eq!(story.rows(r#"select * from {s}.witness, {s}."order ""lines""""#), [""; 0]);
    let params = [
        ("schema", "{s}"),
        ("table", "a.b"),
        ("key", r#"["c,d"]"#),
        ("column.c,d", "Qty"),
        ("policy", "skip"),
    ];
    story.run(&params);
    assert_eq!(story.rows(r#"select * from {s}."a.b""#), ["6"]);
}

/// The example in the documentation.
fn example() -> String {
    let page = include_str!("../docs/copy.md");
    let (_, rest) = page.split_once("```toml\n").expect("an example");
    rest.split_once("```").expect("its end").0.to_owned()
}

#[test]
fn the_documented_example_works() {
    let mut story = Story::new(
        "copy_example",
        r#"create table {s}."Orders" (order_id bigint primary key, customer text not null,
               amount numeric(12, 2), "Created At" timestamptz, paid_at timestamptz, note text,
               sent_at timestamptz not null, trace text, partition int, "offset" bigint, raw jsonb)"#,
    );
    let first = r#"{"id": 1, "customer": "Ada", "amount": 12.5, "created_at": "2026-07-01 12:00:00",
                    "paid_at": 1700000000, "key": "fragile"}"#;
    let at = |record, headers| Sent { timestamp: Some(1_700_000_000_000), headers, ..record };
    story.send([
        at(record("1", first), &[("trace-id", Some(b"t-1"))]),
        at(record("2", r#"{"id": 2, "customer": "Bo", "created_at": 1700000000123}"#), &[]),
        at(record("3", r#"{"id": 3, "customer": "Cy"}"#), &[]),
        at(record("3", r#"{"id": 3, "status": "removed"}"#), &[]),
        record("4", r#"{"id": 4, "customer": "Di"}"#),
        tombstone("4"),
        record("5", r#"{"id": 5}"#),
    ]);
    let path = file("copy_example", &example());
    let path = path.to_str().expect("a path");
    // `run` puts the topic after the file, which has another.
    let schema = [("schema", "{s}")];
    let check = story.command("check", &schema, &["--params", path]).output().expect("it runs");
    let (out, err) = (text(&check.stdout), text(&check.stderr));
    assert!(check.status.success(), "{out}{err}");
    for expected in ["order_id", "bigint", "key", "Created At", "timestamp with time zone", "raw"] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    let line = story.run_with(&schema, &["--params", path]);
    assert_eq!((figure(&line, "consumed"), figure(&line, "rejected")), (7, 1), "{line}");
    assert_eq!(
        story.rows(
            r#"select order_id, customer, amount, "Created At", paid_at, note, sent_at, trace, partition,
                      "offset", raw ->> 'id' from {s}."Orders" order by 1"#
        ),
        [
            "1|Ada|12.50|2026-07-01 10:00:00+00|2023-11-14 22:13:20+00|fragile|2023-11-14 22:13:20+00|t-1|0|0|1",
            "2|Bo|~|2023-11-14 22:13:20.123+00|~|~|2023-11-14 22:13:20+00|~|0|1|2",
        ]
    );
}

#[test]
fn what_parameters_say_is_checked_before_the_first_record() {
    let story =
        Story::new("copy_checked", "create table {s}.t (id int primary key, n int not null)");
    story.send([value(r#"{"id": 1, "n": 1}"#)]);
    let table = ("table", "{s}.t");
    for (params, expected) in [
        (vec![table, ("column.idd", "id"), ("column.n", "n")], "no column `idd`"),
        (vec![table, ("column.id", "id")], "`n` must not be null"),
        (vec![table, ("key", "n"), ("column.id", "id")], "`column.n`"),
        (vec![table, ("key", "id,id")], "names a column twice"),
        (vec![table, ("key", "")], "separated by commas"),
        (vec![table, ("key", "[id]")], "a JSON array of names"),
        (vec![table, ("column.id", "")], "expected the name of a JSON field"),
        (
            vec![table, ("tombstones", "kay"), ("key", "id")],
            "expected `key` or `filter` or `reject`",
        ),
        (vec![table, ("tombstones", "key")], "there is no `key`"),
        (vec![table, ("delete_when", "op=d")], "needs a `key`"),
        (vec![table, ("key", "id"), ("delete_when", "op")], "`field=text`"),
        (vec![table, ("policy", "ignore")], "expected `reject` or `stop` or `skip`"),
        (vec![table, ("max_rejects", "many")], "parameter `max_rejects` is `many`"),
        (vec![table, ("unit", "days")], "parameter `unit` is `days`"),
        (vec![table, ("zone.n", "Europe/Olso")], "`Europe/Olso` is no time zone"),
        (vec![table, ("unit.m", "s"), ("column.id", "id")], "`column.m`"),
        (vec![table, ("tombstone", "key")], "did you mean `tombstones`?"),
        (vec![table, ("colums.id", "id")], "did you mean `column.id`?"),
        (vec![], "parameter `table` is not set"),
        (vec![("table", "{s}.nothing")], "does not exist"),
    ] {
        let sentence = story.refused(&params);
        assert!(sentence.contains(expected), "{params:?}: {sentence}");
        assert_eq!(sentence.lines().count(), 1, "{sentence}");
    }
    let path = file("copy_checked", "topic = \n");
    let output = story.command("run", &[], &["--params", path.to_str().expect("a path")]).output();
    let output = output.expect("it runs");
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("line 1: "), "{}", text(&output.stderr));
}

#[test]
fn every_parameter_is_documented() {
    let story = Story::new("copy_documented", "create table {s}.t (id int)");
    let sentence = story.refused(&[("table", "{s}.t"), ("nonsense", "1")]);
    let (_, names) = sentence.split_once("it asks for ").expect(&sentence);
    let page = include_str!("../docs/copy.md");
    for name in names.trim().split(", ") {
        assert!(
            page.contains(&format!("| {name}")) || page.contains(&format!(", {name} |")),
            "{name}"
        );
    }
}

#[test]
fn who_forgets_the_positions_of_an_append_is_told_what_the_next_run_does() {
    let mut story = Story::new("forgotten", "create table {s}.t (a int)");
    story.send([value(r#"{"a":1}"#), value(r#"{"a":2}"#)]);
    let params = [("table", "{s}.t")];
    story.run(&params);
    let mut forget = story.command("positions", &params, &["--forget"]);
    let output = forget.env("TIDEGATE_LOG", "warn").output().expect("it runs");
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("adds them once more"), "{said}");
    story.run(&params);
    assert_eq!(story.rows("select a from {s}.t order by a"), ["1", "1", "2", "2"]);
    // With a key the rows are the same again, and nothing need be said.
    let mut keyed = Story::new("forgotten_key", "create table {s}.t (a int primary key)");
    keyed.send([value(r#"{"a":1}"#)]);
    let params = [("table", "{s}.t"), ("key", "a")];
    keyed.run(&params);
    let mut forget = keyed.command("positions", &params, &["--forget"]);
    let output = forget.env("TIDEGATE_LOG", "warn").output().expect("it runs");
    assert!(output.status.success());
    assert_eq!(text(&output.stderr), "");
    keyed.run(&params);
    assert_eq!(keyed.rows("select a from {s}.t"), ["1"]);
}
