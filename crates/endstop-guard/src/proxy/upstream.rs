//! Connections to the upstream: the only file that knows the HTTP client.

use super::body::SendBody;
use crate::process::Outgoing;
use endstop_http::{Client, ResponseFuture};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use std::error::Error;
use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// The time after which an idle connection is closed. Providers close theirs after a minute or more,
/// and a request on a connection that is being closed would fail.
const IDLE: Duration = Duration::from_secs(30);

/// A request that was sent, until the head of its response. Dropping it closes its connection.
pub(crate) struct Sending(Result<ResponseFuture, Option<String>>);

/// The reason why there is no response.
pub(crate) struct NoAnswer {
    /// The error, without credentials.
    pub(crate) error: String,
    /// `false` if the upstream cannot have seen the request.
    pub(crate) sent: bool,
}

/// Sends requests to upstreams over pooled connections.
#[derive(Debug)]
pub(crate) struct UpstreamClient(Result<Client, String>);

impl UpstreamClient {
    /// Returns a client without connections. `connect` is the longest time to connect, through the
    /// proxies and with the authorities of `outgoing`. Authorities are loaded by the first request
    /// with TLS, because those of the system cost megabytes.
    pub(crate) fn new(connect: Duration, outgoing: &Outgoing) -> UpstreamClient {
        let ways = outgoing.clone();
        let client = Client::builder()
            .proxy_by(move |server: &Uri| {
                let proxy = ways.proxy_for(server.scheme_str()?, server.host()?);
                proxy.map(str::to_owned)
            })
            .certificates(outgoing.certificates.clone())
            .connect_timeout(connect)
            .idle_timeout(IDLE)
            .preserve_header_case(true)
            .build();
        UpstreamClient(client.map_err(|error| describe(&error)))
    }

    /// Sends a request to the host of its URL. If a pooled connection was closed before the request
    /// was sent, the request is sent on another one. Redirects are responses like any other. The
    /// error of the future contains no credentials.
    pub(crate) fn send(&self, request: Request<SendBody>) -> Sending {
        Sending(match &self.0 {
            Ok(client) => Ok(client.send(request)),
            Err(error) => Err(Some(error.clone())),
        })
    }
}

impl Future for Sending {
    type Output = Result<Response<Incoming>, NoAnswer>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.get_mut().0 {
            Ok(response) => Pin::new(response)
                .poll(context)
                .map_err(|error| NoAnswer { error: describe(&error), sent: !error.is_connect() }),
            Err(error) => error
                .take()
                .map_or(Poll::Pending, |error| Poll::Ready(Err(NoAnswer { error, sent: false }))),
        }
    }
}

/// Returns an error with its causes. The HTTP client's errors contain addresses, but no URLs,
/// headers or bodies.
pub(crate) fn describe(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
