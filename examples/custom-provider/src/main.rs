//! Custom providers: one that only reports if a response is the last, and one that reports why it
//! ended.
//!
//! The example shows how runs with each of them end, and what the first kind must set. A run with
//! such a provider ends as `stop` only if the response contains more evidence than `is_terminal`:
//!
//! - `metadata["finish_reason"]` (or `stop_reason`) with a well-known value, which takes precedence
//!   over `is_terminal`: `stop` ends as `stop`, `length` as `error_output_truncated`; or
//! - text that is not blank, if `is_terminal` is true: read as complete, with medium confidence. If
//!   that is not good enough, `strict_detection(true)` reads it as unknown, and the run fails.
//!
//! A provider that knows the reason implements `detect_termination`, and its `is_terminal`
//! delegates to it. Run the example with `cargo run -p custom-provider`.
#![allow(clippy::print_stdout, reason = "the example prints its results")]

use endstop::provider::{
    CallEvent, CallSpec, CallStream, ModelSession, Provider, Response, SessionSpec,
};
use endstop::{
    Agent, Limits, Outcome,
    provider::{Confidence, SignalReason, TerminationSignal, TurnDelta},
};
use serde_json::Value;
use std::error::Error;

/// The answer of a pretended model: a text, and a metadata field with the vendor's finish value.
#[derive(Clone, Debug)]
struct Canned {
    text: &'static str,
    ended: Option<(&'static str, &'static str)>,
}

impl Canned {
    fn response(&self) -> Response {
        let mut response = Response::text(self.text);
        if let Some((field, value)) = self.ended {
            response.metadata.insert(field.to_owned(), Value::from(value));
        }
        response
    }
}

/// Answers every call alike: the text as a delta, then the complete response.
// The order is required: an event after `Ended` is not read, because the turn is complete then.
impl ModelSession for Canned {
    fn call(&mut self, _: CallSpec<'_>) -> CallStream {
        let events = [
            CallEvent::Delta(TurnDelta::Text(self.text.to_owned())),
            CallEvent::Ended(Box::new(self.response())),
        ];
        Box::pin(futures_util::stream::iter(events))
    }
}

/// A provider that implements `is_terminal` only.
struct YesNo {
    canned: Canned,
    yes: bool,
}

impl Provider for YesNo {
    fn name(&self) -> &'static str {
        "yes-no"
    }
    fn model(&self) -> &'static str {
        "canned"
    }
    fn open(&self, _: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(self.canned.clone())
    }
    fn is_terminal(&self, _: &Response) -> bool {
        self.yes
    }
}

/// A provider that reports the reason, from the three known values of the vendor's `status`.
struct Explains(Canned);

impl Provider for Explains {
    fn name(&self) -> &'static str {
        "explains"
    }
    fn model(&self) -> &'static str {
        "canned"
    }
    fn open(&self, _: SessionSpec) -> Box<dyn ModelSession> {
        Box::new(self.0.clone())
    }
    /// Delegates to the detection, so that the two cannot contradict each other.
    fn is_terminal(&self, response: &Response) -> bool {
        self.detect_termination(response).is_some_and(|signal| signal.should_terminate)
    }
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        let status = response.metadata.get("status")?.as_str()?;
        let (reason, confidence) = match status {
            "complete" => (SignalReason::NaturalCompletion, Confidence::High),
            "out_of_tokens" => (SignalReason::TokenLimitReached, Confidence::High),
            "withheld" => (SignalReason::ContentFiltered, Confidence::High),
            // An unknown value is not a success. `from_field` keeps its spelling for the outcome.
            _ => (SignalReason::Unknown, Confidence::Low),
        };
        Some(TerminationSignal::new(reason, confidence).from_field("status", status))
    }
}

/// Runs one task with a provider.
// The limit on turns ends the run if a provider never reports a last response.
async fn ask(provider: impl Provider + 'static, strict: bool) -> Result<Outcome, Box<dyn Error>> {
    let agent = Agent::builder(provider)
        // Without this, text and a true `is_terminal` count as a complete answer.
        .strict_detection(strict)
        .limits(Limits { max_turns: Some(3), ..Limits::default() })
        .build()?;
    Ok(agent.run("Say something.")?.outcome().await)
}

/// Returns a provider with `is_terminal` only, whose response may also have a finish reason.
fn yes_no(yes: bool, text: &'static str, finish: Option<&'static str>) -> YesNo {
    let ended = finish.map(|value| ("finish_reason", value));
    YesNo { canned: Canned { text, ended }, yes }
}

/// Returns a provider that reports this value of the vendor's `status`.
fn explains(status: &'static str) -> Explains {
    Explains(Canned { text: "A text.", ended: Some(("status", status)) })
}

fn show(what: &str, outcome: &Outcome) {
    let read = outcome.signal.as_ref().map_or_else(String::new, |signal| {
        let from = &signal.provider_specific;
        format!(
            "{} ({:?}) from {} = {:?}",
            signal.reason, signal.confidence, from.original_field, from.original_value
        )
    });
    println!("{what:<42} {:<24} {read}", outcome.termination.as_str());
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    println!("is_terminal alone:");
    show("  true, with text", &ask(yes_no(true, "A text.", None), false).await?);
    show("  true, with text, strict", &ask(yes_no(true, "A text.", None), true).await?);
    show(
        "  true, finish_reason = stop, strict",
        &ask(yes_no(true, "A text.", Some("stop")), true).await?,
    );
    show(
        "  true, finish_reason = length",
        &ask(yes_no(true, "Half a te", Some("length")), false).await?,
    );
    show("  true, without text", &ask(yes_no(true, "", None), false).await?);
    show("  false, with text", &ask(yes_no(false, "A text.", None), false).await?);
    println!("detect_termination, and is_terminal delegating to it:");
    for status in ["complete", "out_of_tokens", "withheld", "gone_fishing"] {
        show(&format!("  status = {status}"), &ask(explains(status), false).await?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use endstop::Termination;

    async fn ends(provider: impl Provider + 'static, strict: bool) -> (Termination, SignalReason) {
        let outcome = ask(provider, strict).await.unwrap();
        (outcome.termination, outcome.signal.unwrap().reason)
    }

    #[tokio::test]
    async fn terminal_flag_alone_needs_text() {
        let natural = SignalReason::NaturalCompletion;
        let said = ends(yes_no(true, "A text.", None), false).await;
        assert_eq!(said, (Termination::Stop, natural));
        let blank = ends(yes_no(true, " ", None), false).await;
        assert_eq!(blank, (Termination::ErrorNoProgress, natural));
        let strict = ends(yes_no(true, "A text.", None), true).await;
        assert_eq!(strict, (Termination::ErrorDuringExecution, SignalReason::Unknown));
    }

    #[tokio::test]
    async fn known_finish_value_overrides_terminal_flag() {
        for yes in [true, false] {
            let whole = ends(yes_no(yes, "A text.", Some("stop")), true).await;
            assert_eq!(whole, (Termination::Stop, SignalReason::NaturalCompletion));
            let cut = ends(yes_no(yes, "Half a te", Some("length")), true).await;
            assert_eq!(cut, (Termination::ErrorOutputTruncated, SignalReason::TokenLimitReached));
        }
    }

    #[tokio::test]
    async fn nonterminal_response_is_not_success() {
        let (termination, _) = ends(yes_no(false, "A text.", None), false).await;
        assert!(termination.is_error(), "{termination}");
    }

    #[tokio::test]
    async fn custom_detection_decides_the_ending() {
        for (status, termination) in [
            ("complete", Termination::Stop),
            ("out_of_tokens", Termination::ErrorOutputTruncated),
            ("withheld", Termination::ErrorContentFiltered),
            ("gone_fishing", Termination::ErrorDuringExecution),
        ] {
            for strict in [false, true] {
                let outcome = ask(explains(status), strict).await.unwrap();
                assert_eq!(outcome.termination, termination, "{status}");
                let from = outcome.signal.unwrap().provider_specific;
                assert_eq!((&*from.original_field, &*from.original_value), ("status", status));
            }
        }
    }

    #[test]
    fn terminal_flag_follows_detection() {
        let provider = explains("complete");
        assert!(provider.is_terminal(&provider.0.response()));
        assert!(!provider.is_terminal(&Response::text("no status at all")));
    }
}
