//! The state of a rule over one run: everything that it remembers between steps.
//!
//! ```text
//! let mut detector = Detector::new(rule);
//! detector.text("…");                     // only rules that read text or tool names need these
//! detector.succeeded("read");
//! if detector.step(book.end()) { … }      // the first step at which it fires
//! ```

use super::chanting::Chant;
use super::facts::Facts;
use super::rule::Rule;
use std::collections::VecDeque;

/// A rule with its state.
#[derive(Clone, Debug)]
pub(crate) struct Detector {
    rule: Rule,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// A number of equal steps in a row.
    Streak {
        /// Hashes that the steps have in common.
        of: (u64, u64),
        times: u32,
    },
    /// The search for a period in the calls.
    Cycle {
        /// Calls of the last steps, at most one period, the newest last.
        last: VecDeque<u64>,
        /// Number of steps in a row that equal the step one period before.
        periodic: u32,
        /// The last step with calls other than those of the step before it.
        unequal_at: u32,
        step: u32,
    },
    /// `true` if the text or the tool was seen in this step.
    Seen(bool),
    Chant(Box<Chant>),
    Any(Vec<Detector>),
    None,
}

impl Detector {
    pub(crate) fn new(rule: Rule) -> Detector {
        let state = State::of(&rule);
        Detector { rule, state }
    }

    pub(crate) fn rule(&self) -> &Rule {
        &self.rule
    }

    pub(crate) fn reset(&mut self) {
        match &mut self.state {
            State::Streak { of, times } => (*of, *times) = ((0, 0), 0),
            State::Cycle { last, periodic, unequal_at, step } => {
                last.clear();
                (*periodic, *unequal_at, *step) = (0, 0, 0);
            }
            State::Seen(seen) => *seen = false,
            State::Chant(chant) => chant.reset(),
            State::Any(members) => members.iter_mut().for_each(Detector::reset),
            State::None => {}
        }
    }

    /// `true` if the rule reads the text or the tool names, and not only the facts.
    pub(crate) fn wants_words(&self) -> bool {
        match &self.state {
            State::Seen(_) | State::Chant(_) => true,
            State::Any(members) => members.iter().any(Detector::wants_words),
            _ => false,
        }
    }

    /// Adds the complete text of the step.
    pub(crate) fn text(&mut self, text: &str) {
        match (&self.rule, &mut self.state) {
            (Rule::TextMention(mention), State::Seen(seen)) => *seen |= mention.is_in(text),
            (_, State::Chant(chant)) => chant.whole(text),
            (_, State::Any(members)) => members.iter_mut().for_each(|member| member.text(text)),
            _ => {}
        }
    }

    /// Adds a call of the step that succeeded.
    pub(crate) fn succeeded(&mut self, tool: &str) {
        match (&self.rule, &mut self.state) {
            (Rule::ToolCalled { name, .. }, State::Seen(seen)) => *seen |= name == tool,
            (_, State::Any(members)) => {
                for member in members {
                    member.succeeded(tool);
                }
            }
            _ => {}
        }
    }

    /// Discards the text read by [`on_delta`](Self::on_delta). Called before each response, and before every
    /// further attempt at it.
    pub(crate) fn begin_text(&mut self) {
        match &mut self.state {
            State::Chant(chant) => chant.reset(),
            State::Any(members) => members.iter_mut().for_each(Detector::begin_text),
            _ => {}
        }
    }

    /// Reads the next chunk of a response; returns the evidence if the text repeats itself.
    pub(crate) fn on_delta(&mut self, piece: &str) -> Option<String> {
        match &mut self.state {
            State::Chant(chant) => chant.on_delta(piece),
            State::Any(members) => {
                // No short circuit: each member must read every chunk to keep its state.
                members.iter_mut().fold(None, |found, member| found.or(member.on_delta(piece)))
            }
            _ => None,
        }
    }

    /// Ends the step and returns `true` if the rule fires. Only the first `true` of a run counts;
    /// later results have no meaning.
    pub(crate) fn step(&mut self, facts: &Facts) -> bool {
        match (&self.rule, &mut self.state) {
            (Rule::RepeatCall { times: most }, State::Streak { of, times }) => {
                streak(facts.turn != 0, (facts.turn, 0), of, times) >= *most
            }
            (Rule::RepeatCallRes { times: most }, State::Streak { of, times }) => {
                streak(facts.turn != 0, (facts.turn, facts.results), of, times) >= *most
            }
            (Rule::SameError { times: most }, State::Streak { of, times }) => {
                // A failure without text (0) ends the streak: two of them may have different
                // causes.
                let error = facts.error.unwrap_or_default();
                streak(error != 0, (error, 0), of, times) >= *most
            }
            (Rule::SameText { times: most }, State::Streak { of, times }) => {
                streak(facts.text != 0, (facts.text, 0), of, times) >= *most
            }
            (Rule::Stuck(stuck), State::Streak { of, times }) => {
                let error = facts.error.unwrap_or_default();
                let errors = streak(error != 0, (error, 0), of, times);
                let met = |value: u32, most: Option<u32>| most.is_some_and(|most| value >= most);
                // `facts.repeats` counts half-points, so that all numbers stay integers.
                let halves = |n: Option<u32>| n.map(|n| n.saturating_mul(2));
                met(facts.repeats, halves(stuck.repeats))
                    || met(facts.alike, halves(stuck.similar))
                    || met(errors, stuck.same_errors)
                    || met(facts.failures, stuck.failures)
                    || met(facts.stale, stuck.stale)
            }
            (Rule::Cycle { period, times }, State::Cycle { .. }) => {
                let (period, times) = (*period, *times);
                self.state.cycle(period, times, facts)
            }
            (Rule::Alternate { times }, State::Cycle { .. }) => {
                let times = *times;
                self.state.cycle(2, times, facts)
            }
            (Rule::TotalRepeat { times }, _) => facts.most_calls >= *times,
            (Rule::AnyError { times }, _) => facts.failures >= *times,
            (Rule::NoNew { times }, _) => facts.stale >= *times,
            (Rule::Monologue { times }, _) => facts.alone >= *times,
            (Rule::MaxSteps { steps }, _) => facts.step >= *steps,
            // The tolerance is needed because a sum of decimal fractions is not exact in binary.
            (Rule::Cost { usd }, _) => facts.cost.is_some_and(|cost| cost.to_usd() >= usd - 1e-9),
            (Rule::Reward { at_least }, _) => facts.reward.is_some_and(|r| r >= *at_least),
            // Taken, because the next step starts without a match.
            (Rule::TextMention(_) | Rule::ToolCalled { .. }, State::Seen(seen)) => {
                std::mem::take(seen)
            }
            (Rule::Chanting { .. }, State::Chant(chant)) => chant.found(),
            (Rule::Any(_), State::Any(members)) => {
                // `|` and not `||`: each member must see every step to keep its state.
                members.iter_mut().fold(false, |fired, member| fired | member.step(facts))
            }
            _ => false,
        }
    }
}

impl State {
    fn of(rule: &Rule) -> State {
        match rule {
            Rule::RepeatCall { .. }
            | Rule::RepeatCallRes { .. }
            | Rule::SameError { .. }
            | Rule::SameText { .. }
            | Rule::Stuck(_) => State::Streak { of: (0, 0), times: 0 },
            Rule::Cycle { .. } | Rule::Alternate { .. } => {
                State::Cycle { last: VecDeque::new(), periodic: 0, unequal_at: 0, step: 0 }
            }
            Rule::TextMention(_) | Rule::ToolCalled { .. } => State::Seen(false),
            Rule::Chanting { times, min_chars } => {
                State::Chant(Box::new(Chant::new(*times, *min_chars)))
            }
            Rule::Any(rules) => State::Any(rules.iter().cloned().map(Detector::new).collect()),
            _ => State::None,
        }
    }

    /// `true` if each of the last `period * times` steps has calls, equal to those of the step one
    /// period before it, and the steps are not all equal.
    fn cycle(&mut self, period: u32, times: u32, facts: &Facts) -> bool {
        let State::Cycle { last, periodic, unequal_at, step } = self else { return false };
        *step += 1;
        // A step without calls ends every cycle.
        if facts.turn == 0 {
            last.clear();
            (*periodic, *unequal_at) = (0, 0);
            return false;
        }
        if last.back().is_some_and(|before| *before != facts.turn) {
            *unequal_at = *step;
        }
        let repeats = last.len() == period as usize && last.front() == Some(&facts.turn);
        *periodic = if repeats { *periodic + 1 } else { 0 };
        last.push_back(facts.turn);
        if last.len() > period as usize {
            last.pop_front();
        }
        let whole = u64::from(period) * u64::from(times);
        // The first cycle has no cycle before it to equal, so `periodic` counts one cycle less. A
        // single cycle needs only enough steps.
        let long_enough = if times == 1 {
            last.len() == period as usize
        } else {
            u64::from(*periodic) >= whole - u64::from(period)
        };
        // Equal steps are `repeat_call`, not a cycle: a change must lie within the cycles.
        let first = (u64::from(*step) + 1).saturating_sub(whole);
        long_enough && u64::from(*unequal_at) > first
    }
}

/// Counts equal steps in a row; a step with `counts` false ends the streak.
fn streak(counts: bool, is: (u64, u64), of: &mut (u64, u64), times: &mut u32) -> u32 {
    *times = match (counts, *of == is && *times > 0) {
        (false, _) => 0,
        (true, true) => *times + 1,
        (true, false) => 1,
    };
    *of = is;
    *times
}
