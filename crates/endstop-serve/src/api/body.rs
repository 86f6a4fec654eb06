//! Reads the JSON body of a request, bounded in size, time and depth.

use super::failure::Failure;
use crate::app::App;
use axum::body::Body;
use endstop::core::bounded_json;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Memory that the values of one body may need, in bytes, as estimated.
const MOST_WEIGHT: u64 = 16 << 20;

/// Reads a JSON body.
pub(super) async fn json<T: DeserializeOwned>(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> Result<T, Failure> {
    let bytes = bounded(app, headers, body).await?;
    let text =
        std::str::from_utf8(&bytes).map_err(|_| Failure::bad_request("the body is not UTF-8"))?;
    if bounded_json::weight(text.as_bytes()) > MOST_WEIGHT {
        return Err(Failure::bad_request("the body has too many values"));
    }
    // Nesting is limited by serde_json to 128 levels.
    serde_json::from_str(text)
        .map_err(|error| Failure::bad_request(format!("the body is not valid: {error}")))
}

/// Reads a body of JSON, bounded in size and time.
pub(crate) async fn bounded(
    app: &App,
    headers: &HeaderMap,
    body: Body,
) -> Result<bytes::Bytes, Failure> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    // Also keeps the forms of other websites out, which cannot send this type.
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = "expected `Content-Type: application/json`";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not_json", message));
    }
    let options = &app.options;
    let most = options.max_body;
    let too_large = || {
        let message = format!("the body is larger than {most} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
    };
    let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let announced = announced.and_then(|length| length.parse::<u64>().ok());
    let room = match announced {
        Some(length) if length > most as u64 => return Err(too_large()),
        Some(length) => usize::try_from(length).unwrap_or(most),
        None => most,
    };
    let room = u32::try_from(room / 1024 + 1).unwrap_or(u32::MAX);
    // Not waited for, because slow clients may hold the room for all of `request_time`.
    let _room = Arc::clone(&app.bodies).try_acquire_many_owned(room).map_err(|_| {
        let message = "too many bodies are being read; repeat the request later";
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "busy", message)
    })?;
    let reading = Limited::new(body, most).collect();
    match tokio::time::timeout(options.request_time, reading).await {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(Failure::bad_request("the body could not be read")),
        Err(_) => {
            let message = "the body was sent too slowly";
            Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "too_slow", message))
        }
    }
}
