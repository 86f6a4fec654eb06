//! The bounds of a server.

use endstop::Termination;
use std::time::Duration;

/// The bounds of a server. Each has a default.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Number of runs at a time. 16.
    pub max_running: usize,
    /// Number of runs that wait for a free place, in the order in which they were accepted. Further
    /// ones are refused with status 429. 256.
    pub max_queued: usize,
    /// Number of those that may belong to one client, which is a token. `None`: half of them if the
    /// server has several tokens, so that no client fills the queue of the others; otherwise all. `None`.
    pub max_queued_of_client: Option<usize>,
    /// Time that running runs have after a shutdown began, before they are cancelled. Runs that wait
    /// for approval are parked instead. 30 s.
    pub grace: Duration,
    /// Time for which a run that waits for approval keeps its place. Then it is
    /// [parked](endstop::park). `None`: until the server shuts down. 1 min.
    pub park_after: Option<Duration>,
    /// Time from its park on after which a request counts as denied; `None`: never. `None`.
    pub park_expiry: Option<Duration>,
    /// Host names, without a port, that a request may name in `Host`, in addition to `localhost`
    /// and the loopback addresses. If the address is not loopback and the list is empty, any name is
    /// accepted, because every request then needs a token, which no other website has.
    pub hosts: Vec<String>,
    /// Number of connections, of which one address has three quarters; see
    /// [`Connections`](endstop_http::Connections). Further ones wait. 16,384.
    pub max_connections: usize,
    /// The largest body of a request, in bytes. 1 MiB.
    pub max_body: usize,
    /// The longest time for the head of a request, and again for its body. 30 s.
    pub request_time: Duration,
    /// Interval of the comments that keep an event stream alive. 15 s.
    pub keep_alive: Duration,
    /// Returns what to do after an ending, for `next` of a run. `None`: nothing is said.
    pub advice: Option<fn(Termination) -> String>,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            max_running: 16,
            max_queued: 256,
            max_queued_of_client: None,
            grace: Duration::from_secs(30),
            park_after: Some(Duration::from_secs(60)),
            park_expiry: None,
            hosts: Vec::new(),
            max_connections: 16_384,
            max_body: 1 << 20,
            request_time: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
            advice: None,
        }
    }
}
