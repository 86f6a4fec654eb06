//! Work that may block, on a thread for it, and awaited or waited for: a task that must go on while it
//! takes its time, and a destructor that must not.
//!
//! ```ignore
//! let mut pending = Pending::spawn((log, batch), |(log, batch)| log.append(batch));
//! let done = poll_fn(|cx| pending.poll(cx)).await; // or: pending.wait()
//! ```

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::runtime::Handle;

/// Work on another thread. Its input comes back with what came of it.
pub(super) struct Pending<T>(Arc<Shared<T>>);

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

/// Gives the value back however the work ends: also if the runtime drops it before it begins.
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
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T: Send + 'static> Pending<T> {
    /// Begins the work, which must not panic. Without a runtime it is done here, now.
    pub(super) fn spawn(value: T, work: impl FnOnce(&mut T) + Send + 'static) -> Pending<T> {
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

    /// What came of it. Ask no more once it is ready.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        let mut state = self.0.state();
        if let Some(value) = state.value.take() {
            return Poll::Ready(value);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The same, blocking this thread.
    pub(super) fn wait(self) -> T {
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
    async fn awaited_work_gives_its_value_back() {
        let mut pending = Pending::spawn(1, |number| {
            std::thread::sleep(Duration::from_millis(20));
            *number += 1;
        });
        assert_eq!(poll_fn(|cx| pending.poll(cx)).await, 2);
    }

    #[test]
    fn work_without_a_runtime_is_done_at_once() {
        assert_eq!(Pending::spawn(1, |number| *number += 1).wait(), 2);
    }

    #[test]
    fn work_dropped_by_a_runtime_comes_back_undone() {
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let busy = runtime.spawn_blocking(move || held.recv());
        let pending = {
            let _entered = runtime.enter();
            Pending::spawn(1, |number| *number += 1)
        };
        // The only thread is busy: the runtime drops what is queued.
        runtime.shutdown_background();
        drop(hold);
        drop(busy);
        let value = pending.wait();
        assert!(value == 1 || value == 2, "{value}");
    }
}
