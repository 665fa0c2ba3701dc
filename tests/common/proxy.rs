//! A network that fails: cuts, hangs and delays what goes through it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Forwards connections to a port of this machine.
pub struct Proxy {
    /// Where it listens.
    pub port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Milliseconds that each piece waits; [`SILENT`] and [`SHUT`] beyond.
    state: AtomicU64,
    through: Mutex<Vec<TcpStream>>,
}

/// Nothing passes, and nothing is closed: a peer that is gone without a word.
const SILENT: u64 = u64::MAX;
/// Connections are hung up.
const SHUT: u64 = u64::MAX - 1;

impl Proxy {
    /// To `port`, at a free port.
    pub fn to(port: u16) -> Self {
        Self::at(0, port)
    }

    /// To `port`, at the port `own`.
    pub fn at(own: u16, port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", own)).expect("a port");
        let own = listener.local_addr().expect("an address").port();
        let shared = Arc::<Shared>::default();
        let lent = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if lent.state.load(Ordering::SeqCst) == SHUT {
                    continue;
                }
                // A server that is down hangs up too.
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let twin = |stream: &TcpStream| stream.try_clone().expect("a second handle");
                for end in [&client, &server] {
                    end.set_nodelay(true).expect("an option");
                }
                let mut through = lent.through.lock().unwrap();
                through.retain(|stream| stream.peer_addr().is_ok());
                through.extend([twin(&client), twin(&server)]);
                for (from, to) in [(twin(&client), twin(&server)), (server, client)] {
                    let shared = Arc::clone(&lent);
                    thread::spawn(move || pump(from, to, &shared));
                }
            }
        });
        Proxy { port: own, shared }
    }

    /// To PostgreSQL, and how to connect through it.
    pub fn to_database() -> (Self, String) {
        let config: postgres::Config = super::database().parse().expect("DATABASE_URL");
        let proxy = Self::to(config.get_ports().first().copied().unwrap_or(5432));
        let url = format!(
            "host=127.0.0.1 port={} user={} dbname={} password='{}'",
            proxy.port,
            config.get_user().expect("a user"),
            config.get_dbname().expect("a database"),
            String::from_utf8_lossy(config.get_password().unwrap_or(b"none")),
        );
        (proxy, url)
    }

    /// Everything passes.
    pub fn open(&self) {
        self.shared.state.store(0, Ordering::SeqCst);
    }

    /// Everything passes, `delay` late.
    pub fn delay(&self, delay: Duration) {
        self.shared.state.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    /// Nothing passes any more, and nobody is told.
    pub fn silence(&self) {
        self.shared.state.store(SILENT, Ordering::SeqCst);
    }

    /// Hangs up, and on whoever comes.
    pub fn shut(&self) {
        self.shared.state.store(SHUT, Ordering::SeqCst);
        self.cut();
    }

    /// Hangs up once.
    pub fn cut(&self) {
        for stream in self.shared.through.lock().unwrap().drain(..) {
            // It may be closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pump(mut from: TcpStream, mut to: TcpStream, shared: &Shared) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        loop {
            match shared.state.load(Ordering::SeqCst) {
                SILENT => thread::sleep(Duration::from_millis(5)),
                0 | SHUT => break,
                delay => {
                    thread::sleep(Duration::from_millis(delay));
                    break;
                }
            }
        }
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // A network that is silent does not tell of an end either.
    while shared.state.load(Ordering::SeqCst) == SILENT {
        thread::sleep(Duration::from_millis(5));
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
