//! Validates a declared answer against the schema of the run.
//!
//! ```text
//! match validation(&provider, schema, id, candidate) {
//!     Validation::Here(work) => queue.push_back(work()),
//!     Validation::OffThread(work) => …, // on another thread
//! }
//! ```

use crate::agent::user_code;
use crate::agent::user_code::off_thread::{ANSWER_TYPE, OffThreadError};
use crate::provider::Provider;
use crate::schema::OutputSchema;
use endstop_core::{EffectId, EventKind};
use serde_json::Value;
use std::future::Future;
use std::sync::Arc;

/// The name of the validation in `decided_by` if it panics or takes too long.
pub(super) const NAME: &str = "schema";

/// A validation that has not begun, by the thread that it needs.
pub(super) enum Validation {
    Here(Work),
    /// The `Deserialize` of a type is user code, which may block or never end.
    OffThread(Work),
}

type Work = Box<dyn FnOnce() -> EventKind + Send>;

/// Prepares the validation of an answer.
pub(super) fn validation(
    provider: &Arc<dyn Provider>,
    schema: Option<Arc<OutputSchema>>,
    id: EffectId,
    candidate: Value,
) -> Validation {
    let Some(schema) = schema else {
        let valid = EventKind::Validated { id, result: Ok(candidate) };
        return Validation::Here(Box::new(|| valid));
    };
    let provider = Arc::clone(provider);
    let user_code = schema.runs_user_code();
    let work = move || {
        let result = user_code::guard(&*provider, NAME, ANSWER_TYPE, || {
            schema.validate(&candidate).map_err(|error| error.to_string())
        });
        match result {
            Ok(result) => EventKind::Validated { id, result },
            Err(panicked) => panicked.into(),
        }
    };
    if user_code { Validation::OffThread(Box::new(work)) } else { Validation::Here(Box::new(work)) }
}

/// Waits for the work. Without a result the run ends by a fault.
pub(super) async fn finished(
    work: impl Future<Output = Result<EventKind, OffThreadError>>,
) -> EventKind {
    let fault = |error: OffThreadError| EventKind::Fault {
        name: NAME.to_owned(),
        message: error.to_string(),
    };
    work.await.unwrap_or_else(fault)
}
