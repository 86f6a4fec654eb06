//! The progress line on the terminal: how many sessions were read.

use crate::output;
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// The progress line on the terminal.
pub(crate) struct Progress {
    shown: Option<Instant>,
    on: bool,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Progress { shown: None, on: io::stderr().is_terminal() && !dumb }
    }

    pub(crate) fn show(&mut self, sessions: u64, file: &str) {
        // At most ten updates a second, because drawing would slow the scan of many small files.
        let soon = |then: Instant| then.elapsed() < Duration::from_millis(100);
        if !self.on || self.shown.is_some_and(soon) {
            return;
        }
        self.shown = Some(Instant::now());
        let width = terminal_size::terminal_size().map_or(80, |(width, _)| usize::from(width.0));
        let line = crate::visible::visible(&format!("{sessions} sessions · {file}"));
        let line: String = line.replace('\n', " ").chars().take(width.saturating_sub(1)).collect();
        output::shown(&format!("\r\x1b[2K{line}"));
    }

    pub(crate) fn end(&self) {
        if self.shown.is_some() {
            output::shown("\r\x1b[2K");
        }
    }
}
