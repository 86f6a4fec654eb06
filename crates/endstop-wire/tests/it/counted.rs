//! What limits count of a stream: the deltas of work that the provider does itself, of custom calls, of other choices,
//! and of each field with reasoning.

use endstop_core::{Part, TurnDelta};
use endstop_wire::dialect::dialect;
use endstop_wire::{Decoded, Delta, Eof, Headers, RequestFacts, StreamDecoder};
use serde_json::{Value, json};

const ONE: RequestFacts = RequestFacts {
    stop_strings: false,
    output_cap: None,
    cached_for_hour: false,
    has_alternatives: false,
};
const SEVERAL: RequestFacts = RequestFacts { has_alternatives: true, ..ONE };

/// Decodes events. Returns the turn, and its deltas: `=` marks text, `?` reasoning, `!` a call and `+` its arguments.
/// Hidden output is in brackets, and hidden reasoning in brackets with a mark.
fn read(api: &str, facts: RequestFacts, events: &[Value]) -> (Decoded, Vec<String>) {
    let mut decoder = StreamDecoder::new(dialect(api).unwrap(), 200, Headers::new(), facts);
    let mut shown = Vec::new();
    for event in events {
        let event = format!("data: {event}\n\n");
        let mut sink = |delta: Delta<'_>| {
            shown.push(match delta {
                Delta::Text(text) => format!("={text}"),
                Delta::Reasoning(text) => format!("?{text}"),
                Delta::ToolCallStarted { name, .. } => format!("!{name}"),
                Delta::ToolArguments { json, .. } => format!("+{json}"),
                Delta::Hidden(text) => format!("[{text}]"),
                Delta::HiddenReasoning(text) => format!("[?{text}]"),
                other => panic!("{other:?}"),
            });
        };
        decoder.push(event.as_bytes(), &mut sink).unwrap();
    }
    (decoder.finish(Eof::Clean), shown)
}

fn chat(delta: &Value) -> Value {
    choice(0, delta)
}

fn choice(index: u64, delta: &Value) -> Value {
    json!({"choices": [{"index": index, "delta": delta}]})
}

fn added(at: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.added", "output_index": at, "item": item})
}

fn done(at: u64, item: &Value) -> Value {
    json!({"type": "response.output_item.done", "output_index": at, "item": item})
}

fn piece(kind: &str, at: u64, text: &str) -> Value {
    json!({"type": format!("response.{kind}.delta"), "output_index": at, "delta": text})
}

#[test]
fn tools_of_the_provider_are_no_reasoning() {
    let thinks = |at| piece("reasoning_summary_text", at, "Hm.");
    let item = |kind: &str| json!({"type": kind, "id": "i"});
    let search = json!({"type": "web_search_call", "id": "i", "action": {"query": "q"}});
    let mcp = json!({"type": "mcp_call", "id": "i", "name": "t", "arguments": "{\"a\":1}",
        "output": "long"});
    let image = json!({"type": "image_generation_call", "id": "i", "result": "iVBORw0KGgo"});
    let patch = json!({"type": "apply_patch_call", "id": "i", "call_id": "c", "status": "completed",
        "operation": {"type": "delete_file", "path": "a"}});
    let (_, shown) = read(
        "openai-responses",
        ONE,
        &[
            thinks(0),
            added(1, &item("web_search_call")),
            json!({"type": "response.web_search_call.searching", "output_index": 1}),
            done(1, &search),
            piece("reasoning", 2, "Hm."),
            added(3, &item("code_interpreter_call")),
            piece("code_interpreter_call_code", 3, "print("),
            piece("code_interpreter_call_code", 3, "1)"),
            done(3, &json!({"type": "code_interpreter_call", "id": "i", "code": "print(1)"})),
            // An input that was not streamed is counted at the end of its item, once.
            done(4, &mcp),
            done(4, &mcp),
            added(5, &item("mcp_call")),
            piece("mcp_call_arguments", 5, "{}"),
            done(5, &mcp),
            done(6, &image),
            added(7, &patch),
            piece("apply_patch_call_operation_diff", 7, "-a"),
            done(7, &patch),
            json!({"type": "response.shell_call_output_content.delta", "output_index": 8,
                "delta": {"stdout": "x"}}),
        ],
    );
    let want = [
        "?Hm.",
        "[web_search_call]",
        "[{\"query\":\"q\"}]",
        "?Hm.",
        "[code_interpreter_call]",
        "[print(]",
        "[1)]",
        "[mcp_call]",
        "[\"{\\\"a\\\":1}\"]",
        "[mcp_call]",
        "[{}]",
        "[image_generation_call]",
        "[apply_patch_call]",
        "[-a]",
    ];
    assert_eq!(shown, want);
}

#[test]
fn server_blocks_of_messages_are_counted() {
    let start = |at: u64, block: Value| json!({"type": "content_block_start", "index": at, "content_block": block});
    let more = |at: u64, json: &str| {
        json!({"type": "content_block_delta", "index": at,
            "delta": {"type": "input_json_delta", "partial_json": json}})
    };
    let search = json!({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}});
    let mcp = json!({"type": "mcp_tool_use", "id": "m", "name": "get", "input": {"a": 1}});
    let found = json!({"type": "web_search_tool_result", "tool_use_id": "s",
        "content": [{"type": "web_search_result", "encrypted_content": "long"}]});
    let (_, shown) = read(
        "anthropic",
        ONE,
        &[
            start(0, json!({"type": "redacted_thinking", "data": "c2ln"})),
            start(1, search),
            more(1, ""),
            more(1, "{\"query\":"),
            more(1, "\"q\"}"),
            start(2, found),
            start(3, mcp),
        ],
    );
    let want = [
        "[?redacted_thinking]",
        "[web_search]",
        "[{\"query\":]",
        "[\"q\"}]",
        "[web_search_tool_result]",
        "[get]",
        "[{\"a\":1}]",
    ];
    assert_eq!(shown, want);
}

#[test]
fn code_of_gemini_is_counted() {
    let parts = |parts: Value| json!({"candidates": [{"content": {"parts": parts}}]});
    let (_, shown) = read(
        "gemini",
        ONE,
        &[
            parts(json!([{"text": "Hm.", "thought": true}])),
            parts(json!([{"executableCode": {"language": "PYTHON", "code": "print(1)"}}])),
            parts(json!([{"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}])),
            parts(json!([{"text": "", "thoughtSignature": "c2ln"}])),
        ],
    );
    assert_eq!(shown, ["?Hm.", "[print(1)]", "[codeExecutionResult]"]);
}

#[test]
fn tools_of_groq_are_counted() {
    let tool = json!({"index": 0, "type": "search", "arguments": "{\"q\":1}", "output": "long"});
    let events = [chat(&json!({"reasoning": "Hm."})), chat(&json!({"executed_tools": [tool]}))];
    assert_eq!(read("groq", ONE, &events).1, ["?Hm.", "[search]", "[{\"q\":1}]"]);
}

#[test]
fn custom_input_is_counted_as_it_arrives() {
    let item = |input: &str, status: &str| {
        json!({"type": "custom_tool_call", "id": "i", "call_id": "c", "name": "patch",
            "input": input, "status": status})
    };
    let input = ["*** \"a\"\n", "+\u{1f600}\\", "b"];
    let pieces: Vec<Value> =
        input.iter().map(|text| piece("custom_tool_call_input", 0, text)).collect();
    let arguments = json!({"input": input.concat()}).to_string();
    let end = json!({"type": "response.completed", "response": {"status": "completed"}});
    let begin = added(0, &item("", "in_progress"));
    for (is_streamed, last, rest) in [
        (true, input.concat(), "\"}"),
        (false, input.concat(), arguments.as_str()),
        // The server ends the input itself, or sends another one.
        (true, [&input.concat(), "c"].concat(), "c\"}"),
        (true, "other".to_owned(), "\"}"),
    ] {
        let pieces = pieces.iter().filter(|_| is_streamed).cloned();
        let done = [done(0, &item(&last, "completed")), end.clone()];
        let events: Vec<Value> = std::iter::once(begin.clone()).chain(pieces).chain(done).collect();
        let (decoded, shown) = read("openai-responses", ONE, &events);
        assert_eq!(shown[0], "!patch");
        assert_eq!(shown.len(), if is_streamed { 5 } else { 2 }, "{shown:?}");
        assert_eq!(shown.last().unwrap(), &format!("+{rest}"));
        let read: String = shown[1..].iter().map(|delta| &delta[1..]).collect();
        let turn = decoded.turn.unwrap();
        let call = turn.tool_calls().next().unwrap();
        assert_eq!(call.arguments, json!({"input": last}).to_string());
        if last != "other" {
            assert_eq!(read, call.arguments);
        }
        assert!(serde_json::from_str::<Value>(&read).is_ok(), "{read}");
    }
    // The server ends the response without the end of the item.
    let whole = item(&input.concat(), "completed");
    let last = json!({"type": "response.completed",
        "response": {"status": "completed", "output": [whole]}});
    let events: Vec<Value> =
        std::iter::once(begin.clone()).chain(pieces.clone()).chain([last]).collect();
    let (decoded, shown) = read("openai-responses", ONE, &events);
    let read_so_far: String = shown[1..].iter().map(|delta| &delta[1..]).collect();
    assert_eq!(read_so_far, arguments);
    assert_eq!(decoded.turn.unwrap().tool_calls().next().unwrap().arguments, arguments);
    // xAI runs them itself.
    let events = [begin, pieces[0].clone(), done(0, &item(input[0], "completed"))];
    let (_, shown) = read("xai-responses", ONE, &events);
    assert_eq!(shown, ["[custom_tool_call]", "[*** \"a\"\n]"]);
}

#[test]
fn other_choices_are_counted() {
    let call = json!({"index": 0, "id": "a", "function": {"name": "ls", "arguments": "{}"}});
    let events = [
        chat(&json!({"content": "Yes"})),
        choice(1, &json!({"reasoning_content": "Hm.", "content": "No"})),
        choice(1, &json!({"content": " "})),
        choice(1, &json!({"content": "No"})),
        choice(1, &json!({"tool_calls": [call], "refusal": "I"})),
        json!({"choices": [{"index": 0, "delta": {"content": "."}, "finish_reason": "stop"},
            {"index": 2, "delta": {"content": [{"type": "text", "text": "Or"}]}}]}),
    ];
    let want = ["=Yes", "[?Hm.]", "[No]", "[No]", "[I]", "[ls]", "[{}]", "=.", "[Or]"];
    let (decoded, shown) = read("openai", SEVERAL, &events);
    assert_eq!(shown, want);
    assert_eq!(decoded.turn.unwrap().parts, [Part::Text { text: "Yes.".into() }]);
    // Without alternatives, another choice may not contradict the text.
    let said = |index| choice(index, &json!({"content": "x", "reasoning": "r"}));
    assert_eq!(read("openai", ONE, &[said(0), said(1)]).1, ["?r", "=x", "[?r]", "[x]"]);

    let part = |index: u64, part: Value| json!({"candidates": [{"index": index, "content": {"parts": [part]}}]});
    let events = [
        part(0, json!({"text": "Yes"})),
        part(1, json!({"text": "No"})),
        part(1, json!({"text": "Hm.", "thought": true})),
        part(1, json!({"functionCall": {"name": "f"}})),
        part(1, json!({"executableCode": {"code": "1"}})),
    ];
    let want = ["=Yes", "[No]", "[?Hm.]", "[{\"name\":\"f\"}]", "[1]"];
    let (decoded, shown) = read("gemini", SEVERAL, &events);
    assert_eq!(shown, want);
    assert_eq!(decoded.turn.unwrap().parts, [Part::Text { text: "Yes".into() }]);
}

#[test]
fn each_field_with_reasoning_is_read_once() {
    let text = |text: &str| json!([{"type": "reasoning.text", "text": text, "index": 0}]);
    for (deltas, want) in [
        (vec![json!({"reasoning_content": "Hm."})], &["?Hm."][..]),
        (vec![json!({"reasoning": "Hm."})], &["?Hm."]),
        (vec![json!({"reasoning_text": "Hm."})], &["?Hm."]),
        (vec![json!({"thinking": "Hm."})], &["?Hm."]),
        (vec![json!({"reasoning_details": text("Hm.")})], &["?Hm."]),
        (
            vec![json!({"reasoning_details": [{"type": "reasoning.summary", "summary": "Hm."}]})],
            &["?Hm."],
        ),
        (
            vec![json!({"reasoning_details": [{"type": "reasoning.encrypted", "data": "c2ln"}]})],
            &["[?reasoning.encrypted]"],
        ),
        (vec![json!({"thinking_blocks": [{"type": "thinking", "thinking": "Hm."}]})], &["?Hm."]),
        (vec![json!({"thinking_blocks": [{"type": "thinking", "signature": "c2ln"}]})], &[]),
        // One text in several fields.
        (
            vec![json!({"reasoning": "Hm.", "reasoning_content": "Hm.",
                "reasoning_details": text("Hm."), "thinking_blocks": [{"thinking": "Hm."}]})],
            &["?Hm."],
        ),
        (
            vec![json!({"reasoning": "", "content": "", "reasoning_details": text("Hm.")})],
            &["?Hm."],
        ),
        // A server that repeats the text so far.
        (
            vec![
                json!({"reasoning_details": text("Hm")}),
                json!({"reasoning_details": text("Hm. So")}),
                json!({"reasoning_details": text("Hm. So")}),
            ],
            &["?Hm", "?. So"],
        ),
        (
            vec![
                json!({"reasoning_details": text("Hm")}),
                json!({"reasoning_details": text(". So")}),
                json!({"content": "Yes"}),
            ],
            &["?Hm", "?. So", "=Yes"],
        ),
    ] {
        let events: Vec<Value> = deltas.iter().map(chat).collect();
        let (decoded, shown) = read("openrouter", ONE, &events);
        assert_eq!(shown, want, "{deltas:?}");
        let said: String = shown.iter().filter_map(|delta| delta.strip_prefix('?')).collect();
        let parts = decoded.turn.map(|turn| turn.parts).unwrap_or_default();
        let reasoning = parts.iter().find_map(|part| match part {
            Part::Reasoning { text } => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(reasoning.unwrap_or_default(), said, "{deltas:?}");
    }
}

#[test]
fn hidden_deltas_are_no_text() {
    assert_eq!(Delta::Hidden("ab").counted(), TurnDelta::ToolArguments(2));
    assert_eq!(Delta::HiddenReasoning("ab").counted(), TurnDelta::Reasoning(2));
    assert_eq!(Delta::Text("ab").counted(), TurnDelta::Text("ab".into()));
}
