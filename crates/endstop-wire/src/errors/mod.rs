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
    #[test]
    fn long_prompt_is_recognised_by_its_counts() {
        use ErrorClass as C;
        let told = |message: &str| serde_json::json!({"error": {"message": message}}).to_string();
        // Wordings of servers that are in the table, and of no server.
        for message in [
            "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.",
            "invalid params, context window exceeds limit (2013)",
            "Unable to submit request because the input token count is 1300000 but model only supports up to 1048576.",
            "prompt token count of 83000 exceeds the limit of 64000",
            "You passed 4097 input tokens and requested 100 output tokens. However, the model's context length is only 4096 tokens",
            "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
            "The prompt has 131,100 tokens, more than the 131,072 that this deployment takes.",
            "input of 9001 tokens is above the window of 8192 tokens",
            "Conversation too long: 210000 > 200000 tokens",
            "sequence of 40000 tokens is over the limit (32768)",
        ] {
            assert_eq!(class(400, &told(message)), C::ContextLengthExceeded, "{message}");
        }
        assert_eq!(
            class(413, &told("The prompt of 9000 tokens is larger than 8192 tokens.")),
            C::ContextLengthExceeded
        );
        // The output cap, an allowance in a time window, or another number.
        for (status, message, want) in [
            (
                400,
                "max_tokens is too large: 100000. This model supports at most 4096 completion tokens for this prompt",
                C::InvalidRequest,
            ),
            (
                400,
                "`max_output_tokens` of 70000 exceeds the limit of 65536 tokens, whatever the input is",
                C::InvalidRequest,
            ),
            (400, "too many input tokens per minute: 90000 of 60000", C::InvalidRequest),
            (
                429,
                "The prompt of 9000 tokens exceeds your limit of 8000 tokens per minute",
                C::RateLimit,
            ),
            (429, "The input of 9000 tokens exceeds 8192", C::RateLimit),
            (400, "The token 50256 in `input` exceeds the vocabulary", C::InvalidRequest),
            (400, "messages: at least one message is required", C::InvalidRequest),
            (400, "The input has 300 images, and at most 100 are allowed", C::InvalidRequest),
        ] {
            assert_eq!(class(status, &told(message)), want, "{message}");
        }
        let cap = r#"{"error":{"message":"9000 tokens are more than 8192 in this context","param":"max_completion_tokens"}}"#;
        assert_eq!(class(400, cap), C::InvalidRequest);
    }

    #[test]
    fn allowance_counts_by_its_reset() {
        use ErrorClass as C;
        let date = [("date", "Sun, 06 Nov 1994 08:49:37 GMT")];
        for (headers, status, body, want) in [
            (
                &[][..],
                429,
                r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached","resets_in_seconds":14000}}"#,
                (C::RateLimit, Some(14_000_000)),
            ),
            (
                &date,
                429,
                r#"{"error":{"type":"usage_limit_reached","message":"x","resets_at":784111877}}"#,
                (C::RateLimit, Some(100_000)),
            ),
            // Without the time of the response, a moment does not give the time to wait.
            (
                &[],
                429,
                r#"{"error":{"type":"usage_limit_reached","message":"x","resets_at":784111877}}"#,
                (C::QuotaExhausted, None),
            ),
            (
                &[],
                429,
                r#"{"error":{"type":"usage_limit_reached","message":"The usage limit has been reached"}}"#,
                (C::QuotaExhausted, None),
            ),
            (
                &[("retry-after", "60")],
                429,
                r#"{"error":{"message":"Weekly limit reached"}}"#,
                (C::RateLimit, Some(60_000)),
            ),
            (
                &[],
                429,
                r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You have exhausted your capacity on this model. Your quota will reset after 5h12m3s."}}"#,
                (C::RateLimit, Some(18_723_000)),
            ),
            (
                &[],
                429,
                r#"{"error":{"code":"insufficient_quota","message":"You exceeded your current quota","resets_in_seconds":5}}"#,
                (C::QuotaExhausted, Some(5_000)),
            ),
            (
                &[],
                429,
                r#"{"error":{"message":"Rate limit reached. Please try again in 8s."}}"#,
                (C::RateLimit, Some(8_000)),
            ),
        ] {
            let error = classify(status, &headers.iter().copied().collect(), body, "openai");
            assert_eq!((error.class, error.retry_after_ms), want, "{body}");
        }
        for code in ["1308", "1310", "1316"] {
            let body = format!(
                r#"{{"error":{{"code":"{code}","message":"Usage limit reached. Your limit will reset at 2026-01-02 03:04:05"}}}}"#
            );
            assert_eq!(classify(429, &Headers::new(), &body, "zai").class, C::QuotaExhausted);
        }
    }

    #[test]
    fn failed_generation_is_retried() {
        use ErrorClass as C;
        for body in [
            r#"{"error":{"message":"Failed to call a function.","type":"invalid_request_error","code":"tool_use_failed","failed_generation":"<function=x"}}"#,
            r#"{"error":{"message":"Failed to generate JSON.","type":"invalid_request_error","code":"json_validate_failed","failed_generation":"{"}}"#,
            r#"{"error":{"code":"tool_use_failed"}}"#,
        ] {
            assert_eq!(class(400, body), C::ServerError, "{body}");
            assert_eq!(class(200, body), C::ServerError, "{body}");
        }
        assert_eq!(class(400, r#"{"error":{"code":"tool_use","message":"x"}}"#), C::InvalidRequest);
    }

    #[test]
    fn minimax_reports_errors_after_a_success() {
        use ErrorClass as C;
        for (code, want) in [
            (1001, C::Timeout),
            (1002, C::RateLimit),
            (1004, C::Authentication),
            (1008, C::QuotaExhausted),
            (1026, C::ContentPolicy),
            (1033, C::ServerError),
        ] {
            let body = format!(
                r#"{{"id":"x","choices":null,"base_resp":{{"status_code":{code},"status_msg":"told"}}}}"#
            );
            let error = classify(200, &Headers::new(), &body, "openai");
            assert_eq!((error.class, error.message.as_str()), (want, "told"), "{code}");
        }
    }
}
