//! The calls of a run: what is known of each, and those that are in flight.

use crate::exchange::answer::AnswerFormat;
use crate::exchange::{Kind, Seat, ThreadId};
use crate::proxy::{AbortToken, Stop};
use endstop::telemetry::{CallSpan, Operation};
use endstop_core::{EffectId, Price};
use endstop_wire::catalog::prices::ModelInfo;
use endstop_wire::{Dialect, RequestFacts};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// The most calls of a run that providers work on in the background.
const MOST_HELD: usize = 1024;

/// The place of a conversation, or of a single call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Place {
    Thread(ThreadId),
    /// A turn that is made while another call of its conversation is in flight, by the number of its
    /// exchange.
    Parallel(u64),
    /// A call that is not a turn, by the number of its exchange.
    Auxiliary(u64),
}

impl Place {
    /// `true` if the conversation has a single call.
    pub(super) fn is_single(&self) -> bool {
        matches!(self, Place::Parallel(_) | Place::Auxiliary(_))
    }
}

/// The part that a call has in the work of its program. A refused call is the end of that work until one of at least the same
/// part is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Work {
    /// A title or the like, without which the program may do.
    Aside,
    /// A turn of a program that has offered no tools.
    Turn,
    /// A turn that offers tools.
    TurnWithTools,
}

/// The facts of a call that its request states.
#[derive(Debug)]
pub(super) struct CallFacts {
    pub(super) seat: Seat,
    pub(super) kind: Kind,
    /// `true` if the client is a coding agent that guard knows.
    pub(super) is_known_agent: bool,
    pub(super) operation: Operation,
    /// `true` if the provider works on after its response, which the client then asks for by its id.
    pub(super) is_background: bool,
    /// `true` if its key belongs to a subscription.
    pub(super) is_subscription: bool,
    pub(super) reply: AnswerFormat,
    pub(super) request: RequestFacts,
    pub(super) dialect: &'static Dialect,
    /// The host of the upstream.
    pub(super) host: Option<String>,
    pub(super) port: u16,
    /// The price of the call, if it is known.
    pub(super) price: Option<Price>,
    /// The source of the call's price, if that is the catalogue.
    pub(super) catalogue: Option<ModelInfo>,
}

impl CallFacts {
    /// The conversation of a call that is a turn.
    pub(super) fn thread(&self) -> Option<&ThreadId> {
        self.kind.is_turn().then_some(&self.seat.thread)
    }

    /// `true` if the call makes no text: embeddings, images. It can be no answer of the program.
    pub(super) fn is_metered(&self) -> bool {
        self.operation != Operation::Chat
    }
}

/// The reading of a response, as a later call of the same client sees it.
pub(super) trait OpenCall: Send {
    /// Ends the call if the whole message has passed, although the exchange has not ended. If the caller has waited for
    /// the end of the message, its finish value and its usage are enough. Returns `true` if the call remains open and
    /// only its usage may follow. Reads what was put off; if that ends the run in the middle of the
    /// message, the exchange is aborted.
    fn end_if_complete(&mut self, has_waited: bool) -> bool;

    /// Ends the call if its finish value has passed. The exchange continues, and what it reports later is booked.
    fn end_if_finished(&mut self);
}

/// Locks a reading.
// After a panic the response is at worst one that cannot be decoded, which is an error of the call.
pub(super) fn lock_call<T: OpenCall + ?Sized>(reading: &Mutex<T>) -> MutexGuard<'_, T> {
    reading.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The open call of an exchange; gone once the exchange has ended.
pub(super) type WeakCall = Weak<Mutex<dyn OpenCall>>;

/// The admission of a call.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub(super) number: u64,
    pub(super) place: Place,
    pub(super) call: EffectId,
    /// The output cap to send, if caps are lowered.
    pub(super) output_cap: Option<u64>,
    /// A line for the model, at the end of the request.
    pub(super) line: Option<String>,
    pub(super) abort: AbortToken,
}

/// A call that is in flight.
pub(super) struct Exchange {
    pub(super) place: Place,
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
    finished: bool,
    /// The reading of its response.
    reading: Option<WeakCall>,
    /// The time at which it counts as complete.
    rests_until: Option<Duration>,
}

impl Exchange {
    /// A call that is forwarded now.
    pub(super) fn new(place: Place, facts: &Arc<CallFacts>, is_open_ended: bool) -> Exchange {
        Exchange {
            place,
            abort: AbortToken::new(),
            facts: Arc::clone(facts),
            is_open_ended,
            started: false,
            gone: false,
            finished: false,
            reading: None,
            rests_until: None,
        }
    }
}

/// The calls of a run that have not ended.
#[derive(Default)]
pub(super) struct CallsInFlight {
    open: HashMap<u64, Exchange>,
    /// The times at which calls count as complete although their exchanges continue, with their numbers.
    rests: BTreeSet<(Duration, u64)>,
    /// Calls whose response has passed while the provider works on, by the id of the response.
    held: HashMap<String, (Ticket, Arc<CallFacts>)>,
    /// The spans of all of these, by their numbers; empty if no subscriber is interested.
    #[allow(clippy::zero_sized_map_values, reason = "a span has a size in builds with telemetry")]
    spans: HashMap<u64, CallSpan>,
    next: u64,
}

impl CallsInFlight {
    /// Takes the number of the next call.
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    pub(super) fn insert(&mut self, number: u64, exchange: Exchange) {
        self.open.insert(number, exchange);
    }

    /// Notes the span of a call.
    pub(super) fn is_shown_by(&mut self, number: u64, span: CallSpan) {
        self.spans.insert(number, span);
    }

    /// The span of a call, if it is shown.
    pub(super) fn span(&self, number: u64) -> Option<&CallSpan> {
        self.spans.get(&number)
    }

    /// Takes the span of a call that has ended.
    pub(super) fn take_span(&mut self, number: u64) -> Option<CallSpan> {
        self.spans.remove(&number)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Exchange> {
        self.open.get(&number)
    }

    /// Removes a call that has ended.
    pub(super) fn remove(&mut self, number: u64) -> Option<Exchange> {
        let exchange = self.open.remove(&number)?;
        if let Some(until) = exchange.rests_until {
            self.rests.remove(&(until, number));
        }
        Some(exchange)
    }

    /// Removes all calls, because the run has ended.
    pub(super) fn take_all(&mut self) -> HashMap<u64, Exchange> {
        self.held.clear();
        self.spans.drain().for_each(|(_, span)| span.abort());
        std::mem::take(&mut self.open)
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    /// `true` if a call of this place is in flight.
    pub(super) fn has(&self, place: &Place) -> bool {
        self.open.values().any(|one| one.place == *place)
    }

    /// `true` if the provider still works on a call of this place.
    pub(super) fn is_held(&self, place: &Place) -> bool {
        self.held.values().any(|(ticket, _)| ticket.place == *place)
    }

    /// The places whose responses are still to be booked.
    pub(super) fn places(&self) -> HashSet<&Place> {
        let open = self.open.values().map(|one| &one.place);
        open.chain(self.held.values().map(|(ticket, _)| &ticket.place)).collect()
    }

    /// Notes the reading of the response of a call.
    pub(super) fn is_read_by(&mut self, number: u64, reading: WeakCall) {
        if let Some(exchange) = self.open.get_mut(&number) {
            exchange.reading = Some(reading);
        }
    }

    /// Returns the readings of the responses that have begun. They lock the run, so they are used without its lock.
    pub(super) fn readings(&self) -> Vec<(u64, Arc<Mutex<dyn OpenCall>>)> {
        let open =
            |(number, one): (&u64, &Exchange)| Some((*number, one.reading.as_ref()?.upgrade()?));
        self.open.iter().filter(|(_, one)| one.started).filter_map(open).collect()
    }

    /// Notes when a call counts as complete whose finish value has passed; `None` if it is not known to have ended.
    pub(super) fn ends_at(&mut self, number: u64, at: Option<Duration>) {
        let Some(exchange) = self.open.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut exchange.rests_until, at) {
            self.rests.remove(&(before, number));
        }
        self.rests.extend(at.map(|at| (at, number)));
    }

    /// The time at which the next call counts as complete.
    pub(super) fn next_complete(&self) -> Option<Duration> {
        self.rests.first().map(|(at, _)| *at)
    }

    /// Takes the readings of the calls that count as complete now. They lock the run, so they are used without its
    /// lock.
    pub(super) fn take_complete(&mut self, now: Duration) -> Vec<Arc<Mutex<dyn OpenCall>>> {
        let later = self.rests.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.rests, later);
        let reading = |(_, number): (Duration, u64)| {
            let exchange = self.open.get(&number)?;
            exchange.reading.as_ref()?.upgrade()
        };
        due.into_iter().filter_map(reading).collect()
    }

    /// `true` if a call is in flight of which only usage may follow.
    pub(super) fn awaits_usage(&self) -> bool {
        self.open.values().any(|one| one.finished)
    }

    /// Notes that the finish value of a call had passed when a later call came.
    pub(super) fn has_finished(&mut self, number: u64) {
        if let Some(exchange) = self.open.get_mut(&number) {
            exchange.finished = true;
        }
    }

    /// Notes that the response of a call has started.
    pub(super) fn has_started(&mut self, number: u64) {
        if let Some(exchange) = self.open.get_mut(&number) {
            exchange.started = true;
        }
    }

    /// Notes that the client of a call closed its connection.
    pub(super) fn client_gone(&mut self, ticket: &Ticket) {
        if let Some(exchange) = self.open.get_mut(&ticket.number) {
            exchange.gone = true;
        }
    }

    /// Aborts a call whose client is gone, because the next one takes its place. Returns `false` if its client still
    /// waits, or has what it waited for.
    pub(super) fn abort_if_gone(&self, number: u64) -> bool {
        let Some(exchange) = self.open.get(&number) else { return true };
        let is_over = exchange.gone && !exchange.finished;
        if is_over {
            exchange.abort.abort(Stop::Close);
        }
        is_over
    }

    /// Keeps a call open whose response is to be asked for by its id. Until then, or until the run ends, what was
    /// reserved for it counts. Returns `false` if there are too many.
    pub(super) fn hold(&mut self, id: &str, ticket: &Ticket, facts: &Arc<CallFacts>) -> bool {
        if self.held.len() >= MOST_HELD || self.held.contains_key(id) {
            return false;
        }
        self.remove(ticket.number);
        self.held.insert(id.to_owned(), (ticket.clone(), Arc::clone(facts)));
        true
    }

    /// The call that waits for the response with this id.
    pub(super) fn held(&self, id: &str) -> Option<&Arc<CallFacts>> {
        self.held.get(id).map(|(_, facts)| facts)
    }

    /// Takes the call that waits for the response with this id.
    pub(super) fn take_held(&mut self, id: &str) -> Option<(Ticket, Arc<CallFacts>)> {
        self.held.remove(id)
    }
}
