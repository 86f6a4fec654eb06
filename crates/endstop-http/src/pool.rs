//! Connections that are open, by server.
//!
//! ```text
//! let origin = pool.origin(uri);
//! let free = origin.take();    // a free connection, if there is one
//! origin.put(idle);            // after a response was read to its end
//! ```

use crate::body::Outgoing;
use crate::host::{host_header, is_https};
use crate::link::{Idle, Link, lock};
use http::{HeaderValue, Uri};
use hyper::client::conn::http2;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Number of servers from which on those without a connection are forgotten.
const ORIGINS: usize = 64;

/// The connections of a client.
pub(crate) struct Pool {
    /// A list, because most clients have one server, and a map would hash its name for each request.
    origins: Mutex<Vec<Arc<Origin>>>,
    settings: Settings,
}

/// The settings of connections.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// Time after which an unused connection is closed.
    pub(crate) idle: Duration,
    /// `true` if the names of headers keep their case.
    pub(crate) keep_case: bool,
}

/// A server, with its free connections.
pub(crate) struct Origin {
    /// The scheme and the authority, without a path.
    pub(crate) uri: Uri,
    /// The value of the header `host`.
    pub(crate) host: Option<HeaderValue>,
    pub(crate) settings: Settings,
    state: Mutex<State>,
    /// Notifies those who wait for a connection that one with HTTP/2 is open, which all can share.
    pub(crate) shared: Notify,
}

#[derive(Default)]
struct State {
    /// The connections with HTTP/1.1 that have no request, the one used last at the end.
    idle: Vec<Idle>,
    /// The connection with HTTP/2, which takes any number of requests.
    h2: Option<Shared>,
}

struct Shared {
    sender: http2::SendRequest<Outgoing>,
    used: Instant,
}

/// A connection that takes a request.
pub(crate) enum Free {
    One(Idle),
    Shared(http2::SendRequest<Outgoing>),
}

impl Pool {
    pub(crate) fn new(settings: Settings) -> Pool {
        Pool { origins: Mutex::default(), settings }
    }

    /// Returns the server of an address, which has a scheme and an authority.
    pub(crate) fn origin(&self, uri: &Uri) -> Option<Arc<Origin>> {
        let https = is_https(uri);
        uri.authority()?;
        let mut origins = lock(&self.origins);
        let known = origins.iter().find(|origin| {
            is_https(&origin.uri) == https && origin.uri.authority() == uri.authority()
        });
        if let Some(origin) = known {
            return Some(Arc::clone(origin));
        }
        if origins.len() >= ORIGINS {
            // A request in progress holds its server, too, and returns its connection there.
            origins.retain(|origin| Arc::strong_count(origin) > 1 || origin.is_used());
        }
        let origin = Arc::new(Origin::new(uri, self.settings)?);
        origins.push(Arc::clone(&origin));
        Some(origin)
    }
}

impl Origin {
    fn new(uri: &Uri, settings: Settings) -> Option<Origin> {
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        Some(Origin {
            uri: Uri::from_parts(parts).ok()?,
            host: host_header(uri),
            settings,
            state: Mutex::default(),
            shared: Notify::new(),
        })
    }

    /// Takes a free connection.
    pub(crate) fn take(&self) -> Option<Free> {
        let mut state = lock(&self.state);
        if let Some(shared) = &mut state.h2 {
            // A connection that was idle for long may have been forgotten by the machines between.
            if !shared.sender.is_closed() && shared.used.elapsed() < self.settings.idle {
                shared.used = Instant::now();
                return Some(Free::Shared(shared.sender.clone()));
            }
            state.h2 = None;
        }
        while let Some(idle) = state.idle.pop() {
            // The last one first: the others may reach their idle time and be closed.
            if idle.sender.is_ready() && !idle.sender.is_closed() {
                return Some(Free::One(idle));
            }
        }
        None
    }

    /// Returns the open connection with HTTP/2.
    pub(crate) fn take_shared(&self) -> Option<Free> {
        let state = lock(&self.state);
        let shared = state.h2.as_ref().filter(|shared| !shared.sender.is_closed());
        shared.map(|shared| Free::Shared(shared.sender.clone()))
    }

    /// Stores a connection that has become free.
    pub(crate) fn put(&self, idle: Idle) {
        lock(&self.state).idle.push(idle);
    }

    /// Stores a connection with HTTP/2.
    pub(crate) fn share(&self, sender: http2::SendRequest<Outgoing>) {
        lock(&self.state).h2 = Some(Shared { sender, used: Instant::now() });
        // All of them: the connection takes any number of requests.
        self.shared.notify_waiters();
    }

    /// Removes a free connection. Returns `false` if it is not free.
    pub(crate) fn remove(&self, link: &Arc<Link>) -> bool {
        let mut state = lock(&self.state);
        let at = state.idle.iter().position(|idle| Arc::ptr_eq(&idle.link, link));
        let removed = at.map(|at| state.idle.remove(at));
        // Dropping the sender wakes the driving task, which takes this lock as well.
        drop(state);
        removed.is_some()
    }

    /// Closes the connection with HTTP/2 if it was unused for long. Returns the time until it must
    /// be checked again.
    pub(crate) fn expire(&self) -> Option<Duration> {
        let mut state = lock(&self.state);
        let left = self.settings.idle.saturating_sub(state.h2.as_ref()?.used.elapsed());
        if left.is_zero() {
            state.h2 = None;
            return None;
        }
        Some(left)
    }

    fn is_used(&self) -> bool {
        let state = lock(&self.state);
        !state.idle.is_empty() || state.h2.is_some()
    }
}
