//! Tests the readers for tau-bench and tau2-bench.

use crate::common::{Folder, counts, ending, parsed, read_bytes, read_with, runs};
use endstop_trajectory::Role;
use endstop_trajectory::read::{Options, ProblemKind};
use serde_json::json;

#[test]
fn tau_bench_counts_match_script() {
    let runs = runs("tau_bench/gpt-4o-airline.json");
    let want = [
        ("gpt-4o-airline/12/3", [10, 4, 0, 0, 0], true, ("user_stop", Some("###STOP###"))),
        (
            "gpt-4o-airline/38/2",
            [9, 4, 1, 1, 0],
            true,
            ("handoff", Some("transfer_to_human_agents")),
        ),
        ("gpt-4o-airline/9/3", [61, 30, 1, 1, 0], false, ("max_steps", None)),
        ("gpt-4o-airline/13/1", [23, 13, 5, 5, 1], true, ("user_stop", Some("###STOP###"))),
    ];
    assert_eq!(runs.len(), want.len());
    for (run, (id, numbers, success, end)) in runs.iter().zip(want) {
        assert_eq!((&*run.run_id, counts(run)), (id, numbers));
        assert_eq!(run.recorded.success, Some(success), "{id}");
        assert_eq!(ending(run), Some(end), "{id}");
        assert_eq!(run.notes, [""; 0], "{id}");
    }
    assert_eq!(runs[0].task_id.as_deref(), Some("airline/12"));
    assert_eq!((runs[0].trial.as_deref(), runs[3].origin.at), (Some("3"), Some(4)));
    assert!(runs[0].totals.extra["user_cost"].as_f64().unwrap() > 0.0);
    assert!(runs[0].extra["info"]["task"]["instruction"].is_string());
}

#[test]
fn crashed_tau_bench_run_has_error() {
    let list = json!([
        {"task_id": 1, "reward": 0.0, "info": {"error": "RateLimitError", "traceback": "…"}, "traj": [], "trial": 0},
        {"task_id": 2, "reward": 0.0, "info": {}, "trial": 0, "traj": [{"role": "assistant", "content": "a"}]}
    ]);
    let runs = parsed("x.json", list.to_string());
    assert_eq!(ending(&runs[0]), Some(("harness_error", Some("RateLimitError"))));
    assert_eq!(runs[0].tags, ["summary_only"]);
    assert_eq!(ending(&runs[1]), None);
    assert_eq!(runs[1].task_id.as_deref(), Some("2"), "no policy says the domain");
}

#[test]
fn row_counts_match_script() {
    let a = runs("tau_bench/agentpile_model-a.jsonl");
    let numbers: Vec<_> = a.iter().map(counts).collect();
    assert_eq!(numbers, [[6, 3, 2, 2, 0], [5, 2, 1, 1, 1], [0, 0, 0, 0, 0], [6, 3, 2, 2, 0]]);
    let success: Vec<_> = a.iter().map(|run| run.recorded.success).collect();
    assert_eq!(success, [Some(true), Some(false), Some(false), Some(false)]);
    assert_eq!(a[0].run_id, "vendor/model-a/airline/0");
    assert_eq!(a[0].task_id.as_deref(), Some("airline/0"));
    assert_eq!(a[1].notes, ["conflicting outcomes: the score is 1, but db_match is false"]);
    assert_eq!((&*a[2].tags, a[2].notes.len()), (&["summary_only".into()][..], 1));
    assert_eq!(ending(&a[0]), Some(("user_stop", Some("user_stop"))));

    // With this model, results are recorded as user messages.
    let gem = runs("tau_bench/agentpile_model-gem.jsonl");
    assert_eq!(counts(&gem[1]), [8, 3, 2, 0, 0]);
    let think = runs("tau_bench/agentpile_model-think.jsonl");
    assert_eq!(counts(&think[0]), [6, 2, 1, 1, 0]);
}

#[test]
fn tau2_rows_have_user_calls() {
    let alpha = runs("tau2_bench/agentpile_alpha-model.jsonl");
    assert_eq!(counts(&alpha[0]), [8, 4, 5, 5, 0]);
    let user = alpha[0].steps.iter().find(|step| step.role == Role::User && !step.calls.is_empty());
    let user = user.unwrap();
    let ids: Vec<_> = user.results.iter().map(|result| result.call_id.as_deref()).collect();
    assert_eq!(ids, [Some("a-u1"), Some("a-u2")]);
    assert_eq!(user.results[1].content, "toggle-result");
    assert_eq!(alpha[0].recorded.success, Some(true), "the score, not is_correct");
    assert_eq!(ending(&alpha[1]), Some(("max_steps", Some("max_steps"))));
    assert_eq!(alpha[0].totals.wall_s, Some(8.0));

    let beta = runs("tau2_bench/agentpile_beta-model.jsonl");
    let numbers: Vec<_> = beta.iter().map(counts).collect();
    assert_eq!(numbers, [[6, 3, 2, 3, 0], [0, 0, 0, 0, 0], [3, 1, 0, 0, 0]]);
    assert_eq!(beta[0].notes, ["result without a call: no id"]);
    assert_eq!(beta[2].recorded.reward, Some(0.5));
}

#[test]
fn spoken_simulation_is_split_into_turns() {
    let run = runs("tau2_bench/spoken.json").remove(0);
    assert_eq!(counts(&run), [4, 2, 0, 0, 0]);
    assert_eq!(run.steps[0].role, Role::User);
    assert_eq!(run.run_id, "49b22f0c-4a56-41c5-922f-bc2a56e53a23");
    assert_eq!(run.steps[0].extra.as_ref().unwrap()["tick_id"], 26);

    let chunk = |text: &str| json!({"role": "assistant", "content": text, "contains_speech": true});
    let quiet = json!({"role": "user", "contains_speech": false});
    let call = json!({"id": "c1", "name": "find", "arguments": {"q": 1}, "requestor": "assistant"});
    let result = json!({"id": "c1", "role": "tool", "content": "none", "error": true});
    let simulation = json!({"id": "s", "task_id": "3", "termination_reason": "agent_stop", "ticks": [
        {"tick_id": 0, "timestamp": "t0", "agent_chunk": chunk("One mo"), "user_chunk": quiet},
        {"tick_id": 1, "timestamp": "t1", "agent_chunk": chunk("ment."), "user_chunk": chunk("Yes.")},
        {"tick_id": 2, "timestamp": "t2", "agent_chunk": quiet, "user_chunk": quiet, "agent_tool_calls": [call]},
        {"tick_id": 3, "timestamp": "t3", "agent_chunk": chunk("Sorry."), "agent_tool_results": [result]},
        {"tick_id": 4, "timestamp": "t4", "agent_chunk": chunk("Bye."), "user_chunk": quiet}
    ]});
    let run = parsed("s.json", simulation.to_string()).remove(0);
    let steps: Vec<_> = run.steps.iter().map(|s| (s.role, &*s.text, s.at.as_deref())).collect();
    assert_eq!(
        steps,
        [
            (Role::Agent, "One moment.Sorry.", Some("t0")),
            (Role::User, "Yes.", Some("t1")),
            (Role::Agent, "Bye.", Some("t4")),
        ]
    );
    assert_eq!(counts(&run), [3, 2, 1, 1, 1]);
    assert_eq!(ending(&run), Some(("final", Some("agent_stop"))));
}

#[test]
fn tau2_results_give_model_and_limits() {
    let simulation = |id: &str, reward: f64| {
        json!({"id": id, "task_id": "5", "trial": 1, "termination_reason": "too_many_errors",
            "agent_cost": 0.25, "reward_info": {"reward": reward, "db_check": null, "nl": 1},
            "messages": [
                {"role": "assistant", "content": "Hi", "tool_calls": [
                    {"id": "c1", "name": "a", "arguments": {}}, {"id": "c2", "name": "b", "arguments": {}}],
                 "usage": {"prompt_tokens": 3, "completion_tokens": 2}, "cost": 0.1},
                {"role": "tool", "tool_messages": [
                    {"id": "c1", "role": "tool", "content": "x", "requestor": "assistant", "error": true},
                    {"id": "c2", "role": "tool", "content": "y", "requestor": "assistant"}]}]})
    };
    let info = json!({"max_steps": 100, "max_errors": 10, "agent_info": {"llm": "m", "implementation": "i"},
        "environment_info": {"domain_name": "retail"}});
    let results = json!({"timestamp": "t", "info": info, "tasks": [{"id": "simulations"}],
        "simulations": [simulation("s1", 1.0), simulation("s2", 0.5)]});
    for text in [results.to_string(), serde_json::to_string_pretty(&results).unwrap()] {
        let runs = parsed("results.json", text);
        assert_eq!(runs.len(), 2);
        assert_eq!(counts(&runs[0]), [1, 1, 2, 2, 1]);
        assert_eq!(runs[0].model.as_deref(), Some("m"));
        assert_eq!(runs[0].task_id.as_deref(), Some("retail/5"));
        assert_eq!(json!(runs[0].limits), json!({"max_steps": 100, "max_errors": 10}));
        assert_eq!(ending(&runs[0]), Some(("agent_error", Some("too_many_errors"))));
        assert_eq!((runs[0].recorded.success, runs[1].recorded.success), (Some(true), Some(false)));
        assert_eq!(runs[0].steps[0].usage.as_ref().unwrap().prompt_tokens, Some(3));
        assert_eq!(runs[1].origin.at, Some(2));
    }
    // A simulation in a separate file takes them from the results in its folder or the one above.
    let folder = Folder::new("tau2");
    folder.file("results.json", json!({"info": info, "tasks": []}).to_string());
    folder.file("simulations/s1.json", simulation("s1", 1.0).to_string());
    let (runs, problems) = read_with(&folder.0, &Options::default());
    assert_eq!((problems.len(), runs.len()), (0, 1));
    assert_eq!(runs[0].model.as_deref(), Some("m"));
}

#[test]
fn truncated_list_gives_complete_elements() {
    let text = std::fs::read(crate::common::fixture("tau_bench/gpt-4o-airline.json")).unwrap();
    let (runs, problems) = read_bytes("x.json", &text[..text.len() - 3000], &Options::default());
    assert_eq!((runs.len(), problems.len()), (3, 1));
    assert_eq!((problems[0].kind, problems[0].at), (ProblemKind::Half, Some(4)));
}
