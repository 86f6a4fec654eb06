//! The provider trait, detection from metadata, and the HTTP statuses of the test vectors.

use endstop_core::ErrorClass as C;
use endstop_core::{SignalReason, TerminationSignal};
use endstop_wire::Headers;
use endstop_wire::detect::detector::{
    Anthropic, FinishDetector, Gemini, OpenAiResponses, Xai, detect,
};
use endstop_wire::errors::classify;
use endstop_wire::signal::finish;
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
fn anthropic_metadata_matches_original_signal() {
    let mut checked = 0;
    for case in vectors("signals_anthropic.json") {
        let (input, want) = (&case["input"], &case["expect"]);
        let s = of(input);
        if case["quirk"] == true && !case["id"].as_str().unwrap().contains("uppercase") {
            continue;
        }
        checked += 1;
        // A tool turn does not end the run, which is a deliberate difference from the original.
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
fn gemini_metadata_matches_original_signal() {
    // Cases that the original does not know or cannot distinguish: id, reason, confidence, ends.
    let ours = |id: &str| {
        Some(match id.rsplit('-').next().unwrap() {
            "LANGUAGE" => ("content_filtered", "medium", true),
            "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" => {
                ("content_filtered", "high", true)
            }
            "MALFORMED_FUNCTION_CALL" => ("error_termination", "high", true),
            "key" => ("natural_completion", "high", true),
            "stop" => ("tool_use", "high", false),
            "lowercase" => return None, // case matters here too
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
fn wrong_original_signals_are_corrected() {
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
fn responses_metadata_matches_original_signal() {
    let mut checked = 0;
    for case in vectors("signals_openai_responses.json") {
        let (input, want) = (&case["input"], &case["expect"]);
        // Cases that the original does not know; see below.
        if case["quirk"] == true {
            continue;
        }
        checked += 1;
        let s = OpenAiResponses.detect_termination(input).unwrap();
        // A tool turn does not end the run, which is a deliberate difference from the original.
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

/// Cases in which the original is wrong: case, reason and confidence, ends, deciding field,
/// explanation.
const XAI_QUIRKS: [(&str, &str, bool, &str, &str); 21] = {
    const GOING: &str = "a turn in progress has not ended";
    const OFF: &str = "a cancelled response is not an answer, whatever cancelled it";
    const FAILED: &str = "a failure is not a success, whatever the event is called";
    const CUT: &str = "a cut response is not complete";
    const COUNTS: &str = "a token count is not a reason for stopping";
    const SAID: &str = "a finish reason is the reason for stopping";
    const FILTER: &str = "a content filter is not a token limit";
    const ASKS: &str = "a tool request waits for its results";
    const DELTA: &str = "eventType=response.output_text.delta";
    const FILTERED: &str = "finish_reason=content_filter";
    const DETAILS: &str = "incomplete_details.reason=content_filter";
    [
        ("xa-resp-in_progress", "in_progress high", false, "status=in_progress", GOING),
        ("xa-delta-fin-in_progress", "in_progress high", false, "status=in_progress", GOING),
        ("xa-delta-open-in_progress", "in_progress high", false, "status=in_progress", GOING),
        ("xa-resp-queued", "in_progress high", false, "status=queued", GOING),
        ("xa-delta-fin-queued", "in_progress high", false, "status=queued", GOING),
        ("xa-delta-open-queued", "in_progress high", false, "status=queued", GOING),
        ("xa-resp-cancelled", "error_termination medium", true, "status=cancelled", OFF),
        ("xa-delta-fin-cancelled", "error_termination medium", true, "status=cancelled", OFF),
        ("xa-delta-open-cancelled", "error_termination medium", true, "status=cancelled", OFF),
        (
            "xa-event-completed-failed-status",
            "error_termination high",
            true,
            "status=failed",
            FAILED,
        ),
        (
            "xa-event-completed-incomplete",
            "token_limit_reached high",
            true,
            "status=incomplete",
            CUT,
        ),
        ("xa-event-failed", "error_termination high", true, "eventType=response.failed", FAILED),
        ("xa-usage-only", "unknown low", false, "finished=false", COUNTS),
        ("xa-usage-with-event", "unknown low", false, DELTA, COUNTS),
        ("xa-usage-with-status", "in_progress high", false, "status=in_progress", GOING),
        ("xa-usage-content-filter", "content_filtered high", true, FILTERED, FILTER),
        ("xa-finish-stop-ignored", "natural_completion high", true, "finish_reason=stop", SAID),
        (
            "xa-finish-length-ignored",
            "token_limit_reached high",
            true,
            "finish_reason=length",
            SAID,
        ),
        ("xa-incomplete-content_filter", "content_filtered high", true, DETAILS, FILTER),
        ("xa-incomplete-details-failed", "error_termination high", true, "status=failed", FAILED),
        ("xa-tool-calls-completed", "tool_use high", false, "status=completed", ASKS),
    ]
};

#[test]
fn xai_metadata_matches_original_signal() {
    let mut departed = Vec::new();
    for case in vectors("signals_xai.json") {
        let (id, input, want) = (case["id"].as_str().unwrap(), &case["input"], &case["expect"]);
        let s = detect(&Xai, input, |_, _| panic!("xAI has its own detection"));
        let got = json!({
            "should_terminate": s.should_terminate,
            // The original's name for it.
            "reason": match s.reason.as_str() { "error_termination" => "error", other => other },
            "confidence": s.confidence,
            "original_field": s.provider_specific.original_field,
            "original_value": s.provider_specific.original_value,
            "metadata": s.provider_specific.metadata,
            "is_terminal": Xai.is_terminal(input),
        });
        if case["quirk"] != true {
            assert_eq!(got, *want, "{id}");
            continue;
        }
        let listed = XAI_QUIRKS.iter().find(|row| row.0 == id);
        let (_, sure, ends, by, why) =
            listed.unwrap_or_else(|| panic!("{id} is not listed: {got}, not {want}"));
        assert_ne!(got, *want, "{id} agrees and needs no row ({why})");
        let ours = format!("{} {}", s.reason, got["confidence"].as_str().unwrap());
        assert_eq!((ours.as_str(), s.should_terminate), (*sure, *ends), "{id}: {why}");
        let said = &s.provider_specific;
        assert_eq!(format!("{}={}", said.original_field, said.original_value), *by, "{id}");
        departed.push(id.to_owned());
    }
    let listed: Vec<&str> = XAI_QUIRKS.iter().map(|row| row.0).collect();
    assert_eq!(departed, listed, "the list is stale");
}

#[test]
fn status_without_details_is_read() {
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
        (json!({"finish_reason": "STOP"}), R::NaturalCompletion, true, "finish_reason"),
        (json!({"finish_reason": " stop "}), R::Unknown, false, "finish_reason"),
    ] {
        let row = json!({"kind": "delta", "finished": false, "metadata": metadata});
        let s = OpenAiResponses.detect_termination(&row).unwrap();
        let got = (s.reason, s.should_terminate, s.provider_specific.original_field.as_ref());
        assert_eq!(got, (reason, ends, field), "{row}");
    }
}

#[test]
fn statuses_match_vector_classes() {
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
fn both_spellings_have_a_meaning() {
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
