//! The client and its settings.

use crate::body::Outgoing;
use crate::dial::Dialer;
use crate::error::{BoxError, Error, SettingsError, Stage};
use crate::exchange::ResponseFuture;
use crate::pool::{Origin, Pool, Settings};
use crate::proxy::{Choose, Proxies};
use crate::tls::{Certificates, Tls};
use bytes::Bytes;
use http::header::{UPGRADE, USER_AGENT};
use http::{HeaderValue, Method, Request, Uri, Version};
use http_body::Body;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A pool of connections. Cheap to clone; clones share their connections.
///
/// ```no_run
/// use bytes::Bytes;
/// use endstop_http::{Certificates, Client, Full};
/// use std::time::Duration;
/// # async fn ask() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::builder()
///     .certificates(Certificates::from_pem(&std::fs::read("company.pem")?)?)
///     .connect_timeout(Duration::from_secs(5))
///     .build()?;
/// let request = http::Request::post("https://api.test/v1").body(Full::new(Bytes::from("{}")))?;
/// let response = client.send(request).await?;
/// assert!(response.status().is_success());
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    pool: Pool,
    dialer: Arc<Dialer>,
    user_agent: Option<HeaderValue>,
}

/// The settings of a [`Client`], made by [`Client::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct ClientBuilder {
    proxy: Option<String>,
    no_proxy: bool,
    choose: Option<Choose>,
    certificates: Certificates,
    connect_timeout: Duration,
    connections: Settings,
    user_agent: Option<HeaderValue>,
}

/// A request that cannot be sent.
#[derive(Debug, thiserror::Error)]
enum Unsupported {
    #[error("expected an address with http:// or https:// and a host")]
    Address,
    #[error("a user or password in the address is not supported; send it as a header")]
    User,
    #[error("the method CONNECT is not supported")]
    Connect,
    #[error("the header `upgrade` is not supported")]
    UpgradeHeader,
}

impl Client {
    /// Creates a builder with the default settings: the proxies of the environment, the authorities
    /// of the system, and 15 seconds for a connection.
    pub fn builder() -> ClientBuilder {
        ClientBuilder {
            proxy: None,
            no_proxy: false,
            choose: None,
            certificates: Certificates::default(),
            connect_timeout: Duration::from_secs(15),
            connections: Settings { idle: Duration::from_secs(90), keep_case: false },
            user_agent: None,
        }
    }

    /// Loads the certificate authorities now, and not for the first connection that needs them.
    ///
    /// # Errors
    /// They cannot be loaded.
    pub fn load_certificates(&self) -> Result<(), SettingsError> {
        self.0.dialer.load().map_err(SettingsError::Tls)
    }

    /// Sends a request with an absolute address, and returns the response when its head has arrived.
    /// A redirect is returned like any other response. The time is not limited, except that of a new
    /// connection. Must be called on a tokio runtime.
    ///
    /// If a connection that was open turns out to be closed before the request was sent, the request
    /// is sent on another one. Dropping the future or the body closes the connection, or with HTTP/2
    /// the stream.
    ///
    /// # Errors
    /// The response's head did not arrive, or changes the protocol; or the request cannot be sent,
    /// because it has no host, a user in its address, the method `CONNECT` or the header `upgrade`.
    pub fn send<B>(&self, request: Request<B>) -> ResponseFuture
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut request = request.map(Outgoing::new);
        let origin = match self.0.check(&request) {
            Ok(origin) => origin,
            Err(error) => {
                return ResponseFuture::refused(Error::new(Stage::Request, request.uri(), error));
            }
        };
        // A request that was received with HTTP/2 has that version, which HTTP/1.1 would refuse.
        *request.version_mut() = Version::HTTP_11;
        if let Some(name) = &self.0.user_agent {
            // Not by `entry`, which makes room for another header even if this one is there.
            if !request.headers().contains_key(USER_AGENT) {
                request.headers_mut().insert(USER_AGENT, name.clone());
            }
        }
        ResponseFuture::new(Arc::clone(&self.0.dialer), origin, request)
    }
}

impl Inner {
    fn check(&self, request: &Request<Outgoing>) -> Result<Arc<Origin>, Unsupported> {
        let uri = request.uri();
        if !matches!(uri.scheme_str(), Some("http" | "https")) {
            return Err(Unsupported::Address);
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(Unsupported::User);
        }
        if request.method() == Method::CONNECT {
            return Err(Unsupported::Connect);
        }
        if request.headers().contains_key(UPGRADE) {
            return Err(Unsupported::UpgradeHeader);
        }
        self.pool.origin(uri).ok_or(Unsupported::Address)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("user_agent", &self.0.user_agent).finish_non_exhaustive()
    }
}

impl ClientBuilder {
    /// Sets the proxy of all requests, as `http://[USER:PASSWORD@]HOST[:PORT]` or `https://…`. It
    /// replaces the proxies of the environment. `https` requests are tunnelled through it with
    /// `CONNECT`, `http` requests are sent to it whole.
    ///
    /// Requests to this machine use it only if it runs on this machine, too.
    pub fn proxy(mut self, address: impl Into<String>) -> Self {
        self.proxy = Some(address.into());
        (self.no_proxy, self.choose) = (false, None);
        self
    }

    /// Chooses the proxy of each new connection by the server's address, which has no path. `None`
    /// stands for no proxy. Replaces the proxies of the environment. Servers on this machine are
    /// never reached through a proxy.
    ///
    /// ```
    /// let client = endstop_http::Client::builder().proxy_by(|server| {
    ///     let inside = server.host().is_some_and(|host| host.ends_with(".corp.example"));
    ///     (!inside).then(|| "http://me:password@proxy.example:3128".to_owned())
    /// });
    /// assert!(!format!("{client:?}").contains("password"));
    /// ```
    pub fn proxy_by(
        mut self,
        choose: impl Fn(&Uri) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        (self.proxy, self.no_proxy) = (None, false);
        self.choose = Some(Arc::new(choose));
        self
    }

    /// Uses no proxy, not even one of the environment.
    pub fn no_proxy(mut self) -> Self {
        (self.proxy, self.choose) = (None, None);
        self.no_proxy = true;
        self
    }

    /// Trusts these authorities, in addition to those of the system.
    pub fn certificates(mut self, certificates: Certificates) -> Self {
        self.certificates.extend([certificates]);
        self
    }

    /// Sets the time limit for a new connection, from the lookup of the name to the end of the TLS
    /// handshake (default: 15 s).
    pub fn connect_timeout(mut self, limit: Duration) -> Self {
        self.connect_timeout = limit;
        self
    }

    /// Sets the time after which an unused connection is closed (default: 90 s). Servers close
    /// theirs after a while, too, and a request that is sent at that moment can fail.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.connections.idle = limit;
        self
    }

    /// Keeps the case of the names of headers with HTTP/1.1, in both directions (default: names are
    /// sent in small letters). A response has the names as received in its extensions, and a request
    /// is sent with those in its extensions; so a proxy moves the extensions along. Headers are sent
    /// in their order in any case.
    pub fn preserve_header_case(mut self, keep: bool) -> Self {
        self.connections.keep_case = keep;
        self
    }

    /// Sets the `User-Agent` of requests that have none, and of requests to proxies.
    pub fn user_agent(mut self, name: HeaderValue) -> Self {
        self.user_agent = Some(name);
        self
    }

    /// Creates the client. Certificate authorities are loaded when they are first needed.
    ///
    /// # Errors
    /// The address of the proxy is not valid, or a time limit is zero.
    pub fn build(&self) -> Result<Client, SettingsError> {
        let proxies = match (&self.proxy, &self.choose) {
            (Some(address), _) => Proxies::one(address)?,
            (None, Some(choose)) => Proxies::Chosen(Arc::clone(choose)),
            (None, None) if self.no_proxy => Proxies::None,
            (None, None) => Proxies::environment(),
        };
        if self.connect_timeout.is_zero() || self.connections.idle.is_zero() {
            return Err(SettingsError::Timeout);
        }
        let user_agent = self.user_agent.clone();
        let tls = Tls::new(self.certificates.clone());
        let dialer = Dialer::new(proxies, tls, self.connect_timeout, user_agent.clone());
        let (pool, dialer) = (Pool::new(self.connections), Arc::new(dialer));
        Ok(Client(Arc::new(Inner { pool, dialer, user_agent })))
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |address: &String| {
            let host = address.rsplit('@').next().unwrap_or_default();
            host.chars().filter(|char| !char.is_control()).collect::<String>()
        };
        f.debug_struct("ClientBuilder")
            // The part before the `@` may have a password.
            .field("proxy", &self.proxy.as_ref().map(shown))
            .field("no_proxy", &self.no_proxy)
            .field("proxy_by", &self.choose.is_some())
            .field("certificates", &self.certificates)
            .field("connect_timeout", &self.connect_timeout)
            .field("idle_timeout", &self.connections.idle)
            .field("preserve_header_case", &self.connections.keep_case)
            .field("user_agent", &self.user_agent)
            .finish()
    }
}
