//! What is answered to a request.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderValue,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Response, StatusCode, Uri};

use super::prometheus;
use crate::figures::{Figures, Health};
use crate::unwind;

pub(super) type Body = Full<Bytes>;

/// The page: one file, with all that it needs.
const PAGE: &str = include_str!("page.html");

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const PROMETHEUS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the page may do: nothing but what stands in it, and to ask this server.
const MAY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                   connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                   frame-ancestors 'none'";

const ELSEWHERE: &str = "there is nothing here; see /, /metrics, /status.json, /healthz, /readyz\n";

/// The answer to one request. A figure that cannot be made is an answer too, and no more.
pub(super) fn answer(
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    figures: &Figures,
) -> Response<Body> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        let mut response =
            made(StatusCode::METHOD_NOT_ALLOWED, TEXT, "only GET and HEAD are answered\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let answered = unwind::catch(|| match uri.path() {
        "/metrics" => made(StatusCode::OK, PROMETHEUS, prometheus::render(&figures.snapshot())),
        "/status.json" => json(figures),
        "/healthz" => health(&figures.snapshot().live),
        "/readyz" => health(&figures.snapshot().ready),
        "/" if wants_json(headers) => json(figures),
        "/" => made(StatusCode::OK, HTML, PAGE),
        _ => made(StatusCode::NOT_FOUND, TEXT, ELSEWHERE),
    });
    answered.unwrap_or_else(|panic| {
        tracing::warn!("an answer for `{}` could not be made: {panic}", uri.path());
        made(StatusCode::INTERNAL_SERVER_ERROR, TEXT, "the figures could not be read\n")
    })
}

fn json(figures: &Figures) -> Response<Body> {
    match serde_json::to_vec(&figures.snapshot()) {
        Ok(json) => made(StatusCode::OK, JSON, json),
        Err(error) => made(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
    }
}

fn health(health: &Health) -> Response<Body> {
    let status = if health.ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    made(status, TEXT, format!("{}\n", health.reason))
}

/// Whether JSON was asked for by name, and no page.
fn wants_json(headers: &HeaderMap) -> bool {
    let accepted = || headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let accepts = |kind: &str| accepted().any(|value| value.contains(kind));
    accepts(JSON) && !accepts("text/html")
}

fn made(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(MAY));
    response
}
