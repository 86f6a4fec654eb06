//! `POST /v1/runs/{id}/cancel`, `/terminate`, `/answer`, `/say` and `/limits`.

use super::answer::{blocking, json};
use super::body;
use super::failure::Failure;
use super::view::RunView;
use crate::access::Client;
use crate::app::App;
use crate::runs::{Live, RunRow, RunState, Stop, StopError, Undecided};
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use endstop::agent::{AnswerError, SteerError, Steering};
use endstop::event::RequestId;
use endstop::{Approval, LimitChanges};
use http::{HeaderMap, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The longest reason for a denial, in characters.
const LONGEST_REASON: usize = 4096;

/// The longest time for which an answer waits for a resumed run to ask again.
const RESUME_TIME: Duration = Duration::from_secs(5);

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
    let runs = app.runs.clone();
    let stopped = blocking(move || {
        runs.stop(&client, &id, stop).map_err(|error| match error {
            StopError::Unknown => Failure::unknown_run(),
            StopError::Store(error) => error.into(),
        })?;
        let row = runs.get(&client, &id)?.ok_or_else(Failure::unknown_run)?;
        // A cancel is a request: 202 until the run has ended.
        let ended = row.state == RunState::Ended;
        Ok::<_, Failure>((ended, RunView::of(&runs, row)))
    });
    let (ended, view) = stopped.await??;
    Ok(json(if ended { StatusCode::OK } else { StatusCode::ACCEPTED }, &view))
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
    let row = answer_run(&app, client, id, RequestId(answer.request_id), approval).await?;
    Ok(json(StatusCode::OK, &RunView::of(&app.runs, row)))
}

/// Answers a request of a run, whether it works or is parked, and returns the run.
pub(crate) async fn answer_run(
    app: &App,
    client: Client,
    id: String,
    request: RequestId,
    approval: Approval,
) -> Result<RunRow, Failure> {
    // Bounded, because a run that is about to park may first wait for its other calls.
    let end = Instant::now() + RESUME_TIME;
    loop {
        let (live, row) = found(app, client.clone(), id.clone()).await?;
        let Some(live) = live else { return Err(unanswered(AnswerError::Closed(request))) };
        // Taken first, so that an event after the attempt is not missed.
        let mut changes = live.feed.changes();
        if row.state == RunState::Parked {
            let (runs, id, approval) = (app.runs.clone(), id.clone(), approval.clone());
            let decided = blocking(move || runs.decide_parked(&id, request, &approval)).await?;
            match decided {
                Ok(()) => {
                    live.note_answer();
                    return Ok(found(app, client, row.id).await?.1);
                }
                // The run works again, or will in a moment.
                Err(Undecided::NotParked | Undecided::AsksAgain) => {}
                Err(refused) => return Err(undecided(refused, request)),
            }
        }
        match answer_live(&live, request, approval.clone()).await {
            Ok(()) => {
                live.note_answer();
                return Ok(row);
            }
            // The request was taken by a park, which is under way, or complete since the run was
            // looked up.
            Err(_) if live.is_parking() => {}
            Err(failure) => {
                let now = found(app, client.clone(), id.clone()).await?.1.state;
                if now == RunState::Parked && row.state != now {
                    continue;
                }
                return Err(failure);
            }
        }
        if tokio::time::timeout_at(end, changes.changed()).await.is_err() {
            let message = "the run is being parked; repeat the request";
            return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "parking", message));
        }
    }
}

fn undecided(refused: Undecided, request: RequestId) -> Failure {
    match refused {
        Undecided::AnotherRequest => unanswered(AnswerError::Unknown(request)),
        // Each variant names the run and what to do.
        Undecided::Refused(error) => {
            Failure::new(StatusCode::CONFLICT, "not_open", error.to_string())
        }
        Undecided::Store(error) => error.into(),
        Undecided::NotParked | Undecided::AsksAgain => unanswered(AnswerError::Closed(request)),
    }
}

/// Returns a run that the client may see, and its live part unless it has ended.
async fn found(
    app: &App,
    client: Client,
    id: String,
) -> Result<(Option<Arc<Live>>, RunRow), Failure> {
    let runs = app.runs.clone();
    let found = blocking(move || {
        let row = runs.get(&client, &id)?.ok_or_else(Failure::unknown_run)?;
        Ok((runs.live(&id).filter(|_| row.state != RunState::Ended), row))
    });
    found.await?
}

/// Answers a request of a live run. A resumed run asks its open questions again; until it does, the
/// answer waits.
async fn answer_live(live: &Live, request: RequestId, approval: Approval) -> Result<(), Failure> {
    // Bounded, because a resumed run may also end without asking again.
    let end = Instant::now() + RESUME_TIME;
    // Taken first, so that an event between a failed attempt and the wait is not missed.
    let mut changes = live.feed.changes();
    loop {
        // Before the attempt, because the question may be asked in between.
        let resuming = live.is_resuming();
        let answered = live.approvals().map(|all| all.answer(request, approval.clone()));
        let failure = match answered {
            Some(Ok(())) => return Ok(()),
            Some(Err(error @ AnswerError::Unknown(_))) => unanswered(error),
            Some(Err(error)) => return Err(unanswered(error)),
            None => {
                let message = "the run has not started yet; repeat the request later";
                Failure::new(StatusCode::SERVICE_UNAVAILABLE, "not_started", message)
            }
        };
        if !resuming {
            return Err(failure);
        }
        match tokio::time::timeout_at(end, changes.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Err(failure),
        }
    }
}

fn unanswered(error: AnswerError) -> Failure {
    match error {
        AnswerError::Unknown(_) => {
            Failure::new(StatusCode::NOT_FOUND, "unknown_request", error.to_string())
        }
        _ => Failure::new(StatusCode::CONFLICT, "not_open", error.to_string()),
    }
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
    steered(&app, client, id, |steering| steering.say(said.text)).await
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
        .map_err(|error| unsteered(&SteerError::Limit(error)))?;
    steered(&app, client, id, |steering| steering.tighten_limits(changes)).await
}

/// Sends something to a live run, and answers with the run.
async fn steered(
    app: &App,
    client: Client,
    id: String,
    send: impl FnOnce(&Steering) -> Result<(), SteerError>,
) -> Result<Response, Failure> {
    let (live, row) = found(app, client, id).await?;
    if row.state == RunState::Parked {
        let message = "the run is parked; answer its request for approval first";
        return Err(Failure::new(StatusCode::CONFLICT, "parked", message));
    }
    let Some(live) = live else { return Err(unsteered(&SteerError::Ended)) };
    // A queued run has no driver that could take the message.
    let Some(steering) = live.steering() else {
        let message = "the run has not started yet; repeat the request later";
        return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "not_started", message));
    };
    send(&steering).map_err(|error| unsteered(&error))?;
    Ok(json(StatusCode::ACCEPTED, &RunView::of(&app.runs, row)))
}

/// Returns the error of a message or of limits that were refused.
pub(crate) fn unsteered(error: &SteerError) -> Failure {
    // The message of the error is for the client: it names the limit or the length, and no secret.
    let (status, code) = match error {
        SteerError::Ended => (StatusCode::CONFLICT, "not_open"),
        SteerError::Parked => (StatusCode::CONFLICT, "parked"),
        SteerError::TooLong { .. } | SteerError::TooMuch => {
            (StatusCode::PAYLOAD_TOO_LARGE, "too_large")
        }
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "invalid_request"),
    };
    Failure::new(status, code, error.to_string())
}
