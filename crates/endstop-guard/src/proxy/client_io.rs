//! The socket of a client, which is reset instead of closed if a clean end would be misleading.

use super::connection::Connection;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// A client's socket.
pub(crate) struct ClientIo {
    stream: TokioIo<TcpStream>,
    connection: Arc<Connection>,
}

impl ClientIo {
    pub(crate) fn new(stream: TcpStream, connection: Arc<Connection>) -> ClientIo {
        ClientIo { stream: TokioIo::new(stream), connection }
    }
}

impl Read for ClientIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for ClientIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    // hyper then copies a chunk and its frame into one buffer. A stream has small chunks, and to send one as three buffers
    // takes longer than the copy.
    fn is_write_vectored(&self) -> bool {
        false
    }
}

impl Drop for ClientIo {
    fn drop(&mut self) {
        if self.connection.must_reset() {
            // If it fails, the socket is closed already.
            let _ = self.stream.inner().set_zero_linger();
        }
    }
}
