//! Runs of several real processes that are killed, frozen, cut off, or do not agree.

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use common::load::Load;
use common::story::{LONG, PARTITIONS, Story, hostfile};
use common::{Order, Process, eventually, model, rows};
use tidegate::figures::Snapshot;

/// How long a process may take to end after it has learned that another is lost.
const SECONDS: Duration = Duration::from_secs(5);

/// The address of each process of a hostfile.
fn addresses(hosts: &str) -> Vec<String> {
    std::fs::read_to_string(hosts).unwrap().lines().map(str::to_owned).collect()
}

/// FR-69
#[test]
fn one_of_three_that_is_killed_ends_the_others_in_seconds_and_is_named() {
    let mut story = Story::new("lost");
    let hosts = hostfile(3);
    let load = Load::start(&story.topic, 0, PARTITIONS);
    for victim in [1, 0, 2] {
        let before = story.progress();
        let mut run = story.cluster_at(&hosts, 3, &["--linger", "10ms", "--max-rows", "500"]);
        story.until(before + 1000, &mut run.iter_mut().collect::<Vec<_>>());
        let killed = Instant::now();
        run.remove(victim).kill();
        for survivor in run {
            let (status, _, err) = survivor.wait(Duration::from_secs(30));
            println!("after {:?}: {}", killed.elapsed(), err.lines().last().unwrap_or_default());
            assert_eq!(status.code(), Some(7), "{err}");
            let sentence = format!("process {victim} at {} was lost;", addresses(&hosts)[victim]);
            assert!(err.contains(&sentence), "{err}");
        }
        assert!(killed.elapsed() < SECONDS, "{:?}", killed.elapsed());
    }
    let orders = load.stop();
    for process in story.cluster_at(&hosts, 3, &["--until-end"]) {
        process.success(LONG);
    }
    story.verify(orders);
}

/// FR-57, and a frozen process in a cluster.
#[test]
fn a_frozen_process_is_noticed_and_writes_nothing_more_once_it_was_replaced() {
    let mut story = Story::new("frozen_of_three");
    let hosts = hostfile(3);
    let load = Load::start(&story.topic, 0, PARTITIONS);
    let flags = ["--peer-timeout", "3s", "--linger", "10ms", "--max-rows", "500"];
    let mut run = story.cluster_at(&hosts, 3, &flags);
    story.until(1000, &mut run.iter_mut().collect::<Vec<_>>());
    let frozen = run.remove(1);
    let since = Instant::now();
    frozen.signal("-STOP");
    for survivor in run {
        let (status, _, err) = survivor.wait(Duration::from_secs(30));
        println!("after {:?}: {}", since.elapsed(), err.lines().last().unwrap_or_default());
        assert_eq!(status.code(), Some(7), "{err}");
        let address = &addresses(&hosts)[1];
        let sentence = format!("process 1 at {address} showed no sign of life for 3s;");
        assert!(err.contains(&sentence), "{err}");
    }
    assert!(since.elapsed() < Duration::from_secs(3) + SECONDS, "{:?}", since.elapsed());

    // The next run has the same addresses, and waits for what the frozen one may have under way.
    let mut next = story.cluster_at(&hosts, 3, &flags);
    let enough = story.progress() + 4000;
    story.until(enough, &mut next.iter_mut().collect::<Vec<_>>());
    assert_eq!(story.generation(), 2);
    frozen.signal("-CONT");
    let (status, _, err) = frozen.wait(Duration::from_secs(30));
    assert_eq!(status.code(), Some(6), "{err}");
    assert!(err.contains("was taken over by generation 2"), "{err}");
    let orders = load.stop();
    story.until(2 * orders as i64, &mut next.iter_mut().collect::<Vec<_>>());
    next[2].signal("-TERM");
    for process in next {
        process.success(LONG);
    }
    story.verify(orders);
}

/// A process that is frozen for less than the time-out costs nothing.
#[test]
fn a_short_freeze_is_survived() {
    let mut story = Story::new("short_freeze");
    story.produce(0..5_000);
    let mut run = story.cluster(2, 1, &["--peer-timeout", "10s"]);
    story.until(10_000, &mut run.iter_mut().collect::<Vec<_>>());
    run[1].signal("-STOP");
    std::thread::sleep(Duration::from_secs(3));
    run[1].signal("-CONT");
    story.produce(5_000..10_000);
    story.until(20_000, &mut run.iter_mut().collect::<Vec<_>>());
    run[0].signal("-TERM");
    for process in run {
        process.success(LONG);
    }
    story.verify(10_000);
}

#[test]
fn why_one_process_failed_is_in_the_log_of_the_others() {
    let mut story = Story::new("reason");
    story.produce(0..2_000);
    let hosts = hostfile(3);
    let mut run = story.cluster_at(&hosts, 3, &[]);
    story.until(4_000, &mut run.iter_mut().collect::<Vec<_>>());
    // Partition 1 is process 1's, which from now on is not where it believes to be.
    let moved = "update tidegate.slices set seq = seq + 1 where pipeline = $1 and partition = 1";
    assert_eq!(story.client.execute(moved, &[&story.schema]).unwrap(), 2);
    let order = Order::event(2_000);
    common::produce(&story.topic, [(1, b"1".to_vec(), Some(order.json()))]);
    let ended: Vec<_> =
        run.into_iter().map(|process| process.wait(Duration::from_secs(30))).collect();
    let (root, _, reason) = &ended[1];
    let own = reason.lines().find_map(|line| line.strip_prefix("error: ")).unwrap();
    println!("{own}");
    assert!(![Some(0), Some(7)].contains(&root.code()), "{reason}");
    for other in [0, 2] {
        let (status, _, err) = &ended[other];
        let fenced = root.code() == Some(6);
        assert_eq!(status.code(), Some(if fenced { 6 } else { 7 }), "{err}");
        let sentence = format!("error: process 1 at {} ended: {own}", addresses(&hosts)[1]);
        assert!(err.contains(&sentence), "{err}");
    }
}

/// The ends of two processes, of which the second differs.
fn asymmetric(
    story: &Story,
    zero: &[&str],
    one: (&[&str], &[(&str, &str)]),
) -> [(Option<i32>, String); 2] {
    let hosts = hostfile(2);
    let at = |index| ["-n", "2", "-p", index, "-h", hosts.as_str()];
    let first = story.run(&[&at("0")[..], zero].concat());
    let second = story.run_with(&[&at("1")[..], one.0].concat(), one.1);
    [first, second].map(|process: Process| {
        let (status, _, err) = process.wait(Duration::from_secs(30));
        (status.code(), err)
    })
}

/// FR-71
#[test]
fn processes_that_differ_are_refused_by_name_before_anything_is_read() {
    let mut story = Story::new("differ");
    story.produce(0..100);
    let schema = story.schema.clone();
    let table = format!("table={schema}.other");
    let database = common::database();
    let (base, _) = database.rsplit_once('/').unwrap();
    // Every server has this database.
    let elsewhere = format!("{base}/postgres");
    let nowhere = "postgres://nobody@127.0.0.1:9/nothing";

    // A parameter, a broker, a table that is missing, a database that does not answer.
    let ended = asymmetric(&story, &[], (&["--param", "note=1"], &[]));
    assert!(ended.iter().all(|(code, _)| *code == Some(3)), "{ended:?}");
    assert!(ended.iter().all(|(_, err)| err.contains("process 1")), "{ended:?}");
    let sibling = format!("create table {schema}.other (like {schema}.valid_orders including all)");
    story.client.batch_execute(&sibling).unwrap();
    let ended = asymmetric(&story, &[], (&["--param", &table], &[]));
    assert!(ended.iter().all(|(code, _)| *code == Some(3)), "{ended:?}");
    let sentence = "process 1 runs another dataflow";
    assert!(ended.iter().all(|(_, err)| err.contains(sentence)), "{ended:?}");

    let ended = asymmetric(&story, &[], (&["--brokers", "127.0.0.1:9"], &[]));
    assert!(ended.iter().all(|(code, _)| *code == Some(3)), "{ended:?}");
    assert!(ended.iter().all(|(_, err)| err.contains(sentence)), "{ended:?}");

    let ended = asymmetric(&story, &[], (&[], &[("DATABASE_URL", &elsewhere)]));
    assert!(ended.iter().all(|(code, _)| *code == Some(3)), "{ended:?}");
    let missing = "process 1: ";
    assert!(ended.iter().all(|(_, err)| err.contains(missing)), "{ended:?}");

    // The same tables there: then it is another plan.
    let mut client = postgres::Client::connect(&elsewhere, postgres::NoTls).unwrap();
    common::tables(&mut client, &schema);
    let ended = asymmetric(&story, &[], (&[], &[("DATABASE_URL", &elsewhere)]));
    assert!(ended.iter().all(|(code, _)| *code == Some(3)), "{ended:?}");
    assert!(ended.iter().all(|(_, err)| err.contains(sentence)), "{ended:?}");

    let ended = asymmetric(&story, &[], (&[], &[("DATABASE_URL", nowhere)]));
    assert!(ended.iter().all(|(code, _)| *code == Some(5)), "{ended:?}");
    assert!(ended.iter().all(|(_, err)| err.contains(missing)), "{ended:?}");

    assert_eq!(story.progress(), 0, "nothing was read");
    client.batch_execute(&format!("drop schema {schema} cascade")).unwrap();
}

#[test]
fn of_two_replicas_that_start_together_one_runs_and_one_stands_by() {
    let mut story = Story::new("replicas");
    let mut orders = 0;
    for _ in 0..10 {
        let before = story.generation();
        let mut both = [story.run(&[]), story.run(&[])];
        story.produce(orders..orders + 500);
        orders += 500;
        let [first, second] = &mut both;
        story.until(2 * orders as i64, &mut [first, second]);
        // The standby asks for the lock once a second. What would fence the other takes a generation.
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(story.generation(), before + 1, "one runs");
        assert!(both.iter_mut().all(|replica| !replica.has_ended()), "and none was fenced");
        both.iter().for_each(|replica| replica.signal("-TERM"));
        let logs = both.map(|replica| {
            let (status, _, err) = replica.wait(Duration::from_secs(20));
            assert!(status.success(), "{status}\n{err}");
            err
        });
        let standing = logs.iter().filter(|log| log.contains("standby of pipeline")).count();
        assert_eq!(standing, 1, "the other stands by\n{logs:?}");
    }
    story.verify(orders);
}

/// FR-72: one of twelve partitions holds nine tenths of all.
#[test]
fn one_full_partition_is_bounded_shows_and_keeps_its_order() {
    const ORDERS: u64 = 100_000;
    let topic = common::topic("skew", 12);
    let mut client = common::connect();
    let schema = common::schema(&mut client, "skew");
    let mut ends = [0i64; 12];
    let events: Vec<_> = (0..ORDERS)
        .map(|index| {
            let partition = if index % 10 == 0 { (index / 10 % 12) as i32 } else { 5 };
            ends[partition as usize] += 1;
            // Each order is of one partition, so that its events have an order.
            let order = Order::event(index);
            let order_id = order.order_id * 12 + i64::from(partition);
            (partition, Order { order_id, ..order })
        })
        .collect();
    let messages = events.iter().map(|(partition, order)| {
        (*partition, order.order_id.to_string().into_bytes(), Some(order.json()))
    });
    common::produce(&topic, messages.collect::<Vec<_>>());
    let at = common::load::free();
    let params = [
        format!("topic={topic}"),
        format!("log={schema}.order_log"),
        format!("table={schema}.valid_orders"),
    ];
    let mut args = vec![
        "run",
        "order_log",
        "--name",
        &schema,
        "-w",
        "8",
        "--memory",
        "16MiB",
        "--metrics",
        &at,
    ];
    params.iter().for_each(|param| args.extend(["--param", param]));
    let mut run = Process::spawn(&args);
    let query = "select coalesce(sum(position), 0)::int8 from tidegate.slices where pipeline = $1";
    let (mut peak, mut held) = (0, [0u64; 8]);
    let done = eventually(LONG, || {
        assert!(!run.has_ended(), "{}", run.output());
        peak = peak.max(resident(run.child.id()));
        let workers = status(&at).map_or_else(Vec::new, |status| status.workers);
        for (held, worker) in held.iter_mut().zip(&workers) {
            // Half of the budget, in equal shares, and a batch more.
            assert!(worker.in_flight_bytes < 3 << 20, "{worker:?}");
            *held += worker.in_flight_bytes;
        }
        let stored: i64 = client.query_one(query, &[&schema]).unwrap().get(0);
        (stored == 2 * ORDERS as i64).then_some(())
    });
    done.expect("all is stored");
    println!("peak {} MiB", peak >> 20);
    assert!(peak < 400 << 20, "{} MiB for a budget of 16", peak >> 20);

    // The worker of partition 5 held more than all others, and all within the budget.
    println!("held {held:?}");
    assert!(2 * held[5] > held.iter().sum(), "{held:?}");
    let status = status(&at).expect("the run answers");
    let read: u64 = status.partitions.iter().map(|partition| partition.consumed).sum();
    let full = status.partitions.iter().find(|partition| partition.partition == 5).unwrap();
    assert_eq!((read, full.consumed), (ORDERS, ends[5] as u64));
    run.signal("-TERM");
    run.success(LONG);

    // Each order's last event won, and each event was logged once.
    let table = format!("{schema}.valid_orders");
    assert!(rows(&mut client, &table) == model(events.into_iter().map(|(_, order)| order)));
    let query = format!(
        "select partition, count(*), count(distinct \"offset\") from {schema}.order_log
          group by partition order by partition"
    );
    for row in client.query(&query, &[]).unwrap() {
        let (partition, count, distinct): (i32, i64, i64) = (row.get(0), row.get(1), row.get(2));
        let end = ends[partition as usize];
        assert_eq!((count, distinct), (end, end), "partition {partition}");
    }
}

/// The figures of a run, once it serves them.
fn status(address: &str) -> Option<Snapshot> {
    let mut stream = TcpStream::connect(address).ok()?;
    let request =
        format!("GET /status.json HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// Bytes of memory that a process has.
fn resident(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

/// What a process has had of processors.
fn busy(process: &Process) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.child.id())).unwrap();
    let fields: Vec<_> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}

/// FR-66
#[test]
fn two_idle_processes_of_four_workers_cost_next_to_nothing() {
    let mut story = Story::new("idle");
    story.produce(0..100);
    let mut run = story.cluster(2, 4, &[]);
    story.until(200, &mut run.iter_mut().collect::<Vec<_>>());
    // They tick at full pace for a while after the last record.
    std::thread::sleep(Duration::from_secs(4));
    let lasts = Duration::from_secs(10);
    let before: Duration = run.iter().map(busy).sum();
    std::thread::sleep(lasts);
    let used = run.iter().map(busy).sum::<Duration>() - before;
    let share = used.as_secs_f64() / lasts.as_secs_f64();
    println!("{:.1} % of a core", 100.0 * share);
    assert!(share < 0.05, "{:.1} % of a core", 100.0 * share);
    let woken = Instant::now();
    story.produce(100..200);
    story.until(400, &mut run.iter_mut().collect::<Vec<_>>());
    println!("stored after {:?}", woken.elapsed());
    assert!(woken.elapsed() < Duration::from_secs(3), "{:?}", woken.elapsed());
    run[0].signal("-TERM");
    for process in run {
        process.success(LONG);
    }
}
