//! Attributes of OpenTelemetry spans that are objects and lists, or the same as JSON in a string:
//! the runs are equal.

use crate::reading::{Read, counts, ids, read};
use endstop_trajectory::Role;
use serde_json::{Map, Value, json};

/// Writes a value as OTLP types it.
fn typed(value: &Value) -> Value {
    match value {
        Value::String(text) => json!({"stringValue": text}),
        Value::Bool(flag) => json!({"boolValue": flag}),
        Value::Number(number) => json!({"intValue": number.to_string()}),
        Value::Array(list) => {
            json!({"arrayValue": {"values": list.iter().map(typed).collect::<Vec<_>>()}})
        }
        Value::Object(map) => json!({"kvlistValue": {"values": attributes(map)}}),
        Value::Null => json!({}),
    }
}

fn attributes(map: &Map<String, Value>) -> Value {
    map.iter().map(|(key, value)| json!({"key": key, "value": typed(value)})).collect()
}

/// Writes `gen_ai.tool.name` as `{"gen_ai": {"tool": {"name": …}}}`.
fn nested(map: &Map<String, Value>) -> Value {
    let mut whole = json!({});
    for (name, value) in map {
        let pointer = name.split('.').fold(&mut whole, |at, part| {
            at.as_object_mut().unwrap().entry(part).or_insert_with(|| json!({}))
        });
        *pointer = value.clone();
    }
    whole
}

/// Encodes lists and objects as JSON in strings.
fn in_strings(map: &Map<String, Value>) -> Value {
    let plain = |value: &Value| match value {
        Value::Array(_) | Value::Object(_) => Value::from(value.to_string()),
        other => other.clone(),
    };
    Value::Object(map.iter().map(|(name, value)| (name.clone(), plain(value))).collect())
}

/// Reads one trace of these spans, with its attributes in each encoding.
fn in_each_encoding(spans: &[(&str, Value)]) -> Vec<Read> {
    type Encode = fn(&Map<String, Value>) -> Value;
    let encodings: [Encode; 4] =
        [in_strings, |map| Value::Object(map.clone()), nested, |map| attributes(map)];
    let runs = encodings.into_iter().map(|encode| {
        let spans: Vec<Value> = (1..)
            .zip(spans)
            .map(|(at, (name, attributes))| {
                json!({"traceId": "t", "spanId": format!("s{at}"), "name": name,
                    "startTimeUnixNano": at, "endTimeUnixNano": at + 1,
                    "attributes": encode(attributes.as_object().unwrap())})
            })
            .collect();
        let document = json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]});
        read("otel", document.to_string().as_bytes())
    });
    runs.collect()
}

/// The spans of a turn with a call, of the tool, and of the answer.
fn genai() -> Vec<(&'static str, Value)> {
    let asked =
        json!({"role": "user", "parts": [{"type": "text", "content": "Weather in Paris?"}]});
    let call = json!({"role": "assistant", "finish_reason": "tool_call", "parts": [
        {"type": "reasoning", "content": "look it up"},
        {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"city": "Paris", "days": [1, 2]}}]});
    let answer = json!({"role": "assistant", "finish_reason": "stop",
        "parts": [{"type": "text", "content": "Rain."}]});
    vec![
        (
            "chat",
            json!({"gen_ai.operation.name": "chat", "gen_ai.input.messages": [asked],
                "gen_ai.system_instructions": [{"type": "text", "content": "Be brief."}],
                "gen_ai.tool.definitions": [{"type": "function", "name": "weather"}],
                "gen_ai.usage.input_tokens": 12, "gen_ai.output.messages": [call]}),
        ),
        (
            "execute_tool weather",
            json!({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather",
                "gen_ai.tool.call.id": "c1", "gen_ai.tool.call.arguments": {"city": "Paris", "days": [1, 2]},
                "gen_ai.tool.call.result": {"sky": "rain", "at": {"hour": 7}}}),
        ),
        (
            "chat",
            json!({"gen_ai.operation.name": "chat", "gen_ai.input.messages": [asked, call],
                "gen_ai.output.messages": [answer]}),
        ),
    ]
}

#[test]
fn messages_may_be_lists_or_strings() {
    for read in in_each_encoding(&genai()) {
        let run = read.only();
        assert_eq!(counts(run), (4, 2, 1, 1, 0));
        let texts: Vec<_> = run.steps.iter().map(|step| (step.role, &*step.text)).collect();
        assert_eq!(
            texts,
            [
                (Role::System, "Be brief."),
                (Role::User, "Weather in Paris?"),
                (Role::Agent, ""),
                (Role::Agent, "Rain.")
            ]
        );
        let turn = &run.steps[2];
        assert_eq!(ids(turn), (vec!["c1"], vec!["c1"]));
        assert_eq!(turn.calls[0].arguments, r#"{"city":"Paris","days":[1,2]}"#);
        assert_eq!(turn.results[0].content, r#"{"sky":"rain","at":{"hour":7}}"#);
        assert_eq!(turn.reasoning.as_deref(), Some("look it up"));
        assert_eq!(turn.usage.as_ref().unwrap().prompt_tokens, Some(12));
        assert_eq!(run.tools, [json!({"type": "function", "name": "weather"})]);
        assert_eq!(run.ending.as_ref().unwrap().answer.as_deref(), Some("Rain."));
        // The content of the attributes is in the steps, so it is not stored again.
        let extra = turn.extra.as_ref().unwrap();
        assert!(!extra.keys().any(|name| name.contains("messages")), "{extra:?}");
    }
}

#[test]
fn tool_spans_without_messages_are_calls() {
    // The content of the model's messages is not recorded, but that of the tool is.
    let mut spans = genai();
    for (_, attributes) in &mut spans {
        attributes.as_object_mut().unwrap().retain(|name, _| !name.ends_with(".messages"));
    }
    for read in in_each_encoding(&spans) {
        let run = read.only();
        assert_eq!(counts(run), (3, 2, 1, 1, 0));
        let turn = run.turns().next().unwrap();
        assert_eq!(turn.calls[0].arguments, r#"{"city":"Paris","days":[1,2]}"#);
        assert_eq!(turn.results[0].content, r#"{"sky":"rain","at":{"hour":7}}"#);
        let extra = turn.results[0].extra.as_ref().unwrap();
        assert!(!extra.keys().any(|name| name.starts_with("gen_ai.tool.call.")), "{extra:?}");
    }
}

#[test]
fn ai_sdk_values_may_be_objects() {
    let spans = [
        (
            "ai.generateText.doGenerate",
            json!({"ai.operationId": "ai.generateText.doGenerate",
                "ai.prompt.messages": [{"role": "user", "content": [{"type": "text", "text": "go"}]}],
                "ai.prompt.tools": [{"type": "function", "name": "look"}],
                "ai.response.text": "I look.", "ai.response.finishReason": "tool-calls",
                "ai.response.toolCalls": [{"toolCallId": "c1", "toolName": "look", "input": {"at": [1]}}]}),
        ),
        (
            "ai.toolCall",
            json!({"ai.operationId": "ai.toolCall", "ai.toolCall.name": "look", "ai.toolCall.id": "c1",
                "ai.toolCall.args": {"at": [1]}, "ai.toolCall.result": {"seen": true}}),
        ),
    ];
    for read in in_each_encoding(&spans) {
        let run = read.only();
        assert_eq!(counts(run), (2, 1, 1, 1, 0));
        let turn = &run.steps[1];
        assert_eq!((&*run.steps[0].text, &*turn.text), ("go", "I look."));
        assert_eq!((&*turn.calls[0].name, &*turn.calls[0].arguments), ("look", r#"{"at":[1]}"#));
        assert_eq!(turn.results[0].content, r#"{"seen":true}"#);
        assert_eq!(run.tools, [json!({"type": "function", "name": "look"})]);
        assert_eq!(run.ending, None, "more turns may follow");
    }
}

#[test]
fn events_may_be_a_list() {
    // Logfire stores the events of a span in an attribute.
    let events = json!([
        {"event.name": "gen_ai.user.message", "role": "user", "content": "go"},
        {"event.name": "gen_ai.choice", "finish_reason": "stop", "message": {"content": "done"}}]);
    let spans = [("chat", json!({"gen_ai.operation.name": "chat", "events": events}))];
    for read in in_each_encoding(&spans) {
        let run = read.only();
        let texts: Vec<_> = run.steps.iter().map(|step| &*step.text).collect();
        assert_eq!(texts, ["go", "done"]);
    }
}
