//! Processor time and memory of another process.

/// Processor time over a number of calls.
#[derive(Default)]
pub(crate) struct Usage {
    milliseconds: f64,
    calls: usize,
}

impl Usage {
    /// Adds the difference of two readings.
    pub(crate) fn add(&mut self, before: Option<f64>, after: Option<f64>, calls: usize) {
        if let (Some(before), Some(after)) = (before, after) {
            self.milliseconds += after - before;
            self.calls += calls;
        }
    }

    /// Returns the milliseconds of a call.
    pub(crate) fn a_call(&self) -> f64 {
        self.milliseconds / self.calls.max(1) as f64
    }
}

/// Returns the processor time of all threads of a process, in milliseconds.
pub(crate) fn processor_ms(process: u32) -> f64 {
    // `schedstat` counts nanoseconds; `stat` has only ticks of 10 ms.
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    let nanoseconds = threads.into_iter().flatten().flatten().filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    nanoseconds.sum::<u64>() as f64 / 1e6
}

/// Returns the resident memory of a process in MB: now, and at most.
pub(crate) fn memory_mb(process: u32) -> (f64, f64) {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let value = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok())
            .map_or(f64::NAN, |kilobytes| kilobytes / 1024.0)
    };
    (value("VmRSS"), value("VmHWM"))
}
