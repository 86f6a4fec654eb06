//! Tools of the runs: one that reacts to a cancellation, one that ignores it, and one that works in the
//! background.
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

/// The number of calls that are running.
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

/// A running call, which counts itself down when it is dropped.
// A guard and not a counter at the end of the tool, because an aborted future never gets there.
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

/// A tool that waits, and stops when its run is cancelled.
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

/// A tool that works three times as long, blocks its thread meanwhile, and ignores cancellation.
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
                // Blocks the thread, as badly written tools do. The second sleep gives the driver a
                // point to abort the task.
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

/// A background tool: its run continues while it waits.
pub(crate) struct Build(pub(crate) AtWork);

impl Tool for Build {
    fn name(&self) -> &'static str {
        "build"
    }
    fn description(&self) -> &'static str {
        "Builds."
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
                    () = tokio::time::sleep(2 * time) => ToolOutput::ok("built"),
                },
                Err(problem) => problem,
            }
        })
    }
    fn background(&self) -> bool {
        true
    }
}
