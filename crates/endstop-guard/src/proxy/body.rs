//! Request bodies: read for a decision in bounded memory, and sent to the upstream.

use super::decode::Decoder;
use super::decode::Unreadable;
use super::gatekeeper::RequestBody;
use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The unit in which memory for bodies is counted, in bytes.
const UNIT: usize = 4096;

/// Memory for all bodies that are being read, in units.
pub(crate) fn memory(bytes: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new((bytes / UNIT).min(Semaphore::MAX_PERMITS)))
}

/// Limits for reading a body.
pub(crate) struct Limits {
    pub(crate) body: usize,
    pub(crate) memory: Arc<Semaphore>,
    pub(crate) time: Duration,
}

/// A body that is sent to the upstream.
pub(crate) struct SendBody {
    // Bytes that were read already. They are sent first.
    chunks: VecDeque<Bytes>,
    rest: Option<Incoming>,
    trailers: Option<HeaderMap>,
    // Released when the body was sent or dropped.
    memory: Option<OwnedSemaphorePermit>,
}

impl SendBody {
    /// Returns a body that is streamed from the client.
    pub(crate) fn streamed(incoming: Incoming) -> SendBody {
        let rest = Some(incoming).filter(|incoming| !incoming.is_end_stream());
        SendBody { chunks: VecDeque::new(), rest, trailers: None, memory: None }
    }

    /// Replaces the whole body.
    pub(crate) fn replace(&mut self, bytes: Bytes) {
        *self = SendBody { chunks: VecDeque::from([bytes]), ..SendBody::empty() };
    }

    fn empty() -> SendBody {
        SendBody { chunks: VecDeque::new(), rest: None, trailers: None, memory: None }
    }
}

impl Body for SendBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(chunk) = self.chunks.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        if let Some(rest) = &mut self.rest {
            return Pin::new(rest).poll_frame(context);
        }
        self.memory = None;
        Poll::Ready(self.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty()
            && self.trailers.is_none()
            && self.rest.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        match &self.rest {
            Some(rest) if self.chunks.is_empty() => rest.size_hint(),
            // The length is that of the header `Content-Length`, if there is one.
            Some(_) => SizeHint::default(),
            // Trailers require chunks.
            None if self.trailers.is_some() => SizeHint::default(),
            None => SizeHint::with_exact(self.chunks.iter().map(|chunk| chunk.len() as u64).sum()),
        }
    }
}

/// The client broke off within its body, or sent it too slowly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    Broken,
    TooSlow,
}

/// Reads a whole body if it is not larger than the limit. Returns the copy for the decision, and the
/// body to send.
pub(crate) async fn read(
    headers: &HeaderMap,
    mut incoming: Incoming,
    limits: &Limits,
) -> Result<(RequestBody, SendBody), BodyError> {
    let announced = incoming.size_hint().exact();
    if announced.is_some_and(|length| length > limits.body as u64) {
        return Ok((RequestBody::TooLarge { announced }, SendBody::streamed(incoming)));
    }
    let reading = collect(&mut incoming, announced, limits);
    let collected = tokio::time::timeout(limits.time, reading).await;
    let collected = collected.map_err(|_| BodyError::TooSlow)?.map_err(|_| BodyError::Broken)?;
    let Collected { bytes: raw, trailers, memory, whole } = collected;
    let mut send = SendBody { trailers, memory, ..SendBody::empty() };
    if !raw.is_empty() {
        send.chunks.push_back(raw.clone());
    }
    if !whole {
        send.rest = Some(incoming);
        return Ok((RequestBody::TooLarge { announced }, send));
    }
    let body = match decode(headers, &raw, limits.body) {
        Ok(decoded) => RequestBody::Whole { raw, decoded },
        Err(reason) => RequestBody::Unreadable { raw, reason },
    };
    Ok((body, send))
}

struct Collected {
    bytes: Bytes,
    trailers: Option<HeaderMap>,
    memory: Option<OwnedSemaphorePermit>,
    whole: bool,
}

async fn collect(
    incoming: &mut Incoming,
    announced: Option<u64>,
    limits: &Limits,
) -> Result<Collected, hyper::Error> {
    let mut parts = Parts { announced, first: Bytes::new(), joined: BytesMut::new() };
    let (mut trailers, mut memory, mut reserved) = (None, None, 0);
    while let Some(frame) = incoming.frame().await {
        match frame?.into_data() {
            Ok(chunk) => {
                parts.push(chunk);
                let missing = parts.len().saturating_sub(reserved).div_ceil(UNIT);
                let granted = Arc::clone(&limits.memory)
                    .try_acquire_many_owned(missing.min(u32::MAX as usize) as u32);
                let fits = granted.is_ok();
                if let Ok(granted) = granted {
                    reserved += missing * UNIT;
                    match &mut memory {
                        None => memory = Some(granted),
                        Some(memory) => OwnedSemaphorePermit::merge(memory, granted),
                    }
                }
                if !fits || parts.len() > limits.body {
                    return Ok(Collected { bytes: parts.join(), trailers, memory, whole: false });
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok(Collected { bytes: parts.join(), trailers, memory, whole: true })
}

/// The parts of a body that have arrived. A body that arrives in one part is not copied.
struct Parts {
    announced: Option<u64>,
    first: Bytes,
    joined: BytesMut,
}

impl Parts {
    fn push(&mut self, part: Bytes) {
        if self.len() == 0 {
            // A part keeps the buffer that it was read into.
            self.first = if part.len() < UNIT { Bytes::copy_from_slice(&part) } else { part };
            return;
        }
        if self.joined.is_empty() {
            // A client can announce more than it sends.
            let capacity = self.announced.map_or(8 << 10, |length| length.min(256 << 10)) as usize;
            self.joined.reserve(capacity.max(self.first.len()));
            self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.joined.extend_from_slice(&part);
    }

    fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    fn join(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.freeze() }
    }
}

fn decode(headers: &HeaderMap, raw: &Bytes, limit: usize) -> Result<Bytes, Unreadable> {
    let mut decoder = Decoder::of(headers, limit as u64);
    if !decoder.is_encoded() {
        return Ok(raw.clone());
    }
    let mut decoded = Vec::new();
    decoder.feed(raw, &mut |part| decoded.extend_from_slice(part))?;
    Ok(decoded.into())
}
