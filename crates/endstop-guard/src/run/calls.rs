//! The calls of a guarded run: admitted, streamed, ended.

use super::call::{CallFacts, OpenCall, Place, Ticket, WeakCall};
use super::guarded::{Exchange, Guarded};
use super::thread::{Asked, Step, Thread};
use crate::exchange::{Placed, steady};
use crate::proxy::{AbortToken, RequestHead, Stop};
use endstop_core::{GuestCall, ModelError, ModelTurn, ToolReport, ToolStatus, TurnDelta};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The most calls of a run that providers work on in the background.
const MOST_HELD: usize = 1024;

/// The result of a call, as its observer decoded it.
pub(super) type Response = Result<ModelTurn, (ModelError, Option<Box<ModelTurn>>)>;

/// The answer to a call.
pub(super) enum Admitted {
    Go(Ticket),
    /// The run has ended.
    Ended,
}

impl Guarded {
    /// Decides about a call: the results in it are reported first.
    pub(super) fn admit(
        &mut self,
        at: Duration,
        placed: Placed,
        call: GuestCall,
        facts: &Arc<CallFacts>,
        (head, body): (&RequestHead, &[u8]),
    ) -> Admitted {
        self.active_at = at;
        self.record.hide_keys_of(head, body);
        self.is_subscription |= facts.is_subscription;
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
                if placed.kind.is_turn() {
                    self.rejected = None;
                }
                self.meter().called();
                let abort = AbortToken::new();
                let exchange = Exchange {
                    place: place.clone(),
                    told: if placed.kind.is_turn() { conversation } else { place.clone() },
                    abort: abort.clone(),
                    facts: Arc::clone(facts),
                    started: false,
                    gone: false,
                    finished: false,
                    reading: None,
                };
                self.exchanges.insert(number, exchange);
                let in_flight = self.exchanges.len() as u64;
                self.counts.most_in_flight = self.counts.most_in_flight.max(in_flight);
                Admitted::Go(Ticket { number, place, call, output_cap, abort })
            }
        }
    }

    /// `true` if a call of this conversation is in flight whose client still waits, or has what it waited for.
    /// A call whose client is gone is aborted, because the next one takes its place.
    fn is_busy(&self, conversation: &Place) -> bool {
        if self.is_held(conversation) {
            return true;
        }
        let Some(exchange) = self.last_exchange(conversation) else { return false };
        let is_over = exchange.gone && !exchange.finished;
        if is_over {
            exchange.abort.abort(Stop::Close);
        }
        !is_over
    }

    /// Notes the reading of the response of a call.
    pub(super) fn is_read_by(&mut self, number: u64, reading: WeakCall) {
        if let Some(exchange) = self.exchanges.get_mut(&number) {
            exchange.reading = Some(reading);
        }
    }

    /// Returns the readings of the responses that have begun. They lock the run, so they are used without its lock.
    pub(super) fn readings(&self) -> Vec<(u64, Arc<Mutex<dyn OpenCall>>)> {
        let open =
            |(number, one): (&u64, &Exchange)| Some((*number, one.reading.as_ref()?.upgrade()?));
        self.exchanges.iter().filter(|(_, one)| one.started).filter_map(open).collect()
    }

    /// `true` if a call is in flight of which only usage may follow.
    pub(super) fn awaits_usage(&self) -> bool {
        self.exchanges.values().any(|one| one.finished)
    }

    /// Notes that the finish value of a call had passed when a later call came.
    pub(super) fn has_finished(&mut self, number: u64) {
        if let Some(exchange) = self.exchanges.get_mut(&number) {
            exchange.finished = true;
        }
    }

    /// Notes that the response of a call has started, and returns the warnings for its client.
    pub(super) fn response_began(&mut self, ticket: &Ticket) -> Vec<String> {
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

    /// Keeps a call open whose response is to be asked for by its id. Until then, or until the run ends, what was
    /// reserved for it counts. Returns `false` if there are too many.
    pub(super) fn hold(
        &mut self,
        at: Duration,
        id: &str,
        ticket: &Ticket,
        facts: &Arc<CallFacts>,
    ) -> bool {
        if self.outcome.is_some() || self.held.len() >= MOST_HELD || self.held.contains_key(id) {
            return false;
        }
        self.exchanges.remove(&ticket.number);
        self.active_at = at;
        self.held.insert(id.to_owned(), (ticket.clone(), Arc::clone(facts)));
        true
    }

    /// Reports the end of a call.
    pub(super) fn ended(&mut self, at: Duration, ticket: &Ticket, response: Response) {
        let exchange = self.exchanges.remove(&ticket.number);
        let is_metered = exchange.as_ref().is_some_and(|exchange| exchange.facts.is_metered);
        let was_left = exchange.is_some_and(|exchange| exchange.gone);
        self.active_at = at;
        let Guarded { threads, books, budget, .. } = self;
        let Some(thread) = threads.get_mut(&ticket.place) else { return };
        thread.was_cut = was_left && response.is_err();
        let step = thread.ended(at, ticket.call, response, books, budget.as_ref());
        self.flush(&ticket.place);
        if let Step::Stop(outcome) = step {
            self.stop(at, &outcome);
            return;
        }
        match &ticket.place {
            // One call is the whole thread, so its ending is known. It is only asked for if no other follows.
            place if is_metered => drop(self.threads.remove(place)),
            place @ Place::Auxiliary(_) => {
                self.last_auxiliary = self.threads.remove(place).map(|thread| (at, thread));
            }
            place if place.is_single() && self.last_main.as_ref() != Some(place) => {
                self.leave(at, place);
            }
            _ => {}
        }
    }
}
