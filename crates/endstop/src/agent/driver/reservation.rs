//! A reservation from the shared budget. A budget that other processes share may have to wait for one
//! of them, so it is asked on a thread that may block.
//!
//! ```text
//! reserve ─► thread: settle what is due, reserve ─► Reserved
//! settle  ─► due ─► thread
//! ```

use crate::budget::{Amount, Refusal, SharedBudget};
use endstop_core::{EffectId, EventKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A reservation of the run.
pub(super) enum Reservation {
    Held(Amount),
    /// The budget is asked on another thread.
    Asked(Arc<Asked>),
}

/// A reservation that another thread makes.
#[derive(Default)]
pub(super) struct Asked(Mutex<State>);

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
pub(super) type Due = Arc<Mutex<Vec<(Amount, Amount)>>>;

/// Locks a mutex, also after a panic of another thread.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Asked {
    /// Hands over what the budget granted, or returns it if the run has been stopped meanwhile.
    pub(super) fn taken(&self, granted: Amount, budget: &SharedBudget) {
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
    pub(super) fn close(&self) -> Amount {
        match std::mem::replace(&mut *locked(&self.0), State::Closed) {
            State::Taken(granted) => granted,
            State::Open | State::Closed => Amount::ZERO,
        }
    }
}

/// Settles what is due.
pub(super) fn settle_due(budget: &SharedBudget, due: &Due) {
    // Locked until all is settled, so that a reservation on another thread waits for it.
    let mut due = locked(due);
    for (granted, spent) in due.drain(..) {
        budget.settle_amount(granted, spent);
    }
}

/// Returns the event of an answer.
pub(super) fn event_of(id: EffectId, answer: Result<Amount, Refusal>, bounded: bool) -> EventKind {
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
