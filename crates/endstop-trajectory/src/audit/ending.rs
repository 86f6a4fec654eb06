//! How a session ended: as its recording says, else by its last step.
//!
//! ```ignore
//! let ended = Ended::of(&run);
//! println!("{}: {}", ended.how, ended.words);   // no_answer: the results of its calls were never answered
//! ```

use super::quote::short;
use super::request::INTERRUPTED;
use crate::model::{Role, Step, Trajectory};
use crate::read::is_aside;
use serde::Serialize;
use std::fmt;

/// How a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum How {
    /// With an answer.
    Answered,
    /// A person stopped it.
    Stopped,
    /// Without an answer: somebody asked, or tools answered, and nothing came.
    NoAnswer,
    /// In the middle of calls that have no result.
    Interrupted,
    /// At a limit: of turns, time, or cost.
    Limit,
    /// Cut by the length of an answer, or of the context.
    Cut,
    /// By an error: of the provider, the agent, or its harness.
    Failed,
    /// Nobody knows.
    Unknown,
    /// The model never spoke.
    Empty,
}

impl How {
    /// Each of them.
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

    /// Its name, as JSON spells it.
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

    /// Whether it is known to have ended without an answer, and by nobody's wish.
    pub const fn is_without_answer(self) -> bool {
        matches!(self, How::NoAnswer | How::Interrupted | How::Limit | How::Cut | How::Failed)
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a session ended, in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// How.
    pub how: How,
    /// For a person.
    pub words: String,
    /// The recorder's own word for it.
    pub native: Option<String>,
    /// Whether the recording says it; `false`: it is read off the last step.
    pub recorded: bool,
}

impl Ended {
    /// How this run ended.
    pub(super) fn of(run: &Trajectory<'_>) -> Ended {
        let Some(said) = &run.ending else { return Ended::seen(run) };
        let (how, words) = match &*said.reason {
            "final" | "agent_submit" | "reward_threshold" | "plan_end" | "handoff" => {
                let blank = |text: &str| text.trim().is_empty();
                let silent = said.answer.as_deref().is_none_or(blank)
                    && run.turns().last().is_none_or(|step| blank(&step.text));
                if &*said.reason == "final" && silent {
                    (How::NoAnswer, "it ended, and its last response has no text")
                } else {
                    (How::Answered, "answered")
                }
            }
            "user_stop" => (How::Stopped, "the user ended it"),
            "cancelled" => (How::Stopped, "a person stopped it"),
            "max_turns" | "max_steps" => (How::Limit, "its limit of turns was reached"),
            "timeout" => (How::Limit, "its time was up"),
            "cost_limit" => (How::Limit, "its limit of cost was reached"),
            "token_limit" => (How::Limit, "its limit of tokens was reached"),
            "context_overflow" => (How::Cut, "the context was full"),
            "output_length" => (How::Cut, "the answer was cut at its length"),
            "provider_error" => (How::Failed, "the provider failed"),
            "agent_error" => (How::Failed, "the agent failed"),
            "harness_error" => (How::Failed, "the harness failed"),
            _ => (How::Unknown, "nobody knows how it ended"),
        };
        let native = said.failure_mode.as_ref().or(said.native.as_ref());
        Ended {
            how,
            words: words.to_owned(),
            native: native.map(|native| short(native, 120)),
            recorded: true,
        }
    }

    /// By the last step.
    fn seen(run: &Trajectory<'_>) -> Ended {
        let seen = |how, words: &str| Ended {
            how,
            words: words.to_owned(),
            native: None,
            recorded: false,
        };
        if run.turns().next().is_none() {
            return seen(How::Empty, "the model never spoke");
        }
        let mut after = run.steps.iter().rev().filter(|step| !step.copied && !is_aside(step));
        let Some(last) = after.find(|step| step.role != Role::System) else {
            return seen(How::Unknown, "nobody knows how it ended");
        };
        if last.role == Role::User {
            return if last.text.starts_with(INTERRUPTED) {
                seen(How::Stopped, "a person stopped it")
            } else if last
                .extra
                .as_ref()
                .is_some_and(|extra| extra.contains_key("isApiErrorMessage"))
            {
                Ended {
                    native: Some(short(&last.text, 120)),
                    ..seen(How::Failed, "the provider failed")
                }
            } else if !last.results.is_empty() {
                seen(How::NoAnswer, "the results of its calls were never answered")
            } else {
                seen(How::NoAnswer, "the last that was asked was never answered")
            };
        }
        if last.calls.is_empty() {
            return if last.text.trim().is_empty() {
                seen(How::NoAnswer, "its last response has no text")
            } else {
                seen(How::Answered, "answered")
            };
        }
        if run.lacks_results() {
            return seen(How::Unknown, "it asked for a tool; what came of that is not recorded");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Call, CallResult, Ending};

    fn run(steps: Vec<Step<'static>>) -> Trajectory<'static> {
        Trajectory { steps, ..Trajectory::new("s") }
    }

    fn said(role: Role, text: &'static str) -> Step<'static> {
        Step { text: text.into(), ..Step::new(role) }
    }

    #[test]
    fn an_ending_is_read_off_the_last_step_where_nobody_says_it() {
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
    fn a_recorded_ending_stands_and_an_unknown_one_is_no_success() {
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
}
