//! Summarises one session: its ending, its usage and its irregularities.
//!
//! ```
//! use endstop_trajectory::audit::Session;
//! use endstop_trajectory::{Prices, Trajectory};
//! let session = Session::of(&Trajectory::new("empty"), &Prices::new());
//! if session.is_wrong() {
//!     println!("{}: {}", session.file, session.ended.words);
//! }
//! ```

use super::claim::{self, Sign};
use super::ending::Ended;
use super::limits::{self, Stop};
use super::loops::{self, Loop};
use super::quote::short;
use super::request::requests;
use crate::model::{Role, Trajectory, Usage};
use crate::pricing::Prices;
use crate::pricing::{Spent, model_of, provider_of};
use crate::read::is_aside;
use crate::time::unix_ms;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Maximum number of models of a session that are listed separately.
const MODELS: usize = 100;
/// Maximum nesting depth of subagents that is followed.
const DEEPEST: u32 = 16;

/// The facts about a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The session's file.
    pub file: String,
    /// The line, or the index of the list element, if the file has several sessions.
    pub at: Option<u64>,
    /// The session's id.
    pub id: String,
    /// The session's format.
    pub format: Cow<'static, str>,
    /// The agent.
    pub agent: Option<String>,
    /// `true` if another session started this one as a subagent.
    pub subagent: bool,
    /// The first prompt, shortened.
    pub task: String,
    /// The time of the first step, in Unix milliseconds.
    pub first_ms: Option<i64>,
    /// The time of the last step, in Unix milliseconds.
    pub last_ms: Option<i64>,
    /// Number of requests of a person.
    pub requests: u64,
    /// Number of tool calls. This and all following members include subagents.
    pub calls: u64,
    /// Number of results that are failures.
    pub failures: u64,
    /// `true` if the recording of the session or of a subagent does not contain tool results: then
    /// failures, loops and contradicted claims are unknown.
    pub lacks_results: bool,
    /// The session's usage.
    pub spent: Spent,
    /// `true` if the cost is recorded; `false` if it is calculated from the price list.
    pub cost_recorded: bool,
    /// The model of the session, if the recording names it.
    #[serde(default)]
    pub model: Option<String>,
    /// The usage of each model.
    pub models: BTreeMap<String, Spent>,
    /// The recorded outcome: `true` for a success, `false` for a failure.
    pub success: Option<bool>,
    /// The session's ending.
    pub ended: Ended,
    /// A claim of success that the record contradicts.
    pub sign: Option<Sign>,
    /// The loops of the session.
    pub loops: Vec<Loop>,
    /// The requests that the default limits would have ended.
    pub stops: Vec<Stop>,
}

impl Session {
    /// Summarises a run.
    pub fn of(run: &Trajectory<'_>, prices: &Prices) -> Session {
        let requests = requests(run);
        let each: Vec<Spent> = run.turns().map(|step| Spent::of_step(step, run, prices)).collect();
        let ended = Ended::of(run);
        let task = run.steps.iter().find(|step| step.role == Role::User && !is_aside(step));
        let mut session = Session {
            file: run.origin.file.clone(),
            at: run.origin.at,
            id: short(&run.run_id, 100),
            format: run.origin.format.into(),
            agent: run.agent.as_deref().map(|agent| short(agent, 60)),
            subagent: run.is_tagged("subagent"),
            task: task.map_or_else(String::new, |step| short(&step.text, 120)),
            first_ms: None,
            last_ms: None,
            requests: requests.len() as u64,
            calls: 0,
            failures: 0,
            lacks_results: false,
            spent: Spent::default(),
            cost_recorded: false,
            model: run.model.as_deref().map(|model| short(model, 80)),
            models: BTreeMap::new(),
            success: run.recorded.success,
            sign: claim::sign(run),
            loops: loops::loops(run, &requests, &each),
            stops: limits::stops(run, &requests, &each, &ended),
            ended,
        };
        session.count(run, &each, prices);
        // Subagents are counted in the session, because they were started and paid for as a part of
        // it.
        session.with_children(run, prices, 0);
        session.recorded(run);
        session
    }

    /// Returns `true` if the session failed, by its recorded outcome or because it ended without an
    /// answer, contains a loop, or makes a contradicted claim.
    pub fn is_wrong(&self) -> bool {
        self.has_failed() || self.sign.is_some() || !self.loops.is_empty()
    }

    /// Returns `true` if the recorded outcome is a failure or, without one, if the session ended
    /// without an answer.
    pub fn has_failed(&self) -> bool {
        // A recorded success outranks the ending: the goal may be reached before a limit is.
        self.success.map_or(self.ended.how.is_without_answer(), |success| !success)
    }

    /// Returns the model with the most turns or, if there is no turn, the model of the session.
    pub fn main_model(&self) -> Option<&str> {
        let most = self.models.iter().max_by_key(|(_, spent)| spent.turns);
        most.map(|(model, _)| model.as_str()).or(self.model.as_deref())
    }

    /// Returns the usage that is in question: all of it if the session failed or its answer is
    /// contradicted, otherwise the usage after loops.
    pub fn in_question(&self) -> Spent {
        if self.has_failed() || self.sign.is_some() {
            self.spent
        } else {
            self.loops.iter().map(|one| &one.behind).sum()
        }
    }

    fn with_children(&mut self, run: &Trajectory<'_>, prices: &Prices, depth: u32) {
        // The recording decides the nesting, so the recursion must be bounded.
        if depth >= DEEPEST {
            return;
        }
        for child in &run.children {
            let each: Vec<Spent> =
                child.turns().map(|step| Spent::of_step(step, child, prices)).collect();
            // Named, so that a report can show which agent was stuck.
            let name = short(child.agent.as_deref().unwrap_or(&child.run_id), 60);
            let found = loops::loops(child, &requests(child), &each);
            self.loops
                .extend(found.into_iter().map(|one| Loop { agent: Some(name.clone()), ..one }));
            self.count(child, &each, prices);
            self.with_children(child, prices, depth + 1);
        }
    }

    /// Adds the turns of a run, without those of its children.
    fn count(&mut self, run: &Trajectory<'_>, each: &[Spent], prices: &Prices) {
        self.lacks_results |= run.lacks_results();
        for step in run.steps.iter().filter(|step| !step.copied) {
            if step.is_turn() {
                self.calls += step.calls.len() as u64;
            }
            let failed = step.results.iter();
            let failed =
                failed.filter(|result| result.is_error || result.exit_code.is_some_and(|c| c != 0));
            self.failures += failed.count() as u64;
            // Minimum and maximum, because steps may be out of order.
            if let Some(at) = step.at.as_deref().and_then(unix_ms) {
                self.first_ms = Some(self.first_ms.map_or(at, |first| first.min(at)));
                self.last_ms = Some(self.last_ms.map_or(at, |last| last.max(at)));
            }
        }
        let mut sum: Spent = each.iter().sum();
        let silent = sum.silent_turns > 0 || each.is_empty();
        // Paid like the turns, but not counted as such: failed calls and compactions.
        let outside: Vec<(Option<&str>, Spent)> = run
            .totals
            .outside_turns
            .iter()
            .map(|call| (call.model.as_deref(), Spent::of_call(call, run, prices)))
            .collect();
        for (_, spent) in &outside {
            sum += *spent;
        }
        // If some turns have no usage, use the totals of the recording, provided they are not
        // smaller. The totals include the calls that are not turns.
        let whole = whole(run, prices).filter(|all| silent && all.tokens() >= sum.tokens());
        if let Some(mut all) = whole {
            // A recording with only totals has no turns to count.
            all.turns = match run.totals.turns {
                Some(turns) if each.is_empty() => turns,
                _ => sum.turns,
            };
            self.model(run.model.as_deref(), all);
            self.spent += all;
        } else {
            for (step, spent) in run.turns().zip(each) {
                self.model(model_of(step, run), *spent);
            }
            for (model, spent) in outside {
                self.model(model.or(run.model.as_deref()), spent);
            }
            self.spent += sum;
        }
    }

    fn model(&mut self, name: Option<&str>, spent: Spent) {
        let name = name.map_or_else(|| "(not said)".to_owned(), |name| short(name, 80));
        // Model names come from the file, so their number is bounded.
        let full = self.models.len() >= MODELS && !self.models.contains_key(&name);
        let name = if full { "(others)".to_owned() } else { name };
        *self.models.entry(name).or_default() += spent;
    }

    /// Applies the recorded total cost, which takes precedence over calculated prices.
    fn recorded(&mut self, run: &Trajectory<'_>) {
        // If every turn and every other call has a recorded cost, so has the session.
        let each = with_cost(run, 0);
        self.cost_recorded = each > 0 && each == self.spent.turns && outside_has_cost(run, 0);
        let Some(usd) = run.totals.cost_usd else { return };
        self.cost_recorded = true;
        self.spent.recorded(usd);
        // With a single model, the recorded cost is that model's.
        if self.models.len() == 1 {
            self.models.values_mut().for_each(|spent| spent.recorded(usd));
        }
    }
}

/// Returns the number of turns with a recorded cost, including those of subagents.
fn with_cost(run: &Trajectory<'_>, depth: u32) -> u64 {
    let own = run.turns().filter(|step| step.cost_usd.is_some()).count() as u64;
    // The same depth as in `with_children`, because only those turns are counted.
    let children = run.children.iter().filter(|_| depth < DEEPEST);
    own + children.map(|child| with_cost(child, depth + 1)).sum::<u64>()
}

/// Returns `true` if all calls that are not turns have a recorded cost, including those of subagents.
fn outside_has_cost(run: &Trajectory<'_>, depth: u32) -> bool {
    let mut children = run.children.iter().filter(|_| depth < DEEPEST);
    run.totals.outside_turns.iter().all(|call| call.cost_usd.is_some())
        && children.all(|child| outside_has_cost(child, depth + 1))
}

/// Returns the usage of the whole run, if the recording contains totals.
fn whole(run: &Trajectory<'_>, prices: &Prices) -> Option<Spent> {
    let totals = &run.totals;
    let usage = Usage {
        prompt_tokens: Some(totals.prompt_tokens?),
        completion_tokens: Some(totals.completion_tokens?),
        cached_tokens: totals.cached_tokens,
        ..Usage::default()
    };
    // Totals are recorded without a model, so the run's model, or else that of its first turn, sets
    // the price.
    let model = run.model.as_deref().or_else(|| run.turns().find_map(|step| step.model.as_deref()));
    Some(Spent::of_total(&usage, model, provider_of(run), prices))
}

#[cfg(test)]
mod tests {
    use super::super::How;
    use super::*;
    use crate::model::{Call, CallResult, ModelCall, Step, Totals};

    fn turn(input: u64, output: u64) -> Step<'static> {
        Step {
            calls: vec![Call {
                name: "Bash".into(),
                arguments: r#"{"command":"cargo test"}"#.into(),
                ..Call::default()
            }],
            results: vec![CallResult {
                content: "1 failed".into(),
                is_error: true,
                ..CallResult::default()
            }],
            usage: Some(Box::new(Usage {
                prompt_tokens: Some(input),
                completion_tokens: Some(output),
                cached_tokens: Some(input / 2),
                ..Usage::default()
            })),
            ..Step::new(Role::Agent)
        }
    }

    fn run(steps: Vec<Step<'static>>) -> Trajectory<'static> {
        Trajectory { steps, model: Some("claude-opus-4-5".into()), ..Trajectory::new("s") }
    }

    #[test]
    fn cached_tokens_have_their_own_price() {
        let session = Session::of(&run(vec![turn(1_000_000, 100_000)]), &Prices::new());
        // 500,000 at $5, 500,000 at $0.50, 100,000 at $25.
        assert_eq!(session.spent.usd.to_usd(), 2.5 + 0.25 + 2.5);
        assert_eq!((session.spent.tokens(), session.spent.unpriced_tokens), (1_100_000, 0));
        assert!(!session.cost_recorded);
    }

    #[test]
    fn loops_and_stops_report_later_usage() {
        let session = Session::of(&run(vec![turn(1000, 100); 8]), &Prices::new());
        let one = &session.loops[0];
        assert_eq!((one.turn, one.behind.turns, one.behind.tokens()), (3, 5, 5500));
        assert_eq!((one.what.as_str(), one.gave.as_str()), ("Bash(cargo test)", "1 failed"));
        assert!(
            one.rules.iter().any(|rule| rule == "repeat_call_res(3) at turn 3"),
            "{:?}",
            one.rules
        );
        let stop = &session.stops[0];
        assert!(stop.termination.is_error() && !stop.answered);
        assert_eq!(stop.behind.turns, 8 - stop.turn);
        assert_eq!(session.ended.how, How::NoAnswer);
        assert_eq!(session.in_question().turns, 8);
    }

    #[test]
    fn stop_only_costs_answers_that_came() {
        let mut steps: Vec<Step<'static>> = (0..30)
            .map(|n| {
                let mut step = turn(1000, 100);
                step.calls[0].arguments = format!("{{\"command\":\"ls {n}\"}}").into();
                step.results[0] =
                    CallResult { content: n.to_string().into(), ..CallResult::default() };
                step
            })
            .collect();
        steps.push(Step { text: "It is so.".into(), ..Step::new(Role::Agent) });
        let mut run = run(steps);
        let stop = |run: &Trajectory<'_>| Session::of(run, &Prices::new()).stops[0].clone();
        assert_eq!((stop(&run).turn, stop(&run).answered), (25, true));
        assert_eq!(stop(&run).behind.turns, 6);
        let ending = crate::model::Ending { reason: "max_turns".into(), ..Default::default() };
        run.ending = Some(ending);
        assert!(!stop(&run).answered);
    }

    #[test]
    fn unknown_model_has_tokens_without_dollars() {
        let mut other = run(vec![turn(1000, 100)]);
        other.model = Some("claude-fx-1".into());
        let session = Session::of(&other, &Prices::new());
        assert_eq!((session.spent.usd.0, session.spent.unpriced_tokens), (0, 1100));
        assert_eq!(session.models["claude-fx-1"].unpriced_tokens, 1100);
    }

    #[test]
    fn recorded_totals_take_precedence() {
        let mut whole = run(vec![Step { usage: None, ..turn(0, 0) }; 2]);
        whole.totals = Totals {
            prompt_tokens: Some(1000),
            completion_tokens: Some(10),
            cost_usd: Some(0.5),
            ..Totals::default()
        };
        let session = Session::of(&whole, &Prices::new());
        assert_eq!((session.spent.turns, session.spent.tokens()), (2, 1010));
        assert_eq!(session.spent.usd.to_usd(), 0.5);
        assert!(session.cost_recorded);
    }

    #[test]
    fn calls_outside_turns_are_paid() {
        let call = |model: Option<&str>, cost_usd| ModelCall {
            model: model.map(str::to_owned),
            usage: Usage {
                prompt_tokens: Some(2000),
                completion_tokens: Some(1),
                ..Usage::default()
            },
            cost_usd,
        };
        let mut paid = run(vec![Step { cost_usd: Some(0.25), ..turn(1000, 20) }]);
        let outside = |run: &mut Trajectory<'static>, calls| run.totals.outside_turns = calls;
        outside(&mut paid, vec![call(None, Some(0.5)), call(Some("no-such-model"), Some(0.5))]);
        let session = Session::of(&paid, &Prices::new());
        assert_eq!((session.spent.turns, session.spent.tokens()), (1, 1020 + 2 * 2001));
        assert_eq!((session.spent.usd.to_usd(), session.cost_recorded), (1.25, true));
        let of = |name: &str| (session.models[name].turns, session.models[name].tokens());
        assert_eq!((of("claude-opus-4-5"), of("no-such-model")), ((1, 3021), (0, 2001)));
        // Without a recorded cost it is calculated, so the session's cost is not recorded either.
        outside(&mut paid, vec![call(None, None)]);
        let session = Session::of(&paid, &Prices::new());
        assert!(!session.cost_recorded && session.spent.usd.to_usd() > 0.25);
        // Totals that replace missing usage include the other calls already.
        let mut silent = run(vec![Step { usage: None, ..turn(0, 0) }]);
        silent.totals.prompt_tokens = Some(3000);
        silent.totals.completion_tokens = Some(21);
        outside(&mut silent, vec![call(None, None)]);
        assert_eq!(Session::of(&silent, &Prices::new()).spent.tokens(), 3021);
        silent.totals.prompt_tokens = Some(1000);
        assert_eq!(Session::of(&silent, &Prices::new()).spent.tokens(), 2001);
    }

    #[test]
    fn incomplete_usage_counts_as_missing() {
        let totals =
            Totals { prompt_tokens: Some(1000), completion_tokens: Some(10), ..Totals::default() };
        let half = |prompt, completion| {
            let usage =
                Usage { prompt_tokens: prompt, completion_tokens: completion, ..Usage::default() };
            Step { usage: Some(Box::new(usage)), ..turn(0, 0) }
        };
        for (steps, silent, tokens) in [
            (vec![turn(0, 0); 2], 2, 1010),
            (vec![half(None, Some(5)); 2], 2, 1010),
            (vec![turn(400, 0), turn(0, 0)], 1, 1010),
            // The usage of the turns takes precedence over the totals.
            (vec![turn(400, 5); 2], 0, 810),
            (vec![Step { cost_usd: Some(0.25), ..turn(0, 0) }; 2], 0, 0),
        ] {
            let run = Trajectory { totals: totals.clone(), ..run(steps) };
            let each = run.turns().map(|step| Spent::of_step(step, &run, &Prices::new()));
            assert_eq!(each.map(|spent| spent.silent_turns).sum::<u64>(), silent);
            assert_eq!(Session::of(&run, &Prices::new()).spent.tokens(), tokens);
        }
    }

    #[test]
    fn missing_results_make_findings_unknown() {
        let mut steps = vec![turn(1000, 100); 8];
        steps.push(Step { text: "All tests pass now.".into(), ..Step::new(Role::Agent) });
        let mut run = run(steps);
        let seen = Session::of(&run, &Prices::new());
        assert!(!seen.lacks_results && seen.sign.is_some() && !seen.loops.is_empty());
        assert_eq!(seen.failures, 8);
        run.tags.push("no_results".into());
        // Even if some steps happen to have results.
        run.steps.iter_mut().skip(4).for_each(|step| step.results.clear());
        let blind = Session::of(&run, &Prices::new());
        assert!(blind.lacks_results);
        assert_eq!((blind.sign, blind.loops, blind.stops), (None, Vec::new(), Vec::new()));
        let mut parent = Trajectory::new("parent");
        parent.children = vec![run];
        let parent = Session::of(&parent, &Prices::new());
        let mut audit = crate::audit::Audit::new(1);
        audit.add(seen);
        audit.add(parent);
        assert_eq!((audit.sessions, audit.lacking_results), (2, 1));
    }

    #[test]
    fn nested_subagents_stop_at_limit() {
        for (levels, counted) in [(1, 1), (15, 15), (16, 16), (17, 16), (40, 16)] {
            let mut nested = run(vec![turn(10, 1)]);
            for _ in 1..levels {
                nested = Trajectory { children: vec![nested], ..run(vec![turn(10, 1)]) };
            }
            let parent = Trajectory { children: vec![nested], ..run(vec![turn(10, 1)]) };
            let session = Session::of(&parent, &Prices::new());
            assert_eq!(session.spent.turns, 1 + counted, "{levels} levels");
            assert_eq!(session.calls, 1 + counted, "{levels} levels");
        }
    }

    #[test]
    fn recorded_cost_includes_subagents() {
        let paid = || Step { cost_usd: Some(0.25), ..turn(10, 1) };
        for (own, child, recorded) in [
            (paid(), paid(), true),
            (paid(), turn(10, 1), false),
            (turn(10, 1), paid(), false),
            (turn(10, 1), turn(10, 1), false),
        ] {
            let parent = Trajectory { children: vec![run(vec![child])], ..run(vec![own]) };
            let session = Session::of(&parent, &Prices::new());
            assert_eq!(session.cost_recorded, recorded);
        }
    }

    #[test]
    fn subagents_are_counted_in_session() {
        let mut parent = run(vec![Step { text: "Done.".into(), ..Step::new(Role::Agent) }]);
        parent.children =
            vec![Trajectory { agent: Some("explorer".into()), ..run(vec![turn(1000, 100); 4]) }];
        let session = Session::of(&parent, &Prices::new());
        assert_eq!((session.spent.turns, session.calls, session.failures), (5, 4, 4));
        assert_eq!(session.loops[0].agent.as_deref(), Some("explorer"));
        assert_eq!(session.ended.how, How::Answered);
        assert_eq!(session.in_question().turns, 1);
    }
}
