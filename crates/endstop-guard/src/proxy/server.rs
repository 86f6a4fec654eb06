//! Accepts connections and runs their exchanges.

use super::access::Access;
use super::body::{Limits, memory};
use super::connection::{ClientIo, Connection};
use super::forward::{Shared, exchange};
use super::gatekeeper::{Gatekeeper, Notice};
use super::observed::{Background, Task};
use super::upstream::UpstreamClient;
use crate::process::Outgoing;
use endstop_http::{Connections, Place};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

/// Largest head of a request with HTTP/1.1, and the most bytes that wait for a client that does not read. A connection keeps
/// its buffers.
const LARGEST_BUFFER: usize = 64 << 10;

/// Limits of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyOptions {
    /// The largest body that is read for a decision, in bytes: before and after decompression. A
    /// larger one is reported as too large. 32 MB, which is Anthropic's limit.
    pub largest_body: usize,
    /// Memory for all bodies that are being read or sent, in bytes. If it is used up, bodies are
    /// reported as too large. 256 MB.
    pub body_memory: usize,
    /// The longest time to read a body for a decision. Five minutes.
    pub body_time: Duration,
    /// The largest number of bytes of a response that an observer can hold back. 4 MB.
    pub largest_hold: usize,
    /// The longest time to connect to the upstream. 15 s.
    pub connect_time: Duration,
    /// The time after which a connection is closed that has sent no request which is served. 30 s.
    pub first_request_time: Duration,
    /// The time after which a connection without a request is closed, and the longest time to send
    /// the head of a request, once a request was served. An hour, because tools of an agent can run for
    /// long between its calls.
    pub idle_time: Duration,
    /// The largest number of connections, of which one address has three quarters; see [`Connections`].
    /// 10,000.
    pub connections: usize,
    /// The longest time for exchanges to end after the proxy was stopped. Two seconds.
    pub grace: Duration,
    /// The clients that are served. By default, the gatekeeper decides about each.
    pub access: Access,
    /// Proxies and authorities for connections to the upstream. None but those of the system.
    pub outgoing: Outgoing,
}

impl Default for ProxyOptions {
    fn default() -> ProxyOptions {
        ProxyOptions {
            largest_body: 32 << 20,
            body_memory: 256 << 20,
            body_time: Duration::from_secs(300),
            largest_hold: 4 << 20,
            connect_time: Duration::from_secs(15),
            first_request_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(3600),
            connections: 10_000,
            grace: Duration::from_secs(2),
            access: Access::default(),
            outgoing: Outgoing::default(),
        }
    }
}

/// A reverse proxy whose requests are decided by a [`Gatekeeper`].
pub struct Proxy<G> {
    shared: Arc<Shared<G>>,
    background: mpsc::UnboundedReceiver<Task>,
    options: ProxyOptions,
}

impl<G: Gatekeeper> Proxy<G> {
    /// Returns a proxy that does not listen yet.
    pub fn new(gatekeeper: G, options: ProxyOptions) -> Proxy<G> {
        let (background, receiver) = Background::new();
        let limits = Limits {
            body: options.largest_body,
            memory: memory(options.body_memory),
            time: options.body_time,
        };
        let upstream = UpstreamClient::new(options.connect_time, &options.outgoing);
        let largest_hold = options.largest_hold;
        let access = options.access.clone();
        let shared = Shared { gatekeeper, access, upstream, limits, largest_hold, background };
        Proxy { shared: Arc::new(shared), background: receiver, options }
    }

    /// Serves a listener until `stop` is ready, then lets the exchanges that run end within the
    /// grace period, and closes the others. Dropping the future closes everything at once.
    pub async fn run(mut self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut tasks = JoinSet::new();
        let connections = Connections::at_most(self.options.connections);
        let (stopping, stopped) = watch::channel(false);
        loop {
            tokio::select! {
                () = &mut stop => break,
                Some(task) = self.background.recv() => drop(tasks.spawn(task)),
                Some(_) = tasks.join_next() => {}
                accepted = listener.accept(), if connections.has_room() => {
                    match accepted {
                        Ok((stream, peer)) => {
                            // Without a place, the connection is closed.
                            if let Some(place) = connections.open(peer.ip()) {
                                let number = place.number();
                                let serving = self.serve(stream, place, stopped.clone());
                                connections.served_by(number, tasks.spawn(serving));
                            }
                        }
                        Err(error) => {
                            let error = error.to_string();
                            self.shared.gatekeeper.notice(Notice::Accept { error });
                            // Too many open files: a connection must end first.
                            tokio::time::sleep(Duration::from_millis(50)).await;
                        }
                    }
                }
            }
        }
        drop(listener);
        stopping.send_replace(true);
        let ending = async {
            loop {
                // A connection that ended may have left a task.
                while let Ok(task) = self.background.try_recv() {
                    tasks.spawn(task);
                }
                tokio::select! {
                    ended = tasks.join_next() => if ended.is_none() { break },
                    Some(task) = self.background.recv() => drop(tasks.spawn(task)),
                }
            }
        };
        if tokio::time::timeout(self.options.grace, ending).await.is_err() {
            tasks.shutdown().await;
        }
    }

    /// Returns a task that serves one connection.
    fn serve(
        &self,
        stream: TcpStream,
        place: Place,
        mut stopped: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        let (first, idle) = (self.options.first_request_time, self.options.idle_time);
        async move {
            let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
            // Without it, the last bytes of a response can wait for an acknowledgement for 40 ms.
            let _ = stream.set_nodelay(true);
            let connection =
                Arc::new(Connection::new(place, peer, local, shared.access.checks_user()));
            let service = {
                let connection = Arc::clone(&connection);
                service_fn(move |request| {
                    exchange(Arc::clone(&shared), Arc::clone(&connection), request)
                })
            };
            let mut builder = auto::Builder::new(TokioExecutor::new());
            builder
                .http1()
                .preserve_header_case(true)
                .auto_date_header(false)
                .max_buf_size(LARGEST_BUFFER)
                .timer(TokioTimer::new())
                .header_read_timeout(idle);
            builder.http2().auto_date_header(false).timer(TokioTimer::new());
            let stream = ClientIo::new(stream, Arc::clone(&connection));
            let mut serving = pin!(builder.serve_connection(stream, service));
            // Always registers the task, also if this has used up its share of time.
            let mut stopping = pin!(tokio::task::unconstrained(async {
                stopped.wait_for(|stopped| *stopped).await.is_ok()
            }));
            let mut is_stopping = false;
            let mut first = pin!(tokio::time::sleep(first));
            let mut is_first_over = false;
            poll_fn(|context| {
                if !is_first_over && first.as_mut().poll(context).is_ready() {
                    is_first_over = true;
                    if !connection.place.is_admitted() {
                        return Poll::Ready(());
                    }
                }
                if let Poll::Ready(result) = serving.as_mut().poll(context) {
                    if result.is_err() {
                        connection.set_failed();
                    }
                    return Poll::Ready(());
                }
                if connection.poll_aborted(context) {
                    // The body ends an aborted response, unless the client does not read.
                    connection.set_failed();
                    return Poll::Ready(());
                }
                if !is_stopping && let Poll::Ready(stopped) = stopping.as_mut().poll(context) {
                    is_stopping = true;
                    if !stopped {
                        return Poll::Ready(());
                    }
                    serving.as_mut().graceful_shutdown();
                    context.waker().wake_by_ref();
                }
                Poll::Pending
            })
            .await;
        }
    }
}

impl<G> std::fmt::Debug for Proxy<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy").field("options", &self.options).finish_non_exhaustive()
    }
}
