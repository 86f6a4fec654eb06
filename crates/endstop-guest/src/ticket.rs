//! The right to a parked run: each is taken once in a process.

use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The parked runs that this process has taken.
static TAKEN: LazyLock<Mutex<HashSet<u64>>> = LazyLock::new(Mutex::default);

/// The right to a parked run, which this process has taken.
#[derive(Clone, Copy, Debug)]
pub struct Ticket(u64);

impl Ticket {
    /// Takes a parked run; `None` if it was taken before.
    pub(crate) fn take(id: u64) -> Option<Ticket> {
        let is_new = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
        is_new.then_some(Ticket(id))
    }

    /// Gives the run back, so that its text can be resumed again.
    pub fn give_back(self) {
        TAKEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.0);
    }
}
