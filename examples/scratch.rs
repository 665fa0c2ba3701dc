use tidegate::{cluster::Flags, sink::Postgres, source::kafka::Kafka, *};
#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Order {
    order_id: i64,
    customer: compact_str::CompactString,
    status: compact_str::CompactString,
    amount: i64,
    currency: compact_str::CompactString,
    created_at: compact_str::CompactString,
}
#[global_allocator]
static A: mimalloc::MiMalloc = mimalloc::MiMalloc;
fn main() {
    tracing_subscriber::fmt().init();
    let a: Vec<String> = std::env::args().collect();
    let (topic, table, w) = (a[1].clone(), a[2].clone(), a[3].parse().unwrap());
    let keyed = a.get(4).is_some();
    let name = format!("scratch-{topic}-{table}");
    let p = Pipeline::new(name, move |engine: Engine<'_>| {
        let s = Postgres::table(&table);
        let s = if keyed { s.key("order_id") } else { s };
        engine
            .dataframe(Kafka::topic(&topic, Json::<Order>::new()))
            .filter(|o| o.status != "removed")
            .sink(s);
        Ok(())
    });
    let o = Options {
        flags: Flags { threads: w, ..Default::default() },
        brokers: std::env::var("TIDEGATE_BROKERS").ok(),
        until_end: true,
        ..Options::default()
    };
    match p.run(&o) {
        Ok(s) => println!("{s}"),
        Err(e) => {
            println!("error: {e}");
            std::process::exit(e.kind().exit_code().into())
        }
    }
}
