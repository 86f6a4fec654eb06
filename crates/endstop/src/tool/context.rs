//! What a tool call is given beside its arguments.

use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What a tool call is given beside its arguments: when to stop, where to work, and a place for
/// values that policies read.
#[derive(Clone, Debug)]
pub struct ToolContext(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    call_id: String,
    token: CancellationToken,
    loop_token: CancellationToken,
    grace: Duration,
    working_dir: Option<PathBuf>,
    values: Mutex<(Map<String, Value>, Map<String, Value>)>,
}

impl ToolContext {
    /// A context; `loop_token` is the one that a terminate cancels.
    pub fn new(
        call_id: String,
        token: CancellationToken,
        loop_token: CancellationToken,
        grace: Duration,
        working_dir: Option<PathBuf>,
    ) -> ToolContext {
        ToolContext(Arc::new(Inner {
            call_id,
            token,
            loop_token,
            grace,
            working_dir,
            values: Mutex::default(),
        }))
    }

    /// The provider's id of the call.
    pub fn call_id(&self) -> &str {
        &self.0.call_id
    }

    /// Whether it must stop.
    pub fn is_cancelled(&self) -> bool {
        self.0.token.is_cancelled()
    }

    /// Returns when it must stop.
    pub async fn cancelled(&self) {
        self.0.token.cancelled().await;
    }

    /// A token for what it starts itself: cancelled with it.
    pub fn child_token(&self) -> CancellationToken {
        self.0.token.child_token()
    }

    /// How long it has to end once it must stop; zero after a terminate.
    pub fn grace(&self) -> Duration {
        if self.0.loop_token.is_cancelled() { Duration::ZERO } else { self.0.grace }
    }

    /// The folder to work in; `None`: the process's own.
    pub fn working_dir(&self) -> Option<&Path> {
        self.0.working_dir.as_deref()
    }

    /// A path as the model wrote it, from the working folder on.
    pub fn resolve(&self, path: &str) -> PathBuf {
        match self.working_dir() {
            Some(dir) => dir.join(path),
            None => PathBuf::from(path),
        }
    }

    /// Sets a named value; `FINAL_VAR(name)` finds it.
    pub fn set_variable(&self, name: impl Into<String>, value: impl Into<Value>) {
        self.values().0.insert(name.into(), value.into());
    }

    /// Sets a measurement of this turn, such as `last_reward` or `confidence`.
    pub fn set_metric(&self, name: impl Into<String>, value: impl Into<Value>) {
        self.values().1.insert(name.into(), value.into());
    }

    /// Takes the values that were set: variables and metrics.
    pub(crate) fn take_values(&self) -> (Map<String, Value>, Map<String, Value>) {
        std::mem::take(&mut *self.values())
    }

    fn values(&self) -> std::sync::MutexGuard<'_, (Map<String, Value>, Map<String, Value>)> {
        self.0.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
