//! Transports of [`http`](super::http): the network, or a recording.
//!
//! ```text
//! let mut sending = transport.send(&address, headers, body);
//! let head = ready!(sending.poll(cx))?; // status, headers, and the body to come
//! while let Some(chunk) = ready!(head.body.poll_next(cx)) { take(chunk) }
//! ```

use super::recording::Ended;
use super::replay::{Played, RecordingReplay};
use base64::Engine as _;
use bytes::Bytes;
use endstop_core::{ErrorClass, ModelError};
use endstop_http::{BodyError, Client, Decoded, Full, ResponseFuture, Stage};
use endstop_wire::Headers;
use endstop_wire::endpoint::is_loopback;
use endstop_wire::redact::secrets_out;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderMap, HeaderValue};
use http::{Method, Request, Uri};
use percent_encoding::percent_decode_str;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use url::Url;

/// Sends requests over the network, or answers them from a recording.
#[derive(Clone)]
pub(super) enum Transport {
    Network(Client),
    Recording(RecordingReplay),
}

/// An address that requests are sent to.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) url: Url,
    /// The address in the form in which requests have it: without user, password and fragment.
    uri: Uri,
    /// The user and the password of the URL as a header.
    login: Option<HeaderValue>,
}

impl Address {
    /// Creates an address from a URL that `web_address` has checked.
    pub(super) fn new(url: Url) -> Arc<Address> {
        let login = login(&url);
        let mut bare = url.clone();
        // These fail only for URLs without a host, which http and https do not have.
        let _ = (bare.set_username(""), bare.set_password(None));
        bare.set_fragment(None);
        let uri = Uri::try_from(bare.as_str()).unwrap_or_default();
        Arc::new(Address { url, uri, login })
    }

    /// Returns the address for messages.
    pub(super) fn shown(&self) -> String {
        shown(&self.url)
    }
}

/// A request in progress.
pub(super) enum Sending {
    Network {
        sending: ResponseFuture,
        address: Arc<Address>,
    },
    /// The next exchange of a recording, or the error that there is none; `None` after it was
    /// handed over.
    Recording(Option<Result<Played, ModelError>>),
}

/// The head of a response.
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) headers: Headers,
    pub(super) body: Body,
}

/// The body of a response, as a stream of chunks.
pub(super) enum Body {
    Network(Decoded),
    Recording { played: Played, step: Step },
}

/// The position in a recorded body.
pub(super) enum Step {
    Bytes,
    End,
    /// The recorded run stopped reading here.
    HungUp,
}

/// The connection was reset in the middle of a body.
pub(super) struct ConnectionReset;

impl Transport {
    pub(super) fn send(
        &self,
        address: &Arc<Address>,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Sending {
        let client = match self {
            Transport::Network(client) => client,
            Transport::Recording(replay) => {
                return Sending::Recording(Some(replay.call(address.url.as_str(), &body)));
            }
        };
        complete(&mut headers);
        if let Some(login) = &address.login {
            headers.entry(AUTHORIZATION).or_insert_with(|| login.clone());
        }
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = address.uri.clone();
        *request.headers_mut() = headers;
        Sending::Network { sending: client.send(request), address: Arc::clone(address) }
    }
}

impl Sending {
    /// Polls for the head of the response, or the error why there is none.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Head, ModelError>> {
        match self {
            Sending::Network { sending, address } => {
                let response = match ready!(Pin::new(sending).poll(cx)) {
                    Ok(response) => Decoded::new(response),
                    Err(error) => {
                        return Poll::Ready(Err(unsent(&error, &address.url)));
                    }
                };
                let headers = response
                    .headers()
                    .iter()
                    // The formats only read headers that are text.
                    .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
                    .collect::<Headers>();
                let status = response.status().as_u16();
                let body = Body::Network(response.into_body());
                Poll::Ready(Ok(Head { status, headers, body }))
            }
            Sending::Recording(next) => match next.take() {
                // The recorded run aborted the call before the head arrived.
                None => Poll::Pending,
                Some(Err(error)) => Poll::Ready(Err(error)),
                Some(Ok(played)) => {
                    let exchange = played.exchange();
                    if let Some(error) = &exchange.error {
                        return Poll::Ready(Err(error.clone()));
                    }
                    if exchange.status == 0 {
                        played.hung_up();
                        return Poll::Pending;
                    }
                    let (status, headers) = (exchange.status, exchange.headers.clone());
                    let body = Body::Recording { played, step: Step::Bytes };
                    Poll::Ready(Ok(Head { status, headers, body }))
                }
            },
        }
    }
}

impl Body {
    /// Polls for the next bytes; `None` at the end of the body.
    pub(super) fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, ConnectionReset>>> {
        match self {
            Body::Network(body) => {
                let next = ready!(body.poll_data(cx));
                Poll::Ready(next.map(|chunk| chunk.map_err(|_: BodyError| ConnectionReset)))
            }
            Body::Recording { played, step } => match step {
                Step::Bytes => {
                    *step = Step::End;
                    // The decoder gives the same result for any split into chunks.
                    Poll::Ready(Some(Ok(played.exchange().body.clone())))
                }
                Step::End => match played.ended() {
                    Ended::Clean | Ended::Failed => Poll::Ready(None),
                    Ended::Reset => Poll::Ready(Some(Err(ConnectionReset))),
                    Ended::Aborted => {
                        *step = Step::HungUp;
                        played.hung_up();
                        Poll::Pending
                    }
                },
                Step::HungUp => Poll::Pending,
            },
        }
    }
}

/// Returns an address for messages: without user, password, fragment and the values of the query,
/// any of which may be secret.
pub(super) fn shown(url: &Url) -> String {
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    let (host, path) = (url.host_str().unwrap_or_default(), secrets_out(url.path()));
    let mut out = format!("{}://{host}{port}{path}", url.scheme());
    for (at, name) in url.query().into_iter().flat_map(|query| query.split('&')).enumerate() {
        out.push(if at == 0 { '?' } else { '&' });
        match name.split_once('=') {
            Some((name, _)) => out.extend([name, "=…"]),
            None => out.push('…'),
        }
    }
    out
}

/// Returns the innermost cause of an error, which is the informative one, for example "Connection
/// refused".
pub(super) fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(error) = cause.source() {
        cause = error;
    }
    cause.to_string()
}

/// Describes a request that got no response: the cause and the address, without secrets.
fn unsent(error: &endstop_http::Error, url: &Url) -> ModelError {
    let message = innermost(error);
    // A connection that failed is retried like an error of the server.
    let class = if error.is_timeout() { ErrorClass::Timeout } else { ErrorClass::ServerError };
    let is_local = url.host_str().is_some_and(is_loopback);
    let url = shown(url);
    let what = if error.is_connect() {
        let proxy = error.proxy();
        let through = proxy.map_or_else(String::new, |proxy| format!(" through the proxy {proxy}"));
        format!("the server could not be reached at {url}{through}")
    } else {
        format!("the connection to {url} broke")
    };
    let message = format!("{what}: {message}");
    match error.stage() {
        _ if error.proxy().is_some() => ModelError::new(class, message),
        Stage::Connect if is_local => ModelError::no_server(format!(
            "{message}; start the server there, or correct the address"
        )),
        Stage::Resolve => ModelError::no_server(format!("{message}; check the name of the host")),
        _ => ModelError::new(class, message),
    }
}

/// Returns these headers with those that the client adds to a request.
pub(super) fn completed(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    complete(&mut headers);
    headers
}

/// Adds the headers of the client, which are neither signed nor recorded, unless they are there.
fn complete(headers: &mut HeaderMap) {
    for (name, value) in [(ACCEPT, "*/*"), (ACCEPT_ENCODING, "gzip")] {
        // Not by `entry`, which makes room for another header even if this one is there.
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
}

/// Returns the header for the user and the password of a URL.
fn login(url: &Url) -> Option<HeaderValue> {
    if url.username().is_empty() && url.password().is_none() {
        return None;
    }
    let mut login: Vec<u8> = percent_decode_str(url.username()).collect();
    login.push(b':');
    login.extend(percent_decode_str(url.password().unwrap_or_default()));
    let login = base64::engine::general_purpose::STANDARD.encode(login);
    let mut login = HeaderValue::try_from(format!("Basic {login}")).ok()?;
    login.set_sensitive(true);
    Some(login)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_address_has_no_secret() {
        for (url, is) in [
            (
                "https://api.openai.com/v1/chat/completions",
                "https://api.openai.com/v1/chat/completions",
            ),
            ("http://user:pass@127.0.0.1:8080/v1#part", "http://127.0.0.1:8080/v1"),
            ("https://h/v1?api-version=2024&key=abc&abc", "https://h/v1?api-version=…&key=…&…"),
            ("http://[::1]:9/", "http://[::1]:9/"),
        ] {
            assert_eq!(shown(&Url::parse(url).unwrap()), is);
            // A replay has the address in the form in which the recording stores it.
            let recorded = endstop_wire::redact::address(url);
            assert_eq!(shown(&Url::parse(&recorded).unwrap()), is);
        }
    }
}
