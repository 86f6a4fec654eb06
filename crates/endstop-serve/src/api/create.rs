//! `POST /v1/runs` and `/v1/runs/{id}/branch`: start a run, once for each key.

use super::answer::json;
use super::body;
use super::failure::Failure;
use super::view::RunView;
use crate::access::Client;
use crate::app::App;
use crate::backend::{BackendError, BranchRequest, RunBody, RunRequest, Started, trace_parent};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use http::header::{HeaderName, LOCATION};
use http::{HeaderMap, HeaderValue, StatusCode};
use std::sync::Arc;

/// The header with which a client makes a request safe to repeat.
const KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The longest key, in bytes.
const LONGEST_KEY: usize = 255;

pub(super) async fn create(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let key = key(&headers)?;
    let request: RunBody = body::json(&app, &headers, body).await?;
    let request = RunRequest { trace_parent: trace_parent(&headers), ..request.into() };
    let started = app.runs.start(&client, key.as_deref(), request).await;
    answered(&app, &client, started).await
}

pub(super) async fn branch(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let key = key(&headers)?;
    let request: BranchRequest = body::json(&app, &headers, body).await?;
    let request = BranchRequest { trace_parent: trace_parent(&headers), ..request };
    let started = app.runs.branch(&client, key.as_deref(), &id, request).await;
    answered(&app, &client, started).await
}

/// Answers with an accepted run.
async fn answered(
    app: &App,
    client: &Client,
    started: Result<Started, BackendError>,
) -> Result<Response, Failure> {
    let started = started?;
    let id = started.id();
    let new = matches!(started, Started::New(_));
    // Read back, because the run may have started, or even ended, by now.
    let view = RunView::of(app.runs.get(client, id).await?);
    let mut response = json(if new { StatusCode::CREATED } else { StatusCode::OK }, &view);
    // An id has only letters and digits, so this cannot fail.
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/runs/{id}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    if !new {
        let name = HeaderName::from_static("idempotent-replayed");
        response.headers_mut().insert(name, HeaderValue::from_static("true"));
    }
    Ok(response)
}

fn key(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let mut values = headers.get_all(&KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let wrong = || {
        Failure::bad_request(format!(
            "invalid Idempotency-Key: expected one value of 1 to {LONGEST_KEY} visible ASCII \
             characters"
        ))
    };
    let text = value.to_str().ok().filter(|_| values.next().is_none()).ok_or_else(wrong)?;
    let fits = !text.is_empty() && text.len() <= LONGEST_KEY;
    if fits { Ok(Some(text.to_owned())) } else { Err(wrong()) }
}
