//! OpenAI Chat decoder: collects stream chunks, or a complete body, into a turn.

use super::partial_call::PartialCall;
use super::usage::counts;
use super::wire::{
    Arguments, BaseResp, Call, Choice, Chunk, Content, CostDetails, Counts, ExecutedTool, Function,
    Logprobs, Message, ReasoningDetail, XGroq, filled,
};
use crate::bounded::{List, made_id};
use crate::codec::response::text_frame::TextFrame;
use crate::codec::response::turn::{Accumulate, DeltaSink, Parsed};
use crate::codec::response::turn::{Common, DecodedTurn, hide};
use crate::codec::response::{Delta, RequestFacts};
use crate::dialect::{Dialect, WireFormat};
use crate::errors::ErrorBody;
use crate::json::{self, Count, has_counts, lenient};
use crate::signal::finish::finish_of;
use endstop_core::{NanoUsd, Part, ToolCall};
use serde::de::Error as _;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::HashMap;

/// A partially received turn.
pub(crate) struct Accumulator {
    dialect: &'static Dialect,
    common: Common,
    text: String,
    reasoning: String,
    refusal: String,
    calls: Vec<PartialCall>,
    /// Position in `calls` of each stream index that is not the position itself.
    places: HashMap<u64, usize>,
    /// Position of the call in the old `function_call` form, and its choice.
    legacy: Option<(u64, usize)>,
    /// `true` if only the first choice counts. Otherwise all of them are one answer.
    has_alternatives: bool,
    /// Index of the choice that is read.
    choice: u64,
    /// Index of the first choice with text, and of the first one with reasoning. That of the others contradicts it.
    text_from: Option<u64>,
    reasoning_from: Option<u64>,
    /// `reasoning_details` as raw JSON items, joined by commas.
    details: String,
    /// Number of calls that were reported to the sink.
    shown: usize,
    matched_stop: Option<String>,
    native_finish: Option<String>,
    logprob_sum: f64,
    logprobs: u64,
    frame: TextFrame,
}

impl Accumulator {
    pub(crate) fn new(dialect: &'static Dialect, has_alternatives: bool) -> Accumulator {
        Accumulator {
            dialect,
            common: Common::default(),
            text: String::new(),
            reasoning: String::new(),
            refusal: String::new(),
            calls: Vec::new(),
            places: HashMap::new(),
            legacy: None,
            has_alternatives,
            choice: 0,
            text_from: None,
            reasoning_from: None,
            details: String::new(),
            shown: 0,
            matched_stop: None,
            native_finish: None,
            logprob_sum: 0.0,
            logprobs: 0,
            frame: TextFrame::default(),
        }
    }

    fn chunk(
        &mut self,
        chunk: Chunk<'_, Counts<'_>>,
        text: &str,
        streamed: bool,
        sink: DeltaSink<'_>,
    ) {
        self.common.named(chunk.model.filled(), chunk.id.filled());
        self.common.bill.tier(chunk.service_tier.filled());
        // Some servers send the error's fields at the top level instead of inside `error`.
        let flat = chunk.choices.is_none()
            && (chunk.object.get() == "error"
                || filled(chunk.detail).is_some()
                || (filled(chunk.message).is_some() && filled(chunk.code).is_some()));
        let refused = chunk
            .base_resp
            .and_then(lenient::<BaseResp>)
            .is_some_and(|status| status.status_code != 0);
        if json::is_error(chunk.error) || flat || refused {
            self.common.fail(|| ErrorBody::read(text));
        }
        let counted = chunk.usage.is_some();
        if let Some(usage) = chunk.usage {
            self.usage(*usage);
        }
        if let Some(x) = filled(chunk.x_groq).and_then(lenient::<XGroq<'_>>) {
            // Groq repeats the usage here; the standard field takes precedence.
            if let Some(usage) = filled(x.usage).filter(|_| !counted).and_then(counts) {
                self.usage(usage);
            }
            if let Some(e) = x.error.filter(|_| json::is_error(x.error)) {
                // Restore the object around the field, because `ErrorBody` expects a complete error
                // body.
                let text = format!("{{\"error\":{}}}", e.get());
                self.common.fail(|| ErrorBody::read(&text));
            }
        }
        let choices = chunk.choices.into_iter().flatten();
        if self.has_alternatives {
            let mut is_answered = false;
            for choice in choices {
                if choice.index.0.unwrap_or(0) == 0 && !is_answered {
                    is_answered = true;
                    self.choice(choice, streamed, sink);
                } else if let Some(message) = choice.delta.or(choice.message) {
                    alternative(&message, sink);
                }
            }
            return;
        }
        for (at, choice) in (0..).zip(choices) {
            self.choice = choice.index.0.unwrap_or(at);
            self.choice(choice, streamed, sink);
        }
    }

    fn choice(&mut self, choice: Choice<'_>, streamed: bool, sink: DeltaSink<'_>) {
        if let Some(value) = choice.finish_reason.0 {
            self.common.finishes(WireFormat::OpenAiChat, &value);
        }
        if let Some(native) = choice.native_finish_reason.filled() {
            self.native_finish = Some(native.to_owned());
        }
        for stop in [choice.stop_reason, choice.matched_stop].into_iter().flatten() {
            // A number is a token id, which is not a stop string of the request.
            if stop.get().starts_with('"') {
                self.matched_stop = serde_json::from_str(stop.get()).ok();
            }
        }
        if let Some(usage) = filled(choice.usage).and_then(counts) {
            self.usage(usage);
        }
        if let Some(e) = choice.error.filter(|_| json::is_error(choice.error)) {
            let text = format!("{{\"error\":{}}}", e.get());
            self.common.fail(|| ErrorBody::read(&text));
        }
        if let Some(list) = filled(choice.logprobs).and_then(lenient::<Logprobs>) {
            for token in list.content.into_iter().flatten() {
                self.logprob_sum += token.logprob.exp();
                self.logprobs += 1;
            }
        }
        // Some servers repeat the complete message next to every delta, and others send an empty
        // delta next to the message.
        let said = if streamed {
            choice.delta.or(choice.message)
        } else {
            choice.message.or(choice.delta)
        };
        if let Some(message) = said {
            self.message(*message, sink);
        }
    }

    fn message(&mut self, message: Message<'_>, sink: DeltaSink<'_>) {
        match message.reasonings().into_iter().find(|field| field.texts().next().is_some()) {
            Some(content) => self.reason(content, sink),
            None => {
                each_detail(&message, |detail| match detail {
                    // Some servers repeat all of it in each chunk.
                    Ok(text) => {
                        let known = Some(&*self.reasoning).filter(|known| !known.is_empty());
                        let new = known.and_then(|known| text.strip_prefix(known)).unwrap_or(text);
                        self.think(new, sink);
                    }
                    Err(kind) => sink(Delta::HiddenReasoning(kind)),
                });
            }
        }
        self.content(&message.content, sink);
        if let Some(text) = message.refusal.filled() {
            self.refusal.push_str(text);
            sink(Delta::Refusal(text));
        }
        if let Some(list) = filled(message.reasoning_details) {
            // Join raw items without parsing them, because they are only sent back.
            let inside = list.get().trim();
            let inside = inside.strip_prefix('[').and_then(|s| s.strip_suffix(']'));
            if let Some(inside) = inside.map(str::trim).filter(|s| !s.is_empty()) {
                if !self.details.is_empty() {
                    self.details.push(',');
                }
                self.details.push_str(inside);
            }
        }
        executed(&message, sink);
        for call in message.tool_calls.into_iter().flatten() {
            self.call(call, sink);
        }
        if let Some(function) = message.function_call {
            self.legacy(function, sink);
        }
    }

    fn content(&mut self, content: &Content<'_>, sink: DeltaSink<'_>) {
        match content {
            Content::None => {}
            Content::Text(text) => self.say(text, sink),
            Content::Parts(parts) => {
                for part in parts.iter() {
                    match part.kind.get() {
                        "thinking" | "reasoning" => {
                            if let Some(thinking) = filled(part.thinking).and_then(lenient) {
                                self.reason(&thinking, sink);
                            }
                            self.think(part.text.get(), sink);
                        }
                        "refusal" => {
                            let text = part.refusal.get();
                            self.refusal.push_str(text);
                            sink(Delta::Refusal(text));
                        }
                        _ => self.say(part.text.get(), sink),
                    }
                }
            }
        }
    }

    fn say(&mut self, text: &str, sink: DeltaSink<'_>) {
        if text.is_empty() {
            return;
        }
        if *self.text_from.get_or_insert(self.choice) == self.choice {
            self.text.push_str(text);
            sink(Delta::Text(text));
        } else {
            hide(text, sink);
        }
    }

    fn think(&mut self, text: &str, sink: DeltaSink<'_>) {
        if text.is_empty() {
            return;
        }
        if *self.reasoning_from.get_or_insert(self.choice) == self.choice {
            self.reasoning.push_str(text);
            sink(Delta::Reasoning(text));
        } else {
            sink(Delta::HiddenReasoning(text));
        }
    }

    fn reason(&mut self, content: &Content<'_>, sink: DeltaSink<'_>) {
        content.texts().for_each(|text| self.think(text, sink));
    }

    /// Handles a call or a fragment of one. A known index continues its call, unless the fragment
    /// names a tool under another id, or a whole one after a whole call without ids, because some servers give every
    /// parallel call the index 0. Without an index, the id tells which call continues; without both, a name starts
    /// another call if the previous one is complete.
    fn call(&mut self, call: Call<'_>, sink: DeltaSink<'_>) {
        let id = call.id.get();
        let name = call.function.as_ref().map_or("", |f| f.name.get());
        // Each choice counts its calls from 0.
        let index =
            call.index.0.map(|index| index.saturating_add(self.choice.saturating_mul(1 << 32)));
        let known = match index {
            Some(index) => self.place_of(index),
            None if name.is_empty() && !id.is_empty() => {
                let same = self.calls.iter().rposition(|call| call.id == id);
                same.or_else(|| self.calls.len().checked_sub(1))
            }
            None => self.calls.len().checked_sub(1),
        };
        let has_arguments = call.function.as_ref().is_some_and(|f| !f.arguments.0.is_empty());
        let new = |b: &PartialCall| {
            !name.is_empty()
                && !b.name.is_empty()
                && (!id.is_empty() && id != b.id
                    || index.is_none() && (id.is_empty() || b.is_whole())
                    || id.is_empty() && b.id.is_empty() && has_arguments && b.is_whole())
        };
        let place = match known {
            Some(place) if !new(&self.calls[place]) => place,
            _ => {
                if !self.common.room(self.calls.len()) {
                    return;
                }
                self.calls.push(PartialCall::of(self.choice));
                let place = self.calls.len() - 1;
                if let Some(index) = index {
                    self.set_place(index, place);
                }
                place
            }
        };
        // Later fragments may repeat the id, so only the first one is stored.
        if self.calls[place].id.is_empty() {
            self.calls[place].id.push_str(id);
        }
        if let Some(function) = call.function {
            self.function(place, function, sink);
        }
    }

    /// Returns the position of the call that a stream index continues.
    fn place_of(&self, index: u64) -> Option<usize> {
        if let Some(place) = self.places.get(&index) {
            return Some(*place);
        }
        let place = usize::try_from(index).ok()?;
        self.calls.get(place)?.in_place.then_some(place)
    }

    /// Lets a stream index continue the call at this position.
    fn set_place(&mut self, index: u64, place: usize) {
        // Almost all servers count their calls from 0, for which no map is needed.
        if index == place as u64 {
            self.places.remove(&index);
            self.calls[place].in_place = true;
        } else {
            self.places.insert(index, place);
        }
    }

    /// Handles the old `function_call` form, which allows one call.
    fn legacy(&mut self, function: Function<'_>, sink: DeltaSink<'_>) {
        let place = match self.legacy {
            Some((choice, place)) if choice == self.choice => place,
            _ if function.name.filled().is_none() || !self.common.room(self.calls.len()) => {
                return;
            }
            _ => {
                self.calls.push(PartialCall::of(self.choice));
                self.calls.len() - 1
            }
        };
        self.legacy = Some((self.choice, place));
        self.function(place, function, sink);
    }

    fn function(&mut self, place: usize, function: Function<'_>, sink: DeltaSink<'_>) {
        let call = &mut self.calls[place];
        // A name can arrive in fragments, before the arguments. Most servers that send one again send all of it.
        if let (false, true, Some(more)) =
            (call.name.is_empty(), call.arguments.is_empty(), function.name.filled())
        {
            match more.strip_prefix(call.name.as_str()) {
                Some(rest) => call.name.push_str(rest),
                None => call.name.push_str(more),
            }
        }
        if call.name.is_empty() {
            if let Some(name) = function.name.filled() {
                call.name.push_str(name);
                call.shown = Some(self.shown);
                sink(Delta::ToolCallStarted { index: self.shown, id: &call.id, name });
                // Arguments that arrived before the name are reported now, so that deltas start
                // with the name.
                if !call.arguments.is_empty() {
                    sink(Delta::ToolArguments { index: self.shown, json: &call.arguments });
                }
                self.shown += 1;
            }
        }
        let Arguments(json) = function.arguments;
        if !json.is_empty() {
            // Arguments that arrive before the name wait for it.
            if let Some(index) = call.shown {
                sink(Delta::ToolArguments { index, json: &json });
            }
            call.more(json);
        }
    }

    fn usage(&mut self, u: Counts<'_>) {
        self.cost(&u);
        let prompt = u.prompt_tokens_details.unwrap_or_default();
        let output = u.completion_tokens_details.unwrap_or_default();
        let to = &mut self.common.usage;
        // The first name that has a value, unless an earlier count is larger.
        let last = |to: &mut Option<u64>, from: &[Count]| {
            *to = from.iter().find_map(|c| c.0).max(*to);
        };
        last(&mut to.input_tokens, &[u.prompt_tokens]);
        last(&mut to.output_tokens, &[u.completion_tokens]);
        last(
            &mut to.cached_input_tokens,
            &[
                prompt.cached,
                u.prompt_cache_hit_tokens,
                u.cache_read_input_tokens,
                u.cached_tokens,
                u.num_cached_tokens,
            ],
        );
        last(&mut to.cache_write_tokens, &[prompt.cache_write, u.cache_creation_input_tokens]);
        last(&mut to.reasoning_tokens, &[output.reasoning, u.reasoning_tokens]);
        let rest = self.common.in_total_only(u.total_tokens, u.prompt_tokens, u.completion_tokens);
        let to = &mut self.common.usage;
        if let Some(rest) = rest {
            // xAI and Gemini bill reasoning in addition to the completion: only the total includes it.
            to.reasoning_apart = rest > 0;
            to.reasoning_tokens = Some(rest).filter(|rest| *rest > 0).or(to.reasoning_tokens);
        }
        let some = |count: Count| count.0.is_some_and(|count| count > 0);
        let bill = &mut self.common.bill;
        bill.tier(u.service_tier.filled());
        if some(prompt.audio) || some(output.audio) {
            bill.apart("audio_tokens");
        }
        // Images in a prompt have the price of text.
        if some(output.image) {
            bill.apart("image_tokens");
        }
        if u.server_tool_use.is_some_and(has_counts) || some(u.num_sources_used) {
            bill.apart("server_tool_use");
        }
    }

    /// Reads the cost that the server reports.
    fn cost(&mut self, u: &Counts<'_>) {
        if !self.dialect.reports_cost {
            return;
        }
        let usd = |raw: Option<&RawValue>| {
            // OpenRouter reports a number, Perplexity an object with `total_cost`.
            let cost = filled(raw).and_then(lenient::<Value>)?;
            let usd = cost.as_f64().or_else(|| cost.get("total_cost")?.as_f64())?;
            Some(NanoUsd::from_usd(usd))
        };
        // A tick is a ten-billionth of a dollar, so ten of them are a nano-dollar. Round up to keep
        // the cost an upper bound.
        let ticks = u.cost_in_usd_ticks.0.map(|ticks| NanoUsd(ticks.div_ceil(10)));
        let own = usd(u.cost).or(ticks);
        let cost = if u.is_byok.get() == "true" {
            // The server charges its fee only, and the other provider charges the tokens.
            let details = filled(u.cost_details).and_then(lenient::<CostDetails<'_>>);
            let tokens = details.and_then(|details| usd(details.upstream_inference_cost));
            if tokens.is_none() {
                self.common.bill.apart("byok");
            }
            own.zip(tokens).map(|(own, tokens)| own + tokens)
        } else {
            own
        };
        self.common.cost = cost.or(self.common.cost);
    }

    fn tool_calls(&mut self) -> Vec<ToolCall> {
        // The choice and the position of each id.
        let mut ids: HashMap<String, (u64, usize)> = HashMap::new();
        let alone = self.calls.len() == 1;
        let mut out: Vec<ToolCall> = Vec::with_capacity(self.calls.len());
        for (n, call) in std::mem::take(&mut self.calls).into_iter().enumerate() {
            if call.name.is_empty() {
                // A call without a name is a placeholder.
                continue;
            }
            let mut id = call.id;
            if id.is_empty() {
                id = made_id("call_", self.common.id.as_deref(), n);
            }
            let twin = ids.get(&id).filter(|(choice, _)| *choice != call.choice);
            if twin
                .map(|(_, at)| &out[*at])
                .is_some_and(|twin| twin.name == call.name && twin.arguments == call.arguments)
            {
                // Another choice repeats the call.
                continue;
            }
            // Ids must be unique, because results are matched to calls by them.
            while ids.contains_key(&id) {
                id = format!("{id}_{n}");
            }
            if !alone {
                ids.insert(id.clone(), (call.choice, out.len()));
            }
            out.push(ToolCall { id, name: call.name, arguments: call.arguments });
        }
        out
    }

    /// Returns the fields that the server requires back with this message, as one opaque object.
    fn echo(&self, has_calls: bool) -> Option<Part> {
        if self.details.is_empty() && self.dialect.echo_reasoning.is_none() {
            return None;
        }
        let mut json = Vec::new();
        json.push(b'{');
        if !self.details.is_empty() {
            json::key(&mut json, "reasoning_details");
            json.push(b'[');
            json.extend_from_slice(self.details.as_bytes());
            json.push(b']');
        }
        if let Some(field) = self.dialect.echo_reasoning {
            // DeepSeek and similar servers require the reasoning back only for turns with tool
            // calls.
            if has_calls && !self.reasoning.is_empty() {
                json::key(&mut json, field);
                json::string(&mut json, &self.reasoning);
            }
        }
        if json.len() == 1 {
            return None;
        }
        json.push(b'}');
        Some(Part::Opaque {
            api: WireFormat::OpenAiChat.as_str().to_owned(),
            json: String::from_utf8(json).ok()?,
        })
    }
}

impl Accumulate for Accumulator {
    fn event(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) -> Parsed {
        let data = data.trim();
        if data == "[DONE]" {
            self.common.terminated = true;
            return Ok(());
        }
        if name == "error" {
            self.common.fail(|| ErrorBody::read(data));
            return Ok(());
        }
        if !data.starts_with(['{', '[']) || "[DONE]".starts_with(data) {
            return Ok(()); // a keep-alive, or a cut `[DONE]`
        }
        if let Some(text) = self.frame.text(data) {
            self.say(text, sink);
            return Ok(());
        }
        let mut repaired = String::new();
        let chunk = super::usage::chunk(json::object(data, &mut repaired)?)?;
        let text = chunk.only_text().filter(|_| !self.has_alternatives);
        self.frame.learn(data, text);
        self.chunk(chunk, data, true, sink);
        Ok(())
    }

    fn body(&mut self, text: &str) -> Parsed {
        let mut repaired = String::new();
        // Some gateways wrap the object in an array of one.
        let inner = text.trim();
        let inner = if inner.starts_with('[') {
            let (object,): (&RawValue,) = serde_json::from_str(inner)?;
            object.get()
        } else {
            text
        };
        let chunk = super::usage::chunk(json::object(inner, &mut repaired)?)?;
        let chat = chunk.choices.is_some();
        self.chunk(chunk, text, false, &mut |_| ());
        // Any other JSON object must not pass as an empty turn.
        if !chat && self.common.error.is_none() {
            return Err(serde_json::Error::custom("`choices` is missing"));
        }
        Ok(())
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn conclude(mut self: Box<Self>, facts: &RequestFacts) -> (Common, DecodedTurn) {
        let calls = self.tool_calls();
        let echo = self.echo(!calls.is_empty());
        let mut parts = Vec::with_capacity(calls.len() + 4);
        if !self.reasoning.is_empty() {
            parts.push(Part::Reasoning { text: self.reasoning });
        }
        parts.extend(echo);
        if !self.text.is_empty() {
            parts.push(Part::Text { text: self.text });
        }
        if !self.refusal.is_empty() {
            parts.push(Part::Refusal { text: self.refusal });
        }
        parts.extend(calls.into_iter().map(Part::ToolCall));
        if self.logprobs > 0 {
            self.common.confidence = Some(self.logprob_sum / self.logprobs as f64);
        }
        if self.common.model.as_deref().is_some_and(bills_searches) {
            self.common.bill.apart("web_search");
        }
        let raw = self.common.finish.as_deref().unwrap_or("");
        let finish = finish_of(WireFormat::OpenAiChat, raw);
        let mut metadata = Map::new();
        // Only record the native value if it adds information.
        if let Some(native) = self.native_finish.filter(|n| n != raw) {
            metadata.insert("native_finish_reason".to_owned(), Value::from(native));
        }
        let said = DecodedTurn {
            parts,
            finish,
            field: "finish_reason",
            stop_ambiguous: facts.stop_strings,
            matched_stop: self.matched_stop,
            metadata,
        };
        (self.common, said)
    }
}

/// Reads the details of reasoning: their texts, or the type of one that is encrypted.
fn each_detail(message: &Message<'_>, mut read: impl FnMut(Result<&str, &str>)) {
    for raw in [message.reasoning_details, message.thinking_blocks].into_iter().flatten() {
        let Some(list) = lenient::<List<ReasoningDetail<'_>>>(raw) else { continue };
        let mut is_read = false;
        for detail in &*list {
            let texts = [&detail.text, &detail.summary, &detail.thinking];
            let text = texts.into_iter().find_map(|text| text.filled()).map(Ok);
            let encrypted = detail.data.filled().and(detail.kind.filled()).map(Err);
            if let Some(detail) = text.or(encrypted) {
                is_read = true;
                read(detail);
            }
        }
        if is_read {
            break;
        }
    }
}

/// Reports the tools that the provider has run.
fn executed(message: &Message<'_>, sink: DeltaSink<'_>) {
    let tools = filled(message.executed_tools).and_then(lenient::<List<ExecutedTool<'_>>>);
    for tool in tools.into_iter().flatten() {
        hide(tool.kind.get(), sink);
        hide(tool.arguments.get(), sink);
    }
}

/// Reports the content of a choice that is not the answer, because the provider bills it, too.
fn alternative(message: &Message<'_>, sink: DeltaSink<'_>) {
    let reasoning = message.reasonings().into_iter().find(|field| field.texts().next().is_some());
    match reasoning {
        Some(content) => content.texts().for_each(|text| sink(Delta::HiddenReasoning(text))),
        None => each_detail(message, |(Ok(text) | Err(text))| sink(Delta::HiddenReasoning(text))),
    }
    match &message.content {
        Content::Parts(parts) => {
            for part in parts.iter() {
                let thinking = filled(part.thinking).and_then(lenient::<Content<'_>>);
                for text in thinking.iter().flat_map(Content::texts) {
                    sink(Delta::HiddenReasoning(text));
                }
                hide(part.text.get(), sink);
                hide(part.refusal.get(), sink);
            }
        }
        content => content.texts().for_each(|text| hide(text, sink)),
    }
    hide(message.refusal.get(), sink);
    executed(message, sink);
    let calls = message.tool_calls.iter().flat_map(|calls| calls.iter());
    let functions = calls.filter_map(|call| call.function.as_ref()).chain(&message.function_call);
    for function in functions {
        hide(function.name.get(), sink);
        hide(&function.arguments.0, sink);
    }
}

/// Part of the names of models that search.
const SEARCH: &str = "-search-";

/// `true` if each call of this model searches the web for a fee, which the usage does not show:
/// OpenAI's search models, and Groq's compound systems.
fn bills_searches(model: &str) -> bool {
    // `str::contains` first builds a table for its search, which costs more than all the rest.
    let parts = model.as_bytes().windows(SEARCH.len()).enumerate();
    let searches = parts.filter(|(_, part)| *part == SEARCH.as_bytes()).any(|(at, _)| {
        let rest = &model[at + SEARCH.len()..];
        rest.starts_with("preview") || rest.starts_with("api")
    });
    searches || model.strip_prefix("groq/").unwrap_or(model).starts_with("compound")
}
