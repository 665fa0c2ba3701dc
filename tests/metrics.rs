//! What a run shows of itself, on real Kafka and PostgreSQL: metrics, probes, page and JSON agree with what
//! is stored, and tell when nothing moves.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::http::{ask, get};
use common::load::{Load, free};
use common::proxy::Proxy;
use common::{Order, Process, eventually, model, rows};
use tidegate::figures::{Phase, STALLED_MS, Snapshot};
use tidegate::metrics::METRICS;

const PARTITIONS: i32 = 4;
const LONG: Duration = Duration::from_secs(60);

fn status(address: &str) -> Snapshot {
    serde_json::from_str(&get(address, "/status.json").body).expect("a snapshot")
}

/// The samples of a scrape: the name, the labels as they stand, the value.
fn samples(text: &str) -> Vec<(String, String, f64)> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            let (name, labels) = series.split_once('{').expect("labels");
            (name.to_owned(), labels.trim_end_matches('}').to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn sum(text: &str, name: &str) -> f64 {
    let samples = samples(text).into_iter().filter(|(found, ..)| found == name);
    samples.map(|(.., value)| value).sum()
}

#[test]
fn figures_agree_with_what_is_stored_and_tell_when_nothing_moves() {
    let topic = common::topic("watched", PARTITIONS);
    let mut client = common::connect();
    let schema = common::schema(&mut client, "watched");
    let (gate, url) = Proxy::to_database();
    let (address, table) = (free(), format!("{schema}.valid_orders"));
    let params = [
        "--name".to_owned(),
        schema.clone(),
        "--param".to_owned(),
        format!("topic={topic}"),
        "--param".to_owned(),
        format!("table={table}"),
    ];
    let with = |command: &[&str], more: &[&str]| -> Vec<String> {
        let parts = command.iter().chain(more).map(|part| (*part).to_owned());
        let (command, more): (Vec<_>, Vec<_>) =
            parts.enumerate().partition(|(index, _)| *index < command.len());
        let bare = |parts: Vec<(usize, String)>| parts.into_iter().map(|(_, part)| part);
        bare(command).chain(params.iter().cloned()).chain(bare(more)).collect()
    };
    let spawn = |args: Vec<String>, environment: &[(&str, &str)]| {
        Process::spawn_with(&args.iter().map(String::as_str).collect::<Vec<_>>(), environment)
    };
    let run = with(&["run", "orders"], &["-w", "2", "--metrics", &address]);
    let run = spawn(run, &[("DATABASE_URL", &url)]);
    let ready = |ok: u16| {
        move |limit: Duration| {
            eventually(limit, || {
                ask(&address_of(), "GET", "/readyz", "").filter(|a| a.status == ok)
            })
        }
    };
    fn address_of() -> String {
        ADDRESS.get().expect("it was set").clone()
    }
    ADDRESS.set(address.clone()).expect("one test sets it");
    ready(200)(LONG).expect("it becomes ready");
    assert_eq!(get(&address, "/healthz").status, 200);

    // Under load it stays ready.
    let load = Load::start(&topic, 0, PARTITIONS);
    eventually(LONG, || (status(&address).consumed > 2_000).then_some(())).expect("it reads");
    assert_eq!(get(&address, "/readyz").status, 200);
    let events = load.stop();
    let caught_up = |events: u64| {
        let done = |s: &Snapshot| s.consumed >= events && s.lag() == 0 && s.durable_age_ms == 0;
        eventually(LONG, || Some(status(&address)).filter(done)).expect("it catches up")
    };
    let snapshot = caught_up(events);
    assert_eq!((snapshot.phase, snapshot.consumed), (Phase::Running, events));

    // What it says is what `positions` says, a partition at a time.
    let positions = spawn(with(&["positions", "orders"], &[]), &[]);
    let (_, out, _) = positions.wait(LONG);
    let stored: BTreeMap<i32, [i64; 3]> = out
        .lines()
        .skip(1)
        .map(|line| {
            let cells: Vec<_> = line.split_whitespace().collect();
            let [.., partition, position, end, lag] = cells[..] else { panic!("{line}") };
            let number = |text: &str| text.parse::<i64>().unwrap();
            (number(partition) as i32, [number(position), number(end), number(lag)])
        })
        .collect();
    assert_eq!(stored.len(), PARTITIONS as usize, "{out}");
    for partition in &snapshot.partitions {
        let [position, end, lag] = stored[&partition.partition];
        assert_eq!((partition.durable, partition.position), (position, position));
        assert_eq!((partition.end, partition.lag), (Some(end), Some(lag)));
    }
    for slice in &snapshot.slices {
        assert_eq!(slice.position, stored[&slice.partition][0]);
    }

    // What was committed is what Prometheus is told, and what the table holds is what was written.
    let text = get(&address, "/metrics").body;
    common::tools::check_scrape(&text);
    assert_eq!(sum(&text, "tidegate_records_consumed_total"), events as f64);
    let outcomes = ["filtered", "written", "rejected", "collapsed"];
    let outcome = |name: &&str| sum(&text, &format!("tidegate_records_{name}_total"));
    assert_eq!(outcomes.iter().map(outcome).sum::<f64>(), events as f64);
    assert_eq!(sum(&text, "tidegate_partition_lag"), 0.0);
    assert_eq!(sum(&text, "tidegate_record_latency_seconds_count"), events as f64);
    let latency = snapshot.sinks[0].latency.quantile(0.5).unwrap();
    assert!((0.0..30.0).contains(&latency), "{latency}");
    let kinds = ["source", "filter", "sink"];
    assert_eq!(snapshot.nodes.iter().map(|node| &*node.kind).collect::<Vec<_>>(), kinds);
    assert_eq!(snapshot.nodes[0].records, events);
    assert!(
        snapshot.nodes[1].records < events && snapshot.nodes[1].busy_ms <= snapshot.now_ms as u64
    );
    assert_eq!(snapshot.nodes[2].records, snapshot.nodes[1].records);
    let worker = &snapshot.workers[0];
    assert!(worker.busy_ms > 0 && worker.parked_ms > 0, "{worker:?}");

    // Page, JSON, and what is neither.
    let page = get(&address, "/");
    assert!(page.status == 200 && page.head.contains("text/html"), "{}", page.head);
    let json = ask(&address, "GET", "/", "Accept: application/json\r\n").unwrap();
    assert!(json.head.contains("application/json") && json.body.starts_with('{'));
    assert!(get(&address, "/metrics").head.contains("text/plain; version=0.0.4"));
    assert_eq!(get(&address, "/else").status, 404);
    assert_eq!(ask(&address, "POST", "/", "Content-Length: 0\r\n").unwrap().status, 405);
    assert_eq!(ask(&address, "HEAD", "/readyz", "").unwrap().body, "");
    let secret = get(&address, "/status.json").body;
    assert!(!secret.contains("password"), "{secret}");
    let top = Process::spawn(&["top", &address, "--once"]);
    let (_, out, err) = top.wait(LONG);
    assert!(out.contains(&format!("pipeline `{schema}`")) && out.contains(&topic), "{out}{err}");

    // The database is gone: red within the stated time, and alive.
    let load = Load::start(&topic, events, PARTITIONS);
    eventually(LONG, || (status(&address).consumed > events).then_some(())).expect("it reads on");
    gate.shut();
    let shut = Instant::now();
    let red = ready(503)(LONG).expect("it is not ready");
    let stated = Duration::from_millis(STALLED_MS as u64);
    let took = shut.elapsed();
    assert!(took < stated + Duration::from_secs(5), "{took:?}");
    assert!(
        took > stated / 2,
        "a moment without the database is no reason: {took:?}, {}",
        red.body
    );
    assert!(!red.body.trim().is_empty());
    assert_eq!(get(&address, "/healthz").status, 200);
    let snapshot = status(&address);
    assert!(snapshot.stores[0].interrupted.is_some(), "{:?}", snapshot.stores[0]);
    let text = get(&address, "/metrics").body;
    assert!(sum(&text, "tidegate_retries_total") > 0.0);
    assert_eq!(sum(&text, "tidegate_ready"), 0.0);

    // Back again, by itself.
    gate.open();
    ready(200)(Duration::from_secs(20)).expect("it is ready again");
    let events = load.stop();
    let snapshot = caught_up(events);
    assert_eq!((&snapshot.stores[0].interrupted, snapshot.stores[0].interrupted_ms), (&None, 0));

    // All that is documented was served, and nothing else.
    let text = get(&address, "/metrics").body;
    let kinds = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let kinds: BTreeMap<_, _> = kinds.collect();
    let known: BTreeMap<_, _> = METRICS.iter().map(|m| (m.name, m.kind.name())).collect();
    assert_eq!(kinds, known);
    for (name, labels, _) in samples(&text) {
        let common = [format!("pipeline=\"{schema}\""), "process=\"0\"".to_owned()];
        assert!(common.iter().all(|label| labels.contains(label)), "{name}{{{labels}}}");
    }

    run.signal("-TERM");
    run.success(LONG);
    let expected = model((0..events).map(Order::event));
    assert!(rows(&mut client, &table) == expected, "the table is as the model has it");
    common::forget(&mut client, &schema);
    common::delete(&topic);
}

static ADDRESS: std::sync::OnceLock<String> = std::sync::OnceLock::new();

#[test]
fn an_address_that_is_taken_ends_the_run_at_its_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (address, why) in [
        (address.as_str(), "another program listens there; choose another port"),
        ("nowhere", "it is no address; give `host:port`, such as `127.0.0.1:9464`"),
    ] {
        let run = Process::spawn(&["run", "orders", "--metrics", address]);
        let (status, out, err) = run.wait(LONG);
        assert_eq!(status.code(), Some(3), "{out}{err}");
        assert_eq!(err, format!("error: metrics cannot be served at `{address}`: {why}\n"));
    }
    let top = Process::spawn(&["top", &free(), "--once"]);
    let (status, _, err) = top.wait(LONG);
    assert_eq!(status.code(), Some(3));
    assert!(err.contains("nobody listens there; does the run have `--metrics`?"), "{err}");
}

#[test]
fn connections_that_say_nothing_do_not_keep_a_probe_waiting() {
    let server = tidegate::metrics::Server::start("127.0.0.1:0", Arc::default()).unwrap();
    let address = server.address().to_string();
    let silent: Vec<_> = (0..200)
        .map(|index| {
            let mut stream = TcpStream::connect(&address).expect("it is accepted");
            if index % 2 == 0 {
                stream.write_all(b"GET / HT").expect("it is taken");
            }
            stream
        })
        .collect();
    let asked = Instant::now();
    assert_eq!(get(&address, "/healthz").status, 200);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    drop(silent);
}

#[test]
fn the_documentation_lists_all_metrics_as_they_are() {
    let documented = include_str!("../docs/metrics.md");
    let row = |line: &str| {
        let cells: Vec<_> = line.strip_prefix("| `tidegate_")?.split(" | ").collect();
        let [name, kind, labels, help] = cells[..] else { panic!("{line}") };
        let help = help.strip_suffix(" |").expect("the row ends");
        let name = format!("tidegate_{}", name.trim_end_matches('`'));
        Some([name, kind.to_owned(), labels.to_owned(), help.to_owned()])
    };
    let documented: Vec<_> = documented.lines().filter_map(row).collect();
    let known = METRICS.iter().map(|metric| {
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        [metric.name.into(), metric.kind.name().into(), labels.join(", "), metric.help.into()]
    });
    let known: Vec<[String; 4]> = known.collect();
    assert_eq!(documented, known);
    let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    assert_eq!(names.len(), METRICS.len(), "each name once");
}

#[test]
fn dashboard_and_alerts_use_metrics_that_there_are() {
    let known: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
    for file in [
        include_str!("../docs/deploy/grafana.json"),
        include_str!("../docs/deploy/alerts.yml"),
        include_str!("../docs/deploy/README.md"),
    ] {
        let words = file.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let names: BTreeSet<_> = words.filter(|word| word.starts_with("tidegate_")).collect();
        for name in names {
            let parts = ["", "_bucket", "_sum", "_count"];
            let is_known = |part| name.strip_suffix(part).is_some_and(|name| known.contains(name));
            assert!(parts.into_iter().any(is_known), "{name}");
        }
    }
}
