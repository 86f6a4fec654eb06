//! A rule at work over one run: what it remembers between steps.
//!
//! ```text
//! let mut detector = Detector::new(rule);
//! detector.text("…");                     // what is looked for in the words themselves
//! detector.call("read");
//! if detector.step(book.end()) { … }      // the first step at which it fires
//! ```

use super::chanting::Chant;
use super::facts::Facts;
use super::rule::Rule;
use std::collections::VecDeque;

/// A rule at work.
#[derive(Debug)]
pub(crate) struct Detector {
    rule: Rule,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Steps in a row that are alike: with what they are alike, and how many.
    Streak {
        of: (u64, u64),
        times: u32,
    },
    /// The calls of the last steps, the newest last, and for how many of them each is that of a
    /// period before.
    Cycle {
        last: VecDeque<u64>,
        periodic: u32,
        unequal_at: u32,
        step: u32,
    },
    /// It was mentioned, or called, in this step.
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

    /// Whether it looks at words, and not only at facts.
    pub(crate) fn wants_words(&self) -> bool {
        match &self.state {
            State::Seen(_) | State::Chant(_) => true,
            State::Any(members) => members.iter().any(Detector::wants_words),
            _ => false,
        }
    }

    /// The text of the step, whole.
    pub(crate) fn text(&mut self, text: &str) {
        match (&self.rule, &mut self.state) {
            (Rule::TextMention(mention), State::Seen(seen)) => *seen |= mention.is_in(text),
            (_, State::Chant(chant)) => chant.whole(text),
            (_, State::Any(members)) => members.iter_mut().for_each(|member| member.text(text)),
            _ => {}
        }
    }

    /// A call of the step.
    pub(crate) fn call(&mut self, tool: &str) {
        match (&self.rule, &mut self.state) {
            (Rule::ToolCalled { name }, State::Seen(seen)) => *seen |= name == tool,
            (_, State::Any(members)) => members.iter_mut().for_each(|member| member.call(tool)),
            _ => {}
        }
    }

    /// A response begins, or another attempt at it.
    pub(crate) fn begin_text(&mut self) {
        match &mut self.state {
            State::Chant(chant) => chant.reset(),
            State::Any(members) => members.iter_mut().for_each(Detector::begin_text),
            _ => {}
        }
    }

    /// The next piece of the response's text: what it repeats, where it chants.
    pub(crate) fn look(&mut self, piece: &str) -> Option<String> {
        match &mut self.state {
            State::Chant(chant) => chant.look(piece),
            State::Any(members) => {
                // Each sees the piece.
                members.iter_mut().fold(None, |found, member| found.or(member.look(piece)))
            }
            _ => None,
        }
    }

    /// The step is whole: whether the rule fires. The first `true` counts; what it says behind that
    /// means nothing.
    pub(crate) fn step(&mut self, facts: &Facts) -> bool {
        match (&self.rule, &mut self.state) {
            (Rule::RepeatCall { times: most }, State::Streak { of, times }) => {
                streak(facts.turn != 0, (facts.turn, 0), of, times) >= *most
            }
            (Rule::RepeatCallRes { times: most }, State::Streak { of, times }) => {
                streak(facts.turn != 0, (facts.turn, facts.results), of, times) >= *most
            }
            (Rule::SameError { times: most }, State::Streak { of, times }) => {
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
                met(facts.repeats, stuck.repeats.map(|n| n.saturating_mul(2)))
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
            // A sum of decimal fractions is not exact.
            (Rule::Cost { usd }, _) => facts.cost_usd.is_some_and(|cost| cost >= usd - 1e-9),
            (Rule::Reward { at_least }, _) => facts.reward.is_some_and(|r| r >= *at_least),
            (Rule::TextMention(_) | Rule::ToolCalled { .. }, State::Seen(seen)) => {
                std::mem::take(seen)
            }
            (Rule::Chanting { .. }, State::Chant(chant)) => chant.found(),
            (Rule::Any(_), State::Any(members)) => {
                // Each sees the step.
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

    /// Whether the last `period * times` steps all call something, each what the one a period before
    /// it called, and not all the same.
    fn cycle(&mut self, period: u32, times: u32, facts: &Facts) -> bool {
        let State::Cycle { last, periodic, unequal_at, step } = self else { return false };
        *step += 1;
        if facts.turn == 0 {
            last.clear();
            (*periodic, *unequal_at) = (0, 0);
            return false;
        }
        if last.back().is_some_and(|before| *before != facts.turn) {
            // Between this step and the one before it lies a change.
            *unequal_at = *step;
        }
        let repeats = last.len() == period as usize && last.front() == Some(&facts.turn);
        *periodic = if repeats { *periodic + 1 } else { 0 };
        last.push_back(facts.turn);
        if last.len() > period as usize {
            last.pop_front();
        }
        let whole = u64::from(period) * u64::from(times);
        // The first round repeats nothing; a single one is no cycle of another.
        let long_enough = if times == 1 {
            last.len() == period as usize
        } else {
            u64::from(*periodic) >= whole - u64::from(period)
        };
        // A change within the rounds, not before them.
        let first = (u64::from(*step) + 1).saturating_sub(whole);
        long_enough && u64::from(*unequal_at) > first
    }
}

/// Counts steps in a row that are alike.
fn streak(counts: bool, is: (u64, u64), of: &mut (u64, u64), times: &mut u32) -> u32 {
    *times = match (counts, *of == is && *times > 0) {
        (false, _) => 0,
        (true, true) => *times + 1,
        (true, false) => 1,
    };
    *of = is;
    *times
}
