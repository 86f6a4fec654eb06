//! One conversation of a guarded run: a guest of the kernel, and its place in the run's books.

use super::books::Books;
use endstop::budget::{Amount, Refusal, SharedBudget};
use endstop_core::Usage;
use endstop_core::guest::{Admission, Guest, Recorded, Reply, Spending};
use endstop_core::usage::Unreported;
use endstop_core::{
    Effect, EffectId, GuestCall, Limits, ModelError, ModelTurn, NanoUsd, NestedEnding, Outcome,
    RunEvent, ToolReport, TurnDelta,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// A thread of a run.
pub(super) struct Thread {
    guest: Guest,
    /// The number of this thread in the books.
    number: usize,
    /// Entries of the books that this thread has heard.
    told: usize,
    reserved: HashMap<EffectId, Amount>,
    /// `false` for a call that costs, but is not a turn of the agent.
    counts_turns: bool,
    /// The name of the thread in events; `None` for a call that is not a turn.
    name: Option<Arc<str>>,
    /// Events for observers that were not sent yet.
    told_events: Vec<RunEvent>,
    /// `true` once the thread got the answer with the reason for the stop.
    pub(super) is_told_of_end: bool,
}

impl std::fmt::Debug for Thread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Thread").field("guest", &self.guest).finish_non_exhaustive()
    }
}

/// The answer of a thread to a step.
#[derive(Debug)]
pub(super) enum Step {
    /// The run continues.
    Continue,
    /// The run has ended with this outcome.
    Stop(Arc<Outcome>),
}

impl From<Reply> for Step {
    fn from(reply: Reply) -> Step {
        match reply {
            Reply::Stop(outcome) => Step::Stop(outcome),
            // Repeating a call is off for guests of a proxy: the client repeats it.
            Reply::Continue | Reply::Tools(_) | Reply::Again(_) => Step::Continue,
        }
    }
}

/// The answer to a call that the client is about to make.
pub(super) enum Asked {
    Go { call: EffectId, output_cap: Option<u64> },
    Stop(Arc<Outcome>),
}

impl Thread {
    pub(super) fn new(number: usize, guest: Guest, counts_turns: bool) -> Thread {
        Thread {
            guest,
            number,
            told: 0,
            reserved: HashMap::new(),
            counts_turns,
            name: None,
            told_events: Vec::new(),
            is_told_of_end: false,
        }
    }

    /// Names the thread, whose events are collected from now on.
    pub(super) fn set_name(&mut self, name: Arc<str>) {
        self.name = Some(name);
    }

    pub(super) fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// Takes the events for observers that are new.
    pub(super) fn take_told(&mut self) -> Vec<RunEvent> {
        std::mem::take(&mut self.told_events)
    }

    /// Takes the events for the journal that are new; `true` if the last of them ended the run.
    pub(super) fn take_recorded(&mut self) -> (Vec<Recorded>, bool) {
        (self.guest.take_events(), self.guest.run().is_none())
    }

    /// The outcome of a thread that has ended, with what it heard of others since.
    pub(super) fn outcome(&mut self, at: Duration) -> Arc<Outcome> {
        match self.guest.outcome() {
            Some(outcome) => Arc::clone(outcome),
            None => self.guest.terminate(at),
        }
    }

    pub(super) fn guest(&self) -> &Guest {
        &self.guest
    }

    /// Asks whether the client may call the model. The thread first hears what the others spent.
    pub(super) fn ask(
        &mut self,
        at: Duration,
        call: GuestCall,
        books: &mut Books,
        budget: Option<&SharedBudget>,
    ) -> Asked {
        self.hear(at, books);
        let is_new_turn = self.counts_turns && !call.attempt_of_previous;
        let mut admission = self.guest.ask(at, call);
        self.settle(budget);
        if let Admission::Reserve { id, want, least, want_tokens, least_tokens } = admission {
            let want = Amount { usd: want, tokens: want_tokens };
            let least = Amount { usd: least, tokens: least_tokens };
            let answer = budget.map_or(Ok(want), |budget| budget.reserve_or_explain(want, least));
            let (granted, refused_by) = match answer {
                Ok(granted) => {
                    self.reserved.insert(id, granted);
                    (granted, None)
                }
                Err(Refusal { left, account }) => (left, Some(account)),
            };
            let bounded = budget.is_some_and(SharedBudget::bounds_tokens);
            let tokens = bounded.then_some(granted.tokens);
            admission = self.guest.reserved(at, id, granted.usd, tokens, refused_by);
            self.settle(budget);
        }
        match admission {
            Admission::Go { call, output_cap, .. } => {
                // A turn counts for the other threads as soon as it is admitted, so that parallel
                // threads cannot pass the limit together.
                if is_new_turn {
                    books.add(self.number, Spending { turns: 1, ..Spending::default() });
                }
                Asked::Go { call, output_cap }
            }
            Admission::Stop(outcome) => Asked::Stop(outcome),
            Admission::Reserve { .. } => {
                // The kernel asks once for each call. A second question is a fault, and the call
                // must not be made without an answer.
                Asked::Stop(self.guest.close(at, false, "a reservation was asked for twice"))
            }
        }
    }

    pub(super) fn result(&mut self, at: Duration, call_id: &str, report: ToolReport) -> Step {
        let reply = self.guest.result(at, call_id, report);
        self.collect();
        reply.into()
    }

    pub(super) fn delta(&mut self, at: Duration, call: EffectId, delta: TurnDelta) -> Step {
        let reply = self.guest.delta(at, call, delta);
        self.collect();
        reply.into()
    }

    /// Reports a response, or the failure of a call, and books its cost.
    pub(super) fn ended(
        &mut self,
        at: Duration,
        call: EffectId,
        result: Result<ModelTurn, (ModelError, Option<Box<ModelTurn>>)>,
        books: &mut Books,
        budget: Option<&SharedBudget>,
    ) -> Step {
        let before = Totals::of(&self.guest);
        let reply = match result {
            Ok(turn) => self.guest.turn(at, call, turn),
            Err((error, partial)) => self.guest.failed(at, call, error, partial),
        };
        self.settle(budget);
        books.add(self.number, Totals::of(&self.guest).since(&before));
        reply.into()
    }

    pub(super) fn set_limits(&mut self, at: Duration, limits: Limits) -> Step {
        self.guest.limits(at, limits).into()
    }

    pub(super) fn tick(&mut self, at: Duration) -> Step {
        let reply = self.guest.tick(at);
        self.collect();
        reply.into()
    }

    /// Feeds the last event of the thread: its loop is gone, or a person stopped the run.
    pub(super) fn end(
        &mut self,
        at: Duration,
        how: &Last<'_>,
        books: &mut Books,
        budget: Option<&SharedBudget>,
    ) -> Arc<Outcome> {
        self.hear(at, books);
        let before = Totals::of(&self.guest);
        let outcome = match how {
            Last::Closed { ok, detail } => self.guest.close(at, *ok, *detail),
            Last::As { ok, detail, outcome } => {
                self.guest.close_as(at, *ok, *detail, NestedEnding::from(*outcome))
            }
            Last::Cancelled => match self.guest.cancel(at) {
                Reply::Stop(outcome) => outcome,
                // A guest without clocks has no grace period, so a cancel ends it at once.
                _ => self.guest.terminate(at),
            },
            Last::Terminated => self.guest.terminate(at),
        };
        self.settle(budget);
        books.add(self.number, Totals::of(&self.guest).since(&before));
        outcome
    }

    /// The number of entries of the books that this thread has heard.
    pub(super) fn told(&self) -> usize {
        // An ended thread hears nothing more.
        if self.guest.run().is_some() { self.told } else { usize::MAX }
    }

    pub(super) fn wake_at(&self) -> Option<Duration> {
        self.guest.wake_at()
    }

    /// Tells the guest what other threads have spent since it last heard of them.
    pub(super) fn hear(&mut self, at: Duration, books: &Books) {
        let news = books.since(self.told, self.number);
        self.told = books.len();
        if let Some(spending) = news {
            // A guest that has ended adds it to its outcome.
            let _ = self.guest.spent(at, spending);
            self.collect();
        }
    }

    /// Collects the events for observers of the last step of the guest.
    fn collect(&mut self) {
        if self.name.is_none() {
            return;
        }
        for effect in self.guest.effects() {
            if let Effect::Emit(event) = effect {
                self.told_events.push(event.clone());
            }
        }
    }

    /// Returns to the budget what the last step of the guest released.
    fn settle(&mut self, budget: Option<&SharedBudget>) {
        self.collect();
        let Some(budget) = budget else { return };
        for effect in self.guest.effects() {
            match effect {
                Effect::Settle { id, spent, tokens } => {
                    let held = self.reserved.remove(id).unwrap_or_default();
                    budget.settle_amount(held, Amount { usd: *spent, tokens: *tokens });
                }
                Effect::Abandon { id } => {
                    if let Some(held) = self.reserved.remove(id) {
                        budget.settle_amount(held, Amount::ZERO);
                    }
                }
                _ => {}
            }
        }
    }
}

/// The last event of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) enum Last<'a> {
    Closed {
        ok: bool,
        detail: &'a str,
    },
    /// Another conversation decided how the run ends.
    As {
        ok: bool,
        detail: &'a str,
        outcome: &'a Outcome,
    },
    Cancelled,
    Terminated,
}

/// What a guest has spent, with what it has heard of others.
struct Totals {
    usage: Usage,
    cost: NanoUsd,
    unreported: Unreported,
}

impl Totals {
    fn of(guest: &Guest) -> Totals {
        match (guest.run(), guest.outcome()) {
            (Some(run), _) => Totals {
                usage: run.usage().clone(),
                cost: run.spent(),
                unreported: run.unreported(),
            },
            (None, Some(outcome)) => {
                let cost = outcome.cost_upper.map(|upper| upper.saturating_sub(outcome.cost));
                let known = outcome.usage.total_tokens();
                let tokens = outcome.tokens_upper.map(|upper| upper.saturating_sub(known));
                let unreported = Unreported { cost, tokens };
                Totals { usage: outcome.usage.clone(), cost: outcome.cost, unreported }
            }
            (None, None) => Totals {
                usage: Usage::default(),
                cost: NanoUsd::ZERO,
                unreported: Unreported::NOTHING,
            },
        }
    }

    /// What was spent since then.
    fn since(&self, before: &Totals) -> Spending {
        let unreported = self.unreported.since(before.unreported);
        Spending {
            usage: self.usage.since(&before.usage),
            cost: self.cost.saturating_sub(before.cost),
            cost_unknown: unreported.cost != Some(NanoUsd::ZERO),
            unreported: Some(unreported),
            turns: 0,
        }
    }
}
