//! Classification of error responses: maps every provider's way of reporting an error to one
//! [`ErrorClass`].
//!
//! ```
//! use endstop_core::ErrorClass;
//! use endstop_wire::{Headers, errors::classify};
//! let body = r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota"}}"#;
//! let e = classify(429, &Headers::new(), body, "openai");
//! assert_eq!(e.class, ErrorClass::QuotaExhausted);
//! ```
//!
//! The error's words take precedence over its status, because statuses are often wrong. Checks run
//! in this order: context length, quota, policy, overload, authentication, permission, rate limit,
//! not found, and last the status alone.

mod body;
mod hints;

pub(crate) use body::ErrorBody;
pub use hints::{retry_after_ms, should_retry};

use crate::dialect::{WireFormat, dialect};
use crate::headers::Headers;
use crate::redact::{address, excerpt};
use endstop_core::{ErrorClass, ModelError};

/// Header in which AWS names the exception that a response represents.
const AWS_TYPE: &str = "x-amzn-errortype";

/// Classifies an error response by its status, headers and body.
///
/// `provider` is the dialect's name. It decides the few cases in which the same words and status
/// mean different things.
pub fn classify(status: u16, headers: &Headers, body: &str, provider: &str) -> ModelError {
    let body = ErrorBody::read(body);
    let body = match headers.get(AWS_TYPE) {
        Some(name) => body.named(AWS_TYPE, name),
        None => body,
    };
    from_body(&body, status, headers, provider)
}

/// Like [`classify`], for a body that is already parsed.
pub(crate) fn from_body(
    body: &ErrorBody,
    status: u16,
    headers: &Headers,
    provider: &str,
) -> ModelError {
    let class = class_of(body, status, headers, provider);
    // Google reports its status name in addition to the number, and the name says more.
    let google = dialect(provider).is_ok_and(|d| d.family == WireFormat::Gemini);
    let (field, value) = body.original(status, google);
    let message =
        if body.message.is_empty() { default_message(status) } else { excerpt(&body.message) };
    // The client does not follow redirects, so a 3xx is an error whose target helps the user.
    let message = match headers.get("location").filter(|_| (300..400).contains(&status)) {
        Some(to) => format!("{message}: {}", redirected(to)),
        None => message,
    };
    ModelError {
        class,
        status: (status != 0).then_some(status),
        message,
        // Reset headers are sent with every response. They only matter if the allowance is the
        // problem.
        retry_after_ms: retry_after_ms(headers, &body.words).or_else(|| {
            let spent = class == ErrorClass::RateLimit;
            spent.then(|| hints::allowance_ms(headers)).flatten()
        }),
        original: Some((field, excerpt(&value))),
    }
}

/// Explains a redirect. The client does not follow it, because that would send the key to another
/// server; the message names the target instead.
fn redirected(to: &str) -> String {
    format!(
        "the server redirects to {}; redirects are not followed because requests carry a key; if that address is right, set it as the base URL",
        excerpt(&address(to))
    )
}

fn default_message(status: u16) -> String {
    match status {
        0 | 200 => "the response carries an error without a message".to_owned(),
        _ => format!("HTTP status {status}"),
    }
}

/// Words for a prompt that does not fit the context window (lower case).
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

/// Words for an exhausted budget, plan or allowance.
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

/// Words for a limit that resets soon, even if the message names a quota.
const WINDOW: &[&str] =
    &["per minute", "perminute", "per-minute", "per second", "in_flight_budget"];

/// Codes and types of a policy that rejected the prompt or the answer.
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

/// Words in messages about such a policy.
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

/// Words for a lack of capacity.
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

/// Words for a missing or wrong key, whatever the status.
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

/// Words for a model or deployment that does not exist.
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

/// Returns the class of an error. The order of the checks is: context length, quota, policy,
/// overload, authentication, permission, rate limit, not found, and last the status alone.
pub(crate) fn class_of(
    body: &ErrorBody,
    status: u16,
    headers: &Headers,
    provider: &str,
) -> ErrorClass {
    let words = body.words.as_str();
    let codes = body.codes.as_str();
    let status = effective_status(body, status);
    // Codes that are specific to one provider come first, because the general words would misread
    // them.
    if let Some(class) = body.code_of(provider) {
        return class;
    }
    if any(words, CONTEXT)
        || (words.contains("current length is") && words.contains("while limit is"))
    {
        return ErrorClass::ContextLengthExceeded;
    }
    // Inside a stream the request was already accepted, so its size cannot be the cause; the limit
    // is momentary then.
    if !matches!(status, 0 | 200) && body.larger_than_its_allowance() {
        return ErrorClass::RequestTooLarge;
    }
    // A daily allowance is a quota, because waiting a few seconds does not help. Google reports a
    // model without any free allowance as `limit: 0`.
    let daily = words.contains("perday") || words.contains("per day") || words.contains("limit: 0");
    let window = any(words, WINDOW)
        || body.retry_info
        || (status == 402 && headers.get("retry-after").is_some());
    if any(words, QUOTA) || status == 402 || (status == 429 && daily) {
        return if window && !daily { ErrorClass::RateLimit } else { ErrorClass::QuotaExhausted };
    }
    // Policy words on other statuses, for example 429 or 500, belong to another error.
    let refusable = matches!(status, 0 | 200 | 400 | 403 | 422 | 451);
    if refusable && (any(codes, POLICY_CODES) || any(words, POLICY_WORDS) || body.flagged) {
        return ErrorClass::ContentPolicy;
    }
    if any(words, OVERLOADED)
        || matches!(status, 503 | 529)
        // Groq and OpenRouter use these statuses for a lack of capacity.
        || (status == 498 && provider == "groq")
        || (status == 502 && provider == "openrouter")
    {
        return ErrorClass::Overloaded;
    }
    // Bad keys are reported with 400 by xAI and Google, so words count there. From 402 on the
    // status is more reliable, except for 404.
    if matches!(status, 401 | 498) || (any(words, AUTH) && !(status >= 402 && status != 404)) {
        return ErrorClass::Authentication;
    }
    if status == 403 || codes.contains("permission_error") {
        return ErrorClass::Permission;
    }
    let rate = any(codes, &["rate_limit", "ratelimit", "too_many_requests", "throttling"]);
    // A 413 with a rate code is a request that is larger than the whole allowance.
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
        // TGI reports a failed generation as 424.
        424 | 500..=599 => ErrorClass::ServerError,
        400..=499 => ErrorClass::InvalidRequest,
        0 | 200 => in_stream(codes),
        _ => ErrorClass::UnknownError,
    }
}

/// Returns the status that describes the error: the one in the body if that is more exact.
fn effective_status(body: &ErrorBody, status: u16) -> u16 {
    // After a 200 the stream has already begun, so the error's own status, if any, is the only
    // useful one.
    let status = if status < 400 && (status != 0 || body.status.is_some()) {
        body.status.unwrap_or(if (200..300).contains(&status) { 200 } else { status })
    } else {
        status
    };
    body.excepted.unwrap_or(status)
}

/// Classifies an error after a 200 that names no status, by its type alone. A failure without a
/// known type is the server's, because the request was already accepted.
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
            // Errors in an image of the request.
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
    fn status_without_body_has_class() {
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
