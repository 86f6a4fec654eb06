//! The reservations of a run from the shared budget. A budget that other processes share may have to wait for one
//! of them, so it is asked on a thread that may block.
//!
//! ```text
//! reserve ─► thread: settle what is due, reserve ─► Reserved
//! settle  ─► due ─► thread
//! ```

use crate::agent::session::state::SessionShared;
use crate::agent::user_code::pending::Pending;
use crate::budget::{Amount, Refusal, SharedBudget};
use endstop_core::{EffectId, EventKind};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The reservations of a run that the kernel has not settled.
#[derive(Default)]
pub(super) struct Reservations {
    held: BTreeMap<EffectId, Reservation>,
    /// Reservations that are not settled yet, if that may block.
    due: Option<Due>,
}

/// A reservation of the run.
enum Reservation {
    Held(Amount),
    /// The budget is asked on another thread.
    Asked(Arc<Asked>),
}

/// The answer to a reservation.
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is returned")]
pub(super) enum Reserving<F> {
    Answered(EventKind),
    /// The budget is asked on another thread, for which this future waits.
    Asking(F),
}

impl Reservations {
    /// Asks the shared budget for `want`, or for at least `least`.
    pub(super) fn reserve(
        &mut self,
        owner: &SessionShared,
        id: EffectId,
        want: Amount,
        least: Amount,
    ) -> Reserving<impl Future<Output = EventKind> + Send + use<>> {
        let Some(budget) = owner.budget.clone() else {
            self.held.insert(id, Reservation::Held(want));
            return Reserving::Answered(event_of(id, Ok(want), false));
        };
        let bounded = budget.bounds_tokens();
        if !budget.is_stored() {
            let answer = budget.reserve_or_explain(want, least);
            // A refused reservation is recorded as zero, so that `settle` returns nothing to the
            // budget.
            let granted = *answer.as_ref().unwrap_or(&Amount::ZERO);
            self.held.insert(id, Reservation::Held(granted));
            return Reserving::Answered(event_of(id, answer, bounded));
        }
        let (asked, due) = (Arc::new(Asked::default()), self.due());
        self.held.insert(id, Reservation::Asked(Arc::clone(&asked)));
        let under_way = owner.under_way();
        let mut pending = Pending::spawn(None, move |answer| {
            settle_due(&budget, &due);
            let reserved = budget.reserve_or_explain(want, least);
            asked.taken(*reserved.as_ref().unwrap_or(&Amount::ZERO), &budget);
            *answer = Some(reserved);
            drop(under_way);
        });
        Reserving::Asking(async move {
            match poll_fn(|cx| pending.poll(cx)).await {
                Some(answer) => event_of(id, answer, bounded),
                // The runtime is shut down and has dropped the work.
                None => EventKind::Tick,
            }
        })
    }

    /// Returns a reservation, and books what was spent of it.
    pub(super) fn settle(&mut self, owner: &SessionShared, id: EffectId, spent: Amount) {
        let granted = match self.held.remove(&id) {
            Some(Reservation::Held(granted)) => granted,
            Some(Reservation::Asked(asked)) => asked.close(),
            None => Amount::ZERO,
        };
        let Some(budget) = owner.budget.clone() else { return };
        if !budget.is_stored() {
            return budget.settle_amount(granted, spent);
        }
        if granted == Amount::ZERO && spent == Amount::ZERO {
            return;
        }
        let due = self.due();
        locked(&due).push((granted, spent));
        // Dropped, because nothing waits for it but `settled`.
        drop(settling(owner, budget, due));
    }

    /// Returns what is still reserved. The kernel has settled every call that it knows of.
    pub(super) fn settle_rest(&mut self, owner: &SessionShared) {
        let held: Vec<EffectId> = self.held.keys().copied().collect();
        for id in held {
            self.settle(owner, id, Amount::ZERO);
        }
    }

    /// Returns what is still reserved, and waits until everything is settled, so that a caller who
    /// learns of the ending finds it in the ledger.
    pub(super) async fn settle_all(&mut self, owner: &SessionShared) {
        self.settle_rest(owner);
        let Some(budget) = owner.budget.clone().filter(SharedBudget::is_stored) else { return };
        let mut pending = settling(owner, budget, self.due());
        poll_fn(|cx| pending.poll(cx)).await;
    }

    fn due(&mut self) -> Due {
        Arc::clone(self.due.get_or_insert_default())
    }
}

/// Settles what is due on another thread, for which `settled` waits.
fn settling(owner: &SessionShared, budget: SharedBudget, due: Due) -> Pending<()> {
    let under_way = owner.under_way();
    Pending::spawn((), move |()| {
        settle_due(&budget, &due);
        drop(under_way);
    })
}

/// A reservation that another thread makes.
#[derive(Default)]
struct Asked(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Open,
    Taken(Amount),
    /// The run no longer needs the reservation.
    Closed,
}

/// Reservations to return, and what was spent of them. Settled in this order, and before the next
/// reservation, which would otherwise find too little left.
type Due = Arc<Mutex<Vec<(Amount, Amount)>>>;

/// Locks a mutex, also after a panic of another thread.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Asked {
    /// Hands over what the budget granted, or returns it if the run has been stopped meanwhile.
    fn taken(&self, granted: Amount, budget: &SharedBudget) {
        let mut state = locked(&self.0);
        match *state {
            State::Closed => {
                drop(state);
                budget.settle_amount(granted, Amount::ZERO);
            }
            State::Open | State::Taken(_) => *state = State::Taken(granted),
        }
    }

    /// Returns what was granted so far, and refuses what comes later.
    fn close(&self) -> Amount {
        match std::mem::replace(&mut *locked(&self.0), State::Closed) {
            State::Taken(granted) => granted,
            State::Open | State::Closed => Amount::ZERO,
        }
    }
}

/// Settles what is due.
fn settle_due(budget: &SharedBudget, due: &Due) {
    // Locked until all is settled, so that a reservation on another thread waits for it.
    let mut due = locked(due);
    for (granted, spent) in due.drain(..) {
        budget.settle_amount(granted, spent);
    }
}

/// Returns the event of an answer.
fn event_of(id: EffectId, answer: Result<Amount, Refusal>, bounded: bool) -> EventKind {
    let (granted, refused_by) = match answer {
        Ok(granted) => (granted, None),
        // Without an answer of the store it is not known what is left, so no call may be made.
        Err(Refusal { failure: Some(failure), .. }) => {
            let message = format!("the shared budget cannot be asked: {failure}");
            return EventKind::Fault { name: "shared_budget".to_owned(), message };
        }
        Err(Refusal { left, account, .. }) => (left, Some(account)),
    };
    let granted_tokens = bounded.then_some(granted.tokens);
    EventKind::Reserved { id, granted: granted.usd, granted_tokens, refused_by }
}
