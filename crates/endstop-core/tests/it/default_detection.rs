//! Default detection and its helpers, checked with the conformance vectors.

use crate::vectors::{assert_differences, cases, id};
use endstop_core::signal::{
    YesNo, calculate_confidence, create_signal, default_detection, is_signal,
};
use endstop_core::{Confidence, ProviderSpecific, SignalReason, TerminationSignal};
use serde_json::{Map, Value, json};

/// Cases in which Endstop differs from the original, with its result and the reason.
const DIFFERS: &[(&str, &str)] = &[
    // Calls outrank a stop-like value, because a turn with calls does not end the run.
    ("dd-resp-tools-true", "tool_use medium, does not terminate"),
    // The original reads `toolCalls` only.
    ("dd-resp-tools-snake-true", "tool_use medium, does not terminate"),
    ("dd-resp-tools-false", "tool_use high, does not terminate"),
    ("dd-resp-tools-snake-false", "tool_use high, does not terminate"),
    // The field is named as in the payload.
    ("dd-delta-meta-finished-true", "field metadata.finished"),
    ("dd-delta-meta-finished-false", "field metadata.finished"),
    // Finish reasons on deltas are read, and a truncated stream is truncated.
    ("dd-delta-finish-reason-true", "natural_completion high from finish_reason"),
    ("dd-delta-finish-reason-false", "natural_completion high from finish_reason"),
    ("dd-delta-finished-length-true", "token_limit_reached high from finish_reason"),
    ("dd-delta-finished-length-false", "token_limit_reached high from finish_reason"),
    // A turn with calls is `tool_use` and does not end the run, whatever the provider's flag is.
    ("dd-fr-tool_calls-true", "tool_use high, does not terminate"),
    ("dd-fr-function_call-true", "tool_use high, does not terminate"),
    ("dd-sr-tool_use-true", "tool_use high, does not terminate"),
    ("dd-fr-tool_calls-false", "tool_use high, does not terminate"),
    ("dd-fr-function_call-false", "tool_use high, does not terminate"),
    ("dd-sr-tool_use-false", "tool_use high, does not terminate"),
    // The same mapping as in the original's own Gemini provider.
    ("dd-gm-RECITATION-true", "content_filtered high"),
    ("dd-gm-RECITATION-false", "content_filtered high"),
    // The known value counts, with medium confidence because the unknown one contradicts it.
    ("dd-unknown-first-shadows", "natural_completion medium from stop_reason"),
    // Known values are compared without regard to case.
    ("dd-case-sensitive", "natural_completion high"),
    // The check validates the fields that it knows.
    ("tg-unknown-reason-accepted", "not a signal"),
    ("tg-message-not-string", "not a signal"),
    ("tg-metadata-not-object", "not a signal"),
    // The signal has a message; the output of the original omits it.
    ("cs-full", "message kept"),
];

fn camel(signal: &TerminationSignal) -> Value {
    let mut specific = json!({
        "originalField": signal.provider_specific.original_field,
        "originalValue": signal.provider_specific.original_value,
    });
    if !signal.provider_specific.metadata.is_empty() {
        specific["metadata"] = json!(signal.provider_specific.metadata);
    }
    let mut out = json!({
        "shouldTerminate": signal.should_terminate,
        "reason": signal.reason,
        "confidence": signal.confidence,
        "providerSpecific": specific,
    });
    if let Some(message) = &signal.message {
        out["message"] = json!(message);
    }
    out
}

fn from_camel(value: &Value) -> TerminationSignal {
    let text = |key: &str| value["providerSpecific"][key].as_str().unwrap().to_owned();
    TerminationSignal {
        should_terminate: value["shouldTerminate"].as_bool().unwrap(),
        reason: serde_json::from_value(value["reason"].clone()).unwrap(),
        confidence: serde_json::from_value(value["confidence"].clone()).unwrap(),
        provider_specific: ProviderSpecific {
            original_field: text("originalField").into(),
            original_value: text("originalValue"),
            metadata: Map::new(),
        },
        message: None,
    }
}

fn helper(name: &str, input: &Value) -> Value {
    let flag = |key: &str| input[key].as_bool().unwrap();
    match name {
        "calculate_confidence" => json!({"confidence":
            calculate_confidence(flag("has_explicit_signal"), flag("is_well_known_value"))}),
        "is_signal" => json!({"valid": is_signal(&input["value"])}),
        "create_signal" => {
            let text = |key: &str| input[key].as_str().unwrap().to_owned();
            let mut signal = create_signal(
                flag("should_terminate"),
                text("original_field"),
                text("original_value"),
            );
            if let Some(reason) = input.get("reason") {
                signal.reason = serde_json::from_value(reason.clone()).unwrap();
                signal.confidence = serde_json::from_value(input["confidence"].clone()).unwrap();
                signal.message = Some(text("message").to_owned());
                signal.provider_specific.metadata =
                    serde_json::from_value(input["metadata"].clone()).unwrap();
            }
            camel(&signal)
        }
        other => panic!("unknown helper {other}"),
    }
}

fn detect(input: &Value) -> Value {
    let result = default_detection(&YesNo {
        payload: &input["payload"],
        is_terminal: input["is_terminal"].as_bool(),
        own: input.get("detect").map(from_camel),
        strict: false,
    });
    let Ok(signal) = result else {
        return json!({"raises": "TypeError"});
    };
    let own = input.get("detect").is_some();
    let mut out = json!({
        "should_terminate": signal.should_terminate,
        "reason": signal.reason,
        "confidence": signal.confidence,
        "original_field": signal.provider_specific.original_field,
        "original_value": signal.provider_specific.original_value,
        "metadata": signal.provider_specific.metadata,
    });
    if own {
        out["metadata"] = Value::Null;
        out["message"] = Value::Null;
    }
    out
}

#[test]
fn vectors() {
    let mut found = Vec::new();
    for case in cases("default_detection.json", 111) {
        let input = &case["input"];
        let ours = match input.get("fn").and_then(Value::as_str) {
            Some(name) => helper(name, input),
            None => detect(input),
        };
        if ours != case["expect"] {
            found.push((id(&case).to_owned(), format!("{ours} for {}", case["expect"])));
        }
    }
    assert_differences(&found, DIFFERS);
}

#[test]
fn listed_differences_match_their_description() {
    for case in cases("default_detection.json", 111) {
        let Some((_, said)) = DIFFERS.iter().find(|(name, _)| *name == id(&case)) else {
            continue;
        };
        if !id(&case).starts_with("dd-") {
            continue;
        }
        let ours = detect(&case["input"]);
        let text = |key: &str| ours[key].as_str().unwrap();
        let summary = format!(
            "{} {} from {} field {}{}",
            text("reason"),
            text("confidence"),
            text("original_field"),
            text("original_field"),
            if ours["should_terminate"] == json!(false) { ", does not terminate" } else { "" }
        );
        for word in said.split([' ', ',']).filter(|w| !w.is_empty()) {
            assert!(summary.contains(word), "{}: {said}: {summary}", id(&case));
        }
    }
}

fn signal(payload: &Value, is_terminal: bool, strict: bool) -> TerminationSignal {
    let from = YesNo { payload, is_terminal: Some(is_terminal), own: None, strict };
    default_detection(&from).unwrap()
}

#[test]
fn strict_detection_without_evidence_is_unknown() {
    let response = json!({"message": {"role": "assistant", "content": "All done."}});
    let lenient = signal(&response, true, false);
    assert_eq!(lenient.reason, SignalReason::NaturalCompletion);
    assert_eq!(lenient.confidence, Confidence::Medium);
    let strict = signal(&response, true, true);
    assert_eq!(strict.reason, SignalReason::Unknown);
    assert_eq!(strict.confidence, Confidence::Low);
    assert!(strict.should_terminate);
}

#[test]
fn truncated_or_filtered_turn_outranks_calls() {
    for (value, reason) in [
        ("length", SignalReason::TokenLimitReached),
        ("SAFETY", SignalReason::ContentFiltered),
        ("stop", SignalReason::ToolUse),
        ("weird", SignalReason::ToolUse),
    ] {
        let response = json!({
            "message": {"content": "x", "metadata": {"toolCalls": [{"id": "c", "name": "t"}]}},
            "metadata": {"finish_reason": value}
        });
        let signal = signal(&response, true, false);
        assert_eq!(signal.reason, reason, "{value}");
        assert_eq!(signal.provider_specific.original_value, value);
    }
}

#[test]
fn invalid_payloads_do_not_panic() {
    let signal = create_signal(true, "f", "v");
    assert!(is_signal(&serde_json::to_value(&signal).unwrap()));
    for payload in [json!(null), json!([]), json!("x"), json!({"metadata": 1, "delta": 2})] {
        let _ = self::signal(&payload, true, false);
    }
}
