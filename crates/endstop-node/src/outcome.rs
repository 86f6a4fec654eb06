//! The outcome of a run, and a turn of it.

use crate::errors::{Result, from_json, to_json};
use crate::fields::{object, shown};
use crate::response::{Call, ModelError, Signal, Usage};
use endstop_guest::run_state::Turn;
use endstop_guest::{outcome_fields, turn_fields};
use napi_derive::napi;
use std::sync::Arc;

/// The decision that ended a run.
#[napi(object)]
pub struct DecidedBy {
    /// Layer of the check: for example `limit`, `policy` or `signal`.
    #[napi(readonly)]
    pub layer: String,
    /// Name of the check.
    #[napi(readonly)]
    pub name: String,
    /// The reason, for a person to read.
    #[napi(readonly)]
    pub evidence: String,
}

impl DecidedBy {
    pub(crate) fn of(decided: &endstop_core::DecidedBy) -> DecidedBy {
        // The layer and the name as the JSON form spells them.
        let json = serde_json::to_value(decided).unwrap_or_default();
        let part = |name: &str| json[name].as_str().unwrap_or_default().to_owned();
        DecidedBy { layer: part("layer"), name: part("name"), evidence: decided.evidence.clone() }
    }
}

outcome_fields! { object
    /// The ending of a run: one, typed, priced and explained.
    OutcomeFields(endstop_core::Outcome),
    /// The outcome as JSON, as in the last line of `endstop run --json`.
    json: String = to_json;
}

turn_fields! { object
    /// A response that was fed to a run.
    TurnFields(Turn);
}

shown! { value:
    &endstop_core::DecidedBy => DecidedBy = DecidedBy::of(value);
    &Arc<endstop_core::Outcome> => OutcomeFields = OutcomeFields::of(value)?;
}

/// Reads an outcome from its JSON, also that of another process or of an earlier version.
#[napi(catch_unwind)]
pub fn read_outcome(json: String) -> Result<OutcomeFields> {
    let outcome: endstop_core::Outcome = from_json(&json, "outcome")?;
    OutcomeFields::of(&outcome)
}
