//! A tool of a closure, with a schema derived from its arguments.

use super::{Tool, ToolContext, ToolFuture, ToolOutput};
use schemars::{JsonSchema, schema_for};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

/// A tool of a closure; made by [`tool_fn`].
pub struct FunctionTool<A, F> {
    name: String,
    description: String,
    schema: Value,
    function: F,
    parallel_safe: bool,
    runs_code: bool,
    exempt: bool,
    timeout: Option<Duration>,
    arguments: PhantomData<fn(A)>,
}

/// Makes a tool of a closure; the schema of its arguments is derived.
///
/// Arguments that do not fit are answered to the model as an error, and the closure is not called.
pub fn tool_fn<A, F, R>(
    name: impl Into<String>,
    description: impl Into<String>,
    function: F,
) -> FunctionTool<A, F>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(A, ToolContext) -> R + Send + Sync,
    R: Future<Output = ToolOutput> + Send + 'static,
{
    FunctionTool {
        name: name.into(),
        description: description.into(),
        schema: schema_for!(A).to_value(),
        function,
        parallel_safe: false,
        runs_code: false,
        exempt: false,
        timeout: None,
        arguments: PhantomData,
    }
}

impl<A, F> FunctionTool<A, F> {
    /// It may run beside other calls.
    #[must_use]
    pub fn parallel_safe(mut self) -> Self {
        self.parallel_safe = true;
        self
    }

    /// It runs code.
    #[must_use]
    pub fn runs_code(mut self) -> Self {
        self.runs_code = true;
        self
    }

    /// Its calls are left out of the no-progress judgement.
    #[must_use]
    pub fn exempt_from_no_progress(mut self) -> Self {
        self.exempt = true;
        self
    }

    /// Its own time limit.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }
}

impl<A, F> fmt::Debug for FunctionTool<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionTool").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<A, F, R> Tool for FunctionTool<A, F>
where
    A: DeserializeOwned + JsonSchema + Send + 'static,
    F: Fn(A, ToolContext) -> R + Send + Sync,
    R: Future<Output = ToolOutput> + Send + 'static,
{
    fn name(&self) -> &str {
        &self.name
    }
    fn description(&self) -> &str {
        &self.description
    }
    fn schema(&self) -> Value {
        self.schema.clone()
    }
    fn call(&self, arguments: Map<String, Value>, context: ToolContext) -> ToolFuture<'_> {
        match serde_path_to_error::deserialize::<_, A>(Value::Object(arguments)) {
            Ok(arguments) => Box::pin((self.function)(arguments, context)),
            Err(error) => {
                let problem =
                    format!("the arguments do not fit, at `{}`: {}", error.path(), error.inner());
                Box::pin(std::future::ready(ToolOutput::error(problem)))
            }
        }
    }
    fn parallel_safe(&self) -> bool {
        self.parallel_safe
    }
    fn runs_code(&self) -> bool {
        self.runs_code
    }
    fn exempt_from_no_progress(&self) -> bool {
        self.exempt
    }
    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}
