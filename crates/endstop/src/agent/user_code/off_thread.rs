//! The `Deserialize` of an answer, which may block or never return, on a thread of its own.
//!
//! ```text
//! let value = off_thread(read_bound(&limits), move || deserialize(&answer)).await?;
//! ```

use endstop_core::Limits;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// The description of the code in errors.
pub(in crate::agent) const ANSWER_TYPE: &str = "the type of the answer";

/// The reason why there is no result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::agent) enum OffThreadError {
    /// The code took longer than this, and may still be running.
    #[error("{ANSWER_TYPE} did not deserialize within {0:?}")]
    TooLong(Duration),
    /// The thread could not be started, or the runtime was shut down.
    #[error("no thread could be started for {ANSWER_TYPE}")]
    NoThread,
}

/// Returns the time that a deserialization may take: the run's `timeout` or `turn_timeout`,
/// whichever is less.
pub(in crate::agent) fn read_bound(limits: &Limits) -> Option<Duration> {
    limits.timeout.into_iter().chain(limits.turn_timeout).min()
}

/// Tells the waiting thread that the result is no longer needed.
struct GiveUp<T>(Sender<Option<T>>);

impl<T> Drop for GiveUp<T> {
    fn drop(&mut self) {
        let _ = self.0.send(None);
    }
}

/// Runs code, which must not panic, on a new thread, and waits for its result for at most `bound`.
///
/// The thread is not one of the runtime's, because a runtime waits for its blocking threads when it is
/// shut down, and code that never returns would then prevent the exit of the process.
pub(in crate::agent) async fn off_thread<T: Send + 'static>(
    bound: Option<Duration>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, OffThreadError> {
    let (done, wait) = channel();
    let give_up = GiveUp(done.clone());
    let worker = thread::Builder::new().name("endstop-answer".to_owned());
    let started = worker.spawn(move || done.send(Some(work())));
    started.map_err(|_| OffThreadError::NoThread)?;
    let (tell, told) = oneshot::channel();
    let watch = move || {
        let result = match bound {
            Some(bound) => wait.recv_timeout(bound).map_err(|_| OffThreadError::TooLong(bound)),
            None => wait.recv().map_err(|_| OffThreadError::NoThread),
        };
        let _ = tell.send(result);
    };
    // A second thread waits for the result and the time limit. It is the runtime's, so that a paused
    // clock of a test stands still as long as the code works.
    if let Ok(runtime) = Handle::try_current() {
        drop(runtime.spawn_blocking(watch));
    } else {
        let watcher = thread::Builder::new().name("endstop-answer".to_owned());
        watcher.spawn(watch).map_err(|_| OffThreadError::NoThread)?;
    }
    let result = told.await;
    drop(give_up);
    match result {
        Ok(Ok(Some(value))) => Ok(value),
        Ok(Err(error)) => Err(error),
        // `None` is sent only if this future was dropped, and a closed channel is a shut-down runtime.
        Ok(Ok(None)) | Err(_) => Err(OffThreadError::NoThread),
    }
}
