//! The error of a request, as JSON: `{"error": {"code": "…", "message": "…"}}`.

use crate::access::Refusal;
use crate::backend::{BackendError, ErrorKind};
use axum::response::{IntoResponse, Response};
use http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde_json::json;

/// The error of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
}

/// The code of an answered error, for the metrics.
#[derive(Clone, Copy, Debug)]
pub(super) struct Code(pub(super) &'static str);

impl Failure {
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        message: impl Into<String>,
    ) -> Failure {
        Failure { status, code, message: message.into() }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// An error of the server, whose cause is in its log only.
    pub(super) fn internal() -> Failure {
        BackendError::internal().into()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::new(refusal.status, refusal.code, refusal.message)
    }
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Failure {
        let (status, code) = match error.kind {
            ErrorKind::UnknownAgent => (StatusCode::NOT_FOUND, "unknown_agent"),
            ErrorKind::UnknownRun => (StatusCode::NOT_FOUND, "unknown_run"),
            ErrorKind::UnknownRequest => (StatusCode::NOT_FOUND, "unknown_request"),
            ErrorKind::InvalidRun => (StatusCode::UNPROCESSABLE_ENTITY, "invalid_run"),
            ErrorKind::InvalidChange => (StatusCode::UNPROCESSABLE_ENTITY, "invalid_request"),
            ErrorKind::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            ErrorKind::KeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "key_reused"),
            ErrorKind::Full => (StatusCode::TOO_MANY_REQUESTS, "queue_full"),
            ErrorKind::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
            ErrorKind::NotStarted => (StatusCode::SERVICE_UNAVAILABLE, "not_started"),
            ErrorKind::Parking => (StatusCode::SERVICE_UNAVAILABLE, "parking"),
            ErrorKind::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
            ErrorKind::NotOpen => (StatusCode::CONFLICT, "not_open"),
            ErrorKind::Parked => (StatusCode::CONFLICT, "parked"),
            ErrorKind::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        Failure::new(status, code, error.message)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let body = json!({"error": {"code": self.code, "message": self.message}}).to_string();
        let mut response = (self.status, body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            }
            // The rest of the body is not read, so the connection cannot be used again.
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response.extensions_mut().insert(Code(self.code));
        response
    }
}
