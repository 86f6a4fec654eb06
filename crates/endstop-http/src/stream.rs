//! The byte stream of a connection: TCP, or TLS over another stream.

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream of any kind. TLS may be nested, if the proxy itself is reached over TLS.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A new connection, as the pool takes it.
pub(crate) struct Dialed {
    pub(crate) stream: Box<dyn Io>,
    /// `true` if the server chose HTTP/2.
    pub(crate) h2: bool,
    pub(crate) link: Arc<Link>,
}

/// The part of a connection that its requests can see.
pub(crate) struct Link {
    /// The proxy that receives the requests.
    pub(crate) forward: Option<Uri>,
    /// `true` after a response, until a request fails.
    pub(crate) answered: AtomicBool,
}

impl Connection for Dialed {
    fn connected(&self) -> Connected {
        let connected = Connected::new().proxy(self.link.forward.is_some());
        let connected = connected.extra(Arc::clone(&self.link));
        if self.h2 { connected.negotiated_h2() } else { connected }
    }
}

impl AsyncRead for Dialed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Dialed {
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

    // Without these two, the head and the body of a request would be copied together.
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
