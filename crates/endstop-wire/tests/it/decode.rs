//! Decoding beyond the recordings: peculiarities of the dialects.

use endstop_core::{ErrorClass, Part, SignalReason};
use endstop_wire::dialect::{ANTHROPIC, OPENAI_CHAT, dialect};
use endstop_wire::{Decoded, Dialect, Headers, RequestFacts, decode_body};
use serde_json::{Value, json};

fn decode(dialect: &'static Dialect, body: &str, facts: RequestFacts) -> Decoded {
    decode_body(dialect, 200, &Headers::new(), body.as_bytes(), &facts)
}

fn stream(events: &[Value]) -> String {
    let events: Vec<String> = events.iter().map(|e| format!("data: {e}\n\n")).collect();
    events.concat()
}

fn openai(events: &[Value]) -> Decoded {
    decode(OPENAI_CHAT, &stream(events), RequestFacts::default())
}

fn calls(d: &Decoded) -> Vec<(String, String, String)> {
    let turn = d.turn.as_ref().unwrap();
    turn.tool_calls().map(|c| (c.id.clone(), c.name.clone(), c.arguments.clone())).collect()
}

fn call(index: u64, id: &str, name: &str, arguments: &str) -> Value {
    json!({"choices": [{"delta": {"tool_calls": [
        {"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}}]})
}

fn end(value: &str) -> Value {
    json!({"choices": [{"delta": {}, "finish_reason": value}]})
}

#[test]
fn cut_or_filtered_answer_stays_one() {
    let text = json!({"choices": [{"delta": {"content": "Half"}}]});
    for (values, reason) in [
        (&["length", "stop"][..], SignalReason::TokenLimitReached),
        (&["content_filter", "stop"], SignalReason::ContentFiltered),
        (&["length", "tool_calls"], SignalReason::TokenLimitReached),
        (&["MAX_TOKENS", "STOP"], SignalReason::TokenLimitReached),
        (&["length", "content_filter"], SignalReason::ContentFiltered),
        (&["length", ""], SignalReason::TokenLimitReached),
        (&["stop", "length"], SignalReason::TokenLimitReached),
        (&["stop", "stop"], SignalReason::NaturalCompletion),
        (&["banana", "stop"], SignalReason::NaturalCompletion),
    ] {
        let ends = values.iter().map(|value| end(value));
        let events: Vec<Value> = std::iter::once(text.clone()).chain(ends).collect();
        assert_eq!(openai(&events).signal.reason, reason, "{values:?}");
    }
    let delta = |value| json!({"type": "message_delta", "delta": {"stop_reason": value}, "usage": {"output_tokens": 5}});
    let start = json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}});
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Half"}});
    let end = json!({"type": "message_stop"});
    let body = stream(&[start, block, delta("max_tokens"), delta("end_turn"), end]);
    let d = decode(ANTHROPIC, &body, RequestFacts::default());
    assert_eq!(d.signal.reason, SignalReason::TokenLimitReached);
}

#[test]
fn gateways_pass_on_values_of_other_providers() {
    for (value, reason) in [
        ("STOP", SignalReason::NaturalCompletion),
        ("Stop", SignalReason::NaturalCompletion),
        ("END_TURN", SignalReason::NaturalCompletion),
        ("COMPLETE", SignalReason::NaturalCompletion),
        ("MAX_TOKENS", SignalReason::TokenLimitReached),
        ("LENGTH", SignalReason::TokenLimitReached),
        ("SAFETY", SignalReason::ContentFiltered),
        ("refusal", SignalReason::ContentFiltered),
        ("STOPPED", SignalReason::Unknown),
        (" stop", SignalReason::Unknown),
    ] {
        let text = json!({"choices": [{"delta": {"content": "It"}}]});
        assert_eq!(openai(&[text, end(value)]).signal.reason, reason, "{value}");
    }
}

#[test]
fn parallel_calls_may_share_index_zero() {
    let d = openai(&[
        call(0, "a", "one", "{\"x\""),
        call(1, "b", "two", "{"),
        call(0, "", "", ":1}"),
        call(1, "", "", "}"),
        end("tool_calls"),
    ]);
    let want = [("a", "one", "{\"x\":1}"), ("b", "two", "{}")]
        .map(|(a, b, c)| (a.into(), b.into(), c.into()));
    assert_eq!(calls(&d), want);
    let d = openai(&[call(0, "a", "one", "{}"), call(0, "b", "two", "{}"), end("stop")]);
    assert_eq!(calls(&d).len(), 2);
    assert_eq!(d.signal.reason, SignalReason::ToolUse);
    // The same id and name again continue the same call.
    let d = openai(&[call(0, "a", "one", "{"), call(0, "a", "one", "}"), end("stop")]);
    assert_eq!(calls(&d), [("a".into(), "one".into(), "{}".into())]);
}

#[test]
fn missing_or_repeated_ids_are_generated() {
    let d = openai(&[
        call(0, "", "one", "{}"),
        call(1, "x", "two", "{}"),
        call(2, "x", "three", "{}"),
        end("tool_calls"),
    ]);
    let ids: Vec<String> = calls(&d).into_iter().map(|c| c.0).collect();
    assert_eq!(ids, ["call_turn_0", "x", "x_2"]);
}

#[test]
fn call_without_name_is_ignored() {
    let body = r#"{"choices":[{"message":{"content":"Hi","function_call":{"name":"","arguments":""},
        "tool_calls":[{"id":"","function":{"name":"","arguments":""}}]},"finish_reason":"stop"}]}"#;
    let d = decode(OPENAI_CHAT, body, RequestFacts::default());
    assert_eq!((calls(&d).len(), d.signal.reason), (0, SignalReason::NaturalCompletion));
}

#[test]
fn arguments_may_be_an_object() {
    let body = r#"{"choices":[{"message":{"tool_calls":[{"id":"1","function":{"name":"f","arguments":{"a": 1}}}]},"finish_reason":"tool_calls"}]}"#;
    let d = decode(OPENAI_CHAT, body, RequestFacts::default());
    assert_eq!(calls(&d)[0].2, "{\"a\": 1}");
}

#[test]
fn matched_stop_string_is_reported() {
    let facts = RequestFacts { stop_strings: true, output_cap: None, ..RequestFacts::default() };
    for (field, value, reason) in [
        ("stop_reason", json!("END"), "stop_sequence"),
        ("matched_stop", json!("END"), "stop_sequence"),
        ("stop_reason", json!(128_009), "natural_completion"),
        ("stop_reason", Value::Null, "natural_completion"),
    ] {
        let body = json!({"choices": [{"message": {"content": "x"}, "finish_reason": "stop", field: value}]});
        let d = decode(OPENAI_CHAT, &body.to_string(), facts);
        assert_eq!(d.signal.reason.as_str(), reason, "{body}");
    }
}

#[test]
fn empty_finish_value_keeps_earlier_one() {
    let d = openai(&[end("length"), end("")]);
    assert_eq!(d.signal.reason, SignalReason::TokenLimitReached);
    let d = openai(&[end("stop"), end("length")]);
    assert_eq!(d.signal.reason, SignalReason::TokenLimitReached);
}

#[test]
fn reasoning_in_two_fields_counts_once() {
    let d = openai(&[
        json!({"choices": [{"delta": {"reasoning": "ab", "reasoning_content": "ab"}}]}),
        json!({"choices": [{"delta": {"content": "c"}, "finish_reason": "stop"}]}),
    ]);
    let parts = d.turn.unwrap().parts;
    assert_eq!(parts, [Part::Reasoning { text: "ab".into() }, Part::Text { text: "c".into() }]);
}

#[test]
fn required_reasoning_is_stored() {
    let d = decode(
        dialect("deepseek").unwrap(),
        &stream(&[
            json!({"choices": [{"delta": {"reasoning_content": "hm"}}]}),
            call(0, "a", "f", "{}"),
            end("tool_calls"),
        ]),
        RequestFacts::default(),
    );
    assert!(d.turn.unwrap().parts.contains(&Part::Opaque {
        api: "openai-chat".into(),
        json: r#"{"reasoning_content":"hm"}"#.into()
    }));
    let d = openai(&[
        json!({"choices": [{"delta": {"reasoning_details": [{"type": "t", "data": "x"}]}}]}),
        json!({"choices": [{"delta": {"reasoning_details": [{"type": "u"}], "content": "c"}, "finish_reason": "stop"}]}),
    ]);
    assert!(d.turn.unwrap().parts.contains(&Part::Opaque {
        api: "openai-chat".into(),
        json: r#"{"reasoning_details":[{"type":"t","data":"x"},{"type":"u"}]}"#.into()
    }));
}

#[test]
fn costs_and_probabilities_are_decoded() {
    let body = json!({"choices": [{"message": {"content": "x"}, "finish_reason": "stop",
        "logprobs": {"content": [{"logprob": 0.0}, {"logprob": -f64::ln(2.0)}]}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "cost": 0.25}})
    .to_string();
    let of =
        |name: &str| decode(dialect(name).unwrap(), &body, RequestFacts::default()).turn.unwrap();
    assert!((of("openrouter").cost.unwrap().to_usd() - 0.25).abs() < 1e-9);
    assert_eq!(of("openai-chat").cost, None);
    assert!((of("openai-chat").confidence.unwrap() - 0.75).abs() < 1e-9);
}

fn anthropic(events: &[Value]) -> Decoded {
    decode(ANTHROPIC, &stream(events), RequestFacts::default())
}

fn start(index: u64, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn delta(index: u64, delta: &Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn stop(reason: &str) -> [Value; 2] {
    [
        json!({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}}),
        json!({"type": "message_stop"}),
    ]
}

#[test]
fn thinking_is_sent_back_signed() {
    let mut events = vec![
        start(0, &json!({"type": "thinking", "thinking": "", "signature": ""})),
        delta(0, &json!({"type": "thinking_delta", "thinking": "h\"m"})),
        delta(0, &json!({"type": "signature_delta", "signature": "sig"})),
        start(1, &json!({"type": "redacted_thinking", "data": "xyz"})),
        start(2, &json!({"type": "text", "text": ""})),
        delta(2, &json!({"type": "text_delta", "text": "Hi"})),
    ];
    events.extend(stop("end_turn"));
    let parts = anthropic(&events).turn.unwrap().parts;
    let opaque = |json: &str| Part::Opaque { api: "anthropic-messages".into(), json: json.into() };
    assert_eq!(
        parts,
        [
            Part::Reasoning { text: "h\"m".into() },
            opaque(r#"{"type":"thinking","thinking":"h\"m","signature":"sig"}"#),
            opaque(r#"{"type":"redacted_thinking","data":"xyz"}"#),
            Part::Text { text: "Hi".into() },
        ]
    );
}

#[test]
fn server_tool_blocks_are_opaque() {
    let mut events = vec![
        start(0, &json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})),
        delta(0, &json!({"type": "input_json_delta", "partial_json": "{\"query\":"})),
        delta(0, &json!({"type": "input_json_delta", "partial_json": "\"x\"}"})),
        start(1, &json!({"type": "web_search_tool_result", "tool_use_id": "s", "content": []})),
        start(2, &json!({"type": "compaction", "content": ""})),
        delta(2, &json!({"type": "compaction_delta", "content": "sum"})),
        delta(2, &json!({"type": "compaction_delta", "content": "mary"})),
        start(3, &json!({"type": "text", "text": "done"})),
    ];
    events.extend(stop("pause_turn"));
    let d = anthropic(&events);
    assert_eq!((d.signal.reason, d.signal.should_terminate), (SignalReason::Paused, false));
    let json: Vec<Value> = d
        .turn
        .unwrap()
        .parts
        .iter()
        .filter_map(|p| match p {
            Part::Opaque { json, .. } => serde_json::from_str(json).ok(),
            _ => None,
        })
        .collect();
    assert_eq!(json[0]["input"], json!({"query": "x"}));
    assert_eq!(json[1]["tool_use_id"], "s");
    assert_eq!(json[2]["content"], "summary");
}

#[test]
fn code_execution_call_needs_tool_use() {
    let block = json!({"type": "tool_use", "id": "t", "name": "roll", "input": {"n": 1},
        "caller": {"type": "code_execution_20250825", "tool_id": "s"}});
    for (reason, ours) in [("tool_use", 1), ("end_turn", 0)] {
        let mut events = vec![start(0, &block), start(1, &json!({"type": "text", "text": "x"}))];
        events.extend(stop(reason));
        let d = anthropic(&events);
        assert_eq!(calls(&d).len(), ours, "{reason}");
        assert_eq!(d.signal.should_terminate, ours == 0);
    }
}

#[test]
fn usage_is_last_value_without_cache() {
    let mut events = vec![
        json!({"type": "message_start", "message": {"id": "m", "model": "c", "usage":
            {"input_tokens": 7, "output_tokens": 1, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 2}}}),
        json!({"type": "ping"}),
        start(0, &json!({"type": "text", "text": "x"})),
    ];
    events.extend(stop("stop_sequence"));
    let d = anthropic(&events);
    let u = d.turn.unwrap().usage;
    assert_eq!((u.input_tokens, u.output_tokens, u.prompt_tokens()), (Some(7), Some(5), 12));
    assert_eq!(d.signal.reason, SignalReason::StopSequence);
}

#[test]
fn error_after_text_keeps_text() {
    let body = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"Hel\"}}\n\n\
        event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";
    let d = decode(ANTHROPIC, body, RequestFacts::default());
    assert_eq!(d.error.unwrap().class.as_str(), "overloaded");
    assert_eq!(d.turn.unwrap().text(), "Hel");
    assert_eq!(d.signal.provider_specific.original_field, "error.type");
}

#[test]
fn cut_after_finish_keeps_the_turn() {
    let said = json!({"choices": [{"delta": {"content": "Hi"}}]});
    let whole = stream(&[said.clone(), end("stop")]);
    let d = decode(
        OPENAI_CHAT,
        &format!("{whole}data: {{\"choices\":[],\"usa"),
        RequestFacts::default(),
    );
    assert_eq!((d.signal.reason, d.complete), (SignalReason::NaturalCompletion, true));
    assert_eq!(d.error, None);
    let stopped = "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\nevent: message_stop\ndata: {\"type\":\"mess";
    let d = decode(ANTHROPIC, stopped, RequestFacts::default());
    assert_eq!(d.signal.reason, SignalReason::NaturalCompletion);
    for part in ["[", "[DO", "[DONE"] {
        let d = decode(OPENAI_CHAT, &format!("{whole}data: {part}"), RequestFacts::default());
        assert_eq!(d.signal.reason, SignalReason::NaturalCompletion, "{part}");
        // This value alone does not end the turn.
        let cut = format!("{}data: {part}", stream(std::slice::from_ref(&said)));
        let d = decode(OPENAI_CHAT, &cut, RequestFacts::default());
        assert_eq!(d.error.unwrap().class, ErrorClass::IncompleteStream, "{part}");
    }
    let d = decode(OPENAI_CHAT, r#"{"choices":[{"logprobs":{"x":0."#, RequestFacts::default());
    assert_eq!(d.error.unwrap().class, ErrorClass::IncompleteStream);
    // A cut before the finish value, or in the middle, loses data.
    let cut = format!("{}data: {{\"choices\":[{{\"delta\":{{}},\"finish_rea", stream(&[said]));
    let d = decode(OPENAI_CHAT, &cut, RequestFacts::default());
    assert_eq!(d.signal.reason, SignalReason::ErrorTermination);
    let hole = format!("data: {{\"choices\":[\n\n{whole}");
    let d = decode(OPENAI_CHAT, &hole, RequestFacts::default());
    assert_eq!(d.signal.reason, SignalReason::ErrorTermination);
}

fn blocks(events: &[Value]) -> Decoded {
    let start = json!({"type": "message_start", "message": {"id": "m", "role": "assistant", "content": []}});
    let end = json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}});
    let all = [&[start], events, &[end, json!({"type": "message_stop"})]].concat();
    decode(ANTHROPIC, &stream(&all), RequestFacts::default())
}

fn begin(index: u64, block: &Value) -> Value {
    json!({"type": "content_block_start", "index": index, "content_block": block})
}

fn tool(index: u64, id: &str, name: &str) -> Value {
    begin(index, &json!({"type": "tool_use", "id": id, "name": name, "input": {}}))
}

fn input(index: u64, json: &str) -> Value {
    let delta = json!({"type": "input_json_delta", "partial_json": json});
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

fn said(index: u64, text: &str) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": text}})
}

fn ended(index: u64) -> Value {
    json!({"type": "content_block_stop", "index": index})
}

fn arguments(d: &Decoded) -> Vec<String> {
    calls(d).into_iter().map(|(_, _, arguments)| arguments).collect()
}

#[test]
fn arguments_at_another_index_are_not_lost() {
    let (a, b) = (r#"{"path":"a"}"#, r#"{"path":"b"}"#);
    let first = [tool(0, "t1", "read"), input(0, a), ended(0)];
    // The only open call takes them, in as many fragments as they have.
    let d = blocks(&[&first[..], &[tool(1, "t2", "remove"), input(2, b), ended(1)]].concat());
    assert_eq!(arguments(&d), [a, b]);
    let split = [tool(1, "t2", "remove"), input(7, &b[..5]), input(7, &b[5..]), ended(1)];
    assert_eq!(arguments(&blocks(&[&first[..], &split].concat())), [a, b]);
    // They may be those of several calls, or of none that is open: no call runs without them.
    for events in [
        vec![tool(0, "t1", "read"), tool(1, "t2", "remove"), input(5, b)],
        vec![tool(0, "t1", "remove"), ended(0), input(5, b)],
        vec![tool(0, "t1", "remove"), input(0, "{\"path\":\"x"), ended(0), input(5, "y\"}")],
    ] {
        let d = blocks(&events);
        let last = arguments(&d).pop().unwrap();
        assert!(serde_json::from_str::<Value>(&last).is_err(), "{last}");
        assert_eq!(d.signal.provider_specific.metadata["invalid_args"], true, "{events:?}");
    }
    let text = [begin(0, &json!({"type": "text", "text": ""})), said(0, "I remove it.")];
    let call = [tool(1, "t", "remove"), input(0, b), ended(1)];
    assert_eq!(arguments(&blocks(&[&text[..], &call].concat())), [b]);
}

#[test]
fn index_that_is_used_again_begins_another_block() {
    let text = |d: &Decoded| {
        let parts = &d.turn.as_ref().unwrap().parts;
        let texts = parts.iter().filter_map(|part| match part {
            Part::Text { text } => Some(text.as_str()),
            _ => None,
        });
        texts.collect::<Vec<_>>().join("|")
    };
    let block = |kind: &str| {
        begin(1, &json!({"type": kind, "text": "", "tool_use_id": "s", "content": []}))
    };
    let result = [block("web_search_tool_result"), ended(1)];
    let d = blocks(
        &[&result[..], &[block("text"), said(1, "About"), said(1, " 49"), ended(1)]].concat(),
    );
    assert_eq!(text(&d), "About 49");
    // Also without the end of the first one, if it is of another type.
    let d = blocks(&[block("web_search_tool_result"), block("text"), said(1, "Yes.")]);
    assert_eq!(text(&d), "Yes.");
    // Frames of equal events do not continue the block before.
    let d = blocks(&[
        block("text"),
        said(1, "a"),
        said(1, "b"),
        said(1, "c"),
        ended(1),
        block("text"),
        said(1, "d"),
        said(1, "e"),
        ended(1),
    ]);
    assert_eq!(text(&d), "abc|de");
    // A start that a proxy repeats is that of the same block.
    let d = blocks(&[block("text"), said(1, "a"), block("text"), said(1, "b"), ended(1)]);
    assert_eq!(text(&d), "ab");
    let d = blocks(&[tool(0, "t", "ls"), tool(0, "t", "ls"), input(0, "{}"), ended(0)]);
    assert_eq!(arguments(&d), ["{}"]);
    let d =
        blocks(&[tool(0, "t1", "ls"), input(0, "{}"), tool(0, "t2", "ls"), input(0, "{\"a\":1}")]);
    assert_eq!(arguments(&d), ["{}", "{\"a\":1}"]);
    // Text in a block of reasoning is an answer all the same.
    let thinking = begin(0, &json!({"type": "thinking", "thinking": "hm"}));
    assert_eq!(text(&blocks(&[thinking, said(0, "It is 4.")])), "It is 4.");
}

#[test]
fn calls_without_index_are_continued_by_id() {
    let fragment = |id: &str, name: &str, arguments: &str| {
        let call = json!({"id": id, "function": {"name": name, "arguments": arguments}});
        json!({"choices": [{"delta": {"tool_calls": [call]}}]})
    };
    let d = openai(&[
        fragment("a", "rm", ""),
        fragment("b", "ls", ""),
        fragment("a", "", r#"{"path":"#),
        fragment("b", "", "{"),
        fragment("a", "", r#""x"}"#),
        fragment("b", "", "}"),
        end("tool_calls"),
    ]);
    assert_eq!(arguments(&d), [r#"{"path":"x"}"#, "{}"]);
}

#[test]
fn whole_calls_may_share_index_zero_without_ids() {
    let d = openai(&[
        call(0, "", "ls", r#"{"p":"a"}"#),
        call(0, "", "cat", r#"{"p":"b"}"#),
        end("tool_calls"),
    ]);
    assert_eq!(arguments(&d), [r#"{"p":"a"}"#, r#"{"p":"b"}"#]);
    let names: Vec<_> = calls(&d).into_iter().map(|(_, name, _)| name).collect();
    assert_eq!(names, ["ls", "cat"]);
}

#[test]
fn name_may_arrive_in_fragments() {
    let name = |parts: &[(&str, &str)]| {
        let events = parts.iter().map(|(name, arguments)| call(0, "a", name, arguments));
        calls(&openai(&events.chain([end("tool_calls")]).collect::<Vec<_>>())).remove(0).1
    };
    assert_eq!(name(&[("read_", ""), ("file", ""), ("", "{}")]), "read_file");
    // A name that is sent again, whole or so far, is no other fragment.
    assert_eq!(name(&[("read_file", ""), ("read_file", ""), ("", "{}")]), "read_file");
    assert_eq!(name(&[("read_", ""), ("read_file", ""), ("", "{}")]), "read_file");
    assert_eq!(name(&[("read_file", "{"), ("read_file", "}")]), "read_file");
}

/// Decodes the choices as a body, and as streams: one event for all, and one for each.
fn in_choices(choices: &[Value], facts: RequestFacts) -> [Decoded; 3] {
    let deltas: Vec<Value> = choices
        .iter()
        .map(|choice| {
            let mut choice = choice.clone();
            choice["delta"] = choice["message"].take();
            choice
        })
        .collect();
    let body = json!({"choices": choices}).to_string();
    let one = stream(&[json!({"choices": deltas})]);
    let each: Vec<Value> = (0..)
        .zip(deltas)
        .map(|(at, mut choice): (u64, Value)| {
            choice["index"] = choice.get("index").cloned().unwrap_or_else(|| at.into());
            json!({"choices": [choice]})
        })
        .collect();
    [body, one, stream(&each)].map(|body| decode(OPENAI_CHAT, &body, facts))
}

#[test]
fn choices_are_one_answer() {
    let ls = |id: &str| json!({"id": id, "type": "function", "function": {"name": "ls", "arguments": "{}"}});
    let text =
        |text: &str, finish: &str| json!({"message": {"content": text}, "finish_reason": finish});
    let calls = |calls: &[Value], finish: &str| json!({"message": {"content": null, "tool_calls": calls}, "finish_reason": finish});
    let at = |index: u64, mut choice: Value| {
        choice["index"] = index.into();
        choice
    };
    let both = |content: &str, id: &str| json!({"message": {"content": content, "tool_calls": [ls(id)]}, "finish_reason": "tool_calls"});
    let legacy = json!({"message": {"function_call": {"name": "ls", "arguments": "{}"}}, "finish_reason": "function_call"});
    let thinks = json!({"message": {"reasoning_content": "Hm."}, "finish_reason": null});
    let (tool_use, natural) = (SignalReason::ToolUse, SignalReason::NaturalCompletion);
    for (choices, reason, ids, said) in [
        (
            vec![text("I look.", "tool_calls"), calls(&[ls("a")], "tool_calls")],
            tool_use,
            &["a"][..],
            "I look.",
        ),
        (
            vec![calls(&[ls("a")], "tool_calls"), text("I look.", "stop")],
            tool_use,
            &["a"],
            "I look.",
        ),
        (
            vec![at(0, text("I look.", "stop")), at(1, calls(&[ls("a"), ls("b")], "tool_calls"))],
            tool_use,
            &["a", "b"],
            "I look.",
        ),
        (
            vec![at(0, text("I look.", "stop")), at(0, calls(&[ls("a")], "tool_calls"))],
            tool_use,
            &["a"],
            "I look.",
        ),
        (
            vec![calls(&[ls("a")], "tool_calls"), calls(&[ls("b")], "tool_calls")],
            tool_use,
            &["a", "b"],
            "",
        ),
        (vec![thinks, text("Hi", "stop")], natural, &[], "Hi"),
        (vec![calls(&[], "stop"), text("Hi", "stop")], natural, &[], "Hi"),
        (vec![both("I look.", "a"), both("Or so.", "b")], tool_use, &["a", "b"], "I look."),
        (vec![text("I look.", "stop"), legacy], tool_use, &["call_turn_0"], "I look."),
        // The same call again, and text that contradicts the first one.
        (vec![both("I look.", "a"), both("I look.", "a")], tool_use, &["a"], "I look."),
        (vec![text("Yes", "stop"), text("No", "stop")], natural, &[], "Yes"),
        (
            vec![text("Yes", "stop"), text("No", "length")],
            SignalReason::TokenLimitReached,
            &[],
            "Yes",
        ),
    ] {
        for d in in_choices(&choices, RequestFacts::default()) {
            assert_eq!(d.signal.reason, reason, "{choices:?}");
            let found: Vec<String> = self::calls(&d).into_iter().map(|(id, ..)| id).collect();
            assert_eq!(found, ids, "{choices:?}");
            assert_eq!(d.turn.unwrap().text(), said, "{choices:?}");
        }
    }
}

#[test]
fn first_of_several_alternatives_counts() {
    let facts = RequestFacts { has_alternatives: true, ..RequestFacts::default() };
    let call = json!([{"id": "a", "function": {"name": "ls", "arguments": "{}"}}]);
    let choices = [
        json!({"index": 1, "message": {"content": "No", "tool_calls": call}, "finish_reason": "tool_calls"}),
        json!({"index": 0, "message": {"content": "Yes"}, "finish_reason": "stop"}),
        json!({"index": 2, "message": {"content": "Perhaps"}, "finish_reason": "length"}),
    ];
    for d in in_choices(&choices, facts) {
        assert_eq!(d.signal.reason, SignalReason::NaturalCompletion);
        assert_eq!(d.turn.unwrap().parts, [Part::Text { text: "Yes".into() }]);
    }
    // Also if the events of another one have a common frame.
    let more = |index: u64| json!({"choices": [{"index": index, "delta": {"content": "x"}}]});
    let events: Vec<Value> =
        [0, 1, 1, 1, 1, 0].map(more).into_iter().chain([end("stop")]).collect();
    let d = decode(OPENAI_CHAT, &stream(&events), facts);
    assert_eq!(d.turn.unwrap().text(), "xx");
    assert_eq!(openai(&events).turn.unwrap().text(), "xx");
}

#[test]
fn calls_of_two_choices_are_told_apart() {
    let piece = |choice: u64, call: Value| json!({"choices": [{"index": choice, "delta": {"tool_calls": [call]}}]});
    let start = |choice, id: &str, name: &str| {
        piece(choice, json!({"index": 0, "id": id, "function": {"name": name, "arguments": ""}}))
    };
    let more =
        |choice, json: &str| piece(choice, json!({"index": 0, "function": {"arguments": json}}));
    let events = [
        start(0, "a", "ls"),
        start(1, "b", "rm"),
        more(0, "{\"x\""),
        more(1, "{\"y\""),
        more(0, ":1}"),
        more(1, ":2}"),
        end("tool_calls"),
    ];
    assert_eq!(
        calls(&openai(&events)),
        [
            ("a".into(), "ls".into(), r#"{"x":1}"#.into()),
            ("b".into(), "rm".into(), r#"{"y":2}"#.into())
        ]
    );
}

#[test]
fn error_without_content_is_none() {
    for (error, is_error) in [
        (json!(null), false),
        (json!({"code": null, "message": null}), false),
        (json!({"code": 0, "message": "", "details": []}), false),
        (json!({"error": {"message": null}}), false),
        (json!(""), false),
        (json!(false), false),
        (json!({"code": null, "message": "Overloaded"}), true),
        (json!({"code": 500, "message": null}), true),
        (json!("Overloaded"), true),
        (json!(true), true),
    ] {
        let chat = stream(&[
            json!({"choices": [{"delta": {"content": "Hi"}, "error": error}], "error": error, "x_groq": {"error": error}}),
            json!({"choices": [{"delta": {}, "finish_reason": "stop"}], "error": error}),
        ]) + "data: [DONE]\n\n"
            + &stream(&[json!({"error": error})]);
        let anthropic = stream(&[
            json!({"type": "ping", "error": error}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}, "error": error}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "error": error}),
            json!({"type": "message_stop"}),
        ]);
        let gemini = stream(&[
            json!({"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}], "error": error}),
        ]);
        let cohere = stream(&[
            json!({"type": "content-delta", "index": 0, "delta": {"message": {"content": {"text": "Hi"}}}, "error": error}),
            json!({"type": "message-end", "delta": {"finish_reason": "COMPLETE"}}),
        ]);
        let ollama = json!({"message": {"content": "Hi"}, "done": true, "done_reason": "stop", "error": error}).to_string();
        let responses = json!({"status": "completed", "error": error, "output": [
            {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}]})
        .to_string();
        for (api, body) in [
            ("openai-chat", chat),
            ("anthropic-messages", anthropic),
            ("gemini", gemini),
            ("cohere-v2", cohere),
            ("ollama", ollama),
            ("openai-responses", responses),
        ] {
            let d = decode(dialect(api).unwrap(), &body, RequestFacts::default());
            assert_eq!(d.error.is_some(), is_error, "{api}: {error}");
            let text = d.turn.map(|turn| turn.text()).unwrap_or_default();
            assert!(is_error || text == "Hi", "{api}: {error}");
        }
    }
}

#[test]
fn null_arguments_are_none() {
    for (arguments, want) in [
        (json!("null"), ""),
        (json!(" null\n"), ""),
        (json!(null), ""),
        (json!("nul"), "nul"),
        (json!("\"null\""), "\"null\""),
    ] {
        let call =
            json!({"index": 0, "id": "a", "function": {"name": "ls", "arguments": arguments}});
        let d =
            openai(&[json!({"choices": [{"delta": {"tool_calls": [call]}}]}), end("tool_calls")]);
        assert_eq!(calls(&d)[0].2, want, "{arguments}");
    }
}

#[test]
fn lines_of_data_can_be_events() {
    let text = |text: &str| json!({"choices": [{"delta": {"content": text}}]}).to_string();
    let done = "[DONE]".to_owned();
    for (lines, said) in [
        (vec![text("Hel"), text("lo"), end("stop").to_string(), done.clone()], Some("Hello")),
        (vec![text("Hel"), String::new(), text("lo"), end("stop").to_string()], Some("Hello")),
        (vec![text("Hello"), end("stop").to_string(), "{\"choi".into()], Some("Hello")),
        // One object over several lines, as the specification has it.
        (
            vec![
                "{\"choices\":".into(),
                "[{\"delta\":{\"content\":\"Hi\"}, \"finish_reason\":\"stop\"}]}".into(),
            ],
            Some("Hi"),
        ),
        (vec![text("Hello"), "{\"choi".into()], None),
        (vec![text("Hello"), "oops {".into(), end("stop").to_string(), done], Some("Hello")),
        (vec!["oops".into(), text("Hello")], None),
    ] {
        let body = format!("data: {}\n", lines.join("\ndata: "));
        let d = decode(OPENAI_CHAT, &body, RequestFacts::default());
        match said {
            Some(said) => {
                assert_eq!((d.error, d.turn.unwrap().text()), (None, said.into()), "{body}");
            }
            None => assert!(d.error.is_some(), "{body}"),
        }
    }
}
