//! The clock of a run and its timer, which also notices that the process was suspended.
//!
//! ```text
//! clock.wake_at(at, interval);                    // the kernel has requested a tick
//! if let Some(event) = clock.poll(interval, cx)   // Tick, or Suspended { time }
//! ```
//!
//! A process that is stopped (SIGSTOP, a paused virtual machine, a laptop whose clock runs while its
//! lid is closed) finds all its timers due when it continues, although the server had no chance to
//! send anything to it. During a model call the timer therefore also wakes at short intervals. A
//! wake that comes late by more than an interval, although the run was only waiting, is reported as a
//! suspension of that length. Time in which the run itself worked never counts as one: a server could
//! otherwise stop its clocks with a response that takes long to decode. Other code that blocks the
//! thread of the run has the effect of a suspension, and is reported alike.

use endstop_core::{EventKind, Limits};
use std::pin::Pin;
use std::task::Context;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};

/// Longest interval between two wakes during a model call.
const LONGEST_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest interval. A wake can be late by some hundred milliseconds on a busy machine.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

/// The clock of a run and its timer.
pub(super) struct Clock {
    began: Instant,
    /// Time on the clock before this process resumed the run.
    earlier: Duration,
    armed: Option<Armed>,
    /// The time since which the run only waits; `None` while it works.
    idle_since: Option<Instant>,
}

struct Armed {
    /// The time of the requested tick.
    at: Instant,
    /// The next wake: at that time, or earlier to notice a suspension.
    wake: Pin<Box<Sleep>>,
}

/// Returns the interval for calls with these limits: short compared with the shortest timeout, because
/// up to an interval of a suspension counts against the timeouts. `None` if there is none.
pub(super) fn wake_interval(limits: &Limits) -> Option<Duration> {
    let Limits { turn_timeout, first_content_timeout, stall_timeout, thinking_timeout, .. } =
        limits;
    let timeouts = [turn_timeout, first_content_timeout, stall_timeout, thinking_timeout];
    let shortest = timeouts.into_iter().flatten().min()?;
    Some((*shortest / 8).clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL))
}

fn next_wake(at: Instant, now: Instant, interval: Option<Duration>) -> Instant {
    interval.map_or(at, |interval| at.min(now + interval))
}

impl Clock {
    pub(super) fn new(began: Instant, earlier: Duration) -> Clock {
        Clock { began, earlier, armed: None, idle_since: None }
    }

    /// Returns the time on the clock.
    pub(super) fn now(&self) -> Duration {
        self.earlier.saturating_add(self.began.elapsed())
    }

    /// Sets the time of the next tick on this clock, which the kernel counts from the start of the run, also if an
    /// earlier process drove part of it. `interval` is that between two wakes, if a call is in progress.
    pub(super) fn wake_at(&mut self, at: Duration, interval: Option<Duration>) {
        let at = self.began + at.saturating_sub(self.earlier);
        match &mut self.armed {
            Some(armed) => armed.at = at,
            None => self.armed = Some(Armed { at, wake: Box::pin(sleep_until(at)) }),
        }
        self.watch(interval);
    }

    /// Wakes at this interval from now on, if a tick was requested.
    pub(super) fn watch(&mut self, interval: Option<Duration>) {
        let Some(Armed { at, wake }) = &mut self.armed else { return };
        let next = next_wake(*at, Instant::now(), interval);
        if wake.deadline() != next {
            wake.as_mut().reset(next);
        }
    }

    /// Notes that the run waits from now on, or that it works.
    pub(super) fn set_idle(&mut self, idle: bool) {
        self.idle_since = idle.then(Instant::now);
    }

    /// Stops the timer.
    pub(super) fn stop(&mut self) {
        self.armed = None;
    }

    /// Returns the event of a wake that is due.
    pub(super) fn poll(
        &mut self,
        interval: Option<Duration>,
        cx: &mut Context<'_>,
    ) -> Option<EventKind> {
        loop {
            let Armed { at, wake } = self.armed.as_mut()?;
            // Read before the timer: content that arrived in the meantime may wake the run first.
            let now = Instant::now();
            let idle = self.idle_since.map(|since| now.saturating_duration_since(since));
            let late = now.saturating_duration_since(wake.deadline()).min(idle.unwrap_or_default());
            if interval.is_some_and(|interval| late > interval) {
                // If the tick is due as well, it is the next event.
                wake.as_mut().reset(next_wake(*at, now, interval));
                return Some(EventKind::Suspended { time: late });
            }
            if wake.as_mut().poll(cx).is_pending() {
                return None;
            }
            if *at <= now {
                self.stop();
                return Some(EventKind::Tick);
            }
            wake.as_mut().reset(next_wake(*at, now, interval));
        }
    }
}
