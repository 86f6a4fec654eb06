//! `POST /v1/runs` and `/v1/runs/{id}/branch`: start a run, once for each key.

use super::answer::{blocking, json};
use super::body;
use super::failure::Failure;
use super::view::RunView;
use crate::access::Client;
use crate::app::App;
use crate::runs::{BranchBody, Created, Refused, RunBody};
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
    let runs = app.runs.clone();
    let accept = move |client: &Client| runs.create(client, key.as_deref(), request.into());
    answered(&app, client, accept).await
}

pub(super) async fn branch(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let key = key(&headers)?;
    let request: BranchBody = body::json(&app, &headers, body).await?;
    let runs = app.runs.clone();
    let accept = move |client: &Client| runs.branch(client, key.as_deref(), &id, request);
    answered(&app, client, accept).await
}

/// Accepts a request, and answers with the run.
async fn answered(
    app: &App,
    client: Client,
    accept: impl FnOnce(&Client) -> Result<Created, Refused> + Send + 'static,
) -> Result<Response, Failure> {
    let runs = app.runs.clone();
    // On a thread of its own, because the store is a file.
    let created = blocking(move || {
        let created = accept(&client)?;
        let (Created::New(id) | Created::Known(id)) = &created;
        // Read back, because the run may have started, or even ended, by now.
        let row = runs.get(&client, id).map_err(Refused::Store)?;
        Ok((matches!(created, Created::New(_)), row.map(|row| RunView::of(&runs, row)), id.clone()))
    });
    let (new, view, id) = created.await?.map_err(|refused| refusal(app, refused))?;
    let view = view.ok_or_else(Failure::unknown_run)?;
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

/// Returns the error of a request that was not accepted.
pub(crate) fn refusal(app: &App, refused: Refused) -> Failure {
    let options = app.runs.options();
    match refused {
        Refused::UnknownAgent => Failure::new(
            StatusCode::NOT_FOUND,
            "unknown_agent",
            "there is no such agent for this token; GET /v1/agents lists them",
        ),
        Refused::UnknownRun => Failure::unknown_run(),
        Refused::Invalid(problem) => {
            Failure::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid_run", problem)
        }
        Refused::KeyReused => Failure::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            "key_reused",
            "this Idempotency-Key was used for another request; use a new key",
        ),
        Refused::Full => Failure::new(
            StatusCode::TOO_MANY_REQUESTS,
            "queue_full",
            format!(
                "{} runs work and {} wait; repeat the request later",
                options.max_running, options.max_queued
            ),
        ),
        Refused::Draining => Failure::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "draining",
            "the server is shutting down; repeat the request later",
        ),
        Refused::Store(error) => error.into(),
    }
}
