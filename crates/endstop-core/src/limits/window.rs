//! The use of a subscription's windows, as a provider reports it: a plan of five hours or a week has no price for each
//! call, but a share that is used.
//!
//! ```
//! use endstop_core::Window;
//! let window = Window::new("anthropic", 300, 0.834, Some(1_764_000_000)).unwrap();
//! assert_eq!((window.name().as_str(), window.used), ("5h", 834));
//! assert_eq!(Window::new("anthropic", 300, f64::NAN, None), None);
//! ```

use serde::{Deserialize, Serialize};

/// Largest share that is stored, in thousandths: a plan may permit use beyond the window.
const MOST_USED: f64 = 1_000_000.0;

/// The use of one window of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The service whose window this is, for example `anthropic`.
    pub of: String,
    /// Length of the window in minutes.
    pub minutes: u32,
    /// The share that is used, in thousandths: 1000 is all of it.
    pub used: u32,
    /// The time at which the window begins anew, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resets_at: Option<u64>,
}

impl Window {
    /// Creates the report of a window of which this share is used: 1.0 is all of it. `None` for a share that is not a
    /// number or is negative, and for a window without a length.
    pub fn new(of: &str, minutes: u32, used: f64, resets_at: Option<u64>) -> Option<Window> {
        // Rounded down, because 79.96 % are not 80 %; the addend is for shares that binary numbers cannot express.
        let used = (used * 1000.0 + 1e-6).floor();
        // Not `used < 0.0`, because a value that is not a number must fail.
        let is_valid = used >= 0.0 && minutes > 0;
        is_valid.then(|| Window {
            of: of.to_owned(),
            minutes,
            used: used.min(MOST_USED) as u32,
            resets_at,
        })
    }

    /// The window's name by its length, for example `5h` or `7d`.
    pub fn name(&self) -> String {
        window_name(self.minutes)
    }
}

/// Spells the length of a window as configuration does.
pub(super) fn window_name(minutes: u32) -> String {
    match minutes {
        days if days % (24 * 60) == 0 => format!("{}d", days / (24 * 60)),
        hours if hours % 60 == 0 => format!("{}h", hours / 60),
        minutes => format!("{minutes}m"),
    }
}

/// Spells thousandths as a percentage.
pub(crate) fn percent(thousandths: u32) -> String {
    match thousandths % 10 {
        0 => format!("{}%", thousandths / 10),
        tenth => format!("{}.{tenth}%", thousandths / 10),
    }
}
