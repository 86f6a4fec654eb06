//! The log output of a server process.
//!
//! ```text
//! said.take(b"listening on stdin\n");
//! said.short() // Some("listening on stdin")
//! ```

use endstop_process::Capture;
use endstop_wire::redact::excerpt;
use std::sync::{Arc, Mutex, PoisonError};

/// Number of bytes that are stored of each end of the log output.
const KEEP: usize = 240;

/// The log output of a process, shortened: standard error and lines that are not messages.
#[derive(Clone)]
pub(super) struct Said(Arc<Mutex<Capture>>);

impl Said {
    pub(super) fn new() -> Said {
        Said(Arc::new(Mutex::new(Capture::keeping(KEEP))))
    }

    pub(super) fn take(&self, bytes: &[u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take(bytes);
    }

    /// Returns the log output without credentials, or `None` if it is empty.
    pub(super) fn short(&self) -> Option<String> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner).text();
        Some(excerpt(text.trim())).filter(|text| !text.is_empty())
    }
}
