//! Classes of errors by their words, counts and resets.

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
