//! OpenAI Responses decoder: collects stream events, or a complete body, into a turn.

use super::items::{self, Answer, CUSTOM_BEGIN, CUSTOM_END};
use super::parts::{PartialBlock, ResponseEnd, TurnParts, parts_of, words};
use super::wire::{CostDetails, Details, Event, IncompleteDetails, Item, Response, Usage, filled};
use crate::bounded::noted;
use crate::codec::response::turn::{Accumulate, DeltaSink, Parsed};
use crate::codec::response::turn::{Common, DecodedTurn, hide};
use crate::codec::response::{Delta, RequestFacts};
use crate::dialect::{Dialect, WireFormat};
use crate::errors::ErrorBody;
use crate::json::{self, lenient};
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{NanoUsd, Part, Usage as TokenUsage};
use serde::de::Error as _;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};

/// A partially received turn.
pub(crate) struct Accumulator {
    dialect: &'static Dialect,
    common: Common,
    items: Vec<PartialBlock>,
    /// Position in `items` of each output index. `ids` does the same for item ids and call ids.
    places: HashMap<u64, usize>,
    ids: HashMap<String, usize>,
    /// Number of calls that were reported to the sink.
    shown: usize,
    /// `true` if the finish value comes from `incomplete_details.reason` and not from the status.
    incomplete: bool,
    metadata: Map<String, Value>,
}

impl Accumulator {
    pub(crate) fn new(dialect: &'static Dialect) -> Accumulator {
        Accumulator {
            dialect,
            common: Common::default(),
            items: Vec::new(),
            places: HashMap::new(),
            ids: HashMap::new(),
            shown: 0,
            incomplete: false,
            metadata: Map::new(),
        }
    }

    /// Takes the response in its final state. `named` is the status implied by the event's name.
    fn ended(&mut self, r: &Response<'_>, named: Option<&str>, sink: DeltaSink<'_>) {
        self.common.named(r.model.filled(), r.id.filled());
        self.common.bill.tier(r.service_tier.filled());
        if let Some(usage) = filled(r.usage) {
            self.usage(usage);
        }
        if json::is_error(r.error) {
            // The final response's error replaces that of an earlier event, because it is more
            // specific.
            self.common.error = None;
            self.error(r.error, "");
        }
        // The event that ends a stream may still carry a status from its beginning.
        let running = |status: &&str| matches!(*status, "queued" | "in_progress");
        let status = match named {
            Some(name) => r.status.filled().filter(|s| !running(s)).or(Some(name)),
            None => r.status.filled(),
        };
        let details = filled(r.incomplete_details).and_then(lenient::<IncompleteDetails<'_>>);
        let reason = details.as_ref().and_then(|d| d.reason.filled());
        // A response with such a reason is incomplete, even if the server reports `completed`.
        self.incomplete =
            matches!(status, Some("incomplete" | "completed") | None) && reason.is_some();
        self.common.finish = status.map(str::to_owned);
        if let Some(reason) = reason.filter(|_| self.incomplete) {
            self.common.finish = Some(reason.to_owned());
            self.metadata.insert("status".to_owned(), Value::from(status));
        }
        if let Some(found) = r.content_filters.and_then(noted) {
            if self.common.finish.as_deref() == Some("content_filter") {
                self.metadata.insert("content_filters".to_owned(), found);
            }
        }
        // The input of a custom call whose end the server has not sent.
        for block in self.items.iter_mut().filter(|block| !block.done && block.is_streamed) {
            if let Some(index) = block.call {
                block.is_streamed = false;
                sink(Delta::ToolArguments { index, json: CUSTOM_END });
            }
        }
        // Keep the collected items unless the final response has more. Some servers leave the
        // output out of the last event, and others send nothing but the last event.
        let output = r.output.as_deref().unwrap_or_default();
        if self.items.is_empty() {
            for (at, raw) in (0..).zip(output) {
                self.done(Some(at), "", raw, sink);
            }
        } else if output.len() > self.items.len()
            || output.len() == self.items.len() && self.items.iter().any(|b| !b.done)
        {
            // Parse each item now, so that an unreadable one is reported. `done` would do this, but
            // it is not called here.
            for raw in output {
                let _: Option<Item<'_>> = self.common.read(raw);
            }
            let whole = |(at, raw): (u64, &&RawValue)| PartialBlock {
                at,
                raw: raw.get().to_owned(),
                done: true,
                ..PartialBlock::default()
            };
            self.items = (0..).zip(output).map(whole).collect();
        } else {
            self.add_missing(output, sink);
        }
    }

    /// Adds the items of the final response that were not streamed, if it has more of their type. Their ids do not tell,
    /// because those of some servers differ from event to event.
    fn add_missing(&mut self, output: &[&RawValue], sink: DeltaSink<'_>) {
        let mut known: HashSet<String> = HashSet::new();
        // How many items of a type were streamed.
        let mut streamed: HashMap<String, usize> = HashMap::new();
        for block in self.items.iter().filter(|block| !block.is_stray()) {
            let item: Item<'_> = serde_json::from_str(&block.raw).unwrap_or_default();
            // The start of an item with text can be lost.
            let is_reasoning = block.said.text.is_empty() && !block.said.reasoning.is_empty();
            let lost = if is_reasoning { "reasoning" } else { "message" };
            *streamed.entry(item.kind.filled().unwrap_or(lost).to_owned()).or_default() += 1;
            known.extend(item.call_id.filled().map(str::to_owned));
        }
        let items: Vec<(u64, &RawValue, Item<'_>)> = (0..)
            .zip(output)
            .filter_map(|(at, raw)| Some((at, *raw, self.common.read(raw)?)))
            .collect();
        let mut missing: HashMap<&str, usize> = HashMap::new();
        for (_, _, item) in &items {
            *missing.entry(item.kind.get()).or_default() += 1;
        }
        for (kind, count) in &mut missing {
            *count = count.saturating_sub(streamed.get(*kind).copied().unwrap_or(0));
        }
        for (at, raw, item) in &items {
            let Some(count @ 1..) = missing.get_mut(item.kind.get()) else { continue };
            if known.contains(item.call_id.get()) || !self.common.room(self.items.len()) {
                continue;
            }
            *count -= 1;
            self.items.push(PartialBlock { at: *at, ..PartialBlock::default() });
            self.finish_item(self.items.len() - 1, item, raw, sink);
        }
    }

    /// Records an error. `text` is the whole event; if it contains an error object, that object
    /// carries the code.
    fn error(&mut self, inside: Option<&RawValue>, text: &str) {
        self.common.fail(|| match inside.map(RawValue::get) {
            Some(inside) if inside.starts_with('{') || text.is_empty() => {
                ErrorBody::read(&format!("{{\"error\":{inside}}}"))
            }
            _ => ErrorBody::read(text),
        });
    }

    fn usage(&mut self, raw: &RawValue) {
        let Some(u) = lenient::<Usage<'_>>(raw) else {
            return;
        };
        let input: Details = filled(u.input_tokens_details).and_then(lenient).unwrap_or_default();
        let output: Details = filled(u.output_tokens_details).and_then(lenient).unwrap_or_default();
        self.common.count(&TokenUsage {
            input_tokens: u.input_tokens.0,
            output_tokens: u.output_tokens.0,
            cached_input_tokens: input.cached.0,
            cache_write_tokens: input.cache_write.0,
            reasoning_tokens: output.reasoning.0,
            ..TokenUsage::default()
        });
        self.common.in_total_only(u.total_tokens, u.input_tokens, u.output_tokens);
        if self.dialect.reports_cost {
            let usd = filled(u.cost).and_then(lenient::<f64>).map(NanoUsd::from_usd);
            // A tick is a ten-billionth of a dollar, so ten of them are a nano-dollar. Round up to
            // keep the cost an upper bound.
            let ticks = u.cost_in_usd_ticks.0.map(|ticks| NanoUsd(ticks.div_ceil(10)));
            let mut cost = usd.or(ticks);
            if u.is_byok.get() == "true" {
                // The server charges its fee only, and the other provider charges the tokens.
                let details = filled(u.cost_details).and_then(lenient::<CostDetails>);
                let tokens = details.and_then(|details| details.upstream_inference_cost);
                if tokens.is_none() {
                    self.common.bill.apart("byok");
                }
                cost = cost.zip(tokens).map(|(own, tokens)| own + NanoUsd::from_usd(tokens));
            }
            self.common.cost = cost.or(self.common.cost);
        }
    }

    /// Returns the position of the item with this output index, or with this id or call id if the event has no
    /// index. A new item is created.
    fn place(&mut self, at: Option<u64>, id: &str, call_id: &str) -> Option<usize> {
        let known = match at {
            Some(at) => self.places.get(&at).copied(),
            // An event with neither index nor id continues the latest item.
            None if id.is_empty() => {
                self.ids.get(call_id).copied().or_else(|| self.items.len().checked_sub(1))
            }
            None => self.ids.get(id).or_else(|| self.ids.get(call_id)).copied(),
        };
        if known.is_some() || !self.common.room(self.items.len()) {
            return known;
        }
        let (at, new) = (at.unwrap_or_else(|| self.next()), self.items.len());
        self.items.push(PartialBlock { at, ..PartialBlock::default() });
        self.places.insert(at, new);
        for id in [id, call_id].into_iter().filter(|id| !id.is_empty()) {
            self.ids.insert(id.to_owned(), new);
        }
        Some(new)
    }

    /// Returns the output index after the last item.
    fn next(&self) -> u64 {
        // Saturate because the index comes from the server.
        self.items.last().map_or(0, |b| b.at.saturating_add(1))
    }

    fn added(&mut self, at: Option<u64>, id: &str, raw: &RawValue, sink: DeltaSink<'_>) {
        let Some(item) = self.common.read::<Item<'_>>(raw) else {
            return;
        };
        let id = item.id.filled().unwrap_or(id);
        // An item with neither index nor id is a new one.
        let at = at.or_else(|| id.is_empty().then(|| self.next()));
        let Some(place) = self.place(at, id, call_id(&item)) else {
            return;
        };
        // A repeated `added` event does not start the item again.
        if self.items[place].raw.is_empty() {
            raw.get().clone_into(&mut self.items[place].raw);
            self.show(place, &item, sink);
        }
    }

    fn done(&mut self, at: Option<u64>, id: &str, raw: &RawValue, sink: DeltaSink<'_>) {
        let Some(item) = self.common.read::<Item<'_>>(raw) else {
            return;
        };
        let id = item.id.filled().unwrap_or(id);
        // An item with neither index nor id is the last one or, if that is done, a new one.
        let call_id = call_id(&item);
        let another = id.is_empty()
            && !self.ids.contains_key(call_id)
            && self.items.last().is_some_and(|b| b.done);
        let at = at.or_else(|| another.then(|| self.next()));
        let Some(place) = self.place(at, id, call_id) else {
            return;
        };
        self.finish_item(place, &item, raw, sink);
    }

    /// Takes the complete item at a place.
    fn finish_item(&mut self, place: usize, item: &Item<'_>, raw: &RawValue, sink: DeltaSink<'_>) {
        self.show(place, item, sink);
        let building = &mut self.items[place];
        raw.get().clone_into(&mut building.raw);
        let was_done = std::mem::replace(&mut building.done, true);
        // Report content that was not streamed.
        if building.said.is_empty() {
            let said = words(item, &mut |_| ());
            for delta in [
                Delta::Reasoning(&said.reasoning),
                Delta::Text(&said.text),
                Delta::Refusal(&said.refusal),
            ] {
                if let Delta::Reasoning(text) | Delta::Text(text) | Delta::Refusal(text) = delta {
                    if !text.is_empty() {
                        sink(delta);
                    }
                }
            }
        }
        let answer = items::answer_of(item.kind.get());
        match (building.call, answer) {
            (Some(index), Some(Answer::Custom)) if !was_done => {
                let whole = items::custom(item.input.get());
                let reported = items::custom(&building.arguments);
                let reported = reported.strip_suffix(CUSTOM_END).filter(|_| building.is_streamed);
                // The end of an input that differs from what was streamed.
                let rest = whole.strip_prefix(reported.unwrap_or_default()).unwrap_or(CUSTOM_END);
                sink(Delta::ToolArguments { index, json: rest });
            }
            (Some(index), Some(answer @ Answer::Function)) if building.arguments.is_empty() => {
                let json = items::arguments(item, raw.get(), answer);
                sink(Delta::ToolArguments { index, json: &json });
            }
            _ if building.is_hidden && !building.is_streamed && !was_done => {
                hide(items::hidden_input(item), sink);
            }
            _ => {}
        }
    }

    /// Reports the start of an item: a call, if it is certainly a call for the client.
    fn show(&mut self, place: usize, item: &Item<'_>, sink: DeltaSink<'_>) {
        let answer = items::answer_of(item.kind.get());
        let client = match answer {
            Some(Answer::Function) => true,
            Some(Answer::Custom) => !self.dialect.runs_custom_tools,
            _ => false,
        };
        let (name, building) = (item.name.get(), &mut self.items[place]);
        if client {
            if !name.is_empty() && building.call.is_none() {
                building.call = Some(self.shown);
                let id = items::call_id(item);
                sink(Delta::ToolCallStarted { index: self.shown, id, name });
                self.shown += 1;
            }
        } else if !matches!(item.kind.get(), "message" | "reasoning")
            && !std::mem::replace(&mut building.is_hidden, true)
        {
            hide(item.kind.get(), sink);
        }
    }

    fn delta(&mut self, kind: &str, event: &Event<'_>, sink: DeltaSink<'_>) {
        let more = event.delta.get();
        if more.is_empty() {
            return;
        }
        let Some(place) = self.place(event.output_index.0, event.item_id.get(), "") else {
            return;
        };
        let building = &mut self.items[place];
        match kind {
            "response.output_text.delta" => {
                building.said.text.push_str(more);
                sink(Delta::Text(more));
            }
            "response.refusal.delta" => {
                building.said.refusal.push_str(more);
                sink(Delta::Refusal(more));
            }
            "response.function_call_arguments.delta" => {
                building.arguments.push_str(more);
                match building.call {
                    Some(index) => sink(Delta::ToolArguments { index, json: more }),
                    None => hide(more, sink),
                }
            }
            "response.custom_tool_call_input.delta" => {
                // The input is not JSON. It is reported as the text of a JSON object.
                let begins = building.arguments.is_empty();
                building.arguments.push_str(more);
                if let Some(index) = building.call.filter(|_| begins || building.is_streamed) {
                    let json = items::custom(more);
                    let json = json.strip_suffix(CUSTOM_END).unwrap_or_default();
                    let from = if begins { 0 } else { CUSTOM_BEGIN.len() };
                    let json = json.get(from..).unwrap_or_default();
                    sink(Delta::ToolArguments { index, json });
                    building.is_streamed = true;
                } else {
                    building.is_streamed |= building.is_hidden;
                    hide(more, sink);
                }
            }
            _ => {
                building.said.reasoning.push_str(more);
                sink(Delta::Reasoning(more));
            }
        }
    }
}

impl Accumulate for Accumulator {
    fn event(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) -> Parsed {
        let Some(data) = self.common.event_object(data) else {
            return Ok(());
        };
        let mut repaired = String::new();
        let event: Event<'_> = json::event(data, &mut repaired)?;
        let kind = event.kind.filled().unwrap_or(name);
        let (at, id) = (event.output_index.0, event.item_id.get());
        let increment = kind.strip_suffix(".delta").unwrap_or_default();
        match kind {
            "response.output_item.added" => {
                if let Some(raw) = event.item {
                    self.added(at, id, raw, sink);
                }
            }
            "response.output_item.done" => {
                if let Some(raw) = event.item {
                    self.done(at, id, raw, sink);
                }
            }
            "response.output_text.delta"
            | "response.refusal.delta"
            | "response.function_call_arguments.delta"
            | "response.custom_tool_call_input.delta" => self.delta(kind, &event, sink),
            // `reasoning_text`, `reasoning_summary_text`, and other names of some servers.
            _ if increment.starts_with("response.reasoning") => {
                self.delta(kind, &event, sink);
            }
            // The input of a tool that the provider runs, for example `response.mcp_call_arguments.delta`.
            _ if increment.contains("_call") => {
                let place = at.and_then(|at| self.places.get(&at)).or_else(|| self.ids.get(id));
                if let Some(building) = place.and_then(|place| self.items.get_mut(*place)) {
                    building.is_streamed = true;
                }
                hide(event.delta.get(), sink);
            }
            _ if ended_by(kind).is_some() => {
                let named = ended_by(kind);
                self.common.terminated = true;
                match event.response.and_then(|raw| self.common.read::<Response<'_>>(raw)) {
                    Some(r) => self.ended(&r, named, sink),
                    None => self.common.finish = named.map(str::to_owned),
                }
            }
            _ if kind == "error" || json::is_error(event.error) => {
                self.error(event.error, data);
            }
            // Start events carry the response too. All other events repeat what the deltas contain.
            _ => {
                if let Some(r) = event.response.and_then(lenient::<Response<'_>>) {
                    self.common.named(r.model.filled(), r.id.filled());
                }
            }
        }
        Ok(())
    }

    fn body(&mut self, text: &str) -> Parsed {
        // serde would read a list as the struct's fields in their order.
        if text.trim_start().starts_with('[') {
            return Err(serde_json::Error::custom("expected an object, found a list"));
        }
        let mut repaired = String::new();
        let r: Response<'_> = json::event(text, &mut repaired)?;
        if r.kind.get() == "error" || r.output.is_none() && json::is_error(r.error) {
            self.error(r.error, text);
        }
        let response = r.output.is_some() || r.status.filled().is_some();
        if response {
            self.ended(&r, None, &mut |_| ());
        }
        if !response && self.common.error.is_none() {
            return Err(serde_json::Error::custom("`output` is missing"));
        }
        Ok(())
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn conclude(mut self: Box<Self>, facts: &RequestFacts) -> (Common, DecodedTurn) {
        let raw = self.common.finish.as_deref().unwrap_or("");
        let finish = finish_of(WireFormat::OpenAiResponses, raw);
        // Items of an aborted or failed response are not stored by the server and cannot be
        // referenced.
        let stored = self.common.terminated
            && self.common.error.is_none()
            && matches!(
                finish,
                Finish::Natural | Finish::Length | Finish::ContentFilter | Finish::Unknown
            );
        let cut = finish != Finish::Natural;
        let response = self.common.id.as_deref();
        let end = ResponseEnd { dialect: self.dialect, response, stored, cut };
        let TurnParts { parts, unread, billed_apart, confidence } = parts_of(self.items, &end);
        for what in billed_apart {
            self.common.bill.apart(what);
        }
        if let Some(failure) = unread {
            self.common.broken.get_or_insert(failure);
        }
        if confidence.is_some() {
            self.common.confidence = confidence;
        }
        let calls = parts.iter().any(|part| matches!(part, Part::ToolCall(_)));
        let said = DecodedTurn {
            parts,
            // The status does not show that the model requests tools, but the items do.
            finish: if calls && finish == Finish::Natural { Finish::ToolUse } else { finish },
            field: if self.incomplete { "incomplete_details.reason" } else { "status" },
            matched_stop: None,
            stop_ambiguous: facts.stop_strings,
            metadata: self.metadata,
        };
        (self.common, said)
    }
}

/// Returns the id of a call, which its result repeats; empty for other items.
fn call_id<'a>(item: &'a Item<'_>) -> &'a str {
    items::answer_of(item.kind.get()).map_or("", |_| item.call_id.get())
}

/// Returns the status that the name of a stream's last event implies.
fn ended_by(kind: &str) -> Option<&'static str> {
    Some(match kind {
        // OpenRouter uses `response.done`.
        "response.completed" | "response.done" => "completed",
        "response.incomplete" => "incomplete",
        "response.failed" => "failed",
        "response.cancelled" => "cancelled",
        _ => return None,
    })
}
