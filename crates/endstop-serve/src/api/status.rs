//! `GET /healthz`, `/readyz` and `/metrics`.

use super::failure::Failure;
use crate::access::Client;
use crate::app::App;
use crate::metrics::render;
use axum::Extension;
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

pub(super) async fn metrics(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
) -> Result<Response, Failure> {
    let totals = app.runs.totals(&client).await?;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    // Gauges and refusals are those of all agents together.
    let of_server = client.agents.is_none().then(|| (&app.refusals, app.readers()));
    let text = render(&totals, of_server);
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}
