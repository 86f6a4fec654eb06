//! Gemini decoder: collects stream chunks, or a complete body, into a turn.

use super::arguments::Arguments;
use super::wire::{
    Call, Candidate, Chunk, Code, Content, Feedback, Logprobs, MADE_ID, ModalityCount,
    Part as WirePart, Usage,
};
use crate::bounded::{List, made_id, noted};
use crate::codec::response::turn::{Accumulate, DeltaSink, Parsed};
use crate::codec::response::turn::{Common, DecodedTurn, hide};
use crate::codec::response::{Delta, RequestFacts};
use crate::dialect::WireFormat;
use crate::errors::ErrorBody;
use crate::json::{self, lenient};
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{Part, ToolCall, Usage as TokenUsage};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashSet};

/// A partially received turn.
#[derive(Default)]
pub(crate) struct Accumulator {
    common: Common,
    parts: Vec<PartialBlock>,
    calls: usize,
    /// Arguments of the last part, if that is a call that continues.
    open: Option<Arguments>,
    /// `true` if candidate 0 arrived.
    answered: bool,
    /// `promptFeedback.blockReason`.
    blocked: Option<String>,
    /// The most recent safety ratings, as raw JSON.
    ratings: String,
    metadata: Map<String, Value>,
    logprob_sum: f64,
    logprobs: u64,
}

/// A partially received part.
enum PartialBlock {
    Text {
        text: String,
        signature: String,
    },
    Thought(String),
    Call {
        place: usize,
        id: String,
        name: String,
        arguments: String,
        signature: String,
    },
    /// Any other part, stored as it arrived.
    Other(String),
}

impl Accumulator {
    pub(crate) fn new() -> Accumulator {
        let mut a = Accumulator::default();
        // Gemini does not include thought tokens in `candidatesTokenCount`.
        a.common.usage.reasoning_apart = true;
        a
    }

    fn chunk(&mut self, chunk: Chunk<'_>, text: &str, sink: DeltaSink<'_>) {
        self.common.named(chunk.model_version.filled(), chunk.response_id.filled());
        if json::is_error(chunk.error) {
            self.common.fail(|| ErrorBody::read(text));
        }
        if let Some(usage) = chunk.usage_metadata.and_then(lenient::<Usage<'_>>) {
            self.usage(&usage);
        }
        if let Some(f) = chunk.prompt_feedback.and_then(lenient::<Feedback<'_>>) {
            if let Some(reason) = f.block_reason.filled() {
                // A blocked prompt has no candidate, so the reason is the only explanation of the
                // empty turn.
                self.blocked = Some(reason.to_owned());
                self.rate(f.safety_ratings);
            }
            self.note("blockReasonMessage", &f.block_reason_message);
        }
        let mut is_read = false;
        for candidate in chunk.candidates.into_iter().flatten() {
            // Only the first one is the answer.
            if candidate.index.0.unwrap_or(0) == 0 && !is_read {
                is_read = true;
                self.candidate(&candidate, sink);
            } else {
                alternative(&candidate, sink);
            }
        }
    }

    fn candidate(&mut self, candidate: &Candidate<'_>, sink: DeltaSink<'_>) {
        self.answered = true;
        let content = candidate.content.and_then(|raw| self.common.read::<Content<'_>>(raw));
        for raw in content.and_then(|c| c.parts).into_iter().flatten() {
            self.part(raw, sink);
        }
        if let Some(value) = &candidate.finish_reason.0 {
            self.common.finishes(WireFormat::Gemini, value);
        }
        self.note("finishMessage", &candidate.finish_message);
        self.rate(candidate.safety_ratings);
        if candidate.grounding_metadata.is_some_and(|raw| !matches!(raw.get(), "null" | "{}")) {
            self.common.bill.apart("web_search");
        }
        if let Some(list) = candidate.logprobs_result.and_then(lenient::<Logprobs>) {
            for token in list.chosen_candidates.into_iter().flatten() {
                self.logprob_sum += token.log_probability.exp();
                self.logprobs += 1;
            }
        }
    }

    /// Stores additional facts that come with the finish value.
    fn note(&mut self, name: &str, text: &json::Str<'_>) {
        if let Some(text) = text.filled() {
            self.metadata.insert(name.to_owned(), Value::from(text));
        }
    }

    fn rate(&mut self, ratings: Option<&RawValue>) {
        // Reuse the buffer and parse only at the end, because every chunk repeats the ratings.
        if let Some(raw) = ratings {
            raw.get().clone_into(&mut self.ratings);
        }
    }

    fn usage(&mut self, u: &Usage<'_>) {
        // The count of the prompt is an estimate in the first chunks of a stream, and may be lower in the last one.
        if u.prompt.0 > Some(0) {
            self.common.usage.input_tokens = None;
        }
        self.common.count(&TokenUsage {
            input_tokens: u.prompt.0,
            output_tokens: u.candidates.0,
            cached_input_tokens: u.cached.0,
            reasoning_tokens: u.thoughts.0,
            ..TokenUsage::default()
        });
        let bill = &mut self.common.bill;
        bill.tier(u.service_tier.filled().or(u.traffic_type.filled()));
        // Google bills the results of some of its tools as input, and not those of others.
        if u.tool_prompt.0.is_some_and(|tokens| tokens > 0) {
            bill.apart("tool_use_prompt");
        }
        // Images and video have the price of text in a prompt, but not in an answer.
        if has_kind(u.prompt_details, &["AUDIO", "4"]) {
            bill.apart("audio_tokens");
        }
        if has_kind(u.candidates_details, &["IMAGE", "2", "VIDEO", "3", "AUDIO", "4"]) {
            bill.apart("media_tokens");
        }
    }

    fn part(&mut self, raw: &RawValue, sink: DeltaSink<'_>) {
        let Some(part) = self.common.read::<WirePart<'_>>(raw) else {
            return;
        };
        if !self.common.room(self.parts.len()) {
            return;
        }
        let signature = part.thought_signature.map_or("", RawValue::get);
        let signature = if matches!(signature, "null" | "\"\"") { "" } else { signature };
        if let Some(call) = part.function_call.and_then(|raw| self.common.read::<Call<'_>>(raw)) {
            return self.call(&call, signature, sink);
        }
        let text = part.text.get();
        if part.thought.get() == "true" {
            if !text.is_empty() {
                sink(Delta::Reasoning(text));
                match self.parts.last_mut() {
                    Some(PartialBlock::Thought(so_far)) => so_far.push_str(text),
                    _ => self.parts.push(PartialBlock::Thought(text.to_owned())),
                }
            }
            // A signed thought must be sent back unchanged, so its raw part is stored too.
            if !signature.is_empty() {
                self.parts.push(PartialBlock::Other(raw.get().to_owned()));
            }
        } else if !text.is_empty() {
            sink(Delta::Text(text));
            match self.parts.last_mut() {
                // A signature covers only its own text, so texts may be joined only if neither is
                // signed.
                Some(PartialBlock::Text { text: so_far, signature: none })
                    if none.is_empty() && signature.is_empty() =>
                {
                    so_far.push_str(text);
                }
                _ => self.parts.push(PartialBlock::Text {
                    text: text.to_owned(),
                    signature: signature.to_owned(),
                }),
            }
        } else if !signature.is_empty() || is_other(raw) {
            hide_other(&part, raw, sink);
            self.parts.push(PartialBlock::Other(raw.get().to_owned()));
        }
    }

    /// Handles a call. It arrives complete, or starts with its name, continues without one and ends
    /// with a part that is not marked as continuing.
    fn call(&mut self, call: &Call<'_>, signed: &str, sink: DeltaSink<'_>) {
        let goes_on = call.will_continue.get() == "true";
        if let Some(name) = call.name.filled() {
            // A new name ends the previous call, which was not marked as finished and may therefore
            // be cut.
            self.close(false, sink);
            let place = self.calls;
            self.calls += 1;
            let of = self.common.id.as_deref();
            let made = match (call.id.filled(), of) {
                (None, Some(of)) => made_id(MADE_ID, Some(of), place),
                _ => String::new(),
            };
            let id = call.id.filled().unwrap_or(&made);
            sink(Delta::ToolCallStarted { index: place, id, name });
            let arguments = call.args.map_or("", RawValue::get);
            let arguments = if arguments == "null" { "" } else { arguments };
            if !arguments.is_empty() {
                sink(Delta::ToolArguments { index: place, json: arguments });
            }
            self.parts.push(PartialBlock::Call {
                place,
                id: call.id.get().to_owned(),
                name: name.to_owned(),
                arguments: arguments.to_owned(),
                signature: signed.to_owned(),
            });
            if goes_on || call.partial_args.is_some() {
                self.open = Some(Arguments::default());
            }
        }
        // A continuation without an open call is a placeholder.
        let Some(open) = &mut self.open else {
            return;
        };
        for piece in call.partial_args.iter().flat_map(|pieces| pieces.iter()) {
            open.put(piece);
        }
        if !goes_on {
            self.close(true, sink);
        }
    }

    /// Finishes the open call's arguments. `whole` is `false` if they were cut.
    fn close(&mut self, whole: bool, sink: DeltaSink<'_>) {
        let Some(open) = self.open.take() else {
            return;
        };
        let last = self.parts.iter_mut().rev().find_map(|part| match part {
            PartialBlock::Call { place, arguments, .. } => Some((*place, arguments)),
            _ => None,
        });
        if let Some((index, arguments)) = last {
            *arguments = open.json(whole);
            sink(Delta::ToolArguments { index, json: arguments });
        }
    }

    fn said(&mut self) -> Vec<Part> {
        let of = self.common.id.as_deref();
        let mut ids = HashSet::new();
        let mut parts = Vec::with_capacity(self.parts.len());
        for part in std::mem::take(&mut self.parts) {
            match part {
                PartialBlock::Text { text, signature } => {
                    parts.extend(signed("", &signature));
                    parts.push(Part::Text { text });
                }
                PartialBlock::Thought(text) => parts.push(Part::Reasoning { text }),
                PartialBlock::Call { place, id, name, arguments, signature } => {
                    // The position makes generated ids unique within the response.
                    let mut id = if id.is_empty() { made_id(MADE_ID, of, place) } else { id };
                    // Ids must be unique, because results are matched to calls by them.
                    while !ids.insert(id.clone()) {
                        id = format!("{MADE_ID}{id}_{place}");
                    }
                    parts.extend(signed("\"functionCall\":{},", &signature));
                    parts.push(Part::ToolCall(ToolCall { id, name, arguments }));
                }
                PartialBlock::Other(raw) => parts.push(opaque(raw)),
            }
        }
        parts
    }

    /// Returns the meaning of the turn's end, and the field that determined it.
    fn ending(&mut self) -> (Finish, &'static str) {
        let raw = self.common.finish.as_deref().unwrap_or("");
        let whole = self.common.terminated;
        match finish_of(WireFormat::Gemini, raw) {
            // Gemini reports `STOP` for a turn with tool calls.
            Finish::Natural if self.calls > 0 => (Finish::ToolUse, FINISH),
            Finish::Missing => {
                if let Some(reason) = self.blocked.take() {
                    self.common.finish = Some(reason);
                    (Finish::ContentFilter, "promptFeedback.blockReason")
                // The response has no candidates at all, which Gemini sends for some failures.
                } else if whole && !self.answered {
                    self.common.finish = Some("empty".to_owned());
                    (Finish::Unknown, "candidates")
                } else if whole && self.calls == 0 {
                    // A complete body must have a finish value. Without one it is unclear how the
                    // text ended.
                    (Finish::Unknown, FINISH)
                } else {
                    (Finish::Missing, FINISH)
                }
            }
            finish => (finish, FINISH),
        }
    }
}

/// Name of the field that carries the finish value.
const FINISH: &str = "finishReason";

impl Accumulate for Accumulator {
    fn event(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) -> Parsed {
        let Some(data) = self.common.event_object(data) else {
            return Ok(());
        };
        if name == "error" {
            self.common.fail(|| ErrorBody::read(data));
            return Ok(());
        }
        let mut repaired = String::new();
        let chunk = json::event(data, &mut repaired)?;
        self.chunk(chunk, data, sink);
        Ok(())
    }

    fn body(&mut self, text: &str) -> Parsed {
        let mut repaired = String::new();
        let chunk = json::event(text, &mut repaired)?;
        self.chunk(chunk, text, &mut |_| ());
        Ok(())
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn conclude(mut self: Box<Self>, facts: &RequestFacts) -> (Common, DecodedTurn) {
        // An open call was cut by the end of the response.
        self.close(false, &mut |_| ());
        let (finish, field) = self.ending();
        let parts = self.said();
        if self.logprobs > 0 {
            self.common.confidence = Some(self.logprob_sum / self.logprobs as f64);
        }
        // Ratings are long and only explain a filtered turn.
        if finish == Finish::ContentFilter {
            let ratings = serde_json::from_str::<&RawValue>(&self.ratings);
            if let Some(ratings) = ratings.ok().and_then(noted) {
                self.metadata.insert("safetyRatings".to_owned(), ratings);
            }
        }
        let said = DecodedTurn {
            parts,
            finish,
            field,
            matched_stop: None,
            stop_ambiguous: facts.stop_strings,
            metadata: self.metadata,
        };
        (self.common, said)
    }
}

/// `true` for a part of an unsupported kind, and not for an empty text.
fn is_other(raw: &RawValue) -> bool {
    !other_kind(raw).is_empty()
}

/// Returns the name of the field that makes a part one of an unsupported kind; empty for any other part.
fn other_kind(raw: &RawValue) -> String {
    const READ: [&str; 4] = ["text", "thought", "thoughtSignature", "functionCall"];
    let fields = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw.get()).unwrap_or_default();
    fields.into_keys().find(|name| !READ.contains(&name.as_str())).unwrap_or_default()
}

/// Reports a part that is not shown: the code that the model writes for the provider's interpreter, or the name of
/// another kind, such as the result, which is not generated.
fn hide_other(part: &WirePart<'_>, raw: &RawValue, sink: DeltaSink<'_>) {
    match part.executable_code.and_then(lenient::<Code<'_>>) {
        Some(code) => hide(code.code.get(), sink),
        None => hide(&other_kind(raw), sink),
    }
}

/// Reports the content of a candidate that is not the answer, because the provider bills it, too.
fn alternative(candidate: &Candidate<'_>, sink: DeltaSink<'_>) {
    let content = candidate.content.and_then(lenient::<Content<'_>>);
    for raw in content.and_then(|content| content.parts).into_iter().flatten() {
        let Some(part) = lenient::<WirePart<'_>>(raw) else { continue };
        let text = part.text.get();
        if part.thought.get() == "true" {
            if !text.is_empty() {
                sink(Delta::HiddenReasoning(text));
            }
        } else if let Some(call) = part.function_call {
            hide(call.get(), sink);
        } else if text.is_empty() {
            hide_other(&part, raw, sink);
        } else {
            hide(text, sink);
        }
    }
}

/// Returns the signature of the next part as an opaque part, marked with that part's kind. The mark
/// is needed because the history may drop a part, and Gemini rejects a signature on any other part.
fn signed(kind: &str, signature: &str) -> Option<Part> {
    let json = || opaque(format!("{{{kind}\"thoughtSignature\":{signature}}}"));
    (!signature.is_empty()).then(json)
}

fn opaque(json: String) -> Part {
    Part::Opaque { api: WireFormat::Gemini.as_str().to_owned(), json }
}

/// Returns whether a list of counts has tokens of one of these kinds.
fn has_kind(details: Option<&RawValue>, kinds: &[&str]) -> bool {
    // Almost all chunks have text only, so the list is seldom parsed.
    let text_only = |raw: &RawValue| {
        raw.get().matches("modality").count() == 1 && raw.get().contains("\"TEXT\"")
    };
    let list = details.filter(|raw| !text_only(raw)).and_then(lenient::<List<ModalityCount<'_>>>);
    list.into_iter().flatten().any(|count| {
        count.token_count.0.is_some_and(|tokens| tokens > 0)
            && kinds.contains(&count.modality.get())
    })
}
