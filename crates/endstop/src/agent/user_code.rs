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
use endstop_wire::redact::excerpt;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
    let said = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    // Both are the user's, too: what a panic carries, and the provider that knows its keys.
    let clean = catch_unwind(AssertUnwindSafe(|| {
        drop(payload);
        said.map(|said| excerpt(&provider.known_keys().out_of_text(&said)))
    }));
    clean.ok().flatten().unwrap_or_else(|| "no message".to_owned())
}
