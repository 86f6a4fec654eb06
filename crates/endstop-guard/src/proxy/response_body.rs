//! The body of a response to a client: forwarded, or the proxy's own.

use super::passing::{Closed, Passing};
use crate::answer::Answer;
use bytes::Bytes;
use http::Response;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A body that the server side sends.
pub(crate) enum ResponseBody {
    /// The upstream's response.
    Passing(Box<Passing>),
    /// An answer of the proxy.
    Own { chunks: VecDeque<Bytes>, streamed: bool, yielded: bool },
}

impl ResponseBody {
    /// Returns the response with this answer.
    pub(crate) fn answer(answer: Answer) -> Response<ResponseBody> {
        let Answer { status, headers, chunks, streamed } = answer;
        let chunks = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
        let mut response = Response::new(ResponseBody::Own { chunks, streamed, yielded: false });
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Closed;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Closed>>> {
        match &mut *self {
            ResponseBody::Passing(passing) => Pin::new(&mut **passing).poll_frame(context),
            ResponseBody::Own { chunks, streamed, yielded } => {
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
            ResponseBody::Passing(passing) => passing.is_end_stream(),
            ResponseBody::Own { chunks, .. } => chunks.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ResponseBody::Passing(passing) => passing.size_hint(),
            ResponseBody::Own { streamed: true, .. } => SizeHint::default(),
            ResponseBody::Own { chunks, .. } => {
                SizeHint::with_exact(chunks.iter().map(|chunk| chunk.len() as u64).sum())
            }
        }
    }
}
