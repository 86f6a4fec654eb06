//! A request, the same for every wire format, and the parts that the encoders of the formats share.

use super::decoded::RequestFacts;
use crate::json;
use endstop_core::{Message, MessageId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
    pub output_schema: Option<OutputSchema>,
    /// Assumed context window in tokens. Only sent to servers that must be given it, such as
    /// Ollama.
    pub context_window: Option<u64>,
    /// `true` to request a stream that also reports usage.
    pub stream: bool,
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
pub struct OutputSchema {
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
        }
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

/// The encoded beginning of a body. It ends inside the list of messages, so that more can be added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) out: Vec<u8>,
    /// Offset at which the messages end and the tail of the last call begins.
    end: usize,
    count: usize,
    last: Option<MessageId>,
    epoch: u64,
}

impl Kept {
    /// Removes the tail of the last call and returns the number of messages that are already
    /// encoded, or 0 with an empty buffer if none can be reused.
    pub(crate) fn resume(&mut self, messages: &[Message], epoch: u64) -> usize {
        // The id of the last encoded message is enough to detect another history, because messages
        // do not change within an epoch.
        let same = self.count > 0
            && self.epoch == epoch
            && messages.get(self.count - 1).map(|m| m.id) == self.last;
        if same {
            self.out.truncate(self.end);
        } else {
            self.out.clear();
            self.count = 0;
        }
        self.epoch = epoch;
        self.count
    }

    /// Marks the end of the messages. Everything written afterwards is the tail of this call.
    pub(crate) fn settle(&mut self, messages: &[Message]) {
        self.end = self.out.len();
        self.count = messages.len();
        self.last = messages.last().map(|m| m.id);
    }
}

/// Writes the constant fields of a request, except those that `extra` replaces.
pub(crate) struct Fields<'a> {
    pub(crate) out: Vec<u8>,
    extra: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(spec: &'a RequestSpec) -> Fields<'a> {
        Fields::over(&spec.extra)
    }

    /// Creates a writer whose fields yield to those in `extra`.
    pub(crate) fn over(extra: &'a Map<String, Value>) -> Fields<'a> {
        Fields { out: Vec::new(), extra }
    }

    /// Writes `,"name":` and the value that `write` appends, unless `extra` has that field.
    pub(crate) fn field(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.extra.contains_key(name) {
            self.out.push(b',');
            json::string(&mut self.out, name);
            self.out.push(b':');
            write(&mut self.out);
        }
    }

    /// Writes the extra fields and the closing brace. An extra field cannot replace the history.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        // `messages` and `input` are written by the encoder itself; a second copy would be a
        // duplicate key.
        let history = |name: &str| matches!(name, "messages" | "input");
        for (name, v) in self.extra.iter().filter(|(name, _)| !history(name)) {
            self.out.push(b',');
            json::string(&mut self.out, name);
            self.out.push(b':');
            json::value(&mut self.out, v);
        }
        self.out.push(b'}');
        self.out
    }
}

/// An object inside a request that holds the call's output cap next to constant fields, such as
/// Gemini's `generationConfig` or Ollama's `options`.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    name: &'static str,
    cap_name: &'static str,
    cap: Option<u64>,
    /// `true` if the extra fields already set the cap.
    own_cap: bool,
    /// The fields except the cap, each after a comma, and the closing brace.
    rest: Vec<u8>,
}

impl Settings {
    /// Removes the object with this name from the extra fields and returns it.
    pub(crate) fn own(extra: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
        match extra.remove(name) {
            Some(Value::Object(fields)) => fields,
            // A value that is not an object cannot be merged, so it is dropped in favour of our
            // fields.
            _ => Map::new(),
        }
    }

    /// Creates the object. `cap` applies to calls that do not set their own.
    pub(crate) fn new(
        name: &'static str,
        cap_name: &'static str,
        cap: Option<u64>,
        fields: Fields<'_>,
    ) -> Settings {
        let own_cap = fields.extra.contains_key(cap_name);
        Settings { name, cap_name, cap, own_cap, rest: fields.finish() }
    }

    /// Writes the object, unless it would be empty.
    pub(crate) fn write(&self, out: &mut Vec<u8>, output_cap: Option<u64>) {
        let cap = output_cap.or(self.cap).filter(|_| !self.own_cap);
        if cap.is_none() && self.rest == b"}" {
            return;
        }
        json::key(out, self.name);
        out.push(b'{');
        let rest = match cap {
            Some(cap) => {
                json::key(out, self.cap_name);
                out.extend_from_slice(cap.to_string().as_bytes());
                &self.rest
            }
            // Without the cap the first constant field must not start with its comma.
            None => self.rest.strip_prefix(b",").unwrap_or(&self.rest),
        };
        out.extend_from_slice(rest);
    }
}
