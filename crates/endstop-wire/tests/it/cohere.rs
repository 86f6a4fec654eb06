//! Cohere beyond its recordings: every error, requests, and unusual streams and bodies.

use endstop_core::{
    ErrorClass, Image, Message, MessageId, Part, Role, ToolCall, ToolResult, ToolStatus,
};
use endstop_wire::detect::printed;
use endstop_wire::dialect::{WireFormat, dialect};
use endstop_wire::errors::classify;
use endstop_wire::{
    Decoded, Delta, Dialect, Encoder, Eof, Headers, NamedSchema, RequestFacts, RequestSpec,
    StreamDecoder, ToolDefinition, decode_body,
};
use serde_json::{Value, json};

fn v2() -> &'static Dialect {
    dialect("cohere").unwrap()
}

fn v1() -> &'static Dialect {
    dialect("cohere-v1").unwrap()
}

fn decode(dialect: &'static Dialect, body: &str) -> Decoded {
    decode_body(dialect, 200, &Headers::new(), body.as_bytes(), &RequestFacts::default())
}

fn events(list: &[Value]) -> String {
    list.iter().map(|e| format!("data: {e}\n\n")).collect::<Vec<_>>().concat()
}

fn lines(list: &[Value]) -> String {
    list.iter().map(|e| format!("{e}\n")).collect::<Vec<_>>().concat()
}

fn said(text: &str, finish: &str) -> Value {
    json!({"id": "r", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]},
           "finish_reason": finish})
}

fn content(index: u64, content: &Value) -> Value {
    json!({"type": "content-delta", "index": index, "delta": {"message": {"content": content}}})
}

fn end(delta: &Value) -> Value {
    json!({"type": "message-end", "delta": delta})
}

fn call(kind: &str, index: u64, call: &Value) -> Value {
    json!({"type": kind, "index": index, "delta": {"message": {"tool_calls": call}}})
}

/// Returns reason, confidence and value.
fn signal(d: &Decoded) -> (String, String, Value) {
    let out = printed(d)["signal"].clone();
    let field = |v: &Value| v.as_str().unwrap().to_owned();
    let by = &out["provider_specific"];
    (field(&out["reason"]), field(&out["confidence"]), by["original_value"].clone())
}

#[test]
fn error_finish_value_has_its_class() {
    for (value, class) in [
        ("ERROR", ErrorClass::ServerError),
        ("TIMEOUT", ErrorClass::Timeout),
        ("USER_CANCEL", ErrorClass::Cancelled),
    ] {
        let first = decode(v1(), &json!({"text": "x", "finish_reason": value}).to_string());
        assert_eq!(first.error.unwrap().class, class, "{value}");
        if value != "USER_CANCEL" {
            let second = decode(v2(), &said("x", value).to_string());
            assert_eq!(second.error.unwrap().class, class, "{value}");
        }
    }
    // An exhausted limit and a filter are not errors of the provider.
    for value in ["ERROR_LIMIT", "ERROR_TOXIC"] {
        let d = decode(v1(), &json!({"text": "x", "finish_reason": value}).to_string());
        assert!(d.error.is_none(), "{value}");
    }
    let s = signal(&decode(v2(), &said("x", "TOOL_CALL").to_string()));
    assert_eq!((s.0.as_str(), s.1.as_str()), ("natural_completion", "low"), "there is no call");
}

#[test]
fn new_finish_value_is_unknown() {
    let s = signal(&decode(v2(), &said("x", "SOMETHING_NEW").to_string()));
    assert_eq!(s, ("unknown".into(), "low".into(), json!("SOMETHING_NEW")));
    let s = signal(&decode(v2(), &said("x", "complete").to_string()));
    assert_eq!(s.0, "unknown", "spelling counts");
}

/// The catalogue's errors, each in the shape that Cohere sends.
#[test]
fn catalogue_errors_have_their_class() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/recordings/errors.json");
    let catalogue: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let rows = catalogue["providers"]["cohere"]["errors"].as_array().unwrap();
    assert_eq!(rows.len(), 12);
    for row in rows {
        let status = u16::try_from(row["http_status"].as_u64().unwrap()).unwrap();
        let mut body = row["match"].clone();
        body["id"] = json!("2d4609a6-d1f9-4cf4-8d09-af865409bdc2");
        for name in ["cohere-v2", "cohere-v1"] {
            let d = decode_body(
                dialect(name).unwrap(),
                status,
                &Headers::new(),
                body.to_string().as_bytes(),
                &RequestFacts::default(),
            );
            let error = d.error.unwrap();
            assert_eq!(error.class.as_str(), row["error_class"], "{status} {body}");
            assert_eq!((error.status, d.turn), (Some(status), None));
        }
    }
    let limited =
        r#"{"message":"You are using a Trial key, which is limited to 20 API calls / minute."}"#;
    let error = classify(429, &Headers::new(), limited, "cohere-v2");
    assert_eq!(error.class, ErrorClass::RateLimit);
    assert!(error.message.starts_with("You are using a Trial key"), "{}", error.message);
}

#[test]
fn error_in_stream_is_reported() {
    let begun = [json!({"type": "message-start", "id": "r"}), content(0, &json!({"text": "half"}))];
    for (last, class, value) in [
        (
            end(&json!({"finish_reason": "ERROR", "error": "something broke"})),
            ErrorClass::ServerError,
            json!("ERROR"),
        ),
        (
            end(&json!({"finish_reason": "TIMEOUT", "error": "late"})),
            ErrorClass::Timeout,
            json!("TIMEOUT"),
        ),
        (
            end(
                &json!({"finish_reason": "ERROR", "error": "too many tokens: size limit exceeded by 5 tokens"}),
            ),
            ErrorClass::ContextLengthExceeded,
            json!("ERROR"),
        ),
        (
            end(
                &json!({"finish_reason": "COMPLETE", "error": {"message": "the model is overloaded"}}),
            ),
            ErrorClass::Overloaded,
            json!(""),
        ),
        (
            json!({"id": "r", "message": "internal server error"}),
            ErrorClass::ServerError,
            json!(""),
        ),
        (
            json!({"error": {"type": "rate_limit_error", "message": "slow"}}),
            ErrorClass::RateLimit,
            json!("rate_limit_error"),
        ),
    ] {
        let mut stream = begun.to_vec();
        stream.push(last);
        let d = decode(v2(), &events(&stream));
        let s = signal(&d);
        let error = d.error.clone().unwrap();
        assert_eq!((error.class, s.0.as_str()), (class, "error_termination"), "{stream:?}");
        assert_eq!(d.signal.provider_specific.original_value, value.as_str().unwrap());
        assert!(!error.message.is_empty());
        assert_eq!(printed(&d)["turn"]["text"], "half", "what came before is kept");
    }
    let d = decode(v2(), &format!("event: error\ndata: {}\n\n", json!({"message": "no"})));
    assert_eq!(d.error.unwrap().message, "no");
    // A complete body that is an error, whatever its status is.
    let d = decode(v2(), r#"{"id":"x","message":"invalid api token"}"#);
    assert_eq!(d.error.unwrap().message, "invalid api token");
    for (dialect, body) in [(v2(), "{}"), (v2(), r#"{"id":"x"}"#), (v1(), "{}"), (v1(), "[1]")] {
        assert_eq!(decode(dialect, body).error.unwrap().class, ErrorClass::ServerError, "{body}");
    }
    let d = decode(v1(), r#"{"message":"invalid request"}"#);
    assert_eq!(d.error.unwrap().message, "invalid request");
    let stream = [
        json!({"event_type": "text-generation", "text": "x"}),
        json!({"event_type": "stream-end", "finish_reason": "ERROR", "error": "no answer"}),
    ];
    let d = decode(v1(), &lines(&stream));
    assert_eq!((signal(&d).2, d.error.unwrap().message), (json!("ERROR"), "no answer".to_owned()));
}

#[test]
fn stream_is_complete_only_with_end() {
    let begun = [json!({"type": "message-start", "id": "r"}), content(0, &json!({"text": "x"}))];
    let d = decode(v2(), &events(&begun));
    assert_eq!((d.complete, d.error.unwrap().class), (false, ErrorClass::IncompleteStream));
    // A gateway's end marker counts as well, although it carries less.
    let d = decode(v2(), &(events(&begun) + "data: [DONE]\n\n"));
    assert_eq!(signal(&d), ("natural_completion".into(), "low".into(), Value::Null));
    let d = decode(v1(), &lines(&[json!({"event_type": "text-generation", "text": "x"})]));
    assert_eq!((d.complete, d.error.unwrap().class), (false, ErrorClass::IncompleteStream));
    // A cut body is not an answer either.
    let body = said("a long answer", "COMPLETE").to_string();
    for at in 1..body.len() {
        let d = decode(v2(), &body[..at]);
        assert_eq!(d.error.unwrap().class, ErrorClass::IncompleteStream, "{at}");
    }
}

#[test]
fn end_event_completes_the_stream() {
    let mut stream = StreamDecoder::new(v2(), 200, Headers::new(), RequestFacts::default());
    let end = events(&[end(&json!({"finish_reason": "COMPLETE"}))]);
    stream.push(end.as_bytes(), &mut |_| ()).unwrap();
    assert!(stream.is_complete());
    let mut stream = StreamDecoder::new(v1(), 200, Headers::new(), RequestFacts::default());
    stream.push(b"{\"event_type\":\"stream-start\"}\n", &mut |_| ()).unwrap();
    assert!(!stream.is_complete());
    stream
        .push(b"{\"event_type\":\"stream-end\",\"finish_reason\":\"COMPLETE\"}", &mut |_| ())
        .unwrap();
    assert!(stream.is_complete(), "without waiting for a newline");
}

#[test]
fn calls_are_matched_by_index() {
    let function = |name: &str| json!({"id": "same", "type": "function", "function": {"name": name, "arguments": ""}});
    let piece = |json: &str| json!({"function": {"arguments": json}});
    let stream = [
        json!({"type": "message-start", "id": "r"}),
        json!({"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "Look "}}}),
        json!({"type": "tool-plan-delta", "delta": {"message": {"tool_plan": "twice."}}}),
        call("tool-call-start", 0, &function("a")),
        call("tool-call-start", 1, &function("b")),
        call("tool-call-delta", 1, &piece("{\"y\":")),
        call("tool-call-delta", 0, &piece("{\"x\":1}")),
        call("tool-call-delta", 1, &piece("2}")),
        call("tool-call-start", 2, &json!({"function": {"name": "c"}})),
        call("tool-call-delta", 7, &piece("{\"of\":\"none\"}")),
        call("tool-call-start", 3, &json!({"id": "no name", "function": {}})),
        json!({"type": "tool-call-end", "index": 1}),
        end(&json!({"finish_reason": "TOOL_CALL",
            "usage": {"tokens": {"input_tokens": 9, "output_tokens": 5, "reasoning_tokens": 3},
                      "billed_units": {"input_tokens": 1, "output_tokens": 2}, "cached_tokens": 4}})),
    ];
    let mut seen = Vec::new();
    let mut decoder = StreamDecoder::new(v2(), 200, Headers::new(), RequestFacts::default());
    decoder
        .push(events(&stream).as_bytes(), &mut |delta| match delta {
            Delta::Reasoning(t) => seen.push(t.to_owned()),
            Delta::ToolCallStarted { index, name, .. } => seen.push(format!("{index} {name}")),
            Delta::ToolArguments { index, json } => seen.push(format!("{index} {json}")),
            other => panic!("{other:?}"),
        })
        .unwrap();
    let d = decoder.finish(Eof::Clean);
    assert_eq!(seen, ["Look ", "twice.", "0 a", "1 b", "1 {\"y\":", "0 {\"x\":1}", "1 2}", "2 c"]);
    let turn = d.turn.unwrap();
    let calls: Vec<(&str, &str, &str)> =
        turn.tool_calls().map(|c| (c.id.as_str(), c.name.as_str(), c.arguments.as_str())).collect();
    assert_eq!(
        calls,
        [("same", "a", "{\"x\":1}"), ("same_1", "b", "{\"y\":2}"), ("call_r_2", "c", "")]
    );
    assert_eq!(d.signal.reason.as_str(), "tool_use");
    let usage = &turn.usage;
    assert_eq!((usage.input_tokens, usage.output_tokens), (Some(9), Some(5)));
    assert_eq!((usage.cached_input_tokens, usage.reasoning_tokens), (Some(4), Some(3)));
    assert_eq!(turn.response_id.as_deref(), Some("r"));
}

#[test]
fn v1_calls_make_a_tool_turn() {
    let body = json!({"text": "I look.", "generation_id": "g", "finish_reason": "COMPLETE",
        "tool_calls": [{"name": "look", "parameters": {"at": "it"}}, {"name": "", "parameters": {}},
                       {"name": "wait", "parameters": null}],
        "meta": {"billed_units": {"input_tokens": 3, "output_tokens": 4}}});
    let stream = [
        json!({"event_type": "stream-start", "generation_id": "g"}),
        json!({"event_type": "tool-calls-chunk", "tool_call_delta": {"text": "I "}}),
        json!({"event_type": "tool-calls-chunk", "tool_call_delta": {"text": "look."}}),
        json!({"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "name": "look"}}),
        json!({"event_type": "tool-calls-chunk", "tool_call_delta": {"index": 0, "parameters": "{"}}),
        json!({"event_type": "tool-calls-generation", "text": "I look.", "tool_calls": body["tool_calls"]}),
        json!({"event_type": "stream-end", "finish_reason": "COMPLETE", "response": body}),
    ];
    // The last event alone contains everything, and server-sent events work like lines.
    for text in [
        body.to_string(),
        format!("{body:#}"),
        lines(&stream),
        lines(&stream[6..]),
        events(&stream),
    ] {
        let d = decode(v1(), &text);
        let out = printed(&d);
        assert_eq!(signal(&d), ("tool_use".into(), "medium".into(), json!("COMPLETE")), "{text}");
        assert!(!d.signal.should_terminate);
        assert_eq!(out["turn"]["text"], "I look.");
        assert_eq!(
            out["turn"]["tool_calls"],
            json!([{"id": "call_g_0", "name": "look", "arguments": {"at": "it"}},
                   {"id": "call_g_1", "name": "wait", "arguments": {}}])
        );
        // Billed counts are used if there are no others.
        assert_eq!(out["usage"]["input_tokens"], 3);
    }
}

#[test]
fn log_probabilities_give_confidence() {
    let logprobs = |p: f64| json!({"text": "x", "token_ids": [1], "logprobs": [p]});
    let mut body = said("xx", "COMPLETE");
    body["logprobs"] = json!([logprobs(0.0), logprobs(f64::ln(0.5))]);
    let confidence = decode(v2(), &body.to_string()).turn.unwrap().confidence.unwrap();
    assert!((confidence - 0.75).abs() < 1e-9, "{confidence}");
    let mut delta = content(0, &json!({"text": "x"}));
    delta["logprobs"] = logprobs(f64::ln(0.5));
    let stream = [delta, end(&json!({"finish_reason": "COMPLETE"}))];
    let confidence = decode(v2(), &events(&stream)).turn.unwrap().confidence.unwrap();
    assert!((confidence - 0.5).abs() < 1e-9, "{confidence}");
}

fn message(id: u64, role: Role, parts: Vec<Part>) -> Message {
    Message::new(MessageId(id), role, parts)
}

fn text(t: &str) -> Part {
    Part::Text { text: t.into() }
}

fn result(id: &str, status: ToolStatus, content: &str) -> Part {
    let (call_id, name, content) = (id.into(), "look".into(), content.into());
    Part::ToolResult(ToolResult {
        call_id,
        name,
        status,
        content,
        attachments: Vec::new(),
        started: true,
        pinned: false,
    })
}

fn body(spec: &RequestSpec, messages: &[Message], cap: Option<u64>) -> Value {
    serde_json::from_slice(Encoder::new(v2(), spec).body(messages, 0, cap)).unwrap()
}

fn spec() -> RequestSpec {
    RequestSpec {
        model: "command-a-vision-07-2025".into(),
        system: Some("Be brief.".into()),
        max_output_tokens: Some(100),
        temperature: Some(0.5),
        stop: vec!["END".into()],
        output_schema: Some(NamedSchema { name: "out".into(), schema: json!({"type": "object"}) }),
        stream: true,
        extra: json!({"seed": 7, "temperature": 0.25}).as_object().unwrap().clone(),
        ..RequestSpec::default()
    }
}

#[test]
fn requests_have_documented_fields() {
    let mut spec = spec();
    let history = [
        message(
            1,
            Role::User,
            vec![
                text("Look:"),
                Part::Image(Image::Base64 { media_type: "image/png".into(), data: "AA==".into() }),
            ],
        ),
        message(2, Role::Assistant, vec![Part::Refusal { text: "No.".into() }]),
        message(3, Role::User, vec![text("Why?")]),
        message(4, Role::Assistant, vec![text(" "), Part::Reasoning { text: "hm".into() }]),
    ];
    let b = body(&spec, &history, Some(50));
    assert_eq!(
        b,
        json!({
            "model": "command-a-vision-07-2025", "max_tokens": 50, "temperature": 0.25, "seed": 7,
            "stop_sequences": ["END"], "stream": true,
            "response_format": {"type": "json_object", "json_schema": {"type": "object"}},
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": [{"type": "text", "text": "Look:"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
                {"role": "assistant", "content": [{"type": "text", "text": "No."}]},
                {"role": "user", "content": [{"type": "text", "text": "Why?"}]},
            ],
        })
    );
    // Together with tools the schema is described in words.
    spec.tools = vec![ToolDefinition { name: "look".into(), ..ToolDefinition::default() }];
    let b = body(&spec, &history, None);
    assert_eq!((b.get("response_format"), &b["max_tokens"]), (None, &json!(100)));
    let system = b["messages"][0]["content"].as_str().unwrap();
    assert!(system.starts_with("Be brief.\n\n") && system.ends_with(r#"{"type":"object"}"#));
    let parameters = json!({"type": "object", "properties": {}});
    assert_eq!(
        b["tools"],
        json!([{"type": "function", "function": {"name": "look", "parameters": parameters}}])
    );
    let b = body(&RequestSpec::default(), &history, None);
    assert_eq!((b.get("max_tokens"), &b["stream"]), (None, &json!(false)));
}

/// Thinking and plans of a turn are sent back in their original place, and only there.
#[test]
fn thinking_and_plans_are_sent_back() {
    let answer = json!({"id": "r", "message": {"role": "assistant", "tool_plan": "I \"look\".",
        "content": [{"type": "thinking", "thinking": "hm\n"}, {"type": "text", "text": "Now."}],
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{\"at\":1}"}},
            {"id": "b", "type": "function", "function": {"name": "look", "arguments": ""}}]},
        "finish_reason": "TOOL_CALL"});
    let turn = decode(v2(), &answer.to_string()).turn.unwrap();
    let history = [
        message(1, Role::User, vec![text("Go.")]),
        message(2, Role::Assistant, turn.parts.clone()),
        message(
            3,
            Role::Tool,
            vec![result("a", ToolStatus::Ok, "1"), result("b", ToolStatus::Error, "bad")],
        ),
        message(4, Role::User, vec![text("Once more.")]),
    ];
    let b = body(&RequestSpec::default(), &history, None);
    let mut sent = answer["message"].clone();
    sent["tool_calls"][1]["function"]["arguments"] = json!("{}");
    assert_eq!(b["messages"][1], sent);
    assert_eq!(b["messages"][2], json!({"role": "tool", "tool_call_id": "a", "content": "1"}));
    assert_eq!(b["messages"][3], json!({"role": "tool", "tool_call_id": "b", "content": "bad"}));
    assert_eq!(b["messages"][4]["role"], "user");
    // A plan has no meaning without its calls.
    let kept: Vec<Part> =
        turn.parts.iter().filter(|p| !matches!(p, Part::ToolCall(_))).cloned().collect();
    let b = body(&RequestSpec::default(), &[message(2, Role::Assistant, kept)], None);
    assert_eq!(
        (b["messages"][0].get("tool_plan"), b["messages"][0].get("tool_calls")),
        (None, None)
    );
    let chat = dialect("openai-chat").unwrap();
    let bytes = Encoder::new(chat, &RequestSpec::default()).body(&history, 0, None).to_vec();
    assert!(!String::from_utf8(bytes).unwrap().contains("tool_plan"));
}

#[test]
fn v1_is_decoded_but_not_encoded() {
    assert_eq!(WireFormat::CohereV1.read_only(), Some(WireFormat::CohereV2));
    assert!(WireFormat::ALL.iter().filter(|family| family.read_only().is_some()).count() == 1);
    let call =
        Part::ToolCall(ToolCall { id: "a".into(), name: "look".into(), arguments: String::new() });
    let history = [message(1, Role::Assistant, vec![call])];
    assert!(Encoder::new(v1(), &spec()).body(&history, 0, None).is_empty());
}
