//! `GET /healthz`, `/readyz` and `/metrics`.

use super::failure::Failure;
use crate::app::App;
use crate::metrics::Gauges;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use std::sync::Arc;

pub(super) async fn health() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<&'static str, Failure> {
    if app.runs.gauges().draining {
        let message = "the server is shutting down";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "draining", message));
    }
    Ok("ready\n")
}

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let gauges = Gauges { readers: app.readers(), ..app.runs.gauges() };
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(CONTENT_TYPE, kind)], app.runs.metrics().render(gauges)).into_response()
}
