//! A connection string: what the client library knows of it, and what it does not.

use std::time::Duration;

use tokio_postgres::config::{Config, Host};

use super::tls::Tls;
use crate::error::{Error, Result};

/// A database, and how to get there.
#[derive(Clone)]
pub(super) struct Address {
    /// Everything but TLS.
    pub config: Config,
    /// The rest.
    pub tls: Tls,
    /// `postgres://host:port/db`, without user and secrets.
    pub identity: String,
}

impl Address {
    /// Parses a URL or `key=value` pairs.
    pub fn parse(text: &str) -> Result<Self> {
        let mut tls = Tls::default();
        let rest =
            if is_url(text) { split_url(text, &mut tls)? } else { split_pairs(text, &mut tls)? };
        // The library's message may repeat a piece of a password that it took for something else.
        let mut config: Config = rest.parse().map_err(|_| {
            Error::config(
                "the connection string is not understood: expected \
                 `postgres://user:password@host:port/db?option=value` (special characters of the \
                 password percent-encoded) or `host=.. dbname=.. option=value` (values with spaces \
                 in single quotes); options are those of libpq",
            )
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(Error::config("the connection string names no host"));
        }
        tls.effective()?;
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(Duration::from_secs(10));
        }
        // A host that is gone is noticed within a minute: two hours is only the library's default.
        if config.get_keepalives_idle() == Duration::from_secs(2 * 60 * 60) {
            config.keepalives_idle(Duration::from_secs(30));
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_interval(Duration::from_secs(10));
        }
        if config.get_keepalives_retries().is_none() {
            config.keepalives_retries(3);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(Duration::from_secs(60));
        }
        let identity = identity(&config);
        Ok(Address { config, tls, identity })
    }
}

fn identity(config: &Config) -> String {
    let mut hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .map(|host| match host {
            Host::Tcp(name) if name.contains(':') => format!("[{}]", name.to_lowercase()),
            Host::Tcp(name) => name.to_lowercase(),
            Host::Unix(path) => path.to_string_lossy().replace('/', "%2F"),
        })
        .collect();
    if hosts.is_empty() {
        hosts = config.get_hostaddrs().iter().map(ToString::to_string).collect();
    }
    let ports = config.get_ports();
    let places: Vec<String> = hosts
        .iter()
        .enumerate()
        .map(|(index, host)| {
            let port = ports.get(index).or(ports.first()).copied().unwrap_or(5432);
            format!("{host}:{port}")
        })
        .collect();
    let database = config.get_dbname().or(config.get_user()).unwrap_or_default();
    format!("postgres://{}/{database}", places.join(","))
}

fn is_url(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// The URL without the parameters that `tls` takes.
fn split_url(text: &str, tls: &mut Tls) -> Result<String> {
    // As the library has it, everything up to the first `@` is user and password.
    let from = text.find('@').unwrap_or(0);
    let Some(mark) = text[from..].find('?').map(|at| from + at) else {
        return Ok(text.to_owned());
    };
    let mut kept = Vec::new();
    for pair in text[mark + 1..].split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if !tls.set(&percent_decode(name), &percent_decode(value))? {
            kept.push(pair);
        }
    }
    let head = &text[..mark];
    Ok(if kept.is_empty() { head.to_owned() } else { format!("{head}?{}", kept.join("&")) })
}

fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%').then(|| text.get(at + 1..at + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// The pairs without those that `tls` takes. What is malformed is left to the library to refuse.
fn split_pairs(text: &str, tls: &mut Tls) -> Result<String> {
    let mut kept = String::new();
    let mut rest = text.trim_start();
    while let Some((name, after)) = rest.split_once('=') {
        let (value, after) = pair_value(after.trim_start());
        if !tls.set(name.trim(), &value)? {
            let value = value.replace('\\', "\\\\").replace('\'', "\\'");
            kept.push_str(&format!("{} = '{value}' ", name.trim()));
        }
        rest = after.trim_start();
    }
    kept.push_str(rest);
    Ok(kept)
}

/// A value with its quotes and backslashes taken out, and what stands after it.
fn pair_value(text: &str) -> (String, &str) {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, char)) = chars.next() {
        match char {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return (value, &text[at + 1..]),
            space if !quoted && space.is_whitespace() => return (value, &text[at..]),
            other => value.push(other),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::super::tls::{Mode, Secret};
    use super::*;

    #[test]
    fn what_the_library_does_not_know_is_taken_out() {
        let address = Address::parse(
            "postgresql://me:s%40cret@DB.example:6432/shop?sslmode=verify-full&connect_timeout=3\
             &sslrootcert=%2Fetc%2Fca.pem&sslpassword=x",
        )
        .expect("a URL");
        assert_eq!(address.identity, "postgres://db.example:6432/shop");
        assert_eq!(address.tls.mode, Some(Mode::VerifyFull));
        assert_eq!(address.tls.root.as_deref(), Some("/etc/ca.pem"));
        assert_eq!(address.tls.password, Some(Secret("x".into())));
        assert_eq!(address.config.get_password(), Some(&b"s@cret"[..]));
        assert_eq!(address.config.get_connect_timeout(), Some(&Duration::from_secs(3)));

        let address = Address::parse(
            r"host = db user=me password='it''s a secret' sslmode=allow dbname=shop",
        );
        assert!(address.is_err(), "libpq has no doubled quotes either");
        let address = Address::parse(
            r"host = db user=me password='it\'s a secret' sslmode=allow dbname=shop",
        )
        .expect("pairs");
        assert_eq!(address.identity, "postgres://db:5432/shop");
        assert_eq!(address.config.get_password(), Some(&b"it's a secret"[..]));
        assert_eq!(address.tls.effective().expect("a mode"), Mode::Allow);
    }

    #[test]
    fn hosts_of_every_kind_have_an_identity_without_secrets() {
        for (text, identity) in [
            ("postgres://u:p@h", "postgres://h:5432/u"),
            ("postgres://u@[::1]:1/d", "postgres://[::1]:1/d"),
            ("postgres://u@a:1,b:2/d", "postgres://a:1,b:2/d"),
            ("postgres:///d?host=/run/pg&user=u", "postgres://%2Frun%2Fpg:5432/d"),
            ("hostaddr=10.0.0.1 user=u dbname=d", "postgres://10.0.0.1:5432/d"),
        ] {
            assert_eq!(Address::parse(text).expect(text).identity, identity);
        }
    }

    #[test]
    fn no_piece_of_a_password_is_printed() {
        for text in [
            "postgres://u:pass?hunter2=1",
            "host=h user=u password=hunter2 hunter2=hunter2",
            "host=h password=hunter2",
            "password=my hunter2",
            "postgres://u:hunter2@h:hunter2/d",
            "postgres://u:p@h/d?sslmode=hunter2",
        ] {
            if let Err(error) = Address::parse(text) {
                assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
            }
        }
    }

    #[test]
    fn the_system_roots_verify_in_full_or_not_at_all() {
        let parse = |mode| Address::parse(&format!("postgres://u@h/d?sslrootcert=system{mode}"));
        assert_eq!(parse("").expect("implied").tls.effective().expect("a mode"), Mode::VerifyFull);
        assert!(parse("&sslmode=require").is_err());
    }
}
