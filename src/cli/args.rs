//! What several commands take.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;

use super::entry::Entries;
use super::params;
use super::settings;
use super::units::pair;
use crate::error::Result;
use crate::pipeline::{Options, Pipeline};

/// A dataflow, the name of its positions, and what varies by environment.
#[derive(Args)]
pub(super) struct DataflowArgs {
    /// The dataflow, one of `list`.
    pub dataflow: String,

    /// The pipeline's name, under which positions are stored [default: the dataflow's].
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub name: Option<String>,

    /// A parameter of the dataflow.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = pair)]
    pub params: Vec<(String, String)>,

    /// A TOML file with parameters; tables become dotted names. Those of `--param` win.
    #[arg(long = "params", value_name = "FILE")]
    pub file: Option<PathBuf>,

    #[command(flatten)]
    pub kafka: KafkaArgs,
}

/// How to reach Kafka.
#[derive(Args)]
pub(super) struct KafkaArgs {
    /// The Kafka brokers, `host:port` separated by commas.
    #[arg(long, value_name = "LIST", env = "TIDEGATE_BROKERS", hide_env_values = true)]
    pub brokers: Option<String>,

    /// A file of settings of the Kafka client, `name=value` a line, so that passwords stand on no command
    /// line.
    #[arg(long, value_name = "FILE", env = "TIDEGATE_KAFKA_CONFIG", hide_env_values = true)]
    pub kafka_config: Option<PathBuf>,

    /// A setting of the Kafka client, by librdkafka's names; wins over the file's.
    #[arg(short = 'X', value_name = "NAME=VALUE", value_parser = pair)]
    pub client: Vec<(String, String)>,
}

impl KafkaArgs {
    /// The brokers; an empty variable is none.
    pub(super) fn brokers(&self) -> Option<String> {
        self.brokers.clone().filter(|brokers| !brokers.trim().is_empty())
    }

    /// The settings of the client: the file's, then those of the command line.
    pub(super) fn client(&self) -> Result<BTreeMap<String, String>> {
        // An empty variable is none.
        let file = self.kafka_config.as_deref().filter(|path| !path.as_os_str().is_empty());
        let mut client = file.map(settings::read).transpose()?.unwrap_or_default();
        client.extend(self.client.iter().cloned());
        Ok(client)
    }
}

impl DataflowArgs {
    pub(super) fn pipeline(&self, entries: &Entries) -> Result<Pipeline> {
        let entry = entries.get(&self.dataflow)?;
        Ok(entry.pipeline(self.name.as_deref().unwrap_or(&self.dataflow)))
    }

    pub(super) fn options(&self) -> Result<Options> {
        let mut params = self.file.as_deref().map(params::read).transpose()?.unwrap_or_default();
        params.extend(self.params.iter().cloned());
        Ok(Options {
            params,
            brokers: self.kafka.brokers(),
            client: self.kafka.client()?,
            ..Options::default()
        })
    }
}
