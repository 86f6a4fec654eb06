//! How cancel and terminate reach a run, from any thread.

use atomic_waker::AtomicWaker;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Waker;
use tokio_util::sync::CancellationToken;

const CANCEL: u8 = 1;
const TERMINATE: u8 = 2;

/// What was asked of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Cancel,
    Terminate,
}

/// The one way into a run that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    requested: Arc<AtomicU8>,
    driver: Arc<AtomicWaker>,
    /// Cancelled with the run; tools hold children of it.
    pub(crate) token: CancellationToken,
}

impl Control {
    pub(crate) fn new(token: CancellationToken) -> Control {
        Control { requested: Arc::default(), driver: Arc::default(), token }
    }

    pub(crate) fn cancel(&self) {
        self.requested.fetch_max(CANCEL, Ordering::AcqRel);
        self.driver.wake();
    }

    pub(crate) fn terminate(&self) {
        self.requested.fetch_max(TERMINATE, Ordering::AcqRel);
        self.token.cancel();
        self.driver.wake();
    }

    /// What is asked, where it is more than `known`.
    pub(crate) fn pending(&self, known: Option<Request>) -> Option<Request> {
        match (self.requested.load(Ordering::Acquire), known) {
            (TERMINATE, None | Some(Request::Cancel)) => Some(Request::Terminate),
            (CANCEL, None) => Some(Request::Cancel),
            _ => None,
        }
    }

    /// Has this waker woken when something is asked; look at [`pending`](Self::pending) after it.
    pub(crate) fn register(&self, waker: &Waker) {
        self.driver.register(waker);
    }
}
