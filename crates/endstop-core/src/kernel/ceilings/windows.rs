//! The windows of a subscription, as the provider reports them, and the pause until one begins anew.
//!
//! ```text
//! reported ─► used of each window ─► `max_window` reached? ─► `wait_for_window`? ─► pause until the reset
//!                                                                      └── no ─► `error_max_window`
//! ```
//!
//! Reports come with responses of a server, in any order, and may be wrong. A reset that has passed or is farther away
//! than the window is long is not believed: the use counts, and there is no time to wait for.

use crate::limits::WindowShares;
use crate::limits::{Window, percent};
use std::time::Duration;

/// Number of windows that are stored. Known services have two each.
const MOST: usize = 16;
/// Difference between two resets of the same window, in seconds: services compute them with each response.
const SAME_RESET: u64 = 60;
/// Age up to which a reset that has passed is believed, in seconds: the clocks of two machines differ.
const JUST_PASSED: u64 = 5 * 60;

/// The windows that were reported.
#[derive(Debug, Default)]
pub(crate) struct Windows {
    seen: Vec<Window>,
    /// A time on the run's own clock, and the wall clock then, in Unix milliseconds.
    clock: Option<(Duration, u64)>,
}

/// The window that decides: of those whose share is used up the one that begins anew last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reached<'a> {
    window: &'a Window,
    share: u16,
    /// Time until it begins anew; `None` if that is not known.
    pub(crate) left: Option<Duration>,
}

impl Windows {
    /// Sets the wall clock of this moment.
    pub(crate) fn set_clock(&mut self, now: Duration, wall_ms: Option<u64>) {
        self.clock = wall_ms.map(|wall_ms| (now, wall_ms)).or(self.clock);
    }

    /// Stores what a provider reported.
    pub(crate) fn report(&mut self, windows: Vec<Window>, now: Duration) {
        for mut window in windows {
            window.resets_at =
                window.resets_at.filter(|at| self.is_plausible(*at, window.minutes, now));
            let same = |one: &&mut Window| one.minutes == window.minutes && one.of == window.of;
            let Some(known) = self.seen.iter_mut().find(same) else {
                if self.seen.len() < MOST {
                    self.seen.push(window);
                }
                continue;
            };
            let begins_anew = match (known.resets_at, window.resets_at) {
                (Some(known), Some(resets)) => resets > known.saturating_add(SAME_RESET),
                // Without a reset, only the next report can say that the window is free again.
                (None, _) => true,
                (Some(_), None) => false,
            };
            if begins_anew || is_over(known, self.clock, now) {
                *known = window;
            } else {
                // Responses that overlap report in any order.
                known.used = known.used.max(window.used);
                known.resets_at = known.resets_at.max(window.resets_at);
            }
        }
    }

    /// The windows that were reported.
    pub(crate) fn seen(&self) -> &[Window] {
        &self.seen
    }

    /// `true` if a window of this length can begin anew then, in Unix seconds.
    fn is_plausible(&self, resets_at: u64, minutes: u32, now: Duration) -> bool {
        let length = u64::from(minutes) * 60;
        wall(self.clock, now).is_some_and(|wall| {
            let wall = wall.as_secs();
            resets_at <= wall.saturating_add(length + SAME_RESET)
                && resets_at >= wall.saturating_sub(JUST_PASSED)
        })
    }

    /// Returns the time until a window begins anew; zero if that has passed, `None` if it is not known.
    fn left(&self, window: &Window, now: Duration) -> Option<Duration> {
        left(window, self.clock, now)
    }

    /// Returns the window that ends the run or lets it pause.
    pub(crate) fn reached(&self, shares: &WindowShares, now: Duration) -> Option<Reached<'_>> {
        let reached = self.seen.iter().filter_map(|window| {
            let share = shares.of(window.minutes)?;
            let left = self.left(window, now);
            let counts = window.used >= u32::from(share) && left != Some(Duration::ZERO);
            counts.then_some(Reached { window, share, left })
        });
        reached.max_by_key(|one| one.left.unwrap_or(Duration::MAX))
    }

    /// Returns the use of the window that is nearest to its share, and that share, both in percent.
    pub(crate) fn nearest(&self, shares: &WindowShares, now: Duration) -> Option<(f64, f64)> {
        let named = self.seen.iter().filter_map(|window| {
            let share = f64::from(shares.of(window.minutes)?) / 10.0;
            let is_over = self.left(window, now) == Some(Duration::ZERO);
            Some((if is_over { 0.0 } else { f64::from(window.used) / 10.0 }, share))
        });
        let part = |(used, share): &(f64, f64)| used / share.max(f64::MIN_POSITIVE);
        named.max_by(|one, other| part(one).total_cmp(&part(other)))
    }
}

fn left(window: &Window, clock: Option<(Duration, u64)>, now: Duration) -> Option<Duration> {
    Some(Duration::from_secs(window.resets_at?).saturating_sub(wall(clock, now)?))
}

/// The wall clock at this time of the run.
fn wall(clock: Option<(Duration, u64)>, now: Duration) -> Option<Duration> {
    let (at, wall_ms) = clock?;
    Duration::from_millis(wall_ms).checked_add(now.saturating_sub(at))
}

fn is_over(window: &Window, clock: Option<(Duration, u64)>, now: Duration) -> bool {
    left(window, clock, now) == Some(Duration::ZERO)
}

impl Reached<'_> {
    /// Describes the use of the window, and its reset.
    pub(crate) fn evidence(&self) -> String {
        let Window { used, of, .. } = self.window;
        let (used, share) = (percent(*used), percent(u32::from(self.share)));
        let what = format!("{used} of the {} window of {of} used, of {share}", self.window.name());
        match self.left {
            // Whole seconds, rounded up: a call before the reset would be too early.
            Some(left) => {
                let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
                format!("{what}; it resets in {:?}", Duration::from_secs(seconds))
            }
            None => what,
        }
    }
}
