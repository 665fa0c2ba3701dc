//! The threads that shake hands: one for each process that is dialled, one for each that came.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;

use crate::cluster::address;
use crate::cluster::hello::{self, Hello};
use crate::cluster::secret::Secret;

/// What both kinds of thread need.
#[derive(Clone)]
pub(crate) struct Hand {
    pub(crate) hello: Arc<Hello>,
    pub(crate) secret: Secret,
    pub(crate) limit: Duration,
    /// Set when the mesh needs no more connections.
    pub(crate) done: Arc<AtomicBool>,
    /// Unbounded: at most one event for each handshake, and those are bounded.
    pub(crate) events: Sender<Event>,
}

/// What became of a handshake.
pub(crate) enum Event {
    /// The other end knows the secret.
    Shaken { side: Side, hello: Hello, stream: TcpStream },
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
        let stream = match TcpStream::connect_timeout(&at, Duration::from_secs(2)) {
            Ok(stream) => stream,
            Err(error) => {
                self.tell(Event::Absent { process, reason: plain(&error) });
                return false;
            }
        };
        let side = Side::Dialled { process, at };
        match hello::dial(&stream, &self.hello, &self.secret, self.limit) {
            Ok(hello) => {
                self.tell(Event::Shaken { side, hello, stream });
                true
            }
            Err(reason) => {
                self.tell(Event::Stranger { side, reason });
                false
            }
        }
    }

    /// Shakes hands with someone who called.
    pub(crate) fn answer(self, ticket: u64, from: SocketAddr, stream: TcpStream) {
        let side = Side::Accepted { ticket, from };
        self.tell(match hello::answer(&stream, &self.hello, &self.secret, self.limit) {
            Ok(hello) => Event::Shaken { side, hello, stream },
            Err(reason) => Event::Stranger { side, reason },
        });
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }

    fn tell(&self, event: Event) {
        // The mesh may be complete, or given up, before a late handshake ends.
        let _ = self.events.send(event);
    }
}

fn plain(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "nothing listens there".to_owned(),
        std::io::ErrorKind::TimedOut => "no answer".to_owned(),
        _ => error.to_string(),
    }
}
