//! A client's connection: the state that its exchanges share with the task that serves it, and its socket, which is
//! reset instead of closed if a clean end would be misleading.

use super::abort::{AbortToken, Waiter};
use crate::process::{PeerError, check_user};
use endstop_http::Place;
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, Take};
use tokio::net::TcpStream;

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

/// The most bytes that are read at once. hyper makes the buffer of a connection larger after each read that fills it,
/// and keeps it as long as the connection; 16 kB is not quite filled, and so the largest buffer that stays.
const MOST: u64 = (16 << 10) - 1;

/// A client's socket.
pub(crate) struct ClientIo {
    stream: Take<TcpStream>,
    connection: Arc<Connection>,
}

impl ClientIo {
    pub(crate) fn new(stream: TcpStream, connection: Arc<Connection>) -> TokioIo<ClientIo> {
        TokioIo::new(ClientIo { stream: stream.take(MOST), connection })
    }

    fn writer(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(self.stream.get_mut())
    }
}

impl AsyncRead for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream.set_limit(MOST);
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for ClientIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writer().poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writer().poll_shutdown(context)
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        if self.connection.must_reset() {
            // If it fails, the socket is closed already.
            let _ = self.stream.get_ref().set_zero_linger();
        }
    }
}
