//! Tests the reader for OpenHands.

use crate::common::{counts, ending, parsed, read_bytes, runs};
use endstop_trajectory::read::{Options, ProblemKind};
use serde_json::json;

#[test]
fn log_is_run_up_to_response() {
    let run = runs("openhands/finish.json").remove(0);
    assert_eq!(counts(&run), [8, 6, 6, 5, 0]);
    assert_eq!((run.origin.format, run.is_tagged("call_log")), ("openhands-log", true));
    assert_eq!(ending(&run), Some(("final", Some("finish"))));
    let answer = run.ending.as_ref().unwrap().answer.as_deref().unwrap();
    assert!(answer.contains("hello.py"), "{answer}");
    assert_eq!(run.model.as_deref(), Some("litellm_proxy/claude-sonnet-4-20250514"));
    assert_eq!(run.recorded.success, None);
    let last = run.steps.last().unwrap();
    let usage = last.usage.as_ref().unwrap();
    assert_eq!((usage.prompt_tokens, usage.completion_tokens), (Some(6729), Some(199)));
    assert_eq!((usage.cached_tokens, usage.cache_write_tokens), (Some(0), Some(0)));
    assert_eq!(
        (last.cost_usd, last.finish_reason.as_deref()),
        (Some(0.023172), Some("tool_calls"))
    );
    assert_eq!(last.at.as_deref().map(|at| &at[..19]), Some("2025-09-04T19:44:06"));
    assert_eq!(run.turns().filter(|turn| turn.usage.is_some()).count(), 1);
    assert_eq!(run.notes, ["turns whose usage and cost are not in the file: 5"]);
    assert_eq!((run.totals.cost_usd, run.tools.len()), (None, 1));
}

#[test]
fn raw_messages_contain_the_calls() {
    let run = runs("openhands/as_text.json").remove(0);
    assert_eq!(counts(&run), [4, 2, 2, 1, 0]);
    assert_eq!(run.steps[2].calls[0].name, "terminal");
    assert_eq!(run.steps[2].calls[0].id, run.steps[2].results[0].call_id);
    let last = &run.steps[3];
    assert_eq!((&*last.calls[0].name, last.cost_usd), ("str_replace_editor", Some(0.00090112)));
    assert_eq!(last.usage.as_ref().unwrap().cached_tokens, Some(8000));
    assert_eq!(ending(&run), None, "more turns may follow");
}

#[test]
fn missing_response_is_malformed() {
    let log = |choices: serde_json::Value| {
        json!({"messages": [{"role": "user", "content": "a"}], "kwargs": {}, "cost": 1,
            "response": {"choices": choices}})
        .to_string()
    };
    let (runs, problems) = read_bytes("a.json", log(json!([])), &Options::default());
    assert_eq!((runs.len(), problems[0].kind), (0, ProblemKind::Malformed));
    let cut = log(json!([{"finish_reason": "length", "message": {"content": "b"}}, {}]));
    let run = parsed("a.json", cut).remove(0);
    assert_eq!(
        (counts(&run), ending(&run)),
        ([2, 1, 0, 0, 0], Some(("output_length", Some("length"))))
    );
    assert_eq!(run.notes, ["choices of the response that are ignored: 1"]);
}
