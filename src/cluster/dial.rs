//! The threads that shake hands: one for each process that is dialled, one for each that came.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::cluster::address;
use crate::cluster::hello::{self, Hello, Purpose};
use crate::cluster::secret::Secret;
use crate::cluster::tls::{End, Tls};

/// What both kinds of thread need.
#[derive(Clone)]
pub(crate) struct Hand {
    pub(crate) hello: Arc<Hello>,
    pub(crate) secret: Secret,
    pub(crate) limit: Duration,
    /// Where the cluster has certificates.
    pub(crate) tls: Option<Tls>,
    /// Set when the mesh needs no more connections.
    pub(crate) done: Arc<AtomicBool>,
    /// Unbounded: at most one event for each handshake, and those are bounded.
    pub(crate) events: Sender<Event>,
}

/// What became of a handshake.
pub(crate) enum Event {
    /// The other end knows the secret. Whoever dialled has both connections at once, if the two agree.
    Shaken { side: Side, hello: Box<Hello>, stream: TcpStream, watch: Option<TcpStream> },
    /// Nobody listens there yet.
    Absent { process: usize, reason: String },
    /// The other end is a stranger.
    Stranger { side: Side, reason: String },
}

/// Who called whom.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    /// This process dialled that one.
    Dialled { process: usize, at: SocketAddr },
    /// Someone called; `ticket` names the attempt.
    Accepted { ticket: u64, from: SocketAddr },
}

impl Hand {
    /// Dials a process until it answers as one of the cluster.
    pub(crate) fn dial(self, process: usize, place: String) {
        let mut pause = Duration::from_millis(50);
        while !self.is_done() {
            let candidates = match address::resolve(&place) {
                Ok(candidates) => candidates,
                Err(error) => {
                    self.tell(Event::Absent { process, reason: error.to_string() });
                    Vec::new()
                }
            };
            for at in candidates {
                if self.is_done() || self.try_dial(process, at) {
                    return;
                }
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(500));
        }
    }

    fn try_dial(&self, process: usize, at: SocketAddr) -> bool {
        let side = Side::Dialled { process, at };
        let dialled = hello::random().map_err(|error| absent(process, &error)).and_then(|pair| {
            let (hello, stream) = self.call(side, &pair, Purpose::Data)?;
            // Whoever disagrees ends at once, and answers no second call.
            let ends = hello.refusal.is_some() || self.hello.refusal.is_some();
            let agrees =
                !ends && hello.process == process && self.hello.disagreement(&hello).is_none();
            let watch = agrees.then(|| self.call(side, &pair, Purpose::Watch)).transpose()?;
            Ok((hello, stream, watch.map(|(_, watch)| watch)))
        });
        match dialled {
            Ok((hello, stream, watch)) => {
                self.tell(Event::Shaken { side, hello: Box::new(hello), stream, watch });
                true
            }
            Err(event) => {
                self.tell(event);
                false
            }
        }
    }

    /// Opens one connection.
    fn call(&self, side: Side, pair: &str, purpose: Purpose) -> Result<(Hello, TcpStream), Event> {
        let Side::Dialled { process, at } = side else { unreachable!("callers are not called") };
        let stream = TcpStream::connect_timeout(&at, Duration::from_secs(2))
            .map_err(|error| absent(process, &error))?;
        let stream =
            self.secure(stream, End::Dialler).map_err(|reason| Event::Stranger { side, reason })?;
        let hello = hello::dial(&stream, &self.hello.of(purpose, pair), &self.secret, self.limit)
            .map_err(|reason| Event::Stranger { side, reason })?;
        Ok((hello, stream))
    }

    /// Shakes hands with someone who called.
    pub(crate) fn answer(self, ticket: u64, from: SocketAddr, stream: TcpStream) {
        let side = Side::Accepted { ticket, from };
        let shaken = self.secure(stream, End::Acceptor).and_then(|stream| {
            let hello = hello::answer(&stream, &self.hello, &self.secret, self.limit)?;
            Ok((hello, stream))
        });
        self.tell(match shaken {
            Ok((hello, stream)) => {
                Event::Shaken { side, hello: Box::new(hello), stream, watch: None }
            }
            Err(reason) => Event::Stranger { side, reason },
        });
    }

    fn secure(&self, stream: TcpStream, end: End) -> Result<TcpStream, String> {
        match &self.tls {
            Some(tls) => tls.secure(stream, end, self.limit),
            None => Ok(stream),
        }
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    fn tell(&self, event: Event) {
        // The mesh may be complete, or given up, before a late handshake ends.
        let _ = self.events.send(event);
    }
}

fn absent(process: usize, error: &std::io::Error) -> Event {
    Event::Absent { process, reason: plain(error) }
}

fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        std::io::ErrorKind::TimedOut => "no answer".to_owned(),
        _ => error.to_string(),
    }
}
