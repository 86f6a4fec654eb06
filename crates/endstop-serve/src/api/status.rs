//! `GET /healthz`, `/readyz` and `/metrics`.

use super::failure::Failure;
use crate::app::App;
use crate::metrics::render;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use std::sync::Arc;

pub(super) async fn health() -> &'static str {
    "ok\n"
}

pub(super) async fn ready(State(app): State<Arc<App>>) -> Result<&'static str, Failure> {
    app.runs.ready().await?;
    Ok("ready\n")
}

pub(super) async fn metrics(State(app): State<Arc<App>>) -> Result<Response, Failure> {
    let totals = app.runs.totals().await?;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    let text = render(&totals, &app.refusals, app.readers());
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}
