//! A provider over HTTP, or from a recording of one.
//!
//! ```text
//! let provider = HttpProvider::builder(model).build()?;
//! let session = provider.open(spec);
//! ```

use super::super::record::Recorder;
use super::super::transport::Transport;
use super::prepared::Prepared;
use endstop_wire::redact::address;
use std::fmt;
use std::sync::Arc;

/// A provider over HTTP. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct HttpProvider {
    pub(super) prepared: Arc<Prepared>,
    pub(super) transport: Transport,
    pub(super) recorder: Option<Recorder>,
    /// The seed of a run that is recorded or replayed.
    pub(super) seed: Option<u64>,
}

impl fmt::Debug for HttpProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Omit the headers, which contain the key; the address may contain a password.
        f.debug_struct("HttpProvider")
            .field("provider", &self.prepared.name)
            .field("model", &self.prepared.model)
            .field("url", &address(self.prepared.whole.url.as_str()))
            .finish_non_exhaustive()
    }
}
