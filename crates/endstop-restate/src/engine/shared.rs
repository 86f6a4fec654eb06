//! The state that all services of a worker share.

use super::client::EngineClient;
use crate::agents::Agents;
use crate::catalog::Catalog;
use crate::step::Step;
use crate::store::{Kept, Store, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The number of times that a step is written to the store before the engine repeats it.
const WRITES: u32 = 4;

/// Delay before a write is repeated.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

pub(super) struct Shared {
    pub(super) agents: Agents,
    pub(super) store: Store,
    pub(super) catalog: Catalog,
    pub(super) client: EngineClient,
    pub(super) report: Box<dyn Fn(&str) + Send + Sync>,
    /// The number of runs that this worker drives.
    pub(super) running: watch::Sender<usize>,
    /// `true` once the worker stops: other workers then drive further runs.
    pub(super) stops: AtomicBool,
}

/// A run among those that this worker drives, until it is dropped.
pub(super) struct Running(Arc<Shared>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.send_modify(|running| *running = running.saturating_sub(1));
    }
}

impl Shared {
    /// Counts a run. `None` if the worker stops.
    pub(super) fn begin_run(shared: &Arc<Shared>) -> Option<Running> {
        if shared.stops.load(Ordering::SeqCst) {
            return None;
        }
        shared.running.send_modify(|running| *running += 1);
        Some(Running(Arc::clone(shared)))
    }

    /// Begins no further run, and waits until this worker drives none, at most for this long.
    pub(super) async fn drain(&self, most: Duration) {
        self.stops.store(true, Ordering::SeqCst);
        let mut running = self.running.subscribe();
        // The sender lives as long as `self`, so the wait ends with the last run.
        let _ = tokio::time::timeout(most, running.wait_for(|running| *running == 0)).await;
    }

    /// Stores a step. A store that fails for a moment does not cost the step.
    pub(super) async fn put(
        &self,
        run: &str,
        number: u64,
        step: &Step,
    ) -> Result<Kept, StoreError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (store, run, step) = (self.store.clone(), run.to_owned(), step.clone());
            let put = tokio::task::spawn_blocking(move || store.put(&run, number, &step)).await;
            match put.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())) {
                Ok(kept) => return Ok(kept),
                Err(error) if tries == WRITES => return Err(error),
                Err(_) => tokio::time::sleep(AGAIN_AFTER * tries).await,
            }
        }
    }
}
