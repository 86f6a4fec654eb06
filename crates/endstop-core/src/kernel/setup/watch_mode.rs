//! The modes of a watch: what happens if its rule fires.
//!
//! ```
//! use endstop_core::WatchMode;
//! assert_eq!(WatchMode::ALL.map(WatchMode::as_str), ["observe", "warn", "nudge", "stop"]);
//! ```

use serde::{Deserialize, Serialize};
use std::fmt;

/// The action of a rule that fires.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum WatchMode {
    /// Only record it in the outcome.
    #[default]
    Observe,
    /// Warn the observers.
    Warn,
    /// Tell the model.
    Nudge,
    /// End the run.
    Stop,
}

impl WatchMode {
    /// All modes, from the mildest to the strictest.
    pub const ALL: [WatchMode; 4] =
        [WatchMode::Observe, WatchMode::Warn, WatchMode::Nudge, WatchMode::Stop];

    /// The mode's name as configuration spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            WatchMode::Observe => "observe",
            WatchMode::Warn => "warn",
            WatchMode::Nudge => "nudge",
            WatchMode::Stop => "stop",
        }
    }
}

impl fmt::Display for WatchMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
