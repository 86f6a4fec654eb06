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
use super::call::{CallFacts, Place, Ticket, WeakCall};
use super::event::{GuardEvent, Hear};
use super::journal::RunRecord;
use super::meter::Meter;
use super::settings::{OnLimit, Settings};
use super::thread::{Judged, Thread};
use crate::exchange::RunKey;
use crate::proxy::AbortToken;
use endstop::agent::GuestRecord;
use endstop::budget::SharedBudget;
use endstop_core::guest::{Guest, GuestStart, Spending};
use endstop_core::{Decision, GuestMode, Limits, NanoUsd, Outcome, RuleHit, RunSpec};
use endstop_wire::redact::{KnownKeys, Sealed};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The most rules that fired in conversations other than the lead.
const MOST_HITS: usize = 256;

/// A call that is in flight.
pub(super) struct Exchange {
    pub(super) place: Place,
    /// The conversation that is informed if the run ends during the call.
    pub(super) told: Place,
    pub(super) abort: AbortToken,
    pub(super) facts: Arc<CallFacts>,
    /// `true` if neither the request nor a cap bounds what the call may cost: images, speech.
    pub(super) is_open_ended: bool,
    /// `true` once the response has started, so that no other answer can be given.
    pub(super) started: bool,
    /// `true` if the client closed its connection, so that the same request again is a retry.
    pub(super) gone: bool,
    /// `true` if its client was seen to continue after the finish value, so that the call is a turn although it
    /// is gone.
    pub(super) finished: bool,
    /// The reading of its response.
    pub(super) reading: Option<WeakCall>,
    /// The time at which it counts as complete.
    pub(super) rests_until: Option<Duration>,
}

/// Numbers for the report of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Model calls that were forwarded.
    pub calls: u64,
    /// The most of them that were in flight at once, each until the end of its response was read.
    pub most_in_flight: u64,
    /// Calls that are not turns: titles, routers, summaries.
    pub auxiliary: u64,
    /// Calls after the end that got a final text.
    pub finals: u64,
    /// Calls after the end that were refused.
    pub refusals: u64,
    /// Those of the calls that make no text: embeddings, images, speech.
    pub metered: u64,
    /// Calls that guard could not read, and that passed.
    pub unread: u64,
    /// Model calls that guard refused before the end: they are not valid, or a limit could not be kept with them.
    pub rejected: u64,
    /// POST requests that are no model calls which guard knows, such as embeddings or batches, and
    /// that passed. Their cost is not known.
    pub others: u64,
    /// Those of them that are known to have a bill, such as embeddings of a run without limits.
    pub others_billed: u64,
    /// The time of those requests together.
    pub others_time: Duration,
    /// Threads.
    pub threads: u64,
}

impl Counts {
    /// `true` if a model call has come, whatever its answer was.
    pub fn has_model_calls(&self) -> bool {
        let Counts { calls, metered, unread, rejected, finals, refusals, .. } = *self;
        let calls = calls.saturating_sub(metered);
        [calls, unread, rejected, finals, refusals].into_iter().any(|count| count > 0)
    }
}

/// A conversation of a run that has ended.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) name: Option<Arc<str>>,
    /// `true` once it got the answer with the reason for the stop.
    pub(super) is_told: bool,
}

/// A call that guard has refused itself.
pub(super) struct Rejected {
    pub(super) decision: Decision,
    pub(super) reason: String,
    /// `true` if the call would have been a turn, so that its refusal may be the end of the program's work.
    pub(super) is_turn: bool,
}

/// The state of a run. The owner holds a lock, so no method waits.
pub(super) struct Guarded {
    pub(super) key: RunKey,
    /// The id in the journal and in the outcome.
    id: String,
    pub(super) settings: Arc<Settings>,
    pub(super) budget: Option<SharedBudget>,
    pub(super) books: Books,
    /// The threads in memory; none after the end.
    pub(super) threads: HashMap<Place, Thread>,
    pub(super) exchanges: HashMap<u64, Exchange>,
    /// The times at which calls count as complete although their exchanges go on, with their numbers.
    pub(super) rests: BTreeSet<(Duration, u64)>,
    /// Calls whose response has passed while the provider works on, by the id of the response.
    pub(super) held: HashMap<String, (Ticket, Arc<CallFacts>)>,
    pub(super) next_exchange: u64,
    /// The thread of the first turn, which is the one that the journal records. It stays in memory.
    pub(super) lead: Option<Place>,
    /// The lead thread before the first turn.
    pub(super) unassigned: Option<Thread>,
    pub(super) record: RunRecord,
    pub(super) hear: Hear,
    /// The main thread of the last turn.
    pub(super) last_main: Option<Place>,
    /// The last call that was not a turn, and the time of its end: the ending of a program that offers no tools. It is
    /// closed only if it is needed.
    pub(super) last_auxiliary: Option<(Duration, Thread)>,
    pub(super) outcome: Option<Arc<Outcome>>,
    /// `true` if a call had the key of a subscription.
    pub(super) is_subscription: bool,
    /// The call that guard refused last, if no turn was admitted since.
    pub(super) rejected: Option<Rejected>,
    /// The conversations of the ended run.
    pub(super) told: HashMap<Place, Told>,
    /// Rules that fired in other conversations than the lead.
    fired: Vec<RuleHit>,
    /// Final texts that the main thread may still get, one for each stopped sub-agent.
    pub(super) more_finals: u32,
    /// `true` once it was said that the length of a conversation is not known.
    pub(super) has_told_unknown: bool,
    wall_ms: u64,
    /// Time of the last call, or of the end of one.
    pub(super) active_at: Duration,
    pub(super) counts: Counts,
}

impl Guarded {
    pub(super) fn new(
        key: RunKey,
        settings: Arc<Settings>,
        wall_ms: u64,
        record: RunRecord,
        hear: Hear,
    ) -> Guarded {
        let limits = &settings.limits;
        let usd = limits.max_budget_usd.map(NanoUsd::from_usd);
        // The account counts all tokens; another ceiling is enforced by the kernel alone.
        let tokens = limits
            .max_tokens
            .filter(|_| limits.max_tokens_counts == endstop_core::TokensCounted::All);
        let budget = SharedBudget::within(settings.budget.as_ref(), usd, tokens);
        settings.meter.started();
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
            rests: BTreeSet::new(),
            held: HashMap::new(),
            next_exchange: 0,
            lead: None,
            last_main: None,
            last_auxiliary: None,
            outcome: None,
            is_subscription: false,
            rejected: None,
            told: HashMap::new(),
            fired: Vec::new(),
            more_finals: 0,
            has_told_unknown: false,
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
        if let (Some(budget), true) = (&run.budget, record) {
            budget.saw_run(&run.id);
        }
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

    /// `true` if this conversation of the ended run hears of the end for the first time.
    pub(super) fn tell(&mut self, place: &Place) -> bool {
        self.told.get_mut(place).is_some_and(|told| !std::mem::replace(&mut told.is_told, true))
    }

    /// Rules that fired in other conversations than the lead, whose hits are in the outcome.
    pub(super) fn fired(&self) -> &[RuleHit] {
        &self.fired
    }

    /// The spending of all threads together.
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

    /// Returns the last call of a thread, if it is in flight. A run can have very many calls in flight, so they are
    /// not searched.
    pub(super) fn last_exchange(&self, place: &Place) -> Option<&Exchange> {
        let number = match place {
            Place::Thread(_) => self.threads.get(place)?.last_call,
            Place::Parallel(number) | Place::Auxiliary(number) => *number,
        };
        // A thread without a call has the number of another one.
        self.exchanges.get(&number).filter(|one| one.place == *place)
    }

    /// `true` if the provider still works on a call of this place.
    pub(super) fn is_held(&self, place: &Place) -> bool {
        self.held.values().any(|(ticket, _)| ticket.place == *place)
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
        self.settings.is_strict()
    }

    /// `true` if a limit of the run counts its calls or what they cost.
    pub(super) fn counts_calls(&self) -> bool {
        self.settings.counts_calls()
    }

    /// `true` if the run has not ended, and a limit counts its calls or what they cost.
    pub(super) fn is_counting(&self) -> bool {
        self.outcome.is_none() && self.settings.counts_calls()
    }

    /// Begins the journal's record of the run, if it has not begun.
    pub(super) fn begin_record(&mut self) {
        // Taken out for the call, because the specification is made from the rest of the run.
        let mut record = std::mem::take(&mut self.record);
        record.begin(&self.id, self.wall_ms, || self.spec(Judged::Conversation));
        self.record = record;
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
            // The program has the conversation, and the journal its events.
            guest: Some(GuestMode {
                capped: settings.cap_output,
                forgets: true,
                forgets_input: true,
                ..GuestMode::default()
            }),
            reserve: true,
            shared_budget: self.budget.is_some(),
            // Guard adds nothing to the requests of a program, so that no message would reach the
            // model.
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
        // Most deltas cause nothing.
        if !is_recorded && !thread.has_news() {
            return;
        }
        let unsent = thread.take_unsent();
        if let Some(name) = thread.name() {
            for event in unsent {
                (self.hear)(GuardEvent::Run {
                    run: self.key.id().to_owned(),
                    thread: name.to_string(),
                    event: Box::new(Sealed::new(event, self.record.keys().clone())),
                });
            }
        }
        let hits = thread.take_hits();
        if self.lead.as_ref() != Some(place) {
            // Bounded, because a program may open any number of conversations.
            let room = MOST_HITS.saturating_sub(self.fired.len());
            for hit in hits.into_iter().take(room) {
                // A hit that cannot be written as JSON is not reported at all.
                let clean = self.record.keys().redact_value(&hit);
                self.fired.extend(clean.map(|clean| clean.unwrap_or(hit)));
            }
        }
        if is_recorded {
            let (events, ended) = thread.take_recorded();
            self.record.events(events, ended);
        }
    }

    /// Notes that guard has refused a call of the run itself.
    pub(super) fn rejects(&mut self, decision: Decision, reason: &str, is_turn: bool) {
        self.counts.rejected += 1;
        // A title that is refused later does not hide a refused turn.
        if is_turn || !self.rejected.as_ref().is_some_and(|before| before.is_turn) {
            self.rejected = Some(Rejected { decision, reason: reason.to_owned(), is_turn });
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
}
