//! What runs in processes of its own: the chain, and what it is compared with.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use compact_str::CompactString;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::{ClientConfig, Offset};
use serde::{Deserialize, Serialize};
use tidegate::cluster::Flags;
use tidegate::metrics::Server;
use tidegate::run::Stop;
use tidegate::sink::{Memory as Table, MemoryStore, Pace, Postgres};
use tidegate::source::kafka::Kafka;
use tidegate::source::{Memory, Script, Step};
use tidegate::{Json, Options, Pipeline};

use super::common::{brokers, connect};
use super::load::{self, PARTITIONS};
use super::process::confess;

/// An order, as the topic has it and as the table has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Order {
    pub order_id: i64,
    pub customer: CompactString,
    pub status: CompactString,
    pub amount: i64,
    pub currency: CompactString,
    pub created_at: CompactString,
}

#[derive(Subcommand)]
pub enum Child {
    /// A topic of orders through a filter into a table.
    Chain(Chain),
    /// The same by hand: one thread, no dataflow, no guarantee.
    Hand(Hand),
    /// Reads a topic's messages and forgets them.
    Drain(Drain),
    /// Orders in memory, parsed and filtered away.
    Parse(Parse),
    /// Makes a topic of orders that stays, and prints its name: for a profiler's runs.
    Load {
        #[arg(long)]
        orders: u64,
    },
}

/// Which orders go on.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Keep {
    All,
    Valid,
    None,
}

impl Keep {
    fn keeps(self, order: &Order) -> bool {
        match self {
            Keep::All => true,
            Keep::Valid => order.status != "removed",
            Keep::None => order.order_id < 0,
        }
    }
}

#[derive(Args)]
pub struct Chain {
    #[arg(long)]
    topic: String,
    #[arg(long)]
    table: String,
    /// The schema of the positions.
    #[arg(long)]
    schema: String,
    #[arg(long, default_value = "valid")]
    keep: Keep,
    /// Whether the table's rows have keys.
    #[arg(long)]
    keyed: bool,
    /// The database, where it is not that of the environment.
    #[arg(long)]
    url: Option<String>,
    /// Go on until asked to end.
    #[arg(long)]
    endless: bool,
    /// Serve metrics, and scrape them once a second.
    #[arg(long)]
    metrics: bool,
    #[arg(long, default_value_t = 100)]
    linger_ms: u64,
    #[arg(long, default_value_t = Pace::default().max_rows)]
    max_rows: usize,
    #[arg(long, default_value_t = 256 << 10)]
    memory_kib: usize,
    #[command(flatten)]
    flags: Flags,
}

impl Chain {
    fn run(&self) -> tidegate::Result<u64> {
        let (topic, keep) = (self.topic.clone(), self.keep);
        let mut sink = Postgres::table(&self.table).schema(&self.schema);
        if self.keyed {
            sink = sink.key("order_id");
        }
        if let Some(url) = &self.url {
            sink = sink.url(url);
        }
        let pipeline = Pipeline::new(&self.topic, move |engine| {
            let source = Kafka::topic(&topic, Json::<Order>::new());
            engine.dataframe(source).filter(move |order| keep.keeps(order)).sink(sink.clone());
            Ok(())
        });
        let stop = Stop::default();
        let asked = stop.clone();
        let mut signals =
            signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM]).expect("a handler");
        std::thread::spawn(move || signals.forever().for_each(|_| asked.request()));
        let options = Options {
            flags: self.flags.clone(),
            brokers: Some(brokers()),
            until_end: !self.endless,
            pace: Pace {
                linger: Duration::from_millis(self.linger_ms),
                max_rows: self.max_rows,
                ..Pace::default()
            },
            memory: self.memory_kib << 10,
            measure: self.metrics,
            stop,
            ..Options::default()
        };
        let server =
            self.metrics.then(|| Server::start("127.0.0.1:0", Arc::clone(&options.figures)));
        let server = server.transpose()?;
        let address = server.as_ref().map(Server::address);
        if let Some(address) = address {
            std::thread::spawn(move || {
                while scrape(address).is_ok() {
                    std::thread::sleep(Duration::from_secs(1));
                }
            });
        }
        Ok(pipeline.run(&options)?.counters.consumed)
    }
}

/// Asks for the metrics once.
fn scrape(address: SocketAddr) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    std::io::copy(&mut stream, &mut std::io::sink())?;
    Ok(())
}

#[derive(Args)]
pub struct Hand {
    #[arg(long)]
    topic: String,
    #[arg(long)]
    table: String,
}

impl Hand {
    /// What a careful engineer writes for one thread: rows as COPY BINARY has them, sent as they come so
    /// that the server works meanwhile, committed every 50,000.
    fn run(&self) -> u64 {
        const ROWS: usize = 50_000;
        const PIECE: usize = 64 * 1024;
        /// The microseconds from 1970-01-01 to 2000-01-01.
        const SHIFT: i64 = 946_684_800_000_000;
        let mut client = connect();
        let mut reader = Consumed::of(&self.topic);
        let copy = format!("copy {} from stdin with (format binary)", self.table);
        let field = |value: &[u8], piece: &mut Vec<u8>| {
            piece.extend_from_slice(&(value.len() as i32).to_be_bytes());
            piece.extend_from_slice(value);
        };
        let mut piece = Vec::with_capacity(2 * PIECE);
        loop {
            let mut sink = client.copy_in(&copy).expect("a copy");
            piece.extend_from_slice(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0");
            let mut rows = 0;
            while rows < ROWS
                && reader.next(|value| {
                    let order: Order = sonic_rs::from_slice(value).expect("an order");
                    if !Keep::Valid.keeps(&order) {
                        return;
                    }
                    let time: jiff::Timestamp = order.created_at.parse().expect("a time");
                    piece.extend_from_slice(&6_i16.to_be_bytes());
                    field(&order.order_id.to_be_bytes(), &mut piece);
                    field(order.customer.as_bytes(), &mut piece);
                    field(order.status.as_bytes(), &mut piece);
                    field(&order.amount.to_be_bytes(), &mut piece);
                    field(order.currency.as_bytes(), &mut piece);
                    field(&(time.as_microsecond() - SHIFT).to_be_bytes(), &mut piece);
                    rows += 1;
                })
            {
                if piece.len() >= PIECE {
                    sink.write_all(&piece).expect("the server takes it");
                    piece.clear();
                }
            }
            piece.extend_from_slice(b"\xff\xff");
            sink.write_all(&piece).expect("the server takes it");
            piece.clear();
            sink.finish().expect("a copy's end");
            if rows < ROWS {
                return reader.count;
            }
        }
    }
}

#[derive(Args)]
pub struct Drain {
    #[arg(long)]
    topic: String,
}

/// The messages that a topic has now, one after the other.
struct Consumed {
    consumer: BaseConsumer,
    open: i32,
    count: u64,
}

impl Consumed {
    fn of(topic: &str) -> Self {
        let consumer: BaseConsumer = ClientConfig::new()
            .set("bootstrap.servers", brokers())
            .set("group.id", "bench")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            // As Tidegate has it: by default a full queue stops fetching for a second.
            .set("fetch.queue.backoff.ms", "10")
            .set("fetch.wait.max.ms", "100")
            .create()
            .expect("a consumer");
        let metadata = consumer.fetch_metadata(Some(topic), WAIT).expect("the topic is there");
        let open = metadata.topics()[0].partitions().len() as i32;
        let mut all = TopicPartitionList::new();
        for partition in 0..open {
            all.add_partition_offset(topic, partition, Offset::Beginning).expect("an offset");
        }
        consumer.assign(&all).expect("an assignment");
        Consumed { consumer, open, count: 0 }
    }

    /// Hands the next value to `each`; `false` at the end of all partitions.
    fn next(&mut self, each: impl FnOnce(&[u8])) -> bool {
        while self.open > 0 {
            match self.consumer.poll(WAIT).expect("a message comes") {
                Ok(message) => {
                    self.count += 1;
                    each(message.payload().unwrap_or_default());
                    return true;
                }
                Err(rdkafka::error::KafkaError::PartitionEOF(_)) => self.open -= 1,
                Err(error) => panic!("{error}"),
            }
        }
        false
    }
}

/// How long a message may take.
const WAIT: Duration = Duration::from_secs(10);

/// Reads all messages that `topic` has now; how many there were.
fn drain(topic: &str) -> u64 {
    let mut reader = Consumed::of(topic);
    while reader.next(|_| {}) {}
    reader.count
}

#[derive(Args)]
pub struct Parse {
    #[arg(long)]
    orders: u64,
    #[command(flatten)]
    flags: Flags,
}

impl Parse {
    fn run(&self) -> tidegate::Result<(u64, Duration)> {
        // Copied into each partition's own memory, and read from there for as long as the process lives.
        let mut partitions: Vec<Vec<Step<&'static [u8]>>> = Vec::new();
        let each = self.orders / PARTITIONS as u64;
        for partition in 0..PARTITIONS as u64 {
            let orders: Vec<Vec<u8>> =
                (0..each).map(|n| load::order(partition * each + n)).collect();
            let all: &'static [u8] = Box::leak(orders.concat().into_boxed_slice());
            let mut rest = all;
            let slices = orders.iter().map(|order| {
                let (this, after) = rest.split_at(order.len());
                rest = after;
                Step::Row(this)
            });
            partitions.push(slices.collect());
        }
        let script = Script::new(partitions);
        let store = MemoryStore::new();
        let pipeline = Pipeline::new("parse", move |engine| {
            engine
                .dataframe(Memory::new("orders", Arc::clone(&script)))
                .try_map(sonic_rs::from_slice::<Order>)
                .filter(|order| Keep::None.keeps(order))
                .sink(Table::table(&store, "none"));
            Ok(())
        });
        let options = Options { flags: self.flags.clone(), until_end: true, ..Options::default() };
        let summary = pipeline.run(&options)?;
        assert_eq!(summary.counters.filtered, each * PARTITIONS as u64);
        Ok((summary.counters.consumed, summary.elapsed))
    }
}

/// Does what is asked, and says what it took.
pub fn run(child: Child) -> ExitCode {
    let began = Instant::now();
    let timed = |count| (count, began.elapsed());
    let done = match child {
        Child::Chain(chain) => chain.run().map(timed),
        Child::Hand(hand) => Ok(timed(hand.run())),
        Child::Drain(Drain { topic }) => Ok(timed(drain(&topic))),
        Child::Parse(parse) => parse.run(),
        Child::Load { orders } => {
            let topic = std::mem::ManuallyDrop::new(load::Topic::of_orders("profile", orders));
            println!("{}", topic.0);
            Ok(timed(orders))
        }
    };
    match done {
        Ok((count, work)) => {
            confess(count, work);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
