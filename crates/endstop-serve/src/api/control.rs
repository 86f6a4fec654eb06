//! `POST /v1/runs/{id}/cancel`, `/terminate`, `/answer`, `/say` and `/limits`.

use super::answer::json;
use super::body;
use super::failure::Failure;
use super::view::RunView;
use crate::access::Client;
use crate::app::App;
use crate::backend::{BackendError, RunState, Stop};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use endstop::agent::SteerError;
use endstop::event::RequestId;
use endstop::{Approval, LimitChanges};
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The longest reason for a denial, in characters.
const LONGEST_REASON: usize = 4096;

/// The answer to a request for approval.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    /// The id of the `approval_requested` event.
    request_id: u64,
    /// The decision.
    decision: Decision,
    /// The reason of a denial, which the model reads.
    #[serde(default)]
    reason: Option<String>,
    /// Arguments that replace those of the call, if it is allowed.
    #[serde(default)]
    arguments: Option<Map<String, Value>>,
}

/// The decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Decision {
    /// The call may run.
    Allow,
    /// The call may not run.
    Deny,
}

pub(super) async fn cancel(
    app: State<Arc<App>>,
    client: Extension<Client>,
    id: Path<String>,
) -> Result<Response, Failure> {
    stop(app, client, id, Stop::Cancel).await
}

pub(super) async fn terminate(
    app: State<Arc<App>>,
    client: Extension<Client>,
    id: Path<String>,
) -> Result<Response, Failure> {
    stop(app, client, id, Stop::Terminate).await
}

async fn stop(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    stop: Stop,
) -> Result<Response, Failure> {
    let run = app.runs.stop(&client, &id, stop).await?;
    // A cancel is a request: 202 until the run has ended.
    let ended = run.state == RunState::Ended;
    Ok(json(if ended { StatusCode::OK } else { StatusCode::ACCEPTED }, &RunView::of(run)))
}

pub(super) async fn answer(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let answer: Answer = body::json(&app, &headers, body).await?;
    let approval = approval(&answer)?;
    let run = app.runs.answer(&client, &id, RequestId(answer.request_id), approval).await?;
    Ok(json(StatusCode::OK, &RunView::of(run)))
}

fn approval(answer: &Answer) -> Result<Approval, Failure> {
    // The model reads this text, so a denial without a reason needs one, too.
    let reason = answer.reason.as_deref().unwrap_or("a person denied this call");
    match (answer.decision, &answer.arguments, &answer.reason) {
        (Decision::Allow, None, None) => Ok(Approval::Allow),
        (Decision::Allow, Some(arguments), None) => Ok(Approval::AllowChanged(arguments.clone())),
        (Decision::Deny, None, _) if reason.chars().count() <= LONGEST_REASON => {
            Ok(Approval::Deny(reason.to_owned()))
        }
        (Decision::Deny, None, _) => {
            Err(Failure::bad_request("`reason`: expected at most 4096 characters"))
        }
        (Decision::Allow, _, Some(_)) => {
            Err(Failure::bad_request("`reason` belongs to `\"decision\": \"deny\"`"))
        }
        (Decision::Deny, Some(_), _) => {
            Err(Failure::bad_request("`arguments` belong to `\"decision\": \"allow\"`"))
        }
    }
}

/// A message to a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Said {
    /// The message, which the model reads before its next call.
    text: String,
}

/// Other limits for a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Changed {
    /// Limits by name, as under `[limits]` in endstop.toml. Each may only lower the present one.
    limits: Map<String, Value>,
}

pub(super) async fn say(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let said: Said = body::json(&app, &headers, body).await?;
    let run = app.runs.say(&client, &id, said.text).await?;
    Ok(json(StatusCode::ACCEPTED, &RunView::of(run)))
}

pub(super) async fn limits(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    let changed: Changed = body::json(&app, &headers, body).await?;
    // Read before the run is looked up: an invalid limit is an error for every run.
    let changes = LimitChanges::read(&changed.limits)
        .map_err(|error| BackendError::from(&SteerError::Limit(error)))?;
    let run = app.runs.set_limits(&client, &id, changes).await?;
    Ok(json(StatusCode::ACCEPTED, &RunView::of(run)))
}
