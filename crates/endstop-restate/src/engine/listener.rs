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
    // On Windows `SO_REUSEADDR` would let another process take over the address of this one.
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

/// Answers requests until `stop`, and then those of existing connections until `drained`.
pub(super) async fn serve(
    endpoint: Endpoint,
    listener: TcpListener,
    most_streams: u32,
    stop: impl Future<Output = ()>,
    drained: impl Future<Output = ()>,
) {
    let (mut stop, mut drained) = (pin!(stop), pin!(drained));
    let mut listener = Some(listener);
    let mut connections = JoinSet::new();
    loop {
        let accepted = async {
            match &listener {
                Some(listener) => listener.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = &mut stop, if listener.is_some() => listener = None,
            () = &mut drained, if listener.is_none() => break,
            accepted = accepted => match accepted {
                Ok((stream, _)) => {
                    let endpoint = HyperEndpoint::new(endpoint.clone());
                    connections.spawn(connection(endpoint, stream, most_streams));
                }
                // For example too many open files. Existing connections continue.
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            },
            Some(_) = connections.join_next() => {}
        }
    }
    // The engine resumes the runs of the closed connections on other workers. The end of a connection
    // is not announced to it: after an announcement (GOAWAY) it breaks off the requests in progress.
    connections.shutdown().await;
}

/// Serves one connection.
async fn connection(endpoint: HyperEndpoint, stream: TcpStream, most_streams: u32) {
    // Steps are small and wait for each other.
    let _ = stream.set_nodelay(true);
    let served = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1)
        .max_concurrent_streams(most_streams)
        .serve_connection(TokioIo::new(stream), endpoint);
    // A connection that fails ends its requests, which the engine repeats.
    let _ = served.await;
}
