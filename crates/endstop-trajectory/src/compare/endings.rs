//! Counts of endings by name.
//!
//! ```text
//! endings.add("final");
//! for (name, count) in endings.iter() { … }
//! ```

/// The endings that are counted by name: the vocabulary of recorded runs, a stop by a policy, and a
/// missing ending. Any other name counts as `unknown`.
const NAMES: [&str; 24] = [
    "final",
    "agent_submit",
    "user_stop",
    "handoff",
    "reward_threshold",
    "plan_end",
    "max_steps",
    "max_turns",
    "timeout",
    "cost_limit",
    "token_limit",
    "tool_call_limit",
    "window_limit",
    "context_overflow",
    "output_length",
    "provider_error",
    "agent_error",
    "harness_error",
    "verifier_timeout",
    "verifier_error",
    "cancelled",
    "unknown",
    STOPPED,
    "not recorded",
];

/// The ending of a run that a policy stops.
pub(super) const STOPPED: &str = "stopped by the policy";

/// Numbers of runs by ending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Endings([u32; NAMES.len()]);

impl Endings {
    /// Counts a run with this ending.
    pub(super) fn add(&mut self, ending: Option<&str>) {
        let name = ending.unwrap_or("not recorded");
        let place = NAMES.iter().position(|known| *known == name);
        let place = place.or_else(|| NAMES.iter().position(|known| *known == "unknown"));
        if let Some(count) = place.and_then(|place| self.0.get_mut(place)) {
            *count = count.saturating_add(1);
        }
    }

    /// Adds the runs of another count.
    pub(super) fn merge(&mut self, other: &Endings) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own = own.saturating_add(other);
        }
    }

    /// Iterates over all names and their counts, in a fixed order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, u32)> {
        NAMES.into_iter().zip(self.0)
    }
}
