//! Asks another process for its figures.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, HOST};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::error::{Error, Kind, Result};
use crate::figures::Snapshot;

/// How long an answer may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How long it may be: thousands of partitions are a few megabytes.
const LONGEST: usize = 64 << 20;

/// Asks the server at `address` (`host:port`, or a URL with `http`) for a snapshot. Fails, in one sentence,
/// where nobody answers, or somebody else.
pub fn fetch(address: &str) -> Result<Snapshot> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| Error::internal(format!("start a runtime: {error}")))?;
    let failed = |what: String| {
        Error::new(Kind::Config, format!("the figures of `{address}` cannot be read: {what}"))
    };
    let (host, authority) = place(address).ok_or_else(|| {
        failed(
            "it is no address; give that of a run's `--metrics`, such as `127.0.0.1:9464`".into(),
        )
    })?;
    let body = runtime.block_on(async {
        let asked = tokio::time::timeout(LIMIT, ask(&host, &authority)).await;
        asked.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs())))
    });
    let body = body.map_err(failed)?;
    serde_json::from_slice(&body)
        .map_err(|_| failed("what answers there is no Tidegate; is the port right?".into()))
}

/// Where to connect, and what to call it.
fn place(address: &str) -> Option<(String, String)> {
    let url =
        if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let uri: Uri = url.parse().ok()?;
    let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http"))?;
    let host = authority.host();
    let port = authority.port_u16().unwrap_or(80);
    Some((format!("{host}:{port}"), authority.as_str().to_owned()))
}

async fn ask(host: &str, authority: &str) -> std::result::Result<Bytes, String> {
    let stream = TcpStream::connect(host).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            "nobody listens there; does the run have `--metrics`?".to_owned()
        }
        _ => error.to_string(),
    })?;
    let broken = |error: hyper::Error| error.to_string();
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    tokio::spawn(connection);
    let request = Request::get("/status.json")
        .header(HOST, authority)
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(broken)?;
    if response.status() != StatusCode::OK {
        return Err(format!("it answers {}; is the port right?", response.status()));
    }
    let body = Limited::new(response.into_body(), LONGEST).collect().await;
    body.map(|body| body.to_bytes()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_with_a_port_or_a_url() {
        let of = |host: &str, authority: &str| Some((host.to_owned(), authority.to_owned()));
        assert_eq!(place("127.0.0.1:9464"), of("127.0.0.1:9464", "127.0.0.1:9464"));
        assert_eq!(place("http://shop/"), of("shop:80", "shop"));
        assert_eq!(place("[::1]:9"), of("[::1]:9", "[::1]:9"));
        assert_eq!(place("https://shop"), None);
        assert_eq!(place("a b"), None);
    }
}
