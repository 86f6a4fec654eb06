//! A guarded run: the conversations of one agent, their account, and the single ending.
//!
//! ```text
//! call arrives ─► admit ─► Go: forwarded, observed ─► delta … ─► ended
//!                    └──► Ended: a final text or a refusal
//! ```
//!
//! Each conversation is a guest of the kernel, so that repetition is judged per conversation. Before a call it counts
//! what the others have spent, so that limits on turns, money, tokens and time hold for all of them together.

use super::account::Account;
use super::calls::{CallFacts, CallsInFlight, Exchange, Place, Ticket, Work};
use super::conversation::{Asked, Conversation, Judged, Last, Step};
use super::conversations::{AfterEnd, Conversations};
use super::event::{GuardEvent, OnEvent};
use super::journal::RunRecord;
use super::meter::{Counts, Meter};
use super::settings::Settings;
use super::trace::{Begun, RunTrace, responded};
use crate::exchange::{Kind, Placed, RunKey, steady};
use crate::proxy::RequestHead;
use endstop::agent::GuestRecord;
use endstop_core::guest::{Guest, GuestStart, Spending};
use endstop_core::{
    Decision, GuestCall, Limit, ModelError, ModelTurn, Outcome, Pause, RuleHit, RunEvent, RunSpec,
    ToolReport, ToolStatus, TurnDelta, Window,
};
use endstop_wire::redact::{KnownKeys, Sealed};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// Difference between two ends of the same pause.
const SAME_PAUSE: Duration = Duration::from_secs(60);
/// The most rules that fired in conversations other than the lead.
const MOST_HITS: usize = 256;

/// The result of a call, as its observer decoded it.
pub(super) type Response = Result<ModelTurn, (ModelError, Option<Box<ModelTurn>>)>;

/// A call that arrives, placed in its run.
pub(super) struct Arrival<'a> {
    pub(super) placed: Placed,
    pub(super) call: GuestCall,
    pub(super) facts: &'a Arc<CallFacts>,
    pub(super) head: &'a RequestHead,
    pub(super) body: &'a [u8],
}

/// The answer to a call.
pub(super) enum Admitted {
    Go(Ticket),
    /// The run has ended.
    Ended,
}

/// A call that guard has refused itself, or holds back.
#[derive(Clone)]
pub(super) struct Rejected {
    pub(super) decision: Decision,
    pub(super) reason: String,
    pub(super) work: Work,
}

/// The names of a run, and the time of its start.
pub(super) struct Identity {
    pub(super) key: RunKey,
    /// The id in the journal and in the outcome.
    pub(super) id: String,
    /// Wall clock at the start, in Unix milliseconds.
    pub(super) wall_ms: u64,
}

/// The state of a run. The owner holds a lock, so no method waits.
pub(super) struct Guarded {
    identity: Identity,
    pub(super) settings: Arc<Settings>,
    pub(super) account: Account,
    pub(super) conversations: Conversations,
    pub(super) calls: CallsInFlight,
    pub(super) record: RunRecord,
    pub(super) trace: RunTrace,
    on_event: OnEvent,
    pub(super) outcome: Option<Arc<Outcome>>,
    pub(super) after_end: AfterEnd,
    /// `true` if a call had the key of a subscription.
    pub(super) is_subscription: bool,
    /// The call that guard refused last, if no turn of its kind was admitted since.
    pub(super) rejected: Option<Rejected>,
    /// Rules that fired in other conversations than the lead.
    fired: Vec<RuleHit>,
    /// `true` once it was reported that the length of a conversation is not known.
    pub(super) has_noted_unknown_length: bool,
    /// `true` once the upstream has answered a call that costs nothing like the model call above its path.
    pub(super) has_answered_below: bool,
    /// Time of the last call, or of the end of one.
    active_at: Duration,
    /// Number of requests that wait for the end of a pause.
    pub(super) held_back: usize,
    /// The one of them with the largest part, as the end of its program's work.
    pub(super) holds: Option<Rejected>,
    /// The end of the last pause that was reported.
    pauses_until: Option<Duration>,
    pub(super) counts: Counts,
}

impl Guarded {
    pub(super) fn new(
        key: RunKey,
        settings: Arc<Settings>,
        wall_ms: u64,
        record: RunRecord,
        on_event: OnEvent,
    ) -> Guarded {
        let identity = Identity { id: record.id(key.id(), wall_ms), key, wall_ms };
        let account = Account::open(&settings);
        let is_recorded = settings.journal.is_some();
        let judged = Judged::Conversation;
        let start = GuestStart { record: is_recorded, ..start(wall_ms) };
        let spec = spec(&settings, &identity, &account, judged);
        let mut lead = Conversation::new(Guest::new(spec, start), judged);
        lead.set_name("main".into());
        if let (Some(budget), true) = (&account.budget, is_recorded) {
            budget.saw_run(&identity.id);
        }
        let trace = RunTrace::begin(&settings.spans, &identity.id);
        Guarded {
            trace,
            identity,
            settings,
            account,
            conversations: Conversations::new(lead),
            calls: CallsInFlight::default(),
            record,
            on_event,
            outcome: None,
            after_end: AfterEnd::default(),
            is_subscription: false,
            rejected: None,
            fired: Vec::new(),
            has_noted_unknown_length: false,
            has_answered_below: false,
            active_at: Duration::ZERO,
            held_back: 0,
            holds: None,
            pauses_until: None,
            counts: Counts::default(),
        }
    }

    pub(super) fn key(&self) -> &RunKey {
        &self.identity.key
    }

    /// The id in the journal and in the outcome.
    pub(super) fn id(&self) -> &str {
        &self.identity.id
    }

    /// The outcome, once the run has ended.
    pub(super) fn outcome(&self) -> Option<&Arc<Outcome>> {
        self.outcome.as_ref()
    }

    /// Wall clock at the start, in Unix milliseconds.
    pub(super) fn wall_ms(&self) -> u64 {
        self.identity.wall_ms
    }

    /// Rules that fired in other conversations than the lead, whose hits are in the outcome.
    pub(super) fn fired(&self) -> &[RuleHit] {
        &self.fired
    }

    /// The spending of all conversations together.
    pub(super) fn spent(&self) -> &Spending {
        self.account.ledger.sum()
    }

    pub(super) fn meter(&self) -> &Meter {
        &self.settings.meter
    }

    /// Reports an event to the observers.
    pub(super) fn notify(&self, event: GuardEvent) {
        (self.on_event)(event);
    }

    /// The time of the last call, or of the end of one.
    pub(super) fn active_at(&self) -> Duration {
        self.active_at
    }

    /// Returns the reason why a turn must wait for those in flight: they use up the limit on turns, unless they fail. If it did
    /// not wait, its refusal would end the run, and them with it.
    pub(super) fn waits_for_turns(&self, work: Work) -> Option<Pause> {
        let most = self.settings.limits.max_turns?;
        let turns = self.spent().turns;
        let all = turns.saturating_add(self.account.ledger.turns_in_flight());
        let waits = work > Work::Aside && self.outcome.is_none() && turns < most && all >= most;
        waits.then(|| Pause {
            until: Duration::MAX,
            limit: Limit::MaxTurns,
            evidence: format!("{all} of {most} turns, with those in flight"),
        })
    }

    /// Notes that a request waits for the end of a pause.
    pub(super) fn holds_back(&mut self, held: &Rejected) {
        self.held_back += 1;
        if self.holds.as_ref().is_none_or(|before| before.work <= held.work) {
            self.holds = Some(held.clone());
        }
    }

    /// Notes that a request waits no longer for the end of a pause. `left`: its client has not waited for it.
    pub(super) fn returns(&mut self, at: Duration, left: Option<&Rejected>) {
        self.held_back = self.held_back.saturating_sub(1);
        self.active_at = at;
        self.holds.take_if(|_| self.held_back == 0);
        if let Some(left) = left {
            self.rejects(left.decision.clone(), &left.reason, left.work);
        }
    }

    /// `true` if the run has not ended, and a limit counts its calls or what they cost.
    pub(super) fn is_counting(&self) -> bool {
        self.outcome.is_none() && self.settings.counts_calls()
    }

    /// Begins the journal's record of the run, if it has not begun.
    pub(super) fn begin_record(&mut self) {
        let Guarded { record, identity, settings, account, .. } = self;
        record.begin(&identity.id, identity.wall_ms, || {
            spec(settings, identity, account, Judged::Conversation)
        });
    }

    /// A conversation that begins now. Without a price, so that a call whose price is not known is not charged with
    /// that of another model.
    pub(super) fn begins(&self, judged: Judged) -> Conversation {
        let spec = spec(&self.settings, &self.identity, &self.account, judged);
        Conversation::new(Guest::new(spec, start(self.identity.wall_ms)), judged)
    }

    /// Decides about a call: the results in it are reported first.
    pub(super) fn admit(
        &mut self,
        at: Duration,
        Arrival { placed, call, facts, head, body }: Arrival<'_>,
    ) -> Admitted {
        self.active_at = at;
        self.record.hide_keys_of(head, body);
        self.is_subscription |= facts.is_subscription;
        if self.outcome.is_some() {
            return Admitted::Ended;
        }
        let is_open_ended = facts.is_metered() && call.output_cap.is_none();
        let number = self.calls.number();
        let main = Place::Thread(placed.seat.thread.clone());
        let place = match placed.kind.is_turn() {
            // The lead is the first conversation, and its first call cannot be parallel to another.
            true if self.is_busy(&main) => Place::Parallel(number),
            true => main,
            false => Place::Auxiliary(number),
        };
        self.begin_record();
        let mark = match place {
            Place::Auxiliary(_) if !facts.is_metered() => hash_of(body),
            _ => 0,
        };
        self.open(at, &place, facts, mark);
        let Guarded { conversations, account, .. } = self;
        // `open` has just inserted it.
        let Some(conversation) = conversations.get_mut(&place) else { return Admitted::Ended };
        conversation.last_call = number;
        conversation.last_request = mark;
        let stopped = placed.results.into_iter().find_map(|result| {
            let status = if result.is_error { ToolStatus::Error } else { ToolStatus::Ok };
            let report = ToolReport::new(status, steady(result.text));
            match conversation.result(at, &result.call_id, report, account) {
                Step::Continue => None,
                Step::Stop(outcome) => Some(outcome),
            }
        });
        let model = call.model.clone();
        let asked = match stopped {
            Some(outcome) => Asked::Stop(outcome),
            None => conversation.ask(at, call, account),
        };
        self.flush(&place);
        match asked {
            Asked::Stop(outcome) => {
                self.stop(at, &outcome);
                Admitted::Ended
            }
            Asked::Go { call, turn, output_cap, line } => {
                self.counts.calls += 1;
                self.counts.metered += u64::from(facts.is_metered());
                let work = self.conversations.work_of(facts);
                self.rejected.take_if(|rejected| work > Work::Aside && rejected.work <= work);
                self.meter().called();
                let exchange = Exchange::new(place.clone(), facts, is_open_ended);
                let abort = exchange.abort.clone();
                self.calls.insert(number, exchange);
                self.shows_call(number, &place, (facts, head), (model, turn, output_cap));
                let in_flight = self.calls.len() as u64;
                self.counts.most_in_flight = self.counts.most_in_flight.max(in_flight);
                Admitted::Go(Ticket { number, place, call, output_cap, line, abort })
            }
        }
    }

    /// Opens the span of a call.
    fn shows_call(
        &mut self,
        number: u64,
        place: &Place,
        (facts, head): (&CallFacts, &RequestHead),
        (model, turn, output_cap): (Option<String>, u32, Option<u64>),
    ) {
        let is_turn = self.conversations.counts_as_turn(facts);
        let thread = self.conversations.get(place).and_then(Conversation::name);
        let span = self.trace.call(&Begun {
            facts,
            head,
            model: model.as_deref().unwrap_or_default(),
            run_id: &self.identity.id,
            thread: thread.map(|name| &**name),
            turn: is_turn.then_some(turn),
            output_cap,
            keys: self.record.keys(),
        });
        if let Some(span) = span {
            self.calls.is_shown_by(number, span);
        }
    }

    /// `true` if a call of this conversation is in flight whose client still waits, or has what it waited for.
    fn is_busy(&self, conversation: &Place) -> bool {
        let last = self.conversations.last_call(conversation, &self.calls);
        self.calls.is_held(conversation) || last.is_some_and(|last| !self.calls.abort_if_gone(last))
    }

    /// Creates the conversation of a call, if it is new.
    fn open(&mut self, at: Duration, place: &Place, facts: &CallFacts, request: u64) {
        let kind = facts.kind;
        if matches!(place, Place::Thread(_)) && self.conversations.begin_lead(place) {
            // The calls without tools so far were titles and the like, and no turns.
            self.account.ledger.forget_turns();
            self.counts.threads += 1;
            self.conversation_started("main", kind);
        }
        if let Place::Auxiliary(_) = place {
            self.counts.auxiliary += 1;
        }
        if self.conversations.get(place).is_none() {
            if let Some(idle) = self.conversations.surplus(&self.calls) {
                self.leave(at, &idle);
            }
            let name = match place {
                Place::Thread(_) => {
                    self.counts.threads += 1;
                    let what = if kind == Kind::Sub { "sub" } else { "main" };
                    Some(format!("{what}-{}", self.counts.threads))
                }
                Place::Parallel(number) => Some(format!("parallel-{number}")),
                Place::Auxiliary(_) => None,
            };
            let judged = self.conversations.judged(place, facts);
            let goes_on = matches!(place, Place::Auxiliary(_)) && judged == Judged::Turn;
            let failed = goes_on.then(|| self.conversations.take_repeated(request)).flatten();
            let mut conversation = failed.unwrap_or_else(|| self.begins(judged));
            if let Some(name) = name {
                self.conversation_started(&name, kind);
                conversation.set_name(name.into());
            }
            self.conversations.insert(place.clone(), conversation);
        }
        if kind == Kind::Main
            && let Some(over) = self.conversations.set_last_main(place, &self.calls)
        {
            self.leave(at, &over);
        }
    }

    fn conversation_started(&self, name: &str, kind: Kind) {
        self.notify(GuardEvent::ThreadStarted {
            run: self.key().id().to_owned(),
            thread: name.to_owned(),
            sub_agent: kind == Kind::Sub,
        });
    }

    /// Ends a conversation that is not needed any more, while the run continues.
    fn leave(&mut self, at: Duration, place: &Place) {
        let _ = self.close_conversation(at, place, &Last::Closed { ok: true, detail: "" });
        self.conversations.remove(place);
    }

    /// Ends a conversation other than the lead.
    pub(super) fn close_conversation(
        &mut self,
        at: Duration,
        place: &Place,
        how: &Last<'_>,
    ) -> Option<Arc<Outcome>> {
        let outcome = self.conversations.get_mut(place)?.end(at, how, &mut self.account);
        self.flush(place);
        Some(outcome)
    }

    /// Notes that the response of a call has started, and returns the warnings for its client.
    pub(super) fn response_began(&mut self, ticket: &Ticket) -> Vec<String> {
        self.calls.has_started(ticket.number);
        let conversation = self.conversations.get_mut(&ticket.place);
        conversation.map(Conversation::take_warnings).unwrap_or_default()
    }

    /// Reports streamed content. Returns `false` if the run has ended.
    pub(super) fn delta(&mut self, at: Duration, ticket: &Ticket, delta: TurnDelta) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        let Guarded { conversations, account, .. } = self;
        let Some(conversation) = conversations.get_mut(&ticket.place) else { return true };
        let step = conversation.delta(at, ticket.call, delta, account);
        self.flush(&ticket.place);
        match step {
            Step::Continue => true,
            Step::Stop(outcome) => {
                // The observer of this call ends it itself, perhaps cleanly.
                self.calls.remove(ticket.number);
                self.stop(at, &outcome);
                false
            }
        }
    }

    /// Reports the use of a subscription's windows, for all conversations.
    pub(super) fn windows(&mut self, at: Duration, windows: Vec<Window>) {
        let Guarded { conversations, account, .. } = self;
        let Some(lead) = conversations.lead_mut().filter(|_| self.outcome.is_none()) else {
            return;
        };
        let step = lead.windows(at, windows, account);
        if let Some(place) = self.conversations.lead().cloned() {
            self.flush(&place);
        }
        if let Step::Stop(outcome) = step {
            self.stop(at, &outcome);
        }
    }

    /// Returns the pause that a call must wait for, and reports it when it begins.
    pub(super) fn pause(&mut self, at: Duration) -> Option<Pause> {
        let Guarded { conversations, account, .. } = self;
        let lead = conversations.lead_mut().filter(|_| self.outcome.is_none())?;
        let pause = lead.pause(at, account);
        let thread = lead.name().map_or_else(|| "main".to_owned(), ToString::to_string);
        if let Some(place) = self.conversations.lead().cloned() {
            self.flush(&place);
        }
        let pause = pause?;
        let Pause { until, evidence, .. } = pause.clone();
        if self.pauses_until.is_none_or(|known| until.abs_diff(known) >= SAME_PAUSE) {
            self.pauses_until = Some(until);
            let wait = until.saturating_sub(at);
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            self.notify(GuardEvent::Run {
                run: self.key().id().to_owned(),
                thread,
                event: Box::new(Sealed::new(
                    RunEvent::Paused { wait_ms, evidence },
                    self.record.keys().clone(),
                )),
            });
        }
        Some(pause)
    }

    /// Keeps a call open whose response is to be asked for by its id. Returns `false` if there are too many.
    pub(super) fn hold(
        &mut self,
        at: Duration,
        id: &str,
        ticket: &Ticket,
        facts: &Arc<CallFacts>,
    ) -> bool {
        let is_held = self.outcome.is_none() && self.calls.hold(id, ticket, facts);
        if is_held {
            self.active_at = at;
        }
        is_held
    }

    /// Reports the end of a call, and returns what was booked for it.
    pub(super) fn ended(&mut self, at: Duration, ticket: &Ticket, response: Response) -> Spending {
        let before = self.spent().clone();
        let span = self.calls.take_span(ticket.number);
        if let Some(span) = &span {
            let facts = match &response {
                Ok(turn) => (Some(turn), None),
                Err((error, partial)) => (partial.as_deref(), Some(error)),
            };
            responded(span, facts, self.settings.spans.content, self.record.keys());
        }
        self.end_call(at, ticket, response);
        let spent = self.spent().since(&before);
        if let (Some(span), Some(cost)) = (span, spent.known_cost()) {
            span.cost(cost);
        }
        spent
    }

    fn end_call(&mut self, at: Duration, ticket: &Ticket, response: Response) {
        let exchange = self.calls.remove(ticket.number);
        let is_metered = exchange.as_ref().is_some_and(|exchange| exchange.facts.is_metered());
        self.counts.without_text += u64::from(is_metered && response.is_ok());
        let is_open_ended = exchange.as_ref().is_some_and(|exchange| exchange.is_open_ended);
        let is_counted = |turn: &ModelTurn| {
            turn.usage.input_tokens.is_some() && turn.usage.output_tokens.is_some()
        };
        if is_open_ended && response.as_ref().is_ok_and(|turn| !is_counted(turn)) {
            self.account.ledger.book_unknown();
        }
        self.active_at = at;
        let Guarded { conversations, account, .. } = self;
        let Some(conversation) = conversations.get_mut(&ticket.place) else { return };
        conversation.was_cut = exchange.is_some_and(|one| one.gone) && response.is_err();
        let step = conversation.ended(at, ticket.call, response, account);
        self.flush(&ticket.place);
        if let Step::Stop(outcome) = step {
            self.stop(at, &outcome);
            return;
        }
        match &ticket.place {
            // One call is the whole conversation, so its ending is known. It is only asked for if no other follows.
            place if is_metered => drop(self.conversations.remove(place)),
            place @ Place::Auxiliary(_) => self.conversations.keep_auxiliary(at, place),
            place if place.is_single() && self.conversations.last_main() != Some(place) => {
                self.leave(at, place);
            }
            _ => {}
        }
    }

    /// Sends the new events of a conversation to the observers and, if it is the lead, to the journal.
    pub(super) fn flush(&mut self, place: &Place) {
        let is_lead = self.conversations.is_lead(place);
        let is_recorded = is_lead && self.settings.journal.is_some();
        let Guarded { conversations, record, identity, on_event, fired, .. } = self;
        let Some(conversation) = conversations.get_mut(place) else { return };
        // Most deltas cause nothing.
        if !is_recorded && !conversation.has_news() {
            return;
        }
        let unsent = conversation.take_unsent();
        if let Some(name) = conversation.name() {
            for event in unsent {
                on_event(GuardEvent::Run {
                    run: identity.key.id().to_owned(),
                    thread: name.to_string(),
                    event: Box::new(Sealed::new(event, record.keys().clone())),
                });
            }
        }
        let hits = conversation.take_hits();
        if !is_lead {
            // Bounded, because a program may open any number of conversations.
            let room = MOST_HITS.saturating_sub(fired.len());
            for hit in hits.into_iter().take(room) {
                // A hit that cannot be written as JSON is not reported at all.
                let clean = record.keys().redact_value(&hit);
                fired.extend(clean.map(|clean| clean.unwrap_or(hit)));
            }
        }
        if is_recorded {
            let (events, ended) = conversation.take_recorded();
            record.events(events, ended);
        }
    }

    /// Notes that guard has refused a call of the run itself.
    pub(super) fn rejects(&mut self, decision: Decision, reason: &str, work: Work) {
        self.counts.rejected += 1;
        // A title that is refused later does not hide a refused turn.
        if self.rejected.as_ref().is_none_or(|before| before.work <= work) {
            self.rejected = Some(Rejected { decision, reason: reason.to_owned(), work });
        }
    }

    /// The secrets of the run, also those in its requests so far.
    pub(super) fn keys(&self) -> &KnownKeys {
        self.record.keys()
    }

    /// Takes the journal's record, to wait until it is written.
    pub(super) fn take_record(&mut self) -> Option<GuestRecord> {
        self.record.take()
    }
}

fn hash_of(body: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    hasher.finish()
}

/// The specification of a conversation. The model comes with each call.
fn spec(settings: &Settings, of: &Identity, account: &Account, judged: Judged) -> RunSpec {
    let is_conversation = judged == Judged::Conversation;
    RunSpec {
        task: settings.journal.as_ref().map(|one| one.task.clone()).unwrap_or_default(),
        limits: judged.limits(&settings.limits),
        policy: settings.policy.as_ref().filter(|_| is_conversation).map(|make| make()),
        watches: if is_conversation { settings.watches.clone() } else { Vec::new() },
        guest: Some(settings.mode()),
        tools: Arc::clone(&settings.tools),
        reserve: true,
        shared_budget: account.budget.is_some(),
        // Guard adds nothing to the requests of a program, so that no message would reach the
        // model.
        nudge: false,
        run_id: Some(of.id.clone()),
        ..RunSpec::default()
    }
}

fn start(wall_ms: u64) -> GuestStart {
    GuestStart { wall_ms: Some(wall_ms), ..GuestStart::default() }
}
