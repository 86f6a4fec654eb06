//! Requests: what a client sends ([`RequestSpec`], [`Encoder`](super::Encoder)), and what a server reads of one ([`RequestReader`]).

pub(super) mod body;
pub(super) mod cap;
pub(super) mod content;
pub(super) mod encoder;
pub(super) mod fields;
pub(super) mod history_marks;
pub(super) mod line;
pub(super) mod members;
pub(super) mod parts;
pub(super) mod read;
pub(super) mod tools;

pub use cap::{CapPlace, NoPlaceForCap};
pub use content::unknown_part;
pub use fields::Fields;
pub use members::{Holds, Member, Members};
pub use read::{RequestHead, RequestReader};
pub use tools::tool_of_provider;

use super::response::RequestFacts;
use crate::caching::{CacheKey, CachePlan};
use crate::json;
use endstop_core::Message;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// The encoder of a wire format. Each format's folder implements it.
pub(crate) trait Encode: CloneEncoder + fmt::Debug + Send + Sync {
    /// Returns the body of the next call.
    fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8];
    /// Returns the bytes of the last body.
    fn bytes(&mut self) -> &mut Vec<u8>;
}

/// Copies an encoder.
pub(crate) trait CloneEncoder {
    fn copied(&self) -> Box<dyn Encode>;
}

impl<T: Encode + Clone + 'static> CloneEncoder for T {
    fn copied(&self) -> Box<dyn Encode> {
        Box::new(self.clone())
    }
}

/// The parts of a request that stay the same from turn to turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestSpec {
    /// Name of the model.
    pub model: String,
    /// System instructions.
    pub system: Option<String>,
    /// Tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// Default output cap in tokens. A single call can override it.
    pub max_output_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Stop strings.
    pub stop: Vec<String>,
    /// JSON Schema that the final answer must satisfy.
    pub output_schema: Option<NamedSchema>,
    /// Assumed context window in tokens. Only sent to servers that must be given it, such as
    /// Ollama.
    pub context_window: Option<u64>,
    /// `true` to request a stream that also reports usage.
    pub stream: bool,
    /// The marks and the key for prompt caching.
    pub cache: CachePlan,
    /// Additional request fields. They take precedence over fields made from the members above.
    pub extra: Map<String, Value>,
}

/// A tool as it is described to the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolDefinition {
    /// Name of the tool.
    pub name: String,
    /// Description of the tool's purpose.
    pub description: String,
    /// JSON Schema of the arguments.
    pub schema: Value,
}

/// The schema of a structured answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamedSchema {
    /// Name of the schema, which OpenAI requires.
    pub name: String,
    /// The JSON Schema itself.
    pub schema: Value,
}

impl RequestSpec {
    /// Returns the facts about the request that decoding its response needs.
    pub fn facts(&self, output_cap: Option<u64>) -> RequestFacts {
        RequestFacts {
            stop_strings: !self.stop.is_empty(),
            output_cap: output_cap.or(self.max_output_tokens),
            cached_for_hour: self.cache.marks.is_some_and(|marks| marks.hour),
            has_alternatives: self.extra.get("n").is_some_and(asks_for_several),
        }
    }

    /// Returns the conversation's key for a provider that takes one.
    pub(crate) fn cache_key(&self) -> Option<CacheKey> {
        let tools = self.tools.iter().map(|tool| tool.name.as_str());
        self.cache.key.then(|| CacheKey::new(self.system.as_deref().into_iter().chain(tools)))
    }

    /// Returns the system instructions, or an empty string if there are none. If `schema_in_words`
    /// is set, appends the answer's schema as a sentence, for formats whose schema field is not
    /// shown to the model.
    pub(crate) fn instructions(&self, schema_in_words: bool) -> String {
        let mut system = self.system.clone().filter(|s| !s.trim().is_empty()).unwrap_or_default();
        if let (Some(schema), true) = (&self.output_schema, schema_in_words) {
            if !system.is_empty() {
                system.push_str("\n\n");
            }
            system.push_str("Your final answer is JSON alone that satisfies this JSON Schema: ");
            system.push_str(&schema.schema.to_string());
        }
        system
    }
}

/// `true` if this value of `n` asks for more than one choice.
pub(crate) fn asks_for_several(n: &Value) -> bool {
    n.as_u64().is_some_and(|n| n > 1)
}

impl NamedSchema {
    /// Writes the name, which OpenAI requires, and the schema.
    pub(crate) fn fields(&self, out: &mut Vec<u8>) {
        json::key(out, "name");
        json::string(out, if self.name.is_empty() { "answer" } else { &self.name });
        json::key(out, "schema");
        json::value(out, &self.schema);
    }
}

impl ToolDefinition {
    /// Writes the name and, unless it is empty, the description.
    pub(crate) fn name_fields(&self, out: &mut Vec<u8>) {
        json::key(out, "name");
        json::string(out, &self.name);
        if !self.description.is_empty() {
            json::key(out, "description");
            json::string(out, &self.description);
        }
    }

    /// Writes the name, the description and, under the key `schema`, the parameters. The parameters
    /// are always an object.
    pub(crate) fn fields(&self, out: &mut Vec<u8>, schema: &str) {
        self.name_fields(out);
        json::key(out, schema);
        self.schema(out);
    }

    /// Writes the parameters, as an empty object schema if the tool has none.
    pub(crate) fn schema(&self, out: &mut Vec<u8>) {
        match &self.schema {
            // Providers require an object schema even for a tool that takes no arguments.
            Value::Null => out.extend_from_slice(br#"{"type":"object","properties":{}}"#),
            parameters => json::value(out, parameters),
        }
    }
}
