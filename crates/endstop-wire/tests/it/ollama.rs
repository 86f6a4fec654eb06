//! Ollama beyond its recordings: every finish value, errors, cut streams, and requests.

use endstop_core::{
    ErrorClass, Image, Message, MessageId, ModelTurn, Part, Role, ToolCall, ToolResult, ToolStatus,
};
use endstop_wire::detect::{detect, printed, request_facts};
use endstop_wire::dialect::dialect;
use endstop_wire::errors::classify;
use endstop_wire::{
    Decoded, Delta, Dialect, Encoder, Eof, Headers, NamedSchema, RequestFacts, RequestSpec,
    StreamDecoder, ToolDefinition, decode_body,
};
use serde_json::{Value, json};

fn ollama() -> &'static Dialect {
    dialect("ollama").unwrap()
}

fn decode(body: &str) -> Decoded {
    decode_body(ollama(), 200, &Headers::new(), body.as_bytes(), &RequestFacts::default())
}

/// Decodes in chunks of this many bytes. Also returns the text of the deltas.
fn in_pieces(body: &[u8], cut: usize) -> (Decoded, String) {
    let mut s = StreamDecoder::new(ollama(), 200, Headers::new(), RequestFacts::default());
    let mut shown = String::new();
    for piece in body.chunks(cut) {
        s.push(piece, &mut |d| match d {
            Delta::Text(t) | Delta::Reasoning(t) | Delta::ToolArguments { json: t, .. } => {
                shown.push_str(t);
            }
            Delta::ToolCallStarted { name, .. } => shown.push_str(name),
            _ => {}
        })
        .unwrap();
    }
    (s.finish(Eof::Clean), shown)
}

fn say(message: &Value) -> Value {
    json!({"model": "m", "created_at": "2026-01-02T03:04:05.6Z", "message": message, "done": false})
}

fn end(reason: Option<&str>) -> Value {
    let mut last = say(&json!({"role": "assistant", "content": ""}));
    last["done"] = true.into();
    if let Some(reason) = reason {
        last["done_reason"] = reason.into();
    }
    last
}

fn lines(list: &[Value]) -> String {
    list.iter().map(|line| format!("{line}\n")).collect::<Vec<_>>().concat()
}

fn class(d: &Decoded) -> Option<ErrorClass> {
    d.error.as_ref().map(|e| e.class)
}

/// Returns reason, confidence and value.
fn signal(d: &Decoded) -> (String, String, Value) {
    let out = printed(d)["signal"].clone();
    let by = &out["provider_specific"];
    let field = |v: &Value| v.as_str().unwrap().to_owned();
    assert_eq!(by["original_field"], "done_reason");
    (field(&out["reason"]), field(&out["confidence"]), by["original_value"].clone())
}

#[test]
fn last_object_is_a_complete_answer() {
    for (reason, want) in [
        (Some("stop"), ("natural_completion", "high")),
        (Some("load"), ("unknown", "medium")),
        (Some("unload"), ("unknown", "medium")),
        (Some("banana"), ("unknown", "low")),
        (Some(""), ("natural_completion", "medium")),
        (None, ("natural_completion", "medium")),
    ] {
        let mut whole = end(reason);
        whole["message"]["content"] = "x".into();
        let stream = [say(&json!({"role": "assistant", "content": "x"})), end(reason)];
        for (body, streamed) in [(whole.to_string(), false), (lines(&stream), true)] {
            let d = decode(&body);
            let s = signal(&d);
            assert_eq!(
                (s.0.as_str(), s.1.as_str(), s.2),
                (want.0, want.1, json!(reason)),
                "{body}"
            );
            assert_eq!((d.error, d.streamed, d.complete), (None, streamed, true), "{body}");
            let says = d.signal.message.is_some_and(|m| m.contains("send a user message"));
            assert_eq!(says, matches!(reason, Some("load" | "unload")), "{body}");
        }
    }
}

#[test]
fn calls_make_a_tool_turn() {
    let calls = json!([
        {"function": {"name": "f", "arguments": {"a": 1}}},
        {"id": "own", "function": {"name": "g", "arguments": "{\"b\":2}"}},
        {"id": "own", "function": {"name": "g"}},
        {"function": {"name": "", "arguments": {}}},
    ]);
    let asks = say(&json!({"role": "assistant", "content": "", "tool_calls": calls}));
    for (reason, want, confidence) in [
        (Some("stop"), "tool_use", "high"),
        (Some("length"), "token_limit_reached", "high"),
        (Some("load"), "unknown", "low"),
        (Some("banana"), "unknown", "low"),
        (None, "tool_use", "medium"),
    ] {
        let d = decode(&lines(&[asks.clone(), end(reason)]));
        let s = signal(&d);
        assert_eq!((s.0.as_str(), s.1.as_str()), (want, confidence), "{reason:?}");
        let turn = d.turn.unwrap();
        let calls: Vec<(&str, &str)> =
            turn.tool_calls().map(|c| (c.id.as_str(), c.arguments.as_str())).collect();
        let made = "call_ollama_20260102T0304056Z_0";
        assert_eq!(calls, [(made, r#"{"a":1}"#), ("own", r#"{"b":2}"#), ("call_ollama_own_2", "")]);
    }
    // An unreadable call must not be dropped, because it would never be answered.
    let broken = say(&json!({"content": "", "tool_calls": {"name": "f"}}));
    assert_eq!(class(&decode(&lines(&[broken, end(Some("stop"))]))), Some(ErrorClass::ServerError));
}

#[test]
fn thoughts_text_and_counts_stay_separate() {
    let mut last = end(Some("stop"));
    last["prompt_eval_count"] = 9.into();
    last["eval_count"] = 4.into();
    last["logprobs"] = json!([{"token": "a", "logprob": 0.0}, {"token": "b", "logprob": 0.0}]);
    let list = [
        say(&json!({"content": "", "thinking": "h"})),
        say(&json!({"content": "", "thinking": "m"})),
        say(&json!({"content": "Hel"})),
        say(&json!({"content": "lo"})),
        last,
    ];
    let turn = decode(&lines(&list)).turn.unwrap();
    let want = [Part::Reasoning { text: "hm".into() }, Part::Text { text: "Hello".into() }];
    assert_eq!(turn.parts, want);
    assert_eq!((turn.usage.input_tokens, turn.usage.output_tokens), (Some(9), Some(4)));
    assert_eq!((turn.model.as_deref(), turn.confidence), (Some("m"), Some(1.0)));
}

/// A stream is incomplete if it is cut anywhere before its last object. The parts so far are
/// stored.
#[test]
fn only_done_completes_a_stream() {
    let list = [
        say(&json!({"role": "assistant", "content": "Hel\"}{"})),
        say(
            &json!({"content": "lo é", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}),
        ),
        end(Some("stop")),
    ];
    let pretty = format!("\u{feff}{:#}\n{:#}{:#}", list[0], list[1], list[2]);
    for text in [lines(&list), pretty] {
        let (whole, shown) = in_pieces(text.as_bytes(), usize::MAX);
        assert_eq!(shown, "Hel\"}{lo éf{}");
        assert!(whole.error.is_none() && whole.streamed && whole.complete);
        let mut texts = Vec::new();
        for at in 0..text.trim_end().len() {
            let cut = in_pieces(&text.as_bytes()[..at], 1);
            assert_eq!(cut, in_pieces(&text.as_bytes()[..at], 7), "{at}");
            assert_eq!(cut, in_pieces(&text.as_bytes()[..at], usize::MAX), "{at}");
            assert_eq!(class(&cut.0), Some(ErrorClass::IncompleteStream), "{at}");
            texts.push(cut.0.turn.as_ref().map_or(String::new(), ModelTurn::text));
        }
        texts.dedup();
        assert_eq!(texts, ["", "Hel\"}{", "Hel\"}{lo é"]);
    }
    // A single object that is not the last one is not a complete body.
    let alone = decode(&list[0].to_string());
    assert_eq!((class(&alone), alone.complete), (Some(ErrorClass::IncompleteStream), false));
}

#[test]
fn server_sent_events_decode_too() {
    let list = [say(&json!({"content": "Hi"})), end(Some("stop"))];
    let events = list.iter().map(|e| format!("data: {e}\n\n")).collect::<Vec<_>>().concat();
    let d = decode(&(events.clone() + "data: [DONE]\n\n"));
    assert_eq!((signal(&d).0.as_str(), d.streamed), ("natural_completion", true));
    assert_eq!(class(&decode("data: [DONE]\n\n")), Some(ErrorClass::IncompleteStream));
    let text = decode(&lines(&[json!({"response": "Hi", "done": true, "done_reason": "stop"})]));
    assert_eq!(text.turn.unwrap().text(), "Hi", "an answer of /api/generate");
}

#[test]
fn error_keeps_the_partial_turn() {
    let some = say(&json!({"content": "Hel"}));
    for (error, class) in [
        (json!({"error": "llama runner process has terminated: exit status 2"}), "server_error"),
        (json!({"error": "an error was encountered", "status": 503}), "overloaded"),
        (
            json!({"error": "the input length exceeds the context length", "status": 400}),
            "context_length_exceeded",
        ),
        (
            json!({"error": {"message": "prompt too long; exceeded max context length by 7 tokens"}}),
            "context_length_exceeded",
        ),
    ] {
        for list in [vec![error.clone()], vec![some.clone(), error.clone()]] {
            let d = decode(&lines(&list));
            let said = d.error.as_ref().unwrap();
            assert_eq!(said.class.as_str(), class, "{error}");
            assert_eq!(d.signal.reason.as_str(), "error_termination");
            let text = if list.len() == 2 { "Hel" } else { "" };
            assert_eq!(d.turn.map_or(String::new(), |t| t.text()), text);
        }
    }
    // An error after the end is an error, and so is a line or a body that is not an object.
    let late = decode(&lines(&[some.clone(), end(Some("stop")), json!({"error": "no"})]));
    assert_eq!(class(&late), Some(ErrorClass::ServerError));
    for body in ["[]", "[1]", "{}x\n{}", "{\"message\":\"x\",\"done\":true}", "{]}"] {
        let d = decode(body);
        assert_eq!(d.signal.reason.as_str(), "error_termination", "{body}");
        assert_eq!(class(&d), Some(ErrorClass::ServerError), "{body}");
    }
    for bad in ["upstream gone", "[{}]", "data: {}"] {
        let d = decode(&format!("{some}\n{bad}\n{}\n", end(Some("stop"))));
        assert_eq!(class(&d), Some(ErrorClass::ServerError), "{bad}");
        assert_eq!(d.signal.provider_specific.original_value, bad);
        assert_eq!(d.turn.unwrap().text(), "Hel");
    }
}

/// The server's message for a prompt that it was asked not to truncate. The catalogue covers the
/// rest.
#[test]
fn overlong_prompt_is_recognised() {
    for words in [
        "the input length exceeds the context length",
        "the prompt is longer than the context length currently available to the model",
        "the request exceeds the available context size, try increasing it",
    ] {
        let body = json!({"error": words}).to_string();
        let e = classify(400, &Headers::new(), &body, "ollama");
        assert_eq!(e.class, ErrorClass::ContextLengthExceeded, "{words}");
        assert_eq!((e.message.as_str(), e.status), (words, Some(400)));
    }
}

#[test]
fn request_facts_come_from_options() {
    let request = json!({"options": {"stop": ["END"], "num_predict": 5}});
    assert_eq!(
        request_facts(&request),
        RequestFacts { stop_strings: true, output_cap: Some(5), ..RequestFacts::default() }
    );
    let mut body = end(Some("stop"));
    body["message"]["content"] = "x".into();
    let row = json!({"api": "ollama", "body": body.to_string(), "request": request});
    assert_eq!(detect(&row).unwrap()["signal"]["confidence"], "medium");
    // No cap at all.
    assert_eq!(request_facts(&json!({"options": {"num_predict": -1}})), RequestFacts::default());
}

fn spec() -> RequestSpec {
    RequestSpec {
        model: "qwen3-vl:4b".into(),
        system: Some("Be brief.".into()),
        max_output_tokens: Some(100),
        temperature: Some(0.5),
        stop: vec!["END".into()],
        stream: true,
        ..RequestSpec::default()
    }
}

fn message(id: u64, role: Role, parts: Vec<Part>) -> Message {
    Message::new(MessageId(id), role, parts)
}

fn text(t: &str) -> Part {
    Part::Text { text: t.into() }
}

fn body(spec: &RequestSpec, messages: &[Message], cap: Option<u64>) -> Value {
    serde_json::from_slice(Encoder::new(ollama(), spec).body(messages, 0, cap)).unwrap()
}

#[test]
fn conversation_keeps_calls_and_images() {
    let call = |id: &str, arguments: &str| {
        let (id, arguments) = (id.into(), arguments.into());
        Part::ToolCall(ToolCall { id, name: "read".into(), arguments })
    };
    let result = |id: &str, content: &str| {
        Part::ToolResult(ToolResult {
            call_id: id.into(),
            name: "read".into(),
            status: ToolStatus::Error,
            content: content.into(),
            attachments: Vec::new(),
            started: true,
            pinned: false,
        })
    };
    let png = Image::Base64 { media_type: "image/png".into(), data: "AA==".into() };
    let made = "call_ollama_1_0";
    let history = [
        message(
            1,
            Role::User,
            vec![
                text("Look: "),
                Part::Image(png),
                Part::Image(Image::Url("data:image/png;base64,BB==".into())),
                Part::Image(Image::Url("https://example.com/a.png".into())),
            ],
        ),
        message(
            2,
            Role::Assistant,
            vec![
                Part::Reasoning { text: "hm".into() },
                text("I read."),
                Part::Opaque { api: "openai-chat".into(), json: "{}".into() },
                call(made, "{\"path\": \"x\"}"),
                call("own", "{\"path\": "),
                call("c", " "),
            ],
        ),
        message(3, Role::Tool, vec![result(made, "1"), result("own", "bad"), text("And?")]),
        message(4, Role::System, vec![text("Note.")]),
        message(5, Role::Assistant, vec![Part::Refusal { text: "No.".into() }]),
        message(6, Role::User, vec![]),
    ];
    let b = body(&spec(), &history, None);
    let call = |arguments: Value| json!({"type": "function", "function": {"name": "read", "arguments": arguments}});
    let named = |id: &str, mut call: Value| {
        call["id"] = id.into();
        call
    };
    assert_eq!(
        b["messages"],
        json!([
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look: [image: https://example.com/a.png]",
             "images": ["AA==", "BB=="]},
            {"role": "assistant", "content": "I read.", "thinking": "hm", "tool_calls": [
                call(json!({"path": "x"})),
                named("own", call(json!({"_raw": "{\"path\": "}))),
                named("c", call(json!({}))),
            ]},
            {"role": "tool", "tool_name": "read", "content": "1"},
            {"role": "tool", "tool_name": "read", "tool_call_id": "own", "content": "bad"},
            {"role": "user", "content": "And?"},
            {"role": "system", "content": "Note."},
            {"role": "assistant", "content": "No."},
            {"role": "user", "content": ""},
        ])
    );
}

#[test]
fn settings_are_sent_as_options() {
    let hi = [message(1, Role::User, vec![text("Hi")])];
    let b = body(&spec(), &hi, Some(50));
    assert_eq!(b["options"], json!({"num_predict": 50, "temperature": 0.5, "stop": ["END"]}));
    assert_eq!(
        (&b["model"], &b["stream"], &b["truncate"]),
        (&json!("qwen3-vl:4b"), &json!(true), &json!(false))
    );
    // The server streams by default.
    let b = body(&RequestSpec::default(), &hi, None);
    assert_eq!((&b["stream"], b.get("options"), b.get("tools")), (&json!(false), None, None));
    let wide = RequestSpec { context_window: Some(32_768), ..spec() };
    assert_eq!(body(&wide, &hi, None)["options"]["num_ctx"], 32_768);
    // The caller's own fields take precedence, one by one.
    let own = json!({"options": {"num_predict": -1, "num_ctx": 512, "seed": 7}, "think": "low", "truncate": true, "messages": []});
    let own = RequestSpec { extra: own.as_object().unwrap().clone(), ..wide };
    let b = body(&own, &hi, Some(50));
    assert_eq!(
        b["options"],
        json!({"temperature": 0.5, "stop": ["END"], "num_predict": -1, "num_ctx": 512, "seed": 7})
    );
    assert_eq!((&b["think"], &b["truncate"]), (&json!("low"), &json!(true)));
    assert_eq!(b["messages"][1]["content"], "Hi");
}

#[test]
fn schema_with_tools_is_only_words() {
    let schema = json!({"type": "object", "required": ["a"]});
    let output_schema = Some(NamedSchema { name: "out".into(), schema: schema.clone() });
    let mut spec = RequestSpec { output_schema, ..spec() };
    let hi = [message(1, Role::User, vec![text("Hi")])];
    let told = |b: &Value| b["messages"][0]["content"].as_str().unwrap().contains(r#"["a"]"#);
    let b = body(&spec, &hi, None);
    assert_eq!((&b["format"], told(&b)), (&schema, true));
    spec.tools = vec![ToolDefinition {
        name: "read".into(),
        description: "Reads.".into(),
        schema: Value::Null,
    }];
    let b = body(&spec, &hi, None);
    assert_eq!((b.get("format"), told(&b)), (None, true));
    let parameters = json!({"type": "object", "properties": {}});
    let read = json!({"name": "read", "description": "Reads.", "parameters": parameters});
    assert_eq!(b["tools"], json!([{"type": "function", "function": read}]));
}
