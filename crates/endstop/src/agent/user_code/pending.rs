//! Blocking work on a blocking thread, for two kinds of callers: a task that must stay responsive
//! awaits it, and a destructor, which cannot await, blocks on it.
//!
//! ```text
//! let mut pending = Pending::spawn((log, batch), |(log, batch)| log.append(batch));
//! let done = poll_fn(|cx| pending.poll(cx)).await; // or: pending.wait()
//! ```

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;

/// Work on another thread. The input value comes back when the work is done.
pub(in crate::agent) struct Pending<T>(Arc<Shared<T>>);

struct Shared<T> {
    state: Mutex<State<T>>,
    done: Condvar,
}

struct State<T> {
    value: Option<T>,
    waker: Option<Waker>,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that returns the value when it is dropped: after the work, or if the runtime drops the
/// work before it begins.
struct Working<T> {
    value: Option<T>,
    shared: Arc<Shared<T>>,
}

impl<T> Drop for Working<T> {
    fn drop(&mut self) {
        let waker = {
            let mut state = self.shared.state();
            state.value = self.value.take();
            state.waker.take()
        };
        self.shared.done.notify_all();
        // Wake without the lock: the woken task may poll at once and needs it.
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Starts the work, which must not panic. Without a runtime the work runs now, on this thread.
    pub(in crate::agent) fn spawn(
        value: T,
        work: impl FnOnce(&mut T) + Send + 'static,
    ) -> Pending<T> {
        let state = Mutex::new(State { value: None, waker: None });
        let shared = Arc::new(Shared { state, done: Condvar::new() });
        let mut working = Working { value: Some(value), shared: Arc::clone(&shared) };
        let work = move || {
            if let Some(value) = &mut working.value {
                work(value);
            }
        };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(work)),
            Err(_) => work(),
        }
        Pending(shared)
    }

    /// Polls for the value. Must not be called again after it was ready.
    pub(in crate::agent) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.state();
        if let Some(value) = state.value.take() {
            return Poll::Ready(value);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Blocks this thread until the value is back.
    pub(in crate::agent) fn wait(self) -> T {
        let mut state = self.0.state();
        loop {
            if let Some(value) = state.value.take() {
                return value;
            }
            state = self.0.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

    #[tokio::test]
    async fn awaited_work_returns_its_value() {
        let mut pending = Pending::spawn(1, |number| {
            std::thread::sleep(Duration::from_millis(20));
            *number += 1;
        });
        assert_eq!(poll_fn(|cx| pending.poll(cx)).await, 2);
    }

    #[test]
    fn work_without_runtime_runs_at_once() {
        assert_eq!(Pending::spawn(1, |number| *number += 1).wait(), 2);
    }

    #[test]
    fn work_dropped_by_runtime_is_returned() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let busy = runtime.spawn_blocking(move || held.recv());
        let pending = {
            let _entered = runtime.enter();
            Pending::spawn(1, |number| *number += 1)
        };
        // The only blocking thread is busy, so the runtime drops the queued work.
        runtime.shutdown_background();
        drop(hold);
        drop(busy);
        let value = pending.wait();
        assert!(value == 1 || value == 2, "{value}");
    }
}
