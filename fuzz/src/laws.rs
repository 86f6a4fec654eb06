//! The laws that every decoded response keeps, as the pages of the library state them.

use endstop_core::{Part, SignalReason};
use endstop_wire::dialect::Dialect;
use endstop_wire::detect::printed;
use endstop_wire::redact::EXCERPT_CHARS;
use endstop_wire::{Decoded, Delta, Family};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// The most bytes of a turn for a byte of its body: a byte that is no UTF-8 becomes three, a number
/// in its shortest spelling several, and what goes back to the provider is held beside what is shown.
const GROWTH: usize = 16;
/// What every turn may have besides.
const BASE: usize = 4096;

/// Holds a response to its laws.
pub(crate) fn of(d: &Decoded, dialect: &'static Dialect, status: u16, body: usize) {
    let signal = &d.signal;
    let reason = signal.reason;
    let answered = status == 0 || (200..300).contains(&status);

    // An error is the signal, wherever there is one, and says no more than it should.
    if let Some(e) = &d.error {
        assert_eq!(reason, SignalReason::ErrorTermination, "{e}");
        assert!(signal.should_terminate);
        assert!(e.message.chars().count() <= EXCERPT_CHARS, "{e}");
        assert!(!e.message.is_empty(), "an error without words");
        let value = &signal.provider_specific.original_value;
        assert!(value.chars().count() <= EXCERPT_CHARS, "{value}");
    }
    assert!(answered || d.error.is_some(), "the status says error");
    assert!(d.complete || d.error.is_some(), "what has no end is no answer");
    assert!(d.error.is_some() || d.turn.is_some(), "neither a turn nor an error");

    // Not knowing is not success.
    let success = matches!(reason, SignalReason::NaturalCompletion | SignalReason::StopSequence);
    if success {
        assert!(d.complete && answered && d.error.is_none(), "{signal:?}");
        assert!(signal.should_terminate);
    }
    if d.error.is_none() && !signal.provider_specific.original_value.is_empty() {
        assert!(!d.value_missing || d.complete, "{signal:?}");
    }

    let Some(turn) = &d.turn else { return };
    assert_eq!(&turn.signal, signal);

    // Calls can be answered: each has a name and an id of its own, and a bad one is marked.
    let mut ids = HashSet::new();
    let (mut calls, mut bad) = (0, false);
    for call in turn.parts.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some(call),
        _ => None,
    }) {
        calls += 1;
        assert!(!call.name.is_empty() && !call.id.is_empty(), "{call:?}");
        assert!(ids.insert(&call.id), "two calls with the id {}", call.id);
        bad |= call.parsed_arguments().is_err();
    }
    if d.error.is_none() {
        assert!(!success || calls == 0, "an end with calls that nobody answers");
        assert!(reason != SignalReason::ToolUse || calls > 0, "tools without a call");
        let told = signal.provider_specific.metadata.get("invalid_args");
        assert_eq!(bad, told == Some(&Value::Bool(true)), "{:?}", turn.parts);
    }

    // What goes back unread is JSON of this format.
    for part in &turn.parts {
        if let Part::Opaque { api, json } = part {
            // A format inside another is kept under its own name.
            let invoke = dialect.family == Family::BedrockInvoke;
            assert!(
                api == dialect.family.as_str() || invoke && Family::named(api).is_some(),
                "{api}"
            );
            assert!(serde_json::from_str::<serde::de::IgnoredAny>(json).is_ok(), "{json}");
        }
    }

    // Memory is bounded by what came.
    let size: usize = turn.parts.iter().map(size).sum();
    assert!(size <= GROWTH * body + BASE, "{size} bytes of turn for {body} bytes of body");

    // What is printed and journaled reads back.
    let out = Value::Object(printed(d));
    reads_back(&out);
    let journal = serde_json::to_string(turn).expect("a turn is written");
    let back: endstop_core::ModelTurn =
        serde_json::from_str(&journal).unwrap_or_else(|e| panic!("{e}: {journal}"));
    assert_eq!(back.parts, turn.parts);
}

/// What is printed is one line of JSON that any reader reads.
pub(crate) fn reads_back(out: &Value) {
    let text = serde_json::to_string(out).expect("a value is written");
    assert!(!text.contains('\n'));
    let back: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    assert_eq!(&back, out);
}

fn size(part: &Part) -> usize {
    match part {
        Part::Text { text } | Part::Reasoning { text } | Part::Refusal { text } => text.len(),
        Part::ToolCall(call) => call.id.len() + call.name.len() + call.arguments.len(),
        Part::Opaque { json, .. } => json.len(),
        _ => 0,
    }
}

/// What the deltas add up to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    text: String,
    reasoning: String,
    refusal: String,
    calls: BTreeMap<usize, (String, String)>,
}

impl Shown {
    pub(crate) fn take(&mut self, delta: Delta<'_>) {
        match delta {
            Delta::Text(text) => self.text.push_str(text),
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::Refusal(text) => self.refusal.push_str(text),
            Delta::ToolCallStarted { index, name } => {
                let before = self.calls.insert(index, (name.to_owned(), String::new()));
                assert_eq!(before, None, "call {index} begins twice");
            }
            Delta::ToolArguments { index, json } => {
                let call = self.calls.get_mut(&index).expect("arguments of a call that began");
                call.1.push_str(json);
            }
            _ => {}
        }
    }
}

/// Holds the deltas of a stream to theirs.
pub(crate) fn of_deltas(shown: &Shown, body: usize) {
    let calls: usize = shown.calls.values().map(|(name, json)| name.len() + json.len()).sum();
    let said = shown.text.len() + shown.reasoning.len() + shown.refusal.len() + calls;
    assert!(said <= GROWTH * body, "{said} bytes of deltas for {body} bytes of body");
    for (n, index) in shown.calls.keys().enumerate() {
        assert_eq!(n, *index, "calls are counted from 0");
    }
}
