//! The body of a response to a client: forwarded, or the proxy's own.

use super::answer::Answer;
use super::passing::{Closed, Passing};
use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body that the server side sends.
pub(crate) enum Reply {
    /// The upstream's response.
    Passing(Box<Passing>),
    /// An answer of the proxy.
    Own { chunks: VecDeque<Bytes>, streamed: bool, yielded: bool },
}

impl Reply {
    /// Returns the response with this answer.
    pub(crate) fn answer(answer: Answer) -> Response<Reply> {
        let Answer { status, headers, chunks, streamed } = answer;
        let chunks = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
        let mut response = Response::new(Reply::Own { chunks, streamed, yielded: false });
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Closed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Closed>>> {
        match &mut *self {
            Reply::Passing(passing) => Pin::new(&mut **passing).poll_frame(context),
            Reply::Own { chunks, streamed, yielded } => {
                // Each event goes out by itself, as a provider would send it.
                if *streamed && std::mem::replace(yielded, !*yielded) {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(chunks.pop_front().map(|chunk| Ok(Frame::data(chunk))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Reply::Passing(passing) => passing.is_end_stream(),
            Reply::Own { chunks, .. } => chunks.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Reply::Passing(passing) => passing.size_hint(),
            Reply::Own { streamed: true, .. } => SizeHint::default(),
            Reply::Own { chunks, .. } => {
                SizeHint::with_exact(chunks.iter().map(|chunk| chunk.len() as u64).sum())
            }
        }
    }
}
