//! The judge of a run: policies, watch rules and no-progress detection, behind one entry point.
//!
//! ```text
//! a chunk of a response ─┐
//! a complete response ───┤                    ┌─► the ending, if the run ends
//! calls about to run ────┼─► Judge::step ─────┤
//! a complete step ───────┘                    └─► messages for the model
//! ```
//!
//! Every phase asks at its own point, and acts on the [`Judgement`]. If several decisions compete on
//! the same step, the order of [`Source`] ranks them.

mod facts;
mod progress;
mod watchers;

use super::effect::Effect;
use super::outcome::NoProgressSnapshot;
use super::outcome::ending::{Ending, Flow, guarded};
use super::setup::watch::{RuleHit, Watch};
use crate::policy::{StepContext, TerminationPolicy, Verdict};
pub(super) use facts::{Facts, Judgement, SaidText, Step};
use facts::{step_result, stop_ending};
use progress::Progress;
use std::ops::ControlFlow::{Break, Continue};
use watchers::{Watched, Watchers};

/// Everything that judges the steps of a run, with its state.
#[derive(Debug)]
pub(super) struct Judge {
    policy: Option<Box<dyn TerminationPolicy>>,
    /// The rules of the run, until one of them has something to read.
    watches: Vec<Watch>,
    /// The rules with their state, from then on. A run that waits for its first response has none,
    /// because the facts that rules compare are large.
    watchers: Option<Box<Watchers>>,
    progress: Progress,
    /// The observations that policies and rules read in addition to the step.
    pub(super) context: StepContext,
}

impl Judge {
    pub(super) fn new(
        policy: Option<Box<dyn TerminationPolicy>>,
        watches: Vec<Watch>,
        context: StepContext,
    ) -> Judge {
        Judge { policy, watches, watchers: None, progress: Progress::default(), context }
    }

    /// Creates the state of the rules, unless it exists or there are no rules.
    fn begin_watching(&mut self) {
        if !self.watches.is_empty() {
            let watches = std::mem::take(&mut self.watches);
            self.watchers = Some(Box::new(Watchers::new(watches)));
        }
    }

    /// Judges the facts: the only entry point, called once at each point of a turn.
    pub(super) fn step(&mut self, facts: Facts<'_>, effects: &mut Vec<Effect>) -> Judgement {
        match facts {
            Facts::Delta { piece, turn, answer, may_stop } => {
                self.delta(piece, turn, may_stop, answer, effects)
            }
            Facts::Text { streamed, said } => self.text(streamed, said),
            Facts::Calls { said } => self.before_calls(said),
            Facts::Step(step) => self.complete_step(step, effects),
        }
    }

    /// Resets the policy for the start of a run.
    pub(super) fn begin_run(&mut self) -> Flow {
        match &mut self.policy {
            Some(policy) => guarded(policy.name().to_owned(), || policy.reset()),
            None => Continue(()),
        }
    }

    /// Resets what was read of a response, for a new one or for another attempt at it. `before` is the
    /// visible text that the response continues.
    pub(super) fn begin_response(&mut self, before: &str) -> Flow {
        if let Some(watchers) = &mut self.watchers {
            watchers.begin_text(before);
        }
        let Some(policy) = &mut self.policy else { return Continue(()) };
        let context = &self.context;
        guarded(policy.name().to_owned(), || {
            policy.begin_turn();
            if !before.is_empty() {
                // A stop in what was read before did not end the run then, and does not now.
                policy.on_delta(before, context);
            }
        })
    }

    /// The number of consecutive turns without progress.
    pub(super) fn unproductive(&self) -> u32 {
        self.progress.unproductive()
    }

    /// The number of consecutive turns that are like an earlier one, if they decide the number of those
    /// without progress.
    pub(super) fn similar(&self) -> Option<u32> {
        self.progress.similar()
    }

    /// The repeated calls of the last turn without progress.
    pub(super) fn no_progress_snapshot(&self) -> Option<&NoProgressSnapshot> {
        self.progress.snapshot()
    }

    /// The watch rules that fired so far.
    pub(super) fn rule_hits(&self) -> &[RuleHit] {
        self.watchers.as_ref().map_or(&[], |watchers| &watchers.fired)
    }

    pub(super) fn into_rule_hits(self) -> Vec<RuleHit> {
        self.watchers.map_or_else(Vec::new, |watchers| watchers.fired)
    }

    /// Judges a chunk of a response: the rules first, then the policy.
    fn delta(
        &mut self,
        piece: &str,
        turn: u32,
        may_stop: bool,
        answer: &dyn Fn() -> Option<String>,
        effects: &mut Vec<Effect>,
    ) -> Judgement {
        if self.watches.iter().any(|watch| watch.rule.reads_stream()) {
            self.begin_watching();
        }
        let watchers = self.watchers.as_mut();
        if let Some(stop) =
            watchers.and_then(|watchers| watchers.on_delta(piece, turn, may_stop, effects))
        {
            return Judgement::end(stop_ending(stop, "in mid-stream", answer));
        }
        let Some(policy) = &mut self.policy else { return Judgement::default() };
        match guarded(policy.name().to_owned(), || policy.on_delta(piece, &self.context)) {
            Break(fault) => Judgement::fault(fault),
            Continue(Some(stop)) if may_stop => {
                Judgement::end(stop_ending(stop, "in mid-stream", answer))
            }
            Continue(stop) => Judgement { deferred: stop.is_some(), ..Judgement::default() },
        }
    }

    /// Shows the policy the part of a complete response that it has not read.
    fn text(&mut self, streamed: Option<&str>, said: SaidText<'_>) -> Judgement {
        let Some(policy) = &mut self.policy else { return Judgement::default() };
        let context = &self.context;
        let rest = streamed.and_then(|streamed| said.text.strip_prefix(streamed));
        let stop = guarded(policy.name().to_owned(), || {
            if let Some(rest) = rest {
                return policy.on_delta(rest, context);
            }
            // The policy had already requested a stop that was deferred, or the final text differs
            // from the streamed one. Start over with the whole text.
            policy.begin_turn();
            policy.on_delta(said.text, context)
        });
        match stop {
            Break(fault) => Judgement::fault(fault),
            Continue(Some(stop)) => Judgement::end(stop_ending(stop, "", || said.answer())),
            Continue(None) => Judgement::default(),
        }
    }

    /// Asks the policy about the complete text of a turn whose tools are about to run.
    fn before_calls(&mut self, said: SaidText<'_>) -> Judgement {
        let Some(policy) = &mut self.policy else { return Judgement::default() };
        let context = &self.context;
        match guarded(policy.name().to_owned(), || policy.on_text_complete(said.text, context)) {
            Break(fault) => Judgement::fault(fault),
            Continue(Some(stop)) => Judgement::end(stop_ending(stop, "", || said.answer())),
            Continue(None) => Judgement::default(),
        }
    }

    /// Judges a complete step.
    fn complete_step(&mut self, mut step: Step<'_>, effects: &mut Vec<Effect>) -> Judgement {
        // A turn whose calls only waited is neither progress nor repetition.
        let is_counted = match step.counted {
            [] if step.calls.is_empty() => {
                self.progress.said(step.said.text);
                false
            }
            [] => false,
            counted => {
                self.progress.record(step.said.text, counted);
                true
            }
        };
        let verdict = match step.fault.take() {
            Some(fault) => Break(fault),
            None => self.ask_policy(&step),
        };
        self.begin_watching();
        let watchers = self.watchers.as_mut();
        let watched = watchers.map(|watchers| watchers.on_step(&step, &self.context, effects));
        let Watched { stop, nudges, of_text } = watched.unwrap_or_default();
        // A message that arrived is visible to policies and rules for exactly one step.
        self.context.message_arrived = false;

        // A rule that objects to the text, or a policy that has a message about it, withdraws the
        // text as an answer, but not an answer that was declared.
        let declared = step.is_declared();
        let refused = of_text || matches!(verdict, Continue(Verdict::Tell(_)));
        let declaration = step.answer.filter(|_| declared || !refused);
        let said = step.said;
        let answer = || said.answer();
        let mut found = Vec::new();
        let mut told = None;
        match verdict {
            Continue(Verdict::Stop(stop)) => {
                found.push((Source::Policy, stop_ending(stop, "", answer)));
            }
            Continue(Verdict::Tell(text)) => told = Some(text),
            Continue(Verdict::Continue) => {}
            Break(fault) => found.push((Source::Policy, fault)),
        }
        found.extend(stop.map(|stop| (Source::Rule, stop_ending(stop, "", answer))));
        let source = if declared { Source::Finish } else { Source::Answer };
        found.extend(declaration.map(|answer| (source, answer)));
        let ending = decide(found);
        let told = told.filter(|_| ending.is_none());
        let warning = is_counted.then(|| self.progress.warning(step.warn_before)).flatten();
        Judgement { ending, fault: None, deferred: false, told, nudges, warning }
    }

    /// Shows the policy a complete step.
    fn ask_policy(&mut self, step: &Step<'_>) -> Flow<Verdict> {
        let Some(policy) = &mut self.policy else { return Continue(Verdict::Continue) };
        let result = step_result(step, &self.context);
        self.context.cost = step.cost;
        let context = &self.context;
        guarded(policy.name().to_owned(), || policy.should_terminate(&result, context))
    }
}

/// The source of a decision about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// `finish` declared an answer, or that the task is not feasible.
    Finish,
    /// The policy stopped the run, or panicked.
    Policy,
    /// A watch rule in mode `stop` fired.
    Rule,
    /// The text of the step is an answer.
    Answer,
}

/// The sources in their order of precedence.
///
/// `finish` outranks everything. Among the others, a success outranks every failure, because an
/// answer stands; of several successes or several failures the first source in the table decides.
/// A policy's success outranks the natural end, because the policy found the answer within the text.
const PRECEDENCE: [Source; 4] = [Source::Finish, Source::Policy, Source::Rule, Source::Answer];

/// Returns the ending that decides, with the failures that it outranks.
pub(super) fn decide(mut found: Vec<(Source, Box<Ending>)>) -> Option<Box<Ending>> {
    found.sort_by_key(|(source, _)| PRECEDENCE.iter().position(|other| other == source));
    let declared = found.first()?.0 == Source::Finish;
    let success = found.iter().position(|(_, ending)| ending.termination.is_success());
    let (_, mut decided) = found.remove(success.filter(|_| !declared).unwrap_or(0));
    // Only failures are recorded as outranked: a second success adds nothing to the outcome.
    let failures = found.into_iter().map(|(_, ending)| *ending);
    decided.outranked.extend(failures.filter(|ending| !ending.termination.is_success()));
    Some(decided)
}

#[cfg(test)]
mod tests {
    use super::{Source, decide};
    use crate::kernel::outcome::decided_by::{Decision, Layer};
    use crate::kernel::outcome::ending::Ending;
    use crate::termination::Termination;

    fn by(source: Source, termination: Termination) -> (Source, Box<Ending>) {
        (source, Ending::new(termination, Layer::Policy, Decision::Custom("test".into()), ""))
    }

    #[test]
    fn success_outranks_failures_of_any_source() {
        let failed = Termination::ErrorNoProgress;
        let decided = decide(vec![
            by(Source::Answer, Termination::Stop),
            by(Source::Rule, failed),
            by(Source::Policy, Termination::ErrorHalted),
        ]);
        let decided = decided.unwrap();
        assert_eq!(decided.termination, Termination::Stop);
        let outranked: Vec<_> = decided.outranked.iter().map(|e| e.termination).collect();
        assert_eq!(outranked, [Termination::ErrorHalted, failed]);
    }

    #[test]
    fn finish_outranks_other_successes() {
        let decided = decide(vec![
            by(Source::Policy, Termination::Submitted),
            by(Source::Finish, Termination::GaveUp),
        ]);
        let decided = decided.unwrap();
        assert_eq!(decided.termination, Termination::GaveUp);
        assert!(decided.outranked.is_empty(), "a second success adds nothing");
        assert!(decide(Vec::new()).is_none());
    }
}
