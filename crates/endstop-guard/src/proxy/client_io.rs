//! The socket of a client, which is reset instead of closed if a clean end would be misleading.

use super::connection::Connection;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf, Take};
use tokio::net::TcpStream;

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
