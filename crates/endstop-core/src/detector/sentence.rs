//! What a rule saw when it fired, in a sentence. The short form is for configuration.
//!
//! ```text
//! stuck(2,4,3,7) → the same call gave the same result at least 3 times
//! ```

use super::facts::Facts;
use super::rule::Rule;

/// Describes why a rule fired after a step with these facts.
pub(crate) fn sentence(rule: &Rule, facts: &Facts) -> String {
    match rule {
        Rule::RepeatCall { times } => format!("the same calls {times} times in a row"),
        Rule::RepeatCallRes { times } => {
            format!("the same calls gave the same results {times} times in a row")
        }
        Rule::TotalRepeat { .. } => {
            format!("a call was made {} times in the run", facts.most_calls)
        }
        Rule::Cycle { period, times } => {
            format!("the calls of the last {period} steps were made {times} times in a cycle")
        }
        Rule::Alternate { times } => {
            format!("two steps with different calls alternated {times} times")
        }
        Rule::SameError { times } => format!("the same failure in {times} steps in a row"),
        Rule::AnyError { times } => format!("a failure in each of {times} steps in a row"),
        Rule::SameText { times } => format!("the same text {times} times in a row"),
        Rule::NoNew { times } => format!("{times} steps in a row brought nothing new"),
        Rule::Monologue { times } => {
            format!("{times} steps in a row without a call or another message")
        }
        Rule::MaxSteps { steps } => format!("the run has made {steps} steps"),
        Rule::Cost { usd } => format!("the run has cost ${usd} or more"),
        Rule::Reward { at_least } => format!("the reward reached {at_least}"),
        Rule::TextMention(_) => format!("the text has what {rule} looks for"),
        Rule::ToolCalled { name, .. } => format!("a call of `{name}` succeeded"),
        Rule::Chanting { times, .. } => format!("a response repeated one section {times} times"),
        Rule::Stuck(stuck) => {
            let met = |value: u32, most: Option<u32>| most.is_some_and(|most| value >= most);
            // The score has two half-points for a repetition, or one if something new came in between.
            if met(facts.repeats, stuck.repeats.map(|most| most.saturating_mul(2))) {
                let times = facts.repeats.div_ceil(2).saturating_add(1);
                format!("the same call gave the same result at least {times} times")
            } else if met(facts.failures, stuck.failures) {
                format!("a failure in each of {} steps in a row", facts.failures)
            } else if met(facts.stale, stuck.stale) {
                format!("{} steps in a row brought nothing new", facts.stale)
            } else {
                let times = stuck.same_errors.unwrap_or_default();
                format!("the same failure in {times} steps in a row")
            }
        }
        Rule::Any(rules) => {
            let all: Vec<String> = rules.iter().map(|one| sentence(one, facts)).collect();
            format!("one of: {}", all.join("; "))
        }
    }
}
