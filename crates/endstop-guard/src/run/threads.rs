//! The threads of a guarded run: when they begin, which are in memory, and when they leave.

use super::call::{CallFacts, Place};
use super::event::GuardEvent;
use super::guarded::{Guarded, Told};
use super::thread::{Judged, Last, Thread};
use crate::exchange::Kind;
use endstop_core::Outcome;
use endstop_core::guest::Guest;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The most conversations of a run whose state is in memory. A conversation that continues after it
/// had to leave counts as a new one; what it has spent stays in the books.
const MOST_THREADS: usize = 1024;

impl Guarded {
    /// Creates the thread of a call, if it is new.
    pub(super) fn open(&mut self, at: Duration, place: &Place, facts: &CallFacts) {
        let kind = facts.kind;
        if let Place::Thread(_) = place
            && self.lead.is_none()
            && let Some(lead) = self.unassigned.take()
        {
            self.lead = Some(place.clone());
            self.last_auxiliary = None;
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
    pub(super) fn leads_on(&mut self, at: Duration, place: &Place) {
        if self.last_main.as_ref() == Some(place) {
            return;
        }
        let before = self.last_main.replace(place.clone());
        // A single call was kept only because it was the last one.
        let is_over = |place: &Place| {
            place.is_single() && self.last_exchange(place).is_none() && !self.is_held(place)
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
        // A conversation with a call in flight must stay, because its response is still to be
        // booked.
        let in_flight = self.exchanges.values().map(|one| &one.place);
        let held = self.held.values().map(|(ticket, _)| &ticket.place);
        let busy: HashSet<&Place> = in_flight.chain(held).collect();
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
    pub(super) fn leave(&mut self, at: Duration, place: &Place) {
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

    /// The rules that judge a thread. Each call of a program that offers no tools is a turn; known
    /// agents offer some, so a call without is a title or the like.
    pub(super) fn judged(&self, place: &Place, facts: &CallFacts) -> Judged {
        match place {
            Place::Thread(_) => Judged::Conversation,
            Place::Auxiliary(_) => match facts.kind {
                Kind::Compaction { offers_tools } if offers_tools => Judged::Turn,
                Kind::Compaction { .. } => Judged::Call,
                _ if self.lead.is_some() || facts.is_known_agent || facts.is_metered => {
                    Judged::Call
                }
                _ => Judged::Turn,
            },
            Place::Parallel(_) => Judged::Turn,
        }
    }

    /// `true` if a call at this place is a turn.
    pub(super) fn counts_as_turn(&self, place: &Place, facts: &CallFacts) -> bool {
        self.judged(place, facts) != Judged::Call
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
