//! Anthropic decoder: collects stream events, or a complete body, into a turn.

use super::wire::{
    Block, CacheCreation, Delta as WireDelta, Event, Iteration, Message, OutputDetails,
    ServerToolUse, Usage,
};
use crate::bounded::{made_id, noted};
use crate::codec::response::text_frame::TextFrame;
use crate::codec::response::turn::{Accumulate, DeltaSink, Parsed};
use crate::codec::response::turn::{Common, DecodedTurn, NOT_JSON, hide};
use crate::codec::response::{Delta, RequestFacts};
use crate::dialect::WireFormat;
use crate::errors::ErrorBody;
use crate::json::{self, lenient};
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{Part, ToolCall, Usage as TokenUsage};
use serde::de::Error as _;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// A partially received turn.
#[derive(Default)]
pub(crate) struct Accumulator {
    common: Common,
    blocks: Vec<PartialBlock>,
    /// Position in `blocks` of each stream index.
    places: HashMap<u64, usize>,
    calls: usize,
    stop_sequence: Option<String>,
    metadata: Map<String, Value>,
    frame: TextFrame,
    /// Position in `blocks` of the block that an event with this frame continues.
    framed: usize,
    /// Indices of blocks that have ended. Their next start is that of another block.
    ended: HashSet<u64>,
}

/// A partially received content block.
enum PartialBlock {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    ToolUse {
        place: usize,
        id: String,
        name: String,
        /// Input that the block started with.
        input: String,
        /// Input fragments that were streamed afterwards.
        json: String,
        /// The raw block, if server-side code made the call and not the model.
        by_code: Option<String>,
        is_open: bool,
    },
    /// Any other block. Stored as it arrived, with its deltas added.
    Other {
        raw: String,
        json: String,
        deltas: Vec<(&'static str, String)>,
    },
}

impl PartialBlock {
    /// `true` if a start event has the type and the id of this block.
    fn is_started_by(&self, raw: &RawValue) -> bool {
        let Some(block) = lenient::<Block<'_>>(raw) else { return true };
        match self {
            PartialBlock::Text(_) => block.kind.get() == "text",
            PartialBlock::Thinking { .. } => block.kind.get() == "thinking",
            PartialBlock::ToolUse { id, .. } => {
                block.kind.get() == "tool_use" && block.id.get() == id
            }
            PartialBlock::Other { raw: known, .. } => known == raw.get(),
        }
    }
}

impl Accumulator {
    pub(crate) fn new() -> Accumulator {
        let mut a = Accumulator::default();
        // Anthropic does not include cached tokens in `input_tokens`.
        a.common.usage.cache_apart = true;
        a
    }

    fn message(&mut self, m: &Message<'_>) {
        self.common.named(m.model.filled(), m.id.filled());
        if let Some(usage) = m.usage {
            self.usage(usage);
        }
        self.stop(&m.stop_reason, &m.stop_sequence);
        self.note("stop_details", m.stop_details);
        self.note("container", m.container);
        self.note("context_management", m.context_management);
    }

    fn stop(&mut self, reason: &json::Str<'_>, sequence: &json::Str<'_>) {
        if let Some(value) = &reason.0 {
            self.common.finishes(WireFormat::Anthropic, value);
        }
        if let Some(text) = sequence.filled() {
            self.stop_sequence = Some(text.to_owned());
        }
    }

    /// Stores additional facts that the provider sends with the stop reason.
    fn note(&mut self, name: &str, raw: Option<&RawValue>) {
        if let Some(v) = raw.and_then(noted) {
            self.metadata.insert(name.to_owned(), v);
        }
    }

    fn usage(&mut self, raw: &RawValue) {
        let Some(u) = lenient::<Usage<'_>>(raw) else {
            return;
        };
        let apart = |raw: &&RawValue| {
            lenient::<Iteration<'_>>(raw).is_some_and(|step| step.kind.get() != "message")
        };
        let has_iterations = u.iterations.as_ref().is_some_and(|steps| steps.iter().any(apart));
        if has_iterations {
            // The prompt was summarised on the way, so that these counts are those of a shorter one.
            self.common.usage = TokenUsage::default();
        }
        let written = u.cache_creation.and_then(lenient::<CacheCreation>);
        let details = u.output_tokens_details.and_then(lenient::<OutputDetails>);
        self.common.count(&TokenUsage {
            input_tokens: u.input_tokens.0,
            output_tokens: u.output_tokens.0,
            cached_input_tokens: u.cache_read_input_tokens.0,
            cache_write_tokens: u.cache_creation_input_tokens.0,
            cache_write_1h_tokens: written.and_then(|w| w.ephemeral_1h_input_tokens.0),
            reasoning_tokens: details.and_then(|d| d.thinking_tokens.0.or(d.reasoning_tokens.0)),
            ..TokenUsage::default()
        });
        self.bill(&u);
        if has_iterations {
            self.common.bill.apart("iterations");
        }
    }

    /// Notes what the bill has in addition to the tokens
    /// (<https://platform.claude.com/docs/en/about-claude/pricing>).
    fn bill(&mut self, u: &Usage<'_>) {
        let bill = &mut self.common.bill;
        bill.tier(u.service_tier.filled());
        if u.speed.get() == "fast" {
            bill.apart("fast_mode");
        }
        if u.inference_geo.get() == "us" {
            bill.apart("inference_geo");
        }
        let some = |count: json::Count| count.0.is_some_and(|count| count > 0);
        let tools = u.server_tool_use.and_then(lenient::<ServerToolUse>);
        if let Some(tools) = tools {
            if some(tools.web_search_requests) {
                bill.apart("web_search");
            }
            if some(tools.code_execution_requests) {
                bill.apart("code_execution");
            }
        }
    }

    fn start(&mut self, raw: &RawValue, sink: DeltaSink<'_>) -> Option<usize> {
        let block = self.common.read::<Block<'_>>(raw)?;
        if !self.common.room(self.blocks.len()) {
            return None;
        }
        let building = match block.kind.get() {
            "text" => {
                if let Some(text) = block.text.filled() {
                    sink(Delta::Text(text));
                }
                PartialBlock::Text(block.text.get().to_owned())
            }
            "thinking" => {
                if let Some(text) = block.thinking.filled() {
                    sink(Delta::Reasoning(text));
                }
                PartialBlock::Thinking {
                    text: block.thinking.get().to_owned(),
                    signature: block.signature.get().to_owned(),
                }
            }
            "tool_use" if block.name.filled().is_some() => {
                let caller = block.caller.as_ref().map_or("", |c| c.kind.get());
                let place = self.calls;
                self.calls += 1;
                let (id, name) = (block.id.get(), block.name.get());
                sink(Delta::ToolCallStarted { index: place, id, name });
                let input = block.input.map_or("", RawValue::get);
                // A streamed call starts with the input `{}`; `parts` uses it only if no fragments
                // follow.
                PartialBlock::ToolUse {
                    place,
                    id: block.id.get().to_owned(),
                    name: block.name.get().to_owned(),
                    input: if input == "null" { "" } else { input }.to_owned(),
                    json: String::new(),
                    by_code: caller.starts_with("code_execution").then(|| raw.get().to_owned()),
                    is_open: true,
                }
            }
            kind => {
                if kind == "redacted_thinking" {
                    sink(Delta::HiddenReasoning(kind));
                } else {
                    hide(block.name.filled().unwrap_or(kind), sink);
                    // A streamed block starts with the input `{}`.
                    let input = block.input.map(RawValue::get).filter(|input| *input != "{}");
                    hide(input.unwrap_or_default(), sink);
                }
                PartialBlock::Other {
                    raw: raw.get().to_owned(),
                    json: String::new(),
                    deltas: Vec::new(),
                }
            }
        };
        self.blocks.push(building);
        Some(self.blocks.len() - 1)
    }

    /// Handles the start of a block, unless a proxy repeats that of a block which has not ended.
    fn begin(&mut self, index: u64, raw: &RawValue, sink: DeltaSink<'_>) {
        let known = self.places.get(&index).and_then(|place| self.blocks.get(*place));
        let repeats = known.is_some_and(|known| known.is_started_by(raw));
        if repeats && !self.ended.contains(&index) {
            return;
        }
        if let Some(place) = self.start(raw, sink) {
            self.places.insert(index, place);
            self.ended.remove(&index);
            // An event with the frame of the one before may continue another block now.
            self.frame = TextFrame::default();
        }
    }

    /// Handles the end of a block.
    fn end(&mut self, index: u64) {
        self.ended.insert(index);
        let place = self.places.get(&index).copied();
        if let Some(PartialBlock::ToolUse { is_open, .. }) =
            place.and_then(|place| self.blocks.get_mut(place))
        {
            *is_open = false;
        }
    }

    /// Handles arguments of a block that did not begin with a call. They are those of the only open call; otherwise it
    /// is not known whose they are, and the last call must not run without them.
    fn stray(&mut self, more: &str, sink: DeltaSink<'_>) {
        if more.is_empty() {
            return;
        }
        let is_open =
            |block: &PartialBlock| matches!(block, PartialBlock::ToolUse { is_open: true, .. });
        let is_call = |block: &PartialBlock| matches!(block, PartialBlock::ToolUse { .. });
        let mut open = self.blocks.iter().enumerate().filter(|(_, block)| is_open(block));
        let only = open.next().map(|(at, _)| at).filter(|_| open.next().is_none());
        let at = only.or_else(|| self.blocks.iter().rposition(is_call));
        let Some(PartialBlock::ToolUse { json, place, .. }) =
            at.and_then(|at| self.blocks.get_mut(at))
        else {
            return;
        };
        if only.is_none() {
            json.push_str(NOT_JSON);
        }
        json.push_str(more);
        sink(Delta::ToolArguments { index: *place, json: more });
    }

    fn delta(&mut self, index: u64, d: &WireDelta<'_>, sink: DeltaSink<'_>) {
        let fits = |block: &PartialBlock| match d.kind.get() {
            "text_delta" => matches!(block, PartialBlock::Text(_) | PartialBlock::Other { .. }),
            "thinking_delta" => matches!(block, PartialBlock::Thinking { .. }),
            "input_json_delta" => {
                matches!(block, PartialBlock::ToolUse { .. } | PartialBlock::Other { .. })
            }
            _ => true,
        };
        let known = self.places.get(&index).copied();
        let place =
            if let Some(place) = known.filter(|place| self.blocks.get(*place).is_some_and(fits)) {
                place
            } else {
                // A proxy dropped the start of the block, or sends two of them under one index. The type of the deltas
                // tells what it is.
                let start = match d.kind.get() {
                    "text_delta" => PartialBlock::Text(String::new()),
                    "thinking_delta" => {
                        PartialBlock::Thinking { text: String::new(), signature: String::new() }
                    }
                    "input_json_delta" => return self.stray(d.partial_json.get(), sink),
                    _ => return,
                };
                if !self.common.room(self.blocks.len()) {
                    return;
                }
                self.blocks.push(start);
                self.places.insert(index, self.blocks.len() - 1);
                self.blocks.len() - 1
            };
        match (&mut self.blocks[place], d.kind.get()) {
            (PartialBlock::Text(text), "text_delta") => add_text(text, d.text.get(), sink),
            (PartialBlock::Thinking { text, .. }, "thinking_delta") => {
                let more = d.thinking.get();
                if !more.is_empty() {
                    text.push_str(more);
                    sink(Delta::Reasoning(more));
                }
            }
            (PartialBlock::Thinking { signature, .. }, "signature_delta") => {
                signature.push_str(d.signature.get());
            }
            (PartialBlock::ToolUse { json, place, .. }, "input_json_delta") => {
                let more = d.partial_json.get();
                if !more.is_empty() {
                    json.push_str(more);
                    sink(Delta::ToolArguments { index: *place, json: more });
                }
            }
            (PartialBlock::Other { json, .. }, "input_json_delta") => {
                json.push_str(d.partial_json.get());
                hide(d.partial_json.get(), sink);
            }
            (PartialBlock::Other { deltas, .. }, "compaction_delta") => {
                if let Some(raw) = d.content {
                    hide(raw.get(), sink);
                    deltas.push(("content", raw.get().to_owned()));
                }
            }
            (PartialBlock::Other { deltas, .. }, "text_delta") => {
                let mut text = Vec::new();
                json::string(&mut text, d.text.get());
                hide(d.text.get(), sink);
                deltas.extend(String::from_utf8(text).ok().map(|t| ("text", t)));
            }
            (PartialBlock::Other { deltas, .. }, "citations_delta") => {
                if let Some(raw) = d.citation {
                    deltas.push(("citations", raw.get().to_owned()));
                }
            }
            // Citations of the model's own text are not sent back.
            _ => {}
        }
    }

    fn parts(&mut self, finish: Finish) -> Vec<Part> {
        let blocks = std::mem::take(&mut self.blocks);
        let of = self.common.id.as_deref();
        let mut ids = HashSet::new();
        let mut parts = Vec::with_capacity(blocks.len() + 1);
        // The block's position makes generated ids unique within the turn.
        for (n, block) in blocks.into_iter().enumerate() {
            match block {
                PartialBlock::Text(text) => {
                    if !text.is_empty() {
                        parts.push(Part::Text { text });
                    }
                }
                PartialBlock::Thinking { text, signature } => {
                    let mut json = b"{".to_vec();
                    json::key(&mut json, "type");
                    json::string(&mut json, "thinking");
                    json::key(&mut json, "thinking");
                    json::string(&mut json, &text);
                    json::key(&mut json, "signature");
                    json::string(&mut json, &signature);
                    json.push(b'}');
                    if !text.is_empty() {
                        parts.push(Part::Reasoning { text });
                    }
                    // Unsigned thinking, for example of a cut turn or from a proxy, would be
                    // rejected by the API.
                    if !signature.is_empty() {
                        parts.extend(String::from_utf8(json).ok().map(opaque));
                    }
                }
                PartialBlock::ToolUse { id, name, input, json, by_code, .. } => {
                    let arguments = if json.is_empty() { input } else { json };
                    // Unless the turn stopped with `tool_use`, the server runs this call itself and
                    // the client must only send the block back.
                    if let Some(raw) = by_code.filter(|_| finish != Finish::ToolUse) {
                        parts.push(opaque(with_input(&raw, &arguments)));
                        continue;
                    }
                    // The API rejects a conversation with two calls of the same id.
                    let mut id = if id.is_empty() { made_id("toolu_", of, n) } else { id };
                    while !ids.insert(id.clone()) {
                        id = format!("{id}_{n}");
                    }
                    parts.push(Part::ToolCall(ToolCall { id, name, arguments }));
                }
                PartialBlock::Other { raw, json, deltas } => {
                    let raw = if json.is_empty() { raw } else { with_input(&raw, &json) };
                    parts.push(opaque(with_deltas(raw, &deltas)));
                }
            }
        }
        parts
    }
}

impl Accumulate for Accumulator {
    fn event(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) -> Parsed {
        let Some(data) = self.common.event_object(data) else {
            return Ok(());
        };
        if let Some(more) = self.frame.text(data) {
            if let Some(PartialBlock::Text(text)) = self.blocks.get_mut(self.framed) {
                add_text(text, more, sink);
                return Ok(());
            }
        }
        let mut repaired = String::new();
        let event: Event<'_> = json::event(data, &mut repaired)?;
        let kind = event.kind.filled().unwrap_or(name);
        match kind {
            "message_start" => {
                if let Some(m) = event.message.and_then(lenient::<Message<'_>>) {
                    self.message(&m);
                }
            }
            "content_block_start" => {
                if let Some(raw) = event.content_block {
                    self.begin(event.index.0.unwrap_or(0), raw, sink);
                }
            }
            "content_block_stop" => self.end(event.index.0.unwrap_or(0)),
            "content_block_delta" => {
                if let Some(d) = &event.delta {
                    let index = event.index.0.unwrap_or(0);
                    self.delta(index, d, sink);
                    // The name of the event is not part of its frame.
                    let text = d.kind.get() == "text_delta" && event.kind.filled().is_some();
                    self.frame.learn(data, text.then(|| d.text.get()));
                    self.framed = self.places.get(&index).copied().unwrap_or(usize::MAX);
                }
            }
            "message_delta" => {
                if let Some(d) = &event.delta {
                    self.stop(&d.stop_reason, &d.stop_sequence);
                    self.note("stop_details", d.stop_details);
                    self.note("container", d.container);
                }
                if let Some(usage) = event.usage {
                    self.usage(usage);
                }
                self.note("context_management", event.context_management);
            }
            "message_stop" => self.common.terminated = true,
            _ if kind == "error" || json::is_error(event.error) => {
                self.common.fail(|| ErrorBody::read(data));
            }
            // `ping` and event types added in future versions.
            _ => {}
        }
        Ok(())
    }

    fn body(&mut self, text: &str) -> Parsed {
        let mut repaired = String::new();
        let m: Message<'_> = json::event(text, &mut repaired)?;
        self.message(&m);
        if json::is_error(m.error) || m.kind.get() == "error" {
            self.common.fail(|| ErrorBody::read(text));
            return Ok(());
        }
        let Some(blocks) = m.content else {
            return Err(serde_json::Error::custom("`content` is missing"));
        };
        for raw in blocks {
            self.start(raw, &mut |_| ());
        }
        Ok(())
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn conclude(mut self: Box<Self>, _: &RequestFacts) -> (Common, DecodedTurn) {
        let finish = finish_of(WireFormat::Anthropic, self.common.finish.as_deref().unwrap_or(""));
        let parts = self.parts(finish);
        // Record a missing stop sequence explicitly, so that it differs from a natural end.
        if self.stop_sequence.is_none() && finish == Finish::StopSequence {
            self.metadata.insert("stop_sequence".to_owned(), Value::Null);
        }
        let said = DecodedTurn {
            parts,
            finish,
            field: "stop_reason",
            matched_stop: self.stop_sequence.filter(|_| finish == Finish::StopSequence),
            stop_ambiguous: false,
            metadata: self.metadata,
        };
        (self.common, said)
    }
}

fn add_text(text: &mut String, more: &str, sink: DeltaSink<'_>) {
    if !more.is_empty() {
        text.push_str(more);
        sink(Delta::Text(more));
    }
}

fn opaque(json: String) -> Part {
    Part::Opaque { api: WireFormat::Anthropic.as_str().to_owned(), json }
}

/// Returns the block with its streamed input inserted.
fn with_input(raw: &str, input: &str) -> String {
    let (Ok(mut block), Ok(input)) =
        (serde_json::from_str::<Map<String, Value>>(raw), serde_json::from_str::<Value>(input))
    // Input that was cut does not parse. The block is then kept as it was.
    else {
        return raw.to_owned();
    };
    block.insert("input".to_owned(), input);
    Value::Object(block).to_string()
}

/// Returns the block with its deltas applied: strings are joined, lists grow, other fields are
/// replaced.
fn with_deltas(raw: String, deltas: &[(&'static str, String)]) -> String {
    if deltas.is_empty() {
        return raw;
    }
    let Ok(mut block) = serde_json::from_str::<Map<String, Value>>(&raw) else {
        return raw;
    };
    for (key, json) in deltas {
        let Ok(more) = serde_json::from_str::<Value>(json) else {
            continue;
        };
        match (block.get_mut(*key), more) {
            (Some(Value::String(text)), Value::String(more)) => text.push_str(&more),
            (Some(Value::Array(list)), more) => list.push(more),
            (_, more) if *key == "citations" => {
                block.insert((*key).to_owned(), Value::Array(vec![more]));
            }
            (_, more) => {
                block.insert((*key).to_owned(), more);
            }
        }
    }
    Value::Object(block).to_string()
}
