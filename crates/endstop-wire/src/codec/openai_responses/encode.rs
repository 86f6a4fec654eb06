//! OpenAI Responses encoder: turns a conversation into a Responses request.
//!
//! Structured output is sent as `text.format` of type `json_schema`. The API has no stop strings,
//! so they are omitted. The whole history is sent with every request. Reasoning is sent back as the
//! original items, which the server has stored. A caller who disables storage with `store: false`
//! in the extra fields must also request `include: ["reasoning.encrypted_content"]`; reasoning
//! without that content is then omitted, because the server would not know it.

use super::items::{Answer, answer_of, call_id, input_file, input_image, write_answer};
use super::wire::{Item, filled};
use crate::caching::CacheKey;
use crate::codec::request::body::{Fields, Kept};
use crate::codec::request::{Encode, RequestSpec};
use crate::dialect::WireFormat;
use crate::json;
use crate::media::MediaSupport;
use endstop_core::{Message, Part, Role, ToolCall};
use serde_json::Value;
use std::collections::HashMap;

/// Encodes the requests of one conversation.
#[derive(Clone, Debug)]
pub(crate) struct Encoder {
    kept: Kept,
    /// Calls that require another result type than a plain function's, with their `caller` field.
    special: HashMap<String, (Answer, Option<String>)>,
    own_cap: bool,
    /// `true` if the server stores its responses.
    stores: bool,
    media: MediaSupport,
    cap: Option<u64>,
    cache_key: Option<CacheKey>,
    tail: Vec<u8>,
}

impl Encoder {
    /// Creates an encoder for this spec.
    pub(crate) fn new(spec: &RequestSpec) -> Encoder {
        Encoder {
            kept: Kept::default(),
            special: HashMap::new(),
            own_cap: spec.extra.contains_key("max_output_tokens"),
            stores: spec.extra.get("store") != Some(&Value::Bool(false)),
            media: MediaSupport::of_format(WireFormat::OpenAiResponses, &spec.model),
            cap: spec.max_output_tokens,
            cache_key: spec.cache_key(),
            tail: tail(spec),
        }
    }
}

impl Encode for Encoder {
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.kept.out
    }

    fn body(&mut self, messages: &[Message], epoch: u64, output_cap: Option<u64>) -> &[u8] {
        let from = self.kept.resume(messages, epoch);
        if from == 0 {
            self.kept.out.extend_from_slice(b"{\"input\":[");
            self.special.clear();
            self.cache_key.iter_mut().for_each(CacheKey::clear);
        }
        for m in &messages[from..] {
            let begin = self.kept.out.len();
            self.message(&self.media.lower(m));
            if let Some(key) = &mut self.cache_key {
                key.read(m.role, &self.kept.out[begin..]);
            }
        }
        self.kept.settle(messages);
        let out = &mut self.kept.out;
        out.push(b']');
        if let (false, Some(cap)) = (self.own_cap, output_cap.or(self.cap)) {
            json::key(out, "max_output_tokens");
            out.extend_from_slice(cap.to_string().as_bytes());
        }
        if let Some(key) = self.cache_key.as_ref().and_then(CacheKey::get) {
            json::key(out, "prompt_cache_key");
            json::string(out, key);
        }
        out.extend_from_slice(&self.tail);
        &self.kept.out
    }
}

impl Encoder {
    fn message(&mut self, m: &Message) {
        // Results come first because they answer the previous turn.
        for part in &m.parts {
            if let Part::ToolResult(result) = part {
                let special = self.special.get(&result.call_id);
                let (answer, caller) = special
                    .map_or((Answer::Function, None), |(answer, caller)| {
                        (*answer, caller.as_deref())
                    });
                json::comma(&mut self.kept.out);
                write_answer(&mut self.kept.out, result, answer, caller);
            }
        }
        let mut rest = m.parts.as_slice();
        // Fields for the next message, from its mark.
        let mut mark = None;
        while let Some(part) = rest.first() {
            let run = rest.iter().take_while(|p| is_said(p)).count();
            if run > 0 {
                said(&mut self.kept.out, m.role, &rest[..run], mark);
            }
            rest = &rest[run.max(1)..];
            mark = None;
            match part {
                Part::ToolCall(call) => function_call(&mut self.kept.out, call, None),
                Part::Opaque { api, json } if api == WireFormat::OpenAiResponses.as_str() => {
                    let json = json.trim();
                    let item = serde_json::from_str::<Item<'_>>(json).ok();
                    // serde would read a list as the struct's fields in their order.
                    let Some(item) = item.filter(|_| json.starts_with('{')) else {
                        continue;
                    };
                    let waits = match rest.first() {
                        Some(Part::ToolCall(call)) => Some(call).filter(|c| c.id == call_id(&item)),
                        _ => None,
                    };
                    let answer = answer_of(item.kind.get());
                    let caller = filled(item.caller).map(|caller| caller.get().to_owned());
                    let special = answer.filter(|a| *a != Answer::Function || caller.is_some());
                    if let (Some(call), Some(answer)) = (waits, special) {
                        // Remember how this call must be answered; its result comes in a later
                        // message.
                        self.special.insert(call.id.clone(), (answer, caller));
                    }
                    let out = &mut self.kept.out;
                    match (item.kind.get(), waits, answer) {
                        ("", ..) => {}
                        ("message", ..) => mark = Some(json),
                        (_, Some(call), Some(Answer::Function)) => {
                            function_call(out, call, Some(json));
                            rest = &rest[1..];
                        }
                        // The call that this mark belongs to was dropped from the history.
                        ("function_call", ..) => {}
                        ("reasoning", ..)
                            if !self.stores && item.encrypted_content.get().is_empty() => {}
                        (_, waits, answer) => {
                            json::comma(out);
                            out.extend_from_slice(json.as_bytes());
                            // The raw item already contains the call, so skip the part that repeats
                            // it.
                            if waits.is_some() && answer.is_some() {
                                rest = &rest[1..];
                            }
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

/// Writes a function call with its original fields, or with its id only.
fn function_call(out: &mut Vec<u8>, call: &ToolCall, mark: Option<&str>) {
    json::comma(out);
    if let Some(mark) = mark {
        out.extend_from_slice(open(mark).as_bytes());
    } else {
        out.extend_from_slice(b"{\"type\":\"function_call\",\"call_id\":");
        json::string(out, &call.id);
    }
    json::key(out, "name");
    json::called(out, &call.name);
    json::key(out, "arguments");
    json::arguments_text(out, &call.arguments);
    out.push(b'}');
}

fn tail(spec: &RequestSpec) -> Vec<u8> {
    let mut fields = Fields::new(spec);
    fields.field("model", |out| json::string(out, &spec.model));
    if let Some(system) = spec.system.as_ref().filter(|s| !s.is_empty()) {
        fields.field("instructions", |out| json::string(out, system));
    }
    // If `strict` is omitted, the API converts the schema into a strict one.
    let (open, close) = (b"{\"type\":\"function\"", b",\"strict\":false}");
    fields.tools(&spec.tools, open, "parameters", close);
    if let Some(t) = spec.temperature {
        fields.field("temperature", |out| json::value(out, &t));
    }
    if let Some(schema) = &spec.output_schema {
        fields.field("text", |out| {
            out.extend_from_slice(b"{\"format\":{\"type\":\"json_schema\"");
            schema.fields(out);
            out.extend_from_slice(b"}}");
        });
    }
    if spec.stream {
        fields.field("stream", |out| out.extend_from_slice(b"true"));
    }
    fields.finish()
}

/// `true` for a part that belongs into a message's content.
fn is_said(part: &Part) -> bool {
    match part {
        Part::Text { text } | Part::Refusal { text } => !text.is_empty(),
        Part::Image(_) | Part::Document(_) => true,
        _ => false,
    }
}

/// Writes a message with its original fields, or with its role only.
fn said(out: &mut Vec<u8>, role: Role, parts: &[Part], mark: Option<&str>) {
    let assistant = role == Role::Assistant;
    json::comma(out);
    match mark {
        Some(mark) => out.extend_from_slice(open(mark).as_bytes()),
        None => out.extend_from_slice(b"{\"type\":\"message\""),
    }
    json::key(out, "role");
    json::string(
        out,
        match role {
            Role::System => "system",
            Role::Assistant => "assistant",
            Role::User | Role::Tool => "user",
        },
    );
    json::key(out, "content");
    // Every server accepts the plain form, so prefer it.
    if mark.is_none() && parts.iter().all(|p| matches!(p, Part::Text { .. })) {
        out.push(b'"');
        for part in parts {
            if let Part::Text { text } = part {
                json::escaped(out, text);
            }
        }
        return out.extend_from_slice(b"\"}");
    }
    out.push(b'[');
    for part in parts {
        match part {
            Part::Refusal { text } if assistant => {
                json::comma(out);
                out.extend_from_slice(b"{\"type\":\"refusal\",\"refusal\":");
                json::string(out, text);
                out.push(b'}');
            }
            Part::Text { text } | Part::Refusal { text } => {
                json::comma(out);
                out.extend_from_slice(if assistant {
                    b"{\"type\":\"output_text\",\"annotations\":[],\"text\":".as_slice()
                } else {
                    b"{\"type\":\"input_text\",\"text\":"
                });
                json::string(out, text);
                out.push(b'}');
            }
            // Images by the model are separate items, so they are not repeated here.
            Part::Image(image) if !assistant => {
                json::comma(out);
                input_image(out, image);
            }
            Part::Document(document) if !assistant => {
                json::comma(out);
                input_file(out, document);
            }
            _ => {}
        }
    }
    out.extend_from_slice(b"]}");
}

/// Returns the JSON object without its closing brace.
fn open(json: &str) -> &str {
    json.strip_suffix('}').unwrap_or(json)
}
