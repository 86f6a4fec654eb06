//! Invariants that every decoded response must satisfy, as the library's documentation states them.

use endstop_core::{Part, SignalReason};
use endstop_wire::dialect::Dialect;
use endstop_wire::detect::printed;
use endstop_wire::redact::EXCERPT_CHARS;
use endstop_wire::{Decoded, Delta, WireFormat};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// Maximum bytes of a turn per byte of its body. A byte that is not UTF-8 becomes three, a number
/// in its shortest form becomes several, and opaque parts for the provider are stored in addition
/// to the visible content.
const GROWTH: usize = 16;
/// Additional bytes that every turn may have.
const BASE: usize = 4096;

/// Checks the invariants of a response.
pub(crate) fn of(d: &Decoded, dialect: &'static Dialect, status: u16, body: usize) {
    let signal = &d.signal;
    let reason = signal.reason;
    let answered = status == 0 || (200..300).contains(&status);

    // If there is an error, the signal reports it, and its excerpts are bounded.
    if let Some(e) = &d.error {
        assert_eq!(reason, SignalReason::ErrorTermination, "{e}");
        assert!(signal.should_terminate);
        assert!(e.message.chars().count() <= EXCERPT_CHARS, "{e}");
        assert!(!e.message.is_empty(), "an error without words");
        let value = &signal.provider_specific.original_value;
        assert!(value.chars().count() <= EXCERPT_CHARS, "{value}");
    }
    assert!(answered || d.error.is_some(), "the status says error");
    assert!(d.complete || d.error.is_some(), "an incomplete response without an error");
    assert!(d.error.is_some() || d.turn.is_some(), "neither a turn nor an error");

    // An unknown or incomplete ending is not a success.
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

    // Every call can be answered: it has a name and a unique id, and invalid arguments are marked.
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
        assert!(!success || calls == 0, "a success with unanswered calls");
        assert!(reason != SignalReason::ToolUse || calls > 0, "tools without a call");
        let told = signal.provider_specific.metadata.get("invalid_args");
        assert_eq!(bad, told == Some(&Value::Bool(true)), "{:?}", turn.parts);
    }

    // Opaque parts are valid JSON of this format, because they are sent back to the provider.
    for part in &turn.parts {
        if let Part::Opaque { api, json } = part {
            // Bedrock's InvokeModel wraps another format, whose name the part has.
            let invoke = dialect.family == WireFormat::BedrockInvoke;
            assert!(
                api == dialect.family.as_str() || invoke && WireFormat::named(api).is_some(),
                "{api}"
            );
            assert!(serde_json::from_str::<serde::de::IgnoredAny>(json).is_ok(), "{json}");
        }
    }

    // Memory is bounded by the input.
    let size: usize = turn.parts.iter().map(size).sum();
    assert!(size <= GROWTH * body + BASE, "{size} bytes of turn for {body} bytes of body");

    // The printed and the journalled form can be parsed again.
    let out = Value::Object(printed(d));
    reads_back(&out);
    let journal = serde_json::to_string(turn).expect("a turn is written");
    let back: endstop_core::ModelTurn =
        serde_json::from_str(&journal).unwrap_or_else(|e| panic!("{e}: {journal}"));
    assert_eq!(back.parts, turn.parts);
}

/// Checks that a value is printed as one line of JSON that parses back to it.
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

/// The sum of all deltas of a stream.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    text: String,
    reasoning: String,
    refusal: String,
    calls: BTreeMap<usize, (String, String)>,
    /// Bytes that are not part of the turn.
    hidden: usize,
}

impl Shown {
    pub(crate) fn take(&mut self, delta: Delta<'_>) {
        match delta {
            Delta::Text(text) => self.text.push_str(text),
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::Refusal(text) => self.refusal.push_str(text),
            Delta::Hidden(text) | Delta::HiddenReasoning(text) => self.hidden += text.len(),
            Delta::ToolCallStarted { index, name, .. } => {
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

/// Checks the invariants of the deltas of a stream.
pub(crate) fn of_deltas(shown: &Shown, body: usize) {
    let calls: usize = shown.calls.values().map(|(name, json)| name.len() + json.len()).sum();
    let said = shown.text.len() + shown.reasoning.len() + shown.refusal.len() + calls + shown.hidden;
    assert!(said <= GROWTH * body, "{said} bytes of deltas for {body} bytes of body");
    for (n, index) in shown.calls.keys().enumerate() {
        assert_eq!(n, *index, "calls are counted from 0");
    }
}
