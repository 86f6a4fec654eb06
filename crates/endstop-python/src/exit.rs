//! The end of the interpreter while other threads are inside this module.
//!
//! Up to Python 3.13, the interpreter kills a daemon thread at exit when that thread next takes the
//! interpreter lock. The kill unwinds the thread's stack, which aborts the process if frames of Rust
//! are on it. So a callback at exit lets the threads leave this module first, and a thread that
//! enters it later sleeps until the process is gone. Threads that are no daemons are joined before
//! the callback runs.

use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// Time that threads have to leave the module at exit, for example a policy that is being called.
const MOST_WAIT: Duration = Duration::from_secs(1);

/// The thread on which the interpreter ends, once it does.
static EXITS_ON: OnceLock<ThreadId> = OnceLock::new();
/// Number of threads that are inside the module.
static INSIDE: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Nested calls of this thread into the module.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

/// A call into the module, from here until it is dropped.
pub(crate) struct Inside(());

/// Marks a call that runs Python code, or gives up the interpreter lock for a time.
pub(crate) fn enter(py: Python<'_>) -> Inside {
    let depth = DEPTH.get();
    // Each thread is counted once, because `leave` waits for threads and leaves out its own.
    if depth == 0 {
        if EXITS_ON.get().is_some_and(|thread| *thread != thread::current().id()) {
            py.detach(|| {
                loop {
                    thread::park();
                }
            });
        }
        INSIDE.fetch_add(1, Ordering::SeqCst);
    }
    DEPTH.set(depth + 1);
    Inside(())
}

impl Drop for Inside {
    fn drop(&mut self) {
        let depth = DEPTH.get() - 1;
        DEPTH.set(depth);
        if depth == 0 {
            // The child of a fork starts to count anew, also within a call.
            let _ = INSIDE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        }
    }
}

/// Registers the callbacks at exit and in the child of a fork.
pub(crate) fn register(py: Python<'_>) -> PyResult<()> {
    let at_exit = PyCFunction::new_closure(py, None, None, |args, _| leave(args.py()))?;
    py.import("atexit")?.call_method1("register", (at_exit,))?;
    let os = py.import("os")?;
    // The other threads do not exist in the child of a fork.
    if os.hasattr("register_at_fork")? {
        let in_child = PyCFunction::new_closure(py, None, None, |_, _| {
            INSIDE.store(usize::from(DEPTH.get() > 0), Ordering::SeqCst);
        })?;
        let options = PyDict::new(py);
        options.set_item("after_in_child", in_child)?;
        os.call_method("register_at_fork", (), Some(&options))?;
    }
    Ok(())
}

/// Lets the other threads leave the module.
fn leave(py: Python<'_>) {
    let _ = EXITS_ON.set(thread::current().id());
    // This thread is inside as well if the interpreter ends within a call, and cannot wait for
    // itself.
    let own = usize::from(DEPTH.get() > 0);
    let began = Instant::now();
    py.detach(|| {
        while INSIDE.load(Ordering::SeqCst) > own && began.elapsed() < MOST_WAIT {
            thread::sleep(Duration::from_millis(1));
        }
    });
}
