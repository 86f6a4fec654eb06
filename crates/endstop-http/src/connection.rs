//! A connection and the task that drives it.
//!
//! The pool owns the sender of a free connection, so that the connection closes with the client. A
//! request moves the sender into the connection's `Link`, and the task returns it to the pool when
//! the response was read to its end. No task waits for that in addition to this one.

use crate::body::Outgoing;
use crate::dial::Dialed;
use crate::link::{Idle, Link};
use crate::pool::{Free, Origin};
use crate::received::Counted;
use crate::stream::Stream;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

/// Largest head of a response with HTTP/1.1, and largest chunk of a body.
const LARGEST_READ: usize = 64 << 10;

/// Starts to drive a new connection.
pub(crate) async fn start(dialed: Dialed, origin: &Arc<Origin>) -> hyper::Result<Free> {
    let Dialed { stream, h2, forward } = dialed;
    if h2 {
        return Box::pin(start_shared(stream, origin)).await;
    }
    let mut builder = http1::Builder::new();
    builder.max_buf_size(LARGEST_READ).preserve_header_case(origin.settings.keep_case);
    let link = Arc::new(Link::new(forward));
    let stream = Counted { stream, received: link.received.clone() };
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    run(Driver {
        connection,
        link: Arc::clone(&link),
        origin: Arc::downgrade(origin),
        idle_since: None,
        idle: origin.settings.idle,
        timer: None,
    });
    Ok(Free::One(Idle { sender, link }))
}

/// Starts to drive a new connection with HTTP/2.
async fn start_shared(stream: Stream, origin: &Arc<Origin>) -> hyper::Result<Free> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new());
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
    run(drive_shared(connection, Arc::downgrade(origin), origin.settings.idle));
    sender.ready().await?;
    // Another request may have connected at the same time. One connection is enough.
    if let Some(shared) = origin.take_shared() {
        return Ok(shared);
    }
    origin.share(sender.clone());
    Ok(Free::Shared(sender))
}

#[expect(
    clippy::disallowed_methods,
    reason = "a connection outlives the run that opened it, because others use it after it"
)]
fn run(driver: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(driver);
}

/// Drives a connection with HTTP/2, and closes it after it was unused for long.
async fn drive_shared(
    connection: http2::Connection<TokioIo<Stream>, Outgoing, TokioExecutor>,
    origin: Weak<Origin>,
    idle: Duration,
) {
    let mut connection = std::pin::pin!(connection);
    let mut next = idle;
    loop {
        tokio::select! {
            // Requests get the error of the connection themselves.
            _ = &mut connection => return,
            () = sleep(next) => {
                next = origin.upgrade().and_then(|origin| origin.expire()).unwrap_or(idle);
            }
        }
    }
}

/// Drives a connection with HTTP/1.1.
struct Driver {
    connection: http1::Connection<TokioIo<Counted>, Outgoing>,
    link: Arc<Link>,
    origin: Weak<Origin>,
    /// The time at which the connection became free.
    idle_since: Option<Instant>,
    /// Time after which the connection is closed if it is unused.
    idle: Duration,
    /// Runs while the connection was free once. It is not reset by each request: when it fires, it
    /// is set to the time that is left.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Driver {
    /// Returns the sender to the pool if the response was read to its end.
    fn release(&mut self) {
        let Some(sender) = self.link.take_ready() else { return };
        // Without a client the sender is dropped, which closes the connection.
        let Some(origin) = self.origin.upgrade() else { return };
        let now = Instant::now();
        self.idle_since = Some(now);
        let due = now + self.idle;
        self.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        origin.put(Idle { sender, link: Arc::clone(&self.link) });
    }

    /// Removes the connection from the pool when it was free for long, which closes it.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let (Some(timer), Some(since)) = (&mut self.timer, self.idle_since) else {
                return Poll::Pending;
            };
            // A stream polls this task for each chunk. If the timer fires in that time, it is found afterwards.
            if self.link.is_in_use() {
                return Poll::Pending;
            }
            ready!(timer.as_mut().poll(cx));
            let due = since + self.idle;
            if due > Instant::now() {
                timer.as_mut().reset(due);
                continue;
            }
            // If a request has just taken it, the timer starts when it is free again.
            self.timer = None;
            if let Some(origin) = self.origin.upgrade() {
                origin.remove(&self.link);
            }
            return Poll::Ready(());
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        loop {
            if Pin::new(&mut this.connection).poll(cx).is_ready() {
                // Requests get the error of the connection themselves.
                return Poll::Ready(());
            }
            this.release();
            // The connection sees that it was removed only if it is polled again.
            ready!(this.poll_timer(cx));
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(origin) = self.origin.upgrade() {
            origin.remove(&self.link);
        }
    }
}
