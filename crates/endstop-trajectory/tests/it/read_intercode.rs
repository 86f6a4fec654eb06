//! Tests the reader for InterCode.

use crate::common::{counts, ending, parsed, read_bytes, runs};
use endstop_trajectory::read::Options;
use serde_json::{Value, json};

#[test]
fn fixture_counts_match_script() {
    for (file, want) in [
        (
            "ic_bash_multiturn",
            vec![
                ("33", [3, 2, 2, 1, 0], false, None),
                ("42", [2, 1, 1, 1, 0], true, Some("reward_threshold")),
                ("51", [11, 10, 10, 10, 0], false, Some("max_turns")),
            ],
        ),
        (
            "ic_bash_react",
            vec![
                ("27", [4, 3, 3, 3, 1], false, Some("agent_submit")),
                ("40", [2, 1, 1, 1, 1], false, None),
            ],
        ),
        (
            "ic_bash_plan",
            vec![
                ("22", [4, 3, 3, 3, 0], true, Some("plan_end")),
                ("15", [4, 3, 3, 3, 0], false, Some("plan_end")),
            ],
        ),
        ("ic_sql_human", vec![("605", [5, 4, 4, 4, 0], true, None)]),
    ] {
        let runs = runs(&format!("intercode/{file}.json"));
        assert_eq!(runs.len(), want.len(), "{file}");
        for ((run, (id, numbers, success, end)), at) in runs.iter().zip(want).zip(1..) {
            assert_eq!(run.run_id, format!("{file}/{id}"));
            assert_eq!((counts(run), run.origin.at), (numbers, Some(at)), "{}", run.run_id);
            assert_eq!(run.recorded.success, Some(success), "{}", run.run_id);
            assert_eq!(ending(run).map(|(reason, _)| reason), end, "{}", run.run_id);
        }
    }
}

#[test]
fn actions_are_calls_with_step_rewards() {
    let run = runs("intercode/ic_bash_react.json").remove(0);
    assert_eq!(run.task_id.as_deref(), Some("bash/nl2bash_fs_2.json/27"));
    assert_eq!(run.limits["turns_max"], 10);
    let names: Vec<_> = run.turns().map(|step| &*step.calls[0].name).collect();
    assert_eq!(names, ["bash_exec", "bash_exec", "submit"]);
    let rewards: Vec<_> = run.turns().map(|step| step.reward).collect();
    assert_eq!(rewards, [Some(0.0), Some(0.0), Some(0.67)]);
    assert!(run.turns().all(|step| !step.text.is_empty()), "its thoughts");
    let plan = runs("intercode/ic_bash_plan.json").remove(0);
    assert_eq!(plan.extra["plan"].as_array().unwrap().len(), 3);
    assert_eq!(plan.extra["meta"]["refine"], false);
}

#[test]
fn error_messages_mark_failures() {
    let said = [
        "Error executing query: no table",
        "{'error': 'Error: invalid syntax'}",
        "No SQL code was found",
        "/bin/bash: line 1: ^x: command not found\n",
        "awk: line 1: syntax error at or near )",
        "fine",
        "an Error",
        "Errors: 0",
    ];
    let file = json!({"0": {"environment": "ic_bash", "query": "q", "summary": {"max_reward": 0},
        "turn_history": {"actions": said, "observations": said, "rewards": [],
                         "valid_action": [null, true]}}});
    let run = parsed("x.json", file.to_string()).remove(0);
    let failed: Vec<_> = run.turns().map(|step| step.results[0].is_error).collect();
    assert_eq!(failed, [true, true, true, true, true, false, false, false]);
}

#[test]
fn invalid_run_leaves_others_readable() {
    let run = json!({"environment": "ic_sql", "query": "q", "turn_history": {"actions": [[1]], "observations": [[["a", 1]]]}});
    let file = json!({"0": run, "1": {"environment": "ic_sql", "query": "q"}, "2": 5, "3": run});
    let (runs, problems) = read_bytes("x.json", file.to_string(), &Options::default());
    let ids: Vec<_> = runs.iter().map(|run| (&*run.run_id, run.origin.at)).collect();
    assert_eq!(ids, [("x/0", Some(1)), ("x/3", Some(4))]);
    assert_eq!(runs[0].steps[1].results[0].content, "[[\"a\",1]]");
    let said: Vec<_> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(said[0], "x.json:2: run `1`: missing `turn_history`: expected an object");
    assert!(said[1].starts_with("x.json:3: run `2`: invalid type"), "{}", said[1]);
}

fn entry(history: Value, summary: Value) -> Value {
    json!({"environment": "ic_sql", "dataset": "/data/x/dev.json", "query_idx": 4, "query": "q",
        "turn_history": history, "summary": summary})
}

#[test]
fn endings_have_one_order() {
    let of = |actions: Value, rewards: Value, plan: Value, summary: Value| {
        entry(
            json!({"actions": actions, "observations": ["o"], "rewards": rewards, "steps": plan}),
            summary,
        )
    };
    let over = json!({"max_reward": 0.2, "turns_max": 1, "turns_taken": 1});
    for (run, refined, reason) in [
        (of(json!(["submit"]), json!([1]), json!(["p"]), over.clone()), true, Some("agent_submit")),
        (of(json!(["submit 7"]), json!([0]), json!([]), over.clone()), false, Some("agent_submit")),
        (
            of(json!(["submits"]), json!([1.0]), json!([]), over.clone()),
            false,
            Some("reward_threshold"),
        ),
        (of(json!(["a"]), json!([0.99]), json!(["p"]), over), false, Some("max_turns")),
        (of(json!(["a"]), json!([null]), json!(["p"]), json!({})), true, Some("max_turns")),
        (of(json!(["a"]), json!(["x"]), json!(["p"]), json!(null)), false, Some("plan_end")),
        (
            of(json!(["a"]), json!([]), json!([]), json!({"turns_max": 3, "turns_taken": 1})),
            true,
            None,
        ),
    ] {
        let file = json!({"meta": {"refine": refined, "refine_turns": 9}, "logs": {"a": run}});
        let read = parsed("f.json", file.to_string()).remove(0);
        assert_eq!(ending(&read).map(|(reason, _)| reason), reason, "{file}");
        assert_eq!(read.limits.contains_key("refine_turns"), refined, "{file}");
        assert_eq!(read.task_id.as_deref(), Some("sql/dev.json/4"));
    }
}

#[test]
fn uneven_histories_are_noted() {
    let history = json!({"actions": [["SELECT", 1], null], "observations": [[["a", 1]], 7, "more"],
        "thoughts": ["t"], "valid_action": "yes", "rewards": [0.5]});
    let file = json!({"0": entry(history, json!({})), "1": {"environment": "ic_bash", "query": null, "reward": 1,
        "trajectory": [{"action": "ls"}, {"observation": "a.py"}]}});
    let runs = parsed("f.json", file.to_string());
    assert_eq!(counts(&runs[0]), [3, 2, 2, 2, 0]);
    assert_eq!(runs[0].notes, ["observations without an action: 1"]);
    let calls: Vec<_> = runs[0].turns().map(|turn| &*turn.calls[0].arguments).collect();
    assert_eq!(calls, [r#"{"command":"[\"SELECT\",1]"}"#, r#"{"command":""}"#]);
    assert_eq!(runs[0].steps[2].results[0].content, "7");
    assert_eq!(runs[0].extra["turn_history"], json!({"valid_action": "yes"}));
    // A turn without an observation has a call without a result.
    assert_eq!(counts(&runs[1]), [3, 2, 2, 1, 0]);
    assert_eq!((runs[1].recorded.success, runs[1].steps[0].text.len()), (Some(true), 0));
}
