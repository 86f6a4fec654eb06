//! What an error response means: one class for every provider's way of saying it.
//!
//! ```
//! use endstop_core::ErrorClass;
//! use endstop_wire::{Headers, errors::classify};
//! let body = r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}"#;
//! let e = classify(429, &Headers::new(), body, "openai");
//! assert_eq!(e.class, ErrorClass::QuotaExhausted);
//! ```
//!
//! What the words say goes before what the status says, since statuses lie. The order: context
//! length, quota, policy, overload, authentication, permission, rate, not found, the status alone.

mod body;
mod hints;

pub(crate) use body::ErrorBody;
pub use hints::{retry_after_ms, should_retry};

use crate::dialect::{Family, dialect};
use crate::headers::Headers;
use crate::redact::{address, excerpt};
use endstop_core::{ErrorClass, ModelError};

/// The header in which AWS names the exception that a response is.
const AWS_TYPE: &str = "x-amzn-errortype";

/// Reads the error that a response is, from its status, headers and body.
///
/// `provider` is the dialect's name; it settles the few cases where the same words and status mean
/// different things.
pub fn classify(status: u16, headers: &Headers, body: &str, provider: &str) -> ModelError {
    let body = ErrorBody::read(body);
    let body = match headers.get(AWS_TYPE) {
        Some(name) => body.named(AWS_TYPE, name),
        None => body,
    };
    from_body(&body, status, headers, provider)
}

/// As [`classify`], from a body that was read.
pub(crate) fn from_body(
    body: &ErrorBody,
    status: u16,
    headers: &Headers,
    provider: &str,
) -> ModelError {
    let class = class_of(body, status, headers, provider);
    let google = dialect(provider).is_ok_and(|d| d.family == Family::Gemini);
    let (field, value) = body.original(status, google);
    let message =
        if body.message.is_empty() { default_message(status) } else { excerpt(&body.message) };
    let message = match headers.get("location").filter(|_| (300..400).contains(&status)) {
        Some(to) => format!("{message}: {}", redirected(to)),
        None => message,
    };
    ModelError {
        class,
        status: (status != 0).then_some(status),
        message,
        retry_after_ms: retry_after_ms(headers, &body.words).or_else(|| {
            let spent = class == ErrorClass::RateLimit;
            spent.then(|| hints::allowance_ms(headers)).flatten()
        }),
        original: Some((field, excerpt(&value))),
    }
}

/// Keys are not sent after a redirect: where it leads is told instead.
fn redirected(to: &str) -> String {
    format!(
        "the server sends requests on to {}, and they are not sent there, with their key; where that is the right place, make it the base URL",
        excerpt(&address(to))
    )
}

fn default_message(status: u16) -> String {
    match status {
        0 | 200 => "the response carries an error without a message".to_owned(),
        _ => format!("HTTP status {status}"),
    }
}

/// Words that say the prompt does not fit the context window (lower case).
const CONTEXT: &[&str] = &[
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
    "input length and `max_tokens` exceed context limit",
    "exceeds the context window",
    "the input token count (",
    "exceeds the maximum number of tokens allowed",
    "exceeds the available context size",
    "exceed_context_size_error",
    "too_many_tokens",
    "too many tokens: size limit exceeded",
    "exceeded max context length",
    "exceeds the context length",
    "longer than the context length",
    "too_many_prompt_tokens",
    "input tokens exceeded",
    "input is too long for requested model",
    "exceeded model token limit",
    "please reduce the length of the messages",
    "range of input length should be",
    "longer than the model's context length",
    "must be less than the context length",
    "`inputs` tokens + `max_new_tokens` must be",
    "maximum prompt length is",
    "prompt exceeds max length",
];

/// Words that say that money, plan or allowance is used up.
const QUOTA: &[&str] = &[
    "insufficient_quota",
    "exceeded_current_quota",
    "exceeded your current quota",
    "insufficient balance",
    "insufficient credits",
    "insufficient_balance",
    "requires more credits",
    "credit balance",
    "no credits",
    "arrearage",
    "billing_error",
    "billing_hard_limit",
    "billing_not_active",
    "allocationquota",
    "free allocated quota exceeded",
    "call volume quota",
    "reached your specified api usage limits",
    "usage limit for this billing cycle",
    "spend limit",
    "spending limit",
];

/// Words that say that waiting a little helps, although a quota is named.
const WINDOW: &[&str] =
    &["per minute", "perminute", "per-minute", "per second", "in_flight_budget"];

/// Codes and types that say that a policy refused the prompt or the answer.
const POLICY_CODES: &[&str] = &[
    "content_filter",
    "content_policy",
    "responsibleaipolicyviolation",
    "data_inspection_failed",
    "datainspectionfailed",
    "moderation",
    "cyber_policy",
    "bio_policy",
    "misalignment_policy",
];

/// Messages that say so.
const POLICY_WORDS: &[&str] = &[
    "content filtering policy",
    "content management policy",
    "responsibleaipolicyviolation",
    "data_inspection_failed",
    "usage policy",
    "usage policies",
    "flagged by moderation",
    "requires moderation",
    "may contain inappropriate content",
];

/// Words that say that there is no capacity now.
const OVERLOADED: &[&str] = &[
    "overloaded",
    "slow_down",
    "modelnotready",
    "model_not_ready",
    "flex tier capacity exceeded",
    "modelservingerror",
    "modelunavailable",
    "no available provider",
    "no healthy upstream",
];

/// Words that say that the key is missing or wrong, whatever the status.
const AUTH: &[&str] = &[
    "api_key_invalid",
    "invalid_api_key",
    "invalidapikey",
    "incorrect api key",
    "api key not valid",
    "invalid api key",
    "authentication_error",
    "invalid_authentication",
    "missing authentication header",
    "api key is invalid",
];

/// Words that say that the model or deployment is not there.
const NOT_FOUND: &[&str] = &[
    "model_not_found",
    "modelnotfound",
    "model not found",
    "not_found_error",
    "notfounderror",
    "deploymentnotfound",
    "previous_response_not_found",
];

fn any(words: &str, table: &[&str]) -> bool {
    table.iter().any(|w| words.contains(w))
}

/// The class of an error, by the order of the catalogue: context length, quota, policy, overload,
/// authentication, permission, rate, not found, and last the status alone.
pub(crate) fn class_of(
    body: &ErrorBody,
    status: u16,
    headers: &Headers,
    provider: &str,
) -> ErrorClass {
    let words = body.words.as_str();
    let codes = body.codes.as_str();
    // In a 200 stream the error names its own status, where it does.
    let status = if status < 400 && (status != 0 || body.status.is_some()) {
        body.status.unwrap_or(if (200..300).contains(&status) { 200 } else { status })
    } else {
        status
    };
    let status = body.excepted.unwrap_or(status);
    if let Some(class) = body.code_of(provider) {
        return class;
    }
    if any(words, CONTEXT)
        || (words.contains("current length is") && words.contains("while limit is"))
    {
        return ErrorClass::ContextLengthExceeded;
    }
    // In a stream the request was let in, and the allowance is that of the moment.
    if !matches!(status, 0 | 200) && body.larger_than_its_allowance() {
        return ErrorClass::RequestTooLarge;
    }
    let daily = words.contains("perday") || words.contains("per day") || words.contains("limit: 0");
    let window = any(words, WINDOW)
        || body.retry_info
        || (status == 402 && headers.get("retry-after").is_some());
    if any(words, QUOTA) || status == 402 || (status == 429 && daily) {
        return if window && !daily { ErrorClass::RateLimit } else { ErrorClass::QuotaExhausted };
    }
    let refusable = matches!(status, 0 | 200 | 400 | 403 | 422 | 451);
    if refusable && (any(codes, POLICY_CODES) || any(words, POLICY_WORDS) || body.flagged) {
        return ErrorClass::ContentPolicy;
    }
    if any(words, OVERLOADED)
        || matches!(status, 503 | 529)
        || (status == 498 && provider == "groq")
        || (status == 502 && provider == "openrouter")
    {
        return ErrorClass::Overloaded;
    }
    if matches!(status, 401 | 498) || (any(words, AUTH) && !(status >= 402 && status != 404)) {
        return ErrorClass::Authentication;
    }
    if status == 403 || codes.contains("permission_error") {
        return ErrorClass::Permission;
    }
    let rate = any(codes, &["rate_limit", "ratelimit", "too_many_requests", "throttling"]);
    if status == 429 || (rate && status != 413) {
        return ErrorClass::RateLimit;
    }
    if status == 404 || any(words, NOT_FOUND) {
        return ErrorClass::NotFound;
    }
    if codes.contains("not_supported") {
        return ErrorClass::InvalidRequest;
    }
    match status {
        408 | 504 => ErrorClass::Timeout,
        413 => ErrorClass::RequestTooLarge,
        499 => ErrorClass::Cancelled,
        // 424 is a generation that failed (TGI).
        424 | 500..=599 => ErrorClass::ServerError,
        400..=499 => ErrorClass::InvalidRequest,
        0 | 200 => in_stream(codes),
        _ => ErrorClass::UnknownError,
    }
}

/// An error after a 200 that names no status: its type alone. A failure without a name came after
/// the request was accepted, so it is the server's.
fn in_stream(codes: &str) -> ErrorClass {
    if codes.contains("timeout") {
        ErrorClass::Timeout
    } else if codes.contains("request_too_large") {
        ErrorClass::RequestTooLarge
    } else if any(
        codes,
        &[
            "invalid_request",
            "badrequest",
            "bad_request",
            "validation",
            "conflict_error",
            "tool_use_failed",
            "invalid_prompt",
            "data_residency_mismatch",
            // What is wrong with an image of the request.
            "invalid_image",
            "invalid_base64_image",
            "image_too_",
            "image_file_",
            "image_parse_error",
            "image_media_type",
            "empty_image_file",
            "download_image",
        ],
    ) {
        ErrorClass::InvalidRequest
    } else if codes.contains("cancel") {
        ErrorClass::Cancelled
    } else {
        ErrorClass::ServerError
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(status: u16, body: &str) -> ErrorClass {
        classify(status, &Headers::new(), body, "openai").class
    }

    #[test]
    fn a_status_alone_has_a_class() {
        use ErrorClass as C;
        for (status, want) in [
            (400, C::InvalidRequest),
            (401, C::Authentication),
            (402, C::QuotaExhausted),
            (403, C::Permission),
            (404, C::NotFound),
            (408, C::Timeout),
            (409, C::InvalidRequest),
            (413, C::RequestTooLarge),
            (422, C::InvalidRequest),
            (429, C::RateLimit),
            (500, C::ServerError),
            (503, C::Overloaded),
            (504, C::Timeout),
            (529, C::Overloaded),
            (599, C::ServerError),
            (302, C::UnknownError),
            (600, C::UnknownError),
        ] {
            assert_eq!(class(status, ""), want, "{status}");
        }
    }

    #[test]
    fn words_outrank_the_status() {
        use ErrorClass as C;
        for (status, body, want) in [
            (
                429,
                r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}"#,
                C::QuotaExhausted,
            ),
            (
                429,
                r#"{"error":{"code":"billing_not_active","message":"Your account is not active"}}"#,
                C::QuotaExhausted,
            ),
            (
                429,
                r#"{"error":{"type":"engine_overloaded_error","message":"The engine is currently overloaded"}}"#,
                C::Overloaded,
            ),
            (
                400,
                r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#,
                C::QuotaExhausted,
            ),
            (
                400,
                r#"{"code":"invalid-argument","error":"Incorrect API key provided: xx"}"#,
                C::Authentication,
            ),
            (400, r#"{"code":"invalid-argument","error":"Model not found: grok-0"}"#, C::NotFound),
            (
                403,
                r#"{"error":{"message":"Input token count + max_tokens parameter must be less than the context length"}}"#,
                C::ContextLengthExceeded,
            ),
            (
                413,
                r#"{"error":{"code":"rate_limit_exceeded","type":"tokens","message":"Request too large for model x on tokens per minute (TPM): Limit 6000, Requested 9000"}}"#,
                C::RequestTooLarge,
            ),
            (
                429,
                r#"{"error":{"code":"rate_limit_exceeded","type":"tokens","message":"Rate limit reached for x on tokens per min (TPM): Limit 6000, Used 5900, Requested 900. Please try again in 8s."}}"#,
                C::RateLimit,
            ),
            (
                400,
                r#"{"error":{"code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"},"message":"The prompt triggered"}}"#,
                C::ContentPolicy,
            ),
            (200, r#"{"error":{"code":429,"message":"Provider returned error"}}"#, C::RateLimit),
            (
                200,
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                C::Overloaded,
            ),
            (
                200,
                r#"{"type":"error","error":{"type":"api_error","message":"Internal"}}"#,
                C::ServerError,
            ),
            (
                200,
                r#"{"type":"error","error":{"type":"rate_limit_error","message":"x"}}"#,
                C::RateLimit,
            ),
            (502, "<html><body>Bad Gateway</body></html>", C::ServerError),
        ] {
            assert_eq!(class(status, body), want, "{status} {body}");
        }
    }
}
