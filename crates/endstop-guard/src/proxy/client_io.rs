//! The socket of a client, which is reset instead of closed if a clean end would be misleading.

use super::connection::Connection;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::net::TcpStream;

/// The most bytes that are copied together, to be sent as one buffer. Sending a small chunk and its frame as three buffers
/// takes longer than the copy.
const SMALL: usize = 1 << 10;

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

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut together = [0; SMALL];
        let mut length = 0;
        for slice in slices {
            let Some(room) = together.get_mut(length..length + slice.len()) else {
                return Pin::new(&mut self.stream).poll_write_vectored(context, slices);
            };
            room.copy_from_slice(slice);
            length += slice.len();
        }
        Pin::new(&mut self.stream).poll_write(context, &together[..length])
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
