//! A way to PostgreSQL that is slow to commit, or that stops for a while.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::common::database;

/// Forwards connections to the server of DATABASE_URL.
pub struct Proxy {
    /// How to connect through it.
    pub url: String,
    paused: Arc<AtomicBool>,
}

impl Proxy {
    /// Each COMMIT arrives `delay` late.
    pub fn new(delay: Duration) -> Self {
        let config: postgres::Config = database().parse().expect("DATABASE_URL");
        let port = config.get_ports().first().copied().unwrap_or(5432);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let url = format!(
            "host=127.0.0.1 port={own} user={} dbname={} password='{}'",
            config.get_user().expect("a user"),
            config.get_dbname().expect("a database"),
            String::from_utf8_lossy(config.get_password().unwrap_or(b"none")),
        );
        let paused = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&paused);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(("127.0.0.1", port)).expect("the server answers");
                for end in [&client, &server] {
                    end.set_nodelay(true).expect("an option");
                }
                let (back, forth) = (pair(&server, &client), pair(&client, &server));
                let paused = Arc::clone(&shared);
                thread::spawn(move || pump(back, |_| {}));
                thread::spawn(move || {
                    pump(forth, |bytes| {
                        while paused.load(Ordering::SeqCst) {
                            thread::sleep(Duration::from_millis(5));
                        }
                        // A simple query: its letter, its length, its text.
                        if bytes.first() == Some(&b'Q') && bytes[1..].get(4..10) == Some(b"commit")
                        {
                            thread::sleep(delay);
                        }
                    });
                });
            }
        });
        Proxy { url, paused }
    }

    /// Whether nothing reaches the server from now on.
    pub fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::SeqCst);
    }
}

fn pair(from: &TcpStream, to: &TcpStream) -> (TcpStream, TcpStream) {
    let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle");
    (clone(from), clone(to))
}

fn pump((mut from, mut to): (TcpStream, TcpStream), mut before: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        before(&buffer[..count]);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
