//! Finds loops in a session: the first step of a request at which a detector fires, the repeated
//! action, and the usage after it.
//!
//! ```text
//! for one in loops(&run, &requests, &spent) {
//!     println!("turn {}: {} ({})", one.turn, one.what, one.rules.join(", "));
//! }
//! ```

use super::quote::{call, short};
use super::request::Request;
use crate::availability::without_results;
use crate::backtest::show;
use crate::model::{Role, Step, Trajectory};
use crate::pricing::Spent;
use endstop_core::detector::{Rule, RuleSet, Stuck};
use serde::{Deserialize, Serialize};

/// A loop in a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// The turn of the session, from 1, at whose end a rule fired first.
    pub turn: u64,
    /// The rules that fired in the request, each with its turn: `stuck(2,4,3) at turn 6`.
    pub rules: Vec<String>,
    /// The repeated action, shortened.
    pub what: String,
    /// The result of the action, shortened; empty if the loop is not about calls.
    pub gave: String,
    /// The subagent that contains the loop, if the session has subagents.
    pub agent: Option<String>,
    /// The usage of the request after that turn.
    pub behind: Spent,
}

/// Returns the rules that are evaluated.
pub(super) fn rules() -> Vec<Rule> {
    vec![
        Rule::Stuck(Stuck::default()),
        Rule::RepeatCallRes { times: 3 },
        Rule::SameError { times: 3 },
        Rule::NoNew { times: 3 },
        Rule::Alternate { times: 3 },
        Rule::Chanting { times: 10, min_chars: 400 },
    ]
}

/// Returns the loops of a run, at most one per request. `spent` is the usage of each turn.
pub(super) fn loops(run: &Trajectory<'_>, requests: &[Request], spent: &[Spent]) -> Vec<Loop> {
    let mut rules = rules();
    if run.lacks_results() {
        rules = rules.iter().filter_map(without_results).collect();
    }
    let mut rule_set = RuleSet::new(rules.clone());
    let mut found = Vec::new();
    for request in requests {
        // A new request is a new task, so repetitions of the previous one do not count.
        rule_set.reset();
        let mut first: Option<(usize, &Step<'_>)> = None;
        let mut before: Option<&Step<'_>> = None;
        let mut by_text = false;
        let mut nth = 0;
        for step in &run.steps[request.steps.clone()] {
            if !step.is_turn() {
                if step.role != Role::System && !step.copied {
                    rule_set.message_arrived();
                }
                continue;
            }
            show(&mut rule_set, step);
            let fired = rule_set.end();
            // Only the first rule marks the loop; later ones are listed with their turns.
            if first.is_none() && !fired.is_empty() {
                first = Some((nth, step));
                by_text = fired.iter().all(|at| matches!(rules[*at], Rule::Chanting { .. }));
            }
            if first.is_none() {
                before = Some(step);
            }
            nth += 1;
        }
        let Some((at, step)) = first else { continue };
        let fired = rules.iter().zip(rule_set.fired()).filter_map(|(rule, turn)| {
            Some(format!("{rule} at turn {}", request.before as u64 + u64::from((*turn)?)))
        });
        let places = request.places();
        let (what, gave) =
            if by_text { (chant(&step.text), String::new()) } else { shown(step, before) };
        found.push(Loop {
            turn: (request.before + at + 1) as u64,
            rules: fired.collect(),
            what,
            gave,
            agent: None,
            behind: spent.get(places.start + at + 1..places.end).unwrap_or_default().iter().sum(),
        });
    }
    found
}

/// Describes the first call of a step, and the call before it if the two differ.
fn shown(step: &Step<'_>, before: Option<&Step<'_>>) -> (String, String) {
    let said = |step: &Step<'_>| step.calls.first().map(|one| call(&one.name, &one.arguments, 80));
    let Some(one) = said(step) else { return (short(&step.text, 100), String::new()) };
    let gave = step.result_of(0).or(step.results.first());
    let gave = gave.map_or_else(String::new, |result| short(&result.content, 80));
    match before.and_then(said) {
        Some(other) if other != one => (format!("{other}, {one}"), gave),
        _ => (one, gave),
    }
}

/// Quotes the end of a text that repeats itself.
fn chant(text: &str) -> String {
    let from = text.char_indices().rev().nth(80).map_or(0, |(at, _)| at);
    format!("text that repeats itself: …{}", short(&text[from..], 80))
}
