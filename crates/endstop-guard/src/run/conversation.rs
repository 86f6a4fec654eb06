//! One conversation of a guarded run: a guest of the kernel, and its part of the run's account.

use super::account::{Account, Ledger, OpenTurn};
use endstop::budget::{Amount, Refusal, SharedBudget};
use endstop_core::guest::{Admission, Guest, GuestReply, Recorded, Spending};
use endstop_core::{
    Decision, Effect, EffectId, ErrorClass, GuestCall, InjectionReason, Limits, ModelError,
    ModelTurn, NestedEnding, Outcome, Part, Pause, Role, RuleHit, Run, RunEvent, Termination,
    ToolReport, TurnDelta, WatchMode, Window,
};
use std::sync::Arc;
use std::time::Duration;

/// The rules that judge a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judged {
    /// All limits, the policy and the watch rules.
    Conversation,
    /// The limits: a single turn has no conversation to be watched.
    Turn,
    /// The limits but that on turns: the call costs, but is not a turn.
    Call,
}

impl Judged {
    /// The limits of a conversation in a run with these limits.
    pub(super) fn limits(self, run: &Limits) -> Limits {
        let mut limits = run.clone();
        if self == Judged::Call {
            limits.max_turns = None;
        }
        // A single call is over before it could finish sooner.
        limits.warn_model &= self == Judged::Conversation;
        limits
    }
}

/// A conversation of a run.
pub(super) struct Conversation {
    guest: Guest,
    judged: Judged,
    /// The part of the ledger that the guest has counted: its own spending, and that of others.
    counted: Spending,
    /// The guest's totals when its spending was last recorded.
    totals: Spending,
    /// Turns of this conversation that are in the ledger; `None` if its calls are not turns.
    turns: Option<u32>,
    /// The turn that was admitted and is not in the ledger yet, with its number in this conversation.
    open: Option<(u32, OpenTurn)>,
    /// Turns of other conversations that the guest has counted.
    turns_of_others: u32,
    /// The number of the last report of windows that the guest has.
    windows_seen: u64,
    /// Reservations in the shared budget: one for each call in flight, of which there are few.
    reserved: Vec<(EffectId, Amount)>,
    /// Rules that fired with the mode `warn`, for the client's next response.
    warnings: Vec<String>,
    /// The line that the next request has for the model.
    line: Option<String>,
    /// Rules that fired since they were last taken.
    hits: Vec<RuleHit>,
    /// The name of the conversation in events; `None` for a call that is not a turn.
    name: Option<Arc<str>>,
    /// Events for observers that were not sent yet.
    unsent: Vec<RunEvent>,
    /// `true` if the client closed the connection of the last call before its response was complete.
    pub(super) was_cut: bool,
    /// The number of the last call, so that the conversation that was idle longest can be found.
    pub(super) last_call: u64,
    /// A hash of the last request.
    pub(super) last_request: u64,
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Conversation").field("guest", &self.guest).finish_non_exhaustive()
    }
}

/// The answer of a conversation to a step.
#[derive(Debug)]
pub(super) enum Step {
    /// The run continues.
    Continue,
    /// The conversation has ended the run, with this outcome of its own.
    Stop(Arc<Outcome>),
}

impl From<GuestReply> for Step {
    fn from(reply: GuestReply) -> Step {
        match reply {
            GuestReply::Stop(outcome) => Step::Stop(outcome),
            // Repeating a call is off for guests of a proxy: the client repeats it.
            GuestReply::Continue | GuestReply::Tools(_) | GuestReply::Again(_) => Step::Continue,
        }
    }
}

/// The answer to a call that the client is about to make.
pub(super) enum Asked {
    Go {
        call: EffectId,
        turn: u32,
        output_cap: Option<u64>,
        /// A line for the model, at the end of the request.
        line: Option<String>,
    },
    /// The conversation has ended the run, with this outcome of its own.
    Stop(Arc<Outcome>),
}

impl Conversation {
    /// Creates a conversation.
    pub(super) fn new(guest: Guest, judged: Judged) -> Conversation {
        Conversation {
            totals: guest.spending(),
            guest,
            judged,
            counted: Spending::default(),
            turns: (judged != Judged::Call).then_some(0),
            open: None,
            turns_of_others: 0,
            windows_seen: 0,
            reserved: Vec::new(),
            warnings: Vec::new(),
            line: None,
            hits: Vec::new(),
            name: None,
            unsent: Vec::new(),
            was_cut: false,
            last_call: 0,
            last_request: 0,
        }
    }

    /// Continues the conversation of a failed call with one that is another turn, and not an attempt at the same one. The
    /// failed call stays a turn of the run, as if another conversation had made it.
    pub(super) fn begin_another(&mut self) {
        if let Some(entered) = &mut self.turns {
            self.counted.turns = self.counted.turns.saturating_sub(*entered);
            *entered = 0;
        }
    }

    /// Names the conversation, whose events are collected from now on.
    pub(super) fn set_name(&mut self, name: Arc<str>) {
        self.name = Some(name);
    }

    pub(super) fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// `true` if there are events or rules for observers that are new.
    pub(super) fn has_news(&self) -> bool {
        !self.unsent.is_empty() || !self.hits.is_empty()
    }

    /// Takes the events for observers that are new.
    pub(super) fn take_unsent(&mut self) -> Vec<RunEvent> {
        std::mem::take(&mut self.unsent)
    }

    /// Takes the rules that fired.
    pub(super) fn take_hits(&mut self) -> Vec<RuleHit> {
        std::mem::take(&mut self.hits)
    }

    /// Takes the events for the journal that are new; `true` if the last of them ended the run.
    pub(super) fn take_recorded(&mut self) -> (Vec<Recorded>, bool) {
        (self.guest.take_events(), self.guest.run().is_none())
    }

    /// Asks whether the client may call the model. It first counts what the others spent.
    pub(super) fn ask(
        &mut self,
        at: Duration,
        mut call: GuestCall,
        account: &mut Account,
    ) -> Asked {
        // First, so that ceilings hold for what all conversations have spent together.
        self.count_others(at, account);
        let (windows, seen) = &account.windows;
        if self.windows_seen != *seen {
            self.windows_seen = *seen;
            // If its deadline has passed, the question below is answered with that.
            let _ = self.guest.windows(at, windows.clone());
            self.collect();
            self.settle(account.budget.as_ref());
        }
        // A call that takes the place of another one of this conversation is an attempt at the same turn.
        let own = u32::from(self.open.is_some());
        call.turns_in_flight = account.ledger.turns_in_flight().saturating_sub(own);
        let mut admission = self.guest.ask(at, call);
        self.record_spending(account);
        if let Admission::Reserve { id, want, least, want_tokens, least_tokens } = admission {
            let want = Amount { usd: want, tokens: want_tokens };
            let least = Amount { usd: least, tokens: least_tokens };
            // Without a shared budget nothing can refuse, and the whole request is granted.
            let budget = account.budget.as_ref();
            let answer = budget.map_or(Ok(want), |budget| budget.reserve_or_explain(want, least));
            let (granted, refused_by) = match answer {
                Ok(granted) => {
                    self.reserved.push((id, granted));
                    (granted, None)
                }
                Err(Refusal { failure: Some(failure), .. }) => {
                    let why = format!("the shared budget cannot be asked: {failure}");
                    let outcome = self.guest.close(at, false, why);
                    self.record_spending(account);
                    return Asked::Stop(outcome);
                }
                Err(Refusal { left, account, .. }) => (left, Some(account)),
            };
            let bounded = budget.is_some_and(SharedBudget::bounds_tokens);
            let tokens = bounded.then_some(granted.tokens);
            admission = self.guest.reserved(at, id, granted.usd, tokens, refused_by);
            self.record_spending(account);
        }
        match admission {
            Admission::Go { call, turn, output_cap, .. } => {
                self.admit_turn(turn, &mut account.ledger);
                Asked::Go { call, turn, output_cap, line: self.line.take() }
            }
            Admission::Stop(outcome) => Asked::Stop(outcome),
            Admission::Reserve { .. } => {
                // The kernel asks once for each call. A second question is a fault, and the call
                // must not be made without an answer.
                let outcome = self.guest.close(at, false, "a reservation was asked for twice");
                self.record_spending(account);
                Asked::Stop(outcome)
            }
        }
    }

    /// Admits a turn, which counts for the other conversations from now on, so that parallel conversations cannot pass
    /// the limit together. Another attempt at a turn has the same number.
    fn admit_turn(&mut self, turn: u32, ledger: &mut Ledger) {
        let Some(entered) = self.turns else { return };
        let own = turn.saturating_sub(self.turns_of_others);
        if own > entered {
            let open = match self.open.take() {
                Some((_, open)) => open,
                None => ledger.admit_turn(),
            };
            self.open = Some((own, open));
        }
    }

    /// Counts the turn that was admitted, unless its call was refused: that is a failed attempt, which cost
    /// nothing, and which any client without a key could repeat.
    fn end_turn(&mut self, is_refused: bool, ledger: &mut Ledger) {
        let (Some(entered), Some((own, open))) = (&mut self.turns, self.open.take()) else {
            return;
        };
        if ledger.end_turn(&open) && !is_refused {
            let more = own.saturating_sub(*entered);
            *entered += more;
            ledger.add(&mut self.counted, &Spending { turns: more, ..Spending::default() });
        }
    }

    pub(super) fn result(
        &mut self,
        at: Duration,
        call_id: &str,
        report: ToolReport,
        account: &mut Account,
    ) -> Step {
        let reply = self.guest.result(at, call_id, report);
        self.after(reply, account)
    }

    pub(super) fn delta(
        &mut self,
        at: Duration,
        call: EffectId,
        delta: TurnDelta,
        account: &mut Account,
    ) -> Step {
        let reply = self.guest.delta(at, call, delta);
        self.after(reply, account)
    }

    /// Records what a step has spent, if it has ended the conversation: only then does it return what was
    /// reserved.
    fn after(&mut self, reply: GuestReply, account: &mut Account) -> Step {
        if matches!(reply, GuestReply::Stop(_)) {
            self.record_spending(account);
        } else {
            self.collect();
        }
        reply.into()
    }

    /// Reports a response, or the failure of a call, and books its cost.
    pub(super) fn ended(
        &mut self,
        at: Duration,
        call: EffectId,
        result: Result<ModelTurn, (ModelError, Option<Box<ModelTurn>>)>,
        account: &mut Account,
    ) -> Step {
        let is_refused = result.as_ref().is_err_and(|(error, _)| {
            matches!(error.class, ErrorClass::Authentication | ErrorClass::Permission)
        });
        self.end_turn(is_refused, &mut account.ledger);
        let reply = match result {
            Ok(turn) => self.guest.turn(at, call, turn),
            Err((error, partial)) => self.guest.failed(at, call, error, partial),
        };
        self.record_spending(account);
        reply.into()
    }

    pub(super) fn set_limits(
        &mut self,
        at: Duration,
        limits: &Limits,
        account: &mut Account,
    ) -> Step {
        let reply = self.guest.limits(at, self.judged.limits(limits));
        self.after(reply, account)
    }

    /// Reports the use of a subscription's windows to the lead, for all conversations.
    pub(super) fn windows(
        &mut self,
        at: Duration,
        windows: Vec<Window>,
        account: &mut Account,
    ) -> Step {
        let reply = self.guest.windows(at, windows);
        let known = self.guest.run().map(|run| run.windows().to_vec()).unwrap_or_default();
        self.windows_seen = account.windows.1 + 1;
        account.windows = (known, self.windows_seen);
        self.after(reply, account)
    }

    /// Returns the pause that the next call of the run must wait for. A rate counts what all conversations spend.
    pub(super) fn pause(&mut self, at: Duration, account: &Account) -> Option<Pause> {
        if self.guest.run().is_some_and(|run| run.limits().max_rate.is_some()) {
            self.count_others(at, account);
        }
        self.guest.pause(at)
    }

    /// Reports that the process did not run for this time.
    pub(super) fn suspended(
        &mut self,
        at: Duration,
        time: Duration,
        account: &mut Account,
    ) -> Step {
        let reply = self.guest.suspended(at, time);
        self.after(reply, account)
    }

    pub(super) fn tick(&mut self, at: Duration, account: &mut Account) -> Step {
        let reply = self.guest.tick(at);
        self.after(reply, account)
    }

    /// Feeds the last event of the conversation: its loop is gone, or a person stopped the run.
    pub(super) fn end(
        &mut self,
        at: Duration,
        how: &Last<'_>,
        account: &mut Account,
    ) -> Arc<Outcome> {
        // A call in flight was a turn for the other conversations.
        self.end_turn(false, &mut account.ledger);
        self.count_others(at, account);
        let outcome = match how {
            Last::Closed { ok, detail } => self.guest.close(at, *ok, *detail),
            Last::As { ok, detail, ending } => {
                self.guest.close_as(at, *ok, *detail, NestedEnding::clone(ending))
            }
            Last::Cancelled => match self.guest.cancel(at) {
                GuestReply::Stop(outcome) => outcome,
                // A guest without clocks has no grace period, so a cancel ends it at once.
                _ => self.guest.terminate(at),
            },
            Last::Terminated => self.guest.terminate(at),
        };
        self.record_spending(account);
        outcome
    }

    pub(super) fn wake_at(&self) -> Option<Duration> {
        self.guest.wake_at()
    }

    /// The ending that the conversation has if its client ends now; `None` while a response or a result is awaited.
    pub(super) fn provisional(&self) -> Option<Termination> {
        self.guest.run()?.provisional().map(|(termination, _)| termination)
    }

    /// `true` if its last call failed, and its client may make another one.
    pub(super) fn waits_after_failure(&self) -> bool {
        let provisional = self.guest.run().and_then(Run::provisional);
        provisional.is_some_and(|(_, by)| matches!(by.decision, Decision::CallFailed(_)))
    }

    /// `true` if the model or a filter refused its last call.
    pub(super) fn was_refused(&self) -> bool {
        let provisional = self.guest.run().and_then(Run::provisional);
        provisional.is_some_and(|(_, by)| by.decision == Decision::ContentFiltered)
    }

    /// The arguments of the last turn's open tool call that has this word in them.
    pub(super) fn open_call_with(&self, word: &str) -> Option<&str> {
        let run = self.guest.run()?;
        let last = run.messages().iter().rev().find(|one| one.role == Role::Assistant)?;
        let mut calls = last.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call),
            _ => None,
        });
        let call = calls
            .find(|call| run.open_tool(&call.id).is_some() && call.arguments.contains(word))?;
        Some(&call.arguments)
    }

    /// Counts what other conversations have spent since the last time. A guest that has
    /// ended adds it to its outcome.
    fn count_others(&mut self, at: Duration, account: &Account) {
        if let Some(news) = account.ledger.take_uncounted(&mut self.counted) {
            self.turns_of_others = self.turns_of_others.saturating_add(news.turns);
            let _ = self.guest.spent(at, news);
            self.collect();
            self.settle(account.budget.as_ref());
            self.totals = self.guest.spending();
        }
    }

    /// Records what the guest has spent since the last time, and returns to the budget what the step
    /// released.
    fn record_spending(&mut self, account: &mut Account) {
        self.settle(account.budget.as_ref());
        self.collect();
        let totals = self.guest.spending();
        // Turns are recorded when they are admitted and when they end.
        let spent = Spending { turns: 0, ..totals.since(&self.totals) };
        account.ledger.add(&mut self.counted, &spent);
        self.totals = totals;
    }

    /// Returns the warnings that the client has not seen.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Collects the events of the last step of the guest: for observers, and the warnings.
    fn collect(&mut self) {
        for effect in self.guest.effects() {
            let Effect::Emit(event) = effect else { continue };
            // Each rule fires at most once, so the list is short.
            if let RunEvent::RuleHit(hit) = event {
                let RuleHit { rule, turn, evidence, mode, .. } = hit;
                if *mode == WatchMode::Warn {
                    self.warnings.push(format!("{rule} in turn {turn}: {evidence}"));
                }
                self.hits.push(hit.clone());
            }
            if let RunEvent::MessageInjected { why: InjectionReason::Warning, text } = event {
                self.line = Some(text.clone());
            }
            if self.name.is_some() {
                self.unsent.push(event.clone());
            }
        }
    }

    /// Returns to the budget what the last step of the guest released.
    fn settle(&mut self, budget: Option<&SharedBudget>) {
        let Some(budget) = budget else { return };
        for effect in self.guest.effects() {
            match effect {
                Effect::Settle { id, spent, tokens } => {
                    let held = take_reserved(&mut self.reserved, *id).unwrap_or_default();
                    budget.settle_amount(held, Amount { usd: *spent, tokens: *tokens });
                }
                Effect::Abandon { id } => {
                    if let Some(held) = take_reserved(&mut self.reserved, *id) {
                        budget.settle_amount(held, Amount::ZERO);
                    }
                }
                _ => {}
            }
        }
    }
}

fn take_reserved(reserved: &mut Vec<(EffectId, Amount)>, call: EffectId) -> Option<Amount> {
    let at = reserved.iter().position(|(id, _)| *id == call)?;
    Some(reserved.swap_remove(at).1)
}

/// The last event of a conversation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Last<'a> {
    Closed {
        ok: bool,
        detail: &'a str,
    },
    /// Another conversation, or guard itself, decided how the run ends.
    As {
        ok: bool,
        detail: &'a str,
        ending: &'a NestedEnding,
    },
    Cancelled,
    Terminated,
}
