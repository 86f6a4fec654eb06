//! How cancel and terminate reach a run, from any thread.
//!
//! ```text
//! control.cancel();                                       // whoever holds the handle or the loop
//! if let Some(request) = control.poll(heard, cx.waker())  // the driver, before each event
//! ```
//!
//! `models.rs` goes through every order of its steps.

use super::sync::{Arc, Mutex, lock};
use std::task::Waker;
use tokio_util::sync::CancellationToken;

/// What was asked of a run; a later one outranks the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Request {
    Cancel,
    Terminate,
}

/// The one way into a run that is under way.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    asked: Arc<Mutex<Asked>>,
    /// Cancelled with the run; tools hold children of it.
    pub(crate) token: CancellationToken,
}

#[derive(Debug, Default)]
struct Asked {
    /// The most that was asked.
    request: Option<Request>,
    driver: Option<Waker>,
}

impl Control {
    pub(crate) fn new(token: CancellationToken) -> Control {
        Control { asked: Arc::default(), token }
    }

    pub(crate) fn cancel(&self) {
        self.ask(Request::Cancel);
    }

    pub(crate) fn terminate(&self) {
        // Asked first: a tool that ends at once when it is told must not let the run go on.
        self.ask(Request::Terminate);
        self.token.cancel();
    }

    fn ask(&self, request: Request) {
        let driver = {
            let mut asked = lock(&self.asked);
            asked.request = asked.request.max(Some(request));
            asked.driver.take()
        };
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// What is asked, where it is more than `known`.
    pub(crate) fn pending(&self, known: Option<Request>) -> Option<Request> {
        lock(&self.asked).request.filter(|request| Some(*request) > known)
    }

    /// What is asked, where it is more than `known`; else this waker is woken when it is.
    pub(crate) fn poll(&self, known: Option<Request>, waker: &Waker) -> Option<Request> {
        let replaced = {
            let mut asked = lock(&self.asked);
            let request = asked.request.filter(|request| Some(*request) > known);
            if request.is_some() {
                return request;
            }
            match &asked.driver {
                Some(driver) if driver.will_wake(waker) => None,
                _ => asked.driver.replace(waker.clone()),
            }
        };
        // Outside the lock: with it a task may go.
        drop(replaced);
        None
    }
}
