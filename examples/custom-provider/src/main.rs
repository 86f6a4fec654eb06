//! Providers of one's own: one that only says yes or no, and one that says why a response ended.
//!
//! What this shows: how each ends its runs, and what a provider that knows no more than yes or no
//! must set. Such a provider ends a run as `stop` only if its response says more than the yes:
//!
//! - `metadata["finish_reason"]` (or `stop_reason`) with a well-known value, which is read before
//!   the yes or no: `stop` ends as `stop`, `length` as `error_output_truncated`; or
//! - a text that is not blank, with a yes: read as complete, with medium confidence. Where that is
//!   not good enough, `strict_detection(true)` reads it as unknown, and the run fails.
//!
//! A provider that can tell implements `detect_termination`, and lets `is_terminal` delegate to
//! it. Run it with `cargo run -p custom-provider`.
#![allow(clippy::print_stdout, reason = "an example says what happened")]

use endstop::provider::{
    CallEvent, CallSpec, CallStream, Provider, Response, Session, SessionSpec,
};
use endstop::{
    AgentLoop, Confidence, Limits, Outcome, SignalReason, StartError, TerminationSignal, TurnDelta,
};
use serde_json::Value;

/// What the pretended model answers: the text, and how it ended in the vendor's own words.
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

/// Every call brings the same answer: the text as a delta, then the whole response.
impl Session for Canned {
    fn call(&mut self, _: CallSpec<'_>) -> CallStream {
        let events = [
            CallEvent::Delta(TurnDelta::Text(self.text.to_owned())),
            CallEvent::Ended(Box::new(self.response())),
        ];
        Box::pin(futures_util::stream::iter(events))
    }
}

/// Only says whether a response is the last: `is_terminal` alone.
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
    fn open(&self, _: SessionSpec) -> Box<dyn Session> {
        Box::new(self.canned.clone())
    }
    fn is_terminal(&self, _: &Response) -> bool {
        self.yes
    }
}

/// Says why: the vendor's `status` has three words of its own, and all are read here.
struct Explains(Canned);

impl Provider for Explains {
    fn name(&self) -> &'static str {
        "explains"
    }
    fn model(&self) -> &'static str {
        "canned"
    }
    fn open(&self, _: SessionSpec) -> Box<dyn Session> {
        Box::new(self.0.clone())
    }
    /// The yes or no is what the detection says: the two cannot contradict each other.
    fn is_terminal(&self, response: &Response) -> bool {
        self.detect_termination(response).is_some_and(|signal| signal.should_terminate)
    }
    fn detect_termination(&self, response: &Response) -> Option<TerminationSignal> {
        let status = response.metadata.get("status")?.as_str()?;
        let (reason, confidence) = match status {
            "complete" => (SignalReason::NaturalCompletion, Confidence::High),
            "out_of_tokens" => (SignalReason::TokenLimitReached, Confidence::High),
            "withheld" => (SignalReason::ContentFiltered, Confidence::High),
            // A word that is not known is not a success; its spelling is kept.
            _ => (SignalReason::Unknown, Confidence::Low),
        };
        Some(TerminationSignal::new(reason, confidence).from_field("status", status))
    }
}

/// Runs one task with a provider.
async fn ask(provider: impl Provider + 'static, strict: bool) -> Result<Outcome, StartError> {
    let agent = AgentLoop::builder(provider)
        .strict_detection(strict)
        .limits(Limits { max_turns: Some(3), ..Limits::default() })
        .build()?;
    Ok(agent.run("Say something.")?.outcome().await)
}

/// A provider that says yes or no, with what its response says beside that.
fn yes_no(yes: bool, text: &'static str, finish: Option<&'static str>) -> YesNo {
    let ended = finish.map(|value| ("finish_reason", value));
    YesNo { canned: Canned { text, ended }, yes }
}

/// A provider that says why, in the vendor's words.
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
async fn main() -> Result<(), StartError> {
    println!("is_terminal alone:");
    show("  yes, with a text", &ask(yes_no(true, "A text.", None), false).await?);
    show("  yes, with a text, strict", &ask(yes_no(true, "A text.", None), true).await?);
    show(
        "  yes, finish_reason = stop, strict",
        &ask(yes_no(true, "A text.", Some("stop")), true).await?,
    );
    show(
        "  yes, finish_reason = length",
        &ask(yes_no(true, "Half a te", Some("length")), false).await?,
    );
    show("  yes, without a text", &ask(yes_no(true, "", None), false).await?);
    show("  no, with a text", &ask(yes_no(false, "A text.", None), false).await?);
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
    async fn a_yes_counts_with_a_text_and_not_without_or_where_detection_is_strict() {
        let natural = SignalReason::NaturalCompletion;
        let said = ends(yes_no(true, "A text.", None), false).await;
        assert_eq!(said, (Termination::Stop, natural));
        let blank = ends(yes_no(true, " ", None), false).await;
        assert_eq!(blank, (Termination::ErrorNoProgress, natural));
        let strict = ends(yes_no(true, "A text.", None), true).await;
        assert_eq!(strict, (Termination::ErrorDuringExecution, SignalReason::Unknown));
    }

    #[tokio::test]
    async fn a_well_known_value_says_more_than_the_yes_or_no() {
        for yes in [true, false] {
            let whole = ends(yes_no(yes, "A text.", Some("stop")), true).await;
            assert_eq!(whole, (Termination::Stop, SignalReason::NaturalCompletion));
            let cut = ends(yes_no(yes, "Half a te", Some("length")), true).await;
            assert_eq!(cut, (Termination::ErrorOutputTruncated, SignalReason::TokenLimitReached));
        }
    }

    #[tokio::test]
    async fn a_no_is_never_a_success() {
        let (termination, _) = ends(yes_no(false, "A text.", None), false).await;
        assert!(termination.is_error(), "{termination}");
    }

    #[tokio::test]
    async fn a_detection_of_its_own_is_believed_in_its_own_words() {
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
    fn the_yes_or_no_follows_from_the_detection() {
        let provider = explains("complete");
        assert!(provider.is_terminal(&provider.0.response()));
        assert!(!provider.is_terminal(&Response::text("no status at all")));
    }
}
