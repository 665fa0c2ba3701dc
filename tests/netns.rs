//! A run on several hosts: each process in a network namespace with an address of its own, joined by a
//! bridge. Root only; says so and is skipped elsewhere.

mod common;

use std::io::Read;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::load::Load;
use common::story::{LONG, PARTITIONS, Story};
use common::{Process, unique};

/// Tells the child below what to forward: `from=to` pairs, separated by commas.
const FORWARD: &str = "TIDEGATE_TEST_FORWARD";

fn ip(args: &str) -> Result<(), String> {
    let done = Command::new("ip").args(args.split(' ')).output();
    let done = done.map_err(|error| format!("`ip` cannot be run: {error}"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("`ip {args}`: {}", String::from_utf8_lossy(&done.stderr).trim()))
}

/// Hosts on one bridge; what they need of this host is forwarded.
struct Hosts {
    tag: String,
    net: String,
    count: usize,
    forwarders: Vec<Child>,
}

impl Hosts {
    fn new(count: usize) -> Result<Self, String> {
        let process = std::process::id();
        // Names of links have 15 letters at most.
        let (tag, net) =
            (format!("tg{process}"), format!("10.{}.{}", 200 + process / 250 % 50, process % 250));
        let mut hosts = Hosts { tag, net, count, forwarders: Vec::new() };
        let (tag, net) = (hosts.tag.clone(), hosts.net.clone());
        ip(&format!("link add {tag}b type bridge"))?;
        ip(&format!("addr add {net}.1/24 dev {tag}b"))?;
        ip(&format!("link set {tag}b up"))?;
        let forwards = [common::brokers(), database_address()].map(|real| {
            let port = real.rsplit_once(':').expect("a port").1.to_owned();
            let listener =
                TcpListener::bind((format!("{net}.1"), 0)).expect("the bridge's address");
            let here = listener.local_addr().unwrap();
            std::thread::spawn(move || forward(&listener, &real));
            format!("127.0.0.1:{port}={here}")
        });
        for host in 0..count {
            let name = hosts.name(host);
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add {tag}v{host} type veth peer name eth0 netns {name}"))?;
            ip(&format!("link set {tag}v{host} master {tag}b up"))?;
            ip(&format!("-n {name} addr add {}/24 dev eth0", hosts.address(host)))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
            let mut command = Command::new("ip");
            command.args(["netns", "exec", &name]).arg(std::env::current_exe().unwrap());
            command.args(["--exact", "forwarder", "--ignored"]).env(FORWARD, forwards.join(","));
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            hosts.forwarders.push(command.spawn().expect("the forwarder starts"));
        }
        Ok(hosts)
    }

    fn name(&self, host: usize) -> String {
        format!("{}h{host}", self.tag)
    }

    fn address(&self, host: usize) -> String {
        format!("{}.{}", self.net, 10 + host)
    }

    /// Runs the program on a host.
    fn run(&self, host: usize, args: &[String], environment: &[(&str, &str)]) -> Process {
        let name = self.name(host);
        let mut all = vec!["netns", "exec", &name, env!("CARGO_BIN_EXE_tidegate")];
        all.extend(args.iter().map(String::as_str));
        Process::spawn_program("ip", &all, environment)
    }

    fn cable(&self, host: usize, state: &str) {
        ip(&format!("link set {}v{host} {state}", self.tag)).expect("the cable");
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for forwarder in &mut self.forwarders {
            let _ = forwarder.kill();
            let _ = forwarder.wait();
        }
        for host in 0..self.count {
            let _ = ip(&format!("netns del {}", self.name(host)));
            let _ = ip(&format!("link del {}v{host}", self.tag));
        }
        let _ = ip(&format!("link del {}b", self.tag));
    }
}

fn database_address() -> String {
    let config: postgres::Config = common::database().parse().expect("DATABASE_URL");
    format!("127.0.0.1:{}", config.get_ports().first().copied().unwrap_or(5432))
}

/// Forwards what comes to `listener`, for ever.
fn forward(listener: &TcpListener, to: &str) {
    for client in listener.incoming().flatten() {
        let Ok(server) = TcpStream::connect(to) else { continue };
        let twin = |stream: &TcpStream| stream.try_clone().expect("a second handle");
        for (mut from, mut into) in [(twin(&client), twin(&server)), (server, client)] {
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut into);
                let _ = from.shutdown(Shutdown::Both);
                let _ = into.shutdown(Shutdown::Both);
            });
        }
    }
}

#[test]
#[ignore = "runs as a child, on a host of the test below"]
fn forwarder() {
    let Ok(pairs) = std::env::var(FORWARD) else { return };
    for pair in pairs.split(',') {
        let (from, to) = pair.split_once('=').expect("from=to");
        let (listener, to) = (TcpListener::bind(from).expect("a port"), to.to_owned());
        std::thread::spawn(move || forward(&listener, &to));
    }
    // Until the test has ended.
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
#[allow(clippy::print_stderr, reason = "whoever reads the tests' output should know")]
fn a_host_that_is_cut_off_ends_the_run_of_all_and_comes_back() {
    let hosts = match Hosts::new(3) {
        Ok(hosts) => hosts,
        Err(why) => return eprintln!("skipped: no network namespaces ({why})"),
    };
    let mut story = Story::new("hosts");
    let file = std::env::temp_dir().join(unique("tidegate_hosts"));
    let lines: Vec<_> = (0..3).map(|host| format!("{}:2101", hosts.address(host))).collect();
    std::fs::write(&file, lines.join("\n")).unwrap();
    let start = |story: &Story, more: &[&str]| -> Vec<Process> {
        let run = |host: usize| {
            let place = host.to_string();
            let flags = ["-n", "3", "-p", &place, "-h", file.to_str().unwrap()];
            let args = story.args(&[&flags[..], more].concat());
            hosts.run(host, &args, &[("TIDEGATE_SECRET", "of this test")])
        };
        (0..3).map(run).collect()
    };
    let load = Load::start(&story.topic, 0, PARTITIONS);
    let flags = ["--peer-timeout", "5s", "--linger", "10ms", "--max-rows", "500"];
    for cut in [2, 0] {
        let before = story.progress();
        let mut run = start(&story, &flags);
        story.until(before + 2000, &mut run.iter_mut().collect::<Vec<_>>());
        let since = Instant::now();
        hosts.cable(cut, "down");
        let alone = run.remove(cut);
        for process in run {
            let (status, _, err) = process.wait(LONG);
            println!("after {:?}: {}", since.elapsed(), err.lines().last().unwrap_or_default());
            assert_eq!(status.code(), Some(7), "{err}");
            let sentence =
                format!("process {cut} at {} showed no sign of life for 5s;", lines[cut]);
            assert!(err.contains(&sentence), "{err}");
        }
        assert!(since.elapsed() < Duration::from_secs(12), "{:?}", since.elapsed());
        // It has neither Kafka nor PostgreSQL, and ends all the same.
        let (status, _, err) = alone.wait(LONG);
        println!("alone after {:?}: {}", since.elapsed(), err.lines().last().unwrap_or_default());
        assert_eq!(status.code(), Some(7), "{err}");
        assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());
        hosts.cable(cut, "up");
    }
    let orders = load.stop();
    for process in start(&story, &["--until-end"]) {
        process.success(LONG);
    }
    story.verify(orders);
    std::fs::remove_file(file).unwrap();
}
