//! A connection to another process, between the handshake and timely.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use socket2::{SockRef, TcpKeepalive};

use crate::cluster::message::Message;
use crate::error::{Error, Kind, Result};

/// Longest message, in bytes; a longer one is a fault, not a reason to allocate.
const LONGEST: usize = 64 << 20;

/// An authenticated socket and the frame that is under way: a length of four bytes, then JSON.
///
/// Never reads beyond a frame, since what follows the last one is timely's.
pub(crate) struct Link {
    /// The index of the other process.
    pub(crate) process: usize,
    /// Where it listens, for people.
    pub(crate) address: String,
    /// Which start of it this is.
    pub(crate) launch: String,
    stream: TcpStream,
    /// The second connection to the same start of the process.
    watch: Option<TcpStream>,
    partial: Vec<u8>,
}

impl Link {
    /// Takes over an authenticated socket.
    pub(crate) fn new(
        process: usize,
        address: String,
        launch: String,
        stream: TcpStream,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(None)?;
        // For each single write: a message makes progress or the peer is lost.
        stream.set_write_timeout(Some(Duration::from_secs(20)))?;
        guard(&stream)?;
        Ok(Link { process, address, launch, stream, watch: None, partial: Vec::new() })
    }

    /// With the second connection.
    pub(crate) fn with_watch(self, watch: TcpStream) -> io::Result<Self> {
        watch.set_nodelay(true)?;
        // A word is tiny: where it does not fit, the peer has not read for hours.
        watch.set_write_timeout(Some(Duration::from_secs(1)))?;
        guard(&watch)?;
        Ok(Link { watch: Some(watch), ..self })
    }

    /// Takes the second connection out.
    pub(crate) fn take_watch(&mut self) -> Option<TcpStream> {
        self.watch.take()
    }

    /// Whether the other end still holds the connection, as far as can be known without reading.
    pub(crate) fn is_alive(&self) -> bool {
        let peeked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let restored = self.stream.set_nonblocking(false);
        let alive = match peeked {
            Ok(read) => read > 0,
            Err(error) => passes(&error),
        };
        alive && restored.is_ok()
    }

    /// Sends one message.
    pub(crate) fn send(&mut self, message: &Message) -> Result<()> {
        let body = serde_json::to_vec(message).map_err(|error| {
            Error::internal("what the processes agree on cannot be written as JSON").because(error)
        })?;
        if body.len() > LONGEST {
            let (bytes, limit) = (body.len(), LONGEST);
            return Err(Error::internal(format!(
                "what the processes agree on takes {bytes} bytes, more than the {limit} of one message"
            )));
        }
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend(body);
        self.stream.write_all(&frame).map_err(|error| self.lost().because(error))
    }

    /// The next message if it is there; never blocks.
    pub(crate) fn poll(&mut self) -> Result<Option<Message>> {
        let read = self.stream.set_nonblocking(true).and_then(|()| self.advance());
        let restored = self.stream.set_nonblocking(false);
        match read.and_then(|complete| restored.map(|()| complete)) {
            Ok(false) => Ok(None),
            Ok(true) => {
                let frame = std::mem::take(&mut self.partial);
                serde_json::from_slice(&frame[4..]).map(Some).map_err(|error| {
                    let (process, address) = (self.process, &self.address);
                    Error::internal(format!(
                        "process {process} at {address} sent a message that cannot be read; start all processes from the same build"
                    ))
                    .because(error)
                })
            }
            Err(error) => Err(self.lost().because(error)),
        }
    }

    /// Whether a frame is complete, after reading what is there of it.
    fn advance(&mut self) -> io::Result<bool> {
        loop {
            let wanted = match self.partial.first_chunk::<4>() {
                None => 4,
                Some(length) => 4 + u32::from_be_bytes(*length) as usize,
            };
            if wanted > 4 + LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
            }
            if self.partial.len() == wanted && wanted > 4 {
                return Ok(true);
            }
            // Grows with what arrives, not with what was announced.
            let start = self.partial.len();
            let step = (wanted - start).min(1 << 16);
            self.partial.resize(start + step, 0);
            let read = self.stream.read(&mut self.partial[start..]);
            self.partial.truncate(start + read.as_ref().copied().unwrap_or(0));
            match read {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if passes(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// Ends the connection so that the last message arrives: closing with unread bytes would reset it.
    pub(crate) fn part(&mut self, within: Duration) {
        let deadline = Instant::now() + within;
        let _ = self.stream.shutdown(Shutdown::Write);
        let mut rest = [0; 1024];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.stream.set_read_timeout(Some(left)).is_err() {
                return;
            }
            match self.stream.read(&mut rest) {
                Ok(read) if read > 0 => {}
                _ => return,
            }
        }
    }

    /// The error of a connection that broke.
    pub(crate) fn lost(&self) -> Error {
        let (process, address) = (self.process, &self.address);
        let sentence = format!(
            "lost process {process} at {address} during the start; restart all of them together"
        );
        Error::new(Kind::Peer, sentence).retryable(true)
    }

    /// The socket as timely wants it: blocking, without time limits.
    pub(crate) fn into_stream(self) -> Result<TcpStream> {
        if !self.partial.is_empty() {
            let process = self.process;
            return Err(Error::internal(format!(
                "half a message of process {process} is left over"
            )));
        }
        let ready = self
            .stream
            .set_nonblocking(false)
            .and_then(|()| self.stream.set_read_timeout(None))
            .and_then(|()| self.stream.set_write_timeout(None));
        ready.map_err(|error| self.lost().because(error))?;
        Ok(self.stream)
    }
}

/// A host that vanished, or a peer that reads nothing, is noticed within about a minute also where no
/// signs of life are awaited; timely itself would wait for ever.
pub(crate) fn guard(stream: &TcpStream) -> io::Result<()> {
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(6);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(Duration::from_secs(60)))?;
    Ok(())
}

fn passes(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), Interrupted | TimedOut | WouldBlock)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, Link) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let here = listener.accept().unwrap().0;
        (there, Link::new(1, "there:1".to_owned(), String::new(), here).unwrap())
    }

    fn wait(link: &mut Link) -> Result<Message> {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            assert!(Instant::now() < deadline, "nothing came");
            match link.poll() {
                Ok(None) => std::thread::sleep(Duration::from_millis(1)),
                Ok(Some(message)) => return Ok(message),
                Err(error) => return Err(error),
            }
        }
    }

    #[test]
    fn a_frame_may_come_in_pieces_and_nothing_beyond_it_is_read() {
        let (mut there, mut link) = pair();
        let body = br#"{"Waiting":{"line":"x"}}"#;
        there.write_all(&[0, 0, 0]).unwrap();
        assert!(link.poll().unwrap().is_none());
        there.write_all(&[body.len() as u8]).unwrap();
        there.write_all(&body[..5]).unwrap();
        assert!(link.poll().unwrap().is_none());
        there.write_all(&body[5..]).unwrap();
        there.write_all(b"timely's bytes").unwrap();
        assert!(matches!(wait(&mut link).unwrap(), Message::Waiting { line } if line == "x"));
        let mut rest = [0; 14];
        link.into_stream().unwrap().read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"timely's bytes");
    }

    #[test]
    fn a_large_message_arrives_whole() {
        let (there, mut link) = pair();
        let mut sender = Link::new(0, String::new(), String::new(), there).unwrap();
        let long = "x".repeat(3 << 20);
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send(&Message::Waiting { line: long.clone() }).unwrap());
            let got = wait(&mut link).unwrap();
            assert!(matches!(got, Message::Waiting { line } if line == long));
        });
    }

    #[test]
    fn a_closed_socket_is_a_lost_process() {
        let (there, mut link) = pair();
        assert!(link.is_alive());
        drop(there);
        let error = wait(&mut link).unwrap_err();
        assert_eq!(error.kind(), Kind::Peer);
        assert!(error.to_string().starts_with("lost process 1 at there:1"), "{error}");
        assert!(!link.is_alive());
    }

    #[test]
    fn a_huge_announcement_allocates_nothing() {
        let (mut there, mut link) = pair();
        there.write_all(&u32::MAX.to_be_bytes()).unwrap();
        assert_eq!(wait(&mut link).unwrap_err().kind(), Kind::Peer);
    }
}
