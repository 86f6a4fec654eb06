//! Tests the reader for ATIF.

use crate::common::{Folder, counts, ending, parsed, read_bytes, read_with, runs};
use endstop_trajectory::read::{Options, ProblemKind};
use serde_json::{Value, json};

#[test]
fn fixture_counts_match_script() {
    for (name, want, success, end) in [
        ("hotpot-47801b542b28.json", [4, 3, 3, 3, 0], true, Some("final")),
        (
            "intercode-ic_ctf_multiturn_gpt-4_10_turns-gpt-4-17.json",
            [3, 2, 2, 2, 0],
            true,
            Some("agent_submit"),
        ),
        ("tau-airline-gpt4o-t1-r0.json", [12, 5, 0, 0, 0], false, Some("user_stop")),
        ("tothf-BASELINE-REACT-20260220-012316-d936d9.json", [4, 3, 1, 1, 0], false, Some("final")),
        ("agentpile_atif_multiagent.json", [5, 3, 3, 3, 1], false, None),
    ] {
        let run = runs(&format!("atif/{name}")).remove(0);
        assert_eq!(counts(&run), want, "{name}");
        assert_eq!(run.recorded.success, Some(success), "{name}");
        assert_eq!(ending(&run).map(|(reason, _)| reason), end, "{name}");
        assert_eq!(run.notes, [""; 0], "{name}");
    }
    let two = runs("atif/agentpile_atif_two.jsonl");
    let ids: Vec<_> = two.iter().map(|run| (&*run.run_id, run.origin.at)).collect();
    assert_eq!(ids, [("fx-1", Some(1)), ("fx-2", Some(2))]);
}

#[test]
fn agentpile_extra_is_read_and_stored() {
    let run = runs("atif/agentpile_atif_multiagent.json").remove(0);
    assert_eq!(run.task_id.as_deref(), Some("travel-1"));
    assert_eq!(run.recorded.reward, Some(0.0));
    assert_eq!(run.tools.len(), 3);
    let agents: Vec<_> = run.turns().map(|step| step.agent.as_deref().unwrap()).collect();
    assert_eq!(agents, ["planner", "booker", "booker"]);
    let results = &run.steps[2].results;
    assert_eq!(results[0].call_id.as_deref(), Some("c2"), "in the order of the file");
    assert!(run.steps[3].results[0].is_error);
    assert_eq!(run.extra["agentpile"]["version"], "0");
}

fn document(steps: Value) -> Value {
    json!({"schema_version": "ATIF-v1.8", "session_id": "s", "trajectory_id": "t",
           "agent": {"name": "a", "version": "1"}, "steps": steps})
}

#[test]
fn only_supported_versions_are_read() {
    for (version, known) in [
        ("ATIF-v1.0", true),
        ("ATIF-v1.5", true),
        ("ATIF-v1.8", true),
        ("ATIF-v1.9", false),
        ("ATIF-v2.0", false),
        ("ATIF-v1", false),
    ] {
        let mut document = document(json!([{"step_id": 1, "source": "user", "message": "hi"}]));
        document["schema_version"] = version.into();
        let (runs, problems) = read_bytes("t.json", document.to_string(), &Options::default());
        assert_eq!(runs.len(), usize::from(known), "{version}");
        assert_eq!(problems.len(), usize::from(!known));
        assert!(problems.iter().all(|problem| problem.kind == ProblemKind::UnknownVersion));
    }
}

#[test]
fn images_subagents_copied_steps_are_read() {
    let parts = json!([{"type": "text", "text": "What is"}, {"type": "text", "text": "this?"},
        {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]);
    let mut parent = document(json!([
        {"step_id": 1, "source": "agent", "message": "before", "is_copied_context": true,
         "tool_calls": [{"tool_call_id": "old", "function_name": "f", "arguments": {}}]},
        {"step_id": 2, "source": "user", "message": parts},
        {"step_id": 3, "source": "agent", "message": "", "model_name": "m2", "reasoning_content": "hm",
         "reasoning_effort": "high", "llm_call_count": 2,
         "metrics": {"prompt_tokens": 10, "completion_tokens": 4, "cached_tokens": 8, "cost_usd": 0.5,
                     "logprobs": [-0.1, -2], "extra": {"reasoning_tokens": 3, "ttft": 0.2}},
         "extra": {"stop_reason": "tool_use", "mine": 1},
         "tool_calls": [{"tool_call_id": "c1", "function_name": "ask", "arguments": {"q": 1.50}},
                        {"tool_call_id": "c2", "function_name": "raw", "arguments": "not json"}],
         "observation": {"results": [
             {"source_call_id": "c1", "content": null,
              "subagent_trajectory_ref": [{"trajectory_id": "child"}]},
             {"source_call_id": "c2", "content": "x", "extra": {"tool_result_is_error": true}},
             {"source_call_id": "c9", "content": "lost"}, {"content": "an event"}]}}
    ]));
    let mut child = document(json!([{"step_id": 1, "source": "agent", "message": "done"}]));
    child["trajectory_id"] = "child".into();
    parent["subagent_trajectories"] = json!([child]);
    parent["notes"] = "by hand".into();
    parent["final_metrics"] =
        json!({"total_cost_usd": 0.5, "total_steps": 3, "extra": {"wall_s": 2}});
    let run = parsed("t.json", serde_json::to_vec_pretty(&parent).unwrap()).remove(0);

    assert_eq!(counts(&run), [3, 1, 2, 4, 1], "the copied step is not a turn of this run");
    assert_eq!(run.steps[1].text, "What is\nthis?");
    assert_eq!(run.steps[1].extra.as_ref().unwrap()["message"], parts);
    let step = &run.steps[2];
    assert_eq!(step.finish_reason.as_deref(), Some("tool_use"));
    let usage = step.usage.as_ref().unwrap();
    assert_eq!((usage.cached_tokens, usage.reasoning_tokens), (Some(8), Some(3)));
    assert_eq!(json!(usage.extra), json!({"logprobs": [-0.1, -2], "ttft": 0.2}));
    assert_eq!(
        json!(step.extra),
        json!({"reasoning_effort": "high", "llm_call_count": 2, "mine": 1})
    );
    assert_eq!(step.calls[0].arguments, "{\"q\":1.5}");
    assert_eq!(step.calls[1].arguments, "\"not json\"");
    assert!(step.results[1].is_error && !step.results[0].is_error);
    assert_eq!(run.notes, ["result without a call: c9, in step 3"]);
    assert_eq!((run.children.len(), &*run.children[0].run_id), (1, "child"));
    assert_eq!(run.children[0].origin.format, "atif");
    assert_eq!((run.totals.wall_s, run.totals.extra.len()), (Some(2.0), 0));
    assert_eq!(run.extra["session_id"], "s");
    assert_eq!(run.extra["notes"], "by hand");
}

#[test]
fn list_of_documents_is_read() {
    let one = document(json!([{"step_id": 1, "source": "agent", "message": "[\"]}"}]));
    let mut two = one.clone();
    two["trajectory_id"] = "u".into();
    let runs = parsed("t.json", serde_json::to_vec_pretty(&json!([one, two])).unwrap());
    let ids: Vec<_> = runs.iter().map(|run| (&*run.run_id, run.origin.at)).collect();
    assert_eq!(ids, [("t", Some(1)), ("u", Some(2))]);
}

#[test]
fn outcome_comes_from_result_file() {
    let folder = Folder::new("harbor");
    let run = document(json!([{"step_id": 1, "source": "agent", "message": "x"}])).to_string();
    let trial = |reward: Value, exception: Value| {
        json!({"trial_name": "t__1", "task_name": "task", "verifier_result": {"rewards": reward},
               "exception_info": exception, "agent_result": {"n_input_tokens": 7, "cost_usd": 0.5}})
        .to_string()
    };
    folder.file("a/trajectory.json", &run);
    folder.file("a/result.json", trial(json!({"reward": 1.0}), Value::Null));
    // Harbor stores the trajectory in a subfolder of the trial's folder.
    folder.file("b/agent/trajectory.json", &run);
    let timeout = json!({"exception_type": "AgentTimeoutError", "exception_message": "600 s"});
    folder.file("b/result.json", trial(json!({"reward": 0}), timeout));
    folder.file("c/trajectory.json", &run);
    folder.file("c/result.json", trial(json!({"tests": 1.0, "style": 0.5}), Value::Null));
    folder.file("d/trajectory.json", &run);
    folder.file("d/result.json", "{\"reward\": 1}");
    let (runs, problems) = read_with(&folder.0, &Options::default());
    assert_eq!(problems, []);
    assert_eq!(runs.len(), 4);
    assert_eq!((runs[0].recorded.success, runs[0].ending.is_none()), (Some(true), true));
    assert_eq!((runs[0].totals.prompt_tokens, runs[0].totals.cost_usd), (Some(7), Some(0.5)));
    assert_eq!(runs[0].task_id.as_deref(), Some("task"));
    assert_eq!(runs[1].recorded.success, Some(false));
    assert_eq!(ending(&runs[1]), Some(("timeout", Some("AgentTimeoutError"))));
    assert_eq!(runs[2].recorded.success, None, "several rewards, none of them the reward");
    assert_eq!(runs[2].labels["rewards"]["tests"], 1.0);
    assert_eq!(runs[3].recorded.success, None, "no file of Harbor's");
}

#[test]
fn invalid_documents_are_reported() {
    for (document, what) in [
        (json!({"schema_version": "ATIF-v1.8", "agent": {}}), "missing `steps`"),
        (document(json!([{"step_id": 1, "message": "x"}])), "step 1: `source`"),
        (
            document(json!([{"step_id": 1, "source": "agent", "message": "", "tool_calls": 5}])),
            "steps: tool_calls",
        ),
    ] {
        let (runs, problems) = read_bytes("t.json", document.to_string(), &Options::default());
        assert_eq!((runs.len(), problems.len()), (0, 1), "{document}");
        assert!(problems[0].what.contains(what), "{}", problems[0]);
        assert_eq!(problems[0].kind, ProblemKind::Malformed);
    }
    let gap = document(json!([{"step_id": 1, "source": "user", "message": "x"},
        {"step_id": 3, "source": "user", "message": "y"}]));
    let run = parsed("t.json", gap.to_string()).remove(0);
    assert_eq!(run.notes, ["steps out of order: step 2 has the step_id 3"]);
}
