//! The server: one thread, few connections, nothing that could hold up a run.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::answer::{Body, answer};
use crate::error::{Error, Result};
use crate::figures::Figures;

/// Connections at a time. One more closes the oldest, so that those that say nothing cannot keep a probe
/// from its answer, which takes a moment. A browser has up to six.
const CONNECTIONS: usize = 32;
/// How long the head of a request may take to arrive, also on a connection that was used before.
const HEAD: Duration = Duration::from_secs(10);
/// How long a connection may last before it is closed after its present answer.
const LIFE: Duration = Duration::from_secs(60);
/// How long that answer may take then.
const LAST: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted, for lack of descriptors mostly.
const PAUSE: Duration = Duration::from_millis(200);

/// Serves the figures of a process until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    /// Listens at `address`, `host:port`; port 0 takes a free one. Fails where the address is taken or is
    /// none.
    pub fn start(address: &str, figures: Arc<Figures>) -> Result<Self> {
        let wrong = |what: String| {
            Error::config(format!("metrics cannot be served at `{address}`: {what}"))
        };
        let mut found = address.to_socket_addrs().map_err(|_| {
            wrong("it is no address; give `host:port`, such as `127.0.0.1:9464`".into())
        })?;
        let found = found.next().ok_or_else(|| wrong("the host has no address".into()))?;
        let listener = TcpListener::bind(found).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => {
                wrong("another program listens there; choose another port".into())
            }
            _ => wrong(error.to_string()),
        })?;
        listener.set_nonblocking(true).map_err(|error| wrong(error.to_string()))?;
        let address = listener.local_addr().map_err(|error| wrong(error.to_string()))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| Error::internal(format!("start the metrics' runtime: {error}")))?;
        let (end, ended) = oneshot::channel();
        let serve = move || {
            runtime.block_on(async {
                let listener = match tokio::net::TcpListener::from_std(listener) {
                    Ok(listener) => listener,
                    Err(error) => return tracing::warn!("metrics are not served: {error}"),
                };
                let serving = pin!(accept(listener, figures));
                futures_util::future::select(serving, ended).await;
            });
        };
        let thread = thread::Builder::new()
            .name("tidegate:metrics".to_owned())
            .spawn(serve)
            .map_err(|error| Error::internal(format!("start the metrics' thread: {error}")))?;
        Ok(Server { address, end: Some(end), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // What it died of was said then.
            let _ = thread.join();
        }
    }
}

async fn accept(listener: tokio::net::TcpListener, figures: Arc<Figures>) {
    let mut open = VecDeque::<JoinHandle<()>>::with_capacity(CONNECTIONS);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() >= CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                }
                open.push_back(tokio::spawn(serve(stream, Arc::clone(&figures))));
            }
            Err(error) => {
                tracing::debug!("a connection for metrics was not accepted: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Serves one connection. What goes wrong with it is its client's concern alone.
async fn serve(stream: TcpStream, figures: Arc<Figures>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(request.method(), request.uri(), request.headers(), &figures);
        std::future::ready(Ok::<Response<Body>, Infallible>(response))
    });
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD)
            .serve_connection(TokioIo::new(stream), service)
    );
    if tokio::time::timeout(LIFE, connection.as_mut()).await.is_err() {
        connection.as_mut().graceful_shutdown();
        let _ = tokio::time::timeout(LAST, connection).await;
    }
}
