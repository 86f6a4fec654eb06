//! What is asked of a model, the same for every format, and its encoding, which only ever appends.
//!
//! ```
//! use endstop_core::{Message, MessageId, Role};
//! use endstop_wire::{Encoder, RequestSpec, api};
//! let spec = RequestSpec { model: "gpt-5".into(), ..RequestSpec::default() };
//! let mut encoder = Encoder::new(api::OPENAI_CHAT, &spec);
//! let mut messages = vec![Message::text(MessageId(1), Role::User, "Hello")];
//! let first = encoder.body(&messages, 0, Some(256)).to_vec();
//! messages.push(Message::text(MessageId(2), Role::Assistant, "Hi."));
//! let second = encoder.body(&messages, 0, Some(128)); // encodes the new message alone
//! assert!(second.len() > first.len());
//! ```
//!
//! A history is append-only within an epoch: what was encoded stays encoded, and a turn costs its
//! new messages. Another epoch, or a history that is not the old one with more at its end, is
//! encoded anew.

use crate::api::{Dialect, Family};
use crate::decode::RequestFacts;
use crate::{
    anthropic, bedrock_converse, bedrock_invoke, cohere_v2, gemini, json, ollama, openai_chat,
    openai_responses,
};
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

/// Encodes requests of one conversation.
#[derive(Clone, Debug)]
pub enum Encoder {
    /// OpenAI's chat completions.
    OpenAiChat(openai_chat::Encoder),
    /// Anthropic's messages.
    Anthropic(anthropic::Encoder),
    /// Google's `generateContent`.
    Gemini(gemini::Encoder),
    /// OpenAI's Responses.
    OpenAiResponses(openai_responses::Encoder),
    /// Cohere's `/v2/chat`.
    CohereV2(cohere_v2::Encoder),
    /// A format that is only read: nothing is sent.
    ReadOnly,
    /// Ollama's `/api/chat`.
    Ollama(ollama::Encoder),
    /// Bedrock's Converse.
    BedrockConverse(bedrock_converse::Encoder),
    /// Bedrock's InvokeModel, for Anthropic's models.
    BedrockInvoke(bedrock_invoke::Encoder),
}

impl Encoder {
    /// An encoder for this dialect. That of a format that is only read ([`Family::read_only`])
    /// makes empty bodies, which no server takes: look before you ask.
    pub fn new(dialect: &Dialect, spec: &RequestSpec) -> Encoder {
        match dialect.family {
            Family::OpenAiChat => Encoder::OpenAiChat(openai_chat::Encoder::new(dialect, spec)),
            Family::Anthropic => Encoder::Anthropic(match dialect.version_in_body {
                Some(version) => anthropic::Encoder::addressed(spec, version, spec.stream),
                None => anthropic::Encoder::new(spec),
            }),
            Family::Gemini => Encoder::Gemini(gemini::Encoder::new(spec)),
            Family::OpenAiResponses => {
                Encoder::OpenAiResponses(openai_responses::Encoder::new(spec))
            }
            Family::CohereV2 => Encoder::CohereV2(cohere_v2::Encoder::new(spec)),
            Family::CohereV1 => Encoder::ReadOnly,
            Family::Ollama => Encoder::Ollama(ollama::Encoder::new(spec)),
            Family::BedrockConverse => {
                Encoder::BedrockConverse(bedrock_converse::Encoder::new(spec))
            }
            Family::BedrockInvoke => Encoder::BedrockInvoke(bedrock_invoke::Encoder::new(spec)),
        }
    }

    /// The body of the next call. `output_cap` lowers (or raises) the spec's cap for this call.
    pub fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        match self {
            Encoder::OpenAiChat(e) => e.body(messages, epoch, output_cap),
            Encoder::Anthropic(e) => e.body(messages, epoch, output_cap),
            Encoder::Gemini(e) => e.body(messages, epoch, output_cap),
            Encoder::OpenAiResponses(e) => e.body(messages, epoch, output_cap),
            Encoder::CohereV2(e) => e.body(messages, epoch, output_cap),
            Encoder::ReadOnly => &[],
            Encoder::Ollama(e) => e.body(messages, epoch, output_cap),
            Encoder::BedrockConverse(e) => e.body(messages, epoch, output_cap),
            Encoder::BedrockInvoke(e) => e.body(messages, epoch, output_cap),
        }
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
