//! Tests the reader for neutral-traj/1.

use crate::common::{counts, ending, parsed, read_bytes, runs};
use endstop_trajectory::Role;
use endstop_trajectory::read::{Options, ProblemKind};
use serde_json::json;

#[test]
fn fixture_counts_match_script() {
    let runs = runs("neutral/mixed.jsonl");
    let mut sums = [0; 5];
    for run in &runs {
        for (sum, count) in sums.iter_mut().zip(counts(run)) {
            *sum += count;
        }
    }
    assert_eq!((runs.len(), &sums[1..]), (9, &[23, 15, 15, 2][..]));
    assert_eq!(runs[0].run_id, "tau-airline-gpt4o-t42-r0");
    assert_eq!(ending(&runs[0]), Some(("handoff", Some("transfer_to_human_agents"))));
    assert_eq!(runs[0].limits["max_steps"], 30);
    assert_eq!(runs[0].origin.at, Some(1));
    let success: Vec<_> = runs.iter().map(|run| run.recorded.success.unwrap()).collect();
    assert_eq!(success, [true, true, true, true, false, true, true, true, true]);
    assert_eq!(runs[3].totals.extra.keys().collect::<Vec<_>>(), ["latency_ms"]);
}

#[test]
fn every_member_is_mapped() {
    let line = json!({
        "schema": "neutral-traj/1", "run_id": "r", "source": "s", "task_id": 7, "trial": 2,
        "outcome": {"reward": 0.25, "success": null, "by": "hand"}, "model": "m", "agent": "a",
        "limits": {"max_steps": null, "timeout_s": 3}, "labels": {"gold": [1]}, "tags": ["x", "y"],
        "termination": {"reason": "timeout", "native": null, "final_answer": "42", "more": 1},
        "totals": {"prompt_tokens": 5, "cost_usd": 0.5, "turns": 1, "api_calls": null},
        "steps": [
            {"index": 0, "role": "system", "text": "é \"quoted\"", "tool_calls": [], "tool_results": []},
            {"index": 1, "role": "agent", "text": "", "reasoning": "why", "agent": "b", "cost": 1,
             "tool_calls": [{"id": null, "name": "f", "arguments": "{\"a\": 1}"},
                            {"id": "c", "name": "g", "arguments": "rm -rf"}, {"id": "d", "name": "h"}],
             "tool_results": [{"call_id": "c", "content": "no", "is_error": true, "exit_code": 2, "x": 1}],
             "usage": {"prompt_tokens": 5, "reasoning_tokens": 1, "audio_tokens": 9},
             "reward": 0.25, "timestamp": "2026-01-01T00:00:00Z", "finish_reason": "stop",
             "extra": {"no_action": true}, "later": [1]}
        ],
        "invented": {"a": 1}
    });
    let run = parsed("r.jsonl", line.to_string()).remove(0);
    assert_eq!((&*run.run_id, run.task_id.as_deref()), ("r", Some("7")));
    assert_eq!((run.trial.as_deref(), run.recorded.reward), (Some("2"), Some(0.25)));
    assert_eq!(run.recorded.success, None);
    assert_eq!(run.ending.as_ref().unwrap().answer.as_deref(), Some("42"));
    assert_eq!(json!(run.limits), json!({"max_steps": null, "timeout_s": 3}));
    assert_eq!(json!(run.totals.extra), json!({"api_calls": null}));
    assert_eq!(
        json!(run.extra),
        json!({"source": "s", "outcome": {"by": "hand"}, "termination": {"more": 1},
               "invented": {"a": 1}})
    );
    let step = &run.steps[1];
    assert_eq!((step.role, step.reasoning.as_deref()), (Role::Agent, Some("why")));
    let arguments: Vec<_> = step.calls.iter().map(|call| &*call.arguments).collect();
    assert_eq!(arguments, ["{\"a\": 1}", "\"rm -rf\"", "{}"]);
    let result = &step.results[0];
    assert_eq!((result.is_error, result.exit_code), (true, Some(2)));
    assert_eq!(json!(result.extra), json!({"x": 1}));
    assert_eq!(json!(step.extra), json!({"no_action": true, "later": [1]}));
    let usage = step.usage.as_ref().unwrap();
    assert_eq!((usage.prompt_tokens, usage.reasoning_tokens), (Some(5), Some(1)));
    assert_eq!(json!(usage.extra), json!({"audio_tokens": 9}));
    assert_eq!(run.notes, [""; 0]);
}

#[test]
fn invalid_line_leaves_next_readable() {
    let good =
        |id: &str| format!("{{\"schema\":\"neutral-traj/1\",\"run_id\":\"{id}\",\"steps\":[]}}\n");
    let bad = [
        (
            "{\"schema\":\"neutral-traj/2\",\"run_id\":\"x\"}\n",
            ProblemKind::UnknownVersion,
            "neutral-traj/2",
        ),
        ("{\"run_id\":\"x\",\"steps\":[]}\n", ProblemKind::Malformed, "`schema`"),
        (
            "{\"schema\":\"neutral-traj/1\",\"steps\":[{\"role\":\"robot\"}]}\n",
            ProblemKind::Malformed,
            "steps: role",
        ),
        (
            "{\"schema\":\"neutral-traj/1\",\"steps\":[{\"text\":\"\"}]}\n",
            ProblemKind::Malformed,
            "missing `role`",
        ),
        (
            "{\"schema\":\"neutral-traj/1\",\"model\":5}\n",
            ProblemKind::Malformed,
            "model: invalid type",
        ),
        ("{\"schema\":\"neutral-traj/1\",\"run_id\":\n", ProblemKind::Half, "truncated after"),
        ("[1]\n", ProblemKind::Malformed, "expected an object"),
        ("hello\n", ProblemKind::Malformed, "expected"),
    ];
    let mut text = good("first");
    for (line, ..) in bad {
        text.push_str(line);
    }
    text.push_str(&good("last"));
    let (runs, problems) = read_bytes("x.jsonl", text, &Options::default());
    let ids: Vec<_> = runs.iter().map(|run| &*run.run_id).collect();
    assert_eq!(ids, ["first", "last"]);
    assert_eq!(runs[1].origin.at, Some(2 + bad.len() as u64));
    assert_eq!(problems.len(), bad.len());
    for ((problem, (line, kind, what)), at) in problems.iter().zip(bad).zip(2..) {
        assert_eq!((problem.kind, problem.at), (kind, Some(at)), "{line}: {problem}");
        assert!(problem.what.contains(what), "{problem}");
    }
}

#[test]
fn problem_does_not_quote_recorded_text() {
    let line = "{\"schema\":\"neutral-traj/1\",\"steps\":\"a-secret-of-mine\"}\n";
    let (_, problems) = read_bytes("x.jsonl", line, &Options::default());
    assert_eq!(problems[0].what.split(',').next(), Some("steps: invalid type: string"));
}

#[test]
fn steps_out_of_order_are_noted() {
    let line = "{\"schema\":\"neutral-traj/1\",\"run_id\":\"x\",\"steps\":[\
        {\"index\":1,\"role\":\"user\",\"text\":\"b\"},{\"index\":0,\"role\":\"user\",\"text\":\"a\"}]}";
    let run = parsed("x.jsonl", line).remove(0);
    assert_eq!(run.notes[0], "steps out of order: step 0 has the index 1");
}

#[test]
fn duplicate_steps_member_is_replaced() {
    let steps = "[{\"index\":0,\"role\":\"agent\",\"text\":\"b\"}]";
    let line = format!("{{\"schema\":\"neutral-traj/1\",\"steps\":{steps},\"steps\":{steps}}}");
    let run = parsed("x.jsonl", line).remove(0);
    assert_eq!((run.turns().count(), run.notes.len()), (1, 1));
}
