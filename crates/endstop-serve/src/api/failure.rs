//! The error of a request, as JSON: `{"error": {"code": "…", "message": "…"}}`.

use crate::access::Refusal;
use crate::runs::StoreError;
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

    /// Returns the description of the error.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// The answer for a run that does not exist, and for one that the client may not see: both look
    /// the same, so that ids cannot be tried.
    pub(super) fn unknown_run() -> Failure {
        let message = "there is no such run; GET /v1/runs lists the runs";
        Failure::new(StatusCode::NOT_FOUND, "unknown_run", message)
    }

    /// An error of the server, whose cause is in its log only.
    pub(super) fn internal() -> Failure {
        let message = "the server has failed; its log has the cause";
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", message)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::new(refusal.status, refusal.code, refusal.message)
    }
}

impl From<StoreError> for Failure {
    fn from(_: StoreError) -> Failure {
        // Paths of the machine are not for clients.
        Failure::internal()
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
