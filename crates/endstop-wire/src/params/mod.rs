//! Request parameters that survive the differences between providers: one set of fields, translated
//! into the fields of each API.
//!
//! ```
//! use endstop_wire::{ModelParams, RequestSpec, dialect};
//! let params = ModelParams { temperature: Some(0.2), seed: Some(7), ..ModelParams::default() };
//! let mut spec = RequestSpec::default();
//! params.apply(dialect::OPENAI_CHAT, &mut spec)?;
//! assert_eq!(spec.extra["seed"], 7);
//! // A parameter that an API does not have is an error and is never dropped.
//! let refused = params.apply(dialect::ANTHROPIC, &mut RequestSpec::default()).unwrap_err();
//! assert!(refused.to_string().starts_with("`seed` is not a parameter of anthropic-messages"));
//! # Ok::<(), endstop_wire::ParamError>(())
//! ```

mod apply;
mod cache;
mod error;
mod output_schema;
mod values;

pub use error::ParamError;
pub use output_schema::check_output_schema;
pub use values::{Effort, InvalidThinking, Thinking, ToolChoice};

use crate::caching::Caching;
use crate::endpoint::Secret;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Parameters of the requests to a model. A field that is not set leaves the provider's default.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelParams {
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Share of the probability mass from which tokens are sampled, above 0 and at most 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Strings at which the model stops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// Seed of the sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Amount of work that the model spends on reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Reasoning before the answer: off, on, or on with a budget of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Tools that the model may or must call. A forced tool is forced in every turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// `false` to allow one tool call per turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// The provider's service tier, for example `flex`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_tier: Option<String>,
    /// `false` to ask the provider not to store the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<bool>,
    /// Use of prompt caches. If it is not set, requests carry what the provider takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Caching>,
    /// Further fields of the request, in the API's own spelling. Objects are merged with those that
    /// the other parameters make.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra: Map<String, Value>,
    /// Additional headers, by name. Their values are secrets: they are not serialized.
    #[serde(skip)]
    pub headers: Vec<(String, Secret)>,
}

impl ModelParams {
    /// `true` if nothing is set.
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty() && self.shown() == Value::Object(Map::new())
    }

    /// Returns these parameters over others: a field that is set here replaces the other one,
    /// `extra` field by field, and a header replaces one of the same name.
    #[must_use]
    pub fn over(&self, base: &ModelParams) -> ModelParams {
        let (own, base) = (self.clone(), base.clone());
        let mut extra = base.extra;
        extra.extend(own.extra);
        let named = |name: &str| own.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        let mut headers: Vec<_> =
            base.headers.into_iter().filter(|(name, _)| !named(name)).collect();
        headers.extend(own.headers.iter().cloned());
        ModelParams {
            temperature: own.temperature.or(base.temperature),
            top_p: own.top_p.or(base.top_p),
            stop: if own.stop.is_empty() { base.stop } else { own.stop },
            seed: own.seed.or(base.seed),
            effort: own.effort.or(base.effort),
            thinking: own.thinking.or(base.thinking),
            tool_choice: own.tool_choice.or(base.tool_choice),
            parallel_tool_calls: own.parallel_tool_calls.or(base.parallel_tool_calls),
            service_tier: own.service_tier.or(base.service_tier),
            store: own.store.or(base.store),
            cache: own.cache.or(base.cache),
            extra,
            headers,
        }
    }

    /// Returns the parameters as JSON, with the names of the headers but without their values.
    pub fn shown(&self) -> Value {
        let mut shown = serde_json::to_value(self).unwrap_or_default();
        if let (false, Some(fields)) = (self.headers.is_empty(), shown.as_object_mut()) {
            let mut names: Vec<String> =
                self.headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
            names.sort();
            fields.insert("headers".to_owned(), json!(names));
        }
        shown
    }

    /// Returns the number of output tokens that are reserved for thinking.
    pub fn thinking_budget(&self) -> Option<u64> {
        match self.thinking {
            Some(Thinking::Budget(tokens)) => Some(tokens),
            _ => None,
        }
    }
}
