//! The state that all services of a worker share.

use super::client::EngineClient;
use crate::agents::Agents;
use crate::step::Step;
use crate::store::{Kept, Store, StoreError};
use std::time::Duration;

/// The number of times that a step is written to the store before the engine repeats it.
const WRITES: u32 = 4;

/// Delay before a write is repeated.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

pub(super) struct Shared {
    pub(super) agents: Agents,
    pub(super) store: Store,
    pub(super) client: EngineClient,
    pub(super) report: Box<dyn Fn(&str) + Send + Sync>,
}

impl Shared {
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
