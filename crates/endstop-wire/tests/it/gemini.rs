//! Gemini beyond its recordings: every finish value, blocked prompts, errors, and cut arrays.

use endstop_core::{ErrorClass, ModelTurn, Part};
use endstop_wire::detect::{detect, printed, request_facts};
use endstop_wire::dialect::dialect;
use endstop_wire::{Decoded, Delta, Eof, Headers, RequestFacts, StreamDecoder, decode_body};
use serde_json::{Value, json};

fn decode(body: &str) -> Decoded {
    let facts = RequestFacts::default();
    decode_body(dialect("gemini").unwrap(), 200, &Headers::new(), body.as_bytes(), &facts)
}

fn chunk(parts: &Value, finish: Option<&str>) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish}]})
}

fn said(text: &str, finish: &str) -> Value {
    chunk(&json!([{"text": text}]), Some(finish))
}

fn events(list: &[Value]) -> String {
    list.iter().map(|e| format!("data: {e}\n\n")).collect::<Vec<_>>().concat()
}

/// Returns reason, confidence, field and value.
fn signal(d: &Decoded) -> (String, String, String, Value) {
    let out = printed(d)["signal"].clone();
    let field = |v: &Value| v.as_str().unwrap().to_owned();
    let by = &out["provider_specific"];
    (
        field(&out["reason"]),
        field(&out["confidence"]),
        field(&by["original_field"]),
        by["original_value"].clone(),
    )
}

/// The catalogue's values, each on a turn with text.
#[test]
fn catalogue_values_have_their_signal() {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/recordings/finish_reasons.json");
    let catalogue: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let mut checked = 0;
    for row in catalogue["apis"]["gemini"]["values"].as_array().unwrap() {
        let Some(value) = row["value"].as_str().filter(|v| !v.contains(' ')) else {
            continue; // a missing value, or numbers
        };
        let (body, field) = if row["field"] == "promptFeedback.blockReason" {
            (json!({"promptFeedback": {"blockReason": value}}), "promptFeedback.blockReason")
        } else {
            (said("x", value), "finishReason")
        };
        let d = decode(&body.to_string());
        let want = |key: &str| row[key].as_str().unwrap().to_owned();
        let want = (want("reason"), want("confidence"), field.to_owned(), json!(value));
        assert_eq!(signal(&d), want);
        assert_eq!(d.signal.should_terminate, row["should_terminate"] == true, "{value}");
        assert!(d.error.is_none(), "{value}: the provider answered");
        checked += 1;
    }
    assert!(checked > 30, "{checked}");
}

#[test]
fn numeric_values_stand_for_names() {
    for (n, reason, confidence) in [
        (0, "unknown", "low"),
        (1, "natural_completion", "high"),
        (2, "token_limit_reached", "high"),
        (3, "content_filtered", "high"),
        (4, "content_filtered", "high"),
        (5, "unknown", "medium"),
        (6, "unknown", "medium"),
        (99, "unknown", "medium"),
    ] {
        let body =
            json!({"candidates": [{"content": {"parts": [{"text": "x"}]}, "finishReason": n}]});
        let s = signal(&decode(&body.to_string()));
        let want = (reason.into(), confidence.into(), "finishReason".into(), json!(n.to_string()));
        assert_eq!(s, want);
    }
}

#[test]
fn new_finish_value_is_unknown() {
    let s = signal(&decode(&said("x", "FAKE_NEW_FINISH_REASON").to_string()));
    assert_eq!((s.0.as_str(), s.3), ("unknown", json!("FAKE_NEW_FINISH_REASON")));
    // A blocked prompt counts under any reason, but it does not override a finish value.
    let s = signal(&decode(r#"{"promptFeedback":{"blockReason":"FAKE_ENUM"}}"#));
    assert_eq!((s.0.as_str(), s.1.as_str()), ("content_filtered", "high"));
    let mut body = said("x", "STOP");
    body["promptFeedback"] = json!({"blockReason": "BLOCKED_REASON_UNSPECIFIED"});
    assert_eq!(signal(&decode(&body.to_string())).0, "natural_completion");
}

#[test]
fn calls_make_a_tool_turn() {
    let call = json!([{"functionCall": {"name": "f", "args": {"a": 1}}}]);
    for (finish, reason, confidence) in [
        (Some("STOP"), "tool_use", "high"),
        (Some("MAX_TOKENS"), "token_limit_reached", "high"),
        (Some("SAFETY"), "content_filtered", "high"),
        (Some("UNEXPECTED_TOOL_CALL"), "error_termination", "high"),
        (Some("OTHER"), "unknown", "low"),
        (None, "tool_use", "low"),
    ] {
        let s = signal(&decode(&chunk(&call, finish).to_string()));
        assert_eq!((s.0.as_str(), s.1.as_str()), (reason, confidence), "{finish:?}");
    }
    // In a stream a missing value means a missing end.
    let d = decode(&events(&[chunk(&call, None)]));
    assert_eq!(d.error.unwrap().class, ErrorClass::IncompleteStream);
}

#[test]
fn empty_answer_is_unknown() {
    for body in ["{}", r#"{"candidates":[]}"#, r#"{"usageMetadata":{"promptTokenCount":3}}"#] {
        let s = signal(&decode(body));
        assert_eq!(s, ("unknown".into(), "low".into(), "candidates".into(), json!("empty")));
    }
    let s = signal(&decode(&chunk(&json!([{"text": "x"}]), None).to_string()));
    assert_eq!(s, ("unknown".into(), "low".into(), "finishReason".into(), Value::Null));
}

#[test]
fn stop_strings_lower_confidence() {
    let request = json!({"generationConfig": {"stopSequences": ["END"], "maxOutputTokens": 5}});
    assert_eq!(
        request_facts(&request),
        RequestFacts { stop_strings: true, output_cap: Some(5), ..RequestFacts::default() }
    );
    let row = json!({"api": "gemini", "body": said("x", "STOP").to_string(), "request": request});
    assert_eq!(detect(&row).unwrap()["signal"]["confidence"], "medium");
}

#[test]
fn thoughts_count_as_output_tokens() {
    let mut body = chunk(&json!([{"text": "hm", "thought": true}]), Some("MAX_TOKENS"));
    body["usageMetadata"] = json!({"promptTokenCount": 9, "candidatesTokenCount": 2,
        "thoughtsTokenCount": 60, "cachedContentTokenCount": 4});
    let turn = decode(&body.to_string()).turn.unwrap();
    assert_eq!(turn.parts, [Part::Reasoning { text: "hm".into() }]);
    assert_eq!((turn.usage.output_tokens, turn.usage.generated_tokens()), (Some(2), Some(62)));
    assert_eq!((turn.usage.total_tokens(), turn.usage.cached_input_tokens), (71, Some(4)));
}

#[test]
fn errors_are_named_by_status() {
    let error = json!({"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}});
    let cancelled =
        json!({"error": {"message": "The operation was cancelled.", "status": "CANCELLED"}});
    let bare = format!("data: {}\n\n{:#}\n", chunk(&json!([{"text": "Hel"}]), None), cancelled);
    for (body, class, name, text) in [
        (error.to_string(), ErrorClass::Overloaded, "UNAVAILABLE", ""),
        (events(&[said("Hel", ""), error.clone()]), ErrorClass::Overloaded, "UNAVAILABLE", "Hel"),
        (format!("[{error}]"), ErrorClass::Overloaded, "UNAVAILABLE", ""),
        (bare, ErrorClass::Cancelled, "CANCELLED", "Hel"),
    ] {
        let d = decode(&body);
        assert_eq!(d.error.as_ref().unwrap().class, class, "{body}");
        let want = ("error_termination".into(), "high".into(), "error.status".into(), json!(name));
        assert_eq!(signal(&d), want, "{body}");
        assert_eq!(d.turn.map_or(String::new(), |t| t.text()), text);
    }
}

/// An array decodes like an event stream of the same chunks, for every chunk size. If it ends too
/// early, the parts so far are stored.
#[test]
fn array_decodes_like_event_stream() {
    let chunks = [
        chunk(&json!([{"text": "Hel\"]}"}]), None),
        chunk(
            &json!([{"text": "lo é"}, {"functionCall": {"name": "f", "args": {"a": [1]}}}]),
            None,
        ),
        said("", "STOP"),
    ];
    let array = format!("\u{feff}{:#}", Value::from(chunks.to_vec()));
    let run = |body: &[u8], cut: usize| {
        let dialect = dialect("gemini").unwrap();
        let mut s = StreamDecoder::new(dialect, 200, Headers::new(), RequestFacts::default());
        let mut shown = String::new();
        for piece in body.chunks(cut) {
            s.push(piece, &mut |d| {
                if let Delta::Text(t) | Delta::ToolArguments { json: t, .. } = d {
                    shown.push_str(&t.replace(char::is_whitespace, ""));
                }
            })
            .unwrap();
        }
        (s.finish(Eof::Clean), shown)
    };
    let (whole, shown) = run(array.as_bytes(), usize::MAX);
    assert_eq!(shown, r#"Hel"]}loé{"a":[1]}"#);
    assert_eq!(signal(&whole), signal(&decode(&events(&chunks))));
    assert!(whole.streamed && whole.complete);
    let mut texts = Vec::new();
    for end in 0..array.len() {
        let cut = run(&array.as_bytes()[..end], 1);
        assert_eq!(cut, run(&array.as_bytes()[..end], 7), "{end}");
        assert_eq!(cut, run(&array.as_bytes()[..end], usize::MAX), "{end}");
        let text = cut.0.turn.as_ref().map_or(String::new(), ModelTurn::text);
        let class = cut.0.error.map(|e| e.class);
        let want = if cut.0.complete { None } else { Some(ErrorClass::IncompleteStream) };
        assert_eq!(class, want, "{end}");
        texts.push(text);
    }
    texts.dedup();
    assert_eq!(texts, ["", "Hel\"]}", "Hel\"]}lo é"]);
}

#[test]
fn cut_argument_fragments_do_not_parse() {
    let begin = chunk(&json!([{"functionCall": {"name": "f", "willContinue": true}}]), None);
    let piece = |text: &str, more: bool| {
        let piece = json!({"jsonPath": "$.a", "stringValue": text, "willContinue": more});
        chunk(&json!([{"functionCall": {"partialArgs": [piece], "willContinue": true}}]), None)
    };
    let end = chunk(&json!([{"functionCall": {}}]), None);
    let stop = said("", "STOP");
    let (one, two) = (piece("x", true), piece("y", false));
    let d = decode(&events(&[begin.clone(), one.clone(), two, end.clone(), stop.clone()]));
    let call = d.turn.as_ref().unwrap().tool_calls().next().unwrap();
    assert_eq!(call.arguments, r#"{"a":"xy"}"#);
    assert_eq!(signal(&d).0, "tool_use");
    let d = decode(&events(&[begin, one, stop.clone()]));
    assert_eq!(d.signal.provider_specific.metadata["invalid_args"], true);
    let d = decode(&events(&[end, stop]));
    assert_eq!(d.turn.unwrap().tool_calls().count(), 0, "a placeholder");
}
