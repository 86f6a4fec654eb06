//! The table of all operations, from which the router and the OpenAPI document are made.

use super::control::{Answer, Changed, Said};
use super::read::AgentList;
use super::view::{RunDetail, RunList, RunView};
use super::{control, create, events, read, status};
use crate::app::App;
use crate::backend::{BranchRequest, RunBody};
use axum::routing::{MethodRouter, get, post};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use std::sync::Arc;

/// An operation of the API.
pub(super) struct Operation {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// Parameters of the query and headers: where, name, meaning.
    pub(super) parameters: &'static [(&'static str, &'static str, &'static str)],
    pub(super) request: Option<SchemaOf>,
    pub(super) answer: Answered,
    /// The statuses of its errors, in addition to 400, 401 and 421.
    pub(super) errors: &'static [(u16, &'static str)],
    pub(super) handler: fn() -> MethodRouter<Arc<App>>,
}

/// Returns the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// The answer of an operation that succeeds.
pub(super) enum Answered {
    Json(u16, SchemaOf),
    Text(&'static str),
}

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const NO_RUN: (u16, &str) = (404, "there is no such run for this token");
const STEERING: &[(u16, &str)] = &[
    NO_RUN,
    (409, "the run has ended, or is parked"),
    (413, "the message is too long"),
    (422, "the message is blank, or a limit is unknown, invalid or looser"),
    (503, "the run has not started yet"),
];
const STARTING: &[(u16, &str)] = &[
    (404, "there is no such run or agent for this token"),
    (413, "the body is too large"),
    (415, "the body is not JSON"),
    (
        422,
        "a limit is raised, the task is blank, the run has no such turn, or the key was used before",
    ),
    (429, "the queue is full; see Retry-After"),
    (503, "the server is shutting down, or the engine of durable runs does not answer"),
];
const IDEMPOTENT: &[(&str, &str, &str)] = &[(
    "header",
    "Idempotency-Key",
    "Makes the request safe to repeat: the same key and body return the same run.",
)];

/// Returns all operations.
pub(super) fn operations() -> Vec<Operation> {
    // One vector, because the order is that of the document.
    let mut all = vec![
        Operation {
            method: "post",
            path: "/v1/runs",
            id: "createRun",
            summary: "Starts a run of a named agent, or queues it.",
            parameters: IDEMPOTENT,
            request: Some(schema::<RunBody>),
            answer: Answered::Json(201, schema::<RunView>),
            errors: STARTING,
            handler: || post(create::create),
        },
        Operation {
            method: "get",
            path: "/v1/runs",
            id: "listRuns",
            summary: "Lists runs, the newest first.",
            parameters: &[
                ("query", "category", "success, retryable, capacity or fatal."),
                ("query", "state", "queued, running, parked or ended."),
                ("query", "agent", "Name of an agent."),
                ("query", "limit", "Number of runs, 1 to 200; 50 by default."),
                ("query", "before", "The `next` of the page before."),
            ],
            request: None,
            answer: Answered::Json(200, schema::<RunList>),
            errors: &[],
            handler: || get(read::list),
        },
        Operation {
            method: "get",
            path: "/v1/runs/{id}",
            id: "getRun",
            summary: "Returns a run, with its outcome if it has ended.",
            parameters: &[],
            request: None,
            answer: Answered::Json(200, schema::<RunDetail>),
            errors: &[NO_RUN],
            handler: || get(read::show),
        },
        Operation {
            method: "get",
            path: "/v1/runs/{id}/events",
            id: "readEvents",
            summary: "Streams the events of a run. Numbered events are never lost.",
            parameters: &[
                ("header", "Last-Event-ID", "The last event that the client has."),
                ("query", "after", "The same, for clients that cannot set the header."),
            ],
            request: None,
            answer: Answered::Text("text/event-stream"),
            errors: &[(204, "there is nothing after this event"), NO_RUN],
            handler: || get(events::events),
        },
        Operation {
            method: "get",
            path: "/v1/agents",
            id: "listAgents",
            summary: "Lists the agents that this token may start.",
            parameters: &[],
            request: None,
            answer: Answered::Json(200, schema::<AgentList>),
            errors: &[],
            handler: || get(read::agents),
        },
    ];
    // In functions of their own, because one list of all would be too long to read.
    all.extend(controls());
    all.extend(statuses());
    all
}

/// Returns the operations that change a run.
fn controls() -> [Operation; 6] {
    let stop = |path, id, summary, handler| Operation {
        method: "post",
        path,
        id,
        summary,
        parameters: &[],
        request: None,
        answer: Answered::Json(202, schema::<RunView>),
        errors: &[NO_RUN, (503, "the engine of durable runs does not answer")],
        handler,
    };
    [
        stop(
            "/v1/runs/{id}/cancel",
            "cancelRun",
            "Cancels a run: its tools get their grace period. Repeating it changes nothing.",
            || post(control::cancel),
        ),
        stop(
            "/v1/runs/{id}/terminate",
            "terminateRun",
            "Terminates a run at once. Repeating it changes nothing.",
            || post(control::terminate),
        ),
        Operation {
            method: "post",
            path: "/v1/runs/{id}/answer",
            id: "answerApproval",
            summary: "Answers a request for approval.",
            parameters: &[],
            request: Some(schema::<Answer>),
            answer: Answered::Json(200, schema::<RunView>),
            errors: &[
                (404, "there is no such run, or it has made no such request"),
                (409, "the request was answered before, or the run no longer waits for it"),
                (
                    503,
                    "the run does not work yet, is being parked, or its engine does not answer; repeat \
                     the request",
                ),
            ],
            handler: || post(control::answer),
        },
        Operation {
            method: "post",
            path: "/v1/runs/{id}/say",
            id: "sayToRun",
            summary: "Sends the model a message, which enters before its next call.",
            parameters: &[],
            request: Some(schema::<Said>),
            answer: Answered::Json(202, schema::<RunView>),
            errors: STEERING,
            handler: || post(control::say),
        },
        Operation {
            method: "post",
            path: "/v1/runs/{id}/limits",
            id: "changeLimits",
            summary: "Lowers limits of a run that works.",
            parameters: &[],
            request: Some(schema::<Changed>),
            answer: Answered::Json(202, schema::<RunView>),
            errors: STEERING,
            handler: || post(control::limits),
        },
        Operation {
            method: "post",
            path: "/v1/runs/{id}/branch",
            id: "branchRun",
            summary: "Starts a run of the same agent with the beginning of a run, or queues it.",
            parameters: IDEMPOTENT,
            request: Some(schema::<BranchRequest>),
            answer: Answered::Json(201, schema::<RunView>),
            errors: STARTING,
            handler: || post(create::branch),
        },
    ]
}

/// Returns the operations about the server.
fn statuses() -> [Operation; 3] {
    let text = |path, id, summary, errors, handler| Operation {
        method: "get",
        path,
        id,
        summary,
        parameters: &[],
        request: None,
        answer: Answered::Text("text/plain"),
        errors,
        handler,
    };
    [
        text("/healthz", "health", "Answers if the process works.", &[], || get(status::health)),
        text(
            "/readyz",
            "ready",
            "Answers if the server accepts runs.",
            &[(503, "the server is shutting down, or the engine of durable runs does not answer")],
            || get(status::ready),
        ),
        text("/metrics", "metrics", "Counters in Prometheus's text format.", &[], || {
            get(status::metrics)
        }),
    ]
}
