//! A stream of events that are already there.
//!
//! ```
//! use endstop::provider::{CallEvent, Response, stream_of};
//! let stream = stream_of([CallEvent::Ended(Box::new(Response::text("Hello.")))]);
//! # let _ = stream;
//! ```

use super::{CallEvent, CallStream};
use futures_core::Stream;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Returns the stream of a call that has already ended with these events, for example one that
/// comes from a cache, or from an API without streaming.
pub fn stream_of<I>(events: I) -> CallStream
where
    I: IntoIterator<Item = CallEvent>,
    I::IntoIter: Send + Unpin + 'static,
{
    Box::pin(Events(events.into_iter()))
}

struct Events<I>(I);

impl<I: Iterator<Item = CallEvent> + Unpin> Stream for Events<I> {
    type Item = CallEvent;
    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<CallEvent>> {
        Poll::Ready(self.0.next())
    }
}
