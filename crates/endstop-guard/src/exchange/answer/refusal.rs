//! Answers that are errors.

use super::reply::{Answer, Reply, Stamp};
use endstop_wire::WireFormat;
use serde_json::{Value, json};

/// Returns the refusal of a call, with this message. Every known client shows the message and gives
/// up after it: with status 402 Claude Code, with 400 all others.
pub fn refusal(reply: &Reply, message: &str, stamp: Stamp<'_>) -> Answer {
    let request_id = format!("req_{}", stamp.id);
    // Claude Code retries a 400 with fewer features, five times.
    if reply.stops_on_402 {
        let error = json!({"type": "billing_error", "message": message});
        return error_answer(
            402,
            &json!({"type": "error", "error": error, "request_id": request_id}),
        );
    }
    let body = match reply.format {
        WireFormat::Anthropic => {
            let error = json!({"type": "invalid_request_error", "message": message});
            json!({"type": "error", "error": error, "request_id": request_id})
        }
        WireFormat::Gemini => {
            json!({"error": {"code": 400, "message": message, "status": "INVALID_ARGUMENT"}})
        }
        WireFormat::BedrockConverse | WireFormat::BedrockInvoke | WireFormat::CohereV2 => {
            json!({"message": message})
        }
        WireFormat::Ollama => json!({"error": message}),
        _ => openai(message),
    };
    let mut answer = error_answer(400, &body);
    // AWS's SDKs find the type of an error in this header.
    if reply.format.in_frames() {
        answer.headers.push(("x-amzn-errortype", "ValidationException"));
    }
    answer
}

/// Returns the answer to a request for a WebSocket.
pub fn upgrade_required() -> Answer {
    let text = "endstop guard has no WebSocket; use HTTP";
    let mut answer = error_answer(426, &openai(text));
    answer.headers.push(("upgrade", "HTTP/1.1"));
    answer
}

/// Returns the answer to a request that guard does not accept, before any call is made.
pub fn bad_request(message: &str) -> Answer {
    error_answer(400, &openai(message))
}

/// Returns the answer to a request that continues a response which guard has not seen. It has the form that makes
/// the clients of these APIs send the whole conversation: Anthropic's error for a thread that cannot be continued,
/// OpenAI's for a response that is not stored.
pub fn unknown_response(shape: WireFormat, message: &str) -> Answer {
    let kind = "invalid_request_error";
    let body = if shape == WireFormat::Anthropic {
        let details = json!({"error_code": "thread_unsupported_request"});
        json!({"type": "error", "error": {"type": kind, "message": message, "details": details}})
    } else {
        let code = "previous_response_not_found";
        let param = "previous_response_id";
        json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
    };
    error_answer(400, &body)
}

fn openai(message: &str) -> Value {
    let kind = "invalid_request_error";
    json!({"error": {"message": message, "type": kind, "param": null, "code": null}})
}

fn error_answer(status: u16, body: &Value) -> Answer {
    let headers = vec![("content-type", "application/json"), ("x-should-retry", "false")];
    Answer { status, headers, body: body.to_string().into_bytes() }
}
