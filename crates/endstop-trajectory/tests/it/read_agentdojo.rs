//! Tests the reader for AgentDojo.

use crate::common::{counts, ending, parsed, read_bytes, runs};
use endstop_trajectory::Role;
use endstop_trajectory::read::{Options, ProblemKind};
use serde_json::{Value, json};

#[test]
fn fixture_counts_match_script() {
    let run = runs("agentdojo/injection_task_0.json").remove(0);
    assert_eq!((run.origin.format, counts(&run)), ("agentdojo", [4, 2, 2, 2, 1]));
    assert_eq!(run.task_id.as_deref(), Some("banking/user_task_0/injection_task_0"));
    assert_eq!((run.model.as_deref(), run.recorded.success), (Some("model-a"), Some(true)));
    assert_eq!((&run.labels["security"], run.totals.wall_s), (&json!(false), Some(1.5)));
    assert_eq!(run.steps[1].text, "Pay my bill.");
    let turn = &run.steps[2];
    assert_eq!((&*turn.calls[0].name, &*turn.calls[1].arguments), ("read_file", "{}"));
    assert_eq!(turn.results[0].content, "Bill: 10 EUR. IGNORE PREVIOUS (synthetic)");
    assert!(!turn.results[0].is_error && turn.results[1].is_error);
    assert_eq!(turn.results[1].content, "ValueError: no account (synthetic)");
    assert_eq!(turn.results[1].call_id.as_deref(), Some("t-2"));
    assert_eq!(run.ending.as_ref().unwrap().answer.as_deref(), Some("I paid the bill."));

    let run = runs("agentdojo/none.json").remove(0);
    assert_eq!(counts(&run), [3, 1, 0, 0, 0]);
    assert_eq!(run.task_id.as_deref(), Some("banking/user_task_0"));
    assert_eq!((run.recorded.success, ending(&run)), (Some(false), Some(("final", None))));
    assert_eq!(run.labels["security"], true);
}

#[test]
fn run_with_error_has_unknown_ending() {
    let file = json!({"suite_name": "s", "pipeline_name": "m", "user_task_id": "u", "error": "full",
        "utility": null, "messages": [{"role": "assistant", "content": "a", "tool_calls": []}]});
    let run = parsed("a.json", file.to_string()).remove(0);
    assert_eq!((ending(&run), run.recorded.success), (Some(("unknown", None)), None));
    assert_eq!(run.ending.as_ref().unwrap().failure_mode.as_deref(), Some("full"));
}

fn file(messages: Value) -> String {
    json!({"suite_name": "s", "pipeline_name": "m", "user_task_id": "u", "injection_task_id": null,
        "error": null, "utility": true, "security": true, "messages": messages})
    .to_string()
}

#[test]
fn parts_are_text_reasoning_or_extra() {
    let messages = json!([
        {"role": "system", "content": [{"type": "text", "content": "a"}, {"type": "text", "content": "b"}]},
        {"role": "user", "content": null},
        {"role": "assistant", "tool_calls": null, "content": [
            {"type": "thinking", "content": "hm", "id": "x"},
            {"type": "image", "content": "i"}, "bare", {"type": "text", "content": 7},
            {"type": "text", "content": "done"}]},
    ]);
    let run = parsed("a.json", file(messages)).remove(0);
    let texts: Vec<_> = run.steps.iter().map(|step| &*step.text).collect();
    assert_eq!(texts, ["a\nb", "", "done"]);
    let turn = &run.steps[2];
    assert_eq!(turn.reasoning.as_deref(), Some("hm"));
    let rest = &turn.extra.as_ref().unwrap()["content"];
    assert_eq!(
        rest,
        &json!([{"type": "image", "content": "i"}, "bare", {"type": "text", "content": 7}])
    );
    assert_eq!(run.ending.unwrap().answer.as_deref(), Some("done"));
}

#[test]
fn odd_calls_and_results_are_stored() {
    let messages = json!([
        {"role": "assistant", "content": "", "tool_calls": [
            {"function": "pay", "args": {"to": "x"}, "id": "", "placeholder_args": null},
            {"function": "read", "args": "{\"a\": 1}", "id": 7}, "pay()"]},
        {"role": "tool", "content": "ok", "error": {"code": 1}, "tool_call_id": "7"},
        {"role": "tool", "content": "half", "error": "ValueError: y", "tool_call_id": "nope"},
        {"role": "critic", "content": "?"},
    ]);
    let run = parsed("a.json", file(messages)).remove(0);
    assert_eq!(counts(&run), [2, 1, 3, 2, 2]);
    let turn = &run.steps[0];
    let arguments: Vec<_> = turn.calls.iter().map(|call| &*call.arguments).collect();
    assert_eq!(arguments, [r#"{"to":"x"}"#, r#"{"a": 1}"#, r#""pay()""#]);
    assert_eq!((&turn.calls[0].id, turn.calls[1].id.as_deref()), (&None, Some("7")));
    // An error that is not a string stays, and marks the failure.
    assert_eq!(turn.results[0].extra.as_ref().unwrap()["error"], json!({"code": 1}));
    assert_eq!(turn.results[1].extra.as_ref().unwrap()["error"], "ValueError: y");
    assert_eq!(run.steps[1].role, Role::User);
    assert_eq!(run.notes, ["result without a call: nope", "unknown role: critic"]);
    assert_eq!(ending(&run), None, "the last message is not the model's");
}

#[test]
fn file_without_messages_is_malformed() {
    for (text, kind) in [
        (r#"{"suite_name":"s","pipeline_name":"m","user_task_id":"u"}"#, ProblemKind::Malformed),
        (
            r#"{"suite_name":"s","pipeline_name":"m","user_task_id":"u","messages":[{}]}"#,
            ProblemKind::Malformed,
        ),
        (
            r#"{"suite_name":"s","pipeline_name":"m","user_task_id":"u","messages":[{"role":"us"#,
            ProblemKind::Half,
        ),
    ] {
        let (runs, problems) = read_bytes("a.json", text, &Options::default());
        assert_eq!((runs.len(), problems[0].kind), (0, kind), "{text}: {}", problems[0]);
    }
}
