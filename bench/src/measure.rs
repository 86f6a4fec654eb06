//! Clocks, memory, medians.

use rustix::time::{ClockId, clock_gettime};
use std::time::Instant;

fn nanoseconds(clock: ClockId) -> u64 {
    let at = clock_gettime(clock);
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// The monotonic clock, the same in every process.
pub(crate) fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Processor time of this process in seconds.
pub(crate) fn cpu() -> f64 {
    nanoseconds(ClockId::ProcessCPUTime) as f64 / 1e9
}

/// Memory in KiB, as the system names it: `VmRSS`, `VmHWM`.
pub(crate) fn memory(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN)
}

/// The value that this share of the values does not exceed.
pub(crate) fn quantile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = (values.len() as f64 * share) as usize;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// The value in the middle.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    quantile(values, 0.5)
}

/// Wall and processor time since.
pub(crate) struct Watch {
    began: Instant,
    cpu: f64,
}

impl Watch {
    pub(crate) fn start() -> Watch {
        Watch { cpu: cpu(), began: Instant::now() }
    }

    /// Seconds: wall, processor.
    pub(crate) fn read(&self) -> (f64, f64) {
        let wall = self.began.elapsed().as_secs_f64();
        (wall, cpu() - self.cpu)
    }
}
