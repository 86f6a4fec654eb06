//! The card of an agent: what it is, and where and how it is reached.

use crate::access::Client;
use crate::api::{Failure, json};
use crate::app::App;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use http::header::HOST;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Value, json as value};
use std::sync::Arc;

/// The version of the protocol.
pub(super) const VERSION: &str = "1.0";

pub(super) async fn card(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(agent): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    if !app.runs.has_agent(&client, &agent) {
        return Err(unknown_agent());
    }
    // The gate has checked that the name is one of this server.
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    Ok(json(StatusCode::OK, &of_agent(&agent, scheme(&headers), host, !app.tokens.is_empty())))
}

/// The error for an agent that does not exist, or that the token may not use.
pub(super) fn unknown_agent() -> Failure {
    let message = "there is no such agent for this token; GET /v1/agents lists them";
    Failure::new(StatusCode::NOT_FOUND, "unknown_agent", message)
}

/// Returns the scheme of the addresses that clients use: that of a proxy in front of this server, which
/// speaks no TLS itself.
fn scheme(headers: &HeaderMap) -> &'static str {
    // Not checked, because a client that invents it changes only the address in its own answer.
    let forwarded = headers.get("x-forwarded-proto").map(HeaderValue::as_bytes);
    if forwarded == Some(b"https") { "https" } else { "http" }
}

fn of_agent(agent: &str, scheme: &str, host: &str, needs_token: bool) -> Value {
    let mut card = value!({
        "name": agent,
        "description": format!("The agent `{agent}` of an Endstop server. Every task ends exactly once, with a typed reason."),
        "version": env!("CARGO_PKG_VERSION"),
        "supportedInterfaces": [{
            "url": format!("{scheme}://{host}/a2a/{agent}"),
            "protocolBinding": "JSONRPC",
            "protocolVersion": VERSION,
        }],
        "capabilities": {"streaming": true, "pushNotifications": false, "extendedAgentCard": false},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain", "application/json"],
        "skills": [{
            "id": agent,
            "name": agent,
            "description": format!("Runs the agent `{agent}` on a task."),
            "tags": ["endstop"],
        }],
    });
    // Without tokens a client must not ask its user for one.
    if needs_token {
        card["securitySchemes"] =
            value!({"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}});
        card["securityRequirements"] = value!([{"schemes": {"bearer": {"list": []}}}]);
    }
    card
}
