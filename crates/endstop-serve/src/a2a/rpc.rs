//! The JSON-RPC binding: reads a call, performs its method, and writes the answer.

use super::caller::Caller;
use super::card::{VERSION, unknown_agent};
use super::envelope::{Failed, RpcError, envelope};
use super::methods;
use super::stream;
use crate::access::Client;
use crate::api::{Failure, bounded, json};
use crate::app::App;
use crate::backend::trace_parent;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use endstop::core::bounded_json;
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use std::sync::Arc;

/// Memory that the values of one call may need, in bytes, as estimated.
const MOST_WEIGHT: u64 = 16 << 20;

/// A call. An absent id would be a notification, which no method of the protocol is.
#[derive(Deserialize)]
struct Call {
    jsonrpc: String,
    id: Value,
    method: String,
    #[serde(default)]
    params: Value,
}

pub(super) async fn call(
    State(app): State<Arc<App>>,
    Extension(client): Extension<Client>,
    Path(agent): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Failure> {
    if !app.runs.has_agent(&client, &agent) {
        return Err(unknown_agent());
    }
    // Errors of the body itself are errors of HTTP, because no call is known yet.
    let bytes = bounded(&app, &headers, body).await?;
    let call = match read(&bytes, &headers) {
        Ok(call) => call,
        Err((id, error)) => return Ok(answer(&id, Err(&error))),
    };
    // From here on every error is one of the protocol.
    let caller = Caller { app, client, agent, trace_parent: trace_parent(&headers) };
    let done = match &*call.method {
        "SendStreamingMessage" => stream::send(&caller, &call.id, call.params).await,
        "SubscribeToTask" => stream::subscribe(&caller, &call.id, call.params).await,
        method => {
            perform(&caller, method, call.params).await.map(|result| answer(&call.id, Ok(result)))
        }
    };
    match done {
        Ok(response) => Ok(response),
        Err(Failed::Rpc(error)) => Ok(answer(&call.id, Err(&error))),
        Err(Failed::Http(failure)) => Err(failure),
    }
}

fn read(bytes: &[u8], headers: &HeaderMap) -> Result<Call, (Value, RpcError)> {
    let wrong = |code, message: &str| (Value::Null, RpcError::new(code, message));
    let text = std::str::from_utf8(bytes).map_err(|_| wrong(-32700, "the body is not UTF-8"))?;
    if bounded_json::weight(bytes) > MOST_WEIGHT {
        return Err(wrong(-32600, "the body has too many values"));
    }
    let value: Value =
        serde_json::from_str(text).map_err(|_| wrong(-32700, "the body is not JSON"))?;
    if value.is_array() {
        return Err(wrong(-32600, "batches are not supported; send one call"));
    }
    // Kept, so that an error about the rest of the call can be matched to it.
    let id = value["id"].clone();
    let refused = |code, message: &str| (id.clone(), RpcError::new(code, message));
    let call: Call = serde_json::from_value(value)
        .map_err(|_| refused(-32600, "expected `jsonrpc`, `id`, `method` and `params`"))?;
    if call.jsonrpc != "2.0" || !(call.id.is_string() || call.id.is_number()) {
        return Err(refused(-32600, "expected `jsonrpc` \"2.0\", and an `id`"));
    }
    let version = headers.get("a2a-version").map(http::HeaderValue::as_bytes);
    if version.is_some_and(|version| version != VERSION.as_bytes()) {
        return Err(refused(-32009, "only version 1.0 of A2A is supported"));
    }
    Ok(call)
}

/// Performs a method with a single result.
async fn perform(caller: &Caller, method: &str, params: Value) -> Result<Value, Failed> {
    match method {
        "SendMessage" => methods::send(caller, params).await,
        "GetTask" => methods::get(caller, params).await,
        "CancelTask" => methods::cancel(caller, params).await,
        "ListTasks" => Err(RpcError::new(-32004, "use GET /v1/runs, which lists all runs").into()),
        "GetExtendedAgentCard" => Err(RpcError::new(-32007, "there is no extended card").into()),
        name if name.ends_with("PushNotificationConfig")
            || name.ends_with("PushNotificationConfigs") =>
        {
            Err(RpcError::new(-32003, "push notifications are not supported").into())
        }
        // Names of version 0.3, whose answers have other forms.
        name if name.contains('/') => Err(RpcError::new(
            -32009,
            "only version 1.0 of A2A is supported, whose methods are SendMessage, GetTask, …",
        )
        .into()),
        _ => Err(RpcError::new(
            -32601,
            "unknown method; expected SendMessage, SendStreamingMessage, GetTask, CancelTask or \
             SubscribeToTask",
        )
        .into()),
    }
}

fn answer(id: &Value, result: Result<Value, &RpcError>) -> Response {
    json(StatusCode::OK, &envelope(id, result))
}
