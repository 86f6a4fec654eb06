//! The provider trait, detection from metadata, and the HTTP statuses of the vectors.

use endstop_core::ErrorClass as C;
use endstop_core::{SignalReason, TerminationSignal};
use endstop_wire::errors::classify;
use endstop_wire::provider::{Anthropic, Gemini, OpenAiResponses, Provider, detect};
use endstop_wire::{Headers, finish};
use serde_json::{Value, json};

fn vectors(name: &str) -> Vec<Value> {
    let path = format!("{}/../../testdata/conformance/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let mut file: Value = serde_json::from_str(&text).unwrap();
    serde_json::from_value(file["cases"].take()).unwrap()
}

fn of(input: &Value) -> TerminationSignal {
    detect(&Anthropic, input, |_, _| panic!("Anthropic has its own detection"))
}

#[test]
fn anthropic_metadata_gives_the_original_signal() {
    let mut checked = 0;
    for case in vectors("signals_anthropic.json") {
        let (input, want) = (&case["input"], &case["expect"]);
        let s = of(input);
        if case["quirk"] == true && !case["id"].as_str().unwrap().contains("uppercase") {
            continue;
        }
        checked += 1;
        // A tool turn does not end the model's part: DESIGN's departure from the original.
        if want["original_value"] == "tool_use" {
            assert_eq!((s.reason, s.should_terminate), (SignalReason::ToolUse, false));
            continue;
        }
        let got = json!([
            s.should_terminate,
            s.reason.as_str(),
            s.confidence,
            s.provider_specific.original_field,
            s.provider_specific.original_value,
            Anthropic.is_terminal(input),
        ]);
        let want = json!([
            want["should_terminate"],
            want["reason"],
            want["confidence"],
            want["original_field"],
            want["original_value"],
            want["is_terminal"],
        ]);
        assert_eq!(got, want, "{}", case["id"]);
    }
    println!("{checked} vectors agree");
    assert!(checked > 25);
}

#[test]
fn gemini_metadata_gives_the_original_signal() {
    // What the original does not know, or cannot tell apart: id, reason, confidence, ends.
    let ours = |id: &str| {
        Some(match id.rsplit('-').next().unwrap() {
            "LANGUAGE" => ("content_filtered", "medium", true),
            "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" => {
                ("content_filtered", "high", true)
            }
            "MALFORMED_FUNCTION_CALL" => ("error_termination", "high", true),
            "key" => ("natural_completion", "high", true),
            "stop" => ("tool_use", "high", false),
            "lowercase" => return None, // spelling counts here too
            other => panic!("{other}"),
        })
    };
    for case in vectors("signals_gemini.json") {
        let (id, input, want) = (case["id"].as_str().unwrap(), &case["input"], &case["expect"]);
        let s = detect(&Gemini, input, |_, _| panic!("Gemini has its own detection"));
        let quirk = if case["quirk"] == true { ours(id) } else { None };
        let got = json!({
            "should_terminate": s.should_terminate,
            "reason": s.reason.as_str(),
            "confidence": s.confidence,
            "original_field": s.provider_specific.original_field,
            "original_value": s.provider_specific.original_value,
            "metadata": s.provider_specific.metadata,
            "is_terminal": Gemini.is_terminal(input),
        });
        let mut want = want.clone();
        if let Some((reason, confidence, ends)) = quirk {
            want["reason"] = reason.into();
            want["confidence"] = confidence.into();
            want["should_terminate"] = ends.into();
            want["is_terminal"] = ends.into();
            if id == "ge-snake-key" {
                want["original_field"] = "finishReason".into();
                want["original_value"] = "STOP".into();
            }
        }
        assert_eq!(got, want, "{id}");
    }
}

#[test]
fn where_the_original_is_wrong_ours_is_right() {
    for (raw, reason, ends) in [
        ("pause_turn", SignalReason::Paused, false),
        ("refusal", SignalReason::ContentFiltered, true),
        ("model_context_window_exceeded", SignalReason::TokenLimitReached, true),
    ] {
        for key in ["stopReason", "stop_reason"] {
            for shape in [
                json!({"kind": "response", "metadata": {key: raw}}),
                json!({"kind": "delta", "finished": false, "metadata": {key: raw}}),
                json!({key: raw}),
            ] {
                let s = of(&shape);
                assert_eq!((s.reason, s.should_terminate), (reason, ends), "{shape}");
                assert_eq!(s.provider_specific.original_value, raw);
            }
        }
    }
    let wire = of(&json!({"kind": "response", "metadata": {"stop_reason": "end_turn"}}));
    assert_eq!(wire.reason, SignalReason::NaturalCompletion);
}

#[test]
fn responses_metadata_gives_the_original_signal() {
    let mut checked = 0;
    for case in vectors("signals_openai_responses.json") {
        let (input, want) = (&case["input"], &case["expect"]);
        // Where the original is wrong in what it does not know: see below.
        if case["quirk"] == true {
            continue;
        }
        checked += 1;
        let s = OpenAiResponses.detect_termination(input).unwrap();
        // A tool turn does not end the model's part: DESIGN's departure from the original.
        if matches!(want["original_value"].as_str(), Some("tool_calls" | "function_call")) {
            assert_eq!((s.reason, s.should_terminate), (SignalReason::ToolUse, false));
            continue;
        }
        let got = json!([
            s.should_terminate,
            s.reason.as_str(),
            s.confidence,
            s.provider_specific.original_field,
            s.provider_specific.original_value,
            OpenAiResponses.is_terminal(input),
        ]);
        let fields = ["should_terminate", "reason", "confidence", "original_field"];
        let mut wanted: Vec<Value> = fields.iter().map(|name| want[*name].clone()).collect();
        wanted.extend([want["original_value"].clone(), want["is_terminal"].clone()]);
        assert_eq!(got, Value::from(wanted), "{}", case["id"]);
        if s.reason != SignalReason::Unknown {
            assert_eq!(Value::from(s.provider_specific.metadata), want["metadata"]);
        }
    }
    assert_eq!(checked, 35);
}

#[test]
fn a_status_is_read_where_the_original_does_not_look() {
    use SignalReason as R;
    for (metadata, reason, ends, field) in [
        (json!({"status": "completed"}), R::NaturalCompletion, true, "status"),
        (
            json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}),
            R::TokenLimitReached,
            true,
            "incomplete_details.reason",
        ),
        (json!({"status": "queued"}), R::InProgress, false, "status"),
        (json!({"eventType": "response.failed"}), R::ErrorTermination, true, "status"),
        (json!({"eventType": "response.incomplete"}), R::Unknown, true, "status"),
        (
            json!({"eventType": "response.completed", "finish_reason": "tool_calls"}),
            R::ToolUse,
            false,
            "finish_reason",
        ),
        // Spelling counts.
        (json!({"finish_reason": "STOP"}), R::Unknown, false, "finish_reason"),
        (json!({"finish_reason": " stop "}), R::Unknown, false, "finish_reason"),
    ] {
        let row = json!({"kind": "delta", "finished": false, "metadata": metadata});
        let s = OpenAiResponses.detect_termination(&row).unwrap();
        let got = (s.reason, s.should_terminate, s.provider_specific.original_field.as_str());
        assert_eq!(got, (reason, ends, field), "{row}");
    }
}

#[test]
fn statuses_have_the_classes_of_the_vectors() {
    let mut checked = 0;
    for case in vectors("terminations.json") {
        let Some(status) = case["input"]["status"].as_u64() else {
            continue;
        };
        let class = classify(u16::try_from(status).unwrap(), &Headers::new(), "", "").class;
        let allowed: &[C] = match case["expect"]["kind"].as_str().unwrap() {
            "unauthorized" => &[C::Authentication, C::Permission],
            "not_found" => &[C::NotFound],
            "timeout" => &[C::Timeout],
            "context_length_exceeded" => &[C::RequestTooLarge],
            "rate_limited" => &[C::RateLimit],
            "bad_request" => &[C::InvalidRequest],
            "server_error" => &[C::ServerError, C::Overloaded],
            "unknown" => &[C::UnknownError],
            other => panic!("{other}"),
        };
        assert!(allowed.contains(&class), "{status}: {class}");
        checked += 1;
    }
    assert!(checked >= 13);
}

#[test]
fn either_spelling_has_a_meaning() {
    use endstop_wire::Finish as F;
    for (raw, want) in [
        ("stop", F::Natural),
        ("end_turn", F::Natural),
        ("max_tokens", F::Length),
        ("length", F::Length),
        ("tool_use", F::ToolUse),
        ("tool_calls", F::ToolUse),
        ("pause_turn", F::Paused),
        ("refusal", F::ContentFilter),
        ("content_filter", F::ContentFilter),
        ("stop_sequence", F::StopSequence),
        ("", F::Missing),
        ("banana", F::Unknown),
    ] {
        assert_eq!(finish::finish_of_any(raw), want, "{raw}");
    }
}
