//! A connection with HTTP/1.1, as requests and the pool see it.

use crate::body::Outgoing;
use crate::proxy::Proxy;
use crate::received::Received;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The result of sending a request. An error returns the request if it was not sent.
pub(crate) type Sent = Result<Response<Incoming>, TrySendError<Request<Outgoing>>>;

/// The part of a connection with HTTP/1.1 that requests and the driving task share.
pub(crate) struct Link {
    /// The sender, during a request.
    sender: Mutex<Option<http1::SendRequest<Outgoing>>>,
    /// The proxy that receives the requests.
    pub(crate) forward: Option<Proxy>,
    /// Counts what the connection reads.
    pub(crate) received: Received,
}

impl Link {
    pub(crate) fn new(forward: Option<Proxy>) -> Link {
        Link { sender: Mutex::default(), forward, received: Received::default() }
    }

    /// Takes the sender back if the response was read to its end.
    pub(crate) fn take_ready(&self) -> Option<http1::SendRequest<Outgoing>> {
        lock(&self.sender).take_if(|sender| sender.is_ready())
    }

    /// Returns `true` during a request.
    pub(crate) fn is_in_use(&self) -> bool {
        lock(&self.sender).is_some()
    }
}

/// A free connection with HTTP/1.1.
pub(crate) struct Idle {
    pub(crate) sender: http1::SendRequest<Outgoing>,
    pub(crate) link: Arc<Link>,
}

impl Idle {
    /// Sends a request.
    pub(crate) fn send(
        self,
        request: Request<Outgoing>,
    ) -> impl Future<Output = Sent> + Send + 'static {
        let Idle { sender, link } = self;
        // Stored before the task can see the request, because it may be answered at once.
        let mut slot = lock(&link.sender);
        slot.insert(sender).try_send_request(request)
    }
}

/// Locks a mutex. No code that holds one of these locks can panic half-way through a change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
