//! Bedrock Converse decoder: collects a stream's messages, or a complete body, into a turn.

use super::wire::{
    Block, CacheDetail, Delta as WireDelta, Event, Object, PerformanceConfig, ReasoningDelta,
    ServiceTier, Start, ToolUse, Usage,
};
use crate::bounded::{List, noted};
use crate::codec::response::turn::{Accumulate, DeltaSink, Parsed};
use crate::codec::response::turn::{Common, DecodedTurn, NOT_JSON, hide};
use crate::codec::response::{Delta, RequestFacts};
use crate::dialect::WireFormat;
use crate::errors::ErrorBody;
use crate::json::{self, lenient};
use crate::signal::finish::{Finish, finish_of};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop_core::{Part, ToolCall, Usage as TokenUsage};
use serde::de::Error as _;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// Name of the field that carries the finish value.
const FINISH: &str = "stopReason";

/// A partially received turn.
#[derive(Default)]
pub(crate) struct Accumulator {
    common: Common,
    blocks: Vec<PartialBlock>,
    /// Position in `blocks` of each stream index.
    places: HashMap<u64, usize>,
    calls: usize,
    /// `true` once `messageStop` arrived. `measured` is the same for `metadata`; either may be
    /// last.
    stopped: bool,
    measured: bool,
    matched_stop: Option<String>,
    metadata: Map<String, Value>,
    /// Indices of blocks that have ended. Their next start or delta is that of another block.
    ended: HashSet<u64>,
}

/// A partially received content block.
enum PartialBlock {
    Text(String),
    Reasoning {
        text: String,
        signature: String,
        /// Base64 fragments.
        redacted: Vec<String>,
    },
    ToolUse {
        place: Option<usize>,
        id: String,
        name: String,
        input: String,
        is_open: bool,
    },
    /// A tool call that the server runs itself: the block's start, and the input streamed
    /// afterwards.
    ServerToolUse {
        start: String,
        input: String,
    },
    ServerToolResult {
        start: String,
        content: Vec<String>,
    },
    /// A complete block, stored as it arrived.
    Whole(String),
}

impl Accumulator {
    pub(crate) fn new() -> Accumulator {
        let mut a = Accumulator::default();
        // Converse does not include cached tokens in `inputTokens`.
        a.common.usage.cache_apart = true;
        a
    }

    fn stop(&mut self, reason: &json::Str<'_>) {
        if let Some(value) = &reason.0 {
            self.common.finishes(WireFormat::BedrockConverse, value);
        }
    }

    /// Stores additional facts that come with the stop reason.
    fn note(&mut self, name: &str, raw: Option<&RawValue>) {
        if let Some(v) = raw.and_then(noted) {
            // Anthropic models report the matched stop string inside these additional fields.
            if let Some(text) = v.get("stop_sequence").and_then(Value::as_str) {
                self.matched_stop = Some(text.to_owned());
            }
            self.metadata.insert(name.to_owned(), v);
        }
    }

    fn usage(&mut self, raw: Option<&RawValue>) {
        let Some(u) = raw.and_then(lenient::<Usage<'_>>) else {
            return;
        };
        let details = u.cache_details.and_then(lenient::<List<CacheDetail<'_>>>);
        let for_hour = details.and_then(|all| {
            all.iter().find(|detail| detail.ttl.get() == "1h").and_then(|detail| detail.input.0)
        });
        self.common.count(&TokenUsage {
            input_tokens: u.input.0,
            output_tokens: u.output.0,
            cached_input_tokens: u.cache_read.0,
            cache_write_tokens: u.cache_write.0,
            cache_write_1h_tokens: for_hour,
            ..TokenUsage::default()
        });
    }

    /// Notes what the bill has in addition to the tokens.
    fn bill(&mut self, tier: Option<&RawValue>, performance: Option<&RawValue>) {
        let tier = tier.and_then(lenient::<ServiceTier<'_>>);
        self.common.bill.tier(tier.as_ref().and_then(|tier| tier.kind.filled()));
        let performance = performance.and_then(lenient::<PerformanceConfig<'_>>);
        if performance.is_some_and(|it| it.latency.get() == "optimized") {
            self.common.bill.apart("latency_optimized");
        }
    }

    /// Handles one message of a stream by its type. Unknown types are ignored.
    fn take(&mut self, kind: &str, event: &Event<'_>, sink: DeltaSink<'_>) {
        let index = event.content_block_index.0.unwrap_or(0);
        match kind {
            "contentBlockStart" => {
                let start = event.start.as_ref().filter(|start| !self.repeats(index, start));
                if let Some(start) = start {
                    self.start(index, start, sink);
                }
            }
            "contentBlockStop" => self.end(index),
            "contentBlockDelta" => {
                if let Some(delta) = &event.delta {
                    self.delta(index, delta, sink);
                }
            }
            "messageStop" => {
                self.stopped = true;
                self.stop(&event.stop_reason);
                let more = event.additional_model_response_fields;
                self.note("additionalModelResponseFields", more);
            }
            "metadata" => {
                self.measured = true;
                self.usage(event.usage);
                self.bill(event.service_tier, event.performance_config);
                self.note("trace", event.trace);
            }
            _ => {}
        }
        // Wait for both, because the finish value is in `messageStop` and the usage in `metadata`.
        self.common.terminated = self.stopped && self.measured;
    }

    /// `true` if a start is that of a block which has not ended.
    fn repeats(&self, index: u64, start: &Start<'_>) -> bool {
        let known = self.places.get(&index).and_then(|place| self.blocks.get(*place));
        let Some(known) = known.filter(|_| !self.ended.contains(&index)) else { return false };
        match (known, start.tool_use.and_then(lenient::<ToolUse<'_>>)) {
            (PartialBlock::ToolUse { id, .. }, Some(call)) => call.id.get() == id,
            (PartialBlock::ServerToolUse { .. }, Some(_))
            | (PartialBlock::ServerToolResult { .. }, None) => true,
            _ => false,
        }
    }

    fn end(&mut self, index: u64) {
        self.ended.insert(index);
        let place = self.places.get(&index).copied();
        if let Some(PartialBlock::ToolUse { is_open, .. }) =
            place.and_then(|place| self.blocks.get_mut(place))
        {
            *is_open = false;
        }
    }

    /// Handles input of a block that did not begin with a call. It is that of the only open call; otherwise it is not
    /// known whose it is, and the last call must not run without it.
    fn stray(&mut self, more: &str, sink: DeltaSink<'_>) {
        if more.is_empty() {
            return;
        }
        // A call without a name is a placeholder.
        let is_open = |block: &PartialBlock| {
            matches!(block, PartialBlock::ToolUse { place: Some(_), is_open: true, .. })
        };
        let is_call =
            |block: &PartialBlock| matches!(block, PartialBlock::ToolUse { place: Some(_), .. });
        let mut open = self.blocks.iter().enumerate().filter(|(_, block)| is_open(block));
        let only = open.next().map(|(at, _)| at).filter(|_| open.next().is_none());
        let at = only.or_else(|| self.blocks.iter().rposition(is_call));
        let Some(PartialBlock::ToolUse { input, place, .. }) =
            at.and_then(|at| self.blocks.get_mut(at))
        else {
            return;
        };
        if only.is_none() {
            input.push_str(NOT_JSON);
        }
        input.push_str(more);
        if let Some(index) = *place {
            sink(Delta::ToolArguments { index, json: more });
        }
    }

    fn start(&mut self, index: u64, start: &Start<'_>, sink: DeltaSink<'_>) {
        if !self.common.room(self.blocks.len()) {
            return;
        }
        if let Some(raw) = start.tool_use {
            self.tool_use(raw, sink);
        } else if let Some(raw) = start.tool_result {
            let start = raw.get().to_owned();
            hide("toolResult", sink);
            self.blocks.push(PartialBlock::ServerToolResult { start, content: Vec::new() });
        } else {
            return;
        }
        if let Some(last) = self.blocks.len().checked_sub(1) {
            self.places.insert(index, last);
            self.ended.remove(&index);
        }
    }

    fn tool_use(&mut self, raw: &RawValue, sink: DeltaSink<'_>) {
        let Some(call) = self.common.read::<ToolUse<'_>>(raw) else {
            return;
        };
        // The API defines only this type, and `type` may also occur in a model's own output.
        if call.kind.get() == "server_tool_use" {
            let start = raw.get().to_owned();
            hide(call.name.filled().unwrap_or("toolUse"), sink);
            return self.blocks.push(PartialBlock::ServerToolUse { start, input: String::new() });
        }
        let input = call.input.map_or("", RawValue::get);
        let input = if matches!(input, "null" | "\"\"") { "" } else { input };
        // A call without a name is a placeholder, so it gets no position among the calls.
        let place = call.name.filled().map(|name| {
            let index = self.calls;
            self.calls += 1;
            sink(Delta::ToolCallStarted { index, id: call.id.get(), name });
            if !input.is_empty() {
                sink(Delta::ToolArguments { index, json: input });
            }
            index
        });
        self.blocks.push(PartialBlock::ToolUse {
            place,
            id: call.id.get().to_owned(),
            name: call.name.get().to_owned(),
            input: input.to_owned(),
            is_open: true,
        });
    }

    fn delta(&mut self, index: u64, delta: &WireDelta<'_>, sink: DeltaSink<'_>) {
        // Text and reasoning begin here, because they have no start message.
        if !self.common.room(self.blocks.len()) {
            return;
        }
        // Text has no start, so that its first delta begins another block after the end of one.
        let ended = self.ended.contains(&index);
        let block = self.places.get(&index).map(|place| &mut self.blocks[*place]);
        let text = delta.text.get();
        if let Some(more) = &delta.reasoning_content {
            self.reason(index, more, sink);
        } else if let Some(more) = delta.tool_use.as_ref().map(|call| call.input.get()) {
            match block {
                Some(PartialBlock::ToolUse { place, input, .. }) if !more.is_empty() => {
                    input.push_str(more);
                    if let Some(index) = *place {
                        sink(Delta::ToolArguments { index, json: more });
                    }
                }
                Some(PartialBlock::ServerToolUse { input, .. }) => {
                    input.push_str(more);
                    hide(more, sink);
                }
                _ => self.stray(more, sink),
            }
        } else if let Some(list) = &delta.tool_result {
            if let Some(PartialBlock::ServerToolResult { content, .. }) = block {
                content.extend(list.iter().map(|piece| piece.get().to_owned()));
            }
        } else if !text.is_empty() {
            // Citations of the model's own text are not sent back.
            sink(Delta::Text(text));
            if let Some(PartialBlock::Text(so_far)) = block.filter(|_| !ended) {
                so_far.push_str(text);
            } else if self.common.room(self.blocks.len()) {
                self.blocks.push(PartialBlock::Text(text.to_owned()));
                self.places.insert(index, self.blocks.len() - 1);
                self.ended.remove(&index);
            }
        }
    }

    fn reason(&mut self, index: u64, more: &ReasoningDelta<'_>, sink: DeltaSink<'_>) {
        let here = self.places.get(&index).copied();
        let here = here.filter(|at| matches!(self.blocks[*at], PartialBlock::Reasoning { .. }));
        if here.is_none() && !self.common.room(self.blocks.len()) {
            return;
        }
        let at = here.unwrap_or_else(|| {
            self.blocks.push(PartialBlock::Reasoning {
                text: String::new(),
                signature: String::new(),
                redacted: Vec::new(),
            });
            self.places.insert(index, self.blocks.len() - 1);
            self.blocks.len() - 1
        });
        if let PartialBlock::Reasoning { text, signature, redacted } = &mut self.blocks[at] {
            if let Some(more) = more.text.filled() {
                text.push_str(more);
                sink(Delta::Reasoning(more));
            }
            signature.push_str(more.signature.get());
            if let Some(more) = more.redacted_content.filled() {
                redacted.push(more.to_owned());
                sink(Delta::HiddenReasoning("redactedContent"));
            }
        }
    }

    /// Handles one block of a complete body.
    fn block(&mut self, raw: &RawValue, sink: DeltaSink<'_>) {
        if !self.common.room(self.blocks.len()) {
            return;
        }
        let block = self.common.read::<Block<'_>>(raw);
        match block {
            Some(Block { tool_use: Some(call), .. }) => self.tool_use(call, sink),
            Some(Block { reasoning_content: Some(reasoning), .. }) => {
                let text = reasoning.reasoning_text;
                let (shown, signature) =
                    text.as_ref().map_or(("", ""), |t| (t.text.get(), t.signature.get()));
                if !shown.is_empty() {
                    sink(Delta::Reasoning(shown));
                    self.blocks.push(PartialBlock::Reasoning {
                        text: shown.to_owned(),
                        signature: String::new(),
                        redacted: Vec::new(),
                    });
                }
                // The unsigned part is only shown. The signed block below is what goes back to
                // the server.
                if !signature.is_empty() || reasoning.redacted_content.filled().is_some() {
                    self.blocks.push(PartialBlock::Whole(raw.get().to_owned()));
                }
            }
            // An empty text is dropped but must not be stored as an unknown block.
            Some(Block { text, .. }) if text.0.is_some() => {
                if let Some(text) = text.filled() {
                    sink(Delta::Text(text));
                    self.blocks.push(PartialBlock::Text(text.to_owned()));
                }
            }
            _ => self.blocks.push(PartialBlock::Whole(raw.get().to_owned())),
        }
    }

    fn object(&mut self, text: &str, sink: DeltaSink<'_>, body: bool) -> Parsed {
        let mut repaired = String::new();
        let o: Object<'_> = json::event(text, &mut repaired)?;
        for (name, raw) in [
            ("internalServerException", o.internal_server_exception),
            ("modelStreamErrorException", o.model_stream_error_exception),
            ("modelTimeoutException", o.model_timeout_exception),
            ("serviceUnavailableException", o.service_unavailable_exception),
            ("throttlingException", o.throttling_exception),
            ("validationException", o.validation_exception),
        ] {
            if let Some(raw) = raw {
                let error = ErrorBody::read(raw.get()).named(":exception-type", name);
                self.common.fail(|| error);
                return Ok(());
            }
        }
        // Without frames the event type is the object's only key.
        for (kind, event) in [
            ("contentBlockStart", &o.content_block_start),
            ("contentBlockDelta", &o.content_block_delta),
            ("messageStop", &o.message_stop),
            ("metadata", &o.metadata),
        ] {
            if let Some(event) = event {
                self.take(kind, event, sink);
            }
        }
        let Some(output) = o.output else {
            if o.message.filled().is_some() {
                // AWS words an error like this. Its HTTP status was lost, for example in a
                // recording.
                self.common.fail(|| ErrorBody::read(text));
                return Ok(());
            }
            // A stream may contain objects without output, but a complete body must have one.
            if body {
                return Err(serde_json::Error::custom("`output` is missing"));
            }
            return Ok(());
        };
        for raw in output.message.and_then(|m| m.content).into_iter().flatten() {
            self.block(raw, sink);
        }
        self.stop(&o.stop_reason);
        self.usage(o.usage);
        self.bill(o.service_tier, o.performance_config);
        self.note("trace", o.trace);
        self.note("additionalModelResponseFields", o.additional_model_response_fields);
        self.common.terminated = true;
        Ok(())
    }

    fn parts(&mut self) -> Vec<Part> {
        let mut ids = HashSet::new();
        let mut parts = Vec::with_capacity(self.blocks.len());
        for (n, block) in std::mem::take(&mut self.blocks).into_iter().enumerate() {
            match block {
                PartialBlock::Text(text) => parts.push(Part::Text { text }),
                PartialBlock::Reasoning { text, signature, redacted } => {
                    let whole = reasoning(&text, &signature, &redacted);
                    if !text.is_empty() {
                        parts.push(Part::Reasoning { text });
                    }
                    parts.extend(whole.into_iter().map(opaque));
                }
                // A placeholder without a name is not a call.
                PartialBlock::ToolUse { name, .. } if name.is_empty() => {}
                PartialBlock::ToolUse { id, name, input, .. } => {
                    let mut id = if id.is_empty() { format!("tooluse_{n}") } else { id };
                    // The API rejects a conversation with two calls of the same id.
                    while !ids.insert(id.clone()) {
                        id = format!("{id}_{n}");
                    }
                    parts.push(Part::ToolCall(ToolCall { id, name, arguments: input }));
                }
                PartialBlock::ServerToolUse { start, input } => {
                    parts.push(opaque(with("toolUse", &start, "input", &input)));
                }
                PartialBlock::ServerToolResult { start, content } => {
                    let content = format!("[{}]", content.join(","));
                    parts.push(opaque(with("toolResult", &start, "content", &content)));
                }
                PartialBlock::Whole(raw) => parts.push(opaque(raw)),
            }
        }
        parts
    }
}

impl Accumulate for Accumulator {
    fn event(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) -> Parsed {
        let data = data.trim();
        if !data.starts_with('{') {
            return Ok(());
        }
        if name.is_empty() {
            return self.object(data, sink, false);
        }
        let mut repaired = String::new();
        let event: Event<'_> = json::event(data, &mut repaired)?;
        self.take(name, &event, sink);
        Ok(())
    }

    fn body(&mut self, text: &str) -> Parsed {
        self.object(text, &mut |_| (), true)
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn conclude(mut self: Box<Self>, _: &RequestFacts) -> (Common, DecodedTurn) {
        let raw = self.common.finish.as_deref().unwrap_or("");
        let finish = finish_of(WireFormat::BedrockConverse, raw);
        let said = DecodedTurn {
            parts: self.parts(),
            finish,
            field: FINISH,
            matched_stop: self.matched_stop.filter(|_| finish == Finish::StopSequence),
            stop_ambiguous: false,
            metadata: self.metadata,
        };
        (self.common, said)
    }
}

/// Returns the blocks of streamed reasoning to send back, which are those with a signature or
/// redacted content. Models that do not sign reject requests that contain their reasoning.
fn reasoning(text: &str, signature: &str, redacted: &[String]) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut json = b"{\"reasoningContent\":".to_vec();
        write(&mut json);
        json.extend_from_slice(b"}");
        blocks.extend(String::from_utf8(json).ok());
    };
    if !signature.is_empty() {
        block(&|out| {
            out.extend_from_slice(b"{\"reasoningText\":{\"text\":");
            json::string(out, text);
            json::key(out, "signature");
            json::string(out, signature);
            out.extend_from_slice(b"}}");
        });
    }
    if !redacted.is_empty() {
        let joined = joined(redacted);
        block(&|out| {
            out.extend_from_slice(b"{\"redactedContent\":");
            json::string(out, &joined);
            out.push(b'}');
        });
    }
    blocks
}

/// Returns the Base64 encoding of the concatenated bytes of several Base64 fragments.
fn joined(pieces: &[String]) -> String {
    if let [one] = pieces {
        return one.clone();
    }
    // Fragments may end in padding, so their texts cannot simply be joined.
    let mut bytes = Vec::new();
    for piece in pieces {
        bytes.extend(STANDARD.decode(piece).unwrap_or_default());
    }
    STANDARD.encode(bytes)
}

/// Returns `{"kind": start}` with the streamed value inserted. A value that does not parse is left
/// out.
fn with(kind: &str, start: &str, key: &str, streamed: &str) -> String {
    let mut inner = serde_json::from_str::<Map<String, Value>>(start).unwrap_or_default();
    if let Ok(value) = serde_json::from_str(streamed) {
        inner.insert(key.to_owned(), value);
    }
    let mut block = Map::new();
    block.insert(kind.to_owned(), Value::Object(inner));
    Value::Object(block).to_string()
}

fn opaque(json: String) -> Part {
    Part::Opaque { api: WireFormat::BedrockConverse.as_str().to_owned(), json }
}
