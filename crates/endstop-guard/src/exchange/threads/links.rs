//! Ids and prompts in responses, with the thread that received them.

use super::opening::{prompt, scoped};
use super::seat::{RunKey, RunSource, Seat, ThreadId};
use crate::exchange::bounded_map::BoundedMap;
use crate::exchange::digest::{Fingerprint, Salt};
use crate::exchange::run_name::RunName;
use endstop_core::{ModelTurn, ToolCall, bounded_json};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The most call ids.
const CALLS: usize = 65_536;
/// The most response ids. The one that was used least recently goes.
pub(super) const RESPONSES: usize = 100_000;
/// The most prompts.
const PROMPTS: usize = 32_768;
/// The shortest prompt for a sub-agent, in bytes. Shorter strings are options such as `general`.
const SHORTEST_PROMPT: usize = 12;
/// The most prompts that one call can carry.
const PROMPTS_OF_CALL: usize = 16;
/// The most memory for the arguments of a call, in bytes.
const HEAVIEST_ARGUMENTS: u64 = 16 << 20;

/// A response that a later request can continue by id.
#[derive(Clone, Debug)]
pub(super) struct Continued {
    pub(super) seat: Seat,
    /// Bytes of its prompt and of its answer.
    pub(super) bytes: u64,
    /// `true` if it was a turn of its conversation.
    pub(super) is_turn: bool,
}

impl Continued {
    /// The members as text, in the order of the fields. None of them has a space.
    fn write(&self) -> String {
        let Continued { seat: Seat { run, thread, scope }, bytes, is_turn } = self;
        format!("{} {} {thread} {scope} {bytes} {is_turn}", run.source().as_str(), run.id())
    }

    fn read(text: &str) -> Option<Continued> {
        let mut words = text.split(' ');
        let mut word = || words.next();
        let source = RunSource::named(word()?)?;
        let run = RunKey::new(source, RunName::new(word()?).ok()?.as_str());
        let thread = ThreadId::read(word()?)?;
        let scope = Fingerprint::parse(word()?)?;
        let (bytes, is_turn) = (word()?.parse().ok()?, word()?.parse().ok()?);
        Some(Continued { seat: Seat { run, thread, scope }, bytes, is_turn })
    }
}

/// The three tables.
pub(super) struct Links {
    salt: Salt,
    /// The responses that were learned since they were last taken, if they are kept.
    learned: Option<BTreeSet<Fingerprint>>,
    calls: BoundedMap<Fingerprint, Seat>,
    responses: BoundedMap<Fingerprint, Continued>,
    prompts: BoundedMap<Fingerprint, Seat>,
}

impl Links {
    pub(super) fn new(salt: Salt) -> Links {
        Links {
            salt,
            learned: None,
            calls: BoundedMap::new(CALLS),
            responses: BoundedMap::new(RESPONSES),
            prompts: BoundedMap::new(PROMPTS),
        }
    }

    fn key(&self, purpose: &str, scope: Fingerprint, id: &str) -> Fingerprint {
        scoped(&self.salt, purpose, scope).add(id.as_bytes()).done()
    }

    /// Returns the thread that received a call with this id.
    pub(super) fn caller(&mut self, scope: Fingerprint, id: &str) -> Option<Seat> {
        let key = self.key("call", scope, id);
        self.calls.get(&key).map(|seat| seat.clone())
    }

    /// Returns the response with this id.
    pub(super) fn response(&mut self, scope: Fingerprint, id: &str) -> Option<Continued> {
        let key = self.key("response", scope, id);
        self.responses.get(&key).map(|continued| continued.clone())
    }

    /// Returns the thread that asked for a sub-agent with one of these prompts.
    pub(super) fn prompter(&mut self, texts: &[Fingerprint]) -> Option<Seat> {
        texts.iter().find_map(|text| self.prompts.get(text).map(|seat| seat.clone()))
    }

    /// Learns the id of a response.
    pub(super) fn learn_response(
        &mut self,
        seat: &Seat,
        turn: &ModelTurn,
        prompt_bytes: u64,
        is_turn: bool,
    ) {
        if let Some(id) = &turn.response_id {
            // The answer is a part of the next prompt.
            let answer: u64 = turn.parts.iter().map(endstop_core::Part::byte_len).sum();
            self.learn_id(seat, id, prompt_bytes.saturating_add(answer), is_turn);
        }
    }

    /// Learns the id of a response, and the bytes of the conversation up to its end.
    pub(super) fn learn_id(&mut self, seat: &Seat, id: &str, bytes: u64, is_turn: bool) {
        let key = self.key("response", seat.scope, id);
        self.responses.put(key, Continued { seat: seat.clone(), bytes, is_turn });
        if let Some(learned) = self.learned.as_mut().filter(|learned| learned.len() < RESPONSES) {
            learned.insert(key);
        }
    }

    /// Puts back responses that an earlier process has learned, and begins to note new ones. What cannot be read
    /// is left out: its response is not known.
    pub(super) fn restore(&mut self, kept: &[(String, String)]) {
        self.learned.get_or_insert_default();
        for (key, value) in kept {
            if let (Some(key), Some(value)) = (Fingerprint::parse(key), Continued::read(value)) {
                self.responses.put(key, value);
            }
        }
    }

    /// Takes the responses that were learned, as [`restore`](Links::restore) reads them.
    pub(super) fn take_learned(&mut self) -> Vec<(String, String)> {
        let Some(learned) = self.learned.as_mut().map(std::mem::take) else { return Vec::new() };
        let known = learned.into_iter();
        let entry = |key| Some((format!("{key}"), self.responses.peek(&key)?.write()));
        known.filter_map(entry).collect()
    }

    /// Learns the calls of a turn.
    pub(super) fn learn_calls(&mut self, seat: &Seat, turn: &ModelTurn) {
        for call in turn.tool_calls() {
            // Results of calls without ids are found by the thread's beginning.
            if !call.id.is_empty() {
                let key = self.key("call", seat.scope, &call.id);
                self.calls.put(key, seat.clone());
            }
            for text in prompts_in(call) {
                let key = prompt(&self.salt, seat.scope, &text);
                self.prompts.put(key, seat.clone());
            }
        }
    }
}

/// Returns the strings in a call's arguments that could be the prompt of a sub-agent.
fn prompts_in(call: &ToolCall) -> Vec<String> {
    if bounded_json::check(call.arguments.as_bytes(), HEAVIEST_ARGUMENTS).is_err() {
        return Vec::new();
    }
    let Ok(arguments) = serde_json::from_str::<Map<String, Value>>(&call.arguments) else {
        return Vec::new();
    };
    let texts = arguments.into_iter().filter_map(|(_, value)| match value {
        Value::String(text) if text.trim().len() >= SHORTEST_PROMPT => Some(text),
        _ => None,
    });
    texts.take(PROMPTS_OF_CALL).collect()
}
