//! `GET /v1/runs`, `GET /v1/runs/{id}` and `GET /v1/agents`.

use super::answer::json;
use super::failure::Failure;
use super::view::{RunDetail, RunList, RunView};
use crate::access::Client;
use crate::app::App;
use crate::backend::{AgentInfo, Filter, RunState};
use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use endstop::{Limits, Termination};
use http::StatusCode;
use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Number of runs on a page, unless the client asks for another.
const USUAL_PAGE: u32 = 50;

/// The largest page.
const LARGEST_PAGE: u32 = 200;

/// An agent.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AgentView {
    /// Name of the agent.
    name: String,
    /// Name of its model.
    model: Option<String>,
    /// The limits, which a request may lower. Times are in milliseconds, as `NAME_ms`.
    limits: Map<String, Value>,
}

/// The agents that the client may start.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct AgentList {
    agents: Vec<AgentView>,
}

pub(super) async fn agents(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
) -> Response {
    let view = |agent: AgentInfo| {
        let limits = spelled(&agent.limits);
        AgentView { name: agent.name, model: agent.model, limits }
    };
    let agents = app.runs.agents(&client).into_iter().map(view).collect();
    json(StatusCode::OK, &AgentList { agents })
}

/// Returns limits as a request spells them.
fn spelled(limits: &Limits) -> Map<String, Value> {
    let Ok(Value::Object(limits)) = serde_json::to_value(limits) else { return Map::new() };
    let member = |(name, value): (String, Value)| match (value["secs"].as_u64(), &value["nanos"]) {
        (Some(secs), nanos) => {
            let ms = secs.saturating_mul(1000) + nanos.as_u64().unwrap_or(0) / 1_000_000;
            (format!("{name}_ms"), ms.into())
        }
        (None, _) => (name, value),
    };
    limits.into_iter().map(member).collect()
}

pub(super) async fn list(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    RawQuery(query): RawQuery,
) -> Result<Response, Failure> {
    let filter = filter(query.as_deref().unwrap_or_default())?;
    let most = filter.most;
    // One more than asked for shows if there is another page.
    let runs = app.runs.list(&client, Filter { most: most + 1, ..filter }).await?;
    let next = runs.get(most as usize - 1).map(|run| run.number.to_string());
    let next = next.filter(|_| runs.len() > most as usize);
    let runs = runs.into_iter().take(most as usize);
    let runs = runs.map(|run| RunView::of(run).shortened()).collect();
    Ok(json(StatusCode::OK, &RunList { runs, next }))
}

/// Reads the query of a list.
fn filter(query: &str) -> Result<Filter, Failure> {
    let mut filter = Filter { most: USUAL_PAGE, ..Filter::default() };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = percent_decode_str(value).decode_utf8_lossy().into_owned();
        let wrong = |expected: &str| {
            Failure::bad_request(format!("invalid `{name}` in the query: expected {expected}"))
        };
        match name {
            "category" => {
                let mut all = Termination::all().iter().map(|ending| ending.category());
                let known = all.any(|category| category.to_string() == value);
                let value = Some(value).filter(|_| known);
                filter.category =
                    Some(value.ok_or_else(|| wrong("success, retryable, capacity or fatal"))?);
            }
            "state" => {
                let state = RunState::parse(&value);
                filter.state =
                    Some(state.ok_or_else(|| wrong("queued, running, parked or ended"))?);
            }
            "agent" => filter.agents = Some(vec![value]),
            "before" => {
                let before = value.parse::<i64>().ok();
                filter.before = Some(before.ok_or_else(|| wrong("the `next` of a page"))?);
            }
            "limit" => {
                let most = value.parse::<u32>().ok();
                filter.most = most
                    .filter(|most| (1..=LARGEST_PAGE).contains(most))
                    .ok_or_else(|| wrong("a number from 1 to 200"))?;
            }
            _ => {
                return Err(Failure::bad_request(
                    "unknown parameter in the query: expected category, state, agent, before or \
                     limit",
                ));
            }
        }
    }
    Ok(filter)
}

pub(super) async fn show(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    let run = app.runs.get(&client, &id).await?;
    // The outcome is large, so it is read only for a run that has one.
    let ended = run.state == RunState::Ended;
    let outcome = if ended { app.runs.outcome(&run).await? } else { None };
    let ending = run.termination.as_deref().and_then(|name| name.parse::<Termination>().ok());
    let ending = ending.filter(|ending| !ending.is_success());
    let next = app.options.advice.zip(ending).map(|(advice, ending)| advice(ending));
    Ok(json(StatusCode::OK, &RunDetail { run: RunView::of(run), outcome, next }))
}
