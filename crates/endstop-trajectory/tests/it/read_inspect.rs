//! Logs of Inspect. The counts of the fixtures are those of a script that read the raw files.

use crate::reading::{bytes, counts, ending, fixture, read, tokens};
use endstop_trajectory::Role;
use endstop_trajectory::read::ProblemKind;
use serde_json::{Value, json};
use std::io::{Cursor, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

#[test]
fn samples_of_each_epoch_are_runs() {
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
fn the_first_layout_has_its_texts_in_a_transcript() {
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
fn failures_of_tools_are_those_that_say_so() {
    let read = fixture("inspect", "log_tool_call_error.json");
    let run = read.only();
    // No message of the model is there: what is left has a step that is no turn.
    assert_eq!(counts(run), (1, 0, 0, 11, 11));
    assert_eq!(run.steps[0].role, Role::User);
    assert_eq!(run.notes, ["results without a call: 11"]);
    let error = &run.steps[0].results[1].extra.as_ref().unwrap()["error"];
    assert_eq!(error["type"], "timeout");
}

#[test]
fn pooled_messages_do_not_matter_to_the_run() {
    let read = fixture("inspect", "log_message_deduplication.eval");
    let run = read.only();
    assert_eq!(counts(run), (7, 6, 5, 5, 0));
    assert_eq!(run.steps[6].text, "done");
    assert_eq!((run.recorded.success, run.recorded.reward), (Some(false), Some(0.0)));
}

#[test]
fn a_bundle_is_one_sample_with_its_attachments() {
    let read = fixture("inspect", "inspect-sample-bundle.json");
    let run = read.only();
    assert_eq!(counts(run), (4, 2, 1, 1, 0));
    assert_eq!(run.steps[0].text, "You are an agent working in a sandbox.");
    assert_eq!(run.steps[2].results[0].content, "app.py\nwidgets.py\n");
    assert_eq!(run.steps[2].reasoning.as_deref(), Some("Look at the tree first."));
    // Cached tokens are beside the input here, as the total says.
    assert_eq!(tokens(&run.steps[2]), (Some(1500), Some(60), Some(1000)));
    assert_eq!(run.recorded.success, None);
    assert_eq!((run.model.as_deref(), run.totals.wall_s), (Some("vendor/model-a"), Some(750.0)));
    assert!(run.extra["beside"]["cost"].is_object());
}

#[test]
fn a_log_without_samples_is_said() {
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
fn messages_that_came_with_the_sample_are_no_turns() {
    let read = read("inspect", &log(&sample(json!({}))));
    let run = read.only();
    assert_eq!(counts(run), (4, 1, 0, 0, 0));
    assert!(run.steps[1].copied);
    // The total has no more than both: the cached tokens are of the input.
    assert_eq!(tokens(run.turns().next().unwrap()), (Some(10), Some(2), Some(4)));
    assert_eq!(run.limits["message_limit"], 5);
    assert_eq!(run.limits.len(), 1);
}

#[test]
fn a_sample_ends_as_its_limit_its_error_or_its_model_says() {
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
fn numbers_that_json_has_not_are_read_as_nothing() {
    let text = String::from_utf8(log(&sample(json!({"scores": {"s": {"value": "NAN"}}})))).unwrap();
    let read = read("inspect", text.replace("\"NAN\"", "NaN").as_bytes());
    assert_eq!(read.only().recorded.reward, None);
}

#[test]
fn a_version_of_the_future_is_refused() {
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
fn archives_may_be_packed_either_way_and_lack_their_header() {
    let header = br#"{"version": 2, "eval": {"task": "t", "task_id": "i", "model": "m"}}"#;
    let one = sample(json!({})).to_string();
    for method in [CompressionMethod::Deflated, CompressionMethod::Zstd, CompressionMethod::Stored]
    {
        // An id may have a slash in it.
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
fn an_archive_that_is_not_one_is_said() {
    let whole = bytes("inspect", "log_streaming.eval");
    let read = read("inspect", &whole[..whole.len() / 2]);
    assert_eq!((read.runs.len(), read.kinds()), (0, vec![(None, ProblemKind::Unreadable)]));
}
