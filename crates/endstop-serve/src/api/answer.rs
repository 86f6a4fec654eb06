//! Answers of the API, as JSON.

use super::failure::Failure;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use serde::Serialize;

/// Returns a value as JSON.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Response {
    let Ok(text) = serde_json::to_string(value) else {
        return Failure::internal().into_response();
    };
    let kind = HeaderValue::from_static("application/json");
    (status, [(CONTENT_TYPE, kind)], text).into_response()
}
