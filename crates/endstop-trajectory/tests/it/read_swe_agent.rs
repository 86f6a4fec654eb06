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
