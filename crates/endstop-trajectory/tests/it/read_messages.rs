//! Tests the readers for lists of messages.

use crate::common::{counts, fixture, parsed, read_bytes, read_with, runs};
use endstop_trajectory::Role;
use endstop_trajectory::read::{Options, ProblemKind};
use serde_json::{Value, json};

#[test]
fn openai_counts_match_script() {
    let run = runs("openai_messages/tau-airline-t49-r0.json").remove(0);
    assert_eq!(counts(&run), [11, 5, 1, 1, 0]);
    assert_eq!((run.origin.format, &*run.run_id), ("openai-messages", "tau-airline-t49-r0"));
    assert_eq!(run.steps[0].role, Role::System);
    let asked = &run.steps[4];
    assert!(asked.text.starts_with("Since the reason for cancellation"));
    assert_eq!((asked.calls.len(), asked.results.len()), (1, 1));
    assert_eq!(asked.calls[0].id, asked.results[0].call_id);
    assert_eq!((run.recorded.success, run.ending.is_none()), (None, true));
}

#[test]
fn content_parts_are_split() {
    let run = runs("openai_messages/agentpile_multimodal_messages.json").remove(0);
    assert_eq!(run.run_id, "mm-1");
    assert_eq!((counts(&run), run.tools.len()), ([4, 2, 1, 1, 0], 2));
    assert_eq!(run.steps[1].text, "What is in this picture?");
    let kept = &run.steps[1].extra.as_ref().unwrap()["content"];
    assert_eq!(kept[0]["image_url"]["detail"], "low");
    let result = &run.steps[2].results[0];
    assert_eq!(result.content, "A cat on a sofa.");
    assert_eq!(result.extra.as_ref().unwrap()["content"][1]["type"], "image_url");
    assert_eq!(run.steps[2].calls[0].arguments, "{\"url\": \"https://example.invalid/cat.png\"}");
}

#[test]
fn tool_list_is_not_a_run() {
    let path = fixture("openai_messages/agentpile_openai_tools.json");
    let (runs, problems) = read_with(path, &Options::default());
    assert!(runs.is_empty());
    assert_eq!(problems[0].kind, ProblemKind::NoTrajectory);
    assert!(problems[0].what.ends_with("a JSON object with `tools`"), "{}", problems[0]);
}

#[test]
fn anthropic_counts_match_script() {
    let run = runs("anthropic_messages/tau-airline-gpt4o-t14-r1.json").remove(0);
    assert_eq!(run.origin.format, "anthropic-messages");
    // The system prompt, 15 turns, and the 7 user messages that contain more than results.
    assert_eq!(counts(&run), [23, 15, 9, 9, 0]);
    assert!(run.steps[0].text.starts_with("# Airline Agent Policy"));
    assert_eq!(run.notes, [""; 0]);
    for step in run.turns() {
        let ids: Vec<_> = step.calls.iter().map(|call| &call.id).collect();
        let answered: Vec<_> = step.results.iter().map(|result| &result.call_id).collect();
        assert_eq!(ids, answered);
    }
}

#[test]
fn content_blocks_keep_all_members() {
    let file = json!({"model": "m", "system": [{"type": "text", "text": "Be brief."}], "messages": [
        {"role": "user", "content": "Look it up."},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
            {"type": "text", "text": "I will.", "citations": [1]},
            {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1",
             "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"}},
            {"type": "tool_use", "id": "t1", "name": "f", "input": {}},
            {"type": "tool_use", "id": "t2", "name": "g", "input": {"a": [1, 2.0]}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t2", "is_error": true,
             "content": [{"type": "text", "text": "no"}, {"type": "image", "source": {}}]},
            {"type": "tool_result", "tool_use_id": "t1", "content": "Error: is not a flag here"},
            {"type": "text", "text": "And hurry."}]},
        {"role": "assistant", "content": [], "stop_reason": "end_turn",
         "usage": {"input_tokens": 5, "cache_read_input_tokens": 90, "output_tokens": 7}}
    ]});
    let run = parsed("a.json", file.to_string()).remove(0);
    assert_eq!(run.origin.format, "anthropic-messages");
    assert_eq!(counts(&run), [5, 2, 3, 3, 2]);
    let turn = &run.steps[2];
    assert_eq!((turn.reasoning.as_deref(), &*turn.text), (Some("Hm."), "I will."));
    let kept = &turn.extra.as_ref().unwrap()["content"];
    assert_eq!((kept[0]["signature"].as_str(), &kept[1]["citations"]), (Some("sig"), &json!([1])));
    assert_eq!(turn.calls[2].arguments, "{\"a\":[1,2.0]}");
    assert_eq!(turn.calls[0].extra.as_ref().unwrap()["type"], "server_tool_use");
    let failed: Vec<_> = turn.results.iter().map(|result| result.is_error).collect();
    assert_eq!(failed, [true, true, false]);
    assert_eq!((run.steps[3].role, &*run.steps[3].text), (Role::User, "And hurry."));
    let usage = run.steps[4].usage.as_ref().unwrap();
    assert_eq!((usage.prompt_tokens, usage.cached_tokens), (Some(95), Some(90)));
    assert_eq!(run.steps[4].finish_reason.as_deref(), Some("end_turn"));
}

#[test]
fn every_container_gives_same_run() {
    let messages = json!([
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{bad"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "Error: bad arguments"},
        {"role": "assistant", "content": "4", "reasoning_content": "easy"}
    ]);
    let lines =
        |list: &[Value]| list.iter().map(|value| format!("{value}\r\n")).collect::<String>();
    let object = json!({"messages": messages});
    let mut seen = Vec::new();
    for (text, number) in [
        (messages.to_string(), 1),
        (serde_json::to_string_pretty(&messages).unwrap(), 1),
        (object.to_string(), 1),
        (lines(&[object.clone(), object.clone()]), 2),
        (lines(&[messages.clone(), messages.clone()]), 2),
        (json!([object, object]).to_string(), 2),
        (json!([messages, messages]).to_string(), 2),
        (lines(messages.as_array().unwrap()), 1),
    ] {
        let runs = parsed("r.json", text.clone());
        assert_eq!(runs.len(), number, "{text}");
        assert_eq!(counts(&runs[0]), [3, 2, 1, 1, 1], "{text}");
        assert_eq!(runs[0].steps[1].calls[0].arguments, "\"{bad\"");
        let ids: Vec<_> = runs.iter().map(|run| run.run_id.to_string()).collect();
        assert_eq!(ids, ["r", "r#2"][..number], "{text}");
        seen.push(runs.into_iter().next().unwrap().steps);
    }
    assert!(seen.windows(2).all(|two| two[0] == two[1]));
}

#[test]
fn similar_files_are_not_runs() {
    for file in [
        // The log of a single call, which repeats the conversation so far.
        json!({"messages": [{"role": "user", "content": "a"}], "response": {"choices": []}}),
        json!({"role": "user", "message": {"content": "a"}}),
        json!([{"role": "admin", "content": "a"}]),
        json!([{"role": "user", "content": {"parts": []}}]),
    ] {
        let (runs, problems) = read_bytes("x.json", file.to_string(), &Options::default());
        assert_eq!((runs.len(), problems[0].kind), (0, ProblemKind::NoTrajectory), "{file}");
    }
}

#[test]
fn unusual_messages_are_noted() {
    let messages = json!({"id": 7, "reward": 1, "tools": [], "messages": [
        {"role": "developer", "content": "x"},
        {"role": "narrator", "content": "y"},
        {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}, "content": null},
        {"role": "function", "name": "f", "content": "1"},
        {"role": "tool", "tool_call_id": "missing", "content": {"a": 1}},
        {"role": "assistant", "id": "m", "content": "a", "tool_calls": [{"id": "c", "function": {"name": "f"}}]},
        {"role": "assistant", "id": "m", "content": "b", "tool_calls": [{"id": "d", "function": {"name": "f"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "2", "is_error": true},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "e", "function": "g", "args": {"a": 1}}]}
    ]});
    let run = parsed("r.json", messages.to_string()).remove(0);
    assert_eq!((&*run.run_id, run.recorded.success), ("7", Some(true)));
    assert_eq!(counts(&run), [5, 3, 4, 3, 1], "one response in two messages is one turn");
    let flat = &run.steps[4].calls[0];
    assert_eq!((&*flat.name, &*flat.arguments), ("g", "{\"a\":1}"));
    assert_eq!(run.steps[3].text, "a\nb");
    assert_eq!(run.steps[0].extra.as_ref().unwrap()["role"], "developer");
    assert_eq!(run.steps[2].results[1].content, "{\"a\":1}");
    assert_eq!(run.notes, ["unknown role: narrator", "result without a call: missing"]);
}

#[test]
fn unreadable_line_of_messages_is_noted() {
    let text = "{\"role\":\"user\",\"content\":\"a\"}\n{\"role\":\"assistant\",\"content\":\"b\"}\n{\"role\":\"assis";
    let (runs, problems) = read_bytes("r.jsonl", text, &Options::default());
    assert_eq!((runs.len(), counts(&runs[0])[1]), (1, 1));
    assert_eq!(runs[0].notes, ["lines not read: 1"]);
    assert_eq!((problems[0].at, problems[0].kind), (Some(3), ProblemKind::Half));
}
