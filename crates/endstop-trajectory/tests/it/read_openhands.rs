//! Tests the reader for OpenHands.

use crate::common::{counts, ending, parsed, read_bytes, runs};
use endstop_trajectory::read::{Options, ProblemKind};
use serde_json::{Value, json};

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

fn log(response: Value, more: Value) -> String {
    let mut log = json!({"messages": [{"role": "user", "content": "go"}], "kwargs": {"tools": [1], "seed": 7},
        "response": response});
    log.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    log.to_string()
}

fn said(message: Value) -> Value {
    json!({"id": "r1", "model": "m", "choices": [{"message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "cache_creation_input_tokens": 3}})
}

#[test]
fn finish_arguments_may_be_anything() {
    for (arguments, answer) in [
        (json!("{\"message\": \"done\"}"), Some("done")),
        (json!({"message": "done"}), Some("done")),
        (json!("{\"message\": 7}"), None),
        (json!("{\"message\": "), None),
        (json!("[]"), None),
        (json!(null), None),
    ] {
        let call = json!({"id": "c", "function": {"name": "finish", "arguments": arguments}});
        let message = json!({"role": "user", "content": null, "tool_calls": [call]});
        let run = parsed("a.json", log(said(message), json!({}))).remove(0);
        // The response is the model's, although the log gives it another role.
        assert_eq!(counts(&run), [2, 1, 1, 0, 0], "{arguments}");
        assert_eq!(ending(&run), Some(("final", Some("finish"))), "{arguments}");
        assert_eq!(run.ending.as_ref().unwrap().answer.as_deref(), answer, "{arguments}");
        let usage = run.steps[1].usage.as_ref().unwrap();
        assert_eq!((usage.cache_write_tokens, usage.extra.len()), (Some(3), 0));
        assert_eq!(run.steps[1].extra.as_ref().unwrap()["response_id"], "r1");
        assert_eq!(run.extra["kwargs"], json!({"seed": 7}));
    }
}

#[test]
fn odd_times_are_not_invented() {
    let message = json!({"content": "a"});
    for (timestamp, at) in [
        (json!(0), Some("1970-01-01T00:00:00.000000000Z")),
        (json!(1757015025.5), Some("2025-09-04T19:43:45.500000000Z")),
        (json!(-1), None),
        (json!(1e300), None),
        (json!("yesterday"), None),
    ] {
        let log = log(said(message.clone()), json!({"timestamp": timestamp}));
        let run = parsed("a.json", log).remove(0);
        assert_eq!(run.steps[1].at.as_deref(), at, "{timestamp}");
        let rest = run.extra.get("timestamp");
        assert_eq!(rest, at.is_none().then_some(&timestamp), "an unknown time is stored as it is");
    }
}

#[test]
fn message_without_role_is_named() {
    let messages = json!({"messages": [{"role": "user", "content": "a"}, {"content": "b"}]});
    let log = log(said(json!({"content": "c"})), messages);
    let (runs, problems) = read_bytes("a.json", log, &Options::default());
    assert!(runs.is_empty());
    assert!(problems[0].to_string().ends_with("message 2: missing `role`"), "{}", problems[0]);
}
