//! The server: accepts connections, serves them, and shuts down in order.

use crate::a2a;
use crate::access::Tokens;
use crate::agents::Agents;
use crate::api::router;
use crate::app::App;
use crate::backend::Backend;
use crate::operator::Operator;
use crate::options::ServeOptions;
use crate::runs::{Runs, StoreError};
use crate::service::Service;
use axum::Router;
use endstop::journal::SqliteJournal;
use endstop_http::{Connections, Names, Place};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Time that connections have to end after all runs have ended.
const CONNECTION_GRACE: Duration = Duration::from_secs(2);

/// Bytes that a connection reads ahead and writes behind.
const CONNECTION_BUFFER: usize = 64 << 10;

/// The reason why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Other machines can reach the address, and there is no token.
    #[error(
        "{0}: other machines can reach this address, so a token is required; set one with \
         --token-file FILE or in ENDSTOP_SERVE_TOKEN"
    )]
    NoToken(SocketAddr),
    /// The store next to the journal cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The listener has no address.
    #[error("the listener cannot be used: {0}")]
    Listener(std::io::Error),
}

/// A server of runs. See the [crate documentation](crate) for an example.
pub struct Server {
    app: Arc<App>,
    listener: TcpListener,
    /// The runs of this process; `None` over another backend.
    embedded: Option<Runs>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the store next to the journal, and takes over the runs that an earlier process left:
    /// each is resumed, starts, or is ended as `error_during_execution`. `report` receives problems
    /// for the operator's log. May block; must be called within a tokio runtime.
    ///
    /// # Errors
    /// The address is not loopback and there is no token, or another server uses the journal, or
    /// the store cannot be written.
    pub fn open(
        listener: TcpListener,
        journal: SqliteJournal,
        agents: Agents,
        tokens: Tokens,
        options: ServeOptions,
        report: impl Fn(&str) + Send + Sync + 'static,
    ) -> Result<Server, ServeError> {
        let names = admitted(&listener, &tokens, &options)?;
        let mut options = options;
        if tokens.len() > 1 {
            let half = options.max_queued.div_ceil(2);
            options.max_queued_of_client.get_or_insert(half);
        }
        let runs = Runs::open(journal, agents, options.clone(), Box::new(report))?;
        let service = Service::new(Arc::new(runs.clone()));
        let app = Arc::new(App::new(service, options, tokens, names));
        Ok(Server { app, listener, embedded: Some(runs) })
    }

    /// Creates a server of runs that live elsewhere. Of the options, those of the queue, of parked
    /// runs and of the shutdown concern the backend, and are not used here.
    ///
    /// # Errors
    /// The address is not loopback and there is no token.
    pub fn over(
        listener: TcpListener,
        backend: Arc<dyn Backend>,
        tokens: Tokens,
        options: ServeOptions,
    ) -> Result<Server, ServeError> {
        let names = admitted(&listener, &tokens, &options)?;
        let app = Arc::new(App::new(Service::new(backend), options, tokens, names));
        Ok(Server { app, listener, embedded: None })
    }

    /// Returns a handle to the runs of this process, for the user who runs it. A server over another
    /// backend has none.
    pub fn operator(&self) -> Operator {
        Operator::new(self.embedded.clone())
    }

    /// Serves until `stop` is ready. Then no run is accepted; those that work have the grace period
    /// to end, and are cancelled after it, or when `hurry` is ready. Runs that still wait stay in
    /// the store for the next process. Clients can watch, stop and answer runs until all have ended.
    pub async fn run(self, stop: impl Future<Output = ()>, hurry: impl Future<Output = ()> + Send) {
        let Server { app, listener, .. } = self;
        let router = router(Arc::clone(&app), a2a::routes());
        let connections = Connections::at_most(app.options.max_connections);
        let (closing, closed) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let mut ending = pin!(async {
            stop.await;
            app.runs.shut_down(Box::pin(hurry)).await;
        });
        loop {
            tokio::select! {
                () = &mut ending => break,
                Some(_) = tasks.join_next() => {}
                // Further clients wait in the backlog of the system, so that they cost no memory
                // here.
                accepted = listener.accept(), if connections.has_room() => match accepted {
                    Ok((stream, peer)) => {
                        // Without a place, the connection is closed.
                        let Some(place) = connections.open(peer.ip()) else { continue };
                        let (number, time) = (place.number(), app.options.request_time);
                        let serving = connection(stream, place, router.clone(), time, closed.clone());
                        connections.served_by(number, tasks.spawn(serving));
                    }
                    // Too many open files: a connection must end first.
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        }
        // Accepted until now, so that clients could watch, stop and answer the last runs.
        drop(listener);
        closing.send_replace(true);
        let ended = async { while tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(CONNECTION_GRACE, ended).await.is_err() {
            tasks.shutdown().await;
        }
    }
}

/// Checks that only admitted clients can reach the address, and returns the names that `Host` may
/// have.
fn admitted(
    listener: &TcpListener,
    tokens: &Tokens,
    options: &ServeOptions,
) -> Result<Names, ServeError> {
    let local = listener.local_addr().map_err(ServeError::Listener)?;
    // The address that was bound, because a name may mean another one.
    let loopback = local.ip().is_loopback();
    if !loopback && tokens.is_empty() {
        return Err(ServeError::NoToken(local));
    }
    if !loopback && options.hosts.is_empty() {
        return Ok(Names::Any);
    }
    Ok(Names::Loopback(options.hosts.clone()))
}

/// Serves one connection.
async fn connection(
    stream: TcpStream,
    place: Place,
    router: Router,
    time: Duration,
    mut closed: watch::Receiver<bool>,
) {
    // Without it, the end of an event can wait for an acknowledgement for 40 ms.
    let _ = stream.set_nodelay(true);
    let (router, place) = (TowerToHyperService::new(router), Arc::new(place));
    // The gate of the operations admits the connection.
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(Arc::clone(&place));
        router.call(request)
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(time)
        .max_buf_size(CONNECTION_BUFFER)
        .serve_connection(TokioIo::new(stream), service);
    let mut serving = pin!(serving);
    let closing = async { closed.wait_for(|closed| *closed).await.is_ok() };
    tokio::select! {
        // A connection that fails concerns its client only.
        _ = &mut serving => return,
        _ = closing => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
