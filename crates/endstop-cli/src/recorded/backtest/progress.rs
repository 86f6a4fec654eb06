//! The progress line on a terminal: how much was read. It prints nothing elsewhere.

use crate::output;
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Minimum time between two updates, in milliseconds.
const EVERY: u64 = 100;

pub(crate) struct Progress {
    began: Instant,
    bytes: AtomicU64,
    /// The time of the last update, in milliseconds since the start.
    shown: AtomicU64,
    terminal: bool,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Progress {
            began: Instant::now(),
            bytes: AtomicU64::new(0),
            shown: AtomicU64::new(0),
            terminal: std::io::stderr().is_terminal() && !dumb,
        }
    }

    /// Adds a number of bytes that were read.
    pub(crate) fn add(&self, bytes: u64) {
        let all = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if !self.terminal {
            return;
        }
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = self.shown.load(Ordering::Relaxed);
        // The thread that wins the exchange draws the line; the others skip this update.
        if now >= last + EVERY
            && self.shown.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let seconds = self.began.elapsed().as_secs_f64();
            let read = all as f64 / 1e6;
            let speed = read / seconds;
            output::shown(&format!("\r\x1b[K{read:.0} MB read, {speed:.0} MB/s"));
        }
    }

    /// Clears the line.
    pub(crate) fn done(&self) {
        if self.terminal && self.shown.load(Ordering::Relaxed) > 0 {
            output::shown("\r\x1b[K");
        }
    }
}
