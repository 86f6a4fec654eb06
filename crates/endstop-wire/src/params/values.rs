//! Values of request parameters, as code, JSON, TOML and flags spell them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The amount of work that a model spends on reasoning. APIs take some of the levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Effort {
    /// No reasoning.
    None,
    /// The least reasoning.
    Minimal,
    /// Little reasoning.
    Low,
    /// The default amount.
    Medium,
    /// Much reasoning.
    High,
    /// More than `High`.
    XHigh,
    /// The most reasoning.
    Max,
}

impl Effort {
    /// Every level, in rising order.
    pub const ALL: [Effort; 7] = [
        Effort::None,
        Effort::Minimal,
        Effort::Low,
        Effort::Medium,
        Effort::High,
        Effort::XHigh,
        Effort::Max,
    ];

    /// Returns the name of the level.
    pub fn as_str(self) -> &'static str {
        match self {
            Effort::None => "none",
            Effort::Minimal => "minimal",
            Effort::Low => "low",
            Effort::Medium => "medium",
            Effort::High => "high",
            Effort::XHigh => "xhigh",
            Effort::Max => "max",
        }
    }

    /// Returns the level with this name.
    pub fn named(name: &str) -> Option<Effort> {
        Effort::ALL.into_iter().find(|effort| effort.as_str() == name)
    }
}

/// Reasoning before the answer: `"off"`, `"adaptive"`, or a number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
#[non_exhaustive]
pub enum Thinking {
    /// No reasoning.
    Off,
    /// The model decides how much.
    Adaptive,
    /// At most this many tokens.
    Budget(u64),
}

impl Thinking {
    /// Parses a flag's value: `off`, `adaptive` or a number of tokens.
    ///
    /// # Errors
    /// The value has another form.
    pub fn parse(text: &str) -> Result<Thinking, InvalidThinking> {
        match (text, text.parse()) {
            ("off", _) => Ok(Thinking::Off),
            ("adaptive", _) => Ok(Thinking::Adaptive),
            (_, Ok(tokens)) if tokens > 0 => Ok(Thinking::Budget(tokens)),
            _ => Err(InvalidThinking),
        }
    }
}

/// The error for a value that is not a [`Thinking`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidThinking;

impl fmt::Display for InvalidThinking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected `off`, `adaptive` or a number of tokens")
    }
}

impl std::error::Error for InvalidThinking {}

impl TryFrom<Value> for Thinking {
    type Error = InvalidThinking;
    fn try_from(value: Value) -> Result<Thinking, InvalidThinking> {
        Thinking::parse(&value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }
}

impl From<Thinking> for Value {
    fn from(thinking: Thinking) -> Value {
        match thinking {
            Thinking::Off => "off".into(),
            Thinking::Adaptive => "adaptive".into(),
            Thinking::Budget(tokens) => tokens.into(),
        }
    }
}

/// The tools that a model may or must call: `auto`, `none`, `required`, or the name of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// No tool.
    None,
    /// At least one tool.
    Required,
    /// This tool.
    Tool(String),
}

impl From<String> for ToolChoice {
    fn from(text: String) -> ToolChoice {
        match text.as_str() {
            "auto" => ToolChoice::Auto,
            "none" => ToolChoice::None,
            "required" => ToolChoice::Required,
            _ => ToolChoice::Tool(text),
        }
    }
}

impl From<ToolChoice> for String {
    fn from(choice: ToolChoice) -> String {
        choice.to_string()
    }
}

impl fmt::Display for ToolChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ToolChoice::Auto => "auto",
            ToolChoice::None => "none",
            ToolChoice::Required => "required",
            ToolChoice::Tool(name) => name,
        })
    }
}
