//! Errors of requests and of settings.

use crate::host::host_port;
use http::Uri;
use hyper_util::client::legacy;
use std::fmt;
use std::io;
use std::sync::Arc;

/// An error of any type, as `hyper` takes and returns them.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The step at which a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The request cannot be sent by this client at all.
    Request,
    /// The name of the host was looked up.
    Resolve,
    /// The connection was established.
    Connect,
    /// TLS was negotiated.
    Tls,
    /// A proxy was asked for a connection to the server.
    Proxy,
    /// A connection was not established within the time limit.
    Timeout,
    /// The request was being sent.
    Send,
    /// The head of the response was expected.
    Receive,
}

/// The reason why a request got no response.
///
/// The text names the host and the stage, and the [source](std::error::Error::source) has the cause.
/// Neither contains a credential, the path or the query.
#[derive(Clone, Debug)]
pub struct Error(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    stage: Stage,
    host: String,
    proxy: Option<String>,
    source: Option<BoxError>,
}

impl Error {
    pub(crate) fn new(stage: Stage, uri: &Uri, source: impl Into<BoxError>) -> Error {
        let source = Some(source.into());
        Error(Arc::new(Inner { stage, host: host_port(uri), proxy: None, source }))
    }

    pub(crate) fn timeout(uri: &Uri) -> Error {
        let (stage, host) = (Stage::Timeout, host_port(uri));
        Error(Arc::new(Inner { stage, host, proxy: None, source: None }))
    }

    /// Names the proxy through which the host would have been reached.
    pub(crate) fn through(mut self, proxy: Option<&Uri>) -> Error {
        // Not shared before it is returned.
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.proxy = proxy.map(|proxy| {
                format!("{}://{}", proxy.scheme_str().unwrap_or("http"), host_port(proxy))
            });
        }
        self
    }

    /// Returns the step that failed.
    pub fn stage(&self) -> Stage {
        self.0.stage
    }

    /// Returns the host of the request, as `HOST:PORT`.
    pub fn host(&self) -> &str {
        &self.0.host
    }

    /// Returns the address of the proxy, if the connection should have gone through one.
    pub fn proxy(&self) -> Option<&str> {
        self.0.proxy.as_deref()
    }

    /// `true` if the time limit of a connection was exceeded, or the system gave the peer up.
    pub fn is_timeout(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            let io = error.downcast_ref::<io::Error>().map(io::Error::kind);
            if io == Some(io::ErrorKind::TimedOut) {
                return true;
            }
            cause = error.source();
        }
        self.0.stage == Stage::Timeout
    }

    /// `true` if no connection to the server was established, so that it cannot have seen the
    /// request.
    pub fn is_connect(&self) -> bool {
        !matches!(self.0.stage, Stage::Send | Stage::Receive)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = &self.0.host;
        match self.0.stage {
            Stage::Request => write!(f, "the request to {host} cannot be sent"),
            Stage::Resolve => write!(f, "the name of {host} could not be resolved"),
            Stage::Connect => write!(f, "no connection to {host}"),
            Stage::Tls => write!(f, "the TLS handshake with {host} failed"),
            Stage::Proxy => write!(f, "the proxy did not connect to {host}"),
            Stage::Timeout => write!(f, "the connection to {host} took too long"),
            Stage::Send => write!(f, "the request to {host} could not be sent"),
            Stage::Receive => write!(f, "the connection to {host} broke before the response"),
        }?;
        match &self.0.proxy {
            Some(proxy) => write!(f, " (proxy {proxy})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source: &(dyn std::error::Error + 'static) = self.0.source.as_deref()?;
        // That of the pool only wraps the cause.
        source.downcast_ref::<legacy::Error>().map_or(Some(source), legacy::Error::source)
    }
}

/// The reason why a client cannot be created. Contains no credential.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The address of the proxy is not valid.
    #[error("invalid proxy: expected http://[USER:PASSWORD@]HOST[:PORT] or https://…")]
    Proxy,
    /// A time limit for connections is zero.
    #[error("invalid time limit for connections: expected a duration above zero")]
    Timeout,
    /// TLS cannot be used, for example because the system has no certificate authorities.
    #[error("TLS cannot be used")]
    Tls(#[source] rustls::Error),
}
