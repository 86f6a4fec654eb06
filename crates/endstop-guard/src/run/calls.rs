//! The calls of a guarded run: admitted, streamed, ended.

use super::call::{CallFacts, OpenCall, Place, Ticket, WeakCall};
use super::guarded::{Exchange, Guarded};
use super::thread::{Asked, Step, Thread};
use crate::exchange::{Placed, steady};
use crate::proxy::{AbortToken, RequestHead, Stop};
use endstop::budget::Amount;
use endstop_core::guest::Spending;
use endstop_core::usage::Unreported;
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
        let is_open_ended = facts.is_metered && call.output_cap.is_none();
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
                self.counts.metered += u64::from(facts.is_metered);
                if self.counts_as_turn(&place, facts) {
                    self.rejected = None;
                }
                self.meter().called();
                let abort = AbortToken::new();
                let exchange = Exchange {
                    place: place.clone(),
                    told: if placed.kind.is_turn() { conversation } else { place.clone() },
                    abort: abort.clone(),
                    facts: Arc::clone(facts),
                    is_open_ended,
                    started: false,
                    gone: false,
                    finished: false,
                    reading: None,
                    rests_until: None,
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

    /// Notes when a call counts as complete whose finish value has passed.
    pub(super) fn ends_at(&mut self, number: u64, at: Duration) {
        let Some(exchange) = self.exchanges.get_mut(&number) else { return };
        if let Some(before) = exchange.rests_until.replace(at) {
            self.rests.remove(&(before, number));
        }
        self.rests.insert((at, number));
    }

    /// Takes the readings of the calls that count as complete now. They lock the run, so they are used without its
    /// lock.
    pub(super) fn take_complete(&mut self, now: Duration) -> Vec<Arc<Mutex<dyn OpenCall>>> {
        let later = self.rests.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.rests, later);
        let reading = |(_, number): (Duration, u64)| {
            let exchange = self.exchanges.get(&number)?;
            exchange.reading.as_ref()?.upgrade()
        };
        due.into_iter().filter_map(reading).collect()
    }

    /// Books what a provider reported after its call had ended.
    pub(super) fn book_late(&mut self, spending: &Spending) {
        self.books.book(spending);
        if let Some(budget) = &self.budget {
            let tokens = spending.usage.total_tokens();
            budget.settle_amount(Amount::ZERO, Amount { usd: spending.cost, tokens });
        }
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

    /// Reports the end of a call, and returns what was booked for it.
    pub(super) fn ended(&mut self, at: Duration, ticket: &Ticket, response: Response) -> Spending {
        let before = self.books.sum().clone();
        self.end_call(at, ticket, response);
        self.books.sum().since(&before)
    }

    fn end_call(&mut self, at: Duration, ticket: &Ticket, response: Response) {
        let exchange = self.exchanges.remove(&ticket.number);
        if let Some(until) = exchange.as_ref().and_then(|exchange| exchange.rests_until) {
            self.rests.remove(&(until, ticket.number));
        }
        let is_metered = exchange.as_ref().is_some_and(|exchange| exchange.facts.is_metered);
        let is_open_ended = exchange.as_ref().is_some_and(|exchange| exchange.is_open_ended);
        let is_counted = |turn: &ModelTurn| {
            turn.usage.input_tokens.is_some() && turn.usage.output_tokens.is_some()
        };
        if is_open_ended && response.as_ref().is_ok_and(|turn| !is_counted(turn)) {
            let unreported = Unreported { cost: None, tokens: None };
            let unknown = Spending {
                cost_unknown: true,
                unreported: Some(unreported),
                ..Spending::default()
            };
            self.books.book(&unknown);
        }
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
