//! `tidegate produce`

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use rdkafka::ClientConfig;
use serde::de::IgnoredAny;
use sonic_rs::{JsonValueTrait, LazyValue};

use super::args::KafkaArgs;
use super::output::print;
use super::send::Sender;
use super::units::{duration, size};
use crate::error::{Error, Result};

#[derive(Args)]
pub(super) struct ProduceArgs {
    /// The topic.
    topic: String,

    /// A file of JSON lines [default: standard input].
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,

    /// Keys each record by this field's text, so that records of one key stay in order; without it
    /// they go to each partition in turn.
    #[arg(long, value_name = "FIELD")]
    key: Option<String>,

    /// The size of a batch, per partition.
    #[arg(long, value_name = "SIZE", default_value = "1MB", value_parser = size)]
    batch_size: usize,

    /// How long a batch that is not full waits for more.
    #[arg(long, value_name = "DURATION", default_value = "5ms", value_parser = duration)]
    linger: Duration,

    /// Creates the topic with this many partitions where it does not exist.
    #[arg(long, value_name = "NUM", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,

    /// How batches are compressed.
    #[arg(
        long,
        value_name = "CODEC",
        default_value = "none",
        value_parser = ["none", "gzip", "snappy", "lz4", "zstd"]
    )]
    compression: String,

    #[command(flatten)]
    kafka: KafkaArgs,
}

pub(super) fn produce(args: &ProduceArgs) -> Result<()> {
    let began = Instant::now();
    let mut input: Box<dyn BufRead> = match &args.file {
        None => Box::new(io::stdin().lock()),
        Some(path) => Box::new(BufReader::new(File::open(path).map_err(|error| {
            Error::config(format!("`{}` cannot be read: {error}", path.display()))
        })?)),
    };
    let mut sender = Sender::open(&config(args)?, &args.topic, args.partitions)?;
    let (mut line, mut number) = (Vec::new(), 0u64);
    loop {
        line.clear();
        number += 1;
        let read = input.read_until(b'\n', &mut line);
        if read.map_err(|error| Error::source(format!("the input cannot be read: {error}")))? == 0 {
            break;
        }
        let record = line.trim_ascii();
        if record.is_empty() {
            continue;
        }
        let key = match &args.key {
            Some(field) => key(record, field).map(Some),
            None => valid(record).map(|()| None),
        };
        match key {
            Ok(key) => sender.send(key.as_deref().map(str::as_bytes), record)?,
            Err(why) => {
                let sent = sender.finish()?;
                return Err(Error::config(format!(
                    "line {number} of the input {why}; the {sent} records before it were produced"
                )));
            }
        }
    }
    let produced = sender.finish()?;
    print(format_args!("produced={produced} seconds={:.2}", began.elapsed().as_secs_f64()))
}

fn config(args: &ProduceArgs) -> Result<ClientConfig> {
    let mut config = ClientConfig::new();
    config
        // Retries keep the order of a partition, and duplicate nothing.
        .set("enable.idempotence", "true")
        .set("batch.size", args.batch_size.to_string())
        .set("linger.ms", (args.linger.as_secs_f64() * 1e3).to_string())
        .set("compression.type", &args.compression);
    if let Some(brokers) = args.kafka.brokers() {
        config.set("bootstrap.servers", brokers);
    }
    for (name, value) in args.kafka.client()? {
        config.set(name, value);
    }
    if config.get("bootstrap.servers").is_none() {
        return Err(Error::config(format!(
            "no Kafka brokers are given for topic `{}`; set `TIDEGATE_BROKERS`",
            args.topic
        )));
    }
    Ok(config)
}

fn valid(record: &[u8]) -> Result<(), String> {
    sonic_rs::from_slice::<IgnoredAny>(record).map(drop).map_err(|_| "is not JSON".to_owned())
}

/// The text of `field`: of a string what it says, of anything else its JSON.
fn key<'a>(record: &'a [u8], field: &str) -> Result<Cow<'a, str>, String> {
    valid(record)?;
    let value: LazyValue<'a> =
        sonic_rs::get(record, [field]).map_err(|_| format!("has no field `{field}` to key by"))?;
    if value.is_null() {
        return Err(format!("has null in the field `{field}`, which is no key"));
    }
    Ok(match value.as_str() {
        Some(text) => Cow::Owned(text.to_owned()),
        None => Cow::Owned(value.as_raw_str().to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_fields_text() {
        assert_eq!(key(br#"{"a": 1, "id": 42}"#, "id").as_deref(), Ok("42"));
        assert_eq!(key(br#"{"id": "4\u00e4"}"#, "id").as_deref(), Ok("4\u{e4}"));
        assert_eq!(key(br#"{"id": [1, 2]}"#, "id").as_deref(), Ok("[1, 2]"));
        for (record, why) in [
            (&br#"{"a": 1}"#[..], "has no field `id` to key by"),
            (br#"{"id": null}"#, "has null in the field `id`, which is no key"),
            (br#"{"id": 1"#, "is not JSON"),
            (b"[1]", "has no field `id` to key by"),
        ] {
            assert_eq!(key(record, "id").unwrap_err(), why);
        }
    }
}
