//! Connections to the upstream: the only file that knows the HTTP client.

use super::body::SendBody;
use http::uri::Scheme;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls_platform_verifier::BuilderVerifierExt;
use std::error::Error;
use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The time after which an idle connection is closed. Providers close theirs after a minute or more,
/// and a request on a connection that is being closed would fail.
const IDLE: Duration = Duration::from_secs(30);

/// A request that was sent, until the head of its response. Dropping it closes its connection.
pub(crate) type Sending =
    Pin<Box<dyn Future<Output = Result<Response<Incoming>, String>> + Send + 'static>>;

type Tls = Client<HttpsConnector<HttpConnector>, SendBody>;

/// Sends requests to upstreams over pooled connections.
#[derive(Debug)]
pub(crate) struct UpstreamClient {
    plain: Client<HttpConnector, SendBody>,
    // Loading the certificate authorities of the system costs megabytes, so the first request with
    // TLS does it.
    tls: OnceLock<Result<Tls, String>>,
    connect: Duration,
}

impl UpstreamClient {
    /// Returns a client without connections. `connect` is the longest time to connect.
    pub(crate) fn new(connect: Duration) -> UpstreamClient {
        let plain = client(connector(connect));
        UpstreamClient { plain, tls: OnceLock::new(), connect }
    }

    /// Sends a request to the host of its URL. If a pooled connection was closed before the request
    /// was sent, the request is sent on another one. Redirects are responses like any other. The
    /// error of the future contains no credentials.
    pub(crate) fn send(&self, request: Request<SendBody>) -> Sending {
        if request.uri().scheme() != Some(&Scheme::HTTPS) {
            let sending = self.plain.request(request);
            return Box::pin(async move { sending.await.map_err(|error| describe(&error)) });
        }
        match self.tls.get_or_init(|| tls_client(self.connect)) {
            Ok(client) => {
                let sending = client.request(request);
                Box::pin(async move { sending.await.map_err(|error| describe(&error)) })
            }
            Err(error) => Box::pin(std::future::ready(Err(error.clone()))),
        }
    }
}

fn connector(connect: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(connect));
    connector
}

fn client<C: Connect + Clone>(connector: C) -> Client<C, SendBody> {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http1_preserve_header_case(true)
        // The proxy sets it itself, in the place where the client had it.
        .set_host(false)
        .build(connector)
}

fn tls_client(connect: Duration) -> Result<Tls, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| format!("cannot load the certificate authorities: {error}"))?
        .with_no_client_auth();
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(connector(connect));
    Ok(client(connector))
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
