//! Tests the reader for SWE-agent.

use crate::common::{counts, ending, parsed, runs};
use endstop_trajectory::Role;
use serde_json::json;

#[test]
fn fixture_counts_match_script() {
    let run = |name: &str| runs(&format!("swe_agent/{name}.traj")).remove(0);
    let plain = run("ctf__misc__networking_1");
    assert_eq!(counts(&plain), [6, 4, 4, 4, 0]);
    assert_eq!(ending(&plain), Some(("final", Some("submitted"))));
    let answer = plain.ending.as_ref().unwrap().answer.as_deref().unwrap();
    assert!(answer.starts_with("flag{d316759c"), "{answer}");
    assert_eq!(plain.task_id.as_deref(), Some("ctf__misc__networking_1"));
    let step = &plain.steps[2];
    assert_eq!((&*step.calls[0].name, step.calls[0].id.as_deref()), ("tshark", Some("call-1")));
    assert!(step.calls[0].arguments.starts_with("{\"command\":\"tshark -n -r networking.pcap"));
    assert!(step.results[0].content.starts_with("Running as user \"root\""));
    assert_eq!(plain.recorded.success, None);
}

#[test]
fn demonstration_is_not_a_turn() {
    let run = runs("swe_agent/demonstrated.traj").remove(0);
    assert_eq!(counts(&run), [8, 5, 5, 5, 0]);
    let roles: Vec<_> = run.steps.iter().take(4).map(|step| (step.role, step.copied)).collect();
    assert_eq!(
        roles,
        [(Role::System, false), (Role::User, true), (Role::User, false), (Role::Agent, false)]
    );
    assert_eq!(run.totals.prompt_tokens, Some(52861));
    assert_eq!(run.totals.cost_usd, Some(0.53839));
}

#[test]
fn called_tools_keep_ids_and_arguments() {
    let run = runs("swe_agent/from_url.traj").remove(0);
    assert_eq!(counts(&run), [7, 5, 5, 5, 0]);
    assert_eq!(run.task_id.as_deref(), Some("SWE-agent__test-repo-i1"));
    assert_eq!(run.model.as_deref(), Some("gpt-4o"));
    assert_eq!(run.limits["per_instance_cost_limit"], 3.0);
    let call = &run.steps[2].calls[0];
    assert_eq!(call.id.as_deref(), Some("call_fJuazlMUN5fQDQ73G6XSpYpx"));
    assert_eq!(call.name, "find_file");
    assert_eq!(run.steps[2].results[0].call_id, call.id);
    assert_eq!(run.steps[6].calls[0].name, "submit", "of no turn in the history");
    assert_eq!(run.notes, [""; 0]);
}

#[test]
fn history_alone_is_a_run() {
    let run = runs("swe_agent/function_calling_simple.traj").remove(0);
    assert_eq!(counts(&run), [7, 5, 5, 5, 0]);
    assert_eq!((ending(&run), &*run.notes), (None, &[][..]));
    let names: Vec<_> = run.turns().map(|step| &*step.calls[0].name).collect();
    assert_eq!(names, ["find_file", "open", "edit", "bash", "submit"]);
}

#[test]
fn exit_statuses_map_to_endings() {
    for (native, reason) in [
        ("submitted", "final"),
        ("submitted (exit_cost)", "cost_limit"),
        ("exit_context", "context_overflow"),
        ("exit_format", "agent_error"),
        ("exit_total_execution_time", "timeout"),
        ("early_exit", "unknown"),
    ] {
        let file = json!({"history": [], "info": {"exit_status": native},
            "trajectory": [{"thought": "a", "action": "", "observation": "b", "response": "a"}],
            "replay_config": "{\"agent\": {\"model\": {\"name\": \"m\"}}}"});
        let run = parsed("x.traj", file.to_string()).remove(0);
        assert_eq!(ending(&run), Some((reason, Some(native))));
        assert_eq!((counts(&run), run.model.as_deref()), ([1, 1, 0, 1, 0], Some("m")));
    }
}

#[test]
fn repeated_turns_of_history_are_counted() {
    // The history contains turns that failed and were repeated; the steps are those that counted.
    let turn = |action: &str, id: &str| {
        json!({"role": "assistant", "content": action, "action": action, "agent": "main",
            "tool_calls": [{"id": id, "type": "function", "function": {"name": "bash",
                "arguments": json!({"command": action}).to_string()}}]})
    };
    let step = |action: &str| json!({"action": action, "observation": "o", "thought": "t", "response": action});
    let file = json!({
        "history": [{"role": "user", "content": "do it", "agent": "main"}, turn("bad", "c1"), turn("bad", "c2"),
            turn("ls", "c3"), {"role": "user", "content": "o", "agent": "main"}, turn("cat", "c4"), turn("end", "c5")],
        "trajectory": [step("ls"), step("cat"), step("")]});
    let run = parsed("x.traj", file.to_string()).remove(0);
    assert_eq!(counts(&run), [4, 3, 2, 3, 0]);
    let ids: Vec<_> = run.turns().map(|step| step.results[0].call_id.as_deref()).collect();
    assert_eq!(ids, [Some("c3"), Some("c4"), None]);
    assert_eq!(run.notes, ["turns of the history that are not steps: 3"]);
    assert_eq!(run.steps[1].extra.as_ref().unwrap()["response"], "ls");
    assert_eq!(run.steps[1].extra.as_ref().unwrap()["action"], "ls");
}

#[test]
fn odd_history_is_read() {
    let file = json!({"history": [
        {"role": "system", "content": [{"type": "text", "text": "s"}], "agent": "main"},
        {"role": "assistant", "content": "shown", "is_demo": true, "agent": "main"},
        {"role": "user", "content": "go", "is_demo": null, "agent": "main", "tags": ["a"]},
        {"role": "assistant", "content": "I look.\nls -l", "thought": "I look.", "action": "ls -l\n", "tool_calls": null,
            "agent": "main"},
        {"role": "user", "content": "a.py", "message_type": "observation", "agent": "main"},
        {"role": "user", "content": "hurry", "message_type": "user", "agent": "main"},
        {"role": "tool", "content": "late", "tool_call_ids": [7, "x"], "agent": "main"},
    ], "info": {"exit_status": null, "model_stats": {"tokens_sent": -1, "instance_cost": "x", "api_calls": 2}}});
    let run = parsed("dir/task.traj", file.to_string()).remove(0);
    let kinds: Vec<_> = run.steps.iter().map(|step| (step.role, step.copied)).collect();
    let (agent, user) = (Role::Agent, Role::User);
    assert_eq!(
        kinds,
        [(Role::System, false), (agent, true), (user, false), (agent, false), (user, false)]
    );
    let turn = &run.steps[3];
    assert_eq!((&*turn.text, &*turn.calls[0].name), ("I look.", "ls"));
    assert_eq!(turn.calls[0].arguments, r#"{"command":"ls -l"}"#);
    assert_eq!(turn.extra.as_ref().unwrap()["response"], "I look.\nls -l");
    let told: Vec<_> = turn.results.iter().map(|result| &*result.content).collect();
    assert_eq!((told, turn.results[0].call_id.as_deref()), (vec!["a.py", "late"], Some("call-1")));
    assert_eq!(run.notes, ["result without a call: 7"]);
    assert_eq!((ending(&run), run.task_id.as_deref()), (None, Some("task")));
    // Totals of an unexpected type are stored as they are.
    assert_eq!((run.totals.prompt_tokens, run.totals.cost_usd), (None, None));
    assert_eq!(run.totals.extra["tokens_sent"], -1);
}

#[test]
fn call_without_function_has_no_arguments() {
    let file = json!({"history": [
        {"role": "assistant", "content": "", "agent": "main", "tool_calls": [{"id": "c1", "type": "function"}]},
    ], "info": {}});
    let run = parsed("dir/task.traj", file.to_string()).remove(0);
    let call = &run.steps[0].calls[0];
    assert_eq!((call.id.as_deref(), &*call.name, &*call.arguments), (Some("c1"), "", "{}"));
}
