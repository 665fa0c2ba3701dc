//! Faults of PostgreSQL and of the way to it, under load: whatever it does, the tables end as the model has
//! them, and the probe says what is wrong. What happens around one COMMIT is tested beside the writer.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::http::until_ready;
use common::load::{Load, free};
use common::proxy::Proxy;
use common::story::{LONG, PARTITIONS, Story};
use common::{Process, eventually};

/// Ends a run in good order, and compares its tables with `events` orders.
fn settle(story: &mut Story, mut run: Process, events: u64) -> String {
    story.until(2 * events as i64, &mut [&mut run]);
    run.signal("-TERM");
    let (status, out, err) = run.wait(Duration::from_secs(30));
    assert!(status.success(), "{status}\n{out}\n{err}");
    story.verify(events);
    err
}

/// FR-35: the way to the server hangs in the middle of the load, and nothing is closed.
#[test]
fn a_silent_network_is_noticed_told_and_survived() {
    let mut story = Story::new("silent");
    let (proxy, url) = Proxy::to_database();
    story.environment = vec![("DATABASE_URL", url)];
    let address = free();
    let mut run = story.run(&["-w", "2", "--metrics", &address]);
    let load = Load::start(&story.topic, 0, PARTITIONS);
    story.until(2_000, &mut [&mut run]);
    until_ready(&address, 200, "", LONG);
    proxy.silence();
    let before = story.progress();
    let began = Instant::now();
    until_ready(&address, 503, "nothing of", Duration::from_secs(30));
    assert!(began.elapsed() < Duration::from_secs(20), "red within a stated time");
    // Longer than a call may take: connections are given up, and new ones hang too.
    until_ready(&address, 503, "writing to", Duration::from_secs(90));
    assert!(!run.has_ended());
    let meanwhile = story.progress() - before;
    assert!(meanwhile <= 2 * 2_000, "{meanwhile} offsets moved through a silent network");
    proxy.open();
    until_ready(&address, 200, "", LONG);
    let events = load.stop();
    settle(&mut story, run, events);
}

/// FR-37: killed in the middle of a transaction behind a network that tells the server nothing.
#[test]
fn what_a_killed_run_left_open_is_waited_for_by_name_and_ended() {
    let mut story = Story::new("orphan");
    story.produce(0..20_000);
    let (proxy, url) = Proxy::to_database();
    let through = [("DATABASE_URL", url.as_str())];
    let small = ["-w", "2", "--max-rows", "500", "--linger", "5ms"];
    let mut first = story.run_with(&small, &through);
    story.until(1_000, &mut [&mut first]);
    proxy.silence();
    // Its sessions hang now, some of them in a transaction.
    first.kill();
    // The first may have stored all there was.
    story.produce(20_000..21_000);
    let began = Instant::now();
    let mut second = story.run(&[]);
    story.until(42_000, &mut [&mut second]);
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(120), "{waited:?}");
    let said = settle(&mut story, second, 21_000);
    assert!(said.contains("held by pid"), "it says who is waited for: {said}");
    proxy.cut();
}

/// A lock of somebody else's holds up the writer: the probe says whose.
#[test]
fn who_holds_up_the_writer_is_named() {
    let mut story = Story::new("held");
    let address = free();
    let mut run = story.run(&["--metrics", &address]);
    let load = Load::start(&story.topic, 0, PARTITIONS);
    story.until(1_000, &mut [&mut run]);
    let mut other = common::connect();
    let table = format!("{}.valid_orders", story.schema);
    let lock =
        format!("set application_name = 'a backup'; begin; lock table {table} in share mode");
    other.batch_execute(&lock).unwrap();
    let pid: i32 = other.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
    let said = until_ready(&address, 503, "held by", LONG);
    assert!(said.contains(&format!("pid {pid}, application `a backup`")), "{said}");
    other.batch_execute("commit").unwrap();
    until_ready(&address, 200, "", LONG);
    let events = load.stop();
    let log = settle(&mut story, run, events);
    assert!(log.contains("is held up: it waits for a lock"), "{log}");
}

/// Deadlocks are of both: where the server chooses the writer, its whole transaction is made again.
#[test]
fn a_deadlock_is_repeated_as_a_whole_transaction() {
    let mut story = Story::new("deadlock");
    story.produce(0..2_000);
    let run = story.run(&[]);
    let mut run = run;
    story.until(4_000, &mut [&mut run]);
    let table = format!("{}.valid_orders", story.schema);
    let mut other = common::connect();
    let ids = format!("select min(order_id), max(order_id) from {table}");
    let row = other.query_one(&ids, &[]).unwrap();
    let (least, most): (i64, i64) = (row.get(0), row.get(1));
    let touch = |id: i64| format!("update {table} set currency = currency where order_id = {id}");
    // The writer takes keys in their order: it will hold the least and wait for the most.
    other.batch_execute("set deadlock_timeout = '1min'; begin").unwrap();
    other.batch_execute(&touch(most)).unwrap();
    story.produce(0..2_000);
    let waiting = "select count(*) from pg_stat_activity where application_name like $1
                   and wait_event_type = 'Lock'";
    let mine = format!("tidegate {}%", story.schema);
    let mut watcher = common::connect();
    let waits =
        || (watcher.query_one(waiting, &[&mine]).unwrap().get::<_, i64>(0) > 0).then_some(());
    eventually(LONG, waits).expect("the writer waits");
    other.batch_execute(&touch(least)).unwrap();
    other.batch_execute("commit").unwrap();
    story.until(8_000, &mut [&mut run]);
    run.signal("-TERM");
    let (status, out, err) = run.wait(Duration::from_secs(30));
    assert!(status.success(), "{status}\n{out}\n{err}");
    assert!(err.contains("40P01"), "the writer was the one that gave way: {err}");
    let found = common::rows(&mut story.client, &table);
    assert!(found == common::model((0..2_000).map(common::Order::event)), "as one by one");
    let logged = format!("select count(*) from {}.order_log", story.schema);
    assert_eq!(story.client.query_one(&logged, &[]).unwrap().get::<_, i64>(0), 4_000);
}

/// A server of a test's own.
struct Server {
    folder: std::path::PathBuf,
    port: u16,
}

impl Server {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(common::unique(name));
        let server = Server { folder, port: port() };
        server.services(&["up", "--only", "postgres"]);
        server
    }

    fn services(&self, arguments: &[&str]) {
        let port = self.port.to_string();
        let folder = self.folder.to_str().expect("a path");
        let own = [("TIDEGATE_SERVICES_DIR", folder), ("TIDEGATE_POSTGRES_PORT", &port)];
        common::services::call(arguments, &own);
    }

    fn url(&self) -> String {
        at(&[self.port])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.services(&["down", "--only", "postgres"]);
    }
}

/// A port that was free a moment ago.
fn port() -> u16 {
    free().rsplit(':').next().unwrap().parse().unwrap()
}

/// How to connect to the first of these ports that serves.
fn at(ports: &[u16]) -> String {
    let hosts = vec!["127.0.0.1"; ports.len()].join(",");
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    format!("host={hosts} port={} user=tidegate dbname=tidegate", ports.join(","))
}

fn connect(url: &str) -> postgres::Client {
    postgres::Client::connect(url, postgres::NoTls).expect("the server answers")
}

/// The server that writes goes down, and the one that follows it takes its place.
#[test]
fn a_run_goes_on_with_the_server_that_was_promoted() {
    let server = Server::start("tidegate_failover");
    let second = port();
    let mut primary = connect(&server.url());
    let mut shown = |what: &str| -> String { primary.query_one(what, &[]).unwrap().get(0) };
    let bin = shown("select setting from pg_config where name = 'BINDIR'");
    let data = shown("show data_directory");
    let standby = std::path::Path::new(&data).with_file_name("standby");
    let standby = standby.to_str().unwrap();
    let copy = ["-R", "-X", "stream", "-c", "fast", "-h", "127.0.0.1", "-U", "tidegate", "-p"];
    let mut backup = as_postgres(&format!("{bin}/pg_basebackup"));
    done(backup.args(copy).arg(server.port.to_string()).args(["-D", standby]));
    let control = |arguments: &[&str]| {
        let log = format!("{standby}.log");
        let mut command = as_postgres(&format!("{bin}/pg_ctl"));
        done(command.args(["-s", "-w", "-D", standby, "-l", &log]).args(arguments));
    };
    control(&["-o", &format!("-p {second}"), "start"]);
    struct Stop<F: Fn()>(F);
    impl<F: Fn()> Drop for Stop<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let _stop = Stop(|| control(&["-m", "immediate", "stop"]));
    // Nothing is committed that the standby has not: it would be lost with the first.
    primary.batch_execute("alter system set synchronous_standby_names = '*'").unwrap();
    primary.batch_execute("select pg_reload_conf()").unwrap();

    let mut story = Story::on(primary, "failover");
    let both = format!("{} target_session_attrs=read-write", at(&[server.port, second]));
    story.environment = vec![("DATABASE_URL", both)];
    let address = free();
    let mut run = story.run(&["-w", "2", "--metrics", &address]);
    let load = Load::start(&story.topic, 0, PARTITIONS);
    story.until(2_000, &mut [&mut run]);
    server.services(&["stop-postgres", "immediate"]);
    until_ready(&address, 503, "", LONG);
    control(&["promote"]);
    until_ready(&address, 200, "", LONG);
    let events = load.stop();
    story.client = connect(&at(&[second]));
    settle(&mut story, run, events);
}

/// A program of the machine, as the user that runs PostgreSQL, where that is not ours.
fn as_postgres(program: &str) -> Command {
    let root = std::process::Command::new("id").arg("-u").output().unwrap().stdout == b"0\n";
    if !root {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups", "--", program]);
    command
}

fn done(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// FR-39: no space left. The run waits, says so once, and goes on by itself.
#[test]
#[allow(clippy::print_stderr, reason = "whoever reads the tests' output should know")]
fn a_full_disk_is_waited_for() {
    struct Mounted(String);
    impl Drop for Mounted {
        fn drop(&mut self) {
            let _ = Command::new("umount").args(["-l", &self.0]).status();
        }
    }
    let server = Server::start("tidegate_full");
    let mut story = Story::on(connect(&server.url()), "full");
    story.environment = vec![("DATABASE_URL", server.url())];
    let place = std::env::temp_dir().join(&story.schema).to_str().unwrap().to_owned();
    std::fs::create_dir(&place).unwrap();
    let mount = ["-t", "tmpfs", "-o", "size=20m,mode=777", "tidegate", &place];
    if !Command::new("mount").args(mount).stderr(Stdio::null()).status().unwrap().success() {
        eprintln!("skipped: only root can mount a small disk");
        return;
    }
    let mounted = Mounted(place.clone());
    let (space, schema) = (format!("{}_space", story.schema), story.schema.clone());
    let own = format!("{place}/data");
    std::fs::create_dir(&own).unwrap();
    done(Command::new("chown").args(["postgres", &own]));
    story.client.batch_execute(&format!("create tablespace {space} location '{own}'")).unwrap();
    let move_ = format!("alter table {schema}.order_log set tablespace {space}");
    story.client.batch_execute(&move_).unwrap();
    let filler = format!("{place}/filler");
    std::fs::write(&filler, vec![1; 14 << 20]).unwrap();

    let address = free();
    let mut run = story.run(&["--metrics", &address]);
    story.produce(0..150_000);
    let said = until_ready(&address, 503, "53100", LONG);
    assert!(said.contains("No space left on device"), "{said}");
    let stuck = story.progress();
    // Long enough for several attempts.
    let attempts = Instant::now();
    while attempts.elapsed() < Duration::from_secs(8) {
        assert!(!run.has_ended(), "{}", run.output());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(story.progress(), stuck, "nothing moves without room");
    std::fs::remove_file(&filler).unwrap();
    until_ready(&address, 200, "", LONG);
    let log = settle(&mut story, run, 150_000);
    let alarms = log.lines().filter(|line| line.contains("WARN")).count();
    assert!(alarms <= 2, "one alarm, not a flood: {log}");
    // The server first: it would write to the disk that is gone.
    drop(server);
    drop(mounted);
}

/// FR-38: through pgbouncer in transaction mode a run is refused; in session mode it works.
#[test]
fn a_pooler_in_transaction_mode_is_refused_and_one_in_session_mode_is_not() {
    if common::tools::installed(&["pgbouncer", "/usr/sbin/pgbouncer"]).is_none() {
        return;
    }
    let mut story = Story::new("pooler");
    story.produce(0..1_000);
    let config: postgres::Config = common::database().parse().unwrap();
    let server = config.get_ports().first().copied().unwrap_or(5432);
    for mode in ["transaction", "statement", "session"] {
        let port = port();
        let folder = std::env::temp_dir().join(format!("{}_{mode}", story.schema));
        std::fs::create_dir(&folder).unwrap();
        let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
        std::fs::write(file("users"), "\"tidegate\" \"\"\n").unwrap();
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = trust\nauth_file = {}\npool_mode = {mode}\n\
             unix_socket_dir =\nlogfile = {}\nserver_idle_timeout = 5\n",
            file("users"),
            file("log"),
        );
        std::fs::write(file("ini"), text).unwrap();
        done(Command::new("chmod").args(["-R", "a+rwX", folder.to_str().unwrap()]));
        let mut command = as_postgres("/usr/sbin/pgbouncer");
        let mut pooler = command.arg("-q").arg(file("ini")).stdin(Stdio::null()).spawn().unwrap();
        let up = || std::net::TcpStream::connect(("127.0.0.1", port)).ok();
        eventually(LONG, up).expect("pgbouncer listens");
        let url = format!("postgres://tidegate@127.0.0.1:{port}/tidegate");
        let environment = [("DATABASE_URL", url.as_str())];
        let run = story.run_with(&["-w", "2", "--until-end"], &environment);
        let (status, out, err) = run.wait(LONG);
        pooler.kill().unwrap();
        pooler.wait().unwrap();
        if mode == "session" {
            assert!(status.success(), "{out}\n{err}");
        } else {
            assert_eq!(status.code(), Some(3), "{mode}: {out}\n{err}");
            let error = err.lines().last().unwrap_or_default();
            assert!(error.contains("pooler in transaction or statement mode"), "{mode}: {err}");
            assert_eq!(story.progress(), 0);
        }
    }
    story.verify(1_000);
}
