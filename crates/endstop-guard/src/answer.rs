//! Responses that guard gives itself, instead of the upstream.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};

/// A response that the proxy sends without calling the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers. `Content-Length` is added unless the body is streamed.
    pub headers: HeaderMap,
    /// The chunks of the body.
    pub chunks: Vec<Bytes>,
    /// Sends each chunk as a separate HTTP chunk, without `Content-Length`, as providers send
    /// server-sent events.
    pub streamed: bool,
}

impl Answer {
    /// Returns an answer with one body of this type.
    pub fn whole(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Answer {
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Answer { status, headers, chunks: vec![body.into()], streamed: false }
    }

    /// Returns an answer whose body is sent as a stream of these chunks.
    pub fn stream(content_type: &'static str, chunks: Vec<Bytes>) -> Answer {
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        Answer { status: StatusCode::OK, headers, chunks, streamed: true }
    }

    /// Returns an error in the shape that the clients of most providers read: an object `error`
    /// with `type` and `message`.
    pub fn error(status: StatusCode, kind: &str, message: &str) -> Answer {
        let body =
            serde_json::json!({"type": "error", "error": {"type": kind, "message": message}});
        Answer::error_json(status, &body)
    }

    /// Returns an error with this body.
    pub(crate) fn error_json(status: StatusCode, body: &serde_json::Value) -> Answer {
        let mut answer = Answer::whole(status, "application/json", body.to_string());
        // SDKs repeat some statuses unless this header forbids it.
        answer.headers.insert("x-should-retry", HeaderValue::from_static("false"));
        answer
    }
}
