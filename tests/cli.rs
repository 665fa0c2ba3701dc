//! The program as people meet it: what it prints, and how it ends. `scripts/test` starts the Kafka and
//! the PostgreSQL that these tests need.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use postgres::{Client, NoTls};

/// How long anything may take before its test fails.
const LIMIT: Duration = Duration::from_secs(60);

/// How a program ended, and what it printed.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Ended {
    /// What was printed by a program that ended well.
    fn well(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// The one sentence of a program that failed with `code`.
    fn sentence(self, code: i32) -> String {
        assert_eq!(self.code, code, "{self:?}");
        let sentence = self.err.strip_prefix("error: ").and_then(|rest| rest.strip_suffix('\n'));
        let sentence = sentence.unwrap_or_else(|| panic!("not one sentence: {self:?}"));
        assert!(!sentence.contains('\n'), "more than one line: {self:?}");
        sentence.to_owned()
    }
}

fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args).env("TIDEGATE_LOG", "error").stdin(Stdio::null());
    command
}

fn end(mut command: Command) -> Ended {
    let output = command.output().expect("the program starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it prints text");
    Ended {
        code: output.status.code().expect("it exits"),
        out: text(output.stdout),
        err: text(output.stderr),
    }
}

fn run(args: &[&str]) -> Ended {
    end(tidegate(args))
}

fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_nanos();
    format!("{name}_{nanos}_{}", NEXT.fetch_add(1, Ordering::SeqCst))
}

fn client() -> Client {
    let url = std::env::var("DATABASE_URL").expect("`DATABASE_URL` is set by `scripts/test`");
    Client::connect(&url, NoTls).expect("the server answers")
}

/// A table, a topic and a pipeline of one test.
struct Place {
    name: String,
    client: Client,
}

impl Place {
    fn new(test: &str, columns: &str) -> Place {
        let mut client = client();
        let name = unique(test);
        client
            .batch_execute(&format!("create schema {name}; create table {name}.t ({columns})"))
            .expect("a schema and a table");
        Place { name, client }
    }

    fn orders(test: &str) -> Place {
        Place::new(
            test,
            "order_id bigint primary key, customer text, status text, amount bigint, currency text, \
             created_at timestamptz",
        )
    }

    /// `command orders` on this place's topic and table, with more arguments.
    fn command(&self, command: &str, more: &[&str]) -> Command {
        let (topic, table) = (format!("topic={}", self.name), format!("table={}.t", self.name));
        let mut command = tidegate(&[command, "orders", "--name", &self.name]);
        command.args(["--param", &topic, "--param", &table]).args(more);
        command
    }

    /// Produces orders `numbers`, every third of them removed, into the topic's three partitions.
    fn produce(&self, numbers: std::ops::Range<i64>) -> String {
        let line = |number: i64| {
            let status = if number % 3 == 0 { "removed" } else { "paid" };
            format!(
                r#"{{"order_id":{number},"customer":"Ada","status":"{status}","amount":1,"currency":"EUR","created_at":"2026-01-01T00:00:00Z"}}"#
            )
        };
        let lines: Vec<_> = numbers.map(line).collect();
        let args = ["produce", &self.name, "--partitions", "3", "--key", "order_id"];
        pipe(tidegate(&args), &lines.join("\n")).well()
    }

    fn count(&mut self) -> i64 {
        let sql = format!("select count(*) from {}.t", self.name);
        self.client.query_one(&sql, &[]).expect("a count").get(0)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let name = &self.name;
        let _ = self.client.batch_execute(&format!(
            "set client_min_messages = error; drop schema {name} cascade;
             delete from tidegate.slices where pipeline = '{name}';
             delete from tidegate.pipelines where pipeline = '{name}'"
        ));
    }
}

/// Runs with this standard input.
fn pipe(mut command: Command, input: &str) -> Ended {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // A program that fails early reads no more of it.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    let output = child.wait_with_output().expect("the program ends");
    Ended {
        code: output.status.code().expect("it exits"),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default()
}

/// The number after `name=` in a summary.
fn figure(line: &str, name: &str) -> u64 {
    let value = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let value = value.unwrap_or_else(|| panic!("no `{name}` in `{line}`"));
    value.parse().unwrap_or_else(|_| panic!("no number in `{value}`"))
}

/// A port that nobody listens at.
fn nobody() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

fn wait(mut until: impl FnMut() -> bool) {
    let began = Instant::now();
    while !until() {
        assert!(began.elapsed() < LIMIT, "waited too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn signal(child: &Child, name: &str) {
    let kill = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status();
    assert!(kill.expect("kill").success());
}

#[test]
fn help_names_every_command_and_every_command_has_help() {
    let help = run(&["--help"]).well();
    for command in ["run", "list", "check", "positions", "schema", "produce", "demo"] {
        assert!(
            help.lines().any(|line| line.trim_start().starts_with(command)),
            "{command}: {help}"
        );
        let about = run(&[command, "--help"]).well();
        assert!(about.contains("Usage: ") && about.contains("--help"), "{about}");
    }
    for code in [0, 1, 2, 3, 4, 5, 6, 7, 8, 124, 130] {
        assert!(help.contains(&format!("\n  {code:>3}  ")), "exit code {code}: {help}");
    }
    assert!(run(&["--version"]).well().starts_with("tidegate "));
}

#[test]
fn run_has_timelys_flags_and_ours() {
    let help = run(&["run", "--help"]).well();
    for flag in [
        "-w,",
        "-n,",
        "-p,",
        "-h,",
        "-r,",
        "-z,",
        "-X ",
        "--name",
        "--param",
        "--params",
        "--brokers",
        "--linger",
        "--max-rows",
        "--max-bytes",
        "--memory",
        "--until-end",
        "--take-over",
        "--grace",
    ] {
        assert!(help.contains(flag), "{flag}: {help}");
    }
}

#[test]
fn list_names_the_dataflows() {
    let list = run(&["list"]).well();
    assert!(list.lines().any(|line| line.trim_start().starts_with("orders ")), "{list}");
}

#[test]
fn schema_prints_sql() {
    let sql = run(&["schema", "--name", "books"]).well();
    assert!(sql.contains("create schema if not exists \"books\";"), "{sql}");
}

#[test]
fn a_wrong_command_line_is_one_sentence_and_ends_with_2() {
    let sentence = run(&["run", "ordres"]).sentence(2);
    assert!(sentence.starts_with("there is no dataflow `ordres`; there is "), "{sentence}");
    assert!(sentence.contains("`orders`"), "{sentence}");
    let sentence = run(&["run", "orders", "--wrokers", "2"]).sentence(2);
    assert_eq!(sentence, "unexpected argument '--wrokers' found; see `tidegate run --help`");
    let sentence = run(&["run", "orders", "-w", "0"]).sentence(2);
    assert!(sentence.starts_with("-w is 0;"), "{sentence}");
    let sentence = run(&["run", "orders", "--linger", "soon"]).sentence(2);
    assert!(sentence.contains("expected a duration such as `100ms`"), "{sentence}");
    let sentence = run(&["positions", "orders", "--set", "orders=7"]).sentence(2);
    assert!(sentence.contains("an offset needs its partition"), "{sentence}");
    run(&[]).sentence(2);
}

#[test]
fn what_the_environment_does_not_say_is_named() {
    let mut command = tidegate(&["run", "orders"]);
    command.env_remove("TIDEGATE_BROKERS");
    let sentence = end(command).sentence(3);
    assert!(sentence.contains("set `TIDEGATE_BROKERS`"), "{sentence}");
    let mut command = tidegate(&["check", "orders"]);
    command.env_remove("DATABASE_URL");
    let sentence = end(command).sentence(3);
    assert!(sentence.contains("DATABASE_URL"), "{sentence}");
}

#[test]
fn a_graph_is_printed_without_connecting_to_anything() {
    let graph = |form: &[&str]| {
        let mut command = tidegate(&[&["check", "orders", "--graph"], form].concat());
        command.env("TIDEGATE_BROKERS", nobody());
        command.env("DATABASE_URL", format!("postgres://nobody@{}/none", nobody()));
        end(command).well()
    };
    let text = "  0 source `orders`\n  1 filter <- 0\n  2 sink `valid_orders` <- 1";
    assert_eq!(graph(&[]).trim_end(), text);
    assert_eq!(graph(&["text"]), graph(&[]));
    assert!(graph(&["dot"]).starts_with("digraph dataflow {"));
    assert!(graph(&["mermaid"]).contains("n0 --> n1"));
}

#[test]
fn a_log_of_json_holds_nothing_else_and_ends_with_the_error() {
    let place = Place::new("json_log", "order_id bigint primary key, customer text");
    let mut command = place.command("run", &["--until-end", "--log", "json"]);
    command.env("TIDEGATE_LOG", "info");
    let ended = end(command);
    assert_eq!(ended.code, 3, "{ended:?}");
    let lines = ended.err.lines().map(serde_json::from_str::<serde_json::Value>);
    let lines: Vec<_> = lines.map(|line| line.expect("a JSON object")).collect();
    let last = lines.last().expect("the error");
    assert_eq!((&last["level"], &last["exit_code"]), (&"ERROR".into(), &3.into()), "{last}");
    assert!(last["message"].as_str().is_some_and(|said| said.contains("column")), "{last}");
    // What is wrong with the command line itself is said before the log begins.
    let wrong = run(&["run", "orders", "--log", "xml"]).sentence(2);
    assert!(wrong.contains("possible values: text, json"), "{wrong}");
}

#[test]
fn a_missing_topic_is_one_sentence_and_ends_with_4() {
    let place = Place::orders("missing_topic");
    let sentence = end(place.command("run", &["--until-end"])).sentence(4);
    let expected = format!("topic `{}` does not exist on ", place.name);
    assert!(sentence.starts_with(&expected), "{sentence}");
    assert!(sentence.contains("create it"), "{sentence}");
    let sentence = pipe(tidegate(&["produce", &place.name]), "{}").sentence(4);
    assert!(sentence.starts_with(&expected) && sentence.contains("--partitions"), "{sentence}");
}

#[test]
fn a_missing_table_or_column_is_one_sentence_and_ends_with_3() {
    let place = Place::new("wrong_column", "order_id bigint primary key, customer text");
    let sentence = end(place.command("run", &["--until-end"])).sentence(3);
    assert!(sentence.contains("`currency`") && sentence.contains(&place.name), "{sentence}");
    let table = format!("table={}.nothing", place.name);
    let sentence = run(&["check", "orders", "--param", &table]).sentence(3);
    assert!(sentence.contains("does not exist"), "{sentence}");
}

#[test]
fn no_server_is_one_sentence_without_a_secret() {
    let place = Place::orders("no_server");
    let address = nobody();
    let sentence = end(place.command("run", &["--brokers", &address])).sentence(4);
    assert!(sentence.contains(&format!("Kafka at `{address}` does not answer")), "{sentence}");
    let mut command = place.command("run", &[]);
    command.env("DATABASE_URL", format!("postgres://me:hunter2@{address}/shop"));
    let sentence = end(command).sentence(5);
    assert!(sentence.contains(&format!("postgres://{address}/shop")), "{sentence}");
    assert!(!sentence.contains("hunter2"), "{sentence}");
}

#[test]
fn a_dataflow_runs_to_the_end_and_its_positions_can_be_moved() {
    let mut place = Place::orders("moved");
    assert_eq!(figure(&place.produce(0..300), "produced"), 300);

    let check = end(place.command("check", &["-w", "2"])).well();
    for expected in [
        format!("source Kafka topic `{}`", place.name),
        "  0 source".into(),
        "order_id".into(),
        "warning: ".into(),
        "ready: 2 workers in 1 process".into(),
    ] {
        assert!(check.contains(&expected), "{expected}: {check}");
    }

    let out = end(place.command("run", &["--until-end", "-w", "2"])).well();
    let summary = last_line(&out);
    assert_eq!(figure(summary, "consumed"), 300);
    assert_eq!(figure(summary, "filtered"), 100);
    assert_eq!(figure(summary, "written") + figure(summary, "collapsed"), 200);
    assert_eq!(place.count(), 200);

    let positions = end(place.command("positions", &[])).well();
    let rows: Vec<Vec<&str>> =
        positions.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 3, "{positions}");
    for row in &rows {
        assert_eq!(row[3], row[4], "position and end: {positions}");
        assert_eq!(row[5], "0", "lag: {positions}");
    }

    // Back to the start of one partition: the same rows again.
    let back = format!("{}[1]=0", place.name);
    let positions = end(place.command("positions", &["--set", &back])).well();
    let row = positions.lines().nth(2).expect("three rows").split_whitespace().collect::<Vec<_>>();
    assert_eq!((row[2], row[3], row[5]), ("1", "0", rows[1][4]), "{positions}");
    let again = end(place.command("run", &["--until-end"])).well();
    let more: u64 = rows[1][4].parse().expect("an offset");
    assert_eq!(figure(last_line(&again), "consumed"), 300 + more);
    assert_eq!(place.count(), 200);

    let sentence = end(place.command("positions", &["--set", &format!("{}[1]=999", place.name)]));
    assert!(sentence.sentence(3).contains("can be read from 0 to "));
    // One change that cannot be made leaves the others alone.
    let before = end(place.command("positions", &[])).well();
    let (zero, nine) = (format!("{}[0]=0", place.name), format!("{}[9]=1", place.name));
    let refused = end(place.command("positions", &["--set", &zero, "--set", &nine])).sentence(3);
    assert!(refused.contains("[9]`"), "{refused}");
    let both = end(place.command("positions", &["--set", &zero, "--forget"]));
    assert_eq!(both.code, 2);
    assert_eq!(end(place.command("positions", &[])).well(), before);
    let sentence = end(place.command("positions", &["--forget", "elsewhere"])).sentence(3);
    assert!(sentence.contains("has no position of `elsewhere`"), "{sentence}");
    let positions = end(place.command("positions", &["--forget"])).well();
    assert!(positions.contains("has no position yet"), "{positions}");
    assert_eq!(positions.lines().count(), 1, "{positions}");
}

#[test]
fn a_parameter_that_no_dataflow_asks_for_is_one_sentence_and_ends_with_3() {
    assert_eq!(run(&["check", "orders", "--name", ""]).code, 2);
    let sentence = run(&["check", "orders", "--param", "tabel=elsewhere"]).sentence(3);
    assert_eq!(
        sentence,
        "the dataflow has no parameter `tabel` (did you mean `table`?); it asks for `table`, `topic`"
    );
}

#[test]
fn a_row_that_does_not_fit_is_set_aside_with_its_column_and_what_its_record_held() {
    let mut place = Place::new(
        "unfit",
        "order_id bigint primary key, customer varchar(1), status text, amount bigint,
         currency text, created_at timestamptz",
    );
    place.produce(0..3);
    let out = end(place.command("run", &["--until-end"])).well();
    let line = last_line(&out);
    assert_eq!((figure(line, "rejected"), figure(line, "written")), (2, 0), "{line}");
    let sql = "select count(*), min(\"column\"), min(stage), bool_and(payload is not null)
                 from tidegate.rejects where pipeline = $1";
    let row = place.client.query_one(sql, &[&place.name]).expect("rejects");
    let (count, column, stage, held): (i64, String, String, bool) =
        (row.get(0), row.get(1), row.get(2), row.get(3));
    assert_eq!((count, &*column, &*stage, held), (2, "customer", "encode", true));
}

#[test]
fn a_signal_ends_a_run_in_good_order_with_what_it_has_read() {
    let mut place = Place::orders("signal");
    place.produce(0..30);
    let mut command = place.command("run", &[]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait(|| place.count() == 20);
    let asked = Instant::now();
    signal(&child, "TERM");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(asked.elapsed() < Duration::from_secs(10), "it took {:?}", asked.elapsed());
    let out = String::from_utf8(output.stdout).expect("text");
    assert_eq!(figure(last_line(&out), "consumed"), 30);
}

#[test]
fn a_standby_that_is_asked_to_end_counts_nothing() {
    let mut place = Place::orders("unbegun");
    place.produce(0..3);
    let start = |place: &Place| {
        let mut command = place.command("run", &[]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let ended = |child: Child| {
        signal(&child, "TERM");
        let output = child.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).expect("text")
    };
    let first = start(&place);
    wait(|| place.count() == 2);
    let second = start(&place);
    let (mut other, name) = (client(), format!("tidegate {} lock", place.name));
    let locks = "select 1 from pg_stat_activity where application_name = $1";
    wait(|| other.query(locks, &[&name]).expect("an answer").len() == 2);
    assert_eq!(ended(second), "");
    assert_eq!(figure(last_line(&ended(first)), "consumed"), 3);
}

/// A run that cannot store what it has read, since the test holds the table's lock.
fn stuck(place: &mut Place, more: &[&str]) -> Child {
    place.produce(0..3);
    let mut command = place.command("run", more);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    wait(|| place.count() == 2);
    let lock = format!("begin; lock table {}.t in access exclusive mode", place.name);
    place.client.batch_execute(&lock).expect("a lock");
    place.produce(3..6);
    let mut other = client();
    let table = format!("{}.t", place.name);
    let waits = "select 1 from pg_locks where not granted and relation = $1::text::regclass";
    wait(|| other.query_opt(waits, &[&table]).expect("an answer").is_some());
    child
}

#[test]
fn a_second_signal_ends_a_run_at_once() {
    let mut place = Place::orders("at_once");
    let mut child = stuck(&mut place, &[]);
    signal(&child, "INT");
    std::thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().expect("a child").is_none(), "the run waits for its transaction");
    signal(&child, "INT");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    place.client.batch_execute("rollback").expect("the lock is free");
    let out = end(place.command("run", &["--until-end"])).well();
    assert_eq!(figure(last_line(&out), "consumed"), 6);
    assert_eq!(place.count(), 4);
}

#[test]
fn a_run_that_is_not_done_within_its_grace_period_is_ended() {
    let mut place = Place::orders("late");
    let child = stuck(&mut place, &["--grace", "1s"]);
    signal(&child, "TERM");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(
        error.starts_with("error: the run was not done 1s after it was asked to end"),
        "{error}"
    );
    place.client.batch_execute("rollback").expect("the lock is free");
}

#[test]
fn a_line_that_is_no_json_stops_produce_with_its_number() {
    let topic = unique("lines");
    let args = ["produce", &topic, "--partitions", "1", "--key", "id"];
    let sentence = pipe(tidegate(&args), "{\"id\": 1}\n\n{\"id\": 2\n").sentence(3);
    assert_eq!(sentence, "line 3 of the input is not JSON; the 1 records before it were produced");
    let out = pipe(tidegate(&["produce", &topic, "--compression", "zstd"]), "1\n2\n").well();
    assert_eq!(figure(last_line(&out), "produced"), 2);
}

fn demo(more: &[&str]) {
    let schema = unique("demo");
    let args = ["demo", "--orders", "20000", "--schema", &schema];
    for _ in 0..2 {
        let mut command = tidegate(&args);
        command.args(more);
        let out = end(command).well();
        assert!(out.contains("equal to a sequential model"), "{out}");
        let summary = last_line(&out);
        assert_eq!(figure(summary, "consumed"), 20_000, "{out}");
        let parts = ["filtered", "written", "rejected", "collapsed"];
        assert_eq!(parts.iter().map(|part| figure(summary, part)).sum::<u64>(), 20_000, "{out}");
    }
    drop(Place { name: schema, client: client() });
}

#[test]
fn the_demo_is_right_again_and_again_on_its_own_broker() {
    let sentence = {
        let mut command = tidegate(&["demo", "--orders", "10", "--schema", "public"]);
        command.env_remove("TIDEGATE_BROKERS");
        end(command).sentence(3)
    };
    assert!(sentence.contains("`public` exists and is not the demo's"), "{sentence}");
    demo(&[]);
}

#[test]
fn the_demo_is_right_again_and_again_on_a_real_broker() {
    demo(&["--kafka", "-w", "1"]);
}

#[test]
fn a_program_of_ones_own_has_the_same_command_line() {
    // Examples are built beside the tests, but not where only some tests are asked for.
    let build = ["build", "--quiet", "--locked", "--example", "own_main"];
    assert!(Command::new(env!("CARGO")).args(build).status().expect("cargo").success());
    let mut path = PathBuf::from(env!("CARGO_BIN_EXE_tidegate"));
    path.set_file_name("examples");
    path.push("own_main");
    let list = end(with_args(&path, &["list"])).well();
    assert!(list.contains("payments above zero"), "{list}");
    let sentence = end(with_args(&path, &["demo"])).sentence(3);
    assert!(sentence.contains("needs the dataflow `orders`"), "{sentence}");
    let sentence = end(with_args(&path, &["run", "orders"])).sentence(2);
    assert_eq!(sentence, "there is no dataflow `orders`; there is `payments`");
}

fn with_args(program: &PathBuf, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args);
    command
}
