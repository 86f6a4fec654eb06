//! Ends an exchange from outside: a deadline, a spent budget, a cancel.
//!
//! ```
//! use endstop_guard::proxy::{AbortToken, Stop};
//! let abort = AbortToken::new();
//! assert!(abort.abort(Stop::Close));
//! assert!(!abort.abort(Stop::Close), "only the first call counts");
//! assert!(abort.is_aborted());
//! ```

use crate::answer::Answer;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

/// The effect of an abort on the client.
#[derive(Debug, Clone)]
pub enum Stop {
    /// Closes the connection without a clean end.
    Close,
    /// Sends this answer if the response has not started; otherwise closes the connection.
    Answer(Answer),
}

/// Aborts one exchange, from any thread and at any time. Copies abort the same exchange.
#[derive(Debug, Clone, Default)]
pub struct AbortToken {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    // Boxed, because the state is read for each chunk of a response, and an answer is large.
    stop: Option<Box<Stop>>,
    is_over: bool,
    // One for the task of the exchange, one for the task of its connection.
    wakers: [Option<Waker>; 2],
}

/// The task that waits for an abort.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Waiter {
    Exchange = 0,
    Connection = 1,
}

impl AbortToken {
    /// Returns a token that has not been used.
    pub fn new() -> AbortToken {
        AbortToken::default()
    }

    /// Aborts the exchange. Returns whether this call did it: later ones, and those after the end of
    /// the response, change nothing.
    pub fn abort(&self, stop: Stop) -> bool {
        let wakers = {
            let mut state = self.lock();
            if state.stop.is_some() || state.is_over {
                return false;
            }
            state.stop = Some(Box::new(stop));
            std::mem::take(&mut state.wakers)
        };
        // Outside the lock, because a waker may run the task that takes it.
        wakers.into_iter().flatten().for_each(Waker::wake);
        true
    }

    /// Returns whether the exchange was aborted.
    pub fn is_aborted(&self) -> bool {
        self.lock().stop.is_some()
    }

    /// Returns whether the exchange was aborted; if not, the task is woken when it is.
    pub(crate) fn poll_aborted(&self, waiter: Waiter, context: &Context<'_>) -> bool {
        let mut state = self.lock();
        if state.stop.is_some() {
            return true;
        }
        let slot = &mut state.wakers[waiter as usize];
        match slot {
            Some(waker) => waker.clone_from(context.waker()),
            None => *slot = Some(context.waker().clone()),
        }
        false
    }

    /// Makes later aborts ineffective, because the whole response was received. The client can still
    /// be reading the rest of it, and its connection can be used again.
    pub(crate) fn set_over(&self) {
        self.lock().is_over = true;
    }

    /// Returns the effect that the abort has.
    pub(crate) fn stop(&self) -> Option<Stop> {
        self.lock().stop.as_deref().cloned()
    }

    // The state is valid after a panic: each change is a single assignment.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
