//! Finds the sentence with which Endstop's guard stopped a session: as the message of the failed call,
//! or as the answer that the program stored for the model's.
//!
//! ```text
//! if let Some(stop) = GuardStop::of(&run) { println!("{}: {}", stop.termination, stop.sentence); }
//! ```

use super::provider_error;
use crate::model::{Role, Step, Trajectory};
use crate::read::is_aside;
use endstop_core::{Termination, stop_message};
use std::borrow::Cow;

/// A stop by guard.
pub(super) struct GuardStop<'r> {
    /// The ending that it names.
    pub(super) termination: Termination,
    /// The sentence.
    pub(super) sentence: Cow<'r, str>,
}

impl<'r> GuardStop<'r> {
    /// Returns the stop, if the session ends with one.
    pub(super) fn of(run: &'r Trajectory<'_>) -> Option<GuardStop<'r>> {
        let ending = run.ending.as_ref();
        // A person who stopped the program after that has the last word.
        if ending.is_some_and(|ending| ending.reason == "cancelled") {
            return None;
        }
        let message = ending.and_then(|ending| ending.failure_mode.as_deref());
        if let Some(stop) = message.and_then(in_error) {
            return Some(stop);
        }
        let last = last_step(run)?;
        let failed = last.extra.as_ref().is_some_and(|all| all.contains_key("isApiErrorMessage"));
        if failed && ending.is_none() { in_error(&last.text) } else { in_answer(last) }
    }
}

/// Returns `true` if the turn's text is guard's sentence in place of an answer.
pub(super) fn is_stop(step: &Step<'_>) -> bool {
    in_answer(step).is_some()
}

/// Returns the last step that is not of the program alone.
fn last_step<'r, 't>(run: &'r Trajectory<'t>) -> Option<&'r Step<'t>> {
    let mut steps = run.steps.iter().rev().filter(|step| !step.copied && !is_aside(step));
    steps.find(|step| step.role != Role::System)
}

fn in_answer<'r>(step: &'r Step<'_>) -> Option<GuardStop<'r>> {
    // Guard's own turn has no call. A model that quotes the sentence usually has more to say before
    // it, and the sentence must come first.
    let stops = step.is_turn() && step.calls.is_empty();
    let termination = stops.then(|| stop_message::termination(&step.text)).flatten()?;
    Some(GuardStop { termination, sentence: Cow::Borrowed(&step.text) })
}

/// Reads the message of a failed call. The sentence is the provider's text: after the status, or in
/// the body's `message`.
fn in_error<'r>(message: &str) -> Option<GuardStop<'r>> {
    let said = provider_error::read(message, None).message;
    let termination = stop_message::termination(&said)?;
    Some(GuardStop { termination, sentence: Cow::Owned(said) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Call, Ending};
    use Termination as T;

    const SENTENCE: &str = "Run stopped by endstop: error_max_turns (3 turns). run a";

    fn stop(steps: Vec<Step<'static>>, ending: Option<Ending<'static>>) -> Option<(T, String)> {
        let run = Trajectory { ending, steps, ..Trajectory::new("s") };
        GuardStop::of(&run).map(|stop| (stop.termination, stop.sentence.into_owned()))
    }

    fn stopped() -> (T, String) {
        (T::ErrorMaxTurns, SENTENCE.to_owned())
    }

    fn failed(message: &str) -> Ending<'static> {
        let failure_mode = Some(message.to_owned().into());
        Ending { reason: "provider_error".into(), failure_mode, ..Ending::default() }
    }

    fn said(role: Role, text: impl Into<Cow<'static, str>>) -> Step<'static> {
        Step { text: text.into(), ..Step::new(role) }
    }

    #[test]
    fn answer_of_guard_is_its_stop() {
        let of = |reason: &'static str| Some(Ending { reason: reason.into(), ..Ending::default() });
        let filtered = "Provider finish_reason: content_filter";
        for ending in [None, of("final"), of("unknown"), Some(failed(filtered))] {
            assert_eq!(stop(vec![said(Role::Agent, SENTENCE)], ending), Some(stopped()));
        }
        for text in [
            format!("The file contains: {SENTENCE}"),
            "Run stopped by endstop: stop. run a".to_owned(),
            "Run stopped by endstop: no_such_ending. run a".to_owned(),
        ] {
            assert_eq!(stop(vec![said(Role::Agent, text.clone())], None), None, "{text}");
            assert_eq!(stop(vec![said(Role::Agent, text.clone())], of("final")), None, "{text}");
        }
        let calls = vec![Call::default()];
        assert_eq!(stop(vec![Step { calls, ..said(Role::Agent, SENTENCE) }], None), None);
        assert_eq!(stop(vec![said(Role::User, SENTENCE)], None), None);
        assert_eq!(stop(vec![said(Role::Agent, SENTENCE)], of("cancelled")), None);
        let later = vec![said(Role::Agent, SENTENCE), said(Role::User, "And now?")];
        assert_eq!(stop(later, None), None);
        assert_eq!(stop(vec![], Some(failed(SENTENCE))), Some(stopped()));
    }

    #[test]
    fn error_of_guard_is_its_stop() {
        for message in [
            SENTENCE.to_owned(),
            format!("API Error: 402 {SENTENCE}"),
            format!("429 {SENTENCE}"),
            format!("402 {{\"type\":\"error\",\"error\":{{\"message\":\"{SENTENCE}\"}}}}"),
            format!("{{\"error\": {{\"message\": \"{SENTENCE}\", \"code\": null}}}}"),
        ] {
            let steps = vec![said(Role::Agent, "So.")];
            assert_eq!(stop(steps, Some(failed(&message))), Some(stopped()), "{message}");
        }
        let codex = format!("unexpected status 413 Payload Too Large: {SENTENCE}, url: http://a/");
        let (termination, sentence) = stop(vec![], Some(failed(&codex))).unwrap();
        assert!(termination == T::ErrorMaxTurns && sentence.starts_with(SENTENCE));
        assert_eq!(stop(vec![], Some(failed(&format!("the model wrote: {SENTENCE}")))), None);
        // A message of the harness in a recording without an ending.
        let extra = serde_json::json!({"isApiErrorMessage": true});
        let harness = Step {
            extra: extra.as_object().cloned().map(Box::new),
            ..said(Role::User, format!("API Error: 402 {SENTENCE}"))
        };
        assert_eq!(stop(vec![harness], None), Some(stopped()));
    }
}
