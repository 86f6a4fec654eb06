//! Reads the wall clock, in this one place. Durations are measured with the monotonic clock.
//!
//! ```text
//! let started = clock::wall_ms(); // for display, never to compute a duration
//! let headers = signer.headers(&url, &headers, body, clock::now())?;
//! ```

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the Unix time in milliseconds, for display.
pub(crate) fn wall_ms() -> u64 {
    // A clock set before 1970 yields 0 instead of an error.
    now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Returns the wall-clock time, for signatures.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub(crate) fn now() -> SystemTime {
    let now = SystemTime::now();
    #[cfg(test)]
    let now = jumping::set_by(now);
    now
}

/// Returns a seed for the jitter of a run, which differs for each run and process.
pub(crate) fn seed(run: u64) -> u64 {
    let nanos = now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    // Shift the parts apart, so that close times, process ids and run numbers do not cancel out.
    nanos ^ (u64::from(std::process::id()) << 40) ^ run.rotate_left(32)
}

/// Returns a unique id for a run: ten letters and digits from an alphabet without similar
/// characters.
pub(crate) fn run_id() -> String {
    const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    static RUNS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let nth = RUNS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    // Mix the bits, so that runs that start close together get very different ids.
    let mut bits = seed(nth).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^= bits >> 32;
    let letters = (0..10).map(|at| char::from(LETTERS[(bits >> (5 * at)) as usize % 32]));
    letters.collect()
}

/// A wall clock that a test can shift for its own thread.
#[cfg(test)]
mod jumping {
    use std::cell::Cell;
    use std::time::{Duration, SystemTime};

    thread_local!(static SET_BY: Cell<i64> = const { Cell::new(0) });

    /// Sets the clock this many seconds ahead; a negative number sets it back.
    pub(super) fn set(seconds: i64) {
        SET_BY.set(seconds);
    }

    pub(super) fn set_by(now: SystemTime) -> SystemTime {
        let by = Duration::from_secs(SET_BY.get().unsigned_abs());
        if SET_BY.get() < 0 { now - by } else { now + by }
    }
}

#[cfg(test)]
mod tests {
    use super::{jumping, wall_ms};
    use crate::event::{AgentEvent, AgentEventKind};
    use crate::testkit::{ScriptedModel, Turn};
    use crate::tool::{ToolOutput, tool_fn};
    use crate::{Agent, Limits};
    use endstop_core::{Outcome, Termination};
    use serde_json::{Map, Value, json};
    use std::time::{Duration, Instant};

    const HOUR: i64 = 3_600;

    /// Ahead, back, and before 1970.
    const JUMPS: [i64; 5] = [5 * HOUR, -5 * HOUR, 24 * 365 * HOUR, -24 * 365 * 100 * HOUR, 0];

    /// Runs a tool that shifts the clock at each call, and returns the real duration.
    async fn jumps(limits: Limits, then: Turn) -> (Vec<AgentEvent>, Outcome, Duration) {
        let set = tool_fn("set", "Sets the clock.", |args: Map<String, Value>, _| async move {
            jumping::set(args["by"].as_i64().unwrap());
            ToolOutput::ok(wall_ms().to_string())
        });
        let turns = JUMPS.map(|by| Turn::call("set", &json!({ "by": by })));
        let model = ScriptedModel::new(turns.into_iter().chain([then]));
        let agent = Agent::builder(model).tool(set).limits(limits).build().unwrap();
        let began = Instant::now();
        let mut handle = agent.run("hi").unwrap();
        let mut events = Vec::new();
        while let Some(event) = handle.next().await {
            events.push(event);
        }
        (events, handle.await, began.elapsed())
    }

    /// Runs on one thread, because the shift is thread-local.
    #[tokio::test]
    async fn wall_clock_jump_changes_no_duration() {
        let minute = Some(Duration::from_secs(60));
        let limits = Limits {
            timeout: minute,
            turn_timeout: minute,
            first_content_timeout: minute,
            stall_timeout: minute,
            tool_timeout: minute,
            ..Limits::default()
        };
        let (events, outcome, took) = jumps(limits, Turn::text("done")).await;
        assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
        assert!(outcome.duration <= took, "{:?} of {took:?}", outcome.duration);
        let mut shown = Vec::new();
        for event in &events {
            if let AgentEventKind::ToolFinished { duration_ms, content, .. } = &event.kind {
                assert!(u128::from(*duration_ms) <= took.as_millis(), "{duration_ms} ms");
                shown.push(content.parse::<u64>().unwrap());
            }
        }
        // The clock really was shifted, and a time before 1970 is shown as 0.
        let hours = |at: usize| (shown[at].abs_diff(shown[4]) + 1_800_000) / 3_600_000;
        let moved = (hours(0), hours(1), hours(2), shown[3]);
        assert_eq!(moved, (5, 5, 24 * 365, 0), "{shown:?}");
    }

    #[tokio::test]
    async fn wall_clock_jump_keeps_deadline() {
        let limits = Limits { timeout: Some(Duration::from_millis(300)), ..Limits::default() };
        let late = Turn::text("late").after(Duration::from_secs(60));
        let (_, outcome, took) = jumps(limits, late).await;
        assert_eq!(outcome.termination, Termination::ErrorTimeout, "{outcome:?}");
        assert!(outcome.duration >= Duration::from_millis(300) && outcome.duration <= took);
        assert!(took < Duration::from_secs(30), "{took:?}");
        assert_eq!(outcome.turns as usize, JUMPS.len(), "{outcome:?}");
    }
}
