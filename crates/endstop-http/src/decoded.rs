//! Bodies of responses, unpacked if they are compressed.

use bytes::{Buf as _, Bytes};
use flate2::bufread::MultiGzDecoder;
use http::Response;
use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http_body::Body;
use hyper::body::Incoming;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, BufRead, Read};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Largest chunk of unpacked data. The size of the chunks that arrive does not bound it, because
/// data may be a thousand times as long when it is unpacked.
const CHUNK: usize = 16 << 10;

/// The body of a response, which is unpacked if it is compressed with gzip. Send the header
/// `accept-encoding: gzip` to allow the server to compress it.
pub struct Decoded {
    body: Incoming,
    /// In a box, because few responses need it and it is large.
    gzip: Option<Box<MultiGzDecoder<Arrived>>>,
}

/// The reason why the body of a response ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// The connection broke.
    #[error("the connection broke during the response")]
    Connection(#[source] hyper::Error),
    /// The compressed data is not valid, or ends early.
    #[error("the response cannot be unpacked")]
    Gzip(#[source] io::Error),
}

/// The compressed bytes that have arrived and are not unpacked yet.
#[derive(Default)]
struct Arrived {
    chunk: Bytes,
    /// `true` after the end of the body.
    ended: bool,
    /// `true` after the first byte.
    begun: bool,
}

impl Decoded {
    /// Unpacks the body of a response. If it is compressed, the headers `content-encoding` and
    /// `content-length`, which describe the compressed data, are removed.
    pub fn new(response: Response<Incoming>) -> Response<Decoded> {
        let (mut head, body) = response.into_parts();
        let packed = head.headers.get(CONTENT_ENCODING).is_some_and(|coding| {
            let coding = coding.as_bytes();
            coding.eq_ignore_ascii_case(b"gzip") || coding.eq_ignore_ascii_case(b"x-gzip")
        });
        if packed {
            head.headers.remove(CONTENT_ENCODING);
            head.headers.remove(CONTENT_LENGTH);
        }
        let gzip = packed.then(|| Box::new(MultiGzDecoder::new(Arrived::default())));
        Response::from_parts(head, Decoded { body, gzip })
    }

    /// `true` if the body has no bytes, or was read to its end.
    pub fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    /// Reads the body to its end. Returns `None` if it has more than this many bytes.
    ///
    /// # Errors
    /// The connection broke, or the compressed data is not valid.
    pub async fn read(&mut self, most: usize) -> Result<Option<Vec<u8>>, BodyError> {
        let mut all = Vec::new();
        while let Some(chunk) = poll_fn(|cx| self.poll_data(cx)).await {
            let chunk = chunk?;
            if chunk.len() > most - all.len() {
                return Ok(None);
            }
            all.extend_from_slice(&chunk);
        }
        Ok(Some(all))
    }

    /// Polls for the next bytes of the body, at most 16 KiB if they are unpacked; `None` at its end.
    ///
    /// # Errors
    /// The connection broke, or the compressed data is not valid.
    pub fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let Some(gzip) = &mut self.gzip else { return poll_data(&mut self.body, cx) };
        loop {
            if gzip.get_ref().ended && !gzip.get_ref().begun {
                // An empty body is the answer to a request for the head alone.
                return Poll::Ready(None);
            }
            let mut chunk = vec![0; CHUNK];
            match gzip.read(&mut chunk) {
                Ok(0) => return Poll::Ready(None),
                Ok(read) => {
                    chunk.truncate(read);
                    return Poll::Ready(Some(Ok(chunk.into())));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Some(Err(BodyError::Gzip(error)))),
            }
            match ready!(poll_data(&mut self.body, cx)) {
                Some(Ok(chunk)) => {
                    gzip.get_mut().begun |= !chunk.is_empty();
                    gzip.get_mut().chunk = chunk;
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => gzip.get_mut().ended = true,
            }
        }
    }
}

/// Polls for the next bytes of a body. Trailers are dropped.
fn poll_data(body: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
    loop {
        match ready!(Pin::new(&mut *body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                if let Ok(data) = frame.into_data() {
                    return Poll::Ready(Some(Ok(data)));
                }
            }
            Some(Err(error)) => return Poll::Ready(Some(Err(BodyError::Connection(error)))),
            None => return Poll::Ready(None),
        }
    }
}

impl Read for Arrived {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(into)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Arrived {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        // The decoder keeps its state, and is asked again when more has arrived.
        if self.chunk.is_empty() && !self.ended {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(&self.chunk)
    }

    fn consume(&mut self, count: usize) {
        self.chunk.advance(count);
    }
}

impl fmt::Debug for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoded").field("gzip", &self.gzip.is_some()).finish_non_exhaustive()
    }
}
