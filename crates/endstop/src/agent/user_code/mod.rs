//! Runs user code on the run's task: catches its panics, names the code, and reports the message
//! without credentials.
//!
//! ```text
//! match guard(&provider, "observer", "an observer", || observer(&event)) {
//!     Ok(()) => …,
//!     Err(panicked) => queue.push_back(panicked.into()), // decided by `observer`
//! }
//! ```

pub(super) mod off_thread;
pub(super) mod pending;

use crate::provider::Provider;
use endstop_core::EventKind;
use endstop_wire::redact::{KnownKeys, excerpt};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The message of a panic without one, or if the credentials to redact are unknown.
const NOTHING: &str = "no message";

/// A panic of user code: the name of the code and the redacted message. It ends the run.
pub(super) struct Panicked {
    name: String,
    message: String,
}

impl From<Panicked> for EventKind {
    fn from(Panicked { name, message }: Panicked) -> EventKind {
        EventKind::Fault { name, message }
    }
}

/// Runs user code. If it panics, `name` goes into `decided_by`, and `what` is its description for
/// people.
pub(super) fn guard<T>(
    provider: &dyn Provider,
    name: &str,
    what: &str,
    code: impl FnOnce() -> T,
) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| panicked(provider, name, what, payload))
}

/// Creates the fault for user code that panicked.
pub(super) fn panicked(
    provider: &dyn Provider,
    name: &str,
    what: &str,
    payload: Box<dyn Any + Send>,
) -> Panicked {
    let message = format!("{what} panicked: {}", message(provider, payload));
    Panicked { name: name.to_owned(), message }
}

/// Returns the message of a panic, without the provider's credentials.
pub(super) fn message(provider: &dyn Provider, payload: Box<dyn Any + Send>) -> String {
    // The provider is user code, too. If it panics here, its credentials are unknown and the
    // message cannot be redacted.
    match catch_unwind(AssertUnwindSafe(|| provider.known_keys())) {
        Ok(keys) => words(&keys, payload),
        Err(_) => NOTHING.to_owned(),
    }
}

/// Returns the message of a panic, shortened and without these credentials.
pub(super) fn words(keys: &KnownKeys, payload: Box<dyn Any + Send>) -> String {
    let said = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    // Dropping a payload runs user code as well.
    let_go(payload);
    said.map_or_else(|| NOTHING.to_owned(), |said| excerpt(&keys.out_of_text(&said)))
}

/// Drops a value of the user's. A panic in its destructor is ignored.
pub(super) fn let_go<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}
