//! A request, the same for every wire format, and the parts that the encoders of the formats share.

use super::decoded::RequestFacts;
use crate::json;
use endstop_core::{Message, MessageId};
use serde_json::{Map, Value};

/// What stays the same from turn to turn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestSpec {
    /// The model's name.
    pub model: String,
    /// The instructions.
    pub system: Option<String>,
    /// The tools that the model may ask for.
    pub tools: Vec<ToolSpec>,
    /// The output cap, unless a call lowers it.
    pub max_output_tokens: Option<u64>,
    /// The temperature.
    pub temperature: Option<f64>,
    /// Stop strings.
    pub stop: Vec<String>,
    /// The schema that the answer must satisfy.
    pub output_schema: Option<OutputSchema>,
    /// The context window that is reckoned with, in tokens: sent where a server has to be told of
    /// it (Ollama).
    pub context_window: Option<u64>,
    /// Whether to ask for a stream (with its usage).
    pub stream: bool,
    /// More fields of the request; one that is also made from the fields above replaces it.
    pub extra: Map<String, Value>,
}

/// A tool, as the model is told of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub parameters: Value,
}

/// The schema of a structured answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputSchema {
    /// Its name (OpenAI wants one).
    pub name: String,
    /// The JSON Schema.
    pub schema: Value,
}

impl RequestSpec {
    /// What decoding the answer needs to know.
    pub fn facts(&self, output_cap: Option<u64>) -> RequestFacts {
        RequestFacts {
            stop_strings: !self.stop.is_empty(),
            output_cap: output_cap.or(self.max_output_tokens),
        }
    }

    /// The instructions, empty where there are none; with the schema of the answer in words where
    /// the format's field for it does not say it to the model.
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

impl ToolSpec {
    /// Writes the name and the description.
    pub(crate) fn name_fields(&self, out: &mut Vec<u8>) {
        json::key(out, "name");
        json::string(out, &self.name);
        if !self.description.is_empty() {
            json::key(out, "description");
            json::string(out, &self.description);
        }
    }

    /// Writes the name, the description and, as `schema`, the parameters: an object also where
    /// there are none.
    pub(crate) fn fields(&self, out: &mut Vec<u8>, schema: &str) {
        self.name_fields(out);
        json::key(out, schema);
        self.schema(out);
    }

    /// Writes the parameters: an object also where there are none.
    pub(crate) fn schema(&self, out: &mut Vec<u8>) {
        match &self.parameters {
            Value::Null => out.extend_from_slice(br#"{"type":"object","properties":{}}"#),
            parameters => json::value(out, parameters),
        }
    }
}

/// What was encoded so far: the beginning of a body, which ends inside its list of messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) out: Vec<u8>,
    /// Where the messages end and the tail of the last call begins.
    end: usize,
    count: usize,
    last: Option<MessageId>,
    epoch: u64,
}

impl Kept {
    /// Cuts the tail of the last call off and returns how many messages are encoded already;
    /// 0 with an empty buffer where nothing can be kept.
    pub(crate) fn resume(&mut self, messages: &[Message], epoch: u64) -> usize {
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

    /// The messages end here; what follows is the tail of this call.
    pub(crate) fn settle(&mut self, messages: &[Message]) {
        self.end = self.out.len();
        self.count = messages.len();
        self.last = messages.last().map(|m| m.id);
    }
}

/// Writes the fields of a request that do not change, unless `extra` replaces them.
pub(crate) struct Fields<'a> {
    pub(crate) out: Vec<u8>,
    extra: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(spec: &'a RequestSpec) -> Fields<'a> {
        Fields::over(&spec.extra)
    }

    /// Fields that these replace.
    pub(crate) fn over(extra: &'a Map<String, Value>) -> Fields<'a> {
        Fields { out: Vec::new(), extra }
    }

    /// `,"name":` and what `write` puts after it.
    pub(crate) fn field(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.extra.contains_key(name) {
            self.out.push(b',');
            json::string(&mut self.out, name);
            self.out.push(b':');
            write(&mut self.out);
        }
    }

    /// The extra fields, and the end. The history is never one of them.
    pub(crate) fn finish(mut self) -> Vec<u8> {
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

/// An object among the fields of a request that holds the call's output cap beside what does not
/// change: `generationConfig`, `options`.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    name: &'static str,
    cap_name: &'static str,
    cap: Option<u64>,
    /// The extra fields set the cap.
    own_cap: bool,
    /// The fields but the cap, each after a comma, and the end.
    rest: Vec<u8>,
}

impl Settings {
    /// Takes the object of this name out of the extra fields.
    pub(crate) fn own(extra: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
        match extra.remove(name) {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }

    /// The object of these fields; `cap` is that of a call that has none of its own.
    pub(crate) fn new(
        name: &'static str,
        cap_name: &'static str,
        cap: Option<u64>,
        fields: Fields<'_>,
    ) -> Settings {
        let own_cap = fields.extra.contains_key(cap_name);
        Settings { name, cap_name, cap, own_cap, rest: fields.finish() }
    }

    /// Writes it, unless it would be empty.
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
            None => self.rest.strip_prefix(b",").unwrap_or(&self.rest),
        };
        out.extend_from_slice(rest);
    }
}
