//! Fields that only some versions of a dialect write, or that they write in another way.

use super::read_in;
use super::written::{at, lines};
use crate::common::parsed;
use serde_json::{Value, json};

/// Two calls of one step, the results of which are recorded in all orders, with and without ids.
#[test]
fn results_without_ids_fill_open_calls() {
    let call = |id: &str| json!({"id": id, "function": {"name": "f", "arguments": "{}"}});
    for (results, want) in [
        (vec![(Some("a"), "1"), (Some("b"), "2")], ["1", "2"]),
        (vec![(Some("b"), "2"), (Some("a"), "1")], ["1", "2"]),
        (vec![(None, "1"), (None, "2")], ["1", "2"]),
        (vec![(Some("a"), "1"), (None, "2")], ["1", "2"]),
        (vec![(Some("b"), "2"), (None, "1")], ["1", "2"]),
        (vec![(None, "1"), (Some("b"), "2")], ["1", "2"]),
    ] {
        let mut list = vec![
            json!({"role": "user", "content": "go"}),
            json!({"role": "assistant", "content": "", "tool_calls": [call("a"), call("b")]}),
        ];
        for (id, told) in &results {
            list.push(json!({"role": "tool", "tool_call_id": id, "content": told}));
        }
        let run = parsed("a.json", json!({"messages": list}).to_string()).remove(0);
        let step = &run.steps[1];
        let found = [0, 1].map(|nth| step.result_of(nth).map_or("", |result| &*result.content));
        assert_eq!(found, want, "{results:?}");
        assert_eq!(run.notes, [""; 0], "{results:?}");
    }
}

/// Members that are absent, `null` or empty must not replace one that is present.
#[test]
fn null_members_do_not_erase_values() {
    let call = json!({"id": "c", "name": "f", "arguments": {"a": 1}, "args": null});
    for (what, message) in [
        ("stop reasons", json!({"finish_reason": "stop", "stop_reason": null})),
        ("stop reasons", json!({"stop_reason": null, "finish_reason": "stop"})),
        ("reasoning", json!({"reasoning": "because", "reasoning_content": ""})),
        ("reasoning", json!({"reasoning_content": "because", "reasoning": null})),
        ("times", json!({"timestamp": "2026-01-01T00:00:00Z", "created_at": null})),
        ("arguments", json!({"tool_calls": [call]})),
        ("calls", json!({"tool_calls": [{"id": "c", "name": "f"}], "function_call": null})),
        ("ids", json!({"tool_calls": null, "function_call": {"name": "f", "arguments": "{}"}})),
        ("usage", json!({"usage": {"prompt_tokens": 5, "prompt_tokens_details": null}})),
    ] {
        let mut message = message;
        message["role"] = "assistant".into();
        message["content"] = "a".into();
        let list = json!({"messages": [{"role": "user", "content": "go"}, message]});
        let run = parsed("a.json", list.to_string()).remove(0);
        let step = &run.steps[1];
        match what {
            "stop reasons" => assert_eq!(step.finish_reason.as_deref(), Some("stop"), "{list}"),
            "reasoning" => assert_eq!(step.reasoning.as_deref(), Some("because"), "{list}"),
            "times" => assert_eq!(step.at.as_deref(), Some("2026-01-01T00:00:00Z"), "{list}"),
            "arguments" => assert_eq!(step.calls[0].arguments, r#"{"a":1}"#, "{list}"),
            "usage" => {
                let usage = step.usage.as_deref().unwrap();
                assert_eq!((usage.prompt_tokens, usage.extra.len()), (Some(5), 0), "{list}");
            }
            _ => assert_eq!((step.calls.len(), &*step.calls[0].name), (1, "f"), "{list}"),
        }
    }
}

/// Arguments are one line in every dialect, because they are embedded in files of lines.
#[test]
fn pretty_arguments_become_one_line() {
    let pretty = " {\n  \"a\": \"x\\ny\",\r\n  \"b\": [1, 2.50]\n}\n";
    let want = r#"{"a":"x\ny","b":[1,2.50]}"#;
    let record =
        |kind: &str, payload: Value| json!({"timestamp": at(0), "type": kind, "payload": payload});
    let codex = lines([
        record("session_meta", json!({"id": "s"})),
        record(
            "response_item",
            json!({"type": "function_call", "call_id": "c", "name": "f",
                                       "arguments": pretty}),
        ),
    ]);
    let assistant = json!({"role": "assistant", "content": "",
        "tool_calls": [{"id": "c", "function": "f", "arguments": pretty}]});
    let sample = json!({"id": 1, "epoch": 1, "messages": [assistant]});
    let inspect = json!({"version": 2, "status": "success", "eval": {}, "samples": [sample]});
    let event = json!({"type": "assistant.message", "timestamp": at(0), "id": "e", "data":
        {"content": "", "toolRequests": [{"toolCallId": "c", "name": "f", "arguments": pretty}]}});
    let spans = json!([{"type": "tool_call", "id": "c", "name": "f", "arguments": pretty}]);
    let spans = json!([{"role": "assistant", "parts": spans}]).to_string();
    let otel = json!({"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "t", "spanId": "s",
        "name": "chat", "attributes": {"gen_ai.operation.name": "chat",
        "gen_ai.output.messages": spans}}]}]}]});
    let openai = json!({"messages": [{"role": "user", "content": "go"}, {"role": "assistant",
        "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": pretty}}]}]});
    for (format, text) in [
        ("codex", codex),
        ("inspect", inspect.to_string()),
        ("copilot", format!("{event}\n")),
        ("otel", otel.to_string()),
        ("openai-messages", openai.to_string()),
    ] {
        let run = read_in(format, "a.jsonl", text);
        let call = run.turns().flat_map(|step| &step.calls).next().unwrap();
        assert_eq!(call.arguments, want, "{format}");
    }
}

/// Counts that are no counts stay unknown, and are not lost.
#[test]
fn odd_token_counts_are_not_invented() {
    let usage = |format: &str, count: &Value| -> String {
        match format {
            "openai-messages" => json!({"messages": [{"role": "user", "content": "go"},
                {"role": "assistant", "content": "a",
                 "usage": {"prompt_tokens": count, "completion_tokens": 1}}]})
            .to_string(),
            "neutral-traj/1" => json!({"schema": "neutral-traj/1", "run_id": "r", "steps": [
                {"role": "agent", "text": "a",
                 "usage": {"prompt_tokens": count, "completion_tokens": 1}}]})
            .to_string(),
            "atif" => json!({"schema_version": "ATIF-v1.8", "session_id": "s",
                "agent": {"name": "a", "version": "1"}, "steps": [{"step_id": 1, "source": "agent",
                "message": "a", "metrics": {"prompt_tokens": count, "completion_tokens": 1}}]})
            .to_string(),
            "claude-code" => lines([json!({"type": "assistant", "uuid": "u", "parentUuid": null,
                "sessionId": "s", "message": {"id": "m", "role": "assistant",
                "content": [{"type": "text", "text": "a"}],
                "usage": {"input_tokens": count, "output_tokens": 1}}})]),
            "codex" => {
                let last = json!({"input_tokens": count, "output_tokens": 1});
                let info = json!({"total_token_usage": last, "last_token_usage": last});
                let message = json!({"type": "message", "role": "assistant",
                                     "content": [{"type": "output_text", "text": "a"}]});
                lines([
                    json!({"timestamp": at(0), "type": "session_meta", "payload": {"id": "s"}}),
                    json!({"timestamp": at(0), "type": "response_item", "payload": message}),
                    json!({"timestamp": at(0), "type": "event_msg",
                           "payload": {"type": "token_count", "info": info}}),
                ])
            }
            "otel" => {
                let spans = json!([{"traceId": "t", "spanId": "s", "name": "chat", "attributes": {
                    "gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": count,
                    "gen_ai.usage.output_tokens": 1}}]);
                json!({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).to_string()
            }
            other => panic!("{other}"),
        }
    };
    for (count, want) in [
        (json!(7), Some(7)),
        (json!(0), Some(0)),
        // Tables that were loaded with missing values write counts as fractions.
        (json!(7.0), Some(7)),
        (json!(u64::MAX), Some(u64::MAX)),
        (json!(-7), None),
        (json!(7.5), None),
        (json!(-0.5), None),
        (json!(1e300), None),
        (json!(true), None),
        (json!([7]), None),
        (json!(null), None),
    ] {
        for format in ["openai-messages", "neutral-traj/1", "atif", "claude-code", "codex", "otel"]
        {
            let run = read_in(format, "a.json", usage(format, &count));
            let step = run.turns().next().unwrap();
            let found = step.usage.as_deref().and_then(|usage| usage.prompt_tokens);
            assert_eq!(found, want, "{format}: {count}");
            let output = step.usage.as_deref().and_then(|usage| usage.completion_tokens);
            assert_eq!(output, Some(1), "{format}: {count}");
        }
    }
}

/// OTLP encodes numbers as JSON strings or as numbers.
#[test]
fn otlp_numbers_may_be_strings() {
    for (value, tokens, cost) in [
        (json!({"intValue": "12"}), Some(12), Some(12.0)),
        (json!({"intValue": 12}), Some(12), Some(12.0)),
        (json!({"doubleValue": 12}), Some(12), Some(12.0)),
        (json!({"doubleValue": "12"}), Some(12), Some(12.0)),
        (json!({"doubleValue": 0.25}), None, Some(0.25)),
        (json!({"doubleValue": "0.25"}), None, Some(0.25)),
        (json!({"stringValue": "12"}), Some(12), Some(12.0)),
        (json!({"doubleValue": "NaN"}), None, None),
        (json!({"doubleValue": "Infinity"}), None, None),
        (json!({"stringValue": "many"}), None, None),
        (json!({}), None, None),
    ] {
        let entry = |key: &str, value: &Value| json!({"key": key, "value": value});
        let attributes = json!([
            entry("gen_ai.operation.name", &json!({"stringValue": "chat"})),
            entry("gen_ai.usage.input_tokens", &value),
            entry("gen_ai.usage.cost", &value),
        ]);
        let span = json!({"traceId": "t", "spanId": "s", "name": "chat", "attributes": attributes});
        let text = json!({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).to_string();
        let run = read_in("otel", "a.json", text);
        let step = run.turns().next().unwrap();
        let found = step.usage.as_deref().and_then(|usage| usage.prompt_tokens);
        assert_eq!((found, step.cost_usd), (tokens, cost), "{value}");
    }
}

/// The answer of `codex exec` is what the model said last, not what it said before a call.
#[test]
fn exec_answer_follows_the_last_call() {
    let item = |kind: &str, more: Value| {
        let mut item = json!({"id": format!("{kind}{}", more.to_string().len()), "type": kind});
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"type": "item.completed", "item": item})
    };
    let said = |text: &str| item("agent_message", json!({"text": text}));
    let ran = || {
        item("command_execution", json!({"command": "ls", "exit_code": 0, "status": "completed"}))
    };
    let begun = || json!({"type": "turn.started"});
    let done = || json!({"type": "turn.completed", "usage": {"input_tokens": 5}});
    for (what, events, answer) in [
        ("an answer", vec![begun(), said("Yes."), done()], Some("Yes.")),
        (
            "after a call",
            vec![begun(), said("Let me look."), ran(), said("Yes."), done()],
            Some("Yes."),
        ),
        ("before a call", vec![begun(), said("Let me look."), ran(), done()], None),
        ("only a call", vec![begun(), ran(), done()], None),
        ("nothing", vec![begun(), done()], None),
        ("of the prompt before", vec![begun(), said("Yes."), done(), begun(), done()], None),
        (
            "of the second prompt",
            vec![begun(), said("Yes."), done(), begun(), said("No."), done()],
            Some("No."),
        ),
        (
            "with a search by the provider",
            vec![begun(), item("web_search", json!({"query": "x"})), said("Yes."), done()],
            Some("Yes."),
        ),
    ] {
        let head = json!({"type": "thread.started", "thread_id": "t"});
        let run = read_in("codex", "a.jsonl", lines([vec![head], events].concat()));
        let ending = run.ending.unwrap();
        assert_eq!((&*ending.reason, ending.answer.as_deref()), ("final", answer), "{what}");
    }
}

/// Counts that the totals have no field for are kept under their names.
#[test]
fn totals_keep_all_counts() {
    let total = json!({"input_tokens": 9, "output_tokens": 2, "cached_input_tokens": 4,
                       "cache_write_input_tokens": 3, "reasoning_output_tokens": 1, "new_tokens": 7});
    let info = json!({"total_token_usage": total, "last_token_usage": total});
    let rollout = lines([
        json!({"timestamp": at(0), "type": "session_meta", "payload": {"id": "s"}}),
        json!({"timestamp": at(0), "type": "event_msg",
               "payload": {"type": "token_count", "info": info}}),
    ]);
    let exec = lines([
        json!({"type": "thread.started", "thread_id": "t"}),
        json!({"type": "turn.completed", "usage": total}),
    ]);
    for text in [rollout, exec] {
        let totals = read_in("codex", "a.jsonl", text).totals;
        let counts = (totals.prompt_tokens, totals.completion_tokens, totals.cached_tokens);
        assert_eq!(counts, (Some(9), Some(2), Some(4)));
        let extra =
            json!({"cache_write_input_tokens": 3, "reasoning_output_tokens": 1, "new_tokens": 7});
        assert_eq!(json!(totals.extra), extra);
    }
    let result = json!({"type": "result", "subtype": "success", "session_id": "s", "num_turns": 1,
        "result": "Yes.", "usage": {"input_tokens": 2, "output_tokens": 5,
        "cache_read_input_tokens": 4, "cache_creation_input_tokens": 3}});
    let totals = read_in("claude-code", "a.jsonl", lines([result])).totals;
    // Anthropic's input count excludes cached tokens.
    assert_eq!((totals.prompt_tokens, totals.cached_tokens), (Some(9), Some(4)));
    assert_eq!(totals.extra["cache_creation_input_tokens"], 3);
}
