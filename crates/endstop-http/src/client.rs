//! The client and its settings.

use crate::BoxError;
use crate::body::Outgoing;
use crate::connection::start;
use crate::dial::Dialer;
use crate::error::{Error, SettingsError, Stage};
use crate::link::Sent;
use crate::pool::{Free, Origin, Pool};
use crate::proxy::Proxies;
use crate::tls::{Certificates, Tls};
use bytes::Bytes;
use http::header::{HOST, PROXY_AUTHORIZATION, UPGRADE, USER_AGENT};
use http::uri::{PathAndQuery, Uri};
use http::{HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body;
use hyper::body::Incoming;
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
    dialer: Dialer,
    user_agent: Option<HeaderValue>,
}

/// The settings of a [`Client`], made by [`Client::builder`].
#[derive(Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct ClientBuilder {
    proxy: Option<String>,
    no_proxy: bool,
    certificates: Certificates,
    connect_timeout: Duration,
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
    #[error("the server changed the protocol, which is not supported")]
    Upgrade,
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
            certificates: Certificates::default(),
            connect_timeout: Duration::from_secs(15),
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
    pub fn send<B>(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Result<Response<Incoming>, Error>> + Send + use<B>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let (client, request) = (self.clone(), request.map(Outgoing::new));
        async move { client.0.exchange(request).await }
    }
}

impl Inner {
    async fn exchange(&self, mut request: Request<Outgoing>) -> Result<Response<Incoming>, Error> {
        let origin = match self.check(&request) {
            Ok(origin) => origin,
            Err(error) => return Err(Error::new(Stage::Request, request.uri(), error)),
        };
        *request.version_mut() = Version::HTTP_11;
        if let Some(name) = &self.user_agent {
            request.headers_mut().entry(USER_AGENT).or_insert_with(|| name.clone());
        }
        let uri = request.uri().clone();
        loop {
            let (free, fresh) = match origin.take() {
                Some(free) => (free, false),
                // In a box, because the state of this is large, and most requests do not need it.
                None => (Box::pin(self.connect(&origin)).await?, true),
            };
            let (sent, proxy) = send_on(free, request, &uri, &origin).await;
            match sent {
                Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                    return Err(Error::new(Stage::Receive, &uri, Unsupported::Upgrade));
                }
                Ok(response) => return Ok(response),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !fresh => {
                        request = unsent;
                        *request.uri_mut() = uri.clone();
                    }
                    unsent => {
                        let stage = if unsent.is_some() { Stage::Send } else { Stage::Receive };
                        let error = Error::new(stage, &uri, error.into_error());
                        return Err(error.through(proxy.as_ref()));
                    }
                },
            }
        }
    }

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

    /// Opens a connection, or returns the shared one that another request opens in the meantime.
    async fn connect(&self, origin: &Arc<Origin>) -> Result<Free, Error> {
        let mut dialing = std::pin::pin!(self.dialer.dial(&origin.uri));
        let dialed = loop {
            // Created before the check, so that no notification is missed.
            let shared = origin.shared.notified();
            if let Some(shared) = origin.take_shared() {
                return Ok(shared);
            }
            tokio::select! {
                dialed = &mut dialing => break dialed?,
                () = shared => {}
            }
        };
        let proxy = dialed.forward.as_ref().map(|proxy| proxy.uri.clone());
        let started = start(dialed, origin).await;
        started
            .map_err(|error| Error::new(Stage::Connect, &origin.uri, error).through(proxy.as_ref()))
    }
}

/// Sends a request on a connection, in the form that the connection requires. Returns the proxy that
/// received it as well.
async fn send_on(
    free: Free,
    mut request: Request<Outgoing>,
    uri: &Uri,
    origin: &Origin,
) -> (Sent, Option<Uri>) {
    let idle = match free {
        // With HTTP/2 the address is sent as it is.
        Free::Shared(mut sender) => return (sender.try_send_request(request).await, None),
        Free::One(idle) => idle,
    };
    if let Some(host) = &origin.host {
        request.headers_mut().entry(HOST).or_insert_with(|| host.clone());
    }
    let mut through = None;
    if let Some(proxy) = &idle.link.forward {
        // A proxy gets the whole address.
        through = Some(proxy.uri.clone());
        if let Some(login) = &proxy.login {
            request.headers_mut().entry(PROXY_AUTHORIZATION).or_insert_with(|| login.clone());
        }
    } else {
        let path = uri.path_and_query().cloned();
        let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
        *request.uri_mut() = Uri::from(path);
    }
    (idle.send(request).await, through)
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
        self.no_proxy = false;
        self
    }

    /// Uses no proxy, not even one of the environment.
    pub fn no_proxy(mut self) -> Self {
        self.proxy = None;
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

    /// Sets the `User-Agent` of requests that have none, and of requests to proxies.
    pub fn user_agent(mut self, name: HeaderValue) -> Self {
        self.user_agent = Some(name);
        self
    }

    /// Creates the client. Certificate authorities are loaded when they are first needed.
    ///
    /// # Errors
    /// The address of the proxy is not valid, or the time limit is zero.
    pub fn build(&self) -> Result<Client, SettingsError> {
        let proxies = match &self.proxy {
            Some(address) => Proxies::one(address)?,
            None if self.no_proxy => Proxies::None,
            None => Proxies::environment(),
        };
        if self.connect_timeout.is_zero() {
            return Err(SettingsError::Timeout);
        }
        let user_agent = self.user_agent.clone();
        let tls = Tls::new(self.certificates.clone());
        let dialer = Dialer::new(proxies, tls, self.connect_timeout, user_agent.clone());
        Ok(Client(Arc::new(Inner { pool: Pool::default(), dialer, user_agent })))
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
            .field("certificates", &self.certificates)
            .field("connect_timeout", &self.connect_timeout)
            .field("user_agent", &self.user_agent)
            .finish()
    }
}
