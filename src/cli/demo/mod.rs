//! `tidegate demo`: the main job on a sample, from the first record to the last row checked.

mod broker;
mod orders;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use rdkafka::ClientConfig;

use self::broker::Broker;
use self::orders::{Model, Sample};
use self::table::Target;
use super::args::KafkaArgs;
use super::entry::Entries;
use super::output::{Table, print};
use super::progress::{Progress, Shown};
use super::send::Sender;
use super::signals;
use crate::cluster::Flags;
use crate::error::{Error, Result};
use crate::pipeline::{Options, Pipeline, Summary};

/// The dataflow that the demo runs.
const DATAFLOW: &str = "orders";

#[derive(Args)]
pub(super) struct DemoArgs {
    /// Uses the Kafka brokers of --brokers; without it, a broker inside this process.
    #[arg(long)]
    kafka: bool,

    /// How many records to make.
    #[arg(long, value_name = "NUM", default_value_t = 200_000, value_parser = clap::value_parser!(u64).range(1..))]
    orders: u64,

    /// Worker threads.
    #[arg(short = 'w', long = "threads", value_name = "NUM", default_value_t = 2, value_parser = threads)]
    threads: usize,

    /// The schema for the table, made anew; also the pipeline's name.
    #[arg(long, value_name = "NAME", default_value = "tidegate_demo")]
    schema: String,

    #[command(flatten)]
    connect: KafkaArgs,
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("a process needs at least one worker".into()),
        Ok(threads) => Ok(threads),
        Err(_) => Err("expected a number".into()),
    }
}

pub(super) fn demo(entries: &Entries, args: &DemoArgs) -> Result<()> {
    let entry = entries.get(DATAFLOW).map_err(|_| {
        Error::config("the demo needs the dataflow `orders`, which only the program `tidegate` has")
    })?;
    let broker = if args.kafka {
        let brokers = args.connect.brokers().ok_or_else(|| {
            Error::config(
                "no Kafka brokers are given; set `TIDEGATE_BROKERS`, or leave --kafka out",
            )
        })?;
        Broker::external(brokers)
    } else {
        Broker::embedded(args.orders)?
    };
    let mut target = Target::create(&args.schema)?;
    let pipeline = entry.pipeline(&args.schema);
    let options = Options {
        flags: Flags { threads: args.threads, ..Flags::default() },
        params: BTreeMap::from([
            ("topic".to_owned(), broker.topic().to_owned()),
            ("table".to_owned(), target.table()),
        ]),
        brokers: Some(broker.brokers().to_owned()),
        client: args.connect.client()?,
        until_end: true,
        ..Options::default()
    };
    signals::install(signals::Ask::new(options.stop.clone(), Duration::from_secs(30)))?;
    print(format_args!("Kafka:       {}", broker.describe()))?;
    print(format_args!("PostgreSQL:  table `{}`, made for this", target.table()))?;

    let began = Instant::now();
    let model = produce(args, &broker)?;
    print(format_args!(
        "produced:    {} orders and updates of orders, in {:.2} s",
        HumanCount(model.records),
        began.elapsed().as_secs_f64()
    ))?;
    forget(&pipeline, &options)?;
    whole(&pipeline, &options, model.records)?;

    let progress = Progress::start(Arc::clone(&options.figures));
    let summary = pipeline.run(&options);
    drop(progress);
    let summary = summary?;
    if options.stop.is_requested() {
        // Stopped in good order, somewhere in the middle: there is nothing to compare with.
        return print(summary);
    }
    conserved(&summary, &model)?;
    target.compare(&model)?;
    print(report(args, &broker, &mut target, &model, &summary)?)?;
    print(summary)
}

/// Produces the sample, and returns what is to become of it.
fn produce(args: &DemoArgs, broker: &Broker) -> Result<Model> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", broker.brokers())
        .set("enable.idempotence", "true")
        .set("linger.ms", "20");
    for (name, value) in args.connect.client()? {
        config.set(name, value);
    }
    let mut sender = Sender::open(&config, broker.topic(), Some(broker.partitions()))?;
    let style = ProgressStyle::with_template(
        "{elapsed_precise} [{bar:30}] {human_pos}/{human_len} produced",
    )
    .expect("the template is well-formed");
    let shown = Shown::new(ProgressBar::new(args.orders).with_style(style));
    let (mut model, mut text) = (Model::default(), String::new());
    for order in Sample::new(args.orders) {
        order.write_json(&mut text);
        sender.send(Some(order.order_id.to_string().as_bytes()), text.as_bytes())?;
        model.apply(order);
        if model.records % 1_000 == 0 {
            shown.0.set_position(model.records);
        }
    }
    let delivered = sender.finish()?;
    if delivered != model.records {
        return Err(Error::internal(format!(
            "{delivered} of {} records were delivered",
            model.records
        )));
    }
    Ok(model)
}

/// Drops what an earlier demo has stored: its table is gone.
fn forget(pipeline: &Pipeline, options: &Options) -> Result<()> {
    for store in pipeline.plan(options)?.stores() {
        store.store.prepare(&[])?;
        let slices = store.store.slices(pipeline.name())?;
        let changes: Vec<_> = slices.into_iter().map(|slice| (slice.key, None)).collect();
        store.store.reposition(pipeline.name(), &changes)?;
    }
    Ok(())
}

/// Makes sure that the broker holds every record still: the one inside the process keeps a few
/// megabytes a partition.
fn whole(pipeline: &Pipeline, options: &Options, records: u64) -> Result<()> {
    let mut held = 0;
    for source in &mut pipeline.plan(options)?.sources {
        let partitions = source.catalog.partitions()?;
        let bounds = source.catalog.bounds(&partitions)?;
        held += bounds.values().map(|bounds| bounds.end.0 - bounds.first.0).sum::<i64>();
    }
    if u64::try_from(held).is_ok_and(|held| held >= records) {
        return Ok(());
    }
    Err(Error::source(format!(
        "the broker holds {held} of {records} records; make fewer with --orders, or use --kafka"
    )))
}

/// Each record must have ended in exactly one of the four, and the filtered ones are known.
fn conserved(summary: &Summary, model: &Model) -> Result<()> {
    let counted = summary.counters;
    let sum = counted.filtered + counted.written + counted.rejected + counted.collapsed;
    if counted.consumed == sum && sum == model.records && counted.filtered == model.removed {
        return Ok(());
    }
    Err(Error::internal(format!(
        "the counts are wrong: of {} records {} were removed, but `{summary}`",
        model.records, model.removed
    )))
}

fn report(
    args: &DemoArgs,
    broker: &Broker,
    target: &mut Target,
    model: &Model,
    summary: &Summary,
) -> Result<String> {
    let table = target.table();
    let mut first =
        Table::new(["order_id", "customer", "status", "amount", "currency", "created_at"]);
    for order in target.first(5)? {
        first.row([
            order.order_id.to_string(),
            order.customer,
            order.status,
            order.amount.to_string(),
            order.currency,
            order.created_at,
        ]);
    }
    let program = std::env::args().next().unwrap_or_else(|| "tidegate".to_owned());
    let seconds = summary.elapsed.as_secs_f64();
    let again = if args.kafka {
        format!(
            "{program} positions {DATAFLOW} --name {} --param topic={} --param table={table}",
            args.schema,
            broker.topic()
        )
    } else {
        "scripts/quickstart --kafka                 the same on a real Kafka broker".to_owned()
    };
    Ok(format!(
        "moved:       {} records in {seconds:.2} s, {} a second, by {} workers\n\
         filtered:    {} that were `removed`\n\
         collapsed:   {} that a later one of their order replaced within a transaction\n\
         checked:     {} rows, equal to a sequential model of the same records, row for row\n\
         \n\
         {first}  ...\n\
         \n\
         What next:\n  \
           psql \"$DATABASE_URL\" -c 'select status, count(*) from {table} group by 1'\n  \
           {again}\n  \
           {program} --help\n  \
           the dataflow that ran is dataflows/orders.rs: add your own beside it\n",
        HumanCount(model.records),
        HumanCount((model.records as f64 / seconds.max(1e-9)) as u64),
        args.threads,
        HumanCount(summary.counters.filtered),
        HumanCount(summary.counters.collapsed),
        HumanCount(model.table.len() as u64),
    ))
}
