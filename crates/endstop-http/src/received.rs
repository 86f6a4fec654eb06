//! Counts what a connection reads.

use crate::stream::Stream;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The number of bytes that the connection of a response has read, after the decryption. It grows while the
/// response is read, and shows whether more than a chunk has arrived.
///
/// It is an extension of responses with HTTP/1.1. With HTTP/2 there is none, because other responses share the
/// connection.
#[derive(Clone, Debug, Default)]
pub struct Received(Arc<AtomicUsize>);

impl Received {
    /// Returns the number, which starts again from zero if it is larger than any `usize`.
    pub fn bytes(&self) -> usize {
        // A hint, which nothing else is read by.
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream whose reads are counted.
pub(crate) struct Counted {
    pub(crate) stream: Stream,
    pub(crate) received: Received,
}

impl AsyncRead for Counted {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = into.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, into);
        if read.is_ready() {
            let count = into.filled().len() - before;
            this.received.0.fetch_add(count, Ordering::Relaxed);
        }
        read
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, from)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
