//! The value of `max_window`: the share of each window of a subscription that may be used.
//!
//! ```
//! use endstop_core::WindowShares;
//! let shares: WindowShares = "5h=80%,7d=90%".parse().unwrap();
//! assert_eq!(shares.of(300), Some(800));
//! assert_eq!(shares.to_string(), "5h=80%,7d=90%");
//! assert!("5h=80%,300m=70%".parse::<WindowShares>().is_err());
//! ```

use super::duration::parse_duration;
use super::window::{percent, window_name};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Number of windows that one limit may name. Known subscriptions have two.
const MOST: usize = 4;
/// A whole window, in thousandths.
const WHOLE: u16 = 1000;

/// The share of each window that may be used, by the length of the window. A window that is not named has no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowShares {
    /// Minutes and thousandths, the shortest window first. The rest is zero.
    all: [(u32, u16); MOST],
}

impl WindowShares {
    /// No window.
    pub(super) const NONE: WindowShares = WindowShares { all: [(0, 0); MOST] };

    /// Returns the windows by their length in minutes, each with its share in thousandths.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u16)> + '_ {
        self.all.iter().copied().filter(|(minutes, _)| *minutes > 0)
    }

    /// Returns the share of the window with this length in minutes, in thousandths.
    pub fn of(&self, minutes: u32) -> Option<u16> {
        self.iter().find(|(one, _)| *one == minutes).map(|(_, share)| share)
    }

    /// `true` if no window may be used more than the others permit.
    fn is_within(&self, other: &WindowShares) -> bool {
        other.iter().all(|(minutes, share)| self.of(minutes).is_some_and(|own| own <= share))
    }
}

impl PartialOrd for WindowShares {
    fn partial_cmp(&self, other: &WindowShares) -> Option<Ordering> {
        match (self.is_within(other), other.is_within(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Less),
            (false, true) => Some(Ordering::Greater),
            (false, false) => None,
        }
    }
}

impl fmt::Display for WindowShares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (minutes, share)) in self.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{}={}", window_name(minutes), percent(u32::from(share)))?;
        }
        Ok(())
    }
}

impl FromStr for WindowShares {
    type Err = String;

    fn from_str(text: &str) -> Result<WindowShares, String> {
        let mut all = Vec::new();
        for part in text.split(',') {
            let problem = || format!("`{}` is not a window and its share", part.trim());
            let (length, share) = part.split_once('=').ok_or_else(problem)?;
            let length = parse_duration(length).map_or(0, |length| length.as_secs());
            let minutes = u32::try_from(length / 60).unwrap_or_default();
            if minutes == 0 || length % 60 != 0 {
                return Err(problem());
            }
            let share = share.trim().strip_suffix('%').and_then(|share| share.trim().parse().ok());
            let share = share.filter(|share: &f64| (0.0..=100.0).contains(share));
            let share = share.ok_or_else(problem)?;
            if all.iter().any(|(other, _)| *other == minutes) {
                return Err(format!("the window {} is named twice", window_name(minutes)));
            }
            // In the range of `u16`, because it is at most 100.
            all.push((minutes, ((share * 10.0).round() as u16).min(WHOLE)));
        }
        if all.len() > MOST {
            return Err(format!("more than {MOST} windows"));
        }
        all.sort_unstable();
        all.resize(MOST, (0, 0));
        let all =
            <[(u32, u16); MOST]>::try_from(all).map_err(|_| format!("more than {MOST} windows"))?;
        Ok(WindowShares { all })
    }
}

impl Serialize for WindowShares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for WindowShares {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<WindowShares, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
