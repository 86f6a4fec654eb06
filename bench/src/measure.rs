//! Measurement helpers: clocks, memory and medians.

use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

fn nanoseconds(clock: ClockId) -> u64 {
    let at = clock_gettime(clock);
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Returns the monotonic clock in nanoseconds.
// The clock is the same in every process, because item `e` subtracts a time that another process
// read, and item `d` a time that the server read.
pub(crate) fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Returns the processor time of this process in seconds.
pub(crate) fn cpu() -> f64 {
    nanoseconds(ClockId::ProcessCPUTime) as f64 / 1e9
}

/// Returns a memory value in KiB by the system's name for it: `VmRSS`, `VmHWM`.
pub(crate) fn memory(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN)
}

/// Returns the value that this share of the values does not exceed.
pub(crate) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Returns the median.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// A stopwatch for wall and processor time.
pub(crate) struct Watch {
    began: Instant,
    cpu: f64,
}

impl Watch {
    pub(crate) fn start() -> Watch {
        Watch { cpu: cpu(), began: Instant::now() }
    }

    /// Returns the seconds since the start: wall time, processor time.
    pub(crate) fn read(&self) -> (f64, f64) {
        // The clock that was started last is read first, so that reading one is not part of the
        // other.
        let wall = self.began.elapsed().as_secs_f64();
        (wall, cpu() - self.cpu)
    }
}
