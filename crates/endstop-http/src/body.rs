//! The body of a request, as one type for all connections of a pool.

use crate::error::BoxError;
use bytes::Bytes;
use http_body::Body;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Either, Full};
use std::any::Any;

/// The body of a request: bytes that are sent as they are, or any other body in a box.
pub(crate) type Outgoing = Either<Full<Bytes>, UnsyncBoxBody<Bytes, BoxError>>;

pub(crate) fn outgoing<B>(body: B) -> Outgoing
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut body = Some(body);
    // Most requests have all bytes at hand; these need no box and no dynamic call.
    if let Some(whole) = (&mut body as &mut dyn Any).downcast_mut::<Option<Full<Bytes>>>() {
        return Either::Left(whole.take().unwrap_or_default());
    }
    match body {
        Some(body) => Either::Right(body.map_err(Into::into).boxed_unsync()),
        None => Either::Left(Full::default()),
    }
}
