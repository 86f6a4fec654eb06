//! Bedrock beyond its recordings: every finish value, every exception, the formats of the models
//! behind InvokeModel, and guardrails.

mod invoke;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use endstop_core::{ErrorClass, ModelTurn, Part};
use endstop_wire::detect::{printed, request_facts};
use endstop_wire::dialect::dialect;
use endstop_wire::errors::classify;
use endstop_wire::stream::eventstream::frame;
use endstop_wire::{Decoded, Delta, Eof, Headers, RequestFacts, StreamDecoder, decode_body};
use proptest::prelude::*;
use serde_json::{Value, json};

fn decode(api: &str, body: &[u8]) -> Decoded {
    let facts = RequestFacts::default();
    decode_body(dialect(api).unwrap(), 200, &Headers::new(), body, &facts)
}

/// Decodes a stream in chunks of this size. Also returns the text of its deltas.
fn streamed(api: &str, body: &[u8], cut: usize) -> (Decoded, String) {
    let dialect = dialect(api).unwrap();
    let mut s = StreamDecoder::new(dialect, 200, Headers::new(), RequestFacts::default());
    let mut shown = String::new();
    for piece in body.chunks(cut) {
        let pushed = s.push(piece, &mut |d| match d {
            Delta::Text(t) | Delta::ToolArguments { json: t, .. } => shown.push_str(t),
            Delta::Reasoning(t) => shown.push_str(&["<", t, ">"].concat()),
            _ => {}
        });
        if pushed.is_err() {
            break;
        }
    }
    (s.finish(Eof::Clean), shown)
}

fn event(kind: &str, data: &Value) -> Vec<u8> {
    let headers =
        [(":event-type", kind), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, data.to_string().as_bytes())
}

fn exception(kind: &str, message: &str) -> Vec<u8> {
    let headers = [(":exception-type", kind), (":message-type", "exception")];
    frame(&headers, json!({"message": message}).to_string().as_bytes())
}

fn text(words: &str) -> Vec<u8> {
    event("contentBlockDelta", &json!({"contentBlockIndex": 0, "delta": {"text": words}}))
}

fn stop(reason: &str) -> Vec<u8> {
    event("messageStop", &json!({"stopReason": reason, "p": "abc"}))
}

fn usage() -> Vec<u8> {
    let usage = json!({"inputTokens": 3, "outputTokens": 4, "totalTokens": 20,
        "cacheReadInputTokens": 6, "cacheWriteInputTokens": 7});
    event("metadata", &json!({"usage": usage, "metrics": {"latencyMs": 1}}))
}

fn chunk(data: &Value) -> Vec<u8> {
    event("chunk", &json!({"bytes": STANDARD.encode(data.to_string()), "p": "abc"}))
}

/// Returns reason, confidence, field and value.
fn signal(d: &Decoded) -> (String, String, String, Value) {
    let out = printed(d)["signal"].clone();
    let field = |v: &Value| v.as_str().unwrap().to_owned();
    let by = &out["provider_specific"];
    let (reason, confidence) = (field(&out["reason"]), field(&out["confidence"]));
    (reason, confidence, field(&by["original_field"]), by["original_value"].clone())
}

fn class(d: &Decoded) -> Option<ErrorClass> {
    d.error.as_ref().map(|e| e.class)
}

fn said(d: &Decoded) -> String {
    d.turn.as_ref().map_or(String::new(), ModelTurn::text)
}

fn catalogue(name: &str) -> Value {
    let path = format!("{}/../../testdata/recordings/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

// --- Converse ---

proptest! {
    /// A turn with one wrong byte: no panic, and the same result for every chunk size.
    #[test]
    fn corrupt_byte_result_is_chunk_independent(flip in any::<prop::sample::Index>(), cut in 1usize..60) {
        let mut bytes = [text("Hel"), text("lo"), stop("end_turn"), usage()].concat();
        let at = flip.index(bytes.len());
        bytes[at] ^= 1;
        let (d, shown) = streamed("bedrock-converse", &bytes, usize::MAX);
        prop_assert!(d.error.is_some(), "a checksum tells of it");
        prop_assert_eq!(streamed("bedrock-converse", &bytes, cut), (d, shown));
    }
}

#[test]
fn catalogue_values_have_their_signal() {
    let mut checked = 0;
    for row in
        catalogue("finish_reasons.json")["apis"]["bedrock-converse"]["values"].as_array().unwrap()
    {
        let value = row["value"].as_str().unwrap();
        let call = json!({"toolUse": {"toolUseId": "t", "name": "f", "input": {}}});
        let blocks = if value == "tool_use" { json!([call]) } else { json!([{"text": "x"}]) };
        let body = json!({"output": {"message": {"role": "assistant", "content": blocks}},
            "stopReason": value, "usage": {}});
        let mut stream = if value == "tool_use" {
            let start = json!({"toolUse": {"toolUseId": "t", "name": "f"}});
            event("contentBlockStart", &json!({"contentBlockIndex": 0, "start": start}))
        } else {
            text("x")
        };
        stream.extend(stop(value));
        let want = |key: &str| row[key].as_str().unwrap().to_owned();
        let want = (want("reason"), want("confidence"), "stopReason".to_owned(), json!(value));
        for body in [body.to_string().into_bytes(), stream] {
            let d = decode("bedrock-converse", &body);
            assert_eq!(signal(&d), want);
            assert_eq!(d.signal.should_terminate, row["should_terminate"] == true, "{value}");
            assert!(d.error.is_none() && d.complete, "{value}: the provider answered");
        }
        checked += 1;
    }
    assert_eq!(checked, 9);
    let d = decode("bedrock-converse", &[text("x"), stop("END_TURN"), usage()].concat());
    assert_eq!(signal(&d).0, "unknown");
}

#[test]
fn stop_and_usage_order_is_free() {
    for order in [[stop("end_turn"), usage()], [usage(), stop("end_turn")]] {
        let bytes = [text("Hel"), text("lo"), order.concat()].concat();
        let dialect = dialect("bedrock-converse").unwrap();
        let mut s = StreamDecoder::new(dialect, 200, Headers::new(), RequestFacts::default());
        s.push(&bytes[..bytes.len() - 1], &mut |_| ()).unwrap();
        assert!(!s.is_complete(), "there is more to read");
        s.push(&bytes[bytes.len() - 1..], &mut |_| ()).unwrap();
        assert!(s.is_complete());
        let d = s.finish(Eof::Clean);
        assert!(d.complete && d.streamed && d.error.is_none());
        assert_eq!(said(&d), "Hello");
        let used = d.turn.unwrap().usage;
        assert_eq!((used.input_tokens, used.output_tokens), (Some(3), Some(4)));
        assert_eq!((used.cached_input_tokens, used.cache_write_tokens), (Some(6), Some(7)));
        assert_eq!((used.prompt_tokens(), used.total_tokens()), (16, 20), "caches are apart");
    }
}

#[test]
fn early_end_needs_finish_value() {
    let (head, end) = ([text("Hel"), text("lo")].concat(), [stop("end_turn"), usage()].concat());
    let bytes = [head.clone(), end].concat();
    let stopped = head.len() + stop("end_turn").len();
    for cut in 0..=bytes.len() {
        let (d, shown) = streamed("bedrock-converse", &bytes[..cut], 7);
        assert_eq!(streamed("bedrock-converse", &bytes[..cut], 1), (d.clone(), shown));
        let want = (cut < stopped).then_some(ErrorClass::IncompleteStream);
        assert_eq!(class(&d), want, "{cut}");
        assert_eq!(d.signal.reason.as_str() == "natural_completion", cut >= stopped, "{cut}");
    }
    // A wrong checksum is not a cut: the parts so far are stored, but not taken for the answer.
    let mut bytes = bytes;
    *bytes.last_mut().unwrap() ^= 1;
    let (d, shown) = streamed("bedrock-converse", &bytes, 7);
    assert_eq!((class(&d), shown.as_str()), (Some(ErrorClass::ServerError), "Hello"));
    let message = d.error.unwrap().message;
    assert!(message.contains("checksum"), "{message}");
}

#[test]
fn stream_exceptions_have_their_class() {
    for (kind, class) in [
        ("throttlingException", "rate_limit"),
        ("modelStreamErrorException", "server_error"),
        ("internalServerException", "server_error"),
        ("serviceUnavailableException", "overloaded"),
        ("validationException", "invalid_request"),
        ("modelTimeoutException", "timeout"),
        ("serviceQuotaExceededException", "quota_exhausted"),
        ("accessDeniedException", "permission"),
        ("somethingNewException", "server_error"),
    ] {
        let line = json!({kind: {"message": "Try again."}});
        let lines =
            format!("{}\n{line}\n", json!({"contentBlockDelta": {"delta": {"text": "Hel"}}}));
        let known =
            !matches!(class, "quota_exhausted" | "permission") && kind != "somethingNewException";
        let mut streams = vec![[text("Hel"), exception(kind, "Try again.")].concat()];
        streams.extend(known.then(|| lines.into_bytes()));
        for bytes in streams {
            let d = streamed("bedrock-converse", &bytes, 5).0;
            let error = d.error.clone().unwrap();
            assert_eq!(
                (error.class.as_str(), error.message.as_str()),
                (class, "Try again."),
                "{kind}"
            );
            let want =
                ("error_termination".into(), "high".into(), ":exception-type".into(), json!(kind));
            assert_eq!((signal(&d), said(&d)), (want, "Hel".to_owned()));
        }
    }
    let context = exception("validationException", "Input is too long for requested model.");
    let d = decode("bedrock-invoke", &context);
    assert_eq!(class(&d), Some(ErrorClass::ContextLengthExceeded));
    // A failure of the service itself has a code instead of an exception name.
    let headers = [
        (":message-type", "error"),
        (":error-code", "InternalFailure"),
        (":error-message", "Oops"),
    ];
    let d = decode("bedrock-converse", &frame(&headers, b""));
    assert_eq!(class(&d), Some(ErrorClass::ServerError));
    assert_eq!(d.error.unwrap().message, "Oops");
    // An exception after the stop overrides it, and an unknown message type is not a success.
    let late = [text("x"), stop("end_turn"), exception("internalServerException", "Oops")].concat();
    assert_eq!(class(&decode("bedrock-converse", &late)), Some(ErrorClass::ServerError));
    let strange = [text("x"), stop("end_turn"), frame(&[(":message-type", "new")], b"{}")].concat();
    assert_eq!(class(&decode("bedrock-converse", &strange)), Some(ErrorClass::UnknownError));
}

#[test]
fn catalogue_errors_have_their_class() {
    let mut checked = 0;
    for row in catalogue("errors.json")["providers"]["bedrock"]["errors"].as_array().unwrap() {
        let status = u16::try_from(row["http_status"].as_u64().unwrap()).unwrap();
        let words = row["match"]["message"].as_str().unwrap_or("Something.");
        for kind in row["match"]["x-amzn-errortype"].as_str().unwrap().split(" | ") {
            for message in words.split(" | ") {
                let body = json!({"message": message}).to_string();
                let typed =
                    json!({"__type": format!("com.amazon.coral#{kind}"), "Message": message});
                let want = row["error_class"].as_str().unwrap();
                for (name, body) in [
                    (Some(kind.to_owned()), body.clone()),
                    (Some(format!("{kind}:http://internal.amazon.com/coral/x/")), body),
                    (None, typed.to_string()),
                ] {
                    let headers = name.iter().map(|n| ("X-Amzn-ErrorType", n.as_str())).collect();
                    let error = classify(status, &headers, &body, "bedrock-converse");
                    assert_eq!(error.class.as_str(), want, "{kind} {body}");
                    assert_eq!(error.message, message);
                    let field = if name.is_some() { "x-amzn-errortype" } else { "__type" };
                    assert_eq!(error.original, Some((field.to_owned(), kind.to_owned())));
                    checked += 1;
                }
            }
        }
    }
    assert!(checked >= 45, "{checked}");
    // A daily allowance does not return after a short wait.
    let headers = [("x-amzn-errortype", "ThrottlingException")].into_iter().collect();
    let body = r#"{"message":"Too many tokens per day, please wait before trying again."}"#;
    assert_eq!(classify(429, &headers, body, "bedrock-converse").class, ErrorClass::QuotaExhausted);
}

#[test]
fn signed_and_server_blocks_stay_whole() {
    let block = |index: u64, delta: Value| {
        event("contentBlockDelta", &json!({"contentBlockIndex": index, "delta": delta}))
    };
    let start = |index: u64, start: Value| {
        event("contentBlockStart", &json!({"contentBlockIndex": index, "start": start}))
    };
    let bytes = [
        block(0, json!({"reasoningContent": {"text": "Let me "}})),
        block(0, json!({"reasoningContent": {"text": "see."}})),
        block(0, json!({"reasoningContent": {"signature": "a/b+"}})),
        block(0, json!({"reasoningContent": {"signature": "c="}})),
        block(1, json!({"reasoningContent": {"redactedContent": STANDARD.encode("one")}})),
        block(1, json!({"reasoningContent": {"redactedContent": STANDARD.encode("two")}})),
        block(2, json!({"reasoningContent": {"text": "unsigned"}})),
        start(3, json!({"toolUse": {"toolUseId": "s", "name": "code", "type": "server_tool_use"}})),
        block(3, json!({"toolUse": {"input": "{\"a\":"}})),
        block(3, json!({"toolUse": {"input": "1}"}})),
        start(4, json!({"toolResult": {"toolUseId": "s", "type": "r", "status": "success"}})),
        block(4, json!({"toolResult": [{"json": {"out": 2}}]})),
        start(5, json!({"toolUse": {"toolUseId": "t", "name": "f", "type": "tool_use"}})),
        start(5, json!({"toolUse": {"toolUseId": "again", "name": "f"}})),
        block(5, json!({"toolUse": {"input": ""}})),
        block(5, json!({"toolUse": {"input": "{\"b\":2}"}})),
        start(6, json!({"toolUse": {"toolUseId": "t", "name": "f"}})),
        start(7, json!({"toolUse": {"toolUseId": "", "name": ""}})),
        block(9, json!({"toolUse": {"input": "lost"}})),
        block(10, json!({"new": 1})),
        event("somethingNew", &json!({"x": 1})),
        stop("tool_use"),
        usage(),
    ]
    .concat();
    let (d, shown) = streamed("bedrock-converse", &bytes, 1);
    assert_eq!(shown, "<Let me ><see.><unsigned>{\"b\":2}lost");
    assert_eq!(signal(&d).0, "tool_use");
    let turn = d.turn.unwrap();
    let opaque: Vec<Value> = turn
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Opaque { api, json } if api == "bedrock-converse" => {
                Some(serde_json::from_str(json).unwrap())
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        opaque,
        [
            json!({"reasoningContent": {"reasoningText": {"text": "Let me see.", "signature": "a/b+c="}}}),
            json!({"reasoningContent": {"redactedContent": STANDARD.encode("onetwo")}}),
            json!({"toolUse": {"toolUseId": "s", "name": "code", "type": "server_tool_use", "input": {"a": 1}}}),
            json!({"toolResult": {"toolUseId": "s", "type": "r", "status": "success", "content": [{"json": {"out": 2}}]}}),
        ]
    );
    let calls: Vec<_> =
        turn.tool_calls().map(|c| (c.id.as_str(), c.name.as_str(), c.arguments.as_str())).collect();
    // Another id is another call, and input of an unknown block makes the last one unparseable.
    assert_eq!(calls, [("t", "f", ""), ("again", "f", "{\"b\":2}"), ("t_7", "f", "\u{1a}lost")]);
}

#[test]
fn complete_body_keeps_blocks_unchanged() {
    let signed = r#"{"reasoningContent":{"reasoningText":{"text":"hm","signature":"s"}}}"#;
    let redacted = r#"{"reasoningContent":{"redactedContent":"AA=="}}"#;
    let server = r#"{"toolUse":{"toolUseId":"s","name":"code","input":{"a":1.50},"type":"server_tool_use"}}"#;
    let call = r#"{"toolUse":{"toolUseId":"t","name":"f","input":{"n":1.50}}}"#;
    let body = format!(
        r#"{{"output":{{"message":{{"role":"assistant","content":[{signed},{redacted},{server},{{"text":"Hi"}},{call}]}}}},
        "stopReason":"stop_sequence","additionalModelResponseFields":{{"stop_sequence":"END"}},"usage":{{"inputTokens":1}}}}"#
    );
    let d = decode("bedrock-converse", body.as_bytes());
    assert_eq!(d.signal.provider_specific.metadata["stop_sequence"], "END");
    let parts = d.turn.unwrap().parts;
    assert_eq!(parts[0], Part::Reasoning { text: "hm".into() });
    for (at, json) in [(1, signed), (2, redacted)] {
        assert_eq!(parts[at], Part::Opaque { api: "bedrock-converse".into(), json: json.into() });
    }
    let Part::Opaque { json, .. } = &parts[3] else { panic!("{parts:?}") };
    let same: Value = serde_json::from_str(server).unwrap();
    assert_eq!(serde_json::from_str::<Value>(json).unwrap(), same);
    assert!(matches!(&parts[5], Part::ToolCall(c) if c.arguments == r#"{"n":1.50}"#));
}

#[test]
fn guardrail_action_is_reported() {
    let trace = json!({"guardrail": {"actionReason": "Guardrail blocked."}});
    let body = json!({"output": {"message": {"content": [{"text": "No."}]}},
        "stopReason": "guardrail_intervened", "usage": {}, "trace": trace});
    let stream = [
        text("No."),
        stop("guardrail_intervened"),
        event("metadata", &json!({"usage": {}, "trace": trace})),
    ];
    for body in [body.to_string().into_bytes(), stream.concat()] {
        let d = decode("bedrock-converse", &body);
        assert_eq!(signal(&d).0, "content_filtered");
        assert_eq!(d.signal.provider_specific.metadata["trace"], trace);
    }
    // InvokeModel reports it in addition to the model's own value.
    let mut message = json!({"type": "message", "content": [{"type": "text", "text": "No."}],
        "stop_reason": "end_turn", "amazon-bedrock-guardrailAction": "INTERVENED",
        "amazon-bedrock-trace": trace});
    let d = decode("bedrock-invoke", message.to_string().as_bytes());
    let want = ("content_filtered", "amazon-bedrock-guardrailAction", json!("INTERVENED"));
    let got = signal(&d);
    assert_eq!((got.0.as_str(), got.2.as_str(), got.3), want);
    let metadata = &d.signal.provider_specific.metadata;
    assert_eq!(
        (&metadata["amazon-bedrock-trace"], &metadata["stop_reason"]),
        (&trace, &json!("end_turn"))
    );
    message["amazon-bedrock-guardrailAction"] = json!("NONE");
    let d = decode("bedrock-invoke", message.to_string().as_bytes());
    assert_eq!(signal(&d).0, "natural_completion");
}

#[test]
fn other_bodies_are_not_success() {
    let body = br#"{"message":"The security token included in the request is invalid."}"#;
    for api in ["bedrock-converse", "bedrock-invoke"] {
        let d = decode(api, body);
        assert_eq!(class(&d), Some(ErrorClass::ServerError), "{api}");
        for body in
            [&b"{}"[..], b"[]", b"<html>", b"\0\0", b"\x02", b"", br#"{"stopReason":"end_turn"}"#]
        {
            let d = decode(api, body);
            assert!(d.error.is_some(), "{api} {}", String::from_utf8_lossy(body));
            assert_eq!(d.signal.reason.as_str(), "error_termination");
        }
    }
    // Frames have no meaning in any other format.
    let d = decode("openai-chat", &[text("x"), stop("end_turn")].concat());
    assert!(d.error.unwrap().message.contains("binary"));
    let request = json!({"inferenceConfig": {"maxTokens": 5, "stopSequences": ["END"]}});
    assert_eq!(
        request_facts(&request),
        RequestFacts { stop_strings: true, output_cap: Some(5), ..RequestFacts::default() }
    );
}
