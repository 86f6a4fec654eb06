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
use super::call::{CallFacts, Place, Ticket};
use super::event::{GuardEvent, Hear};
use super::journal::RunRecord;
use super::meter::Meter;
use super::settings::{OnLimit, Settings};
use super::thread::{Asked, Last, Step, Thread};
use crate::exchange::{Kind, Placed, RunKey, ThreadId, steady};
use crate::proxy::{AbortToken, Stop};
use endstop::agent::GuestRecord;
use endstop::budget::SharedBudget;
use endstop_core::guest::{Guest, GuestStart, Spending};
use endstop_core::{
    GuestCall, GuestMode, Limits, ModelError, ModelTurn, NanoUsd, Outcome, RunSpec, ToolReport,
    ToolStatus, TurnDelta,
};
use endstop_wire::redact::KnownKeys;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The result of a call, as its observer decoded it.
pub(super) type Response = Result<ModelTurn, (ModelError, Option<Box<ModelTurn>>)>;

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
    /// The thread of the first turn, which is the one that the journal records.
    lead: Option<ThreadId>,
    /// The lead thread before the first turn.
    unassigned: Option<Thread>,
    record: RunRecord,
    hear: Hear,
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
    pub(super) fn new(key: RunKey, settings: Arc<Settings>, wall_ms: u64, hear: Hear) -> Guarded {
        let limits = &settings.limits;
        let usd = limits.max_budget_usd.map(NanoUsd::from_usd);
        let tokens = limits.max_tokens;
        let budget = SharedBudget::within(settings.budget.as_ref(), usd, tokens);
        settings.meter.started();
        let record = RunRecord::new(settings.journal.clone());
        let mut run = Guarded {
            key,
            books: Books::new(Arc::clone(&settings.meter)),
            unassigned: None,
            record,
            hear,
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
        };
        let record = run.settings.journal.is_some();
        let start = GuestStart { record, ..run.start() };
        let guest = Guest::new(run.spec(true), start);
        let mut lead = Thread::new(0, guest, true);
        lead.set_name("main".into());
        run.unassigned = Some(lead);
        run.next_thread = 1;
        run
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
        keys: Vec<String>,
    ) -> Admitted {
        self.active_at = at;
        self.record.hide(keys);
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
        self.begin_record();
        self.open(&place, placed.kind);
        for result in placed.results {
            let status = if result.is_error { ToolStatus::Error } else { ToolStatus::Ok };
            let report = ToolReport::new(status, steady(result.text));
            if let Some(thread) = self.threads.get_mut(&place)
                && let Step::Stop(outcome) = thread.result(at, &result.call_id, report)
            {
                self.stop(at, &outcome);
                return Admitted::Ended;
            }
        }
        let Guarded { threads, books, budget, .. } = self;
        // `open` has just inserted it.
        let Some(thread) = threads.get_mut(&place) else { return Admitted::Ended };
        let asked = thread.ask(at, call, books, budget.as_ref());
        self.flush(&place);
        match asked {
            Asked::Stop(outcome) => {
                self.stop(at, &outcome);
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

    /// Begins the journal's record of the run, if it has not begun.
    fn begin_record(&mut self) {
        let mut record = std::mem::take(&mut self.record);
        record.begin(self.key.id(), self.wall_ms, || self.spec(true));
        self.record = record;
    }

    /// Creates the thread of a call, if it is new.
    fn open(&mut self, place: &Place, kind: Kind) {
        match place {
            Place::Thread(id) => {
                if self.lead.is_none() {
                    self.lead = Some(id.clone());
                    if let Some(lead) = self.unassigned.take() {
                        self.threads.insert(place.clone(), lead);
                        self.thread_started("main", kind);
                    }
                }
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
        let guest = Guest::new(self.spec(is_thread), self.start());
        let mut thread = Thread::new(self.next_thread, guest, is_thread);
        if is_thread {
            let what = if kind == Kind::Sub { "sub" } else { "main" };
            let name = format!("{what}-{}", self.counts.threads + 1);
            self.thread_started(&name, kind);
            thread.set_name(name.into());
        }
        self.next_thread += 1;
        self.threads.insert(place.clone(), thread);
    }

    fn thread_started(&mut self, name: &str, kind: Kind) {
        self.counts.threads += 1;
        (self.hear)(GuardEvent::ThreadStarted {
            run: self.key.id().to_owned(),
            thread: name.to_owned(),
            sub_agent: kind == Kind::Sub,
        });
    }

    /// The specification of a thread. The model comes with each call.
    fn spec(&self, is_thread: bool) -> RunSpec {
        let settings = &self.settings;
        let mut limits = settings.limits.clone();
        if !is_thread {
            // The call costs, but is not a turn.
            limits.max_turns = None;
        }
        RunSpec {
            task: settings.journal.as_ref().map(|one| one.task.clone()).unwrap_or_default(),
            limits,
            policy: settings.policy.as_ref().filter(|_| is_thread).map(|make| make()),
            watches: if is_thread { settings.watches.clone() } else { Vec::new() },
            guest: Some(GuestMode { capped: settings.cap_output, ..GuestMode::default() }),
            reserve: true,
            shared_budget: self.budget.is_some(),
            nudge: false,
            run_id: Some(self.key.id().to_owned()),
            ..RunSpec::default()
        }
    }

    // Without a price, so that a call whose price is not known is not charged with that of another
    // model.
    fn start(&self) -> GuestStart {
        GuestStart { wall_ms: Some(self.wall_ms), ..GuestStart::default() }
    }

    /// Sends the new events of a thread to the observers and, if it is the lead, to the journal.
    fn flush(&mut self, place: &Place) {
        let is_recorded = self.settings.journal.is_some() && self.is_lead(place);
        let Some(thread) = self.threads.get_mut(place) else { return };
        let told = thread.take_told();
        if let Some(name) = thread.name().filter(|_| !told.is_empty()) {
            for event in told {
                (self.hear)(GuardEvent::Run {
                    run: self.key.id().to_owned(),
                    thread: name.to_string(),
                    event: Box::new(event),
                });
            }
        }
        if is_recorded {
            let (events, ended) = thread.take_recorded();
            self.record.events(events, ended);
        }
    }

    fn is_lead(&self, place: &Place) -> bool {
        matches!(place, Place::Thread(id) if self.lead.as_ref() == Some(id))
    }

    /// The secrets in the requests so far.
    pub(super) fn keys(&self) -> KnownKeys {
        self.record.keys().clone()
    }

    /// Takes the journal's record, to wait until it is written.
    pub(super) fn take_record(&mut self) -> Option<GuestRecord> {
        self.record.take()
    }

    /// Reports an answer after the end to the observers.
    pub(super) fn answered(&self, place: &Place, refused: bool) {
        let name = self.threads.get(place).and_then(Thread::name);
        let run = self.key.id().to_owned();
        let thread = name.map(ToString::to_string);
        (self.hear)(if refused {
            GuardEvent::CallRefused { run, thread }
        } else {
            GuardEvent::LimitTold { run, thread }
        });
    }

    /// Reports streamed content. Returns `false` if the run has ended.
    pub(super) fn delta(&mut self, at: Duration, ticket: &Ticket, delta: TurnDelta) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        let Some(thread) = self.threads.get_mut(&ticket.place) else { return true };
        let step = thread.delta(at, ticket.call, delta);
        self.flush(&ticket.place);
        match step {
            Step::Continue => true,
            Step::Stop(outcome) => {
                // The observer of this call ends it itself, perhaps cleanly.
                self.exchanges.remove(&ticket.number);
                self.stop(at, &outcome);
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
        self.flush(&ticket.place);
        let Guarded { threads, books, budget, .. } = self;
        if let Place::Auxiliary(_) = ticket.place {
            // One call is the whole thread, so its ending is known.
            let last = Last::Closed { ok: true, detail: "" };
            if let Some(mut thread) = threads.remove(&ticket.place) {
                self.last_auxiliary = Some(thread.end(at, &last, books, budget.as_ref()));
            }
        }
        if let Step::Stop(outcome) = step {
            self.stop(at, &outcome);
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
            let step = thread.tick(at);
            self.flush(&place);
            if let Step::Stop(outcome) = step {
                self.stop(at, &outcome);
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
                self.stop(at, &outcome);
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
        let Last::Closed { ok, detail } = *how else { return self.finish(at, how) };
        // The last main thread decides: its answer is the one that the user sees.
        let deciding = self.last_main.clone().filter(|last| Some(last) != self.lead.as_ref());
        let deciding = deciding.map(Place::Thread);
        if let Some(place) = deciding
            && let Some(thread) = self.threads.get_mut(&place)
        {
            let outcome = thread.end(at, how, &mut self.books, self.budget.as_ref());
            self.flush(&place);
            return self.finish(at, &Last::As { ok: true, detail: "", outcome: &outcome });
        }
        match (self.lead.is_some(), self.last_auxiliary.clone()) {
            (true, _) => self.finish(at, how),
            // The program offers no tools, so its last call is its answer.
            (false, Some(outcome)) => self.finish(at, &Last::As { ok, detail, outcome: &outcome }),
            (false, None) => {
                let nothing = "the program made no model call";
                let detail = if ok { nothing } else { detail };
                self.finish(at, &Last::Closed { ok: false, detail })
            }
        }
    }

    /// Ends the run, because one of its conversations has ended.
    fn stop(&mut self, at: Duration, outcome: &Arc<Outcome>) {
        let _ = self.finish(at, &Last::As { ok: true, detail: "", outcome });
    }

    /// Ends every thread and every call in flight, the lead thread last, so that it hears what all
    /// others have spent. Its outcome is that of the run, because the journal can replay it. Only the
    /// first ending counts.
    fn finish(&mut self, at: Duration, how: &Last<'_>) -> Arc<Outcome> {
        if let Some(outcome) = &self.outcome {
            return Arc::clone(outcome);
        }
        let detail = match how {
            Last::As { outcome, .. } => format!("the run ended as {}", outcome.termination),
            _ => "the run ended".to_owned(),
        };
        let lead = self.lead.clone().map(Place::Thread);
        let others: Vec<Place> =
            self.threads.keys().filter(|place| Some(*place) != lead.as_ref()).cloned().collect();
        for place in others {
            let Guarded { threads, books, budget, .. } = self;
            if let Some(thread) = threads.get_mut(&place).filter(|one| one.guest().run().is_some())
            {
                let last = Last::Closed { ok: false, detail: &detail };
                let _ = thread.end(at, &last, books, budget.as_ref());
            }
            self.flush(&place);
        }
        self.begin_record();
        let Guarded { threads, books, budget, unassigned, record, .. } = self;
        let lead_thread = match &lead {
            Some(place) => threads.get_mut(place),
            None => unassigned.as_mut(),
        };
        let outcome = match lead_thread {
            Some(thread) => {
                // If this thread decided, it has ended already, and its outcome stands.
                let _ = thread.end(at, how, books, budget.as_ref());
                let outcome = thread.outcome(at);
                if lead.is_none() {
                    let (events, ended) = thread.take_recorded();
                    record.events(events, ended);
                }
                outcome
            }
            // Not reached: the lead thread is in one of the two places.
            None => Guest::new(RunSpec::default(), GuestStart::default()).terminate(at),
        };
        if let Some(place) = &lead {
            self.flush(place);
        }
        self.record.ended(&outcome);
        self.outcome = Some(Arc::clone(&outcome));
        self.meter().ended(outcome.termination);
        for (_, exchange) in std::mem::take(&mut self.exchanges) {
            let answer = self.answer(&exchange.place, &exchange.facts);
            exchange.abort.abort(Stop::Answer(answer));
        }
        outcome
    }
}
