//! The end of a guarded run: by one of its conversations, at its deadline, or because its program or a
//! person ended it; and the answers to its calls after that: once a text for each conversation, then refusals.
//!
//! ```text
//! a conversation ends ─┐
//! deadline             ├─► finish: all other conversations end, the lead counts what they spent,
//! program gone, cancel ┘           its outcome is the run's, calls in flight are answered or aborted
//! ```

use super::account::Account;
use super::calls::{CallFacts, Place, Work};
use super::conversation::{Conversation, Judged, Last, Step};
use super::event::GuardEvent;
use super::guarded::{Guarded, Rejected};
use super::meter::Counts;
use super::settings::{OnLimit, Settings};
use crate::answer::Answer;
use crate::exchange::answer::{Stamp, bad_request, final_turn, refusal, stop_message};
use crate::proxy::Stop;
use endstop_core::guest::{Guest, GuestStart};
use endstop_core::{
    Category, DecidedBy, Decision, Layer, Limit, Limits, NestedEnding, Outcome, RunSpec,
    Termination,
};
use endstop_wire::redact::KnownKeys;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The end of the program of a run, as the owner of the run saw it.
#[derive(Clone, Copy, Debug)]
pub struct ProgramEnd<'a> {
    /// `true` if the program reported no failure.
    pub ok: bool,
    /// Describes the end of the program.
    pub detail: &'a str,
    /// `true` if limits were to hold that only calls can meet. A run without a call is then no end like any other,
    /// because the program may have made its calls elsewhere.
    pub needs_calls: bool,
}

impl<'a> ProgramEnd<'a> {
    /// The end of a program that need not make calls.
    pub fn new(ok: bool, detail: &'a str) -> ProgramEnd<'a> {
        ProgramEnd { ok, detail, needs_calls: false }
    }
}

/// Makes an ending that guard itself decides.
fn own(
    termination: Termination,
    layer: Layer,
    decision: Decision,
    evidence: String,
) -> NestedEnding {
    NestedEnding {
        termination,
        error_diagnostic: Some(evidence.clone()),
        decided_by: DecidedBy { layer, decision, evidence },
        last_text: None,
        deliverable: None,
        retry_after: None,
        would_fit: None,
        no_progress_snapshot: None,
    }
}

impl Guarded {
    /// Reports that time has passed.
    pub(super) fn tick(&mut self, at: Duration) {
        if self.outcome.is_some() {
            return;
        }
        if self.deadline().is_some_and(|deadline| deadline <= at) {
            return self.pass_deadline(at);
        }
        let is_due = |one: &Conversation| one.wake_at().is_some_and(|wake| wake <= at);
        self.step_each(at, is_due, |one, account| one.tick(at, account));
    }

    /// Reports that the process did not run for this time: what the deadlines of calls wait for could not come.
    pub(super) fn suspended(&mut self, at: Duration, time: Duration) {
        let is_timed = |one: &Conversation| one.wake_at().is_some();
        self.step_each(at, is_timed, |one, account| one.suspended(at, time, account));
    }

    /// Makes a step in some of the conversations, until one of them ends the run.
    fn step_each(
        &mut self,
        at: Duration,
        takes_part: impl Fn(&Conversation) -> bool,
        mut step: impl FnMut(&mut Conversation, &mut Account) -> Step,
    ) {
        let places = self.conversations.iter().filter(|(_, one)| takes_part(one));
        let places: Vec<Place> = places.map(|(place, _)| place.clone()).collect();
        for place in places {
            let Guarded { conversations, account, .. } = self;
            let Some(conversation) = conversations.get_mut(&place) else { continue };
            let result = step(conversation, account);
            self.flush(&place);
            if let Step::Stop(outcome) = result {
                return self.stop(at, &outcome);
            }
        }
    }

    /// `true` if a call has a deadline of its own.
    pub(super) fn times_a_call(&self) -> bool {
        let deadline = self.deadline();
        let wakes = self.conversations.iter().filter_map(|(_, one)| one.wake_at());
        self.calls.len() > 0 && wakes.into_iter().any(|wake| deadline.is_none_or(|end| wake < end))
    }

    /// Ends the run at its deadline. The main conversation decides, and not one that has answered while
    /// others, or the program, still work: it may have been about to call again.
    fn pass_deadline(&mut self, at: Duration) {
        let main = self.conversations.last_main().cloned();
        let has_answer = |place: &Place| {
            let ending = self.conversations.get(place).and_then(Conversation::provisional);
            ending.is_some_and(Termination::is_success)
        };
        let main = main.filter(|place| {
            let works_alone = self.calls.len() == 0 && self.settings.is_at_work();
            (self.calls.len() == 0 || self.calls.has(place)) && !(works_alone && has_answer(place))
        });
        let Guarded { conversations, account, .. } = self;
        let decided = main.and_then(|place| {
            let step = conversations.get_mut(&place)?.tick(at, account);
            Some((place, step))
        });
        if let Some((place, step)) = decided {
            self.flush(&place);
            if let Step::Stop(outcome) = step {
                return self.stop(at, &outcome);
            }
        }
        // No conversation, or none that waits: the deadline is the run's.
        let mut clock = self.begins(Judged::Call);
        if let Step::Stop(outcome) = clock.tick(at, &mut self.account) {
            self.stop(at, &outcome);
        }
    }

    /// The run's own deadline.
    fn deadline(&self) -> Option<Duration> {
        self.settings.limits.timeout
    }

    /// The time of the next [`tick`](Guarded::tick).
    pub(super) fn wake_at(&self) -> Option<Duration> {
        if self.outcome.is_some() {
            return None;
        }
        let due = self.conversations.iter().filter_map(|(_, one)| one.wake_at());
        due.chain(self.deadline()).chain(self.calls.next_complete()).min()
    }

    /// Changes the limits of the run and of each of its conversations. Returns `false` if the run has
    /// ended.
    pub(super) fn set_limits(&mut self, at: Duration, limits: Limits) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        self.account.set_limits(&self.settings.limits, &limits);
        self.settings = Arc::new(Settings { limits, ..Settings::clone(&self.settings) });
        let Guarded { conversations, account, settings, .. } = self;
        let (mut all, unassigned) = conversations.all_mut();
        let ended = all.find_map(|one| match one.set_limits(at, &settings.limits, account) {
            Step::Continue => None,
            Step::Stop(outcome) => Some(outcome),
        });
        drop(all);
        if let Some(lead) = unassigned {
            // A run without a turn has reached no limit but perhaps its deadline, which the next
            // tick finds.
            let _ = lead.set_limits(at, &settings.limits, account);
        }
        if let Some(outcome) = ended {
            self.stop(at, &outcome);
        }
        true
    }

    /// Ends the run, because its program is gone.
    pub(super) fn close(&mut self, at: Duration, end: &ProgramEnd<'_>) -> Arc<Outcome> {
        if let Some(outcome) = &self.outcome {
            return Arc::clone(outcome);
        }
        if let Some(ending) = self.own_ending(end) {
            return self.finish(at, &Last::As { ok: true, detail: "", ending: &ending });
        }
        let ProgramEnd { ok, detail, .. } = *end;
        // The last main conversation decides: its answer is the one that the user sees.
        let main = self.conversations.last_main().cloned();
        let other = main.filter(|main| !self.conversations.is_lead(main));
        let closed = Last::Closed { ok, detail };
        if let Some(outcome) = other.and_then(|one| self.close_conversation(at, &one, &closed)) {
            let ending = NestedEnding::from(&*outcome);
            return self.finish(at, &Last::As { ok: true, detail: "", ending: &ending });
        }
        let has_lead = self.conversations.lead().is_some();
        match (has_lead, self.conversations.take_auxiliary()) {
            (true, _) => self.finish(at, &closed),
            // The program offers no tools, so its last call is its answer.
            (false, Some((ended_at, mut last))) => {
                let over = Last::Closed { ok: true, detail: "" };
                let outcome = last.end(ended_at, &over, &mut self.account);
                let ending = NestedEnding::from(&*outcome);
                self.finish(at, &Last::As { ok, detail, ending: &ending })
            }
            (false, None) => self.finish(at, &Last::Closed { ok: false, detail }),
        }
    }

    /// Returns the ending of a run that none of its conversations can explain: guard refused the last call, none came,
    /// or a person left in the middle.
    fn own_ending(&self, end: &ProgramEnd<'_>) -> Option<NestedEnding> {
        let decides = self.conversations.deciding();
        let has_answer =
            decides.and_then(Conversation::provisional).is_some_and(Termination::is_success);
        // The program may do without a title, but its last turn is what it ended with, whatever its status is.
        let rejected = self.rejected.as_ref().or(self.holds.as_ref());
        if let Some(Rejected { decision, reason, .. }) =
            rejected.filter(|last| last.work > Work::Aside || !(end.ok && has_answer))
        {
            let by_limit = match decision {
                Decision::UnknownPrice => Some(Termination::ErrorMaxBudgetUsd),
                Decision::Limit(Limit::MaxWindow) => Some(Termination::ErrorMaxWindow),
                Decision::Limit(Limit::MaxTurns) => Some(Termination::ErrorMaxTurns),
                // The time of the program, which did not wait for the rate.
                Decision::Limit(_) => Some(Termination::ErrorTimeout),
                _ => None,
            };
            if let Some(termination) = by_limit {
                return Some(own(termination, Layer::Limit, decision.clone(), reason.clone()));
            }
            let evidence = format!("guard refused the last call: {reason}");
            let termination = Termination::ErrorProviderRejected;
            return Some(own(termination, Layer::Caller, decision.clone(), evidence));
        }
        if !end.ok {
            return None;
        }
        let submitted = self
            .settings
            .submits_with
            .and_then(|word| decides.and_then(|one| one.open_call_with(word)));
        if let Some(arguments) = submitted {
            let evidence = "the program ended with the tool call that is its answer".to_owned();
            let ending = own(Termination::Submitted, Layer::Caller, Decision::Closed, evidence);
            let text = || Value::String(arguments.to_owned());
            let deliverable = serde_json::from_str(arguments).unwrap_or_else(|_| text());
            return Some(NestedEnding { deliverable: Some(deliverable), ..ending });
        }
        let Counts { metered, others, others_billed, without_text, .. } = self.counts;
        // A ceiling of money or tokens, or a rate, held for metered calls, one of turns for none.
        let holds = self.settings.has_ceiling() || self.settings.limits.max_rate.is_some();
        let held = if end.needs_calls && !holds { 0 } else { metered };
        let passed = if end.needs_calls { 0 } else { others_billed };
        if !self.counts.has_model_calls() && held + passed > 0 {
            let only = "the program made only calls without an answer in text, such as embeddings";
            let (termination, evidence) = match without_text {
                0 => (Termination::ErrorDuringExecution, format!("{only}, and all of them failed")),
                _ => (Termination::Stop, only.to_owned()),
            };
            return Some(own(termination, Layer::Caller, Decision::Closed, evidence));
        }
        if !self.counts.has_model_calls() {
            let is_other = others > 0 || metered > 0;
            let what = if is_other { "model call" } else { "call" };
            let (termination, rest) = if self.settings.is_attended() {
                (Termination::Cancelled, ": its user left it, or it does not use the proxy")
            } else if end.needs_calls {
                (Termination::ErrorNoProgress, ", so no limit held")
            } else {
                (Termination::ErrorDuringExecution, "")
            };
            let evidence = format!("no {what} came through guard{rest}");
            return Some(own(termination, Layer::Caller, Decision::NoCall, evidence));
        }
        let is_open = |one: &Conversation| one.was_cut || one.provisional().is_none();
        (self.settings.is_attended() && decides.is_some_and(is_open)).then(|| {
            let evidence = "the program's user left it before an answer was complete".to_owned();
            own(Termination::Cancelled, Layer::Caller, Decision::Cancel, evidence)
        })
    }

    /// Ends the run, because a person asked for it.
    pub(super) fn cancel(&mut self, at: Duration) -> Arc<Outcome> {
        self.finish(at, &Last::Cancelled)
    }

    /// Ends the run at once.
    pub(super) fn terminate(&mut self, at: Duration) -> Arc<Outcome> {
        self.finish(at, &Last::Terminated)
    }

    /// Ends the run, because one of its conversations has ended.
    pub(super) fn stop(&mut self, at: Duration, outcome: &Arc<Outcome>) {
        let ending = NestedEnding::from(&**outcome);
        let _ = self.finish(at, &Last::As { ok: true, detail: "", ending: &ending });
    }

    /// Ends every conversation and every call in flight, the lead last, so that it counts what all
    /// others have spent. Its outcome is that of the run, because the journal can replay it. Only the
    /// first ending counts.
    fn finish(&mut self, at: Duration, how: &Last<'_>) -> Arc<Outcome> {
        if let Some(outcome) = &self.outcome {
            return Arc::clone(outcome);
        }
        let detail = match how {
            Last::As { ending, .. } => format!("the run ended as {}", ending.termination),
            _ => "the run ended".to_owned(),
        };
        self.end_others(at, &detail);
        self.begin_record();
        let Guarded { conversations, account, record, .. } = self;
        let lead_place = conversations.lead().cloned();
        let outcome = match conversations.lead_mut() {
            Some(lead) => {
                // If this conversation decided, it has ended already, and its outcome stands.
                let outcome = lead.end(at, how, account);
                if lead_place.is_none() {
                    let (events, ended) = lead.take_recorded();
                    record.events(events, ended);
                }
                outcome
            }
            // Not reached: the lead is in one of the two places.
            None => Guest::new(RunSpec::default(), GuestStart::default()).terminate(at),
        };
        if let Some(place) = lead_place {
            self.flush(&place);
        }
        // Without secrets from here on, because owners print it and clients read it.
        let outcome = without_secrets(self.record.keys(), outcome);
        self.record.ended(&outcome);
        self.outcome = Some(Arc::clone(&outcome));
        self.conversations.clear();
        self.meter().ended(outcome.termination);
        for (_, exchange) in self.calls.take_all() {
            // A client that has read a part of a response cannot be given another one.
            let stop = if exchange.started {
                Stop::Close
            } else {
                Stop::Answer(answer(self, &exchange.facts))
            };
            exchange.abort.abort(stop);
        }
        self.trace.close(&outcome);
        outcome
    }

    /// Ends every conversation but the lead, and keeps what calls after the end need.
    fn end_others(&mut self, at: Duration, detail: &str) {
        let places: Vec<Place> =
            self.conversations.iter().map(|(place, _)| place.clone()).collect();
        for place in places {
            if !self.conversations.is_lead(&place) {
                let _ = self.close_conversation(at, &place, &Last::Closed { ok: false, detail });
            }
            let name = self.conversations.get(&place).map(|one| one.name().cloned());
            if let (Place::Thread(thread), Some(name)) = (place, name) {
                self.after_end.add(thread, name);
            }
        }
    }
}

fn without_secrets(keys: &KnownKeys, outcome: Arc<Outcome>) -> Arc<Outcome> {
    match keys.redact_value(&*outcome) {
        Ok(None) => outcome,
        // The epoch is not a part of the JSON.
        Ok(Some(clean)) => Arc::new(Outcome { epoch: outcome.epoch, ..clean }),
        // Not reached, because a journal writes each outcome as JSON and reads it again. Without its texts it
        // has no secret.
        Err(_) => Arc::new(Outcome {
            termination: outcome.termination,
            usage: outcome.usage.clone(),
            cost: outcome.cost,
            cost_unknown: outcome.cost_unknown,
            ..Outcome::clone(
                &Guest::new(RunSpec::default(), GuestStart::default()).terminate(outcome.duration),
            )
        }),
    }
}

/// The answer to a call of an ended run.
pub(super) fn answer(run: &mut Guarded, facts: &CallFacts) -> Answer {
    let Some(outcome) = run.outcome().cloned() else {
        // Not reached: only ended runs are answered. A refusal is the safe answer.
        return refusal(&facts.reply, "the run cannot continue", stamp("0", run));
    };
    let message = message(run, &outcome);
    let id = format!("endstop{}", run.counts.finals + run.counts.refusals + 1);
    // A text would break a program that parses the answer, and a conversation that has one must be refused, or it
    // would continue for ever.
    let may_get_text = run.settings.on_limit == OnLimit::Final && facts.reply.structured.is_none();
    let text = (may_get_text && run.after_end.takes_text(facts))
        .then(|| final_turn(&facts.reply, &message, stamp(&id, run)))
        .flatten();
    let (of, thread) = (run.key().id().to_owned(), run.after_end.name(facts.thread()));
    let Some(text) = text else {
        run.counts.refusals += 1;
        run.meter().refused();
        run.notify(GuardEvent::CallRefused { run: of, thread });
        return refusal(&facts.reply, &message, stamp(&id, run));
    };
    run.counts.finals += 1;
    run.meter().final_text();
    run.notify(GuardEvent::LimitTold { run: of, thread });
    text
}

/// Refuses a request of an ended run that cannot be answered like a model call. `None` if the run
/// has not ended.
pub(super) fn refuse_late(run: &Guarded) -> Option<Answer> {
    let outcome = run.outcome()?;
    run.meter().refused();
    Some(bad_request(&message(run, outcome)))
}

/// The sentence that every client shows.
pub(super) fn message(run: &Guarded, outcome: &Outcome) -> String {
    let reason = stop_message(outcome.termination, &outcome.decided_by.evidence, run.id());
    match &run.settings.closing {
        // A higher limit helps against nothing but a limit.
        Some(closing) if outcome.termination.category() == Category::Capacity => {
            format!("{reason}. {closing} with a higher limit")
        }
        Some(closing) => format!("{reason}. {closing}"),
        None => reason,
    }
}

fn stamp<'a>(id: &'a str, run: &Guarded) -> Stamp<'a> {
    Stamp { id, unix_seconds: run.wall_ms() / 1000 }
}
