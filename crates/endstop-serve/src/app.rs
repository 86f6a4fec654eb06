//! The state that all requests share: the runs, the tokens, and the bounds.

use crate::access::Tokens;
use crate::metrics::Refusals;
use crate::options::ServeOptions;
use crate::service::Service;
use endstop_http::Names;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

/// Memory for the bodies of requests, in KiB.
const BODY_MEMORY: usize = 64 << 10;

/// The state that all requests share.
pub(crate) struct App {
    pub(crate) runs: Service,
    pub(crate) options: ServeOptions,
    pub(crate) refusals: Refusals,
    pub(crate) tokens: Tokens,
    /// The names that `Host` may have.
    pub(crate) names: Names,
    /// Memory for bodies that are being read, in KiB.
    pub(crate) bodies: Arc<Semaphore>,
    readers: AtomicUsize,
}

impl App {
    pub(crate) fn new(runs: Service, options: ServeOptions, tokens: Tokens, names: Names) -> App {
        // In KiB, which is exact enough for a bound on memory.
        let bodies = Arc::new(Semaphore::new(BODY_MEMORY));
        let refusals = Refusals::default();
        App { runs, options, refusals, tokens, names, bodies, readers: AtomicUsize::new(0) }
    }

    /// Number of open event streams.
    pub(crate) fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }
}

/// An open event stream, counted until it is dropped.
pub(crate) struct Reader(Arc<App>);

impl Reader {
    pub(crate) fn new(app: &Arc<App>) -> Reader {
        app.readers.fetch_add(1, Ordering::Relaxed);
        Reader(Arc::clone(app))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Relaxed);
    }
}
