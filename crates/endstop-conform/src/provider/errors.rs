//! The errors of a provider, with the status and the body that each format's provider sends.

use crate::case::ProviderError;
use endstop_wire::WireFormat;
use endstop_wire::codec::write_error;
use serde_json::{Value, json};

/// A word in the message of each error, by which its text is found in an output.
pub(crate) const MARK: &str = "conform-4711";

/// The names of an error: status, its type for OpenAI and its code, its type for Anthropic, its status for Google.
struct Names(u16, &'static str, &'static str, &'static str, &'static str);

/// Returns the status and the body.
pub(super) fn body(format: WireFormat, error: ProviderError) -> (u16, Value) {
    let (names, message) = match error {
        ProviderError::Key => (
            Names(
                401,
                "invalid_request_error",
                "invalid_api_key",
                "authentication_error",
                "UNAUTHENTICATED",
            ),
            "Incorrect API key provided.",
        ),
        ProviderError::Quota => (
            Names(
                429,
                "insufficient_quota",
                "insufficient_quota",
                "billing_error",
                "PERMISSION_DENIED",
            ),
            "You exceeded your current quota, please check your plan and billing details.",
        ),
        ProviderError::RateLimit => (
            Names(
                429,
                "rate_limit_error",
                "rate_limit_exceeded",
                "rate_limit_error",
                "RESOURCE_EXHAUSTED",
            ),
            "Rate limit reached for requests.",
        ),
        ProviderError::Server => (
            Names(500, "server_error", "server_error", "api_error", "INTERNAL"),
            "The server had an error while processing your request.",
        ),
        ProviderError::PromptTooLong => (
            Names(
                400,
                "invalid_request_error",
                "context_length_exceeded",
                "invalid_request_error",
                "INVALID_ARGUMENT",
            ),
            match format {
                WireFormat::Anthropic | WireFormat::BedrockInvoke => {
                    "prompt is too long: 250000 tokens > 200000 maximum"
                }
                WireFormat::Gemini => {
                    "The input token count (2500000) exceeds the maximum number of tokens allowed (1048576)."
                }
                _ => {
                    "This model's maximum context length is 128000 tokens. However, your messages resulted in 250000 \
                     tokens. Please reduce the length of the messages."
                }
            },
        ),
    };
    let Names(status, kind, code, anthropic, google) = names;
    // Only OpenAI reports a quota as a rate limit.
    let status = match (error, format) {
        (ProviderError::Quota, WireFormat::OpenAiChat | WireFormat::OpenAiResponses) => 429,
        (ProviderError::Quota, _) => 402,
        _ => status,
    };
    let message = format!("{message} ({MARK})");
    let body = match format {
        WireFormat::Anthropic | WireFormat::BedrockInvoke => json!({
            "type": "error", "error": {"type": anthropic, "message": message}, "request_id": "req_1"
        }),
        WireFormat::Gemini => {
            json!({"error": {"code": status, "message": message, "status": google}})
        }
        WireFormat::CohereV1
        | WireFormat::CohereV2
        | WireFormat::Ollama
        | WireFormat::BedrockConverse => write_error(format, &message, "req_1"),
        _ => json!({"error": {"message": message, "type": kind, "param": null, "code": code}}),
    };
    (status, body)
}

fn overloaded() -> String {
    format!("The model is overloaded. ({MARK})")
}

/// Returns the body of an error in place of a response, under status 200.
pub(super) fn in_place(format: WireFormat) -> Value {
    let message = overloaded();
    match format {
        WireFormat::CohereV1
        | WireFormat::CohereV2
        | WireFormat::Ollama
        | WireFormat::BedrockConverse => write_error(format, &message, "req_1"),
        _ => json!({"error": {"message": message, "type": "server_error"}}),
    }
}

/// Returns the event of an error inside a stream.
pub(super) fn event(format: WireFormat) -> Vec<u8> {
    let message = overloaded();
    match format {
        WireFormat::Anthropic | WireFormat::BedrockInvoke => {
            let error = json!({"type": "error", "error": {"type": "overloaded_error", "message": message}});
            format!("event: error\ndata: {error}\n\n")
        }
        WireFormat::OpenAiResponses => {
            let error = json!({"type": "error", "code": "server_error", "message": message, "param": null,
                               "sequence_number": 90});
            format!("event: error\ndata: {error}\n\n")
        }
        WireFormat::Gemini => {
            let error = json!({"error": {"code": 503, "message": message, "status": "UNAVAILABLE"}});
            format!("data: {error}\r\n\r\n")
        }
        WireFormat::CohereV2 => {
            let delta = json!({"finish_reason": "ERROR", "error": message});
            let error = json!({"type": "message-end", "delta": delta});
            format!("event: message-end\ndata: {error}\n\n")
        }
        WireFormat::Ollama => format!("{}\n", in_place(format)),
        _ => {
            let error = json!({"error": {"message": message, "type": "server_error", "code": 502}});
            format!("data: {error}\n\n")
        }
    }
    .into_bytes()
}
