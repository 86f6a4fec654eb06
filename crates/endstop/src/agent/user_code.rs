//! User code that runs on a run's own task: a panic of it is caught, named, and told without
//! credentials.
//!
//! ```text
//! match guard(&provider, "observer", "an observer", || observer(&event)) {
//!     Ok(()) => …,
//!     Err(fault) => …, // for the kernel: `an observer panicked: …`, decided by `observer`
//! }
//! ```

use crate::provider::Provider;
use endstop_core::EventKind;
use endstop_wire::redact::excerpt;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs user code; a panic is the fault that ends the run. `name` goes into `decided_by`, `what` is
/// for a person.
pub(super) fn guard<T>(
    provider: &dyn Provider,
    name: &str,
    what: &str,
    code: impl FnOnce() -> T,
) -> Result<T, EventKind> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|payload| panicked(provider, name, what, payload))
}

/// The fault of user code that panicked.
pub(super) fn panicked(
    provider: &dyn Provider,
    name: &str,
    what: &str,
    payload: Box<dyn Any + Send>,
) -> EventKind {
    let message = format!("{what} panicked: {}", message(provider, payload));
    EventKind::Fault { name: name.to_owned(), message }
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
