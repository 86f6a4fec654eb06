//! The HTTP server of the metrics, on an address of its own.

use super::guard::Standing;
use super::metrics::render;
use super::tokens::Tokens;
use endstop_http::{Connections, Names, check_source};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Connections at a time; further ones wait.
const MOST: usize = 32;
/// The longest time for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serves `GET /metrics`. `protected` requires a token of the proxy, as `Bearer` in `Authorization`
/// or in the proxy's own header; otherwise only a request without a token must name this machine.
/// Requests of web pages are refused in any case.
pub async fn serve_metrics(standing: Standing, listener: TcpListener, protected: bool) {
    let mut tasks = JoinSet::new();
    let connections = Connections::at_most(MOST);
    loop {
        tokio::select! {
            Some(_) = tasks.join_next() => {}
            accepted = listener.accept(), if connections.has_room() => {
                let Ok((stream, peer)) = accepted else {
                    // Too many open files: a connection must end first.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let Some(place) = connections.open(peer.ip()) else { continue };
                let number = place.number();
                let standing = standing.clone();
                let service = service_fn(move |request| {
                    let response = respond(&standing, &request, protected);
                    if response.status().is_success() {
                        place.admit();
                    }
                    async move { Ok::<_, Infallible>(response) }
                });
                let task = tasks.spawn(async move {
                    // A connection that fails concerns its client only.
                    let _ = http1::Builder::new()
                        .timer(TokioTimer::new())
                        .header_read_timeout(PATIENCE)
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
                connections.served_by(number, task);
            }
        }
    }
}

fn respond(
    standing: &Standing,
    request: &Request<Incoming>,
    protected: bool,
) -> Response<Full<Bytes>> {
    let has_token = allowed(standing.tokens(), request.headers());
    let names = if protected || has_token { Names::Any } else { Names::Loopback(Vec::new()) };
    let source = check_source(request.version(), request.uri(), request.headers(), &names);
    let (status, text) = if let Err(error) = source {
        (error.status(), format!("{error}\n"))
    } else if protected && !has_token {
        (StatusCode::UNAUTHORIZED, "a token of this proxy is required\n".to_owned())
    } else if request.uri().path() != "/metrics" {
        (StatusCode::NOT_FOUND, "the metrics are at /metrics\n".to_owned())
    } else if request.method() == Method::GET {
        (StatusCode::OK, render(standing))
    } else {
        (StatusCode::METHOD_NOT_ALLOWED, "use GET\n".to_owned())
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn allowed(tokens: &Tokens, headers: &HeaderMap) -> bool {
    if tokens.of_request(headers).is_some() {
        return true;
    }
    let value = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let bearer =
        value.split_at_checked(7).filter(|(name, _)| name.eq_ignore_ascii_case(b"bearer "));
    bearer.is_some_and(|(_, token)| tokens.name_of(token.trim_ascii()).is_some())
}
