//! The result of a run's workflow: the typed ending.

use endstop::{NanoUsd, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The ending of a run.
///
/// ```
/// use endstop_restate::RunReport;
/// let report = RunReport::of("r1", r#"{"termination":"stop","category":"success","messages":[]}"#);
/// assert_eq!((report.termination.as_str(), report.category.as_str()), ("stop", "success"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// Id of the run.
    pub run: String,
    /// The termination, for example `stop`.
    pub termination: String,
    /// The category of the termination, for example `success`.
    pub category: String,
    /// The outcome, without the conversation, which can be megabytes; the store of the workers has it.
    pub outcome: Value,
    /// A remark about the engine's part in the ending, for example that an administrator killed the
    /// run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl RunReport {
    /// Reads the outcome of a run. An outcome that cannot be read has no termination, so it is no
    /// success.
    pub fn of(run: &str, outcome: &str) -> RunReport {
        let mut outcome: Value = endstop::core::bounded_json::from_str(outcome).unwrap_or_default();
        if let Some(members) = outcome.as_object_mut() {
            // Not `remove`, which would put the last member in this place.
            members.shift_remove("messages");
        }
        let text = |name: &str| outcome[name].as_str().unwrap_or_default().to_owned();
        RunReport {
            run: run.to_owned(),
            termination: text("termination"),
            category: text("category"),
            outcome,
            note: None,
        }
    }
}

/// Returns the most that a run may have cost, from its outcome as JSON. `None` if it is not known.
#[cfg_attr(
    not(feature = "engine"),
    expect(dead_code, reason = "only the engine has shared budgets")
)]
pub(crate) fn spent_of(outcome: &str) -> Option<NanoUsd> {
    let outcome: Outcome = endstop::core::bounded_json::from_str(outcome).ok()?;
    match (outcome.cost_upper, outcome.cost_unknown) {
        (Some(upper), _) => Some(upper),
        (None, false) => Some(outcome.cost),
        (None, true) => None,
    }
}
