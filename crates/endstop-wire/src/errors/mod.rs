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
        retry_after_ms: retry_after_ms(headers, &body.words)
            .or_else(|| body.resets_in_ms(headers))
            .or_else(|| {
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
    "context window exceeds limit",
    "greater than the context length",
    "model is loaded with context length of only",
    "context length is only",
    "but model only supports up to",
    "model_max_prompt_tokens_exceeded",
    "maximum allowed input length",
    "context_exceeded",
    "longer than the maximum model length",
];

/// Words of a message that compares a count with a limit (lower case).
const ABOVE: &[&str] = &[
    "exceed",
    "too long",
    "too large",
    "too many",
    "larger than",
    "longer than",
    "greater than",
    "more than",
    "above the",
    "over the",
    "only supports",
    "at most",
    "does not fit",
    "maximum",
    "max ",
    "limit",
];

/// Words for the tokens of the request, of which a shorter conversation has fewer.
const PROMPT: &[&str] = &["prompt", "input", "context", "messages", "conversation", "sequence"];

/// Names of the output cap, in messages and as the parameter that an error names. A shorter conversation
/// does not change it.
const OUTPUT_CAP: &[&str] = &[
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_new_tokens",
    "max_tokens_to_sample",
    "maxoutputtokens",
    "maxtokens",
    "max_gen_len",
    "completion tokens",
    "output tokens",
];

/// Words for an allowance of tokens in a time window.
const PER_TIME: &[&str] = &[
    "per minute",
    "per-minute",
    "per min",
    "per second",
    "per hour",
    "per day",
    "per-day",
    "tpm",
    "tpd",
    "rate limit",
    "rate_limit",
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

/// Words for an allowance that comes back at some time, for example after five hours.
const ALLOWANCE: &[&str] = &[
    "usage_limit_reached",
    "usage limit reached",
    "usage limit has been reached",
    "usage_limit_exceeded",
    "usage limit exceeded",
    "exhausted your capacity",
    "weekly limit",
    "monthly limit",
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

/// `true` if a message names a count of prompt tokens above a limit, in whatever words.
fn names_long_prompt(body: &ErrorBody) -> bool {
    let words = body.words.as_str();
    let is_compared = words.contains("token") && any(words, PROMPT) && any(words, ABOVE);
    is_compared
        && !any(words, OUTPUT_CAP)
        && !body.param.as_deref().is_some_and(|param| any(param, OUTPUT_CAP))
        && !any(words, PER_TIME)
        && has_two_counts(&body.message)
}

/// `true` if a text has two different numbers of at least three digits: a count and its limit.
fn has_two_counts(text: &str) -> bool {
    let is_digit = |c: char| c.is_ascii_digit() || c == ',' || c == '_';
    let numbers = text.split(|c: char| !is_digit(c)).filter_map(|part| {
        let digits: String = part.chars().filter(char::is_ascii_digit).collect();
        digits.parse::<u64>().ok().filter(|number| *number >= 100)
    });
    let mut numbers = numbers;
    let Some(first) = numbers.next() else { return false };
    numbers.any(|number| number != first)
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
        || (matches!(status, 400 | 413) && names_long_prompt(body))
    {
        return ErrorClass::ContextLengthExceeded;
    }
    // The output of the model did not have the form that the provider requires, and another attempt may
    // have it. Source: <https://console.groq.com/docs/tool-use>.
    if body.failed_generation {
        return ErrorClass::ServerError;
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
    // If nothing says when it comes back, the run must not wait for it.
    if any(words, ALLOWANCE) {
        let returns = retry_after_ms(headers, words).or(body.resets_in_ms(headers)).is_some();
        return if returns { ErrorClass::RateLimit } else { ErrorClass::QuotaExhausted };
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
        // The server does not know the method, such as a file server that is taken for an API.
        501 => ErrorClass::NotFound,
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
mod tests;
