//! The parts of a turn, built from the output items once the response has ended.
//!
//! ```text
//! let TurnParts { parts, unread, confidence } = parts_of(items, &end);
//! ```

use super::items::{self, Answer};
use super::wire::{Item, Logprob, Piece, filled};
use crate::bounded::{List, made_id};
use crate::codec::response::turn::{DecodeFailure, NOT_JSON};
use crate::dialect::{Dialect, WireFormat};
use crate::json::{self, lenient};
use endstop_core::{Part, ToolCall};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A partially received output item.
#[derive(Default)]
pub(super) struct PartialBlock {
    /// Index of the item in the output.
    pub(super) at: u64,
    /// The most recent raw item. Empty if its start was lost.
    pub(super) raw: String,
    /// `true` once the complete item has arrived.
    pub(super) done: bool,
    // Concatenated deltas of the item.
    pub(super) said: Words,
    pub(super) arguments: String,
    /// Position among the reported calls.
    pub(super) call: Option<usize>,
    /// The start of an item that is neither text nor a call for the client was reported.
    pub(super) is_hidden: bool,
    /// The input of a custom or hidden call was reported while it arrived.
    pub(super) is_streamed: bool,
}

impl PartialBlock {
    /// `true` for arguments of which no item began: the server names another item in each event.
    pub(super) fn is_stray(&self) -> bool {
        self.raw.is_empty() && !self.arguments.is_empty()
    }
}

/// Text content of an item.
#[derive(Default)]
pub(super) struct Words {
    pub(super) text: String,
    pub(super) refusal: String,
    pub(super) reasoning: String,
    /// A content part that failed to parse, with its text.
    pub(super) unread: Option<(serde_json::Error, String)>,
}

impl Words {
    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty() && self.refusal.is_empty() && self.reasoning.is_empty()
    }
}

/// The end of a response, as far as its parts depend on it.
pub(super) struct ResponseEnd<'a> {
    pub(super) dialect: &'static Dialect,
    /// Id of the response.
    pub(super) response: Option<&'a str>,
    /// `true` if the response ended, so that the server knows its items.
    pub(super) stored: bool,
    /// `true` if the last item may be incomplete.
    pub(super) cut: bool,
}

/// Parts of a turn, with what reading them showed.
pub(super) struct TurnParts {
    pub(super) parts: Vec<Part>,
    /// The first content part that failed to parse.
    pub(super) unread: Option<DecodeFailure>,
    /// Work of the server that it bills apart.
    pub(super) billed_apart: Vec<&'static str>,
    /// Mean probability of the tokens, if the items contain any.
    pub(super) confidence: Option<f64>,
}

/// Builds the turn's parts from its items.
pub(super) fn parts_of(mut blocks: Vec<PartialBlock>, end: &ResponseEnd<'_>) -> TurnParts {
    // Events of parallel items may interleave, so restore the output's order.
    blocks.sort_by_key(|b| b.at);
    let items: Vec<Item<'_>> =
        blocks.iter().map(|b| serde_json::from_str(&b.raw).unwrap_or_default()).collect();
    // A call whose result is already in the output was run by the server.
    let answered: HashSet<&str> = items
        .iter()
        .filter(|item| item.kind.get().ends_with("_output"))
        .map(|item| item.call_id.get())
        .collect();
    // The API rejects reasoning without the item it led to, so reasoning at the cut end is dropped.
    let led_to = |item: &Item<'_>| item.kind.get() != "reasoning";
    let kept = if end.cut { items.iter().rposition(led_to).unwrap_or(0) } else { items.len() };
    let mut builder = PartsBuilder::new(end, items.len());
    builder.billed_apart = items.iter().filter_map(|item| fee(item.kind.get())).collect();
    let answers: Vec<Option<Answer>> = items
        .iter()
        .map(|item| {
            let answer = items::answer_of(item.kind.get()).filter(|answer| match answer {
                Answer::ToolSearch => item.execution.get() == "client",
                Answer::Custom => !end.dialect.runs_custom_tools,
                _ => true,
            });
            answer.filter(|_| !answered.contains(item.call_id.get()))
        })
        .collect();
    let mut calls = calls_of(&blocks, &items, &answers);
    for (n, (block, item)) in blocks.iter().zip(&items).enumerate() {
        match (answers[n], item.kind.get()) {
            (Some(answer), _) => {
                if let Some(arguments) = calls.remove(&n) {
                    builder.call(n, block, item, answer, arguments);
                }
            }
            (None, "message" | "reasoning" | "") => builder.text(block, item, n < kept),
            (None, _) if end.stored => builder.parts.push(opaque(block.raw.clone())),
            (None, _) => {}
        }
    }
    builder.finish()
}

/// Returns the position of the item that counts of each call, with the arguments. Items with one call id are one call.
fn calls_of(
    blocks: &[PartialBlock],
    items: &[Item<'_>],
    answers: &[Option<Answer>],
) -> BTreeMap<usize, String> {
    let mut calls: BTreeMap<usize, String> = BTreeMap::new();
    // The position of the item that counts of each call id.
    let mut counting: HashMap<&str, usize> = HashMap::new();
    for (n, (block, item)) in blocks.iter().zip(items).enumerate() {
        let Some(answer) = answers[n] else { continue };
        let mut arguments = arguments_of(block, item, answer);
        let other = item.call_id.filled().and_then(|id| counting.insert(id, n));
        if let Some((other, before)) = other.and_then(|other| calls.remove_entry(&other)) {
            let rank = |at: usize, arguments: &str| {
                (has_arguments(arguments), blocks[at].done && !is_incomplete(&items[at]))
            };
            let (old, new) = (rank(other, &before), rank(n, &arguments));
            let names = (items[other].name.get(), item.name.get());
            if old == (true, true)
                && new == old
                && (names.0 != names.1 || !is_same(&before, &arguments))
            {
                // They contradict each other, and the call must not run as one of them.
                arguments.push_str(NOT_JSON);
            } else if old > new {
                counting.insert(item.call_id.get(), other);
                calls.insert(other, before);
                continue;
            }
        }
        calls.insert(n, arguments);
    }
    give_strays(blocks, items, &counting, &mut calls);
    for (n, arguments) in &mut calls {
        if is_incomplete(&items[*n]) {
            arguments.push_str(NOT_JSON);
        }
    }
    calls
}

/// Gives arguments of which no item began to the call in front of them. If that has its own, they repeat them; if
/// several calls in front of them have none, it is not known whose they are, and none of them must run without.
fn give_strays(
    blocks: &[PartialBlock],
    items: &[Item<'_>],
    counting: &HashMap<&str, usize>,
    calls: &mut BTreeMap<usize, String>,
) {
    let mut strays = String::new();
    let mut open: Vec<usize> = Vec::new();
    let mut has_calls = false;
    for at in 0..=blocks.len() {
        let block = blocks.get(at);
        if let Some(block) = block.filter(|block| block.is_stray()) {
            strays.push_str(&block.arguments);
            continue;
        }
        if !strays.is_empty() {
            match open[..] {
                // They may have come before their call.
                [] if !has_calls => {}
                [] => strays.clear(),
                [only] => {
                    let is_custom = items[only].kind.get() == "custom_tool_call";
                    let given = if is_custom { items::custom(&strays) } else { strays };
                    calls.insert(only, given);
                    strays = String::new();
                }
                _ => {
                    for call in &open {
                        calls.entry(*call).or_default().push_str(NOT_JSON);
                    }
                    strays.clear();
                }
            }
            open.clear();
        }
        let Some(item) = items.get(at) else { break };
        let call = item.call_id.filled().and_then(|id| counting.get(id)).copied().unwrap_or(at);
        match calls.get(&call) {
            None => continue,
            Some(arguments) if has_arguments(arguments) => open.clear(),
            Some(_) if open.last() != Some(&call) => open.push(call),
            Some(_) => {}
        }
        has_calls = true;
    }
}

/// Returns the arguments of a call as its item has them, or as they were streamed.
fn arguments_of(block: &PartialBlock, item: &Item<'_>, answer: Answer) -> String {
    let arguments = match answer {
        Answer::Custom if !block.done => items::custom(&block.arguments),
        Answer::Function if !block.done && !block.arguments.is_empty() => block.arguments.clone(),
        _ => items::arguments(item, &block.raw, answer),
    };
    if arguments.is_empty() { block.arguments.clone() } else { arguments }
}

/// `true` if a call has arguments: not none, `null`, an empty object, or an empty input of a custom tool.
fn has_arguments(arguments: &str) -> bool {
    let is_empty = |value: Value| [json!(null), json!({}), json!({"input": ""})].contains(&value);
    !arguments.trim().is_empty() && !serde_json::from_str(arguments).is_ok_and(is_empty)
}

/// `true` if two arguments are the same JSON.
fn is_same(one: &str, other: &str) -> bool {
    let read = |text: &str| serde_json::from_str::<Value>(text).ok();
    one == other || read(one).is_some_and(|one| Some(one) == read(other))
}

/// `true` if the server did not finish the item. Such a call does not run.
fn is_incomplete(item: &Item<'_>) -> bool {
    item.status.get() == "incomplete"
}

struct PartsBuilder<'a> {
    end: &'a ResponseEnd<'a>,
    parts: Vec<Part>,
    /// Ids of the calls so far.
    ids: HashSet<String>,
    unread: Option<DecodeFailure>,
    billed_apart: Vec<&'static str>,
    logprob_sum: f64,
    logprobs: u64,
}

impl<'a> PartsBuilder<'a> {
    fn new(end: &'a ResponseEnd<'a>, items: usize) -> PartsBuilder<'a> {
        PartsBuilder {
            end,
            parts: Vec::with_capacity(items + 2),
            ids: HashSet::new(),
            unread: None,
            billed_apart: Vec::new(),
            logprob_sum: 0.0,
            logprobs: 0,
        }
    }

    /// Adds a call that the client must answer. `n` is the position of its item.
    fn call(
        &mut self,
        n: usize,
        block: &PartialBlock,
        item: &Item<'_>,
        answer: Answer,
        arguments: String,
    ) {
        let name = items::tool_name(item, answer);
        if name.is_empty() {
            return;
        }
        let own = items::call_id(item);
        let made = || made_id("call_", self.end.response, n);
        let mut id = if own.is_empty() { made() } else { own.to_owned() };
        // Ids must be unique, because results are matched to calls by them.
        while !self.ids.insert(id.clone()) {
            id = format!("{id}_{n}");
        }
        // A call with a generated id cannot be sent back by its item, because the server does not
        // know the id.
        if self.end.stored && id == own {
            match answer {
                Answer::Function => self.parts.extend(mark(item)),
                _ => self.parts.push(opaque(block.raw.clone())),
            }
        }
        self.parts.push(Part::ToolCall(ToolCall { id, name: name.to_owned(), arguments }));
    }

    /// Adds the content of a message or reasoning item. `led_on` is `true` if an item that
    /// reasoning may lead to comes later.
    fn text(&mut self, block: &PartialBlock, item: &Item<'_>, led_on: bool) {
        let stored = self.end.stored;
        let whole = words(item, &mut |logprob| {
            self.logprob_sum += logprob.exp();
            self.logprobs += 1;
        });
        if let Some((e, raw)) = &whole.unread {
            self.unread.get_or_insert_with(|| DecodeFailure::json(e, raw));
        }
        // Prefer the complete item; use the streamed text if the item was cut or arrived without
        // content.
        let streamed = !block.said.is_empty() && (!block.done || whole.is_empty());
        let said = if streamed { &block.said } else { &whole };
        let part = |text: &String, part: fn(String) -> Part| {
            (!text.is_empty()).then(|| part(text.clone()))
        };
        self.parts.extend(part(&said.reasoning, |text| Part::Reasoning { text }));
        if item.kind.get() == "reasoning" && stored && led_on {
            self.parts.push(opaque(block.raw.clone()));
        }
        if stored && !(said.text.is_empty() && said.refusal.is_empty()) {
            self.parts.extend(mark(item));
        }
        self.parts.extend(part(&said.text, |text| Part::Text { text }));
        self.parts.extend(part(&said.refusal, |text| Part::Refusal { text }));
    }

    fn finish(self) -> TurnParts {
        let confidence = (self.logprobs > 0).then(|| self.logprob_sum / self.logprobs as f64);
        let PartsBuilder { parts, unread, billed_apart, .. } = self;
        TurnParts { parts, unread, billed_apart, confidence }
    }
}

/// Returns the name of the server's tool if an item of this kind has a fee of its own
/// (<https://developers.openai.com/api/docs/pricing>, "Tools").
fn fee(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "web_search_call" => "web_search",
        "file_search_call" => "file_search",
        "code_interpreter_call" => "code_interpreter",
        "image_generation_call" => "image_generation",
        _ => return None,
    })
}

/// Returns the text content of a message or reasoning item. `logprob` receives the log probability
/// of each token.
pub(super) fn words(item: &Item<'_>, logprob: &mut dyn FnMut(f64)) -> Words {
    let mut said = Words::default();
    let reasoning = item.kind.get() == "reasoning";
    for raw in [filled(item.summary), filled(item.content)].into_iter().flatten() {
        let Some(pieces) = lenient::<List<&RawValue>>(raw) else {
            // Some servers send a plain string instead of a list.
            let text = lenient::<json::Str<'_>>(raw).unwrap_or_default();
            let to = if reasoning { &mut said.reasoning } else { &mut said.text };
            to.push_str(text.get());
            continue;
        };
        for raw in pieces {
            let piece: Piece<'_> = match serde_json::from_str(raw.get()) {
                Ok(piece) => piece,
                Err(e) => {
                    said.unread = Some((e, raw.get().to_owned()));
                    continue;
                }
            };
            match piece.kind.get() {
                "refusal" => said.refusal.push_str(piece.refusal.get()),
                "reasoning_text" | "summary_text" => said.reasoning.push_str(piece.text.get()),
                _ if reasoning => said.reasoning.push_str(piece.text.get()),
                _ => said.text.push_str(piece.text.get()),
            }
            let tokens = filled(piece.logprobs).and_then(lenient::<Vec<Logprob>>);
            tokens.into_iter().flatten().for_each(|token| logprob(token.logprob));
        }
    }
    said
}

/// Longest id that the API accepts back, in bytes. Some gateways generate longer ones.
const ID_CAP: usize = 64;

/// Returns an opaque part with the fields that a message or call must carry when it is sent back,
/// or `None` if there are none.
fn mark(item: &Item<'_>) -> Option<Part> {
    let mut json = b"{".to_vec();
    let call = item.kind.get() == "function_call";
    json::key(&mut json, "type");
    json::string(&mut json, if call { "function_call" } else { "message" });
    let bare = json.len();
    let fields: [(&str, &str); 3] = [
        ("id", item.id.filled().filter(|id| id.len() <= ID_CAP).unwrap_or("")),
        ("phase", item.phase.get()),
        ("namespace", item.namespace.get()),
    ];
    for (name, value) in fields.into_iter().filter(|(_, value)| !value.is_empty()) {
        json::key(&mut json, name);
        json::string(&mut json, value);
    }
    if let Some(caller) = filled(item.caller) {
        json::key(&mut json, "caller");
        json.extend_from_slice(caller.get().as_bytes());
    }
    if json.len() == bare {
        return None;
    }
    let (name, value) =
        if call { ("call_id", item.call_id.get()) } else { ("status", item.status.get()) };
    if !value.is_empty() {
        json::key(&mut json, name);
        json::string(&mut json, value);
    }
    json.push(b'}');
    String::from_utf8(json).ok().map(opaque)
}

fn opaque(json: String) -> Part {
    Part::Opaque { api: WireFormat::OpenAiResponses.as_str().to_owned(), json }
}
