//! The catalogue of finish values: each one, even if no recording contains it, has the documented
//! meaning in its provider's documented shape, both as a complete body and as a stream.

use endstop_wire::dialect::{DIALECTS, Dialect};
use endstop_wire::{Decoded, Eof, Headers, RequestFacts, StreamDecoder, WireFormat, decode_body};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// APIs of the catalogue that are not supported, because they do not answer a request of this
/// crate.
const NOT_SPOKEN: &[&str] = &["gemini-interactions", "gemini-live"];

/// Rows with another result here, each with the reason.
const DIFFERENT: &[(&str, &str, &str)] = &[
    // (api, value, why)
    (
        "openai-responses",
        "steered",
        "another response continues this one: an unknown ending still ends the turn here",
    ),
    ("azure-openai-responses", "steered", "as for OpenAI"),
];

/// A response with this finish value, as a complete body and as a stream.
struct Shape {
    whole: String,
    stream: String,
    field: &'static str,
}

fn sse(events: &[Value]) -> String {
    let events: Vec<String> = events.iter().map(|e| format!("data: {e}\n\n")).collect();
    events.concat()
}

fn named(events: &[Value]) -> String {
    let event = |e: &Value| format!("event: {}\ndata: {e}\n\n", e["type"].as_str().unwrap());
    events.iter().map(event).collect::<Vec<_>>().concat()
}

fn openai_chat(value: &Value, tool: bool) -> Shape {
    let call = json!({"index": 0, "id": "c1", "type": "function",
                      "function": {"name": "look", "arguments": "{}"}});
    let mut message = json!({"role": "assistant", "content": "So"});
    if tool {
        message["tool_calls"] = json!([call]);
    }
    let choice = |key: &str, said: &Value, finish: &Value| json!({"id": "x", "model": "m", "choices": [{"index": 0, key: said, "finish_reason": finish}]});
    let stream = [
        choice("delta", &message, &Value::Null),
        choice("delta", &json!({}), value),
        json!({"id": "x", "model": "m", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}),
    ];
    Shape {
        whole: choice("message", &message, value).to_string(),
        stream: sse(&stream) + "data: [DONE]\n\n",
        field: "finish_reason",
    }
}

fn anthropic(value: &Value, tool: bool) -> Shape {
    let mut blocks = vec![json!({"type": "text", "text": "So"})];
    if tool {
        blocks.push(json!({"type": "tool_use", "id": "t1", "name": "look", "input": {}}));
    }
    let message = |content: &[Value], stop: &Value| {
        json!({"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": content,
               "stop_reason": stop, "stop_sequence": null,
               "usage": {"input_tokens": 1, "output_tokens": 2}})
    };
    let mut stream = vec![json!({"type": "message_start", "message": message(&[], &Value::Null)})];
    for (index, block) in blocks.iter().enumerate() {
        stream.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        stream.push(json!({"type": "content_block_stop", "index": index}));
    }
    stream.push(json!({"type": "message_delta", "usage": {"output_tokens": 2},
                       "delta": {"stop_reason": value, "stop_sequence": null}}));
    stream.push(json!({"type": "message_stop"}));
    Shape {
        whole: message(&blocks, value).to_string(),
        stream: named(&stream),
        field: "stop_reason",
    }
}

fn gemini(field: Option<&str>, value: &Value, tool: bool) -> Shape {
    if field == Some("promptFeedback.blockReason") {
        let body = json!({"promptFeedback": {"blockReason": value}, "modelVersion": "m"});
        return Shape {
            whole: body.to_string(),
            stream: sse(&[body]),
            field: "promptFeedback.blockReason",
        };
    }
    let mut parts = vec![json!({"text": "So"})];
    if tool {
        parts.push(json!({"functionCall": {"name": "look", "args": {}}}));
    }
    let chunk = |parts: &[Value], finish: &Value| {
        json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish}],
               "modelVersion": "m"})
    };
    Shape {
        whole: chunk(&parts, value).to_string(),
        stream: sse(&[chunk(&parts, &Value::Null), chunk(&[], value)]),
        field: "finishReason",
    }
}

fn responses(field: Option<&str>, value: &Value) -> Shape {
    let raw = value.as_str().unwrap();
    let of_details = field == Some("incomplete_details.reason");
    let status = if of_details { "incomplete" } else { raw };
    let item = json!({"type": "message", "id": "msg", "role": "assistant", "status": "completed",
                      "content": [{"type": "output_text", "text": "So", "annotations": []}]});
    let response = |status: &str, output: &[Value]| {
        json!({"id": "resp", "object": "response", "model": "m", "status": status, "output": output,
               "error": null,
               "incomplete_details": if of_details { json!({"reason": raw}) } else { Value::Null }})
    };
    let last = match status {
        "completed" | "incomplete" | "failed" | "queued" | "in_progress" => status,
        // A stream does not report any other status.
        _ => "completed",
    };
    Shape {
        whole: response(status, std::slice::from_ref(&item)).to_string(),
        stream: named(&[
            json!({"type": "response.created", "response": response("in_progress", &[])}),
            json!({"type": "response.output_text.delta", "item_id": "msg", "output_index": 0,
                   "content_index": 0, "delta": "So"}),
            json!({"type": "response.output_item.done", "output_index": 0, "item": item}),
            json!({"type": format!("response.{last}"), "response": response(status, std::slice::from_ref(&item))}),
        ]),
        field: if of_details { "incomplete_details.reason" } else { "status" },
    }
}

fn cohere_v2(value: &Value, tool: bool) -> Shape {
    let message = |piece: &Value| json!({"message": piece});
    let call =
        json!({"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}});
    let mut whole = json!({"role": "assistant", "content": [{"type": "text", "text": "So"}]});
    let mut stream = vec![
        json!({"type": "message-start", "id": "x", "delta": message(&json!({"content": []}))}),
        json!({"type": "content-start", "index": 0,
               "delta": message(&json!({"content": {"type": "text", "text": ""}}))}),
        json!({"type": "content-delta", "index": 0,
               "delta": message(&json!({"content": {"text": "So"}}))}),
        json!({"type": "content-end", "index": 0}),
    ];
    if tool {
        whole["tool_calls"] = json!([call]);
        let delta = message(&json!({"tool_calls": call}));
        stream.push(json!({"type": "tool-call-start", "index": 0, "delta": delta}));
        stream.push(json!({"type": "tool-call-end", "index": 0}));
    }
    stream.push(json!({"type": "message-end", "delta": {"finish_reason": value}}));
    Shape {
        whole: json!({"id": "x", "message": whole, "finish_reason": value}).to_string(),
        stream: named(&stream),
        field: "finish_reason",
    }
}

fn cohere_v1(value: &Value) -> Shape {
    let whole = json!({"text": "So", "generation_id": "x", "finish_reason": value});
    let stream = [
        json!({"event_type": "stream-start", "generation_id": "x"}),
        json!({"event_type": "text-generation", "text": "So"}),
        json!({"event_type": "stream-end", "finish_reason": value, "response": whole}),
    ];
    Shape {
        whole: whole.to_string(),
        stream: stream.map(|event| format!("{event}\n")).concat(),
        field: "finish_reason",
    }
}

fn ollama(value: &Value) -> Shape {
    let object = |text: &str, done: bool| {
        let mut object = json!({"model": "m", "created_at": "2026-01-01T00:00:00Z", "done": done,
                                "message": {"role": "assistant", "content": text}});
        if done && !value.is_null() {
            object["done_reason"] = value.clone();
        }
        object.to_string()
    };
    Shape {
        whole: object("So", true),
        stream: format!("{}\n{}\n", object("So", false), object("", true)),
        field: "done_reason",
    }
}

fn converse(value: &Value, tool: bool) -> Shape {
    let mut blocks = vec![json!({"text": "So"})];
    let delta = json!({"contentBlockIndex": 0, "delta": {"text": "So"}});
    let mut stream = vec![json!({"contentBlockDelta": delta})];
    if tool {
        let call = json!({"toolUseId": "t1", "name": "look"});
        let start = json!({"contentBlockIndex": 1, "start": {"toolUse": call}});
        stream.push(json!({"contentBlockStart": start}));
        blocks.push(json!({"toolUse": {"toolUseId": "t1", "name": "look", "input": {}}}));
    }
    stream.push(json!({"messageStop": {"stopReason": value}}));
    let stream: Vec<String> = stream.iter().map(|event| format!("{event}\n")).collect();
    let message = json!({"role": "assistant", "content": blocks});
    Shape {
        whole: json!({"output": {"message": message}, "stopReason": value, "usage": {}})
            .to_string(),
        stream: stream.concat(),
        field: "stopReason",
    }
}

/// For text-only models the catalogue names the model before the value and its field. Of two values
/// the first one counts.
fn invoke(row: &str) -> Option<(Value, Shape)> {
    let value = row.rsplit(' ').next()?.split('|').next()?;
    let (whole, event, field) = if row.starts_with("(titan)") {
        let said = json!({"outputText": "So", "completionReason": value});
        (json!({"results": [said]}), said, "completionReason")
    } else if row.starts_with("(llama)") {
        let said = json!({"generation": "So", "stop_reason": value});
        (said.clone(), said, "stop_reason")
    } else {
        return None; // covered by another format of the catalogue
    };
    Some((json!(value), Shape { whole: whole.to_string(), stream: sse(&[event]), field }))
}

fn shape(dialect: &Dialect, field: Option<&str>, value: &Value, tool: bool) -> Option<Shape> {
    Some(match dialect.family {
        WireFormat::OpenAiChat => openai_chat(value, tool),
        WireFormat::Anthropic => anthropic(value, tool),
        WireFormat::Gemini => gemini(field, value, tool),
        WireFormat::OpenAiResponses => responses(field, value),
        WireFormat::CohereV2 => cohere_v2(value, tool),
        WireFormat::CohereV1 => cohere_v1(value),
        WireFormat::Ollama => ollama(value),
        WireFormat::BedrockConverse => converse(value, tool),
        _ => return None,
    })
}

/// Returns the value as it is on the wire, because the catalogue describes some in words.
fn on_the_wire(value: &Value) -> Value {
    match value.as_str() {
        Some("\"null\" (string)") => json!("null"),
        // The tests of the format cover the meaning of numbers.
        Some("0..n (integer)") => json!(17),
        Some("(absent)") => Value::Null,
        _ => value.clone(),
    }
}

fn whole(dialect: &'static Dialect, body: &str) -> Decoded {
    decode_body(dialect, 200, &Headers::new(), body.as_bytes(), &RequestFacts::default())
}

fn streamed(dialect: &'static Dialect, body: &str) -> Decoded {
    let mut stream = StreamDecoder::new(dialect, 200, Headers::new(), RequestFacts::default());
    stream.push(body.as_bytes(), &mut |_| ()).unwrap();
    stream.finish(Eof::Clean)
}

#[test]
fn catalogue_values_have_documented_meaning() {
    let path =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/recordings/finish_reasons.json");
    let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let (mut checked, mut unseen, mut wrong) = (0, 0, Vec::new());
    let mut stale: BTreeSet<_> = DIFFERENT.iter().map(|(api, value, _)| (*api, *value)).collect();
    for (api, info) in file["apis"].as_object().unwrap() {
        if NOT_SPOKEN.contains(&api.as_str()) {
            continue;
        }
        let dialect = DIALECTS.iter().find(|d| d.name == api).unwrap_or_else(|| panic!("{api}"));
        for row in info["values"].as_array().unwrap() {
            // A null occurs in every chunk but the last and ends nothing.
            if row["value"].is_null() {
                continue;
            }
            let value = on_the_wire(&row["value"]);
            let tool = row["reason"] == "tool_use";
            let shaped = match dialect.family {
                WireFormat::BedrockInvoke => invoke(value.as_str().unwrap()),
                _ => shape(dialect, row["field"].as_str(), &value, tool).map(|s| (value, s)),
            };
            let Some((value, shape)) = shaped else {
                continue;
            };
            for (how, seen) in [
                ("whole", whole(dialect, &shape.whole)),
                ("streamed", streamed(dialect, &shape.stream)),
            ] {
                // A stream that ends while the provider still works is cut.
                if how == "streamed" && row["reason"] == "in_progress" {
                    assert_eq!(seen.signal.reason.as_str(), "error_termination", "{api} {value}");
                    continue;
                }
                let signal = &seen.signal;
                let raw = match &value {
                    Value::Null => String::new(),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let got = json!([
                    signal.reason.as_str(),
                    signal.confidence,
                    signal.should_terminate,
                    signal.provider_specific.original_field,
                    signal.provider_specific.original_value,
                ]);
                let (mut reason, mut confidence) =
                    (row["reason"].clone(), row["confidence"].clone());
                let mut ends = row["should_terminate"].clone();
                if value == "null" {
                    // The catalogue's own note: the value is sent until the stream ends. The end
                    // marker was seen.
                    (reason, confidence, ends) =
                        (json!("natural_completion"), json!("low"), json!(true));
                }
                let want = json!([reason, confidence, ends, shape.field, raw]);
                if got != want {
                    let listed = DIFFERENT.iter().find(|(a, v, _)| a == api && value == *v);
                    if let Some((api, value, _)) = listed {
                        stale.remove(&(*api, *value));
                    } else {
                        wrong.push(format!("{api} {how}: {got}, not {want}"));
                    }
                }
            }
            checked += 1;
            unseen += usize::from(row["recordings_in_set"] == 0);
        }
    }
    println!("{checked} values, {unseen} of them in no recording");
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(stale.is_empty(), "listed as different, and yet the same: {stale:?}");
}
