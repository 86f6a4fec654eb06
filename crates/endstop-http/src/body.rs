//! The body of a request, as one type for all connections of a pool.

use crate::error::BoxError;
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use std::any::Any;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of a request: bytes that are sent as they are, or any other body in a box.
pub(crate) enum Outgoing {
    Whole(Full<Bytes>),
    Boxed(UnsyncBoxBody<Bytes, BoxError>),
}

impl Outgoing {
    pub(crate) fn new<B>(body: B) -> Outgoing
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let mut body = Some(body);
        // Most requests have all bytes at hand; these need no box and no dynamic call.
        if let Some(whole) = (&mut body as &mut dyn Any).downcast_mut::<Option<Full<Bytes>>>() {
            return Outgoing::Whole(whole.take().unwrap_or_default());
        }
        match body {
            Some(body) => Outgoing::Boxed(body.map_err(Into::into).boxed_unsync()),
            None => Outgoing::Whole(Full::default()),
        }
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Outgoing::Whole(body) => {
                Pin::new(body).poll_frame(cx).map_err(|never| -> BoxError { match never {} })
            }
            Outgoing::Boxed(body) => Pin::new(body).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Outgoing::Whole(body) => body.is_end_stream(),
            Outgoing::Boxed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Outgoing::Whole(body) => body.size_hint(),
            Outgoing::Boxed(body) => body.size_hint(),
        }
    }
}
