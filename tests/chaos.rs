//! Everything fails, again and again: processes are killed, frozen and replaced, the network is cut, hangs
//! and is slow, PostgreSQL crashes, brokers die. In the end the tables hold what the log holds, each record
//! once. `scripts/chaos` runs it, against services of its own.

mod common;

use std::collections::BTreeMap;
use std::io::Read;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::load::Load;
use common::proxy::Proxy;
use common::services::call;
use common::story::{Story, hostfile};
use common::{Order, Process, mix};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message as _;

const BROKERS: u16 = 3;
const PARTITIONS: i32 = 6;
/// Within so much after a fault is over, positions move again.
const RECOVERY: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let Some(minutes) = number("TIDEGATE_CHAOS_MINUTES") else {
        // As a part of all tests it would take too long.
        say("skipped: scripts/chaos runs it");
        return ExitCode::SUCCESS;
    };
    let clock = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_micros() as u64;
    let seed = number("TIDEGATE_CHAOS_SEED").unwrap_or(clock);
    say(&format!("seed {seed}"));
    let mut chaos = Chaos::new(seed);
    let end = Instant::now() + Duration::from_secs(60 * minutes);
    while Instant::now() < end {
        chaos.round();
    }
    chaos.settle()
}

#[allow(clippy::print_stdout, reason = "what it did is its result")]
fn say(line: &str) {
    println!("{line}");
}

/// A process of a run, and what it has said so far.
struct Running {
    process: Process,
    said: Arc<Mutex<String>>,
}

impl Running {
    fn new(mut process: Process) -> Self {
        let said = Arc::<Mutex<String>>::default();
        let pipes: [Option<Box<dyn Read + Send>>; 2] = [
            process.child.stdout.take().map(|pipe| Box::new(pipe) as _),
            process.child.stderr.take().map(|pipe| Box::new(pipe) as _),
        ];
        for mut pipe in pipes.into_iter().flatten() {
            let said = Arc::clone(&said);
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(count @ 1..) = pipe.read(&mut buffer) {
                    said.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
                }
            });
        }
        Running { process, said }
    }
}

struct Chaos {
    state: u64,
    story: Story,
    database: Proxy,
    brokers: Vec<Proxy>,
    running: Vec<Running>,
    load: Option<Load>,
    rounds: u64,
    kills: u64,
    /// How often processes ended by themselves, by exit code.
    ended: BTreeMap<String, u64>,
    faults: BTreeMap<&'static str, u64>,
}

impl Chaos {
    fn new(seed: u64) -> Self {
        let plain: u16 = common::brokers()
            .split(',')
            .next()
            .and_then(|first| first.rsplit(':').next())
            .and_then(|port| port.parse().ok())
            .expect("TIDEGATE_BROKERS");
        let proxy = |index| Proxy::at(plain + 300 + index, plain + 200 + index);
        let brokers: Vec<_> = (0..BROKERS).map(proxy).collect();
        let (database, url) = Proxy::to_database();
        let mut story = Story::wide("chaos", PARTITIONS, 3);
        let bootstrap: Vec<_> =
            brokers.iter().map(|proxy| format!("127.0.0.1:{}", proxy.port)).collect();
        story.environment = vec![("DATABASE_URL", url), ("TIDEGATE_BROKERS", bootstrap.join(","))];
        let load = Some(Load::of(500, &story.topic, 0, PARTITIONS));
        Chaos {
            state: seed,
            story,
            database,
            brokers,
            running: Vec::new(),
            load,
            rounds: 0,
            kills: 0,
            ended: BTreeMap::new(),
            faults: BTreeMap::new(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.state = mix(self.state);
        (self.state >> 11) % below
    }

    fn pause(&mut self, from: u64, upto: u64) {
        let millis = from + self.random(upto - from);
        std::thread::sleep(Duration::from_millis(millis));
    }

    /// Starts a run of other numbers of processes and workers, where none runs.
    fn start(&mut self) {
        let processes = 1 + self.random(3) as usize;
        let workers = (1 + self.random(3)).to_string();
        let hosts = hostfile(processes);
        let (count, long) = (processes.to_string(), self.random(2) == 0);
        for index in 0..processes {
            let index = index.to_string();
            let mut flags = vec!["-w", &workers];
            if processes > 1 {
                flags.extend(["-n", &count, "-p", &index, "-h", &hosts]);
            }
            // Small transactions, or such as take a whole gulp.
            flags.extend(["--max-rows", if long { "20000" } else { "500" }, "--linger", "20ms"]);
            self.running.push(Running::new(self.story.run(&flags)));
        }
    }

    /// Notes the processes that ended by themselves. One that was lost takes the others of its run along.
    fn reap(&mut self) {
        let mut left = Vec::new();
        for mut running in std::mem::take(&mut self.running) {
            match running.process.child.try_wait().expect("it is ours") {
                None => left.push(running),
                Some(status) => {
                    let code = status.code().map_or("killed".to_owned(), |code| code.to_string());
                    if !["killed", "0", "4", "5", "6", "7"].contains(&code.as_str()) {
                        let said = running.said.lock().unwrap();
                        panic!("a process ended with {code}, which no fault explains:\n{said}");
                    }
                    *self.ended.entry(code).or_default() += 1;
                }
            }
        }
        self.running = left;
    }

    /// One fault, and the way back.
    fn round(&mut self) {
        self.rounds += 1;
        if self.running.is_empty() {
            self.start();
        }
        self.moves(false);
        let fault = self.random(12);
        let fault = match fault {
            0 | 1 => self.kill(),
            2 => self.freeze(),
            3 => self.replace(),
            4 => self.stop(),
            5 => {
                self.database.cut();
                "database cut"
            }
            6 => {
                self.database.silence();
                self.pause(1_000, 12_000);
                self.database.open();
                "database silent"
            }
            7 => {
                self.database.delay(Duration::from_millis(30));
                self.pause(1_000, 4_000);
                self.database.open();
                "database slow"
            }
            8 => {
                call(&["stop-postgres", "immediate"], &[]);
                self.pause(0, 3_000);
                call(&["start-postgres"], &[]);
                "database crash"
            }
            9 => {
                self.brokers.iter().for_each(Proxy::cut);
                "brokers cut"
            }
            10 => {
                let index = self.random(BROKERS.into()) as usize;
                self.brokers[index].silence();
                self.pause(1_000, 8_000);
                self.brokers[index].open();
                "broker silent"
            }
            _ => {
                let index = self.random(BROKERS.into()).to_string();
                call(&["stop-broker", &index, "immediate"], &[]);
                self.pause(0, 4_000);
                // A second fault while it is away.
                if self.random(2) == 0 {
                    self.kill();
                }
                call(&["start-broker", &index], &[]);
                "broker crash"
            }
        };
        *self.faults.entry(fault).or_default() += 1;
        self.moves(true);
    }

    /// Waits until positions move, starting what has ended.
    fn moves(&mut self, again: bool) {
        let began = Instant::now();
        let mut client = None;
        let mut before = None;
        loop {
            self.reap();
            if self.running.is_empty() && again {
                self.start();
            }
            // The database may be away.
            let open = || postgres::Client::connect(&common::database(), postgres::NoTls).ok();
            client = client.or_else(open);
            let query = "select coalesce(sum(position), 0)::bigint from tidegate.slices
                         where pipeline = $1";
            let sum = client.as_mut().and_then(|c| c.query_one(query, &[&self.story.schema]).ok());
            match sum.map(|row| row.get::<_, i64>(0)) {
                Some(sum) if before.is_some_and(|before| sum > before) => return,
                Some(sum) => drop(before.get_or_insert(sum)),
                None => client = None,
            }
            if began.elapsed() > RECOVERY {
                let said = self.running.iter().map(|run| run.said.lock().unwrap().clone());
                let said: String = said.collect();
                panic!("nothing moves for {RECOVERY:?}; faults {:?}\n{said}", self.faults);
            }
            std::thread::sleep(Duration::from_millis(50));
            if !again && self.running.is_empty() {
                self.start();
            }
        }
    }

    fn victim(&mut self) -> Option<usize> {
        let count = self.running.len() as u64;
        (count > 0).then(|| self.random(count) as usize)
    }

    fn kill(&mut self) -> &'static str {
        self.pause(0, 500);
        if let Some(victim) = self.victim() {
            self.running.swap_remove(victim).process.kill();
            self.kills += 1;
        }
        "kill"
    }

    /// A process is not scheduled for a while.
    fn freeze(&mut self) -> &'static str {
        if let Some(victim) = self.victim() {
            self.running[victim].process.signal("-STOP");
            self.pause(500, 8_000);
            self.running[victim].process.signal("-CONT");
        }
        "freeze"
    }

    /// A second run takes over while the first is frozen; the first wakes up and finds itself fenced.
    fn replace(&mut self) -> &'static str {
        for running in &self.running {
            running.process.signal("-STOP");
        }
        let old = std::mem::take(&mut self.running);
        let workers = (1 + self.random(3)).to_string();
        self.running.push(Running::new(self.story.run(&["-w", &workers, "--take-over"])));
        self.moves(true);
        for running in &old {
            running.process.signal("-CONT");
        }
        let began = Instant::now();
        for mut running in old {
            loop {
                match running.process.child.try_wait().expect("it is ours") {
                    Some(status) => {
                        let code = status.code().unwrap_or(-1);
                        let said = running.said.lock().unwrap();
                        assert!([4, 5, 6, 7].contains(&code), "fenced, not {code}:\n{said}");
                        *self.ended.entry(format!("fenced {code}")).or_default() += 1;
                        break;
                    }
                    None if began.elapsed() > RECOVERY => {
                        let said = running.said.lock().unwrap();
                        panic!("a run that was replaced has not ended\n{said}");
                    }
                    None => std::thread::sleep(Duration::from_millis(50)),
                }
            }
        }
        "replace"
    }

    /// In good order.
    fn stop(&mut self) -> &'static str {
        for running in &self.running {
            running.process.signal("-TERM");
        }
        let began = Instant::now();
        while !self.running.is_empty() {
            self.reap();
            assert!(began.elapsed() < Duration::from_secs(45), "a stop takes too long");
            std::thread::sleep(Duration::from_millis(20));
        }
        "stop"
    }

    /// Stops the load, reads all, and compares with the log.
    fn settle(mut self) -> ExitCode {
        let load = self.load.take().expect("it was started");
        let events = load.stop();
        self.stop();
        let run = self.story.run(&["-w", "2", "--until-end"]);
        let summary = run.success(Duration::from_secs(300));
        say(&format!("events={events} {summary}"));
        say(&format!("faults {:?}", self.faults));
        say(&format!("exits {:?}", self.ended));
        let log = read_log(&self.story.topic);
        let (lost, duplicated, wrong) = self.compare(&log);
        let consumed = common::figure(&summary, "consumed");
        let miscounted = consumed.abs_diff(2 * log.len() as u64);
        say(&format!("records={} wrong={wrong} miscounted={miscounted}", log.len()));
        let Chaos { rounds, kills, .. } = self;
        say(&format!("rounds={rounds} kills={kills} lost={lost} duplicated={duplicated}"));
        let well = lost + duplicated + wrong + miscounted == 0 && log.len() as u64 >= events;
        if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }

    /// How many rows are missing, too many, and other than the model's.
    fn compare(&mut self, log: &[Logged]) -> (u64, u64, u64) {
        let (schema, client) = (&self.story.schema, &mut self.story.client);
        *client = common::connect();
        let sql = format!("select partition, \"offset\", order_id, amount from {schema}.order_log");
        let mut found = BTreeMap::<(i32, i64, i64, i64), i64>::new();
        for row in client.query(&sql, &[]).expect("the table is there") {
            *found.entry((row.get(0), row.get(1), row.get(2), row.get(3))).or_default() += 1;
        }
        let (mut lost, mut duplicated, mut wrong) = (0, 0, 0);
        for Logged { partition, offset, order } in log {
            match found.remove(&(*partition, *offset, order.order_id, order.amount)) {
                None => lost += 1,
                Some(times) => duplicated += times as u64 - 1,
            }
        }
        wrong += found.len() as u64;
        let table = format!("{schema}.valid_orders");
        let rows = common::rows(client, &table);
        let model = common::model(log.iter().map(|logged| logged.order.clone()));
        lost += model.keys().filter(|id| !rows.contains_key(id)).count() as u64;
        wrong += rows.iter().filter(|(id, row)| model.get(id) != Some(row)).count() as u64;
        (lost, duplicated, wrong)
    }
}

/// A record of the log.
struct Logged {
    partition: i32,
    offset: i64,
    order: Order,
}

/// All records of the topic, each partition's in its order.
fn read_log(topic: &str) -> Vec<Logged> {
    #[derive(serde::Deserialize)]
    struct Json {
        order_id: i64,
        customer: String,
        status: String,
        amount: i64,
    }
    let consumer: BaseConsumer = rdkafka::ClientConfig::new()
        .set("bootstrap.servers", common::brokers())
        .set("group.id", "chaos")
        .create()
        .expect("a consumer");
    let mut list = rdkafka::TopicPartitionList::new();
    let mut left = 0;
    for partition in 0..PARTITIONS {
        let limit = Duration::from_secs(30);
        let (low, high) = consumer.fetch_watermarks(topic, partition, limit).expect("ends");
        left += high - low;
        let offset = rdkafka::Offset::Beginning;
        list.add_partition_offset(topic, partition, offset).expect("a partition");
    }
    consumer.assign(&list).expect("an assignment");
    let mut log = Vec::new();
    let began = Instant::now();
    while left > 0 {
        assert!(began.elapsed() < Duration::from_secs(120), "the log cannot be read");
        let Some(message) = consumer.poll(Duration::from_millis(500)) else { continue };
        // A broker that just came back may be asked twice.
        let Ok(message) = message else { continue };
        let json: Json =
            serde_json::from_slice(message.payload().expect("an order")).expect("JSON");
        let known = ["new", "paid", "shipped", "removed"];
        let status = known.into_iter().find(|status| *status == json.status).expect("a status");
        let Json { order_id, customer, amount, .. } = json;
        let order = Order { order_id, customer, status, amount };
        log.push(Logged { partition: message.partition(), offset: message.offset(), order });
        left -= 1;
    }
    log
}
