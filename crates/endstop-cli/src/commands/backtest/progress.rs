//! A line on a terminal that says how much was read; nothing elsewhere.
//!
//! ```ignore
//! let progress = Progress::new();
//! progress.add(1 << 20);   // from any thread
//! progress.done();
//! ```

use std::io::{IsTerminal, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Milliseconds between two lines.
const EVERY: u64 = 100;

pub(super) struct Progress {
    began: Instant,
    bytes: AtomicU64,
    /// When the line was written last, in milliseconds.
    shown: AtomicU64,
    terminal: bool,
}

impl Progress {
    pub(super) fn new() -> Progress {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Progress {
            began: Instant::now(),
            bytes: AtomicU64::new(0),
            shown: AtomicU64::new(0),
            terminal: std::io::stderr().is_terminal() && !dumb,
        }
    }

    /// So many bytes more.
    pub(super) fn add(&self, bytes: u64) {
        let all = self.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if !self.terminal {
            return;
        }
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last = self.shown.load(Ordering::Relaxed);
        // Whoever exchanges it writes the line.
        if now >= last + EVERY
            && self.shown.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            let seconds = self.began.elapsed().as_secs_f64();
            let read = all as f64 / 1e6;
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K{read:.0} MB read, {:.0} MB/s", read / seconds);
            let _ = err.flush();
        }
    }

    /// Takes the line away.
    pub(super) fn done(&self) {
        if self.terminal && self.shown.load(Ordering::Relaxed) > 0 {
            let mut err = std::io::stderr().lock();
            let _ = write!(err, "\r\x1b[K");
            let _ = err.flush();
        }
    }
}
