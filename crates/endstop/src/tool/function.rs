//! A tool made from a closure, with a schema derived from its arguments.
//!
//! ```
//! use endstop::tool::{Tool, tool_fn};
//! use schemars::JsonSchema;
//! use serde::Deserialize;
//!
//! #[derive(Deserialize, JsonSchema)]
//! struct Weather {
//!     /// The city, in English.
//!     city: String,
//! }
//!
//! let weather = tool_fn("weather", "Tells the weather.", |args: Weather, _context| async move {
//!     format!("It rains in {}.", args.city)
//! });
//! assert_eq!(weather.schema()["properties"]["city"]["description"], "The city, in English.");
//! ```

use super::{IntoToolOutput, Tool, ToolContext, ToolError, ToolFuture, ToolOutput};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

/// Types that can be the arguments of a tool: any that implements `Deserialize` and `JsonSchema`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the arguments of a tool",
    label = "needs a JSON Schema, and must deserialize",
    note = "add `#[derive(serde::Deserialize, schemars::JsonSchema)]` to `{Self}`, and own its data instead of borrowing it"
)]
pub trait ToolArguments: DeserializeOwned + JsonSchema + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Send + 'static> ToolArguments for T {}

/// A tool made from a closure by [`tool_fn`].
pub struct FunctionTool<A, F> {
    name: String,
    description: String,
    schema: Value,
    function: F,
    parallel_safe: bool,
    runs_code: bool,
    repeatable: bool,
    exempt: bool,
    background: bool,
    touches_machine: bool,
    timeout: Option<Duration>,
    arguments: PhantomData<fn(A)>,
}

/// Creates a tool from a closure; the JSON Schema is derived from the type of its arguments.
///
/// The doc comments of the argument type's fields become the descriptions of the arguments. If
/// `description` is empty, the doc comment of the type itself describes the tool.
///
/// The closure returns a string, a [`ToolOutput`], [`Json`](super::Json) of any value, or a `Result`
/// of one of these, whose error goes to the model ([`IntoToolOutput`]). For a closure that uses `?`
/// there is [`try_tool_fn`]. If the model's arguments do not match the type, the model receives an
/// error and the closure is not called.
///
/// The closure is called again for each call, so that it must clone what its future captures:
///
/// ```
/// use endstop::tool::tool_fn;
/// # use std::sync::{Arc, atomic::{AtomicU32, Ordering}};
/// /// Adds to the total.
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct Add {
///     /// The amount to add.
///     amount: u32,
/// }
/// let total = Arc::new(AtomicU32::new(0));
/// let tool = tool_fn("add", "", move |args: Add, _| {
///     let total = total.clone();
///     async move { (total.fetch_add(args.amount, Ordering::Relaxed) + args.amount).to_string() }
/// });
/// # let _ = tool;
/// ```
pub fn tool_fn<A, F, R>(
    name: impl Into<String>,
    description: impl Into<String>,
    function: F,
) -> FunctionTool<A, F>
where
    A: ToolArguments,
    F: Fn(A, ToolContext) -> R + Send + Sync,
    R: Future<Output: IntoToolOutput> + Send + 'static,
{
    let mut schema = schema_of::<A>();
    let mut description = description.into();
    if description.is_empty()
        && let Some(Value::String(documented)) =
            schema.as_object_mut().and_then(|fields| fields.shift_remove("description"))
    {
        description = documented;
    }
    FunctionTool {
        name: name.into(),
        description,
        schema,
        function,
        parallel_safe: false,
        runs_code: false,
        repeatable: false,
        exempt: false,
        background: false,
        touches_machine: false,
        timeout: None,
        arguments: PhantomData,
    }
}

/// Creates a tool from a closure that uses `?`.
///
/// The same as [`tool_fn`], for a closure whose error type is [`ToolError`]. In a closure for
/// `tool_fn` the compiler cannot infer the error type of `?` (E0283: type annotations needed),
/// because the error may be of any type there; the last line would have to be
/// `Ok::<_, ToolError>(…)`.
///
/// ```
/// use endstop::tool::try_tool_fn;
/// # use schemars::JsonSchema;
/// # use serde::Deserialize;
/// #[derive(Deserialize, JsonSchema)]
/// struct Double { number: String }
///
/// let double = try_tool_fn("double", "Doubles a number.", |args: Double, _context| async move {
///     let number: i64 = args.number.parse()?;
///     Ok((2 * number).to_string())
/// });
/// # let _ = double;
/// ```
pub fn try_tool_fn<A, F, R, O>(
    name: impl Into<String>,
    description: impl Into<String>,
    function: F,
) -> FunctionTool<A, F>
where
    A: ToolArguments,
    F: Fn(A, ToolContext) -> R + Send + Sync,
    R: Future<Output = Result<O, ToolError>> + Send + 'static,
    O: IntoToolOutput,
{
    tool_fn(name, description, function)
}

/// Returns the schema in the form that providers accept: without metadata, and without references
/// unless the type is recursive.
fn schema_of<A: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        // Some providers do not resolve `$ref`.
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<A>().to_value();
    if let Value::Object(fields) = &mut schema {
        fields.shift_remove("title");
        // A unit type has no fields, but providers require an object with `properties`.
        fields.insert("type".to_owned(), "object".into());
        fields.entry("properties").or_insert_with(|| Map::new().into());
    }
    schema
}

impl<A, F> FunctionTool<A, F> {
    /// Allows calls to run in parallel with other calls.
    #[must_use]
    pub fn parallel_safe(mut self) -> Self {
        self.parallel_safe = true;
        self
    }

    /// Declares that the tool runs the model's code, whose output may declare the answer; see
    /// [`Tool::runs_code`].
    #[must_use]
    pub fn runs_code(mut self) -> Self {
        self.runs_code = true;
        self
    }

    /// Declares that an interrupted call may be repeated.
    #[must_use]
    pub fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    /// Excludes the tool's calls from no-progress detection.
    #[must_use]
    pub fn exempt_from_no_progress(mut self) -> Self {
        self.exempt = true;
        self
    }

    /// Runs the calls in the background: see [`Tool::background`].
    #[must_use]
    pub fn background(mut self) -> Self {
        self.background = true;
        self
    }

    /// Declares that the tool changes or reveals something of the machine.
    #[must_use]
    pub fn touches_machine(mut self) -> Self {
        self.touches_machine = true;
        self
    }

    /// Sets the tool's own time limit.
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
    A: ToolArguments,
    F: Fn(A, ToolContext) -> R + Send + Sync,
    R: Future<Output: IntoToolOutput> + Send + 'static,
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
            Ok(arguments) => {
                Box::pin(
                    async move { (self.function)(arguments, context).await.into_tool_output() },
                )
            }
            Err(error) => {
                let (path, problem) = (error.path().to_string(), error.inner());
                // The path `.` stands for the arguments as a whole.
                let at = if path == "." { String::new() } else { format!(" at `{path}`") };
                let problem = format!("invalid arguments{at}: {problem}");
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
    fn repeatable(&self) -> bool {
        self.repeatable
    }
    fn exempt_from_no_progress(&self) -> bool {
        self.exempt
    }
    fn background(&self) -> bool {
        self.background
    }
    fn touches_machine(&self) -> bool {
        self.touches_machine
    }
    fn timeout(&self) -> Option<Duration> {
        self.timeout
    }
}
