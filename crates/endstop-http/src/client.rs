//! The client and its settings.

use crate::body::{Outgoing, outgoing};
use crate::dial::{Connector, Dialer};
use crate::error::{BoxError, Error, SettingsError, Stage};
use crate::exchange::{Pool, ResponseFuture};
use crate::host::{host_header, is_https};
use crate::proxy::{Choose, Proxies, Route};
use crate::tls::{Certificates, Tls};
use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION, UPGRADE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version};
use http_body::Body;
use hyper::rt::{Sleep, Timer};
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest head of a response with HTTP/1.1, and largest chunk of a body.
const LARGEST_READ: usize = 64 << 10;

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
    connector: Connector,
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
    idle_timeout: Duration,
    keep_case: bool,
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
            idle_timeout: Duration::from_secs(90),
            keep_case: false,
            user_agent: None,
        }
    }

    /// Loads the certificate authorities now, and not for the first connection that needs them.
    ///
    /// # Errors
    /// They cannot be loaded.
    pub fn load_certificates(&self) -> Result<(), SettingsError> {
        self.0.connector.0.load().map_err(SettingsError::Tls)
    }

    /// Sends a request with an absolute address, and returns the response when its head has arrived.
    /// A redirect is returned like any other response. The time is not limited, except that of a new
    /// connection. Must be called on a tokio runtime.
    ///
    /// If a connection that was open turns out to be closed before the request was sent, the request
    /// is sent on another one; one with a safe method and no body also if it was sent. Dropping the
    /// future or the body closes the connection, or with HTTP/2 the stream.
    ///
    /// # Errors
    /// The response's head did not arrive, or changes the protocol; or the request cannot be sent,
    /// because it has no host, a user in its address, the method `CONNECT` or the header `upgrade`.
    pub fn send<B>(&self, request: Request<B>) -> ResponseFuture
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut request = request.map(outgoing);
        if let Err(error) = check(&request) {
            return ResponseFuture::refused(Error::new(Stage::Request, request.uri(), error));
        }
        // A request that was received with HTTP/2 has that version, which HTTP/1.1 would refuse.
        *request.version_mut() = Version::HTTP_11;
        self.0.complete(&mut request);
        ResponseFuture::new(&self.0.pool, request)
    }
}

impl Inner {
    /// Adds the headers that depend on the server, unless they are there.
    fn complete(&self, request: &mut Request<Outgoing>) {
        let uri = request.uri().clone();
        let headers = request.headers_mut();
        if let Some(name) = &self.user_agent {
            // Not by `entry`, which makes room for another header even if this one is there.
            if !headers.contains_key(USER_AGENT) {
                headers.insert(USER_AGENT, name.clone());
            }
        }
        if !is_https(&uri) {
            // The dialer reports an address of a proxy that is not valid.
            if let Ok(Route::Forward(proxy)) = self.connector.0.route(&uri)
                && let Some(login) = proxy.login
            {
                headers.entry(PROXY_AUTHORIZATION).or_insert(login);
            }
        } else if headers.contains_key(HOST) && headers.get(HOST) == host_header(&uri).as_ref() {
            // With HTTP/2 the address names the host, and with HTTP/1.1 the pool adds the header again. `remove` would
            // move another header to its place.
            let mut others = HeaderMap::with_capacity(headers.len());
            for (name, value) in headers.iter().filter(|(name, _)| **name != HOST) {
                others.append(name.clone(), value.clone());
            }
            *headers = others;
        }
    }
}

fn check(request: &Request<Outgoing>) -> Result<(), Unsupported> {
    let uri = request.uri();
    let Some(authority) = uri.authority() else { return Err(Unsupported::Address) };
    if !matches!(uri.scheme_str(), Some("http" | "https")) {
        return Err(Unsupported::Address);
    }
    if authority.as_str().contains('@') {
        return Err(Unsupported::User);
    }
    if request.method() == Method::CONNECT {
        return Err(Unsupported::Connect);
    }
    if request.headers().contains_key(UPGRADE) {
        return Err(Unsupported::UpgradeHeader);
    }
    Ok(())
}

/// A timer that fires at least this often. The pool looks for unused connections when it fires, and would
/// otherwise close them up to twice as late as it should.
#[derive(Clone)]
struct Often(TokioTimer, Duration);

impl Often {
    fn soon(&self, deadline: Instant) -> Instant {
        deadline.min(self.0.now() + self.1)
    }
}

impl Timer for Often {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.0.sleep(duration.min(self.1))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.0.sleep_until(self.soon(deadline))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        self.0.reset(sleep, self.soon(deadline));
    }

    fn now(&self) -> Instant {
        self.0.now()
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

    /// Chooses the proxy by the server's address. `None` stands for no proxy. The function is called
    /// for each new connection, and for each request to an `http` server, whose proxy may require
    /// credentials; it must answer the same for the same server. Replaces the proxies of the
    /// environment. Servers on this machine are never reached through a proxy.
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
        self.idle_timeout = limit;
        self
    }

    /// Keeps the case of the names of headers with HTTP/1.1, in both directions (default: names are
    /// sent in small letters). A response has the names as received in its extensions, and a request
    /// is sent with those in its extensions; so a proxy moves the extensions along. Headers are sent
    /// in their order in any case, but `host` comes last if it is not set, or the server has TLS.
    pub fn preserve_header_case(mut self, keep: bool) -> Self {
        self.keep_case = keep;
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
        if self.connect_timeout.is_zero() || self.idle_timeout.is_zero() {
            return Err(SettingsError::Timeout);
        }
        let user_agent = self.user_agent.clone();
        let tls = Tls::new(self.certificates.clone());
        let dialer = Dialer::new(proxies, tls, self.connect_timeout, user_agent.clone());
        let connector = Connector(Arc::new(dialer));
        let pool = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(Often(TokioTimer::new(), self.idle_timeout / 20))
            .pool_idle_timeout(self.idle_timeout)
            .http1_max_buf_size(LARGEST_READ)
            .http1_preserve_header_case(self.keep_case)
            .build(connector.clone());
        Ok(Client(Arc::new(Inner { pool, connector, user_agent })))
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
            .field("idle_timeout", &self.idle_timeout)
            .field("preserve_header_case", &self.keep_case)
            .field("user_agent", &self.user_agent)
            .finish()
    }
}
