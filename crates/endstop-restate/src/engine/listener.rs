//! The connections of the engine to a worker.
//!
//! The engine puts as many runs on one connection as the worker allows. So that runs spread over all
//! workers that listen on one address, a worker allows few: for more runs the engine opens further
//! connections, which go to whichever worker accepts.

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use restate_sdk::endpoint::Endpoint;
use restate_sdk::hyper::HyperEndpoint;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Interval of pings on a connection. An engine that does not answer one in the time after it is gone,
/// and then another worker may drive the runs of the connection.
const PING: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(20));

/// Listens on an address. With `shared`, several workers on this machine may listen on it, and the
/// system spreads the connections over them.
///
/// # Errors
/// The address is in use, or is not one of this machine.
pub fn listen(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    #[cfg(unix)]
    {
        socket.set_reuseaddr(true)?;
        socket.set_reuseport(shared)?;
    }
    #[cfg(not(unix))]
    if shared {
        return Err(io::Error::other("several workers cannot share an address on this system"));
    }
    socket.bind(address)?;
    socket.listen(1024)
}

/// Answers requests until `stop`, then waits for those in progress, at most for `grace`.
pub(super) async fn serve(
    endpoint: Endpoint,
    listener: TcpListener,
    most_streams: u32,
    stop: impl Future<Output = ()>,
    grace: Duration,
) {
    let mut stop = pin!(stop);
    let mut connections = JoinSet::new();
    let (closing, closed) = watch::channel(false);
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let endpoint = HyperEndpoint::new(endpoint.clone());
                    connections.spawn(connection(endpoint, stream, most_streams, closed.clone()));
                }
                // For example too many open files. Existing connections continue.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let _ = closing.send(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(grace, ended).await;
    // Dropping the others terminates their attempts; the engine resumes the runs on other workers.
}

/// Serves one connection.
async fn connection(
    endpoint: HyperEndpoint,
    stream: TcpStream,
    most_streams: u32,
    mut closed: watch::Receiver<bool>,
) {
    // Steps are small and wait for each other.
    let _ = stream.set_nodelay(true);
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1)
        .max_concurrent_streams(most_streams)
        .serve_connection(TokioIo::new(stream), endpoint);
    let mut served = pin!(served);
    tokio::select! {
        _ = &mut served => return,
        _ = closed.wait_for(|closed| *closed) => served.as_mut().graceful_shutdown(),
    }
    let _ = served.await;
}
