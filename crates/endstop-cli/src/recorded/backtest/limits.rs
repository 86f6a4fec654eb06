//! A candidate of limits, as the command line spells them.
//!
//! ```text
//! let candidate = limited("tight", &["max_turns=20".to_owned(), "timeout=10m".to_owned()])?;
//! ```

use crate::failure::{Failure, Result};
use endstop::policy::PolicyError;
use endstop_trajectory::backtest::Candidate;
use serde_json::{Map, Value, json};

/// Builds a candidate with this name from limits.
pub(crate) fn limited(name: &str, given: &[String]) -> Result<Candidate> {
    let mut limits = Map::new();
    for text in given {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            Failure::usage(format!(
                "invalid --limit `{text}`: expected NAME=VALUE, for example max_turns=20"
            ))
        })?;
        // Numbers and switches parse as JSON; other values (10m, off) do not and stay strings.
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
        limits.insert(name.trim().replace('-', "_"), value);
    }
    let list = json!([{"name": name, "limits": limits}]);
    let mut read = Candidate::read(&list).map_err(|error| match error {
        // The position of the candidate is dropped, because `--limit` makes only one.
        PolicyError::BadSpec { problem } => {
            let bare = problem.strip_prefix("candidate 1: ").unwrap_or(&problem);
            Failure::usage(format!("--limit: {bare}"))
        }
        error => Failure::usage(format!("--limit: {error}")),
    })?;
    read.pop().ok_or_else(|| Failure::fault("limits gave no candidate"))
}
