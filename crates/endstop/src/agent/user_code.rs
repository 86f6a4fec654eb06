//! User code that runs on a run's own task: a panic of it is caught, named, and told without
//! credentials.
//!
//! ```text
//! match guard(&provider, "observer", "an observer", || observer(&event)) {
//!     Ok(()) => …,
//!     Err(panicked) => queue.push_back(panicked.into()), // decided by `observer`
//! }
//! ```

use crate::provider::Provider;
use endstop_core::EventKind;
use endstop_wire::redact::{KnownKeys, excerpt};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The words of a panic that has none, or whose keys are not known.
const NOTHING: &str = "no message";

/// Whose code panicked, and its words: the fault that ends the run.
pub(super) struct Panicked {
    name: String,
    message: String,
}

impl From<Panicked> for EventKind {
    fn from(Panicked { name, message }: Panicked) -> EventKind {
        EventKind::Fault { name, message }
    }
}

/// Runs user code. `name` goes into `decided_by` where it panics, `what` is for a person.
pub(super) fn guard<T>(
    provider: &dyn Provider,
    name: &str,
    what: &str,
    code: impl FnOnce() -> T,
) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| panicked(provider, name, what, payload))
}

/// User code that panicked.
pub(super) fn panicked(
    provider: &dyn Provider,
    name: &str,
    what: &str,
    payload: Box<dyn Any + Send>,
) -> Panicked {
    let message = format!("{what} panicked: {}", message(provider, payload));
    Panicked { name: name.to_owned(), message }
}

/// What a panic said, without the provider's credentials.
pub(super) fn message(provider: &dyn Provider, payload: Box<dyn Any + Send>) -> String {
    // The provider is the user's, too; without its keys nothing is told.
    match catch_unwind(AssertUnwindSafe(|| provider.known_keys())) {
        Ok(keys) => words(&keys, payload),
        Err(_) => NOTHING.to_owned(),
    }
}

/// What a panic said, without these keys, and short.
pub(super) fn words(keys: &KnownKeys, payload: Box<dyn Any + Send>) -> String {
    let said = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    let_go(payload);
    said.map_or_else(|| NOTHING.to_owned(), |said| excerpt(&keys.out_of_text(&said)))
}

/// Drops what is the user's; a panic of that concerns nobody any more.
pub(super) fn let_go<T>(value: T) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}
