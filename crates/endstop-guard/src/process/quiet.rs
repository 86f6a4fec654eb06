//! Notices a program that does not use the proxy.
//!
//! ```
//! use endstop_guard::process::{QUIET, Quiet};
//! let mut quiet = Quiet::new();
//! assert!(quiet.at(QUIET / 2).is_none());
//! assert!(quiet.at(QUIET).is_some());
//! assert!(quiet.at(QUIET * 2).is_none(), "it warns once");
//! ```

use std::fmt;
use std::time::Duration;

/// Time without a request after which a program is reported. Clients send their first request within
/// seconds, unless they wait for the user.
pub const QUIET: Duration = Duration::from_secs(20);

/// A program whose requests are awaited. Times are since its start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet {
    settled: bool,
}

/// A program has lived for some time and sent no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuietWarning {
    /// Time since its start.
    pub after: Duration,
}

impl Quiet {
    /// Starts to wait for the first request.
    pub fn new() -> Quiet {
        Quiet::default()
    }

    /// Records a request.
    pub fn request(&mut self) {
        self.settled = true;
    }

    /// Returns the time at which [`at`](Quiet::at) must be called, and `None` if it need not be.
    pub fn deadline(&self) -> Option<Duration> {
        (!self.settled).then_some(QUIET)
    }

    /// Returns a warning, once, if the time is over without a request.
    pub fn at(&mut self, elapsed: Duration) -> Option<QuietWarning> {
        if self.settled || elapsed < QUIET {
            return None;
        }
        // A second warning would say nothing new.
        self.settled = true;
        Some(QuietWarning { after: elapsed })
    }
}

impl fmt::Display for QuietWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no request after {} s: the program waits for you, or it does not use the proxy",
            self.after.as_secs()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn warns_once_and_never_after_request(
            steps in proptest::collection::vec((0u64..60, any::<bool>()), 0..20)
        ) {
            let (mut quiet, mut elapsed, mut asked, mut warned) =
                (Quiet::new(), Duration::ZERO, false, 0);
            for (seconds, request) in steps {
                elapsed += Duration::from_secs(seconds);
                if request && seconds % 3 == 0 {
                    quiet.request();
                    asked = true;
                }
                if let Some(warning) = quiet.at(elapsed) {
                    prop_assert!(!asked && warning.after >= QUIET);
                    warned += 1;
                }
                prop_assert_eq!(quiet.deadline().is_some(), !asked && warned == 0);
            }
            prop_assert_eq!(warned, u32::from(warned > 0));
        }
    }
}
