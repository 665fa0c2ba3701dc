//! The handshake: who is there, and does it know the secret.
//!
//! ```text
//! dialler   -> acceptor   hello: magic, protocol, length, JSON
//! acceptor  -> dialler    hello
//! dialler   -> acceptor   HMAC-SHA256(secret, "dialler", both hellos)
//! acceptor  -> dialler    HMAC-SHA256(secret, "acceptor", both hellos)
//! ```
//!
//! Two connections are made to each process: one for timely, one for what the processes tell each other
//! beside it ([`watch`](super::watch)); the hellos say which, and which two belong together.
//!
//! Each hello has a random challenge of its own, so that no recorded handshake opens a second
//! connection; the roles keep an answer from being reflected. What the hellos say counts only after
//! the hashes were right. The layout of the four messages stays as it is in later protocols, so that
//! two versions can still tell each other that they differ.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::cluster::flags::Flags;
use crate::cluster::secret::Secret;
use crate::cluster::tls;
use crate::error::{Error, Result};

const MAGIC: &[u8; 8] = b"tidegate";
const PROTOCOL: u16 = 2;
/// Longest hello that is read from someone who may be a stranger.
const LONGEST: u16 = 4096;

/// What a process says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    #[serde(skip)]
    protocol: u16,
    version: String,
    pipeline: String,
    processes: usize,
    threads: usize,
    /// Its index.
    pub(crate) process: usize,
    /// Differs from start to start of the same process.
    pub(crate) launch: String,
    /// What the connection is for; of the dialler's hello alone.
    #[serde(default)]
    pub(crate) purpose: Purpose,
    /// The same for the two connections that belong together; of the dialler's hello alone.
    #[serde(default)]
    pub(crate) pair: String,
    /// Why this process ends, and with it the start of all.
    #[serde(default)]
    pub(crate) refusal: Option<String>,
    /// Differs from connection to connection.
    challenge: String,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// What the processes agree on, and then what timely sends.
    #[default]
    Data,
    /// Signs of life, and why a process ends.
    Watch,
}

impl Hello {
    /// What this process says, with a launch of its own.
    pub(crate) fn new(flags: &Flags, pipeline: &str) -> Result<Self> {
        Ok(Hello {
            protocol: PROTOCOL,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pipeline: pipeline.to_owned(),
            processes: flags.processes,
            threads: flags.threads,
            process: flags.process,
            launch: random().map_err(|error| {
                Error::internal("the system gives no random bytes").because(error)
            })?,
            purpose: Purpose::Data,
            pair: String::new(),
            refusal: None,
            challenge: String::new(),
        })
    }

    /// The same process, for one of two connections that belong together.
    pub(crate) fn of(&self, purpose: Purpose, pair: &str) -> Self {
        Hello { purpose, pair: pair.to_owned(), ..self.clone() }
    }

    /// The same process, which ends for this reason.
    pub(crate) fn refusing(&self, reason: String) -> Self {
        Hello { refusal: Some(reason), ..self.clone() }
    }

    /// Where the two processes disagree, in the same sentence on both sides.
    pub(crate) fn disagreement(&self, other: &Hello) -> Option<String> {
        let (a, b) = if self.process <= other.process { (self, other) } else { (other, self) };
        let (p, q) = (a.process, b.process);
        let both = |what: &str, x: String, y: String, cure: &str| {
            (x != y)
                .then(|| format!("process {p} runs {what}{x}, but process {q} {what}{y}; {cure}"))
        };
        let build = "start all processes from the same build";
        let flags = "start all processes with the same flags";
        both("protocol ", a.protocol.to_string(), b.protocol.to_string(), build)
            .or_else(|| both("version ", a.version.clone(), b.version.clone(), build))
            .or_else(|| {
                let (x, y) = (format!("`{}`", a.pipeline), format!("`{}`", b.pipeline));
                both("pipeline ", x, y, "give each pipeline its own addresses")
            })
            .or_else(|| both("with -n ", a.processes.to_string(), b.processes.to_string(), flags))
            .or_else(|| both("with -w ", a.threads.to_string(), b.threads.to_string(), flags))
    }

    fn encoded(&self) -> io::Result<Vec<u8>> {
        let body = serde_json::to_vec(&Hello { challenge: random()?, ..self.clone() })?;
        let length = u16::try_from(body.len()).ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or_else(|| io::Error::other("the pipeline's name is too long"))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(self.protocol.to_be_bytes());
        bytes.extend(length.to_be_bytes());
        bytes.extend(body);
        Ok(bytes)
    }
}

/// A handshake as the side that dialled; the error is the reason why it failed.
pub(crate) fn dial(
    stream: &TcpStream,
    mine: &Hello,
    secret: &Secret,
    limit: Duration,
) -> Result<Hello, String> {
    let mut wire = Wire { stream, deadline: Instant::now() + limit };
    let my_bytes = mine.encoded().map_err(|error| error.to_string())?;
    wire.send(&my_bytes)?;
    let (theirs, their_bytes) = wire.hello()?;
    wire.send(&secret.tag(&[b"dialler", &my_bytes, &their_bytes]))?;
    let mut tag = [0; 32];
    wire.fill(&mut tag).map_err(|reason| format!("{reason}, perhaps for another secret"))?;
    if !secret.verifies(&[b"acceptor", &my_bytes, &their_bytes], &tag) {
        return Err("it does not know the secret".to_owned());
    }
    Ok(theirs)
}

/// A handshake as the side that accepted; the error is the reason why it failed.
pub(crate) fn answer(
    stream: &TcpStream,
    mine: &Hello,
    secret: &Secret,
    limit: Duration,
) -> Result<Hello, String> {
    let mut wire = Wire { stream, deadline: Instant::now() + limit };
    let (theirs, their_bytes) = wire.hello()?;
    let my_bytes = mine.encoded().map_err(|error| error.to_string())?;
    wire.send(&my_bytes)?;
    let mut tag = [0; 32];
    wire.fill(&mut tag)?;
    if !secret.verifies(&[b"dialler", &their_bytes, &my_bytes], &tag) {
        return Err("it does not know the secret".to_owned());
    }
    wire.send(&secret.tag(&[b"acceptor", &their_bytes, &my_bytes]))?;
    Ok(theirs)
}

/// A socket under a time limit for the whole handshake: a byte now and then does not prolong it.
struct Wire<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
}

impl Wire<'_> {
    fn hello(&mut self) -> Result<(Hello, Vec<u8>), String> {
        let mut head = [0; 12];
        // An alert is shorter than a hello.
        self.fill(&mut head[..2])?;
        if head.starts_with(&tls::ALERT[..2]) || head.starts_with(&tls::HANDSHAKE) {
            return Err(
                "it speaks TLS; give all processes the --mesh-tls flags, or none".to_owned()
            );
        }
        self.fill(&mut head[2..])?;
        let protocol = u16::from_be_bytes([head[8], head[9]]);
        let length = u16::from_be_bytes([head[10], head[11]]);
        if &head[..8] != MAGIC || length > LONGEST {
            return Err("it is not a process of Tidegate".to_owned());
        }
        let mut bytes = head.to_vec();
        bytes.resize(12 + usize::from(length), 0);
        self.fill(&mut bytes[12..])?;
        let hello: Hello = serde_json::from_slice(&bytes[12..])
            .map_err(|_| "it is not a process of Tidegate".to_owned())?;
        Ok((Hello { protocol, ..hello }, bytes))
    }

    fn fill(&mut self, mut rest: &mut [u8]) -> Result<(), String> {
        while !rest.is_empty() {
            let left = self.left()?;
            self.stream.set_read_timeout(Some(left)).map_err(|error| error.to_string())?;
            match self.stream.read(rest) {
                Ok(0) => return Err("it closed the connection".to_owned()),
                Ok(read) => rest = &mut rest[read..],
                Err(error) if passes(&error) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), String> {
        let left = self.left()?;
        self.stream.set_write_timeout(Some(left)).map_err(|error| error.to_string())?;
        self.stream.write_all(bytes).map_err(|error| error.to_string())
    }

    fn left(&self) -> Result<Duration, String> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err("it was silent for too long".to_owned()) } else { Ok(left) }
    }
}

fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

/// Sixteen random bytes in hexadecimal.
pub(crate) fn random() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let dialled = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (dialled, listener.accept().unwrap().0)
    }

    fn hello(process: usize, threads: usize) -> Hello {
        let flags = Flags { processes: 2, process, threads, ..Flags::default() };
        Hello::new(&flags, "orders").unwrap()
    }

    fn shake(left: &str, right: &str) -> (Result<Hello, String>, Result<Hello, String>) {
        let (dialled, accepted) = pair();
        let (left, right) = (Secret::new(left), Secret::new(right));
        let limit = Duration::from_secs(5);
        std::thread::scope(|scope| {
            let other = scope.spawn(move || answer(&accepted, &hello(0, 1), &right, limit));
            // The socket closes with the attempt, as it does in the mesh.
            let mine = dial(&dialled, &hello(1, 1), &left, limit);
            drop(dialled);
            (mine, other.join().unwrap())
        })
    }

    #[test]
    fn the_same_secret_opens() {
        let (left, right) = shake("s", "s");
        assert_eq!((left.unwrap().process, right.unwrap().process), (0, 1));
        let (left, right) = shake("", "");
        assert!(left.is_ok() && right.is_ok());
    }

    #[test]
    fn another_secret_does_not() {
        let (left, right) = shake("s", "t");
        assert_eq!(left.unwrap_err(), "it closed the connection, perhaps for another secret");
        assert_eq!(right.unwrap_err(), "it does not know the secret");
    }

    #[test]
    fn an_acceptor_must_know_the_secret_too() {
        let (dialled, mut accepted) = pair();
        let secret = Secret::new("s");
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mine = hello(0, 1).encoded().unwrap();
                accepted.write_all(&mine).unwrap();
                accepted.write_all(&[7; 32]).unwrap();
                let mut rest = Vec::new();
                let _ = accepted.read_to_end(&mut rest);
            });
            let result = dial(&dialled, &hello(1, 1), &secret, Duration::from_secs(5));
            assert_eq!(result.unwrap_err(), "it does not know the secret");
            drop(dialled);
        });
    }

    #[test]
    fn a_reflected_handshake_does_not_open() {
        // An attacker who knows no secret sends back what it was sent.
        let (dialled, accepted) = pair();
        let mut echo = accepted.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut from = accepted;
                let _ = io::copy(&mut from, &mut echo);
            });
            let result = dial(&dialled, &hello(1, 1), &Secret::new("s"), Duration::from_secs(5));
            assert_eq!(result.unwrap_err(), "it does not know the secret");
            dialled.shutdown(std::net::Shutdown::Both).unwrap();
        });
    }

    #[test]
    fn a_recorded_handshake_does_not_open() {
        let secret = Secret::new("s");
        let limit = Duration::from_secs(5);
        let mine = hello(0, 1);
        let recorded = hello(1, 1).encoded().unwrap();
        let (mut dialled, accepted) = pair();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| answer(&accepted, &mine, &secret, limit));
            dialled.write_all(&recorded).unwrap();
            // What the dialler proved to the same launch before, under the challenge of that time.
            let earlier = mine.encoded().unwrap();
            dialled.write_all(&secret.tag(&[b"dialler", &recorded, &earlier])).unwrap();
            assert_eq!(other.join().unwrap().unwrap_err(), "it does not know the secret");
        });
    }

    #[test]
    fn drops_of_bytes_do_not_prolong_the_handshake() {
        let (dialled, accepted) = pair();
        let started = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut dialled = dialled;
                while dialled.write_all(b"t").is_ok() && started.elapsed() < Duration::from_secs(8)
                {
                    std::thread::sleep(Duration::from_millis(40));
                }
            });
            let limit = Duration::from_millis(200);
            let result = answer(&accepted, &hello(0, 1), &Secret::default(), limit);
            assert_eq!(result.unwrap_err(), "it was silent for too long");
            assert!(started.elapsed() < Duration::from_secs(4));
            accepted.shutdown(std::net::Shutdown::Both).unwrap();
        });
    }

    #[test]
    fn a_disagreement_is_the_same_sentence_on_both_sides() {
        let (a, b) = (hello(0, 2), hello(1, 3));
        let sentence = "process 0 runs with -w 2, but process 1 with -w 3; start all processes with the same flags";
        assert_eq!(a.disagreement(&b).as_deref(), Some(sentence));
        assert_eq!(b.disagreement(&a).as_deref(), Some(sentence));
        let other = Hello { version: "9.9.9".to_owned(), ..hello(1, 2) };
        let sentence = a.disagreement(&other).unwrap();
        assert!(
            sentence.contains(env!("CARGO_PKG_VERSION")) && sentence.contains("9.9.9"),
            "{sentence}"
        );
        let other = Hello { pipeline: "clicks".to_owned(), ..hello(1, 2) };
        let sentence = a.disagreement(&other).unwrap();
        assert!(sentence.contains("`orders`") && sentence.contains("`clicks`"), "{sentence}");
    }
}
