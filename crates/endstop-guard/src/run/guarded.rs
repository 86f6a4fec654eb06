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
use super::thread::{Asked, Judged, Last, Step, Thread};
use crate::exchange::{Kind, Placed, RunKey, steady};
use crate::proxy::{AbortToken, Stop};
use endstop::agent::GuestRecord;
use endstop::budget::SharedBudget;
use endstop_core::guest::{Guest, GuestStart, Spending};
use endstop_core::{
    GuestCall, GuestMode, Limits, ModelError, ModelTurn, NanoUsd, Outcome, RuleHit, RunSpec,
    ToolReport, ToolStatus, TurnDelta,
};
use endstop_wire::redact::KnownKeys;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

/// The result of a call, as its observer decoded it.
pub(super) type Response = Result<ModelTurn, (ModelError, Option<Box<ModelTurn>>)>;

/// The most conversations of a run whose state is in memory. A conversation that continues after it
/// had to leave counts as a new one; what it has spent stays in the books.
const MOST_THREADS: usize = 1024;
/// The most rules that fired in conversations other than the lead.
const MOST_HITS: usize = 256;

/// A call that is in flight.
pub(super) struct Exchange {
    pub(super) place: Place,
    /// The conversation that is told if the run ends during the call.
    pub(super) told: Place,
    pub(super) abort: AbortToken,
    pub(super) facts: Arc<CallFacts>,
    /// `true` once the response has begun, so that no other answer can be given.
    pub(super) started: bool,
    /// `true` if the client closed its connection, so that the same request again is a retry.
    gone: bool,
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
    /// POST requests that are no model calls which guard knows, such as embeddings or batches, and
    /// that passed. Their cost is not known.
    pub others: u64,
    /// The time of those requests together.
    pub others_time: Duration,
    /// Threads.
    pub threads: u64,
}

/// A conversation of a run that has ended.
#[derive(Debug)]
pub(super) struct Told {
    name: Option<Arc<str>>,
    /// `true` once it got the answer with the reason for the stop.
    is_told: bool,
}

/// The state of a run. The owner holds a lock, so no method waits.
pub(super) struct Guarded {
    key: RunKey,
    /// The id in the journal and in the outcome.
    id: String,
    pub(super) settings: Arc<Settings>,
    pub(super) budget: Option<SharedBudget>,
    pub(super) books: Books,
    /// The threads in memory; none after the end.
    pub(super) threads: HashMap<Place, Thread>,
    pub(super) exchanges: HashMap<u64, Exchange>,
    next_exchange: u64,
    /// The thread of the first turn, which is the one that the journal records. It stays in memory.
    pub(super) lead: Option<Place>,
    /// The lead thread before the first turn.
    pub(super) unassigned: Option<Thread>,
    pub(super) record: RunRecord,
    hear: Hear,
    /// The main thread of the last turn.
    pub(super) last_main: Option<Place>,
    /// The last call that was not a turn: the ending of a program that offers no tools.
    pub(super) last_auxiliary: Option<Arc<Outcome>>,
    pub(super) outcome: Option<Arc<Outcome>>,
    /// The conversations of the ended run.
    told: HashMap<Place, Told>,
    /// Rules that fired in other conversations than the lead.
    fired: Vec<RuleHit>,
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
            id: record.id(key.id(), wall_ms),
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
            lead: None,
            last_main: None,
            last_auxiliary: None,
            outcome: None,
            told: HashMap::new(),
            fired: Vec::new(),
            more_finals: 0,
            wall_ms,
            active_at: Duration::ZERO,
            counts: Counts::default(),
        };
        let record = run.settings.journal.is_some();
        let start = GuestStart { record, ..run.start() };
        let judged = Judged::Conversation;
        let mut lead = Thread::new(Guest::new(run.spec(judged), start), judged);
        lead.set_name("main".into());
        run.unassigned = Some(lead);
        run
    }

    pub(super) fn key(&self) -> &RunKey {
        &self.key
    }

    /// The id in the journal and in the outcome.
    pub(super) fn id(&self) -> &str {
        &self.id
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

    /// `true` if this conversation of the ended run is told of the end for the first time.
    pub(super) fn tell(&mut self, place: &Place) -> bool {
        self.told.get_mut(place).is_some_and(|told| !std::mem::replace(&mut told.is_told, true))
    }

    /// Rules that fired in other conversations than the lead, whose hits are in the outcome.
    pub(super) fn fired(&self) -> &[RuleHit] {
        &self.fired
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

    /// `true` if a ceiling must never be exceeded, so that every prompt needs a known size.
    pub(super) fn is_strict(&self) -> bool {
        self.settings.cap_output && self.settings.has_ceiling()
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
        let conversation = Place::Thread(placed.seat.thread.clone());
        let place = match placed.kind.is_turn() {
            // The lead is the first conversation, and its first call cannot be parallel to another.
            true if self.is_busy(&conversation) => Place::Parallel(number),
            true => conversation.clone(),
            false => Place::Auxiliary(number),
        };
        self.begin_record();
        self.open(at, &place, facts);
        let Guarded { threads, books, budget, .. } = self;
        // `open` has just inserted it.
        let Some(thread) = threads.get_mut(&place) else { return Admitted::Ended };
        thread.last_call = number;
        let stopped = placed.results.into_iter().find_map(|result| {
            let status = if result.is_error { ToolStatus::Error } else { ToolStatus::Ok };
            let report = ToolReport::new(status, steady(result.text));
            match thread.result(at, &result.call_id, report, (books, budget.as_ref())) {
                Step::Continue => None,
                Step::Stop(outcome) => Some(outcome),
            }
        });
        let asked = match stopped {
            Some(outcome) => Asked::Stop(outcome),
            None => thread.ask(at, call, books, budget.as_ref()),
        };
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
                    told: if placed.kind.is_turn() { conversation } else { place.clone() },
                    abort: abort.clone(),
                    facts: Arc::clone(facts),
                    started: false,
                    gone: false,
                };
                self.exchanges.insert(number, exchange);
                Admitted::Go(Ticket { number, place, call, output_cap, abort })
            }
        }
    }

    /// `true` if a call of this conversation is in flight whose client still waits. Calls whose
    /// client is gone are aborted, because the next one takes their place.
    fn is_busy(&mut self, conversation: &Place) -> bool {
        let mut busy = false;
        for exchange in self.exchanges.values().filter(|one| one.place == *conversation) {
            if exchange.gone {
                exchange.abort.abort(Stop::Close);
            } else {
                busy = true;
            }
        }
        busy
    }

    /// Notes that the response of a call has begun, and returns the warnings for its client.
    pub(super) fn started(&mut self, ticket: &Ticket) -> Vec<String> {
        if let Some(exchange) = self.exchanges.get_mut(&ticket.number) {
            exchange.started = true;
        }
        self.threads.get_mut(&ticket.place).map(Thread::take_warnings).unwrap_or_default()
    }

    /// Notes that the client of a call closed its connection.
    pub(super) fn client_gone(&mut self, ticket: &Ticket) {
        if let Some(exchange) = self.exchanges.get_mut(&ticket.number) {
            exchange.gone = true;
        }
    }

    /// Begins the journal's record of the run, if it has not begun.
    pub(super) fn begin_record(&mut self) {
        let mut record = std::mem::take(&mut self.record);
        record.begin(&self.id, self.wall_ms, || self.spec(Judged::Conversation));
        self.record = record;
    }

    /// Creates the thread of a call, if it is new.
    fn open(&mut self, at: Duration, place: &Place, facts: &CallFacts) {
        let kind = facts.kind;
        if let Place::Thread(_) = place
            && self.lead.is_none()
            && let Some(lead) = self.unassigned.take()
        {
            self.lead = Some(place.clone());
            self.threads.insert(place.clone(), lead);
            // The calls without tools so far were titles and the like, and no turns.
            self.books.forget_turns();
            self.counts.threads += 1;
            self.thread_started("main", kind);
        }
        if let Place::Auxiliary(_) = place {
            self.counts.auxiliary += 1;
        }
        if !self.threads.contains_key(place) {
            self.make_room(at);
            let name = match place {
                Place::Thread(_) => {
                    self.counts.threads += 1;
                    let what = if kind == Kind::Sub { "sub" } else { "main" };
                    Some(format!("{what}-{}", self.counts.threads))
                }
                Place::Parallel(number) => Some(format!("parallel-{number}")),
                Place::Auxiliary(_) => None,
            };
            let judged = self.judged(place, facts);
            let mut thread = Thread::new(Guest::new(self.spec(judged), self.start()), judged);
            if let Some(name) = name {
                self.thread_started(&name, kind);
                thread.set_name(name.into());
            }
            self.threads.insert(place.clone(), thread);
        }
        if kind == Kind::Main {
            self.leads_on(at, place);
        }
    }

    /// Notes the main thread of the last turn.
    fn leads_on(&mut self, at: Duration, place: &Place) {
        if self.last_main.as_ref() == Some(place) {
            return;
        }
        let before = self.last_main.replace(place.clone());
        // A single call was kept only because it was the last one.
        let is_over = |place: &Place| {
            place.is_single() && !self.exchanges.values().any(|one| one.place == *place)
        };
        if let Some(before) = before.filter(is_over) {
            self.leave(at, &before);
        }
    }

    /// Ends the conversation that was idle longest, if there are too many.
    fn make_room(&mut self, at: Duration) {
        if self.threads.len() < MOST_THREADS {
            return;
        }
        let busy: HashSet<&Place> = self.exchanges.values().map(|one| &one.place).collect();
        let stays = |place: &Place| {
            let place = Some(place);
            place == self.lead.as_ref() || place == self.last_main.as_ref()
        };
        let idle = self.threads.iter().filter(|(place, _)| !busy.contains(*place) && !stays(place));
        let oldest = idle.min_by_key(|(_, thread)| thread.last_call).map(|(place, _)| place);
        if let Some(oldest) = oldest.cloned() {
            self.leave(at, &oldest);
        }
    }

    /// Ends a thread that is not needed any more, while the run continues.
    fn leave(&mut self, at: Duration, place: &Place) {
        let _ = self.close_thread(at, place, &Last::Closed { ok: true, detail: "" });
        self.threads.remove(place);
    }

    /// Ends a thread other than the lead.
    pub(super) fn close_thread(
        &mut self,
        at: Duration,
        place: &Place,
        how: &Last<'_>,
    ) -> Option<Arc<Outcome>> {
        let Guarded { threads, books, budget, .. } = self;
        let outcome = threads.get_mut(place)?.end(at, how, books, budget.as_ref());
        self.flush(place);
        Some(outcome)
    }

    fn thread_started(&mut self, name: &str, kind: Kind) {
        (self.hear)(GuardEvent::ThreadStarted {
            run: self.key.id().to_owned(),
            thread: name.to_owned(),
            sub_agent: kind == Kind::Sub,
        });
    }

    /// What a thread is judged by. Each call of a program that offers no tools is a turn; known
    /// agents offer some, so a call without is a title or the like.
    fn judged(&self, place: &Place, facts: &CallFacts) -> Judged {
        match place {
            Place::Thread(_) => Judged::Conversation,
            Place::Auxiliary(_)
                if self.lead.is_some()
                    || facts.is_known_agent
                    || facts.kind == Kind::Compaction =>
            {
                Judged::Call
            }
            Place::Parallel(_) | Place::Auxiliary(_) => Judged::Turn,
        }
    }

    /// The specification of a thread. The model comes with each call.
    pub(super) fn spec(&self, judged: Judged) -> RunSpec {
        let settings = &self.settings;
        let is_conversation = judged == Judged::Conversation;
        RunSpec {
            task: settings.journal.as_ref().map(|one| one.task.clone()).unwrap_or_default(),
            limits: judged.limits(&settings.limits),
            policy: settings.policy.as_ref().filter(|_| is_conversation).map(|make| make()),
            watches: if is_conversation { settings.watches.clone() } else { Vec::new() },
            guest: Some(GuestMode { capped: settings.cap_output, ..GuestMode::default() }),
            reserve: true,
            shared_budget: self.budget.is_some(),
            nudge: false,
            run_id: Some(self.id.clone()),
            ..RunSpec::default()
        }
    }

    // Without a price, so that a call whose price is not known is not charged with that of another
    // model.
    pub(super) fn start(&self) -> GuestStart {
        GuestStart { wall_ms: Some(self.wall_ms), ..GuestStart::default() }
    }

    /// Sends the new events of a thread to the observers and, if it is the lead, to the journal.
    pub(super) fn flush(&mut self, place: &Place) {
        let is_recorded = self.settings.journal.is_some() && self.lead.as_ref() == Some(place);
        let Some(thread) = self.threads.get_mut(place) else { return };
        let unsent = thread.take_unsent();
        if let Some(name) = thread.name() {
            for event in unsent {
                (self.hear)(GuardEvent::Run {
                    run: self.key.id().to_owned(),
                    thread: name.to_string(),
                    event: Box::new(event),
                });
            }
        }
        let hits = thread.take_hits();
        if self.lead.as_ref() != Some(place) {
            let room = MOST_HITS.saturating_sub(self.fired.len());
            self.fired.extend(hits.into_iter().take(room));
        }
        if is_recorded {
            let (events, ended) = thread.take_recorded();
            self.record.events(events, ended);
        }
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
        let name = self.told.get(place).and_then(|told| told.name.as_ref());
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
        let Guarded { threads, books, budget, .. } = self;
        let Some(thread) = threads.get_mut(&ticket.place) else { return true };
        let step = thread.delta(at, ticket.call, delta, (books, budget.as_ref()));
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
        if let Step::Stop(outcome) = step {
            self.stop(at, &outcome);
            return;
        }
        let over = Last::Closed { ok: true, detail: "" };
        match &ticket.place {
            // One call is the whole thread, so its ending is known.
            place @ Place::Auxiliary(_) => {
                self.last_auxiliary = self.close_thread(at, place, &over);
                self.threads.remove(place);
            }
            place if place.is_single() && self.last_main.as_ref() != Some(place) => {
                self.leave(at, place);
            }
            _ => {}
        }
    }

    /// Ends every thread but the lead and keeps what calls after the end need.
    pub(super) fn end_threads(&mut self, at: Duration, detail: &str) {
        let places: Vec<Place> = self.threads.keys().cloned().collect();
        for place in places {
            if self.lead.as_ref() != Some(&place) {
                let _ = self.close_thread(at, &place, &Last::Closed { ok: false, detail });
            }
            if let (Place::Thread(_), Some(thread)) = (&place, self.threads.get(&place)) {
                let told = Told { name: thread.name().cloned(), is_told: false };
                self.told.insert(place, told);
            }
        }
    }
}
