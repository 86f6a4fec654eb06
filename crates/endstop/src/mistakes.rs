//! Likely mistakes in programs that use this crate. None of them compiles, and next to each is the same
//! program without the mistake, so that an example cannot fail for another reason.

/// The closure of a tool is not async. The compiler says: `String` is not a future.
///
/// ```compile_fail,E0277
/// # use endstop::tool::tool_fn; use schemars::JsonSchema; use serde::Deserialize;
/// #[derive(Deserialize, JsonSchema)]
/// struct Args { city: String }
/// let _ = tool_fn("weather", "The weather.", |args: Args, _| format!("Rain in {}.", args.city));
/// ```
///
/// ```
/// # use endstop::tool::tool_fn; use schemars::JsonSchema; use serde::Deserialize;
/// #[derive(Deserialize, JsonSchema)]
/// struct Args { city: String }
/// let _ = tool_fn("weather", "The weather.", |args: Args, _| async move {
///     format!("Rain in {}.", args.city)
/// });
/// ```
pub struct ClosureWithoutAsync;

/// The arguments have no schema. The compiler says: `Args` cannot be the arguments of a tool.
///
/// ```compile_fail,E0277
/// # use endstop::tool::tool_fn; use serde::Deserialize;
/// #[derive(Deserialize)]
/// struct Args { city: String }
/// let _ = tool_fn("weather", "The weather.", |args: Args, _| async move { args.city });
/// ```
///
/// ```
/// # use endstop::tool::tool_fn; use serde::Deserialize;
/// #[derive(Deserialize, schemars::JsonSchema)]
/// struct Args { city: String }
/// let _ = tool_fn("weather", "The weather.", |args: Args, _| async move { args.city });
/// ```
pub struct ArgumentsWithoutSchema;

/// The output is a plain struct. The compiler says: `Weather` cannot be the output of a tool.
///
/// ```compile_fail,E0277
/// # use endstop::tool::tool_fn; use schemars::JsonSchema; use serde::{Deserialize, Serialize};
/// # #[derive(Deserialize, JsonSchema)] struct Args { city: String }
/// #[derive(Serialize)]
/// struct Weather { rain: bool }
/// let _ = tool_fn("weather", "The weather.", |args: Args, _| async move {
///     Weather { rain: args.city == "Bergen" }
/// });
/// ```
///
/// ```
/// # use endstop::tool::{Json, tool_fn}; use schemars::JsonSchema; use serde::{Deserialize, Serialize};
/// # #[derive(Deserialize, JsonSchema)] struct Args { city: String }
/// #[derive(Serialize)]
/// struct Weather { rain: bool }
/// let _ = tool_fn("weather", "The weather.", |args: Args, _| async move {
///     Json(Weather { rain: args.city == "Bergen" })
/// });
/// ```
pub struct OutputWithoutJson;

/// The type of an answer has no schema. The compiler says: `City` cannot be the type of an answer.
///
/// ```compile_fail,E0277
/// #[derive(serde::Deserialize)]
/// struct City { name: String }
/// fn ask(agent: &endstop::Agent) { let _ = agent.run_typed::<City>("Which city?"); }
/// ```
///
/// ```
/// #[derive(serde::Deserialize, schemars::JsonSchema)]
/// struct City { name: String }
/// fn ask(agent: &endstop::Agent) { let _ = agent.run_typed::<City>("Which city?"); }
/// ```
pub struct AnswerWithoutSchema;

/// A tool borrows state that is not `Send`. The compiler says: `Rc<u32>` cannot be sent between threads.
///
/// ```compile_fail,E0277
/// # use endstop::tool::tool_fn; use schemars::JsonSchema; use serde::Deserialize;
/// # #[derive(Deserialize, JsonSchema)] struct Args { city: String }
/// let calls = std::rc::Rc::new(3);
/// let _ = tool_fn("count", "Counts.", move |_: Args, _| {
///     let calls = calls.clone();
///     async move { calls.to_string() }
/// });
/// ```
///
/// ```
/// # use endstop::tool::tool_fn; use schemars::JsonSchema; use serde::Deserialize;
/// # #[derive(Deserialize, JsonSchema)] struct Args { city: String }
/// let calls = std::sync::Arc::new(3);
/// let _ = tool_fn("count", "Counts.", move |_: Args, _| {
///     let calls = calls.clone();
///     async move { calls.to_string() }
/// });
/// ```
pub struct StateWithoutSend;

/// A closure with `?` is given to `tool_fn`. The compiler says: type annotations needed.
///
/// ```compile_fail
/// # use endstop::tool::tool_fn; use schemars::JsonSchema; use serde::Deserialize;
/// # #[derive(Deserialize, JsonSchema)] struct Args { city: String }
/// let _ = tool_fn("double", "Doubles.", |args: Args, _| async move {
///     let number: i32 = args.city.parse()?;
///     Ok((2 * number).to_string())
/// });
/// ```
///
/// ```
/// # use endstop::tool::try_tool_fn; use schemars::JsonSchema; use serde::Deserialize;
/// # #[derive(Deserialize, JsonSchema)] struct Args { city: String }
/// let _ = try_tool_fn("double", "Doubles.", |args: Args, _| async move {
///     let number: i32 = args.city.parse()?;
///     Ok((2 * number).to_string())
/// });
/// ```
pub struct QuestionMarkWithoutType;
