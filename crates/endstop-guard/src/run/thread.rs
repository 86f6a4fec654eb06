//! One conversation of a guarded run: a guest of the kernel, and its place in the run's books.

use super::books::{Books, OpenTurn};
use endstop::budget::{Amount, Refusal, SharedBudget};
use endstop_core::guest::{Admission, Guest, GuestReply, Recorded, Spending};
use endstop_core::{
    Effect, EffectId, ErrorClass, GuestCall, Limits, ModelError, ModelTurn, NestedEnding, Outcome,
    RuleHit, RunEvent, Termination, ToolReport, TurnDelta, WatchMode,
};
use std::sync::Arc;
use std::time::Duration;

/// The rules that judge a thread.
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
    /// The limits of a thread in a run with these limits.
    pub(super) fn limits(self, run: &Limits) -> Limits {
        let mut limits = run.clone();
        if self == Judged::Call {
            limits.max_turns = None;
        }
        limits
    }
}

/// A thread of a run.
pub(super) struct Thread {
    guest: Guest,
    judged: Judged,
    /// The part of the books that the guest has counted: its own spending, and what it has heard of.
    counted: Spending,
    /// The guest's totals when its spending was last entered.
    totals: Spending,
    /// Turns of this thread that are in the books; `None` if its calls are not turns.
    turns: Option<u32>,
    /// The turn that was admitted and is not in the books yet, with its number in this thread.
    open: Option<(u32, OpenTurn)>,
    /// Turns of other threads that the guest has heard of.
    heard_turns: u32,
    /// Reservations in the shared budget: one for each call in flight, of which there are few.
    reserved: Vec<(EffectId, Amount)>,
    /// Rules that fired with the mode `warn`, for the client's next response.
    warnings: Vec<String>,
    /// Rules that fired since they were last taken.
    hits: Vec<RuleHit>,
    /// The name of the thread in events; `None` for a call that is not a turn.
    name: Option<Arc<str>>,
    /// Events for observers that were not sent yet.
    unsent: Vec<RunEvent>,
    /// `true` if the client closed the connection of the last call before its response was complete.
    pub(super) was_cut: bool,
    /// The number of the last call, so that the thread that was idle longest can be found.
    pub(super) last_call: u64,
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
    /// The thread has ended the run, with this outcome of its own.
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
        output_cap: Option<u64>,
    },
    /// The thread has ended the run, with this outcome of its own.
    Stop(Arc<Outcome>),
}

impl Thread {
    /// Creates a thread.
    pub(super) fn new(guest: Guest, judged: Judged) -> Thread {
        Thread {
            totals: guest.spending(),
            guest,
            judged,
            counted: Spending::default(),
            turns: (judged != Judged::Call).then_some(0),
            open: None,
            heard_turns: 0,
            reserved: Vec::new(),
            warnings: Vec::new(),
            hits: Vec::new(),
            name: None,
            unsent: Vec::new(),
            was_cut: false,
            last_call: 0,
        }
    }

    /// Names the thread, whose events are collected from now on.
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

    /// Asks whether the client may call the model. The thread first hears what the others spent.
    pub(super) fn ask(
        &mut self,
        at: Duration,
        mut call: GuestCall,
        books: &mut Books,
        budget: Option<&SharedBudget>,
    ) -> Asked {
        // First, so that ceilings hold for what all threads have spent together.
        self.hear(at, books, budget);
        // A call that takes the place of another one of this thread is an attempt at the same turn.
        let own = u32::from(self.open.is_some());
        call.turns_in_flight = books.turns_in_flight().saturating_sub(own);
        let mut admission = self.guest.ask(at, call);
        self.enter(books, budget);
        if let Admission::Reserve { id, want, least, want_tokens, least_tokens } = admission {
            let want = Amount { usd: want, tokens: want_tokens };
            let least = Amount { usd: least, tokens: least_tokens };
            // Without a shared budget nothing can refuse, and the whole request is granted.
            let answer = budget.map_or(Ok(want), |budget| budget.reserve_or_explain(want, least));
            let (granted, refused_by) = match answer {
                Ok(granted) => {
                    self.reserved.push((id, granted));
                    (granted, None)
                }
                Err(Refusal { failure: Some(failure), .. }) => {
                    let why = format!("the shared budget cannot be asked: {failure}");
                    let outcome = self.guest.close(at, false, why);
                    self.enter(books, budget);
                    return Asked::Stop(outcome);
                }
                Err(Refusal { left, account, .. }) => (left, Some(account)),
            };
            let bounded = budget.is_some_and(SharedBudget::bounds_tokens);
            let tokens = bounded.then_some(granted.tokens);
            admission = self.guest.reserved(at, id, granted.usd, tokens, refused_by);
            self.enter(books, budget);
        }
        match admission {
            Admission::Go { call, turn, output_cap, .. } => {
                self.admit_turn(turn, books);
                Asked::Go { call, output_cap }
            }
            Admission::Stop(outcome) => Asked::Stop(outcome),
            Admission::Reserve { .. } => {
                // The kernel asks once for each call. A second question is a fault, and the call
                // must not be made without an answer.
                let outcome = self.guest.close(at, false, "a reservation was asked for twice");
                self.enter(books, budget);
                Asked::Stop(outcome)
            }
        }
    }

    /// Admits a turn, which counts for the other threads from now on, so that parallel threads cannot pass
    /// the limit together. Another attempt at a turn has the same number.
    fn admit_turn(&mut self, turn: u32, books: &mut Books) {
        let Some(entered) = self.turns else { return };
        let own = turn.saturating_sub(self.heard_turns);
        if own > entered {
            let open = match self.open.take() {
                Some((_, open)) => open,
                None => books.admit_turn(),
            };
            self.open = Some((own, open));
        }
    }

    /// Enters the turn that was admitted, unless its call was refused: that is a failed attempt, which cost
    /// nothing, and which any client without a key could repeat.
    fn enter_turn(&mut self, is_refused: bool, books: &mut Books) {
        let (Some(entered), Some((own, open))) = (&mut self.turns, self.open.take()) else {
            return;
        };
        if books.end_turn(&open) && !is_refused {
            let more = own.saturating_sub(*entered);
            *entered += more;
            books.add(&mut self.counted, &Spending { turns: more, ..Spending::default() });
        }
    }

    pub(super) fn result(
        &mut self,
        at: Duration,
        call_id: &str,
        report: ToolReport,
        accounts: (&mut Books, Option<&SharedBudget>),
    ) -> Step {
        let reply = self.guest.result(at, call_id, report);
        self.after(reply, accounts)
    }

    pub(super) fn delta(
        &mut self,
        at: Duration,
        call: EffectId,
        delta: TurnDelta,
        accounts: (&mut Books, Option<&SharedBudget>),
    ) -> Step {
        let reply = self.guest.delta(at, call, delta);
        self.after(reply, accounts)
    }

    /// Enters what a step has spent, if it has ended the thread: only then does it return what was
    /// reserved.
    fn after(
        &mut self,
        reply: GuestReply,
        (books, budget): (&mut Books, Option<&SharedBudget>),
    ) -> Step {
        if matches!(reply, GuestReply::Stop(_)) {
            self.enter(books, budget);
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
        books: &mut Books,
        budget: Option<&SharedBudget>,
    ) -> Step {
        let is_refused = result.as_ref().is_err_and(|(error, _)| {
            matches!(error.class, ErrorClass::Authentication | ErrorClass::Permission)
        });
        self.enter_turn(is_refused, books);
        let reply = match result {
            Ok(turn) => self.guest.turn(at, call, turn),
            Err((error, partial)) => self.guest.failed(at, call, error, partial),
        };
        self.enter(books, budget);
        reply.into()
    }

    pub(super) fn set_limits(
        &mut self,
        at: Duration,
        limits: &Limits,
        accounts: (&mut Books, Option<&SharedBudget>),
    ) -> Step {
        let reply = self.guest.limits(at, self.judged.limits(limits));
        self.after(reply, accounts)
    }

    pub(super) fn tick(
        &mut self,
        at: Duration,
        accounts: (&mut Books, Option<&SharedBudget>),
    ) -> Step {
        let reply = self.guest.tick(at);
        self.after(reply, accounts)
    }

    /// Feeds the last event of the thread: its loop is gone, or a person stopped the run.
    pub(super) fn end(
        &mut self,
        at: Duration,
        how: &Last<'_>,
        books: &mut Books,
        budget: Option<&SharedBudget>,
    ) -> Arc<Outcome> {
        // A call in flight was a turn for the other threads.
        self.enter_turn(false, books);
        self.hear(at, books, budget);
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
        self.enter(books, budget);
        outcome
    }

    pub(super) fn wake_at(&self) -> Option<Duration> {
        self.guest.wake_at()
    }

    /// The ending that the thread has if its client ends now; `None` while a response or a result is awaited.
    pub(super) fn provisional(&self) -> Option<Termination> {
        self.guest.run()?.provisional().map(|(termination, _)| termination)
    }

    /// Tells the guest what other threads have spent since it last heard of them. A guest that has
    /// ended adds it to its outcome.
    fn hear(&mut self, at: Duration, books: &Books, budget: Option<&SharedBudget>) {
        if let Some(news) = books.tell(&mut self.counted) {
            self.heard_turns = self.heard_turns.saturating_add(news.turns);
            let _ = self.guest.spent(at, news);
            self.collect();
            self.settle(budget);
            self.totals = self.guest.spending();
        }
    }

    /// Enters what the guest has spent since the last time, and returns to the budget what the step
    /// released.
    fn enter(&mut self, books: &mut Books, budget: Option<&SharedBudget>) {
        self.settle(budget);
        self.collect();
        let totals = self.guest.spending();
        // Turns are entered when they are admitted and when they end.
        let spent = Spending { turns: 0, ..totals.since(&self.totals) };
        books.add(&mut self.counted, &spent);
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

/// The last event of a thread.
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
