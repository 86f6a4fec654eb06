//! The tools of the runs: one that listens, one that is deaf.
//!
//! ```text
//! let at_work = AtWork::default();
//! builder.tool(Act(at_work.clone())).tool(Deaf(at_work.clone()))
//! // … the run has ended …
//! assert_eq!(at_work.count(), 0);
//! ```

use endstop::tool::{Tool, ToolContext, ToolFuture, ToolOutput};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many calls are under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct AtWork(Arc<AtomicUsize>);

impl AtWork {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn begin(&self) -> Call {
        self.0.fetch_add(1, Ordering::SeqCst);
        Call(Arc::clone(&self.0))
    }
}

/// A call under way.
pub(crate) struct Call(Arc<AtomicUsize>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn schema() -> Value {
    json!({"type": "object", "properties": {"ms": {"type": "integer"}}, "required": ["ms"]})
}

fn time(arguments: &Map<String, Value>) -> Result<Duration, ToolOutput> {
    match arguments.get("ms").and_then(Value::as_u64) {
        Some(ms) => Ok(Duration::from_millis(ms)),
        None => Err(ToolOutput::error("`ms` must be a number of milliseconds")),
    }
}

/// Waits, and stops when it is told to.
pub(crate) struct Act(pub(crate) AtWork);

impl Tool for Act {
    fn name(&self) -> &'static str {
        "act"
    }
    fn description(&self) -> &'static str {
        "Acts."
    }
    fn schema(&self) -> Value {
        schema()
    }
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let _call = self.0.begin();
            match time(&arguments) {
                Ok(time) => tokio::select! {
                    () = context.cancelled() => ToolOutput::error("stopped"),
                    () = tokio::time::sleep(time) => ToolOutput::ok(format!("after {time:?}")),
                },
                Err(problem) => problem,
            }
        })
    }
    fn parallel_safe(&self) -> bool {
        true
    }
}

/// Works three times as long, holds its thread meanwhile, and does not hear that it must stop.
pub(crate) struct Deaf(pub(crate) AtWork);

impl Tool for Deaf {
    fn name(&self) -> &'static str {
        "deaf"
    }
    fn description(&self) -> &'static str {
        "Works."
    }
    fn schema(&self) -> Value {
        schema()
    }
    fn call(&self, arguments: Map<String, Value>, _: ToolContext) -> ToolFuture<'_> {
        Box::pin(async move {
            let _call = self.0.begin();
            let steps = match time(&arguments) {
                Ok(time) => time.as_millis(),
                Err(problem) => return problem,
            };
            for _ in 0..steps {
                // A thread that is held, as bad tools hold it.
                std::thread::sleep(Duration::from_millis(1));
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            ToolOutput::ok("worked")
        })
    }
    fn parallel_safe(&self) -> bool {
        true
    }
}
