//! Establishes connections: name, TCP, proxy and TLS, within one time limit.

use crate::error::{Error, SettingsError, Stage};
use crate::host::is_https;
use crate::proxy::{Proxies, Proxy, Route, is_web};
use crate::stream::{Dialed, Io, Link};
use crate::tls::{Configs, Tls, handshake};
use crate::tunnel::{TunnelError, tunnel};
use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiAddrs, GaiResolver, Name};
use hyper_util::rt::TokioIo;
use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;
use tower_service::Service;

/// Interval of the probes that detect a peer that has disappeared.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Establishes the connections of a client.
pub(crate) struct Dialer {
    tcp: HttpConnector<Resolver>,
    tls: Arc<Tls>,
    proxies: Proxies,
    limit: Duration,
    user_agent: Option<HeaderValue>,
}

/// The dialer, as the pool calls it.
#[derive(Clone)]
pub(crate) struct Connector(pub(crate) Arc<Dialer>);

impl Service<Uri> for Connector {
    type Response = TokioIo<Dialed>;
    type Error = Error;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Dialed>, Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        let dialer = Arc::clone(&self.0);
        Box::pin(async move { dialer.dial(&server).await.map(TokioIo::new) })
    }
}

impl Dialer {
    pub(crate) fn new(
        proxies: Proxies,
        tls: Tls,
        limit: Duration,
        user_agent: Option<HeaderValue>,
    ) -> Dialer {
        let mut tcp = HttpConnector::new_with_resolver(Resolver(GaiResolver::new()));
        // It only opens the TCP connection, also for https.
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // If a host has several addresses, each gets its share of the time.
        tcp.set_connect_timeout(Some(limit));
        tcp.set_keepalive(Some(KEEP_ALIVE));
        tcp.set_keepalive_interval(Some(KEEP_ALIVE));
        tcp.set_keepalive_retries(Some(3));
        Dialer { tcp, tls: Arc::new(tls), proxies, limit, user_agent }
    }

    /// Loads the certificate authorities.
    pub(crate) fn load(&self) -> Result<(), rustls::Error> {
        self.tls.load().map(drop)
    }

    /// Returns the way to a server.
    pub(crate) fn route(&self, server: &Uri) -> Result<Route, SettingsError> {
        self.proxies.route(server)
    }

    /// Connects to a server.
    async fn dial(&self, server: &Uri) -> Result<Dialed, Error> {
        let route = self.route(server).map_err(|error| Error::new(Stage::Proxy, server, error))?;
        let reached = timeout(self.limit, self.reach(server, &route)).await;
        let reached = reached.unwrap_or_else(|_| Err(Error::timeout(server)));
        reached.map_err(|error| error.through(route.proxy()))
    }

    async fn reach(&self, server: &Uri, route: &Route) -> Result<Dialed, Error> {
        let stream = match route {
            Route::Direct => self.tcp(server, server).await?,
            Route::Forward(proxy) => {
                // The proxy speaks HTTP/1.1 with everyone, also over TLS.
                let stream = self.to_proxy(proxy, server).await?;
                return Ok(dialed(stream, false, Some(proxy.uri.clone())));
            }
            Route::Tunnel(proxy) => {
                let stream = self.to_proxy(proxy, server).await?;
                // These states are large and rare, or short; in boxes they leave no room unused.
                Box::pin(tunnel(stream, proxy, server, self.user_agent.as_ref()))
                    .await
                    .map_err(|error| Error::new(Stage::Proxy, server, error))?
            }
        };
        if !is_https(server) {
            return Ok(dialed(stream, false, None));
        }
        let configs = self.configs(server).await?;
        let (stream, h2) = Box::pin(handshake(stream, host(server), configs.server))
            .await
            .map_err(|error| Error::new(Stage::Tls, server, error))?;
        Ok(dialed(stream, h2, None))
    }

    async fn to_proxy(&self, proxy: &Proxy, server: &Uri) -> Result<Box<dyn Io>, Error> {
        if !is_web(&proxy.uri) {
            let scheme = proxy.uri.scheme_str().unwrap_or_default().to_owned();
            return Err(Error::new(Stage::Proxy, server, TunnelError::Scheme(scheme)));
        }
        let stream = self.tcp(&proxy.uri, server).await?;
        if !is_https(&proxy.uri) {
            return Ok(stream);
        }
        let configs = self.configs(server).await?;
        let secured = Box::pin(handshake(stream, host(&proxy.uri), configs.proxy)).await;
        secured.map(|(stream, _)| stream).map_err(|error| Error::new(Stage::Tls, server, error))
    }

    async fn tcp(&self, to: &Uri, server: &Uri) -> Result<Box<dyn Io>, Error> {
        let mut tcp = self.tcp.clone();
        let connected = async {
            poll_fn(|cx| tcp.poll_ready(cx)).await?;
            tcp.call(to.clone()).await
        };
        match connected.await {
            Ok(stream) => Ok(Box::new(stream.into_inner())),
            Err(error) => {
                let (mut stage, mut cause) = (Stage::Connect, error.source());
                // The connector has no kinds of errors, so the causes tell the stage.
                while let Some(error) = cause {
                    if error.is::<Unresolved>() {
                        stage = Stage::Resolve;
                    } else if is_timeout(error) {
                        stage = Stage::Timeout;
                    }
                    cause = error.source();
                }
                Err(Error::new(stage, server, error))
            }
        }
    }

    async fn configs(&self, server: &Uri) -> Result<Configs, Error> {
        let tls = Arc::clone(&self.tls);
        // The first call reads the files of the system's authorities.
        let loaded = tokio::task::spawn_blocking(move || tls.load()).await;
        let wrong = |error| Error::new(Stage::Tls, server, error);
        loaded.map_err(|error| Error::new(Stage::Tls, server, error))?.map_err(wrong)
    }
}

fn dialed(stream: Box<dyn Io>, h2: bool, forward: Option<Uri>) -> Dialed {
    Dialed { stream, h2, link: Arc::new(Link { forward, answered: AtomicBool::new(false) }) }
}

fn host(uri: &Uri) -> &str {
    uri.host().unwrap_or_default()
}

fn is_timeout(error: &(dyn std::error::Error + 'static)) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
}

/// The resolver of the system, whose errors can be told from those of a connection.
#[derive(Clone)]
struct Resolver(GaiResolver);

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Unresolved(io::Error);

impl Service<Name> for Resolver {
    type Response = GaiAddrs;
    type Error = Unresolved;
    type Future = Pin<Box<dyn Future<Output = Result<GaiAddrs, Unresolved>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        self.0.poll_ready(cx).map_err(Unresolved)
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let addresses = self.0.call(name);
        Box::pin(async move { addresses.await.map_err(Unresolved) })
    }
}
