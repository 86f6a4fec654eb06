//! The decision that ended a run: the layer, the decision by name, and the evidence.
//!
//! ```
//! use endstop_core::{DecidedBy, Decision, Layer, Limit};
//! let text = r#"{"layer":"limit","name":"max_turns","evidence":"25 of 25 turns"}"#;
//! let by: DecidedBy = serde_json::from_str(text)?;
//! assert_eq!(by.decision, Decision::Limit(Limit::MaxTurns));
//! assert_eq!(serde_json::to_string(&by)?, text);
//! // A policy of the same name is not the limit.
//! assert_eq!(Decision::of(Layer::Policy, "max_turns"), Decision::Custom("max_turns".into()));
//! # Ok::<(), serde_json::Error>(())
//! ```

use crate::error_class::ErrorClass;
use crate::limits::Limit;
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// The component that ended a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Layer {
    /// The model's own signal, or the content of its turn.
    Turn,
    /// A termination policy or a watch rule.
    Policy,
    /// A tool, including `finish`.
    Tool,
    /// A hook.
    Hook,
    /// A limit.
    Limit,
    /// The provider.
    Provider,
    /// The caller, by a cancel or a terminate, or a guest whose loop ended.
    Caller,
    /// A fault of this program or of code that it was given.
    #[default]
    Fault,
}

impl Layer {
    /// The layer's name in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Layer::Turn => "turn",
            Layer::Policy => "policy",
            Layer::Tool => "tool",
            Layer::Hook => "hook",
            Layer::Limit => "limit",
            Layer::Provider => "provider",
            Layer::Caller => "caller",
            Layer::Fault => "fault",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

macro_rules! decisions {
    ($($layer:ident { $(#[doc = $doc:literal] $variant:ident = $name:literal,)* })*) => {
        /// The rule that ended a run.
        ///
        /// A name means a decision of the kernel only in the layer of that decision, so a tool or a
        /// policy called `timeout` is [`Custom`](Decision::Custom).
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Decision {
            $($(#[doc = $doc] $variant,)*)*
            /// A limit of the run ([`Layer::Limit`]).
            Limit(Limit),
            /// The model call failed with this class of error ([`Layer::Provider`]).
            CallFailed(ErrorClass),
            /// A policy, a watch rule, a tool, or other code that the kernel was given, by name.
            Custom(String),
        }

        impl Decision {
            /// Returns the decision that a name means in a layer.
            pub fn of(layer: Layer, name: impl Into<String>) -> Decision {
                let name = name.into();
                match (layer, name.as_str()) {
                    $($((Layer::$layer, $name) => Decision::$variant,)*)*
                    (Layer::Limit, limit) => {
                        Limit::of(limit).map_or(Decision::Custom(name), Decision::Limit)
                    }
                    (Layer::Provider, class) => {
                        let class = ErrorClass::ALL.iter().find(|known| known.as_str() == class);
                        class.map_or(Decision::Custom(name), |class| Decision::CallFailed(*class))
                    }
                    _ => Decision::Custom(name),
                }
            }

            /// Returns the layer, the name and the meaning of each decision that is not a limit, an error of a provider or
            /// code that the kernel was given.
            pub fn named() -> impl Iterator<Item = (Layer, &'static str, &'static str)> {
                [$($((Layer::$layer, $name, $doc.trim_ascii()),)*)*].into_iter()
            }

            /// The decision's name in JSON.
            pub fn as_str(&self) -> &str {
                match self {
                    $($(Decision::$variant => $name,)*)*
                    Decision::Limit(limit) => limit.name(),
                    Decision::CallFailed(class) => class.as_str(),
                    Decision::Custom(name) => name,
                }
            }
        }
    };
}

decisions! {
    Turn {
        /// The model answered in text, and its signal says that the answer is complete.
        NaturalCompletion = "natural_completion",
        /// The output limit cut the answer.
        TokenLimitReached = "token_limit_reached",
        /// A refusal or a filter.
        ContentFiltered = "content_filtered",
        /// The provider's finish value is not known.
        UnknownFinish = "unknown_finish",
        /// The turn's tool calls could not be parsed, or were lost.
        ToolCalls = "tool_calls",
        /// The provider paused too often in a row.
        Paused = "paused",
        /// Reasoning used the whole output budget.
        ThinkingStarved = "thinking_starved",
    }
    Tool {
        /// The tool `finish`.
        Finish = "finish",
    }
    Hook {
        /// The prompt hook.
        PromptHook = "prompt",
        /// The hook before a turn.
        PreIterationHook = "pre_iteration",
        /// The hook for the parameters of a call.
        ChatParamsHook = "chat_params",
        /// The hook that sees a request before it is sent.
        PreCallHook = "pre_call",
        /// The hook before a tool call.
        PreToolHook = "pre_tool",
        /// The hook after a tool call.
        PostToolHook = "post_tool",
        /// The approval prompt of a tool call.
        Approval = "approval",
        /// The hook that may reply to an answer.
        ReplyHook = "reply",
        /// The hook that may veto a success.
        StopHook = "stop",
    }
    Limit {
        /// A ceiling that several runs share.
        SharedBudget = "shared_budget",
        /// A compaction failed, and the prompt does not fit without it.
        Compaction = "compaction",
        /// The cost of the next call has no known price, so a ceiling on cost could not be kept.
        UnknownPrice = "unknown_price",
    }
    Caller {
        /// A cancel.
        Cancel = "cancel",
        /// A terminate.
        Terminate = "terminate",
        /// The loop of a guest ended before the run did.
        Closed = "closed",
        /// The loop of a guest ended, and none of its calls had been asked for. Its owner decides that.
        NoCall = "no_call",
        /// The owner of a guest refused its last call, and the loop ended.
        Refused = "refused",
    }
    Fault {
        /// The driver of the run.
        Driver = "driver",
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Decision {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The decision that ended a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written")]
pub struct DecidedBy {
    /// The deciding component.
    pub layer: Layer,
    /// The rule, policy, tool or limit; its name is `name` in JSON.
    #[serde(rename = "name")]
    pub decision: Decision,
    /// The facts behind the decision, as a sentence for people.
    pub evidence: String,
}

/// Formats the decision and its evidence in one sentence, for people.
impl fmt::Display for DecidedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.layer, self.decision)?;
        if self.evidence.is_empty() { Ok(()) } else { write!(f, ": {}", self.evidence) }
    }
}

/// A decision as JSON contains it. The layer must be known before the name can be read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Written {
    layer: Layer,
    name: String,
    evidence: String,
}

impl From<Written> for DecidedBy {
    fn from(written: Written) -> DecidedBy {
        let Written { layer, name, evidence } = written;
        DecidedBy { layer, decision: Decision::of(layer, name), evidence }
    }
}
