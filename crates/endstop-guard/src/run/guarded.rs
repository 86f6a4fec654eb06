//! A guarded run: the threads of one agent, their books and budget, and the single ending.
//!
//! ```text
//! call arrives ─► admit ─► Go: forwarded, observed ─► delta … ─► ended
//!                    └──► Ended: a final text or a refusal
//! ```
//!
//! Each thread is a guest of the kernel with its own conversation, so that repetition is judged per
//! thread. Before a call a thread hears what the others have spent, so that limits on turns, money,
//! tokens and time hold for all of them together.

use super::books::Books;
use super::call::{CallFacts, Ticket};
use super::meter::Meter;
use super::settings::{OnLimit, Settings};
use super::thread::{Asked, Last, Step, Thread};
use crate::exchange::{Kind, Placed, RunKey, ThreadId, steady};
use crate::proxy::{AbortToken, Stop};
use endstop::budget::SharedBudget;
use endstop_core::guest::{Guest, GuestStart, Spending};
use endstop_core::{
    GuestCall, GuestMode, Limits, ModelError, ModelTurn, NanoUsd, Outcome, RunSpec, ToolReport,
    ToolStatus, TurnDelta,
};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The result of a call, as its observer decoded it.
pub(super) type Response = Result<ModelTurn, (ModelError, Option<Box<ModelTurn>>)>;

/// A thread's place: a conversation, or one call without tools.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Thread(ThreadId),
    /// A call that is not a turn, by the number of its exchange.
    Auxiliary(u64),
}

/// A call that is in flight.
struct Exchange {
    place: Place,
    abort: AbortToken,
    facts: Arc<CallFacts>,
}

/// The answer to a call.
pub(super) enum Admitted {
    Go(Ticket),
    /// The run has ended.
    Ended,
}

/// Numbers for the report of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Model calls that were forwarded.
    pub calls: u64,
    /// Calls that are not turns: titles, routers, summaries.
    pub auxiliary: u64,
    /// Calls after the end that got a final text.
    pub finals: u64,
    /// Calls after the end that were refused.
    pub refusals: u64,
    /// Calls that guard could not read, and that passed.
    pub unread: u64,
    /// Threads.
    pub threads: u64,
}

/// The state of a run. The owner holds a lock, so no method waits.
pub(super) struct Guarded {
    key: RunKey,
    settings: Arc<Settings>,
    budget: Option<SharedBudget>,
    books: Books,
    threads: HashMap<Place, Thread>,
    exchanges: HashMap<u64, Exchange>,
    next_exchange: u64,
    next_thread: usize,
    /// The thread of the first turn.
    lead: Option<ThreadId>,
    /// The main thread of the last turn.
    last_main: Option<ThreadId>,
    /// The last call that was not a turn: the ending of a program that offers no tools.
    last_auxiliary: Option<Arc<Outcome>>,
    outcome: Option<Arc<Outcome>>,
    /// Final texts that the main thread may still get, one for each stopped sub-agent.
    pub(super) more_finals: u32,
    wall_ms: u64,
    /// Time of the last call, or of the end of one.
    active_at: Duration,
    pub(super) counts: Counts,
}

impl Guarded {
    pub(super) fn new(key: RunKey, settings: Arc<Settings>, wall_ms: u64) -> Guarded {
        let limits = &settings.limits;
        let usd = limits.max_budget_usd.map(NanoUsd::from_usd);
        let tokens = limits.max_tokens;
        let budget = SharedBudget::within(settings.budget.as_ref(), usd, tokens);
        settings.meter.started();
        Guarded {
            key,
            books: Books::new(Arc::clone(&settings.meter)),
            settings,
            budget,
            threads: HashMap::new(),
            exchanges: HashMap::new(),
            next_exchange: 0,
            next_thread: 0,
            lead: None,
            last_main: None,
            last_auxiliary: None,
            outcome: None,
            more_finals: 0,
            wall_ms,
            active_at: Duration::ZERO,
            counts: Counts::default(),
        }
    }

    pub(super) fn key(&self) -> &RunKey {
        &self.key
    }

    /// The outcome, once the run has ended.
    pub(super) fn outcome(&self) -> Option<&Arc<Outcome>> {
        self.outcome.as_ref()
    }

    pub(super) fn on_limit(&self) -> OnLimit {
        self.settings.on_limit
    }

    /// Wall clock at the start, in Unix milliseconds.
    pub(super) fn wall_ms(&self) -> u64 {
        self.wall_ms
    }

    pub(super) fn thread_mut(&mut self, place: &Place) -> Option<&mut Thread> {
        self.threads.get_mut(place)
    }

    /// What all threads have spent.
    pub(super) fn spent(&self) -> &Spending {
        self.books.sum()
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.settings.meter
    }

    /// The limits that hold now.
    pub(super) fn limits(&self) -> &Limits {
        &self.settings.limits
    }

    /// The time of the last call, or of the end of one.
    pub(super) fn active_at(&self) -> Duration {
        self.active_at
    }

    /// The number of calls in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.exchanges.len()
    }

    /// `true` if a ceiling on money holds, so that every call needs a price.
    pub(super) fn needs_price(&self) -> bool {
        self.budget.as_ref().is_some_and(SharedBudget::bounds_cost)
    }

    /// `true` if a limit holds for the run as a whole.
    pub(super) fn has_limits(&self) -> bool {
        self.settings.has_limits()
    }

    /// Decides about a call: the results in it are reported first.
    pub(super) fn admit(
        &mut self,
        at: Duration,
        placed: Placed,
        call: GuestCall,
        facts: &Arc<CallFacts>,
    ) -> Admitted {
        self.active_at = at;
        if self.outcome.is_some() {
            return Admitted::Ended;
        }
        let number = self.next_exchange;
        self.next_exchange += 1;
        let place = if placed.kind.is_turn() {
            Place::Thread(placed.seat.thread.clone())
        } else {
            Place::Auxiliary(number)
        };
        self.open(&place, placed.kind, &call);
        for result in placed.results {
            let status = if result.is_error { ToolStatus::Error } else { ToolStatus::Ok };
            let report = ToolReport::new(status, steady(result.text));
            if let Some(thread) = self.threads.get_mut(&place)
                && let Step::Stop(outcome) = thread.result(at, &result.call_id, report)
            {
                self.stop(at, outcome);
                return Admitted::Ended;
            }
        }
        let Guarded { threads, books, budget, .. } = self;
        // `open` has just inserted it.
        let Some(thread) = threads.get_mut(&place) else { return Admitted::Ended };
        let asked = thread.ask(at, call, books, budget.as_ref());
        match asked {
            Asked::Stop(outcome) => {
                self.stop(at, outcome);
                Admitted::Ended
            }
            Asked::Go { call, output_cap } => {
                self.counts.calls += 1;
                self.meter().called();
                let abort = AbortToken::new();
                let exchange = Exchange {
                    place: place.clone(),
                    abort: abort.clone(),
                    facts: Arc::clone(facts),
                };
                self.exchanges.insert(number, exchange);
                Admitted::Go(Ticket { number, place, call, output_cap, abort })
            }
        }
    }

    /// Creates the thread of a call, if it is new.
    fn open(&mut self, place: &Place, kind: Kind, call: &GuestCall) {
        match place {
            Place::Thread(id) => {
                let _ = self.lead.get_or_insert_with(|| id.clone());
                if kind == Kind::Main {
                    self.last_main = Some(id.clone());
                }
            }
            Place::Auxiliary(_) => self.counts.auxiliary += 1,
        }
        if self.threads.contains_key(place) {
            return;
        }
        let is_thread = matches!(place, Place::Thread(_));
        if is_thread {
            self.counts.threads += 1;
        }
        let guest = Guest::new(self.spec(is_thread, call), self.start(call));
        let thread = Thread::new(self.next_thread, guest, is_thread);
        self.next_thread += 1;
        self.threads.insert(place.clone(), thread);
    }

    fn spec(&self, is_thread: bool, call: &GuestCall) -> RunSpec {
        let settings = &self.settings;
        let mut limits = settings.limits.clone();
        if !is_thread {
            // The call costs, but is not a turn.
            limits.max_turns = None;
        }
        RunSpec {
            limits,
            policy: settings.policy.as_ref().filter(|_| is_thread).map(|make| make()),
            watches: if is_thread { settings.watches.clone() } else { Vec::new() },
            guest: Some(GuestMode { capped: settings.cap_output, ..GuestMode::default() }),
            reserve: true,
            shared_budget: self.budget.is_some(),
            streaming: call.streaming,
            nudge: false,
            model: call.model.clone(),
            run_id: Some(self.key.id().to_owned()),
            ..RunSpec::default()
        }
    }

    fn start(&self, call: &GuestCall) -> GuestStart {
        GuestStart { price: call.price, wall_ms: Some(self.wall_ms), ..GuestStart::default() }
    }

    /// Reports streamed content. Returns `false` if the run has ended.
    pub(super) fn delta(&mut self, at: Duration, ticket: &Ticket, delta: TurnDelta) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        let Some(thread) = self.threads.get_mut(&ticket.place) else { return true };
        match thread.delta(at, ticket.call, delta) {
            Step::Continue => true,
            Step::Stop(outcome) => {
                // The observer of this call ends it itself, perhaps cleanly.
                self.exchanges.remove(&ticket.number);
                self.stop(at, outcome);
                false
            }
        }
    }

    /// Reports the end of a call.
    pub(super) fn ended(&mut self, at: Duration, ticket: &Ticket, response: Response) {
        self.exchanges.remove(&ticket.number);
        self.active_at = at;
        let Guarded { threads, books, budget, .. } = self;
        let Some(thread) = threads.get_mut(&ticket.place) else { return };
        let step = thread.ended(at, ticket.call, response, books, budget.as_ref());
        if let Place::Auxiliary(_) = ticket.place {
            // One call is the whole thread, so its ending is known.
            let last = Last::Closed { ok: true, detail: "" };
            self.last_auxiliary = Some(thread.end(at, &last, books, budget.as_ref()));
            self.threads.remove(&ticket.place);
        }
        if let Step::Stop(outcome) = step {
            self.stop(at, outcome);
        }
        self.forget_heard();
    }

    fn forget_heard(&mut self) {
        let told = self.threads.values().map(Thread::told).min().unwrap_or(self.books.len());
        self.books.forget(told);
    }

    /// Reports that time has passed. Returns the time of the next report, if one is needed.
    pub(super) fn tick(&mut self, at: Duration) -> Option<Duration> {
        let due = |thread: &Thread| thread.wake_at().is_some_and(|wake| wake <= at);
        let places: Vec<Place> = self
            .threads
            .iter()
            .filter(|(_, thread)| due(thread))
            .map(|(place, _)| place.clone())
            .collect();
        for place in places {
            let Some(thread) = self.threads.get_mut(&place) else { continue };
            if let Step::Stop(outcome) = thread.tick(at) {
                self.stop(at, outcome);
            }
        }
        self.wake_at()
    }

    /// The time of the next [`tick`](Guarded::tick).
    pub(super) fn wake_at(&self) -> Option<Duration> {
        if self.outcome.is_some() {
            return None;
        }
        self.threads.values().filter_map(Thread::wake_at).min()
    }

    /// Changes the limits of the run and of each of its threads. Returns `false` if the run has
    /// ended.
    pub(super) fn set_limits(&mut self, at: Duration, limits: Limits) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        let old = &self.settings.limits;
        // A run without a ceiling of its own has no account of its own: the kernel enforces a new
        // ceiling alone, as it does for a single conversation.
        if (old.max_budget_usd.is_some() || old.max_tokens.is_some())
            && let Some(budget) = &self.budget
        {
            let usd = limits.max_budget_usd.map(NanoUsd::from_usd);
            budget.set_ceiling(usd, limits.max_tokens);
        }
        self.settings = Arc::new(Settings { limits, ..Settings::clone(&self.settings) });
        for (place, thread) in &mut self.threads {
            let mut limits = self.settings.limits.clone();
            if matches!(place, Place::Auxiliary(_)) {
                limits.max_turns = None;
            }
            if let Step::Stop(outcome) = thread.set_limits(at, limits) {
                self.stop(at, outcome);
                break;
            }
        }
        true
    }

    /// Ends the run, because its program is gone. `ok` is `false` if the program reported a failure.
    pub(super) fn close(&mut self, at: Duration, ok: bool, detail: &str) -> Arc<Outcome> {
        self.end(at, &Last::Closed { ok, detail })
    }

    /// Ends the run, because a person asked for it.
    pub(super) fn cancel(&mut self, at: Duration) -> Arc<Outcome> {
        self.end(at, &Last::Cancelled)
    }

    /// Ends the run at once.
    pub(super) fn terminate(&mut self, at: Duration) -> Arc<Outcome> {
        self.end(at, &Last::Terminated)
    }

    fn end(&mut self, at: Duration, how: &Last<'_>) -> Arc<Outcome> {
        if let Some(outcome) = &self.outcome {
            return Arc::clone(outcome);
        }
        // The last main thread decides: its answer is the one that the user sees.
        let deciding = self.last_main.clone().or(self.lead.clone()).map(Place::Thread);
        let Guarded { threads, books, budget, .. } = self;
        let outcome = match deciding.and_then(|place| threads.get_mut(&place)) {
            Some(thread) => thread.end(at, how, books, budget.as_ref()),
            None => match (&self.last_auxiliary, how) {
                (Some(outcome), Last::Closed { ok: true, .. }) => Arc::clone(outcome),
                _ => self.end_without_call(at, how),
            },
        };
        self.stop(at, Arc::clone(&outcome));
        outcome
    }

    /// The ending of a run in which no conversation took place.
    fn end_without_call(&mut self, at: Duration, how: &Last<'_>) -> Arc<Outcome> {
        let call = GuestCall::default();
        let guest = Guest::new(self.spec(false, &call), self.start(&call));
        let mut thread = Thread::new(self.next_thread, guest, false);
        self.next_thread += 1;
        let nothing = Last::Closed { ok: false, detail: "the program made no model call" };
        let how = if matches!(how, Last::Closed { ok: true, .. }) { &nothing } else { how };
        thread.end(at, how, &mut self.books, self.budget.as_ref())
    }

    /// Ends every thread and every call in flight. Only the first outcome counts.
    fn stop(&mut self, at: Duration, outcome: Arc<Outcome>) {
        if self.outcome.is_some() {
            return;
        }
        let detail = format!("the run ended as {}", outcome.termination);
        self.meter().ended(outcome.termination);
        self.outcome = Some(outcome);
        let Guarded { threads, books, budget, .. } = self;
        for thread in threads.values_mut().filter(|thread| thread.guest().run().is_some()) {
            let last = Last::Closed { ok: false, detail: &detail };
            let _ = thread.end(at, &last, books, budget.as_ref());
        }
        for (_, exchange) in std::mem::take(&mut self.exchanges) {
            let answer = self.answer(&exchange.place, &exchange.facts);
            exchange.abort.abort(Stop::Answer(answer));
        }
    }
}
