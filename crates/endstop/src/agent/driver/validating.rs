//! Validates a declared answer against the schema of the run.
//!
//! ```text
//! driver.validate(id, candidate); // answered by `EventKind::Validated`, or by a fault
//! ```

use super::Driver;
use crate::agent::off_thread::{ANSWER_TYPE, off_thread};
use crate::agent::user_code;
use crate::schema::OutputSchema;
use endstop_core::{EffectId, EventKind};
use serde_json::Value;
use std::sync::Arc;

/// The name of the validation in `decided_by` if it panics or takes too long.
const NAME: &str = "schema";

impl Driver {
    /// Validates an answer. The `Deserialize` of a type is user code, which may block or never end, so
    /// it runs on another thread while the run's task stays responsive.
    pub(super) fn validate(&mut self, id: EffectId, candidate: Value) {
        let schema = self.schema.clone();
        let provider = Arc::clone(&self.shared.config.provider);
        let user_code = schema.as_ref().is_some_and(|schema| schema.runs_user_code());
        let work = move || {
            let result =
                user_code::guard(&*provider, NAME, ANSWER_TYPE, || check(schema, candidate));
            match result {
                Ok(result) => EventKind::Validated { id, result },
                Err(panicked) => panicked.into(),
            }
        };
        if !user_code {
            self.queue.push_back(work());
            return;
        }
        // The kernel ends the run at its `timeout`.
        let bound = self.shared.config.limits.turn_timeout;
        self.ask(id, NAME, ANSWER_TYPE, async move {
            off_thread(bound, work).await.unwrap_or_else(|error| EventKind::Fault {
                name: NAME.to_owned(),
                message: error.to_string(),
            })
        });
    }
}

fn check(schema: Option<Arc<OutputSchema>>, candidate: Value) -> Result<Value, String> {
    match schema {
        Some(schema) => schema.validate(&candidate).map_err(|error| error.to_string()),
        None => Ok(candidate),
    }
}
