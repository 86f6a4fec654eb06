//! The trait that decides about requests: what is forwarded, changed, answered or refused.

use super::abort::AbortToken;
use super::decode::Unreadable;
use super::head::{RequestHead, redacted_url};
use super::observer::{End, ResponseObserver};
use super::upstream_map::UpstreamMap;
use crate::answer::Answer;
use bytes::Bytes;
use endstop_wire::redact::Redacted;
use http::{HeaderName, HeaderValue, StatusCode, Uri};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

/// Decides about each request.
pub trait Gatekeeper: Send + Sync + 'static {
    /// What the gatekeeper has read from the head of a request, and needs again for its decision.
    type Line: Send;

    /// Chooses whether the body is read before the decision. Model calls require it, because the
    /// decision depends on their content; everything else is streamed.
    fn route(&self, head: &RequestHead) -> Routed<Self::Line>;

    /// Decides about a request. The future is dropped if the client closes its connection first, so
    /// it must hold what it reserves in a value that releases it.
    fn decide(
        &self,
        head: Arc<RequestHead>,
        line: Self::Line,
        body: RequestBody,
    ) -> impl Future<Output = Disposition> + Send;

    /// Returns the answer to a client whose request got no response from the upstream. `error`
    /// contains no credentials.
    fn no_response(&self, head: &RequestHead, error: &str) -> Answer {
        let _ = head;
        let message = format!("endstop guard: no response from the upstream: {error}");
        // Without the header that forbids repeating, because a direct call would be repeated too.
        let mut answer = Answer::error(StatusCode::BAD_GATEWAY, "upstream_error", &message);
        answer.headers.remove("x-should-retry");
        answer
    }

    /// Receives events that belong to no exchange.
    fn notice(&self, notice: Notice) {
        let _ = notice;
    }
}

/// The way in which a request is handled, with what the gatekeeper has read from its head.
#[derive(Debug)]
pub struct Routed<L> {
    /// The way in which the body is handled.
    pub route: BodyMode,
    /// Given to the decision about the same request.
    pub line: L,
}

/// The way in which the body of a request is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyMode {
    /// The body goes to the upstream while it arrives.
    Stream,
    /// The body is read completely, up to the limit, before the decision.
    Read,
    /// The client may not use the proxy, so the decision is not to forward the request. Its body is not
    /// read, and its connection does not count as one of a client.
    Refuse,
}

/// The body of a request as the gatekeeper receives it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RequestBody {
    /// The body is streamed and was not read.
    Streamed,
    /// The whole body.
    Whole {
        /// The bytes as the client sent them.
        raw: Bytes,
        /// The same bytes after decompression.
        decoded: Bytes,
    },
    /// The whole body, which cannot be decompressed.
    Unreadable {
        /// The bytes as the client sent them.
        raw: Bytes,
        /// The reason.
        reason: Unreadable,
    },
    /// The body is larger than the limit, or too many bodies are being read. It passes if the
    /// decision is to forward it.
    TooLarge {
        /// The length that the client announced.
        announced: Option<u64>,
    },
}

// Prompts can contain secrets.
impl fmt::Debug for RequestBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestBody::Streamed => f.write_str("Streamed"),
            RequestBody::Whole { raw, decoded } => {
                write!(f, "Whole({} bytes, {} decoded)", raw.len(), decoded.len())
            }
            RequestBody::Unreadable { raw, reason } => {
                write!(f, "Unreadable({} bytes, {reason})", raw.len())
            }
            RequestBody::TooLarge { announced } => write!(f, "TooLarge({announced:?})"),
        }
    }
}

/// The decision about a request.
#[derive(Debug)]
pub enum Disposition {
    /// Sends the request to the upstream.
    Forward(Forward),
    /// Answers without calling the upstream.
    Answer(Answer),
    /// Closes the connection without an answer.
    Close,
}

/// A request that is sent to the upstream.
pub struct Forward {
    /// The complete URL: see [`UpstreamMap::url`].
    pub url: Uri,
    /// Another body, not compressed, instead of the client's. It requires [`BodyMode::Read`].
    pub body: Option<Bytes>,
    /// Headers to set (`Some`) or to remove (`None`), after the hop-by-hop headers were removed.
    pub headers: Vec<(HeaderName, Option<HeaderValue>)>,
    /// The observer of the response.
    pub observer: Box<dyn ResponseObserver>,
    /// The token that aborts this exchange.
    pub abort: AbortToken,
}

impl Forward {
    /// Returns a request that is forwarded unchanged.
    pub fn unchanged(url: Uri, observer: Box<dyn ResponseObserver>) -> Forward {
        Forward { url, body: None, headers: Vec::new(), observer, abort: AbortToken::new() }
    }
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forward")
            .field("url", &redacted_url(&self.url))
            .field("body", &self.body.as_ref().map(Bytes::len))
            .field("headers", &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>())
            .field("aborted", &self.abort.is_aborted())
            .finish_non_exhaustive()
    }
}

/// An event of the proxy that belongs to no exchange. None contains credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A request was refused before the decision.
    Refused {
        /// The status of the answer.
        status: StatusCode,
        /// The reason.
        reason: &'static str,
        /// The target without credentials.
        target: Redacted,
    },
    /// A request was refused because its client may not use the proxy. The target is left out, because it
    /// can be anything, and such a request belongs to no run.
    Stranger {
        /// The status of the answer.
        status: StatusCode,
        /// The reason.
        reason: &'static str,
    },
    /// The client broke off within the body of its request, or sent it too slowly.
    BodyCut {
        /// The target without credentials.
        target: Redacted,
    },
    /// A connection could not be accepted, for example because there are too many open files.
    Accept {
        /// The error.
        error: String,
    },
}

/// Forwards every request to one upstream, and observes nothing.
#[derive(Debug, Clone)]
pub struct ForwardAll {
    upstreams: UpstreamMap,
    route: BodyMode,
}

impl ForwardAll {
    /// Returns a gatekeeper that streams every request to the default upstream of the map.
    pub fn new(upstreams: UpstreamMap) -> ForwardAll {
        ForwardAll { upstreams, route: BodyMode::Stream }
    }

    /// Reads every body before it is forwarded, as a gatekeeper that decides about it does.
    #[must_use]
    pub fn reading(mut self) -> ForwardAll {
        self.route = BodyMode::Read;
        self
    }
}

impl Gatekeeper for ForwardAll {
    type Line = ();

    fn route(&self, _head: &RequestHead) -> Routed<()> {
        Routed { route: self.route, line: () }
    }

    async fn decide(&self, head: Arc<RequestHead>, (): (), _body: RequestBody) -> Disposition {
        match self.upstreams.url(None, head.path(), head.query()) {
            Ok(url) => Disposition::Forward(Forward::unchanged(url, Box::new(Blind))),
            Err(error) => Disposition::Answer(Answer::error(
                StatusCode::BAD_REQUEST,
                "invalid_request_error",
                &format!("endstop guard: {error}"),
            )),
        }
    }
}

/// Observes nothing.
struct Blind;

impl ResponseObserver for Blind {
    fn end(self: Box<Self>, _end: End) {}
}
