//! A request for a run, and the limits that it may set.

use endstop::Limits;
use endstop::core::limits::TABLE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// A request for a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunRequest {
    /// Name of the agent.
    pub(crate) agent: String,
    /// The task.
    pub(crate) task: String,
    /// Limits by name, as under `[limits]` in endstop.toml. Each may only lower that of the agent.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub(crate) limits: Map<String, Value>,
}

impl RunRequest {
    /// Returns a hash that is equal for equal requests. The order of members does not count.
    pub(crate) fn digest(&self) -> [u8; 32] {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        // A client may build its body from a map without an order.
        // Clients may print the members of a repeated request in another order.
        value.sort_all_objects();
        Sha256::digest(value.to_string()).into()
    }

    /// Returns the agent's limits with those of the request.
    ///
    /// # Errors
    /// Names the limit that is unknown, invalid, or looser than the agent's.
    pub(crate) fn limits_over(&self, own: &Limits) -> Result<Limits, String> {
        let mut limits = own.clone();
        for (name, value) in &self.limits {
            limits
                .set(name, value)
                .map_err(|error| format!("limit {name:?}: {}", error.problem))?;
        }
        match TABLE.iter().find(|row| row.is_looser(own, &limits)) {
            None => Ok(limits),
            Some(row) => Err(format!(
                "limit `{}`: a request may only lower the limit of its agent",
                row.name
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(limits: Value) -> RunRequest {
        let Value::Object(limits) = limits else { panic!("not an object") };
        RunRequest { agent: "a".to_owned(), task: "t".to_owned(), limits }
    }

    #[test]
    fn requests_only_lower_limits() {
        let own = Limits { max_turns: Some(10), ..Limits::default() };
        for (limits, accepted) in [
            (json!({}), true),
            (json!({"max_turns": 10}), true),
            (json!({"max_turns": 1}), true),
            (json!({"max_turns": 11}), false),
            (json!({"max_turns": "off"}), false),
            (json!({"max_budget_usd": 0.5}), true),
            (json!({"max_turns": 1, "tool_concurrency": 100}), false),
            (json!({"accept_unknown_finish": true}), false),
            (json!({"unknown": 1}), false),
            (json!({"max_turns": -1}), false),
        ] {
            let read = request(limits.clone()).limits_over(&own);
            assert_eq!(read.is_ok(), accepted, "{limits}: {read:?}");
        }
    }

    #[test]
    fn member_order_keeps_digest() {
        let one = request(json!({"max_turns": 1, "timeout": "1m"}));
        let same = request(json!({"timeout": "1m", "max_turns": 1}));
        let other = request(json!({"timeout": "1m", "max_turns": 2}));
        assert_eq!(one.digest(), same.digest());
        assert_ne!(one.digest(), other.digest());
    }
}
