//! Tests the reader for ToT-HF.

use crate::common::{counts, ending, fixture, parsed, read_bytes, runs};
use endstop_trajectory::read::{Options, ProblemKind};
use serde_json::{Value, json};

#[test]
fn fixture_counts_match_manual_count() {
    let run = runs("tothf/BASELINE-REACT-20260221-191427-4f5d00.json").remove(0);
    assert_eq!(run.run_id, "BASELINE-REACT-20260221-191427-4f5d00");
    assert_eq!(run.task_id.as_deref(), Some("subset-sum-demo/ss-v1-002"));
    assert_eq!(counts(&run), [6, 5, 1, 1, 1]);
    assert_eq!(ending(&run), Some(("max_steps", Some("max_steps_exceeded"))));
    assert_eq!((run.recorded.success, run.limits["max_steps"].clone()), (Some(false), json!(5)));
    assert_eq!(run.totals.prompt_tokens, Some(1496));
    assert_eq!(run.totals.completion_tokens, Some(614));
    let call = &run.steps[1].calls[0];
    assert_eq!((&*call.name, &*call.arguments), ("check_target", r#"{"raw":"[2, 8, 10] 20"}"#));
    assert_eq!(run.steps[2].extra.as_ref().unwrap()["no_action"], true);

    let run = runs("tothf/BASELINE-REACT-20260223-022118-4a9309.json").remove(0);
    // The last text also contains a call, but nothing ran after the answer.
    assert_eq!(counts(&run), [3, 2, 2, 1, 0]);
    assert_eq!(ending(&run), Some(("final", Some("success"))));
    assert_eq!(run.ending.unwrap().answer.as_deref(), Some("x=-9,y=-3"));
}

fn of(trace: Value) -> Value {
    json!({"run_id": "r", "condition_id": "baseline-react", "task_id": "t", "item_id": "1",
        "outcome": "failure", "metrics": {"success": 0}, "trace": trace})
}

#[test]
fn first_action_is_the_call() {
    let said = "STEP 1 MODEL: THINK: a\nACTION: calc 1 + 1\nSTEP 1 OBSERVATION: 3\nACTION: calc 2";
    let run = parsed("a.json", of(json!([said, "STEP 1 OBSERVATION: 2"])).to_string()).remove(0);
    assert_eq!(counts(&run), [2, 1, 1, 1, 0]);
    assert_eq!(run.steps[1].calls[0].arguments, r#"{"raw":"1 + 1"}"#);
    assert_eq!(run.steps[1].results[0].content, "2");
}

#[test]
fn observation_of_cut_action_is_stored() {
    let trace = json!(["STEP 1 MODEL: THINK: a long", "STEP 1 OBSERVATION: error: no tool"]);
    let run = parsed("a.json", of(trace).to_string()).remove(0);
    assert_eq!(counts(&run), [2, 1, 0, 1, 1]);
    assert_eq!(run.notes, ["results without a call: 1"]);
    let run = parsed("a.json", of(json!(["RETRY 1", 7])).to_string()).remove(0);
    assert_eq!(run.notes, ["entries of the trace that are not steps: 2"]);
    assert_eq!(run.extra["trace"], json!(["RETRY 1", 7]));
}

#[test]
fn lines_equal_single_files() {
    let file = "tothf/BASELINE-REACT-20260221-191427-4f5d00.json";
    let whole: Value = serde_json::from_slice(&std::fs::read(fixture(file)).unwrap()).unwrap();
    let two = parsed("a.jsonl", format!("{whole}\n{whole}\n"));
    assert_eq!((two.len(), two[1].origin.at), (2, Some(2)));
    assert_eq!(two[0].steps, runs(file)[0].steps);
    let as_flag = of(json!([])).to_string().replace("\"success\":0", "\"success\":true");
    assert_eq!(parsed("a.json", as_flag)[0].recorded.success, Some(true));
    let broken =
        json!({"run_id": "r", "condition_id": "c", "item_id": "1", "trace": [], "metrics": 7});
    let text = broken.to_string();
    assert_eq!(parsed("a.json", text.clone())[0].recorded.success, None);
    let (runs, problems) = read_bytes("a.json", &text[..text.len() - 3], &Options::default());
    assert_eq!((runs.len(), problems[0].kind), (0, ProblemKind::Half));
}

#[test]
fn errors_outrank_outcomes() {
    for (outcome, error, want) in [
        (json!("success"), json!(null), Some(("final", Some("success")))),
        (json!("timeout"), json!(null), Some(("timeout", Some("timeout")))),
        (
            json!("failure"),
            json!("max_steps_exceeded"),
            Some(("max_steps", Some("max_steps_exceeded"))),
        ),
        (json!("success"), json!("tool_crash"), Some(("unknown", Some("tool_crash")))),
        (json!("stopped"), json!(7), Some(("unknown", Some("stopped")))),
        (json!(null), json!(null), None),
    ] {
        let mut file = of(json!([]));
        file["outcome"] = outcome;
        file["error_type"] = error;
        file["final_answer"] = json!("42");
        let run = parsed("a.json", file.to_string()).remove(0);
        assert_eq!(ending(&run), want, "{file}");
        let answer = run.ending.as_ref().and_then(|ending| ending.answer.as_deref());
        assert_eq!(answer, want.map(|_| "42"), "{file}");
    }
}

#[test]
fn hostile_traces_lose_nothing() {
    let trace = json!(["STEP 1 OBSERVATION: early", "STEP x MODEL: a", "STEP 1 MODEL", "STEP 2 THOUGHT: b",
        "STEP 3 MODEL: ACTION:", "STEP 3 OBSERVATION: invalid action", "STEP 3 OBSERVATION: again",
        "STEP 18446744073709551616 MODEL: c", {"a": 1}]);
    let mut file = of(trace);
    file["budget"] = json!({"tokens": 9});
    file["max_steps"] = json!(null);
    file["metrics"] = json!({"success": 2, "tokens_in": 1.5, "cost_usd": "free", "latency": null});
    let run = parsed("a.json", file.to_string()).remove(0);
    assert_eq!(counts(&run), [2, 1, 1, 2, 1]);
    let call = &run.steps[1].calls[0];
    assert_eq!((&*call.name, &*call.arguments), ("", r#"{"raw":""}"#));
    assert_eq!(run.extra["trace"].as_array().unwrap().len(), 6);
    assert_eq!(run.notes[0], "entries of the trace that are not steps: 6");
    assert_eq!(run.limits, *json!({"tokens": 9}).as_object().unwrap());
    assert_eq!((run.totals.prompt_tokens, run.totals.cost_usd), (None, None));
}
