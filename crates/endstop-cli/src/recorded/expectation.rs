//! Expectations about a run, and the checks of them. An expectation that the record cannot prove does
//! not hold: an unknown cost is not a small one.

use crate::assert_args::CallRange;
use endstop::core::{Category, Termination};
use endstop::{NanoUsd, Outcome};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// An expectation about a run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expectation {
    /// The run succeeded, and no verifier rejected it.
    Success,
    /// One of these terminations.
    Termination(Vec<Termination>),
    /// One of these categories.
    Category(Vec<Category>),
    /// A verifier accepted the result.
    Verified,
    MaxUsd(NanoUsd),
    MaxTurns(u32),
    MaxTokens(u64),
    MaxDuration(Duration),
    /// Calls of a tool that started.
    ToolCalled(String, CallRange),
    NoTool(String),
    FinalContains(String),
}

/// The facts about a run that expectations are checked against.
#[derive(Debug)]
pub(crate) struct RunFacts<'a> {
    /// The ending, or the reason for its absence.
    pub(crate) ending: Result<&'a Outcome, String>,
    /// The first difference from a recording, if the run replayed one and diverged.
    pub(crate) diverged: Option<String>,
    /// Number of calls that started, by tool.
    pub(crate) calls: BTreeMap<String, u64>,
    /// The reason why there may have been more calls than these.
    pub(crate) more_calls: Option<String>,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// The flag that stated the expectation, with its argument if it may be repeated.
    pub(crate) name: String,
    pub(crate) passed: bool,
    pub(crate) expected: String,
    pub(crate) actual: String,
    /// The reason, if the expectation does not hold and `actual` does not show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

/// The measured side of a check: if it holds, the value, and a reason.
struct Found {
    passed: bool,
    actual: String,
    reason: Option<String>,
}

impl Found {
    fn new(passed: bool, actual: impl Into<String>) -> Found {
        Found { passed, actual: actual.into(), reason: None }
    }

    /// Adds the reason of a failure.
    fn because(mut self, reason: impl Into<Option<String>>) -> Found {
        self.reason = reason.into().filter(|_| !self.passed);
        self
    }
}

impl Expectation {
    /// Checks the expectation.
    pub(crate) fn check(&self, facts: &RunFacts<'_>) -> Check {
        let found = match (self, &facts.ending) {
            (Expectation::ToolCalled(name, range), _) => calls(facts, name, *range),
            (Expectation::NoTool(name), _) => {
                calls(facts, name, CallRange { least: 0, most: Some(0) })
            }
            (_, Ok(outcome)) => self.of_outcome(outcome, facts.diverged.as_deref()),
            (_, Err(why)) => Found::new(false, "unknown").because(why.clone()),
        };
        let Found { passed, actual, reason } = found;
        Check { name: self.name(), passed, expected: self.expected(), actual, reason }
    }

    fn of_outcome(&self, outcome: &Outcome, diverged: Option<&str>) -> Found {
        let ended = format!("{} ({})", outcome.termination, outcome.category());
        let evidence = || outcome.decided_by.to_string();
        match self {
            Expectation::Success => {
                let (verdict, reason) = match (outcome.verified, diverged) {
                    (Some(false), _) => (", rejected by the verifier", None),
                    (_, Some(difference)) => {
                        (", in a replay that differs", Some(difference.to_owned()))
                    }
                    _ => ("", Some(evidence())),
                };
                let passed = outcome.exit_status() == 0 && diverged.is_none();
                Found::new(passed, format!("{ended}{verdict}")).because(reason)
            }
            Expectation::Termination(any) => {
                Found::new(any.contains(&outcome.termination), ended).because(evidence())
            }
            Expectation::Category(any) => {
                Found::new(any.contains(&outcome.category()), ended).because(evidence())
            }
            Expectation::Verified => match outcome.verified {
                Some(true) => Found::new(true, "accepted"),
                Some(false) => Found::new(false, "rejected"),
                None => Found::new(false, "no verifier has decided"),
            },
            Expectation::MaxUsd(most) => cost(outcome, *most),
            Expectation::MaxTurns(most) => {
                Found::new(outcome.turns <= *most, outcome.turns.to_string())
            }
            Expectation::MaxTokens(most) => tokens(outcome, *most),
            Expectation::MaxDuration(most) => {
                Found::new(outcome.duration <= *most, format!("{:.1?}", outcome.duration))
            }
            Expectation::FinalContains(part) => match outcome.answer() {
                Some(answer) => Found::new(answer.contains(part), format!("{answer:?}")),
                None => Found::new(false, "no answer").because(evidence()),
            },
            // Checked without the outcome.
            Expectation::ToolCalled(..) | Expectation::NoTool(_) => Found::new(false, ""),
        }
    }

    /// The flag of the expectation, with its argument if it may be repeated.
    fn name(&self) -> String {
        match self {
            Expectation::Success => "success".to_owned(),
            Expectation::Termination(_) => "termination".to_owned(),
            Expectation::Category(_) => "category".to_owned(),
            Expectation::Verified => "verified".to_owned(),
            Expectation::MaxUsd(_) => "max-usd".to_owned(),
            Expectation::MaxTurns(_) => "max-turns".to_owned(),
            Expectation::MaxTokens(_) => "max-tokens".to_owned(),
            Expectation::MaxDuration(_) => "max-duration".to_owned(),
            Expectation::ToolCalled(name, _) => format!("tool-called {name}"),
            Expectation::NoTool(name) => format!("no-tool {name}"),
            Expectation::FinalContains(part) => format!("final-contains {part:?}"),
        }
    }

    fn expected(&self) -> String {
        fn any<T: ToString>(names: &[T]) -> String {
            names.iter().map(T::to_string).collect::<Vec<_>>().join(" or ")
        }
        match self {
            Expectation::Success => "success".to_owned(),
            Expectation::Termination(names) => any(names),
            Expectation::Category(names) => any(names),
            Expectation::Verified => "accepted".to_owned(),
            Expectation::MaxUsd(most) => format!("at most {most}"),
            Expectation::MaxTurns(most) => format!("at most {most}"),
            Expectation::MaxTokens(most) => format!("at most {most}"),
            Expectation::MaxDuration(most) => format!("at most {most:?}"),
            Expectation::ToolCalled(_, range) => match (range.least, range.most) {
                (least, Some(most)) if least == most => times(most),
                (0, Some(most)) => format!("at most {}", times(most)),
                (least, Some(most)) => format!("{least} to {}", times(most)),
                (least, None) => format!("at least {}", times(least)),
            },
            Expectation::NoTool(_) => times(0),
            Expectation::FinalContains(part) => format!("an answer with {part:?}"),
        }
    }
}

/// Compares the upper bound of the cost, because the provider may bill up to it.
fn cost(outcome: &Outcome, most: NanoUsd) -> Found {
    let known = outcome.cost;
    match outcome.cost_upper {
        Some(upper) if upper == known => Found::new(upper <= most, known.to_string()),
        Some(upper) => Found::new(upper <= most, format!("{known} to {upper}"))
            .because("the provider has not counted every call, so the cost is a range".to_owned()),
        None => Found::new(false, format!("at least {known}")).because(
            "the cost is not known: set a price for the run, for example --price in=1,out=2"
                .to_owned(),
        ),
    }
}

/// Compares the upper bound of the tokens, as [`cost`] does.
fn tokens(outcome: &Outcome, most: u64) -> Found {
    let known = outcome.usage.total_tokens();
    match outcome.tokens_upper {
        Some(upper) if upper == known => Found::new(upper <= most, known.to_string()),
        Some(upper) => Found::new(upper <= most, format!("{known} to {upper}")).because(
            "the provider has not counted every call, so the tokens are a range".to_owned(),
        ),
        None => Found::new(false, format!("at least {known}"))
            .because("the provider has not counted every call".to_owned()),
    }
}

/// Counts the calls of a tool that started.
fn calls(facts: &RunFacts<'_>, name: &str, range: CallRange) -> Found {
    let count = facts.calls.get(name).copied().unwrap_or(0);
    let is_enough = count >= range.least;
    let is_bounded = range.most.is_none_or(|most| count <= most);
    // More calls than those that are known could only exceed the upper bound.
    let unknown = facts.more_calls.as_ref().filter(|_| range.most.is_some());
    match unknown {
        Some(why) if is_enough && is_bounded => {
            Found::new(false, format!("at least {}", times(count))).because(why.clone())
        }
        _ => {
            let others = (count == 0 && !is_enough).then(|| ran(&facts.calls));
            Found::new(is_enough && is_bounded, times(count)).because(others)
        }
    }
}

/// Lists the tools that ran, because the expected name may be misspelt.
fn ran(calls: &BTreeMap<String, u64>) -> String {
    /// Tools that are listed at most.
    const MOST: usize = 12;
    if calls.is_empty() {
        return "the run has called no tool".to_owned();
    }
    let names: Vec<&str> = calls.keys().take(MOST).map(String::as_str).collect();
    let more = if calls.len() > MOST { " …" } else { "" };
    format!("the run has called {}{more}", names.join(", "))
}

fn times(count: u64) -> String {
    if count == 1 { "1 call".to_owned() } else { format!("{count} calls") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns a successful outcome with these members.
    fn outcome(more: &Value) -> Outcome {
        let mut all = json!({
            "type": "outcome",
            "termination": "stop",
            "decided_by": {"layer": "turn", "name": "natural_completion", "evidence": "it ended"},
        });
        for (name, value) in more.as_object().unwrap() {
            all[name] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    fn facts(outcome: &Outcome) -> RunFacts<'_> {
        let calls = [("shell".to_owned(), 2)].into();
        RunFacts { ending: Ok(outcome), diverged: None, calls, more_calls: None }
    }

    #[test]
    fn cost_is_compared_by_its_upper_bound() {
        let ranged =
            outcome(&json!({"cost_usd": 0.4, "cost_upper_usd": 0.6, "cost_unknown": true}));
        let check = |most| Expectation::MaxUsd(NanoUsd::from_usd(most)).check(&facts(&ranged));
        assert!(check(0.6).passed);
        assert_eq!((check(0.5).passed, &*check(0.5).actual), (false, "$0.40 to $0.60"));
        assert!(check(0.5).reason.unwrap().contains("the cost is a range"));
        let unknown = outcome(&json!({"cost_usd": 0.4, "cost_unknown": true}));
        let check = Expectation::MaxUsd(NanoUsd::from_usd(1e3)).check(&facts(&unknown));
        assert_eq!((check.passed, &*check.actual), (false, "at least $0.40"));
    }

    #[test]
    fn tokens_without_a_bound_do_not_pass() {
        let usage = json!({"input_tokens": 70, "output_tokens": 30});
        for (upper, most, passed, actual) in [
            (json!(100), 100, true, "100"),
            (json!(140), 120, false, "100 to 140"),
            (json!(null), 1_000_000, false, "at least 100"),
        ] {
            let outcome = outcome(&json!({"usage": usage, "tokens_upper": upper}));
            let check = Expectation::MaxTokens(most).check(&facts(&outcome));
            assert_eq!((check.passed, &*check.actual), (passed, actual));
        }
    }

    #[test]
    fn unknown_calls_fail_upper_bounds_only() {
        let outcome = outcome(&json!({}));
        let more = || RunFacts { more_calls: Some("others ran".to_owned()), ..facts(&outcome) };
        let called =
            |least, most| Expectation::ToolCalled("shell".to_owned(), CallRange { least, most });
        for (expectation, known, with_others) in [
            (called(1, None), true, true),
            (called(3, None), false, false),
            (called(2, Some(2)), true, false),
            (called(0, Some(1)), false, false),
            (Expectation::NoTool("rm".to_owned()), true, false),
        ] {
            assert_eq!(expectation.check(&facts(&outcome)).passed, known, "{expectation:?}");
            let check = expectation.check(&more());
            assert_eq!(check.passed, with_others, "{expectation:?}");
            let is_unproven = known && !with_others;
            assert_eq!(check.reason.as_deref() == Some("others ran"), is_unproven, "{check:?}");
        }
    }

    #[test]
    fn diverged_replay_is_no_success() {
        let outcome = outcome(&json!({}));
        assert!(Expectation::Success.check(&facts(&outcome)).passed);
        let diverged = RunFacts { diverged: Some("another tool".to_owned()), ..facts(&outcome) };
        let check = Expectation::Success.check(&diverged);
        assert_eq!((check.passed, check.reason.as_deref()), (false, Some("another tool")));
    }
}
