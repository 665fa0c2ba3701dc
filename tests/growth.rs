//! Topics that grow while older rows of a key are still to be stored (contract C6): a key may move to a
//! new partition, and its newer row there must outlive the older one.

mod common;
#[path = "../dataflows/orders.rs"]
mod orders;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{Order, Process, eventually, figure, rows};
use postgres::Client;
use tidegate::cluster::Flags;
use tidegate::run::Stop;
use tidegate::{Options, Pipeline};

const LONG: Duration = Duration::from_secs(60);
/// What the log says when partitions wait.
const WAITS: &str = "new partitions wait";

/// The pipeline `orders` on its own topic of two partitions, read by two workers. Order 0 is stored, and
/// another session then keeps its row locked, so that nothing that comes after it in partition 0 is.
struct Story {
    topic: String,
    schema: String,
    client: Client,
}

fn order(order_id: i64, amount: i64) -> Order {
    Order { order_id, customer: "ann".into(), status: "new", amount }
}

impl Story {
    fn new(name: &str) -> Self {
        let topic = common::topic(name, 2);
        let mut client = common::connect();
        let schema = common::schema(&mut client, name);
        let story = Story { topic, schema, client };
        story.send(0, [order(0, 1)]);
        story
    }

    fn send<const N: usize>(&self, partition: i32, orders: [Order; N]) {
        let message =
            |order: Order| (partition, order.order_id.to_string().into_bytes(), Some(order.json()));
        common::produce(&self.topic, orders.map(message));
    }

    fn params(&self) -> [(String, String); 2] {
        let table = format!("{}.valid_orders", self.schema);
        [("topic".into(), self.topic.clone()), ("table".into(), table)]
    }

    fn run(&self, more: &[&str]) -> Process {
        let params = self.params().map(|(name, value)| format!("{name}={value}"));
        let [topic, table] = &params;
        let args = ["run", "orders", "--name", &self.schema, "--param", topic, "--param", table];
        Process::spawn(&[&args[..], &["-w", "2"], more].concat())
    }

    /// The amount of an order in the table.
    fn amount(&mut self, order_id: i64) -> Option<i64> {
        rows(&mut self.client, &format!("{}.valid_orders", self.schema))
            .get(&order_id)
            .map(|order| order.amount)
    }

    fn until(&mut self, order_id: i64, amount: i64) {
        let there = eventually(LONG, || (self.amount(order_id) == Some(amount)).then_some(()));
        assert!(there.is_some(), "order {order_id}: {:?}, not {amount}", self.amount(order_id));
    }

    /// Locks the row of order 0, and sends what has to wait for it; returns once it does.
    fn hold(&mut self) -> Client {
        let mut session = common::connect();
        session.batch_execute("begin").unwrap();
        let row = format!("select from {}.valid_orders where order_id = 0 for update", self.schema);
        session.execute(&row, &[]).unwrap();
        self.send(0, [order(0, 2), order(1, 10)]);
        self.blocked_by(&mut session);
        session
    }

    fn blocked_by(&mut self, session: &mut Client) {
        let pid: i32 = session.query_one("select pg_backend_pid()", &[]).unwrap().get(0);
        let query = "select count(*) from pg_stat_activity where $1 = any(pg_blocking_pids(pid))";
        let blocked = eventually(LONG, || {
            let count: i64 = self.client.query_one(query, &[&pid]).unwrap().get(0);
            (count > 0).then_some(())
        });
        assert!(blocked.is_some(), "the rows of partition 0 wait for the lock");
    }

    /// The partitions that have a position.
    fn stored(&mut self) -> BTreeMap<i32, i64> {
        let query = "select partition, position from tidegate.slices where pipeline = $1";
        let rows = self.client.query(query, &[&self.schema]).unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}

/// Waits until `process` has logged `text`.
fn says(process: &mut Process, text: &'static str) -> Receiver<()> {
    let (said, heard) = channel();
    let log = BufReader::new(process.child.stderr.take().unwrap());
    std::thread::spawn(move || {
        // To the end, so that the process never blocks on a full pipe.
        for line in log.lines().map_while(Result::ok) {
            if line.contains(text) {
                let _ = said.send(());
            }
        }
    });
    heard
}

#[test]
fn a_newer_row_in_a_partition_that_is_added_meanwhile_stays() {
    let log = Arc::new(Mutex::new(Vec::<u8>::new()));
    let lines = Arc::clone(&log);
    tracing_subscriber::fmt().with_writer(move || Lines(Arc::clone(&lines))).init();
    let waits = || {
        let log = log.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&log).matches(WAITS).count()
    };

    let mut story = Story::new("grows");
    let pipeline = Pipeline::new(story.schema.clone(), orders::orders);
    let stop = Stop::default();
    let options = Options {
        flags: Flags { threads: 2, ..Flags::default() },
        params: story.params().into(),
        brokers: Some(common::brokers()),
        discovery: Duration::from_millis(200),
        stop: stop.clone(),
        ..Options::default()
    };
    let run = std::thread::spawn(move || pipeline.run(&options));
    story.until(0, 1);
    let mut session = story.hold();
    common::grow(&story.topic, 4);
    story.send(3, [order(1, 20), order(2, 20)]);
    assert!(eventually(LONG, || (waits() == 2).then_some(())).is_some(), "both workers wait");
    // Longer than it takes to read it.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!((story.amount(1), story.amount(2)), (None, None));
    session.batch_execute("rollback").unwrap();
    story.until(2, 20);
    assert_eq!((story.amount(0), story.amount(1)), (Some(2), Some(20)));
    assert_eq!(waits(), 2, "each worker said so once");

    // From now on they are read like the others.
    let began = Instant::now();
    story.send(2, [order(3, 30)]);
    story.until(3, 30);
    assert!(began.elapsed() < Duration::from_secs(10));
    stop.request();
    assert_eq!(run.join().unwrap().unwrap().counters.consumed, 6);
    assert_eq!(story.stored(), [(0, 3), (1, 0), (2, 1), (3, 2)].into());
}

/// Writes to a shared buffer.
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_newer_row_in_a_partition_that_was_added_between_two_runs_stays() {
    let mut story = Story::new("grew");
    let first = story.run(&[]);
    story.until(0, 1);
    let mut session = story.hold();
    first.kill();
    common::grow(&story.topic, 4);
    story.send(3, [order(1, 20), order(2, 20)]);
    // The second run is killed while the new partitions wait, and the third finds them as the second did.
    for more in [&[][..], &["--until-end"]] {
        let mut run = story.run(&[&["--take-over"], more].concat());
        let heard = says(&mut run, WAITS);
        heard.recv_timeout(LONG).expect("the new partition waits");
        story.blocked_by(&mut session);
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!((story.amount(1), story.amount(2)), (None, None));
        assert_eq!(story.stored(), [(0, 1), (1, 0)].into(), "nothing is stored of what waits");
        if more.is_empty() {
            run.kill();
            continue;
        }
        session.batch_execute("rollback").unwrap();
        let ended = eventually(LONG, || run.child.try_wait().unwrap()).expect("the run ends");
        assert!(ended.success(), "{ended}");
        let mut out = String::new();
        std::io::Read::read_to_string(run.child.stdout.as_mut().unwrap(), &mut out).unwrap();
        assert_eq!(figure(out.lines().last().unwrap_or_default(), "consumed"), 5, "{out}");
    }
    assert_eq!([0, 1, 2].map(|id| story.amount(id)), [Some(2), Some(20), Some(20)]);
    assert_eq!(story.stored(), [(0, 3), (1, 0), (3, 2)].into());
}
