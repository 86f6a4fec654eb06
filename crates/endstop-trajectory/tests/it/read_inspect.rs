//! Tests the reader for Inspect. The expected counts come from a script that read the raw files.

use crate::reading::{bytes, counts, ending, fixture, read, tokens};
use endstop_trajectory::Role;
use endstop_trajectory::read::ProblemKind;
use serde_json::{Value, json};
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

#[test]
fn each_epoch_of_sample_is_run() {
    let read = fixture("inspect", "log_streaming.eval");
    let runs: Vec<_> = read
        .runs
        .iter()
        .map(|run| (&*run.run_id, run.trial.as_deref().unwrap(), run.recorded.success))
        .collect();
    assert_eq!(
        runs,
        [
            ("WckPjG7ovQZLAiZF2fZpog/2_epoch_2", "2", Some(true)),
            ("WckPjG7ovQZLAiZF2fZpog/2_epoch_1", "1", Some(true)),
            ("WckPjG7ovQZLAiZF2fZpog/1_epoch_1", "1", Some(false)),
            ("WckPjG7ovQZLAiZF2fZpog/1_epoch_2", "2", Some(true)),
        ]
    );
    assert_eq!(read.runs[0].task_id.as_deref(), Some("popularity/2"));
    assert_eq!(read.runs[0].task_id, read.runs[1].task_id);
    assert!(read.runs.iter().all(|run| counts(run) == (3, 1, 0, 0, 0)));
    assert_eq!(ending(&read.runs[0]), Some(("final", "stop")));
}

#[test]
fn first_layout_stores_texts_in_transcript() {
    let read = fixture("inspect", "log_formats.json");
    let run = read.only();
    assert_eq!(counts(run), (3, 1, 0, 0, 0));
    let turn = run.turns().next().unwrap();
    assert_eq!((&*turn.text, turn.finish_reason.as_deref()), ("No", Some("stop")));
    assert_eq!(tokens(turn), (Some(66), Some(2), None));
    assert_eq!(turn.at.as_deref().map(|at| &at[..19]), Some("2024-10-15T12:53:13"));
    assert_eq!((run.recorded.success, run.recorded.reward), (Some(false), Some(0.0)));
    assert_eq!(run.labels["target"], " Yes");
}

#[test]
fn tool_errors_mark_failures() {
    let read = fixture("inspect", "log_tool_call_error.json");
    let run = read.only();
    // The log has no message of the model: the results are in a step that is not a turn.
    assert_eq!(counts(run), (1, 0, 0, 11, 11));
    assert_eq!(run.steps[0].role, Role::User);
    assert_eq!(run.notes, ["results without a call: 11"]);
    let error = &run.steps[0].results[1].extra.as_ref().unwrap()["error"];
    assert_eq!(error["type"], "timeout");
}

#[test]
fn pooled_messages_do_not_change_run() {
    let read = fixture("inspect", "log_message_deduplication.eval");
    let run = read.only();
    assert_eq!(counts(run), (7, 6, 5, 5, 0));
    assert_eq!(run.steps[6].text, "done");
    assert_eq!((run.recorded.success, run.recorded.reward), (Some(false), Some(0.0)));
}

#[test]
fn bundle_is_sample_with_attachments() {
    let read = fixture("inspect", "inspect-sample-bundle.json");
    let run = read.only();
    assert_eq!(counts(run), (4, 2, 1, 1, 0));
    assert_eq!(run.steps[0].text, "You are an agent working in a sandbox.");
    assert_eq!(run.steps[2].results[0].content, "app.py\nwidgets.py\n");
    assert_eq!(run.steps[2].reasoning.as_deref(), Some("Look at the tree first."));
    // In this log the input excludes cached tokens, as the total shows.
    assert_eq!(tokens(&run.steps[2]), (Some(1500), Some(60), Some(1000)));
    assert_eq!(run.recorded.success, None);
    assert_eq!((run.model.as_deref(), run.totals.wall_s), (Some("vendor/model-a"), Some(750.0)));
    assert!(run.extra["beside"]["cost"].is_object());
}

#[test]
fn log_without_samples_is_reported() {
    let read = fixture("inspect", "2025-05-12T20-28-13-04-00_no-samples.json");
    assert_eq!((read.runs.len(), read.kinds()), (0, vec![(None, ProblemKind::NoTrajectory)]));
}

fn sample(more: Value) -> Value {
    let mut sample = json!({"id": "a/b", "epoch": 1, "input": "go", "target": "", "messages": [
        {"role": "user", "content": "go", "source": "input"},
        {"role": "assistant", "content": "few", "source": "input"},
        {"role": "user", "content": "now", "source": "input"},
        {"role": "assistant", "content": "did", "source": "generate"},
    ], "output": {"choices": [{"message": {"role": "assistant", "content": "did"}, "stop_reason": "stop"}],
        "usage": {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12, "input_tokens_cache_read": 4}}});
    for (key, value) in more.as_object().unwrap() {
        sample[key] = value.clone();
    }
    sample
}

fn log(sample: &Value) -> Vec<u8> {
    let eval = json!({"task": "t", "task_id": "i", "model": "m", "config": {"message_limit": 5, "limit": 1}});
    json!({"version": 2, "status": "success", "eval": eval, "samples": [sample]})
        .to_string()
        .into_bytes()
}

#[test]
fn input_messages_are_not_turns() {
    let read = read("inspect", &log(&sample(json!({}))));
    let run = read.only();
    assert_eq!(counts(run), (4, 1, 0, 0, 0));
    assert!(run.steps[1].copied);
    // The total is the sum of both, so the input includes the cached tokens.
    assert_eq!(tokens(run.turns().next().unwrap()), (Some(10), Some(2), Some(4)));
    assert_eq!(run.limits["message_limit"], 5);
    assert_eq!(run.limits.len(), 1);
}

#[test]
fn sample_ending_has_three_sources() {
    let of = |more: Value| read("inspect", &log(&sample(more))).only().ending.clone();
    let reason = |more: Value| of(more).map(|ending| ending.reason.into_owned());
    for (limit, expected) in [
        ("context", "context_overflow"),
        ("time", "timeout"),
        ("working", "timeout"),
        ("message", "max_steps"),
        ("token", "token_limit"),
        ("turn", "max_turns"),
        ("cost", "cost_limit"),
        ("operator", "cancelled"),
        ("custom", "unknown"),
    ] {
        let limit = json!({"limit": {"type": limit, "limit": 5}});
        assert_eq!(reason(limit).as_deref(), Some(expected));
    }
    let error = of(json!({"error": {"message": "died", "traceback": "t"}})).unwrap();
    assert_eq!((&*error.reason, error.failure_mode.as_deref()), ("harness_error", Some("died")));
    let choice = |stop: &str| json!({"output": {"choices": [{"message": {"content": "did"}, "stop_reason": stop}]}});
    assert_eq!(reason(choice("max_tokens")).as_deref(), Some("output_length"));
    assert_eq!(reason(choice("model_length")).as_deref(), Some("context_overflow"));
    assert_eq!(reason(choice("content_filter")).as_deref(), Some("unknown"));
    let submit = json!({"messages": [{"role": "assistant", "content": "", "tool_calls": [
        {"id": "c", "function": "submit", "arguments": {"answer": "42"}, "type": "function"}]}]});
    let submitted = of(submit).unwrap();
    assert_eq!((&*submitted.reason, submitted.answer.as_deref()), ("agent_submit", Some("42")));
}

#[test]
fn nan_score_is_missing() {
    let text = String::from_utf8(log(&sample(json!({"scores": {"s": {"value": "NAN"}}})))).unwrap();
    let read = read("inspect", text.replace("\"NAN\"", "NaN").as_bytes());
    assert_eq!(read.only().recorded.reward, None);
}

#[test]
fn unsupported_version_is_refused() {
    let text = String::from_utf8(log(&sample(json!({})))).unwrap();
    let read = read("inspect", text.replace("\"version\":2", "\"version\":4").as_bytes());
    assert_eq!((read.runs.len(), read.kinds()), (0, vec![(None, ProblemKind::UnknownVersion)]));
}

fn archive(entries: &[(&str, &[u8])], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        zip.start_file(*name, SimpleFileOptions::default().compression_method(method)).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

#[test]
fn archive_compression_and_header_may_vary() {
    let header = br#"{"version": 2, "eval": {"task": "t", "task_id": "i", "model": "m"}}"#;
    let one = sample(json!({})).to_string();
    for method in [CompressionMethod::Deflated, CompressionMethod::Zstd, CompressionMethod::Stored]
    {
        // A sample's id may contain a slash.
        let entries: [(&str, &[u8]); 2] =
            [("_journal/start.json", header), ("samples/a/b_epoch_1.json", one.as_bytes())];
        let read = read("inspect", &archive(&entries, method));
        assert_eq!((&*read.only().run_id, counts(read.only())), ("i/a/b_epoch_1", (4, 1, 0, 0, 0)));
    }
    let chunked: [(&str, &[u8]); 2] =
        [("header.json", header), ("samples/a_epoch_1/sample.json", b"{}")];
    let read = read("inspect", &archive(&chunked, CompressionMethod::Deflated));
    assert_eq!((read.runs.len(), read.kinds()), (0, vec![(None, ProblemKind::UnknownVersion)]));
}

#[test]
fn truncated_archive_is_reported() {
    let whole = bytes("inspect", "log_streaming.eval");
    let read = read("inspect", &whole[..whole.len() / 2]);
    assert_eq!((read.runs.len(), read.kinds()), (0, vec![(None, ProblemKind::Unreadable)]));
}

#[test]
fn missing_attachments_are_noted() {
    let messages = json!([
        {"role": "user", "content": "attachment://here", "source": "input"},
        {"role": "assistant", "content": [{"type": "text", "text": "attachment://gone"}], "source": "generate"},
        {"role": "tool", "content": "see attachment://here", "tool_call_id": "c"},
        {"role": "narrator", "content": "?"},
        {"content": "?"},
    ]);
    let more = json!({"messages": messages, "attachments": {"here": "go", "gone": 7}, "input": "go",
        "metadata": {"note": "attachment://here"}});
    let read = read("inspect", &log(&sample(more)));
    let run = read.only();
    let texts: Vec<_> = run.steps.iter().map(|step| &*step.text).collect();
    assert_eq!(texts, ["go", "attachment://gone"]);
    // Only a whole text is a reference, not a part of one.
    assert_eq!(run.steps[1].results[0].content, "see attachment://here");
    assert_eq!(run.extra["metadata"]["note"], "go");
    assert!(!run.extra.contains_key("input"), "the first message is the input");
    for note in [
        "references to texts that are not in the sample",
        "results without a call: 1",
        "messages with an unknown role: narrator 1, without a role 1",
    ] {
        assert!(run.notes.iter().any(|have| have == note), "{note}: {:?}", run.notes);
    }
}

#[test]
fn tools_of_provider_have_results() {
    let tool = |id: &str, more: Value| {
        let mut part =
            json!({"type": "tool_use", "id": id, "name": "web_search", "arguments": "{\"q\": 1}"});
        part.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        part
    };
    let content = json!([tool("p1", json!({"result": [{"type": "text", "text": "found"}], "error": null})),
        tool("p2", json!({"result": "half", "error": "no network"})), tool("p3", json!({})),
        {"type": "reasoning", "reasoning": "", "summary": "short"}, {"type": "text", "text": "did"},
        {"type": "image", "image": "data:,"}]);
    let messages =
        json!([{"role": "assistant", "content": content, "source": "generate", "model": "m2"}]);
    let read = read("inspect", &log(&sample(json!({ "messages": messages }))));
    let turn = read.only().turns().next().unwrap();
    assert_eq!((&*turn.text, turn.reasoning.as_deref()), ("did", Some("short")));
    let results: Vec<_> = turn.results.iter().map(|r| (&*r.content, r.is_error)).collect();
    assert_eq!(results, [("found", false), ("no network", true), ("", false)]);
    assert!(turn.calls.iter().all(|call| call.arguments == "{\"q\": 1}"));
    assert_eq!(turn.extra.as_ref().unwrap()["content"][0]["type"], "image");
    assert_eq!((turn.model.as_deref(), read.only().model.as_deref()), (Some("m2"), Some("m")));
}

#[test]
fn events_describe_their_messages() {
    let event = |id: Value, said: &str, input: u64| {
        json!({"event": "model", "timestamp": "2026-01-01T00:00:00Z", "working_time": 1.5, "output": {
            "choices": [{"message": {"id": id, "content": said}, "stop_reason": "stop"}],
            "usage": {"input_tokens": input, "output_tokens": 1, "total_cost": 0.25}}})
    };
    // Calls of a scorer and calls that failed come in between.
    let events = json!([event(json!(null), "judge", 1), {"event": "model", "output": {"choices": []}}, 7,
        {"event": "state"}, event(json!(null), "did", 20), event(json!("x"), "other", 30)]);
    let read = read("inspect", &log(&sample(json!({ "events": events }))));
    let run = read.only();
    let turn = run.turns().next().unwrap();
    assert_eq!((tokens(turn).0, turn.cost_usd), (Some(20), Some(0.25)));
    assert_eq!(turn.at.as_deref(), Some("2026-01-01T00:00:00Z"));
    assert_eq!(run.notes, ["events that are not steps: state 1, without a name 1"]);
    let by_id = json!({"events": events, "messages": [
        {"role": "assistant", "content": "rewritten", "id": "x", "source": "generate"}]});
    let read = self::read("inspect", &log(&sample(by_id)));
    assert_eq!(tokens(read.only().turns().next().unwrap()).0, Some(30));
}

#[test]
fn malformed_samples_are_named() {
    for (sample, what) in [
        (json!({"epoch": 1}), "a sample without its `id`"),
        (json!({"id": null}), "a sample without its `id`"),
        (
            json!({"id": 1, "messages": ["go"]}),
            "invalid `messages[0]`: expected an object, found a string",
        ),
        (json!([]), "invalid sample: expected an object, found a list"),
    ] {
        let read = read("inspect", &log(&sample));
        let problem = &read.problems[0];
        assert_eq!((read.runs.len(), problem.kind), (0, ProblemKind::Malformed), "{sample}");
        assert_eq!(problem.what, what, "{sample}");
    }
    // Ids may be numbers, and a run needs neither messages nor an output.
    let read = read(
        "inspect",
        &log(&json!({"id": 7, "epoch": "2", "messages": null, "output": 3, "total_time": "x"})),
    );
    let run = read.only();
    assert_eq!((&*run.run_id, run.trial.as_deref()), ("i/7_epoch_2", Some("2")));
    assert!(run.is_tagged("summary_only"));
}
