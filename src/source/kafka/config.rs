//! How a client is set up: ours first, then the user's, but for what the guarantees rest on.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::Arc;

use rdkafka::ClientConfig;
use rdkafka::config::NativeClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaConfRes;

use super::ffi::Client;
use crate::error::{Error, Result};
use crate::source::{Settings, Shared};

/// Settings that the guarantees rest on, so that nobody else sets them.
const OURS: [&str; 4] =
    ["enable.auto.commit", "enable.auto.offset.store", "auto.offset.reset", "enable.partition.eof"];

/// Older names of settings; one name each, or the order of a map would decide.
const ALIASES: [(&str, &str); 4] = [
    ("metadata.broker.list", "bootstrap.servers"),
    ("max.partition.fetch.bytes", "fetch.message.max.bytes"),
    ("fetch.min.messages", "queued.min.messages"),
    ("auto.commit.enable", "enable.auto.commit"),
];

/// What the client must say of itself, beside what the user wants to hear: which topic it reads, by id.
const HEARD: &str = "metadata";

/// How many workers share a client.
const SHARE: usize = 4;

/// What librdkafka holds of a record beside its bytes, roughly.
const OVERHEAD: usize = 512;

/// One topic, and how to reach it.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) topic: String,
    /// The same, as C wants it.
    pub(super) name: CString,
    pub(super) brokers: String,
    pub(super) group: String,
    client: BTreeMap<String, String>,
}

/// What a source says of its connection.
pub(super) struct Wanted<'a> {
    pub(super) topic: &'a str,
    pub(super) brokers: Option<&'a str>,
    pub(super) group: Option<&'a str>,
    pub(super) client: &'a BTreeMap<String, String>,
    pub(super) uncommitted: bool,
    /// How many bytes may lie fetched and not yet handed over; `None` for a client that fetches none.
    pub(super) budget: Option<usize>,
}

impl Connection {
    /// Puts together what the source and the outer world say. Does no I/O.
    pub(super) fn new(wanted: &Wanted<'_>, settings: &Settings) -> Result<Connection> {
        let topic = wanted.topic;
        let name = CString::new(topic)
            .map_err(|_| Error::config("a topic's name holds a zero byte; correct the name"))?;
        let mut client = defaults(wanted, &settings.pipeline);
        if let Some(brokers) = wanted.brokers.or(settings.brokers.as_deref()) {
            client.insert("bootstrap.servers".into(), brokers.into());
        }
        for (given, value) in wanted.client.iter().chain(&settings.client) {
            let alias = ALIASES.iter().find(|(alias, _)| alias == given);
            let setting = alias.map_or(given.as_str(), |(_, name)| name);
            if OURS.contains(&setting) {
                return Err(Error::config(format!(
                    "the Kafka setting `{given}` cannot be changed, since exactly-once rests on it; \
                     remove it"
                ))
                .at(format_args!("topic `{topic}`")));
            }
            client.insert(setting.into(), value.clone());
        }
        let heard = client.get("debug").filter(|heard| !heard.trim().is_empty());
        let heard = heard.map_or_else(|| HEARD.into(), |heard| format!("{heard},{HEARD}"));
        client.insert("debug".into(), heard);
        let brokers = client.get("bootstrap.servers").cloned().unwrap_or_default();
        if brokers.trim().is_empty() {
            return Err(Error::config(format!(
                "no Kafka brokers are given for topic `{topic}`; set `TIDEGATE_BROKERS`"
            )));
        }
        let group = client.get("group.id").cloned().unwrap_or_default();
        let connection = Connection { topic: topic.into(), name, brokers, group, client };
        connection.native()?;
        Ok(connection)
    }

    /// Whether it is to speak TLS.
    pub(super) fn speaks_tls(&self) -> bool {
        self.client
            .get("security.protocol")
            .is_some_and(|name| name.to_lowercase().ends_with("ssl"))
    }

    /// A client. It connects by itself, in the background.
    pub(super) fn client(&self) -> Result<Client> {
        Client::new(self.native()?).map_err(|text| {
            Error::config(format!("the Kafka client does not start: {text}; correct its settings"))
                .at(format_args!("topic `{}`", self.topic))
        })
    }

    /// The client of this configuration that all workers of a number share: one asks the brokers for the
    /// partitions of all of them at once, which matters most where nothing comes. More workers than
    /// [`SHARE`] would wait for its one thread a broker.
    pub(super) fn shared_client(&self, shared: &Shared, worker: usize) -> Result<Arc<Client>> {
        let name = format!("kafka {} {:?}", worker / SHARE, self.client);
        shared.get(name, || self.client())
    }

    /// The native configuration; errors name the setting, and never print a secret.
    fn native(&self) -> Result<NativeClientConfig> {
        let mut config = ClientConfig::new();
        for (name, value) in &self.client {
            config.set(name, value);
        }
        config.create_native_config().map_err(|error| {
            match error {
                KafkaError::ClientConfig(RDKafkaConfRes::RD_KAFKA_CONF_UNKNOWN, _, name, _) => {
                    Error::config(format!(
                        "the Kafka client has no setting `{name}`; correct its name"
                    ))
                }
                KafkaError::ClientConfig(_, text, name, _) if !is_secret(&name) => {
                    Error::config(format!("the Kafka setting `{name}` is refused: {text}"))
                }
                KafkaError::ClientConfig(_, _, name, _) => Error::config(format!(
                    "the Kafka setting `{name}` is refused; its value is a secret and not shown"
                )),
                _ => Error::config("a Kafka setting holds a zero byte; correct it"),
            }
            .at(format_args!("topic `{}`", self.topic))
        })
    }
}

fn defaults(wanted: &Wanted<'_>, pipeline: &str) -> BTreeMap<String, String> {
    const MIB: usize = 1 << 20;
    let own = format!("tidegate-{pipeline}");
    let isolation = if wanted.uncommitted { "read_uncommitted" } else { "read_committed" };
    let budget = wanted.budget.unwrap_or(MIB);
    // Partitions share one queue, so its limits are those of the reader. Up to one more answer of each
    // broker is on its way when they are met, and the rest of the budget is for those: an answer counts its
    // bytes as the producer compressed them, which may be eight times fewer than they turn out to be.
    let queue = (budget / 2 / 1024).clamp(1, 2_097_151);
    let records = (budget / 2 / OVERHEAD).clamp(1_000, 1_000_000);
    let answer = (budget / 16).clamp(MIB, 50 * MIB);
    let fixed = [
        ("enable.auto.commit", "false"),
        ("enable.auto.offset.store", "false"),
        // A position out of range stops the run: nothing is skipped in silence.
        ("auto.offset.reset", "error"),
        // The end's offset covers transaction markers and compacted records at the end.
        ("enable.partition.eof", "true"),
        ("isolation.level", isolation),
        // A limit, not a buffer. A broker sends a record that is larger than what was asked for alone,
        // and 128 MiB are room for it.
        ("receive.message.max.bytes", "134217728"),
        // A broker answers as soon as there is a byte. The wait only delays the fetch of a partition
        // that was just added, or whose queue was just drained, behind a waiting one.
        ("fetch.wait.max.ms", "100"),
        // By default a full queue stops fetching for a second; ours drains in milliseconds.
        ("fetch.queue.backoff.ms", "10"),
        ("fetch.error.backoff.ms", "200"),
        ("reconnect.backoff.max.ms", "2000"),
        ("socket.keepalive.enable", "true"),
        ("topic.metadata.refresh.interval.ms", "60000"),
        // No group is joined, so this only bounds how long a commit waits for a coordinator, and how
        // long librdkafka 2.12 spins on a core when it is closed while a commit waits for one.
        ("session.timeout.ms", "2000"),
        // Of a client that fetches, brokers close idle connections; one that asks wants to know why it was
        // hung up on.
        ("log.connection.close", if wanted.budget.is_some() { "false" } else { "true" }),
        // Telemetry is sent while a client is closed, which would make closing wait for the network.
        ("enable.metrics.push", "false"),
    ];
    let counted = [
        ("group.id", wanted.group.map_or_else(|| own.clone(), str::to_owned)),
        ("client.id", own),
        ("queued.max.messages.kbytes", queue.to_string()),
        ("queued.min.messages", records.to_string()),
        ("fetch.max.bytes", answer.to_string()),
        ("fetch.message.max.bytes", (answer / 4).max(MIB / 4).to_string()),
    ];
    let fixed = fixed.into_iter().map(|(name, value)| (name, value.to_owned()));
    fixed.chain(counted).map(|(name, value)| (name.to_owned(), value)).collect()
}

fn is_secret(name: &str) -> bool {
    ["password", "secret", "token", "jwt", "assertion", "pem", "sasl.oauthbearer.config"]
        .iter()
        .any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    fn connect(client: &[(&str, &str)], outer: &[(&str, &str)]) -> Result<Connection> {
        let map = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        let settings = Settings {
            pipeline: "orders".into(),
            brokers: Some("127.0.0.1:1".into()),
            client: map(outer),
        };
        let wanted = Wanted {
            topic: "orders",
            brokers: None,
            group: None,
            client: &map(client),
            uncommitted: false,
            budget: Some(64 << 20),
        };
        Connection::new(&wanted, &settings)
    }

    fn refused(client: &[(&str, &str)], outer: &[(&str, &str)]) -> String {
        let error = connect(client, outer).err().expect("refused");
        assert_eq!(error.kind(), Kind::Config);
        error.to_string()
    }

    #[test]
    fn the_group_is_named_after_the_pipeline() {
        assert_eq!(connect(&[], &[]).unwrap().group, "tidegate-orders");
    }

    #[test]
    fn the_command_line_wins_over_the_source_and_the_source_over_defaults() {
        let both = connect(
            &[("fetch.wait.max.ms", "7"), ("check.crcs", "true")],
            &[("fetch.wait.max.ms", "8"), ("metadata.broker.list", "127.0.0.1:2")],
        )
        .unwrap();
        let native = both.native().unwrap();
        assert_eq!(native.get("fetch.wait.max.ms").unwrap(), "8");
        assert_eq!(native.get("check.crcs").unwrap(), "true");
        assert_eq!(both.brokers, "127.0.0.1:2");
    }

    #[test]
    fn settings_that_guarantees_rest_on_are_refused_by_name() {
        for name in OURS.into_iter().chain(["auto.commit.enable"]) {
            assert!(refused(&[(name, "true")], &[]).contains(name));
            assert!(refused(&[], &[(name, "true")]).contains(name));
        }
    }

    #[test]
    fn an_unknown_setting_is_one_sentence_without_its_value() {
        assert_eq!(
            refused(&[("sasl.pasword", "hunter2")], &[]),
            "topic `orders`: the Kafka client has no setting `sasl.pasword`; correct its name"
        );
    }

    #[test]
    fn a_refused_value_is_named() {
        let text = refused(&[("fetch.wait.max.ms", "soon")], &[]);
        assert!(text.contains("`fetch.wait.max.ms`"), "{text}");
    }

    #[test]
    fn a_client_that_does_not_start_shows_no_secret() {
        let error = connect(&[("security.protocol", "ssl"), ("ssl.key.pem", "hunter2")], &[])
            .and_then(|connection| connection.client())
            .err()
            .expect("not a key");
        assert_eq!(error.kind(), Kind::Config);
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn without_brokers_the_sentence_says_what_to_set() {
        let client = BTreeMap::new();
        let wanted = Wanted {
            topic: "orders",
            brokers: None,
            group: None,
            client: &client,
            uncommitted: false,
            budget: None,
        };
        let error = Connection::new(&wanted, &Settings::default()).err().expect("no brokers");
        assert_eq!(
            error.to_string(),
            "no Kafka brokers are given for topic `orders`; set `TIDEGATE_BROKERS`"
        );
    }

    #[test]
    fn the_build_has_tls_sasl_and_all_four_codecs() {
        let features =
            connect(&[], &[]).unwrap().native().unwrap().get("builtin.features").unwrap();
        for feature in
            ["gzip", "snappy", "lz4", "zstd", "ssl", "sasl_plain", "sasl_scram", "sasl_oauthbearer"]
        {
            assert!(features.split(',').any(|built| built == feature), "{feature} in {features}");
        }
    }
}
