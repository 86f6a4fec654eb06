//! Determines how a session ended: from its recording, or else from its last step.
//!
//! ```text
//! let ended = Ended::of(&run);
//! println!("{}: {}", ended.how, ended.words);   // no_answer: the results of its calls were never answered
//! ```

use super::guard_stop::GuardStop;
use super::provider_error;
use super::quote::short;
use super::request::INTERRUPTED;
use crate::model::{Ending, Role, Step, Trajectory};
use crate::read::{http_status, is_aside};
use endstop_core::{Category, Termination, holds_lost_call, is_blank, visible_text};
use endstop_wire::signal::finish::{Finish, finish_of_any};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::HashSet;
use std::fmt;

/// The kind of a session's ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum How {
    /// The session ended with an answer.
    Answered,
    /// A person stopped it.
    Stopped,
    /// A prompt or tool results were never answered.
    NoAnswer,
    /// The session ended during calls that have no result.
    Interrupted,
    /// A limit on turns, time or cost was reached.
    Limit,
    /// The answer or the context exceeded its maximum length.
    Cut,
    /// The provider, the agent or its harness failed.
    Failed,
    /// The ending is unknown.
    Unknown,
    /// The model never responded.
    Empty,
}

impl How {
    /// All variants.
    pub const ALL: [How; 9] = [
        How::Answered,
        How::Stopped,
        How::NoAnswer,
        How::Interrupted,
        How::Limit,
        How::Cut,
        How::Failed,
        How::Unknown,
        How::Empty,
    ];

    /// Returns the name, as JSON spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            How::Answered => "answered",
            How::Stopped => "stopped",
            How::NoAnswer => "no_answer",
            How::Interrupted => "interrupted",
            How::Limit => "limit",
            How::Cut => "cut",
            How::Failed => "failed",
            How::Unknown => "unknown",
            How::Empty => "empty",
        }
    }

    /// Returns `true` if the session is known to have ended unintentionally without an answer.
    pub const fn is_without_answer(self) -> bool {
        matches!(self, How::NoAnswer | How::Interrupted | How::Limit | How::Cut | How::Failed)
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A session's ending with its description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The kind of ending.
    pub how: How,
    /// The description for the user.
    pub words: String,
    /// The recorder's own name for the ending.
    pub native: Option<String>,
    /// `true` if the recording contains the ending; `false` if it was derived from the last step.
    pub recorded: bool,
    /// The corresponding ending of an Endstop run, if the recording is specific enough: the advice
    /// for that ending applies here too.
    pub termination: Option<Termination>,
}

impl Ended {
    /// Determines how a run ended.
    pub(super) fn of(run: &Trajectory<'_>) -> Ended {
        if let Some(stop) = GuardStop::of(run) {
            return Ended::by_guard(&stop, run.ending.is_some());
        }
        let Some(said) = &run.ending else { return Ended::seen(run) };
        let (how, words) = match &*said.reason {
            "final" | "agent_submit" | "reward_threshold" | "plan_end" | "handoff" => {
                let blank = |text: &str| is_blank(visible_text(text));
                let silent = said.answer.as_deref().is_none_or(blank)
                    && run.turns().last().is_none_or(|step| blank(&step.text));
                // A final response without text is not an answer, even if the recording calls it
                // final.
                let is_kept = run.turns().last().is_none_or(Step::has_content);
                if &*said.reason == "final" && silent && !is_kept {
                    (How::Unknown, "it ended, and its content is not recorded")
                } else if &*said.reason == "final" && silent {
                    (How::NoAnswer, "it ended, and its last response has no text")
                } else if &*said.reason == "final" && ends_in_lost_call(run) {
                    (How::NoAnswer, LOST_CALL)
                } else {
                    (How::Answered, "answered")
                }
            }
            // Only benchmarks record this: their simulated user says that it has what it wanted.
            "user_stop" => (How::Answered, "the simulated user ended it"),
            "cancelled" => (How::Stopped, "a person stopped it"),
            "max_turns" | "max_steps" => (How::Limit, "its turn limit was reached"),
            "timeout" => (How::Limit, "it timed out"),
            "cost_limit" => (How::Limit, "its cost limit was reached"),
            "token_limit" => (How::Limit, "its token limit was reached"),
            "tool_call_limit" => (How::Limit, "its limit on tool calls was reached"),
            "window_limit" => (How::Limit, "a window of its subscription was used up"),
            "context_overflow" => (How::Cut, "the context was full"),
            "output_length" => (How::Cut, "the answer was cut at its maximum length"),
            "provider_error" => (How::Failed, "the provider failed"),
            "agent_error" => (How::Failed, "the agent failed"),
            "harness_error" => (How::Failed, "the harness failed"),
            _ if is_filtered(said) => {
                (How::Failed, "the model refused, or a filter cut the answer")
            }
            _ => (How::Unknown, "how it ended is unknown"),
        };
        // The failure message is more specific than the name of the reason.
        let native = said.failure_mode.as_ref().or(said.native.as_ref());
        let termination = termination(said);
        Ended {
            how,
            words: words.to_owned(),
            native: native.map(|native| short(native, 120)),
            recorded: true,
            // Advice is only needed if there is no answer.
            termination: termination.filter(|_| how.is_without_answer()),
        }
    }

    /// Describes a stop by guard. `recorded` is `true` if the recording states an ending.
    fn by_guard(stop: &GuardStop<'_>, recorded: bool) -> Ended {
        use Termination as T;
        let (how, words) = match stop.termination {
            T::Cancelled | T::Terminated => (How::Stopped, "a person stopped it, under guard"),
            T::ErrorPromptTooLong | T::ErrorOutputTruncated => (How::Cut, "guard stopped it"),
            other if other.category() == Category::Capacity => (How::Limit, "guard stopped it"),
            _ => (How::Failed, "guard stopped it"),
        };
        Ended {
            how,
            words: words.to_owned(),
            native: Some(short(&stop.sentence, 120)),
            recorded,
            termination: Some(stop.termination).filter(|_| how.is_without_answer()),
        }
    }

    /// Derives the ending from the last step.
    fn seen(run: &Trajectory<'_>) -> Ended {
        let seen = |how, words: &str| Ended {
            how,
            words: words.to_owned(),
            native: None,
            recorded: false,
            termination: None,
        };
        if run.turns().next().is_none() {
            return seen(How::Empty, "the model never responded");
        }
        // System messages and local commands after the last turn answer nothing.
        let mut after = run.steps.iter().rev().filter(|step| !step.copied && !is_aside(step));
        let Some(last) = after.find(|step| step.role != Role::System) else {
            return seen(How::Unknown, "how it ended is unknown");
        };
        if last.role == Role::User {
            return if last.text.starts_with(INTERRUPTED) {
                seen(How::Stopped, "a person stopped it")
            } else if last
                .extra
                .as_ref()
                .is_some_and(|extra| extra.contains_key("isApiErrorMessage"))
            {
                let status = last.extra.as_ref().and_then(|extra| extra.get("apiErrorStatus"));
                Ended {
                    native: Some(short(&last.text, 120)),
                    termination: Some(provider_error::termination(&last.text, http_status(status))),
                    ..seen(How::Failed, "the provider failed")
                }
            } else if !last.results.is_empty() {
                seen(How::NoAnswer, "the results of its calls were never answered")
            } else {
                seen(How::NoAnswer, "the last request was never answered")
            };
        }
        if last.calls.is_empty() {
            return if !last.has_content() {
                seen(How::Unknown, "it ended, and its content is not recorded")
            } else if is_blank(visible_text(&last.text)) {
                seen(How::NoAnswer, "its last response has no text")
            } else if ends_in_lost_call(run) {
                seen(How::NoAnswer, LOST_CALL)
            } else {
                seen(How::Answered, "answered")
            };
        }
        // Without recorded results, an unanswered call does not mean that the session was
        // interrupted.
        if run.lacks_results() {
            return seen(How::Unknown, "it requested a tool; the result is not recorded");
        }
        let names = |step: &Step<'_>| {
            let open = (0..step.calls.len())
                .filter(|nth| step.result_of(*nth).is_none())
                .map(|nth| short(&step.calls[nth].name, 40));
            open.collect::<Vec<String>>()
        };
        let open = names(last);
        if open.is_empty() {
            seen(How::NoAnswer, "the results of its calls were never answered")
        } else {
            let words = format!("cut off in the middle of {}", short(&open.join(", "), 80));
            seen(How::Interrupted, &words)
        }
    }
}

const LOST_CALL: &str = "its last response has a tool call in its text, which was not run";

/// `true` if the text of the last response holds a call of a tool that the run had.
fn ends_in_lost_call(run: &Trajectory<'_>) -> bool {
    let names = |tool: &Value| {
        let name = tool.get("name").or_else(|| tool.get("function")?.get("name"));
        name.and_then(Value::as_str).map(str::to_owned)
    };
    let called = run.turns().flat_map(|step| &step.calls).map(|call| call.name.to_string());
    let tools: HashSet<String> = called.chain(run.tools.iter().filter_map(names)).collect();
    let last = run.turns().last().filter(|last| last.calls.is_empty() && !tools.is_empty());
    last.is_some_and(|last| {
        holds_lost_call(visible_text(&last.text), &|name: &str| tools.contains(name))
    })
}

/// `true` if the recorder's own name for the ending is that of a refusal or of a filter.
fn is_filtered(said: &Ending<'_>) -> bool {
    // The AI SDK writes its names with hyphens.
    let finish = |native: &str| finish_of_any(&native.replace('-', "_"));
    said.native.as_deref().is_some_and(|native| finish(native) == Finish::ContentFilter)
}

/// Maps a recorded ending to Endstop's: by the recorder's own name if it is one of Endstop's,
/// otherwise by the reason.
fn termination(said: &Ending<'_>) -> Option<Termination> {
    // Only the name is parsed. A failure message is free text, and its words have other meanings:
    // Node's HTTP client reports a cut stream as `terminated`.
    let named = said.native.as_deref().and_then(|name| name.parse::<Termination>().ok());
    // An ending without an answer is never a success, even if a recorder calls it `stop`.
    if let Some(known) = named.filter(|known| known.is_error()) {
        return Some(known);
    }
    let message = said.failure_mode.as_ref().or(said.native.as_ref());
    Some(match &*said.reason {
        "max_turns" | "max_steps" => Termination::ErrorMaxTurns,
        "timeout" => Termination::ErrorTimeout,
        "cost_limit" => Termination::ErrorMaxBudgetUsd,
        "token_limit" => Termination::ErrorMaxTokens,
        "tool_call_limit" => Termination::ErrorMaxToolCalls,
        "window_limit" => Termination::ErrorMaxWindow,
        "context_overflow" => Termination::ErrorPromptTooLong,
        "output_length" => Termination::ErrorOutputTruncated,
        "provider_error" => {
            provider_error::termination(message.map_or("", |message| message), said.http_status)
        }
        _ if is_filtered(said) => Termination::ErrorContentFiltered,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Call, CallResult};

    fn run(steps: Vec<Step<'static>>) -> Trajectory<'static> {
        Trajectory { steps, ..Trajectory::new("s") }
    }

    fn said(role: Role, text: &'static str) -> Step<'static> {
        Step { text: text.into(), ..Step::new(role) }
    }

    #[test]
    fn unrecorded_ending_follows_last_step() {
        let call = |results: Vec<CallResult<'static>>| Step {
            calls: vec![Call { name: "Bash".into(), ..Call::default() }],
            results,
            ..Step::new(Role::Agent)
        };
        let asked = said(Role::User, "Fix it.");
        let how = |steps| Ended::of(&run(steps)).how;
        assert_eq!(how(vec![]), How::Empty);
        assert_eq!(how(vec![asked.clone()]), How::Empty);
        assert_eq!(how(vec![asked.clone(), said(Role::Agent, "Fixed.")]), How::Answered);
        assert_eq!(how(vec![asked.clone(), said(Role::Agent, " ")]), How::NoAnswer);
        assert_eq!(how(vec![call(vec![CallResult::default()])]), How::NoAnswer);
        assert_eq!(how(vec![said(Role::Agent, "Hm."), asked.clone()]), How::NoAnswer);
        let mut blind = run(vec![asked.clone(), call(vec![])]);
        blind.tags.push("no_results".into());
        assert_eq!(Ended::of(&blind).how, How::Unknown, "no call of it has a result");
        let cut = Ended::of(&run(vec![asked, call(vec![])]));
        assert_eq!((cut.how, cut.recorded), (How::Interrupted, false));
        assert_eq!(cut.words, "cut off in the middle of Bash");
        let stopped = vec![call(vec![]), said(Role::User, "[Request interrupted by user]")];
        assert_eq!(how(stopped), How::Stopped);
        let left = vec![
            said(Role::Agent, "Done."),
            said(Role::User, "<command-name>/exit</command-name>"),
        ];
        assert_eq!(how(left), How::Answered);
    }

    #[test]
    fn recorded_ending_takes_precedence() {
        let ended = |reason: &'static str| {
            let mut run = run(vec![said(Role::Agent, "So.")]);
            run.ending = Some(Ending {
                reason: reason.into(),
                native: Some("its own word".into()),
                ..Ending::default()
            });
            Ended::of(&run)
        };
        assert_eq!(ended("final").how, How::Answered);
        assert_eq!(ended("final").native.as_deref(), Some("its own word"));
        assert_eq!(ended("max_turns").how, How::Limit);
        assert_eq!(ended("provider_error").how, How::Failed);
        assert_eq!(ended("output_length").how, How::Cut);
        assert_eq!(ended("cancelled").how, How::Stopped);
        assert_eq!(ended("something new").how, How::Unknown);
        assert!(How::ALL.iter().all(|how| !how.as_str().is_empty()));
    }

    #[test]
    fn recorded_ending_maps_to_termination() {
        use Termination as T;
        let of = |reason: &'static str, native: &'static str| {
            let mut run = run(vec![said(Role::Agent, "So.")]);
            let native = Some(native.into());
            run.ending = Some(Ending { reason: reason.into(), native, ..Ending::default() });
            Ended::of(&run).termination
        };
        for (reason, native, is) in [
            ("provider_error", "error_content_filtered", Some(T::ErrorContentFiltered)),
            ("agent_error", "error_no_progress", Some(T::ErrorNoProgress)),
            ("agent_error", "gave_up", Some(T::GaveUp)),
            ("context_overflow", "error_prompt_too_long", Some(T::ErrorPromptTooLong)),
            (
                "provider_error",
                "API Error: 529 {\"type\":\"error\"}",
                Some(T::ErrorDuringExecution),
            ),
            ("provider_error", "API Error: 401 Invalid API key", Some(T::ErrorProviderAuth)),
            ("provider_error", "API Error: 400 no such field", Some(T::ErrorProviderRejected)),
            ("provider_error", "Prompt is too long", Some(T::ErrorPromptTooLong)),
            ("provider_error", "AgentSafetyRefusalError", Some(T::ErrorContentFiltered)),
            ("provider_error", "authentication", Some(T::ErrorProviderAuth)),
            ("provider_error", "", Some(T::ErrorDuringExecution)),
            ("output_length", "exit_length", Some(T::ErrorOutputTruncated)),
            ("max_steps", "x", Some(T::ErrorMaxTurns)),
            ("agent_error", "it broke", None),
            ("harness_error", "it broke", None),
            ("final", "stop", None),
            ("cancelled", "cancelled", None),
        ] {
            assert_eq!(of(reason, native), is, "{reason} {native}");
        }
    }

    #[test]
    fn failure_message_names_no_termination() {
        use Termination as T;
        let of = |reason: &'static str, native: &'static str, message: &'static str| {
            let mut run = run(vec![said(Role::Agent, "So.")]);
            run.ending = Some(Ending {
                reason: reason.into(),
                native: Some(native.into()),
                failure_mode: Some(message.into()),
                ..Ending::default()
            });
            let ended = Ended::of(&run);
            (ended.native, ended.termination)
        };
        for (reason, native, message, is) in [
            // Node's HTTP client reports a cut stream like this.
            ("provider_error", "error", "terminated", Some(T::ErrorDuringExecution)),
            ("provider_error", "error", "cancelled", Some(T::ErrorDuringExecution)),
            ("agent_error", "error", "gave_up", None),
            ("agent_error", "gave_up", "it was too hard", Some(T::GaveUp)),
        ] {
            assert_eq!(of(reason, native, message), (Some(message.to_owned()), is), "{message}");
        }
        let mut silent = run(vec![said(Role::Agent, "")]);
        let native = Some("stop".into());
        silent.ending = Some(Ending { reason: "final".into(), native, ..Ending::default() });
        assert_eq!(Ended::of(&silent).termination, None, "no answer is not a success");
    }

    #[test]
    fn stop_by_guard_has_its_kind() {
        use Termination as T;
        for (termination, how) in [
            (T::ErrorMaxTurns, How::Limit),
            (T::ErrorMaxBudgetUsd, How::Limit),
            (T::ErrorNoProgress, How::Limit),
            (T::ErrorPromptTooLong, How::Cut),
            (T::ErrorProviderAuth, How::Failed),
            (T::ErrorHalted, How::Failed),
            (T::Cancelled, How::Stopped),
            (T::Terminated, How::Stopped),
        ] {
            let text = format!("Run stopped by endstop: {termination}. run a");
            let mut run = run(vec![Step { text: text.into(), ..Step::new(Role::Agent) }]);
            let advice = Some(termination).filter(|_| how != How::Stopped);
            for recorded in [false, true] {
                let ended = Ended::of(&run);
                assert_eq!((ended.how, ended.termination), (how, advice), "{termination}");
                assert_eq!(ended.recorded, recorded);
                run.ending = Some(Ending { reason: "final".into(), ..Ending::default() });
            }
        }
    }
}
