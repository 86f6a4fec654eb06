//! The reason why an agent could not be built.
//!
//! ```
//! use endstop::{Agent, BuildError, Limits, testkit::ScriptedModel};
//! let limits = Limits { max_budget_usd: Some(1.0), ..Limits::default() };
//! let built = Agent::builder(ScriptedModel::new([])).limits(limits).build();
//! assert!(matches!(built.unwrap_err(), BuildError::NoPrice { .. }));
//! ```

use crate::provider::ParamError;
use crate::schema::SchemaError;
use crate::tool::ToolSetError;
use std::fmt;

/// The reason why an agent could not be built: settings that are invalid or contradict each other.
/// The message says how to fix it.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A tool has an invalid name, or two tools have the same one.
    #[error(transparent)]
    Tool(#[from] ToolSetError),
    /// A tool has the name of the built-in tool `finish`.
    #[error(
        "there are two tools named `finish`: rename yours, or switch off the other with `finish_tool(false)`"
    )]
    TwoFinishTools,
    /// A permission matches no tool. The name is probably misspelt, and the intended tool would be
    /// without its rule.
    #[error("unknown tool `{pattern}` in a permission: expected one of {}", tools.join(", "))]
    UnknownTool {
        /// The name or pattern of the permission.
        pattern: String,
        /// The names of the tools.
        tools: Vec<String>,
    },
    /// The agent has no tool with a name that a setting has.
    #[error("unknown tool `{tool}` in `{setting}`: expected one of {}", tools.join(", "))]
    UnknownToolOf {
        /// The setting: `background` or `max_calls`.
        setting: &'static str,
        /// The name.
        tool: String,
        /// The names of the tools.
        tools: Vec<String>,
    },
    /// A tool has the permission `ask`, but there is no approver.
    #[error(
        "the tool `{tool}` has the permission `ask`, but there is no approver; set `AgentBuilder::approver` or `AgentBuilder::approval_events`"
    )]
    NoApprover {
        /// The tool.
        tool: String,
    },
    /// The limit `verify_rounds` is set, but there is no verifier.
    #[error("`verify_rounds` needs a verifier: set `AgentBuilder::verifier`")]
    NoVerifier,
    /// The output schema is invalid.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A share of the compaction is out of range.
    #[error("invalid `{setting}` `{share}`: expected {expected}")]
    Share {
        /// The setting.
        setting: &'static str,
        /// The value of the setting.
        share: f64,
        /// A description of the range.
        expected: &'static str,
    },
    /// A cost ceiling is set without a price. Every call would cost nothing, and the ceiling would
    /// never be reached.
    #[error(
        "{ceiling} needs a price, and none is known for `{model}` at this address: set it in US dollars per million tokens with `AgentBuilder::price`"
    )]
    NoPrice {
        /// The ceiling: `max_budget_usd`, or a description of the budget that is shared.
        ceiling: &'static str,
        /// The model.
        model: String,
    },
    /// A cost ceiling is set, and a fallback model has no price.
    #[error(
        "{ceiling} needs a price of each model, and none is known for the fallback `{model}`: remove that fallback, choose one with a known price, or set it with `HttpProviderBuilder::price`"
    )]
    NoFallbackPrice {
        /// The ceiling, as in [`NoPrice`](Self::NoPrice).
        ceiling: &'static str,
        /// The fallback model.
        model: String,
    },
    /// The provider does not take a parameter, or parameters contradict each other.
    #[error(transparent)]
    Params(#[from] ParamError),
}

/// The message, because that is what `fn main() -> Result<(), Box<dyn Error>>` prints.
impl fmt::Debug for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
