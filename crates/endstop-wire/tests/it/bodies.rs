//! Minimal answers in each wire format, with a placeholder to insert bad data:
//! `filled(&answer(family)[0], b"Hello")` is a complete body with the text hello.

#![allow(clippy::format_collect, reason = "the inputs of a test are small")]

use endstop_wire::WireFormat;
use endstop_wire::dialect::{DIALECTS, Dialect};
use serde_json::Value;

/// Returns the format's own dialect.
pub(crate) fn of(family: WireFormat) -> &'static Dialect {
    DIALECTS.iter().find(|d| d.family == family).unwrap()
}

/// Returns an answer that ends naturally, as a complete body and as a stream. `@` is inside its
/// text. Formats without an entry are covered by the tables only.
pub(crate) fn answer(family: WireFormat) -> Option<[String; 2]> {
    let sse =
        |events: &[&str]| -> String { events.iter().map(|e| format!("data: {e}\n\n")).collect() };
    Some(match family {
        WireFormat::OpenAiChat => [
            r#"{"choices":[{"index":0,"message":{"content":"@"},"finish_reason":"stop"}]}"#.into(),
            sse(&[
                r#"{"choices":[{"index":0,"delta":{"content":"@"}}]}"#,
                r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#,
                "[DONE]",
            ]),
        ],
        WireFormat::Anthropic => [
            r#"{"type":"message","content":[{"type":"text","text":"@"}],"stop_reason":"end_turn"}"#
                .into(),
            sse(&[
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"@"}}"#,
                r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#,
                r#"{"type":"message_stop"}"#,
            ]),
        ],
        WireFormat::Gemini => {
            let chunk =
                r#"{"candidates":[{"content":{"parts":[{"text":"@"}]},"finishReason":"STOP"}]}"#;
            [chunk.into(), sse(&[chunk])]
        }
        WireFormat::OpenAiResponses => {
            let item =
                r#"{"type":"message","id":"m","content":[{"type":"output_text","text":"@"}]}"#;
            let whole = format!(r#"{{"id":"r","status":"completed","output":[{item}]}}"#);
            let last = format!(r#"{{"type":"response.completed","response":{whole}}}"#);
            let item =
                format!(r#"{{"type":"response.output_item.done","output_index":0,"item":{item}}}"#);
            [whole, sse(&[&item, &last])]
        }
        WireFormat::CohereV2 => [
            r#"{"id":"r","message":{"content":[{"type":"text","text":"@"}]},"finish_reason":"COMPLETE"}"#.into(),
            sse(&[
                r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"@"}}}}"#,
                r#"{"type":"message-end","delta":{"finish_reason":"COMPLETE"}}"#,
            ]),
        ],
        WireFormat::CohereV1 => [
            r#"{"generation_id":"r","text":"@","finish_reason":"COMPLETE"}"#.into(),
            lines(&[
                r#"{"event_type":"text-generation","text":"@"}"#,
                r#"{"event_type":"stream-end","finish_reason":"COMPLETE"}"#,
            ]),
        ],
        WireFormat::Ollama => [
            r#"{"message":{"content":"@"},"done":true,"done_reason":"stop"}"#.into(),
            lines(&[
                r#"{"message":{"content":"@"},"done":false}"#,
                r#"{"message":{"content":""},"done":true,"done_reason":"stop"}"#,
            ]),
        ],
        WireFormat::BedrockConverse => [
            r#"{"output":{"message":{"content":[{"text":"@"}]}},"stopReason":"end_turn"}"#.into(),
            sse(&[
                r#"{"contentBlockDelta":{"contentBlockIndex":0,"delta":{"text":"@"}}}"#,
                r#"{"messageStop":{"stopReason":"end_turn"}}"#,
                r#"{"metadata":{}}"#,
            ]),
        ],
        // The model's own format.
        WireFormat::BedrockInvoke => return answer(WireFormat::Anthropic),
        _ => return None,
    })
}

/// Returns a turn that calls a tool `times` times with these arguments, as a complete body and as a
/// stream.
pub(crate) fn calls(family: WireFormat, arguments: &str, times: usize) -> Option<[String; 2]> {
    let quoted = Value::from(arguments).to_string();
    let list = |one: &dyn Fn(usize) -> String| (0..times).map(one).collect::<Vec<_>>().join(",");
    Some(match family {
        WireFormat::OpenAiChat => {
            let calls = list(&|n| {
                format!(
                    r#"{{"index":{n},"id":"c{n}","function":{{"name":"look","arguments":{quoted}}}}}"#
                )
            });
            let body = |said| {
                format!(
                    r#"{{"choices":[{{"index":0,"{said}":{{"tool_calls":[{calls}]}},"finish_reason":"tool_calls"}}]}}"#
                )
            };
            [body("message"), format!("data: {}\n\ndata: [DONE]\n\n", body("delta"))]
        }
        WireFormat::Anthropic => {
            let block = |n: usize| {
                format!(r#"{{"type":"tool_use","id":"c{n}","name":"look","input":{arguments}}}"#)
            };
            let events: String = (0..times)
                .map(|n| format!("data: {{\"type\":\"content_block_start\",\"index\":{n},\"content_block\":{}}}\n\n", block(n)))
                .collect();
            [
                format!(
                    r#"{{"type":"message","content":[{}],"stop_reason":"tool_use"}}"#,
                    list(&block)
                ),
                events
                    + "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"}}\n\ndata: {\"type\":\"message_stop\"}\n\n",
            ]
        }
        WireFormat::Gemini => {
            let parts = list(&|n| {
                format!(r#"{{"functionCall":{{"id":"c{n}","name":"look","args":{arguments}}}}}"#)
            });
            let chunk = format!(
                r#"{{"candidates":[{{"content":{{"parts":[{parts}]}},"finishReason":"STOP"}}]}}"#
            );
            [chunk.clone(), format!("data: {chunk}\n\n")]
        }
        WireFormat::OpenAiResponses => {
            let item = |n: usize| {
                format!(
                    r#"{{"type":"function_call","id":"i{n}","call_id":"c{n}","name":"look","arguments":{quoted}}}"#
                )
            };
            let events: String = (0..times)
                .map(|n| format!("data: {{\"type\":\"response.output_item.done\",\"output_index\":{n},\"item\":{}}}\n\n", item(n)))
                .collect();
            [
                format!(r#"{{"id":"r","status":"completed","output":[{}]}}"#, list(&item)),
                events
                    + "data: {\"type\":\"response.completed\",\"response\":{\"status\":\"completed\"}}\n\n",
            ]
        }
        WireFormat::CohereV2 => {
            let call = |n: usize| {
                format!(r#"{{"id":"c{n}","function":{{"name":"look","arguments":{quoted}}}}}"#)
            };
            let events: String = (0..times)
                .map(|n| {
                    let message = format!(r#"{{"message":{{"tool_calls":{}}}}}"#, call(n));
                    format!("data: {{\"type\":\"tool-call-start\",\"index\":{n},\"delta\":{message}}}\n\n")
                })
                .collect();
            [
                format!(
                    r#"{{"message":{{"tool_calls":[{}]}},"finish_reason":"TOOL_CALL"}}"#,
                    list(&call)
                ),
                events
                    + "data: {\"type\":\"message-end\",\"delta\":{\"finish_reason\":\"TOOL_CALL\"}}\n\n",
            ]
        }
        WireFormat::CohereV1 => {
            let calls = list(&|_| format!(r#"{{"name":"look","parameters":{arguments}}}"#));
            [
                format!(r#"{{"text":"","tool_calls":[{calls}],"finish_reason":"COMPLETE"}}"#),
                lines(&[
                    &format!(r#"{{"event_type":"tool-calls-generation","tool_calls":[{calls}]}}"#),
                    r#"{"event_type":"stream-end","finish_reason":"COMPLETE"}"#,
                ]),
            ]
        }
        WireFormat::Ollama => {
            let calls = list(&|n| {
                format!(r#"{{"id":"c{n}","function":{{"name":"look","arguments":{arguments}}}}}"#)
            });
            let body = format!(r#"{{"message":{{"tool_calls":[{calls}]}},"done":false}}"#);
            [
                body.replace(r#""done":false"#, r#""done":true,"done_reason":"stop""#),
                lines(&[&body, r#"{"message":{"content":""},"done":true,"done_reason":"stop"}"#]),
            ]
        }
        WireFormat::BedrockConverse => {
            let used =
                |n: usize| format!(r#"{{"toolUseId":"c{n}","name":"look","input":{arguments}}}"#);
            let events: String = (0..times)
                .map(|n| {
                    let start = format!(r#"{{"toolUse":{}}}"#, used(n));
                    format!("data: {{\"contentBlockStart\":{{\"contentBlockIndex\":{n},\"start\":{start}}}}}\n\n")
                })
                .collect::<Vec<_>>().concat();
            let block = |n: usize| format!(r#"{{"toolUse":{}}}"#, used(n));
            [
                format!(
                    r#"{{"output":{{"message":{{"content":[{}]}}}},"stopReason":"tool_use"}}"#,
                    list(&block)
                ),
                events
                    + "data: {\"messageStop\":{\"stopReason\":\"tool_use\"}}\n\ndata: {\"metadata\":{}}\n\n",
            ]
        }
        // The model's own format.
        WireFormat::BedrockInvoke => return calls(WireFormat::Anthropic, arguments, times),
        _ => return None,
    })
}

fn lines(objects: &[&str]) -> String {
    objects.iter().map(|object| format!("{object}\n")).collect()
}

/// Returns the body with `inside` in place of each `@`.
pub(crate) fn filled(body: &str, inside: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (n, piece) in body.split('@').enumerate() {
        if n > 0 {
            out.extend_from_slice(inside);
        }
        out.extend_from_slice(piece.as_bytes());
    }
    out
}
