//! Tests the reader for OpenTelemetry. The expected counts come from a script that read the raw
//! files.

use crate::reading::{counts, ending, fixture, ids, lines, read, tokens};
use endstop_trajectory::Role;
use endstop_trajectory::read::ProblemKind;
use serde_json::{Value, json};

#[test]
fn genai_traces_are_runs() {
    let read = fixture("otel", "agentpile_pydantic_ai_2.58.0.json");
    let [first, second] = read.runs.as_slice() else { panic!("{} runs", read.runs.len()) };
    assert_eq!((counts(first), counts(second)), ((4, 2, 2, 2, 0), (3, 1, 0, 0, 0)));
    let turn = first.turns().next().unwrap();
    assert_eq!(turn.text, "Let me check both.");
    let both = vec!["call_weather_1", "call_time_1"];
    assert_eq!(ids(turn), (both.clone(), both));
    assert_eq!(turn.results[0].content, "sunny in Paris");
    assert_eq!(turn.calls[1].arguments, r#"{"zone":"UTC"}"#);
    assert_eq!(tokens(turn), (Some(61), Some(15), None));
    assert_eq!(turn.at.as_deref(), Some("2026-10-20T09:40:24.994417000Z"));
    assert_eq!(ending(first), Some(("final", "final_result")));
    assert_eq!((first.totals.prompt_tokens, first.tools.len()), (Some(132), 2));
    assert_eq!(first.extra["resource.service.name"], "fixture-pydantic-ai");
    assert_eq!((first.steps[0].role, first.steps[1].role), (Role::System, Role::User));
}

#[test]
fn agent_below_tool_is_child() {
    let read = fixture("otel", "agentpile_pydantic_ai_2.58.0_delegation.json");
    let run = read.only();
    assert_eq!((counts(run), run.agent.as_deref()), ((4, 2, 1, 1, 0), Some("boss_agent")));
    let [child] = run.children.as_slice() else { panic!("{} children", run.children.len()) };
    assert_eq!((counts(child), child.agent.as_deref()), ((3, 1, 0, 0, 0), Some("helper_agent")));
    assert_eq!(child.extra["started_by_call"], "call_ask_1");
    assert_eq!(child.turns().next().unwrap().text, "42");
}

#[test]
fn openinference_tools_match_by_arguments() {
    // A trace in three lines, with children before parents.
    let read = fixture("otel", "agentpile_openai_agents_0.24.0_oi_2.5.3.jsonl");
    let run = read.only();
    assert_eq!(counts(run), (6, 3, 2, 2, 0));
    let turns: Vec<_> = run.turns().collect();
    assert_eq!(ids(turns[0]), (vec!["call_lookup_1"], vec!["call_lookup_1"]));
    assert_eq!(turns[0].results[0].content, "order A1: shipped");
    // The span of a handoff has a different name than the call; the model's next input contains the
    // result.
    assert_eq!(ids(turns[1]), (vec!["call_handoff_1"], vec!["call_handoff_1"]));
    assert_eq!(turns[1].results[0].content, r#"{"assistant": "Refunds"}"#);
    let agents: Vec<_> = turns.iter().map(|turn| turn.agent.as_deref().unwrap()).collect();
    assert_eq!(agents, ["Triage", "Triage", "Refunds"]);
    assert_eq!(tokens(turns[1]), (Some(60), Some(10), Some(0)));
    assert_eq!(ending(run), None);
}

#[test]
fn ai_sdk_traces_are_separate_runs() {
    let read = fixture("otel", "ai-generateText-doGenerate.json");
    let runs: Vec<_> = read.runs.iter().map(|run| (counts(run), ending(run))).collect();
    let stop = Some(("final", "stop"));
    assert_eq!(runs, [((2, 1, 0, 0, 0), stop), ((4, 1, 0, 0, 0), stop)]);
    assert_eq!(read.runs[1].turns().next().unwrap().text, "3 + 3 equals 6.");
    // The enclosing spans are separate traces without the model calls.
    let outer = fixture("otel", "ai-generateText.json");
    assert_eq!(outer.runs.len(), 2);
    let run = &outer.runs[0];
    assert!(run.is_tagged("summary_only"));
    assert_eq!((run.totals.prompt_tokens, run.totals.completion_tokens), (Some(14), Some(20)));
    assert_eq!(ending(run), stop);
}

/// Creates a span as the Python SDK prints it.
fn span(id: &str, parent: Option<&str>, start: u64, failed: bool, attributes: Value) -> Value {
    json!({"name": id, "context": {"trace_id": "0xt", "span_id": format!("0x{id}")},
        "parent_id": parent.map(|parent| format!("0x{parent}")),
        "start_time": start, "end_time": start + 1,
        "status": {"status_code": if failed { "ERROR" } else { "OK" }, "description": if failed { "broke" } else { "" }},
        "attributes": attributes})
}

fn agent(id: &str) -> Value {
    span(
        id,
        None,
        1,
        false,
        json!({"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": id}),
    )
}

fn chat(id: &str, parent: Option<&str>, start: u64, more: Value) -> Value {
    let mut attributes = json!({"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"});
    for (key, value) in more.as_object().unwrap() {
        attributes[key] = value.clone();
    }
    span(id, parent, start, false, attributes)
}

fn tool(id: &str, parent: Option<&str>, start: u64, failed: bool, name: &str) -> Value {
    let attributes = json!({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name,
        "gen_ai.tool.call.arguments": "{\"a\":1}", "error.type": "Timeout"});
    span(id, parent, start, failed, attributes)
}

#[test]
fn tool_spans_imply_unrecorded_calls() {
    let file = lines(&[
        tool("x", Some("r"), 3, true, "shell"),
        chat("a", Some("r"), 2, json!({})),
        chat("b", Some("r"), 4, json!({"gen_ai.response.finish_reasons": ["stop"]})),
        agent("r"),
    ]);
    let read = read("otel", &file);
    let run = read.only();
    assert_eq!(counts(run), (2, 2, 1, 1, 1));
    assert_eq!(run.steps[0].calls[0].arguments, r#"{"a":1}"#);
    assert_eq!(run.steps[0].results[0].content, "broke");
    assert_eq!(ending(run), Some(("final", "stop")));
    assert_eq!(run.notes, ["calls known only from tool spans: 1"]);
}

#[test]
fn failed_model_call_is_not_turn() {
    let mut failed = chat("b", Some("r"), 4, json!({"error.type": "429"}));
    failed["status"] = json!({"status_code": "ERROR", "description": "slow down"});
    let file = lines(&[chat("a", Some("r"), 2, json!({})), failed, agent("r")]);
    let read = read("otel", &file);
    assert_eq!(counts(read.only()), (1, 1, 0, 0, 0));
    assert_eq!(ending(read.only()), Some(("provider_error", "429")));
    assert_eq!(read.only().notes, ["model calls that failed: 1"]);
}

#[test]
fn top_level_agents_are_separate_runs() {
    let file = lines(&[
        agent("r"),
        chat("a", Some("r"), 2, json!({})),
        agent("q"),
        chat("b", Some("q"), 3, json!({})),
        // The same response, recorded by two instrumentations.
        chat("c", Some("b"), 3, json!({})),
    ]);
    let read = read("otel", &file);
    let runs: Vec<_> = read.runs.iter().map(|run| (&*run.run_id, counts(run).1)).collect();
    assert_eq!(runs, [("t/r", 1), ("t/q", 1)]);
    assert_eq!(read.runs[1].notes, ["spans that are not steps: spans inside a model call 1"]);
}

#[test]
fn flat_and_nested_attributes_are_equal() {
    let output = json!({"message": {"role": "assistant", "content": "hi", "tool_calls": [
        {"tool_call": {"id": "c", "function": {"name": "f", "arguments": "{}"}}}]}});
    let nested = json!({"openinference": {"span": {"kind": "LLM"}}, "llm": {
        "output_messages": [output], "token_count": {"prompt": 3, "completion": 4}}});
    let flat = json!({"openinference.span.kind": "LLM", "llm.token_count.prompt": 3,
        "llm.token_count.completion": 4, "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": "hi",
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "f",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{}"});
    let [one, other] = [nested, flat].map(|attributes| {
        let read = read("otel", &lines(&[span("a", None, 1, false, attributes)]));
        let mut run = read.only().clone();
        run.steps.iter_mut().for_each(|step| step.extra = None);
        run.steps
    });
    assert_eq!(one, other);
    assert_eq!((&*one[0].text, &*one[0].calls[0].name), ("hi", "f"));
}

#[test]
fn cyclic_and_duplicate_spans_are_noted() {
    let file = lines(&[
        chat("a", Some("b"), 1, json!({})),
        chat("b", Some("a"), 2, json!({})),
        chat("b", Some("b"), 3, json!({})),
    ]);
    let read = read("otel", &file);
    assert_eq!(read.runs.len(), 1);
    let notes = &read.runs[0].notes;
    assert!(notes.contains(&"duplicate span ids: 1".to_owned()), "{notes:?}");
}

#[test]
fn traces_without_model_are_reported() {
    let embed = json!({"gen_ai.operation.name": "embeddings"});
    let read = read("otel", &lines(&[span("a", None, 1, false, embed)]));
    assert_eq!((read.runs.len(), read.kinds()), (0, vec![(None, ProblemKind::NoTrajectory)]));
}
