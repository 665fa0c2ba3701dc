//! A network that fails at COMMIT.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_postgres::config::Host;

use super::super::address::Address;
use super::super::testing::url;

/// Where the network fails, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// COMMIT does not reach the server, and the connection closes.
    BeforeCommit,
    /// COMMIT reaches the server, its answer does not come back, and the connection closes.
    BeforeAnswer,
    /// COMMIT does not reach the server, and nothing closes.
    Stall,
    /// The answer does not come back, and nothing closes.
    StallAnswer,
}

/// Forwards to the server until it is told to fail.
pub(super) struct Proxy {
    /// How to connect through it.
    pub url: String,
    /// The failure to come.
    cut: Arc<Mutex<Option<Cut>>>,
    /// Connections of earlier epochs pass nothing on.
    epoch: Arc<AtomicU32>,
}

impl Proxy {
    pub fn new() -> Self {
        let config = Address::parse(&url()).expect("DATABASE_URL").config;
        let host = match config.get_hosts().first() {
            Some(Host::Tcp(name)) => name.clone(),
            _ => "127.0.0.1".into(),
        };
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let password = String::from_utf8_lossy(config.get_password().unwrap_or(b"none"));
        let url = format!(
            "host=127.0.0.1 port={own} user={} dbname={} password='{password}'",
            config.get_user().expect("a user"),
            config.get_dbname().expect("a database"),
        );
        let cut = Arc::new(Mutex::new(None));
        let shared = Arc::clone(&cut);
        let epoch = Arc::new(AtomicU32::new(0));
        let current = Arc::clone(&epoch);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect((host.as_str(), port)).expect("the server answers");
                forward(client, server, Arc::clone(&shared), Arc::clone(&current));
            }
        });
        Proxy { url, cut, epoch }
    }

    /// From now on nothing passes through the connections of today, and nothing closes them.
    pub fn stall(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    pub fn fail(&self, cut: Cut) {
        *self.cut.lock().unwrap_or_else(PoisonError::into_inner) = Some(cut);
    }

    /// Whether the failure has happened.
    pub fn failed(&self) -> bool {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }
}

fn forward(
    client: TcpStream,
    server: TcpStream,
    cut: Arc<Mutex<Option<Cut>>>,
    epoch: Arc<AtomicU32>,
) {
    let born = epoch.load(Ordering::SeqCst);
    let swallow = Arc::new(AtomicBool::new(false));
    let (mut from_client, mut to_server) = (clone(&client), clone(&server));
    let (mut from_server, mut to_client) = (server, client);
    let swallowing = Arc::clone(&swallow);
    let stalling = Arc::new(AtomicBool::new(false));
    let stalled = Arc::clone(&stalling);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from_client.read(&mut buffer) {
            // A stalled connection is read, so that the client's end is not taken for the server's.
            if epoch.load(Ordering::SeqCst) != born {
                continue;
            }
            let bytes = &buffer[..count];
            let mut planned = cut.lock().unwrap_or_else(PoisonError::into_inner);
            let here = bytes.windows(14).any(|window| window == b"commit; select");
            match if here { planned.take() } else { None } {
                Some(Cut::BeforeCommit) => break,
                Some(Cut::Stall) => continue,
                Some(Cut::BeforeAnswer) => swallow.store(true, Ordering::SeqCst),
                Some(Cut::StallAnswer) => {
                    stalling.store(true, Ordering::SeqCst);
                    swallow.store(true, Ordering::SeqCst);
                }
                None => {}
            }
            drop(planned);
            if to_server.write_all(bytes).is_err() {
                break;
            }
        }
        let _ = from_client.shutdown(Shutdown::Both);
        let _ = to_server.shutdown(Shutdown::Both);
    });
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from_server.read(&mut buffer) {
            if swallowing.load(Ordering::SeqCst) {
                if stalled.load(Ordering::SeqCst) {
                    continue;
                }
                break;
            }
            if to_client.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = from_server.shutdown(Shutdown::Both);
        let _ = to_client.shutdown(Shutdown::Both);
    });
}

fn clone(stream: &TcpStream) -> TcpStream {
    stream.try_clone().expect("a second handle")
}
