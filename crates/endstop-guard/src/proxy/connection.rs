//! State that the exchanges of a client's connection share with the task that serves it.

use super::abort::{AbortToken, Waiter};
use crate::process::{PeerError, check_user};
use endstop_http::Place;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Context;

/// A connection of a client.
pub(crate) struct Connection {
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) place: Place,
    /// The reason why the client may not use the proxy, if its user was checked.
    pub(crate) stranger: Option<PeerError>,
    // The exchange whose response is being sent. HTTP/1.1 has one at a time.
    sending: Mutex<Option<AbortToken>>,
    ends_by_closing: AtomicBool,
    failed: AtomicBool,
}

impl Connection {
    /// Creates the state of a connection. The user of its client is checked if `checks_user`.
    pub(crate) fn new(
        place: Place,
        peer: SocketAddr,
        local: SocketAddr,
        checks_user: bool,
    ) -> Connection {
        Connection {
            peer,
            local,
            place,
            stranger: checks_user.then(|| check_user(peer, local).err()).flatten(),
            sending: Mutex::new(None),
            ends_by_closing: AtomicBool::new(false),
            failed: AtomicBool::new(false),
        }
    }

    /// Returns whether the response that is being sent was aborted. The body reports that itself,
    /// but it is not asked while the client does not read.
    pub(crate) fn poll_aborted(&self, context: &Context<'_>) -> bool {
        let sending = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        sending.as_ref().is_some_and(|abort| abort.poll_aborted(Waiter::Connection, context))
    }

    /// Records the exchange whose response is being sent.
    pub(crate) fn set_sending(&self, abort: Option<AbortToken>) {
        *self.sending.lock().unwrap_or_else(PoisonError::into_inner) = abort;
    }

    /// Records that the client takes the end of the connection for the end of the response, as
    /// HTTP/1.0 does without a length.
    pub(crate) fn set_ends_by_closing(&self, ends: bool) {
        self.ends_by_closing.store(ends, Ordering::Relaxed);
    }

    /// Records that the connection is closed because of an error.
    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the connection must be reset, because a clean end would make a response that
    /// was cut look complete.
    pub(crate) fn must_reset(&self) -> bool {
        self.failed.load(Ordering::Relaxed) && self.ends_by_closing.load(Ordering::Relaxed)
    }
}
