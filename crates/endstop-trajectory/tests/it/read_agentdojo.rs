//! Tests the reader for AgentDojo.

use crate::common::{counts, ending, parsed, runs};
use serde_json::json;

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
