//! Reads the message that an agent recorded for a failed model call: its HTTP status, and the
//! provider's own text.
//!
//! ```text
//! API Error: 402 {"error":{"message":"…"}}                     Claude Code
//! 429 You exceeded your current quota                          programs on OpenAI's and Anthropic's SDKs
//! unexpected status 413 Payload Too Large: …, url: https://…   Codex
//! ```

use endstop_core::{ModelError, Termination};
use endstop_wire::Headers;
use endstop_wire::errors::classify;

/// Classifies a recorded failure. `recorded` is the status if the recording has it as a number; it
/// outranks the status in the message.
pub(super) fn read(message: &str, recorded: Option<u16>) -> ModelError {
    let (found, body) = split_status(message);
    // Without a status, `classify` can only use the message.
    classify(recorded.or(found).unwrap_or(0), &Headers::new(), body, "")
}

/// Maps a recorded failure of a provider to an ending.
pub(super) fn termination(message: &str, recorded: Option<u16>) -> Termination {
    // Some recorders store an error class, such as `rate_limit` or `AgentSafetyRefusalError`.
    let name = message.to_ascii_lowercase();
    if name.contains("refusal") || name.contains("content_filter") {
        return Termination::ErrorContentFiltered;
    }
    if matches!(name.as_str(), "authentication" | "authorization") {
        return Termination::ErrorProviderAuth;
    }
    read(message, recorded).class.termination()
}

/// Splits a message into its HTTP status and the text after it.
fn split_status(message: &str) -> (Option<u16>, &str) {
    let message = message.trim_start();
    if let Some(rest) = message.strip_prefix("unexpected status ")
        && let Some((status, rest)) = leading_status(rest)
    {
        // The reason phrase is the server's name of the status, and the body comes after it.
        let body = rest.split_once(": ").map_or("", |(_, body)| body);
        return (Some(status), body);
    }
    let error = message.split_once("API Error: ").map_or(message, |(_, error)| error);
    match leading_status(error) {
        Some((status, body)) => (Some(status), body),
        None => (None, error),
    }
}

/// Splits off a status of an error with three digits. A longer number is not a status.
fn leading_status(text: &str) -> Option<(u16, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let status = text[..digits].parse().ok().filter(|status| (400..600).contains(status))?;
    let rest = &text[digits..];
    // `404x` is a word, and `500.5` a number.
    let ends = rest.chars().next().is_none_or(|c| c.is_whitespace() || ":{[(<".contains(c));
    ends.then(|| (status, rest.trim_start_matches([':', ' '])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop_core::Termination as T;

    #[test]
    fn status_is_read_from_message() {
        for (message, status, body) in [
            ("API Error: 402 Run stopped.", Some(402), "Run stopped."),
            ("API Error: 529 {\"a\":1}", Some(529), "{\"a\":1}"),
            ("API Error: Connection error.", None, "Connection error."),
            ("429 Slow down.", Some(429), "Slow down."),
            ("429", Some(429), ""),
            ("503: no server", Some(503), "no server"),
            ("unexpected status 413 Payload Too Large: x: y", Some(413), "x: y"),
            ("unexpected status 404 Not Found", Some(404), ""),
            ("unexpected status soon", None, "unexpected status soon"),
            ("4294 tokens are left", None, "4294 tokens are left"),
            ("404x", None, "404x"),
            ("200 is fine", None, "200 is fine"),
            ("500.5 seconds", None, "500.5 seconds"),
            ("the server said 429", None, "the server said 429"),
            ("", None, ""),
        ] {
            assert_eq!(split_status(message), (status, body), "{message}");
        }
    }

    #[test]
    fn status_decides_provider_failure() {
        for (message, recorded, is) in [
            ("401 Invalid API key", None, T::ErrorProviderAuth),
            ("402 no credit", None, T::ErrorProviderRejected),
            ("unexpected status 413 Payload Too Large: x", None, T::ErrorPromptTooLong),
            ("Something happened.", Some(401), T::ErrorProviderAuth),
            ("Something happened.", None, T::ErrorDuringExecution),
            // The number is the response's own, and the message may quote another one.
            ("503 x", Some(400), T::ErrorProviderRejected),
        ] {
            assert_eq!(termination(message, recorded), is, "{message}");
        }
    }
}
