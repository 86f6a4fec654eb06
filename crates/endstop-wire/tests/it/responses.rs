//! Responses API beyond its recordings, and items that are sent back unchanged.

use crate::recordings::{data, rows};
use endstop_core::{ErrorClass, Message, MessageId, NanoUsd, Part, Role, SignalReason};
use endstop_wire::dialect::{Dialect, OPENAI_RESPONSES, dialect};
use endstop_wire::{
    Decoded, Delta, Encoder, Eof, Headers, RequestFacts, RequestSpec, StreamDecoder, decode_body,
};
use serde_json::{Value, json};

fn decode(dialect: &'static Dialect, body: &str) -> Decoded {
    decode_body(dialect, 200, &Headers::new(), body.as_bytes(), &RequestFacts::default())
}

fn body(response: &Value) -> Decoded {
    decode(OPENAI_RESPONSES, &response.to_string())
}

fn stream(events: &[Value]) -> Decoded {
    let events: Vec<String> = events.iter().map(|e| format!("data: {e}\n\n")).collect();
    decode(OPENAI_RESPONSES, &events.concat())
}

fn said(text: &str) -> Value {
    json!({"type": "message", "id": "msg_1", "role": "assistant",
        "content": [{"type": "output_text", "text": text}]})
}

fn text_delta(text: &str) -> Value {
    json!({"type": "response.output_text.delta", "output_index": 0, "delta": text})
}

/// Returns the reason, the value and its field.
fn seen(d: &Decoded) -> (SignalReason, &str, &str) {
    let from = &d.signal.provider_specific;
    (d.signal.reason, &from.original_field, &from.original_value)
}

#[test]
fn status_in_last_event_decides() {
    use SignalReason as R;
    let end = |name: &str, response: Value| {
        stream(&[
            json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}),
            text_delta("Hi"),
            json!({"type": name, "response": response}),
        ])
    };
    let cut =
        json!({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}});
    let d = end("response.completed", cut);
    let want = (R::TokenLimitReached, "incomplete_details.reason", "max_output_tokens");
    assert_eq!(
        (seen(&d), d.signal.provider_specific.metadata["status"].as_str()),
        (want, Some("incomplete"))
    );
    let said_so =
        json!({"status": "completed", "incomplete_details": {"reason": "content_filter"}});
    let want = (R::ContentFiltered, "incomplete_details.reason", "content_filter");
    assert_eq!(seen(&end("response.completed", said_so)), want);
    // A snapshot from the start is not the end.
    let d = end("response.completed", json!({"status": "in_progress"}));
    assert_eq!(seen(&d), (R::NaturalCompletion, "status", "completed"));
    let d = end("response.done", Value::Null);
    assert_eq!(seen(&d), (R::NaturalCompletion, "status", "completed"));
    let d = end("response.incomplete", json!({"status": "incomplete", "incomplete_details": null}));
    assert_eq!(seen(&d), (R::Unknown, "status", "incomplete"));
    let d = end("response.failed", json!({"status": "failed", "error": null}));
    assert_eq!(seen(&d), (R::ErrorTermination, "status", "failed"));
    assert_eq!(
        (d.error.unwrap().class, d.turn.unwrap().text()),
        (ErrorClass::ServerError, "Hi".into())
    );
    // Without a last event the stream was cut, and the server stored nothing of it.
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": []});
    let d = stream(&[
        json!({"type": "response.output_item.done", "output_index": 0, "item": reasoning}),
        json!({"type": "response.output_text.delta", "output_index": 1, "delta": "Hi"}),
    ]);
    assert_eq!(d.error.unwrap().class, ErrorClass::IncompleteStream);
    assert_eq!(d.turn.unwrap().parts, [Part::Text { text: "Hi".into() }]);
}

#[test]
fn background_response_is_in_progress() {
    for status in ["queued", "in_progress"] {
        let d = body(&json!({"object": "response", "status": status, "output": []}));
        assert_eq!(seen(&d), (SignalReason::InProgress, "status", status));
        assert!(!d.signal.should_terminate);
    }
    let d = body(&json!({"object": "response", "status": "cancelled", "output": []}));
    assert_eq!(d.error.unwrap().class, ErrorClass::Cancelled);
}

#[test]
fn last_error_decides() {
    let error = |code: &str| json!({"code": code, "message": "no"});
    let d = stream(&[
        json!({"type": "error", "error": error("server_error")}),
        json!({"type": "response.failed",
            "response": {"status": "failed", "error": error("insufficient_quota")}}),
    ]);
    assert_eq!(seen(&d), (SignalReason::ErrorTermination, "error.code", "insufficient_quota"));
    let d = stream(&[json!({"type": "error", "code": "rate_limit_exceeded", "message": "slow"})]);
    assert_eq!(d.error.unwrap().class, ErrorClass::RateLimit);
    for (code, class) in [
        ("invalid_image_url", ErrorClass::InvalidRequest),
        ("vector_store_timeout", ErrorClass::Timeout),
        ("bio_policy", ErrorClass::ContentPolicy),
        ("server_error", ErrorClass::ServerError),
    ] {
        let d = body(&json!({"status": "failed", "output": [], "error": error(code)}));
        assert_eq!(d.error.unwrap().class, class, "{code}");
    }
}

#[test]
fn output_missing_at_end_is_kept() {
    let end = |output: Value| json!({"type": "response.completed", "response": {"status": "completed", "output": output}});
    let call = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": ""});
    let begun = [
        json!({"type": "response.output_item.added", "output_index": 0, "item": call}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": "{\"a\":"}),
        json!({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "1}"}),
    ];
    let d = stream(&[&begun[..], &[end(json!([]))]].concat());
    let turn = d.turn.unwrap();
    assert_eq!(turn.tool_calls().next().unwrap().arguments, "{\"a\":1}");
    assert_eq!(d.signal.reason, SignalReason::ToolUse);
    // Nothing but the last event.
    let d = stream(&[end(json!([said("Hi")]))]);
    assert_eq!(d.turn.unwrap().text(), "Hi");
    // Items with neither index nor id, and arguments that arrived only as fragments.
    let whole = |item: Value| json!({"type": "response.output_item.done", "item": item});
    let bare = |name: &str| whole(json!({"type": "function_call", "call_id": name, "name": name}));
    let d = stream(
        &[&begun[..], &[whole(call.clone()), bare("g"), bare("h"), end(json!([]))]].concat(),
    );
    let calls: Vec<(String, String)> =
        d.turn.unwrap().tool_calls().map(|c| (c.id.clone(), c.arguments.clone())).collect();
    assert_eq!(
        calls,
        [("c", "{\"a\":1}"), ("g", ""), ("h", "")].map(|(a, b)| (a.into(), b.into()))
    );
    // A last event with more items.
    let d = stream(&[text_delta("Hi"), end(json!([said("Hi"), call]))]);
    assert_eq!(d.turn.unwrap().tool_calls().count(), 1);
}

#[test]
fn server_items_are_not_calls() {
    let output = json!([
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "mcp_call", "id": "mcp_1", "name": "f", "arguments": "{}"},
        {"type": "tool_search_call", "id": "ts_1", "execution": "server", "arguments": {}},
        {"type": "shell_call", "id": "sh_1", "call_id": "s", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "id": "so_1", "call_id": "s", "output": []},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "", "arguments": ""},
        said("Done."),
    ]);
    let d = body(&json!({"status": "completed", "output": output}));
    assert_eq!(d.signal.reason, SignalReason::NaturalCompletion);
    let opaque = d.turn.unwrap().parts.iter().filter(|p| matches!(p, Part::Opaque { .. })).count();
    assert_eq!(opaque, 6, "five items and the message's mark");
    // xAI runs its custom tools itself.
    let output =
        json!([{"type": "custom_tool_call", "call_id": "x", "name": "x_search", "input": "q"}]);
    let response =
        json!({"status": "completed", "output": output, "usage": {"cost_in_usd_ticks": 11}});
    assert_eq!(body(&response).signal.reason, SignalReason::ToolUse);
    let d = decode(dialect("xai-responses").unwrap(), &response.to_string());
    assert_eq!(d.signal.reason, SignalReason::NaturalCompletion);
    assert_eq!(d.turn.unwrap().cost, Some(NanoUsd(2)), "ten ticks are a nano-dollar");
}

#[test]
fn dangling_reasoning_is_not_sent_back() {
    let reasoning = json!({"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]});
    let cut = |output: Value| {
        let details = json!({"reason": "max_output_tokens"});
        let response =
            json!({"status": "incomplete", "incomplete_details": details, "output": output});
        body(&response).turn.unwrap().parts
    };
    assert_eq!(cut(json!([reasoning])), [Part::Reasoning { text: "hm".into() }]);
    assert!(matches!(cut(json!([reasoning, said("Hi")]))[1], Part::Opaque { .. }));
}

#[test]
fn log_probabilities_give_confidence() {
    let piece = json!({"type": "output_text", "text": "Hi", "logprobs": [{"logprob": 0.0}, {"logprob": -std::f64::consts::LN_2}]});
    let d =
        body(&json!({"status": "completed", "output": [{"type": "message", "content": [piece]}]}));
    assert!((d.turn.unwrap().confidence.unwrap() - 0.75).abs() < 1e-9);
}

/// A stream is not complete until its last event has arrived.
#[test]
fn truncated_stream_is_not_success() {
    let mut cuts = 0;
    for row in rows(&data("openai-responses.jsonl.gz")) {
        let text = row["body"].as_str().unwrap();
        let whole = row["expected"]["reason"] != "error_termination";
        if row["streaming"] != true || !whole || text.len() > 40_000 {
            continue;
        }
        let last = text.rfind("data: {").unwrap();
        for cut in (1..last).step_by(997).chain((last..text.trim_end().len()).step_by(13)) {
            let Some(head) = text.get(..cut) else { continue };
            let d = decode(OPENAI_RESPONSES, head);
            let class = d.error.map(|e| e.class);
            assert_eq!(class, Some(ErrorClass::IncompleteStream), "{} {cut}", row["id"]);
            cuts += 1;
        }
    }
    assert!(cuts > 1000, "{cuts}");
}

/// The turn of a recording, encoded as a message, has the same items as the recording's output.
#[test]
fn output_items_are_sent_back() {
    let mut items = 0;
    for name in ["openai-responses.jsonl.gz", "xai-responses.jsonl.gz"] {
        for row in rows(&data(name)) {
            let dialect = dialect(row["api"].as_str().unwrap()).unwrap();
            let d = decode(dialect, row["body"].as_str().unwrap());
            if row["status"] != 200 || d.signal.provider_specific.original_value != "completed" {
                continue;
            }
            let parts = d.turn.unwrap().parts;
            let message = Message::new(MessageId(1), Role::Assistant, parts);
            let mut encoder = Encoder::new(dialect, &RequestSpec::default());
            let sent: Value = serde_json::from_slice(encoder.body(&[message], 0, None)).unwrap();
            let sent = sent["input"].as_array().unwrap();
            let came: Vec<Value> = output(row["body"].as_str().unwrap());
            let empty =
                |item: &&Value| item["type"] == "message" && item["content"][0]["text"] == "";
            let came: Vec<&Value> = came.iter().filter(|item| !empty(item)).collect();
            assert_eq!(sent.len(), came.len(), "{}", row["id"]);
            for (sent, came) in sent.iter().zip(came) {
                items += 1;
                let fields: &[&str] = match came["type"].as_str().unwrap() {
                    "function_call" => {
                        &["type", "id", "call_id", "name", "arguments", "namespace", "caller"]
                    }
                    "message" => &["type", "id", "role", "phase"],
                    _ => &[],
                };
                for field in fields {
                    assert_eq!(sent[*field], came[*field], "{} {field}", row["id"]);
                }
                if came["type"] == "message" {
                    assert_eq!(sent["content"][0]["text"], came["content"][0]["text"]);
                }
                if fields.is_empty() {
                    assert_eq!(sent, came, "{}", row["id"]);
                }
            }
        }
    }
    assert!(items > 200, "{items}");
}

/// Returns the items of a recording, from the complete body or from the `done` events.
fn output(body: &str) -> Vec<Value> {
    if let Ok(mut whole) = serde_json::from_str::<Value>(body) {
        return serde_json::from_value(whole["output"].take()).unwrap();
    }
    let events = body.lines().filter_map(|line| line.strip_prefix("data:"));
    let events = events.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    let mut done: Vec<Value> =
        events.filter(|event| event["type"] == "response.output_item.done").collect();
    done.sort_by_key(|event| event["output_index"].as_u64());
    done.into_iter().map(|mut event| event["item"].take()).collect()
}

fn call_item(id: &str, call_id: &str, arguments: &str, status: &str) -> Value {
    json!({"type": "function_call", "id": id, "call_id": call_id, "name": "ls", "arguments": arguments,
        "status": status})
}

/// Returns the id and the arguments of each call; `!` for those that do not parse.
fn called(d: &Decoded) -> Vec<(String, String)> {
    let turn = d.turn.as_ref().unwrap();
    let shown = |arguments: &str| match serde_json::from_str::<Value>(arguments) {
        Err(_) if !arguments.is_empty() => "!".to_owned(),
        _ => arguments.to_owned(),
    };
    turn.tool_calls().map(|call| (call.id.clone(), shown(&call.arguments))).collect()
}

#[test]
fn items_with_one_call_id_are_one_call() {
    let item = |call_id, arguments| call_item("i", call_id, arguments, "completed");
    let cut = |call_id, arguments| call_item("i", call_id, arguments, "incomplete");
    let named = |name: &str| {
        let mut item = item("c", r#"{"a":1}"#);
        item["name"] = name.into();
        item
    };
    let (full, spaced) = (r#"{"a":1}"#, r#"{ "a": 1 }"#);
    for (output, want) in [
        (vec![item("c", "{}"), item("c", full)], &[("c", full)][..]),
        (vec![item("c", full), item("c", "{}")], &[("c", full)]),
        (vec![item("c", full), item("c", "")], &[("c", full)]),
        (vec![item("c", full), item("c", "null")], &[("c", full)]),
        (vec![item("c", full), item("c", spaced)], &[("c", spaced)]),
        (vec![item("c", full), item("d", full), item("c", full)], &[("d", full), ("c", full)]),
        (vec![item("", full), item("", full)], &[("i", full), ("i_1", full)]),
        (vec![item("c", "{}"), item("c", "{}")], &[("c", "{}")]),
        // They contradict each other.
        (vec![item("c", full), item("c", r#"{"a":2}"#)], &[("c", "!")]),
        (vec![named("ls"), named("rm")], &[("c", "!")]),
        (vec![item("c", full), item("c", r#"{"a":2}"#), item("c", full)], &[("c", "!")]),
        // Of one that is not complete the other counts, unless only it has arguments.
        (vec![cut("c", r#"{"a":"#), item("c", full)], &[("c", full)]),
        (vec![item("c", full), cut("c", full)], &[("c", full)]),
        (vec![cut("c", full), item("c", "")], &[("c", "!")]),
        (vec![cut("c", full)], &[("c", "!")]),
        (vec![cut("c", "")], &[("c", "!")]),
        (vec![cut("c", ""), item("d", full)], &[("c", "!"), ("d", full)]),
        (vec![call_item("i", "c", full, "in_progress")], &[("c", full)]),
    ] {
        let want: Vec<(String, String)> =
            want.iter().map(|(id, arguments)| ((*id).into(), (*arguments).into())).collect();
        let whole = body(&json!({"id": "r", "status": "completed", "output": output}));
        assert_eq!(called(&whole), want, "{output:?}");
        let last = json!({"type": "response.completed", "response": {"status": "completed", "output": []}});
        let events = output.iter().enumerate().map(|(at, item)| {
            json!({"type": "response.output_item.done", "output_index": at, "item": item})
        });
        let streamed = stream(&events.chain([last]).collect::<Vec<_>>());
        assert_eq!(called(&streamed), want, "{output:?}");
    }
}

#[test]
fn arguments_under_other_item_ids_do_not_vanish() {
    let added = |id, call_id| {
        let item = call_item(id, call_id, "", "in_progress");
        json!({"type": "response.output_item.added", "item": item})
    };
    let delta = |id: &str, more: &str| json!({"type": "response.function_call_arguments.delta", "item_id": id, "delta": more});
    let done = |id, call_id, arguments| {
        let item = call_item(id, call_id, arguments, "completed");
        json!({"type": "response.output_item.done", "item": item})
    };
    let full = r#"{"a":1}"#;
    for (events, want) in [
        (vec![added("1", "c"), delta("2", full), done("3", "c", full)], &[("c", full)][..]),
        (vec![added("1", "c"), delta("2", full), done("3", "c", "")], &[("c", full)]),
        (vec![added("1", "c"), delta("2", r#"{"a""#), delta("3", ":1}")], &[("c", full)]),
        (
            vec![added("1", "c"), delta("2", full), added("3", "d"), delta("4", "{}")],
            &[("c", full), ("d", "{}")],
        ),
        (
            vec![added("1", "c"), delta("2", full), done("3", "c", full), done("4", "d", "")],
            &[("c", full), ("d", "")],
        ),
        (vec![delta("2", full), done("3", "c", "")], &[("c", full)]),
        (vec![done("1", "c", "{}"), delta("2", full)], &[("c", full)]),
        (vec![done("1", "c", full), delta("2", full), delta("3", full)], &[("c", full)]),
        // It is not known whose they are.
        (vec![added("1", "c"), added("2", "d"), delta("3", full)], &[("c", "!"), ("d", "!")]),
        (
            vec![added("1", "c"), added("2", "d"), delta("3", full), delta("4", full)],
            &[("c", "!"), ("d", "!")],
        ),
    ] {
        let want: Vec<(String, String)> =
            want.iter().map(|(id, arguments)| ((*id).into(), (*arguments).into())).collect();
        let last = json!({"type": "response.completed", "response": {"status": "completed"}});
        let all: Vec<Value> = events.iter().cloned().chain([last]).collect();
        assert_eq!(called(&stream(&all)), want, "{events:?}");
    }
}

#[test]
fn call_under_other_item_ids_starts_once() {
    let item = |id: &str, arguments: &str| call_item(id, "c", arguments, "completed");
    let output = json!({"type": "function_call_output", "id": "3", "call_id": "d", "output": "x"});
    let events = [
        json!({"type": "response.output_item.added", "item": item("1", "")}),
        json!({"type": "response.output_item.done", "item": item("2", "{}")}),
        json!({"type": "response.output_item.done", "item": call_item("4", "d", "{}", "completed")}),
        json!({"type": "response.output_item.done", "item": output}),
        json!({"type": "response.completed", "response": {"status": "completed"}}),
    ];
    let mut decoder =
        StreamDecoder::new(OPENAI_RESPONSES, 200, Headers::new(), RequestFacts::default());
    let mut started = Vec::new();
    for event in events {
        let event = format!("data: {event}\n\n");
        let started = &mut started;
        let mut sink = |delta: Delta<'_>| {
            if let Delta::ToolCallStarted { id, .. } = delta {
                started.push(id.to_owned());
            }
        };
        decoder.push(event.as_bytes(), &mut sink).unwrap();
    }
    assert_eq!(started, ["c", "d"]);
    // The server ran the other one.
    assert_eq!(called(&decoder.finish(Eof::Clean)), [("c".into(), "{}".into())]);
}

#[test]
fn final_response_adds_what_was_not_streamed() {
    let reasoning = json!({"type": "reasoning", "id": "q", "summary": []});
    let call = |id, call_id| call_item(id, call_id, "{}", "completed");
    let done = |item: &Value| json!({"type": "response.output_item.done", "item": item});
    let thinks =
        json!({"type": "response.reasoning_text.delta", "output_index": 0, "delta": "Hm."});
    for (events, output, calls, text) in [
        (vec![done(&reasoning)], vec![call("f", "c")], &["c"][..], ""),
        (
            vec![done(&reasoning), done(&call("f", "c"))],
            vec![call("f", "c"), call("g", "d")],
            &["c", "d"],
            "",
        ),
        (vec![done(&reasoning)], vec![said("Hi")], &[], "Hi"),
        (vec![thinks], vec![said("Hi")], &[], "Hi"),
        (vec![done(&said("Hi")), done(&reasoning)], vec![call("f", "c")], &["c"], "Hi"),
        // Other ids, and as many items: they are those that were streamed.
        (vec![done(&call("f", "c"))], vec![call("g", "d")], &["c"], ""),
        (vec![done(&said("Hi")), done(&reasoning)], vec![said("Ho")], &[], "Hi"),
        (
            vec![text_delta("Hi"), done(&reasoning), done(&call("f", "c"))],
            vec![said("Hi")],
            &["c"],
            "Hi",
        ),
    ] {
        let response = json!({"status": "completed", "output": output});
        let last = json!({"type": "response.completed", "response": response});
        let d = stream(&events.iter().cloned().chain([last]).collect::<Vec<_>>());
        let ids: Vec<String> = called(&d).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, calls, "{events:?}");
        assert_eq!(d.turn.unwrap().text(), text, "{events:?}");
    }
}
