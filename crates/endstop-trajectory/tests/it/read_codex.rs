//! Tests the reader for Codex. The expected counts of the fixtures were determined by hand.

use crate::reading::{counts, ending, fixture, ids, lines, read, tokens};
use endstop_trajectory::Role;
use serde_json::{Value, json};

#[test]
fn rollout_turns_have_tokens() {
    let read = fixture("codex", "atifmake_codex-rollout.jsonl");
    let run = read.only();
    assert_eq!(counts(run), (3, 2, 1, 1, 0));
    let first = run.turns().next().unwrap();
    assert_eq!(first.reasoning.as_deref(), Some("Shell out to ls."));
    assert_eq!(first.calls[0].arguments, r#"{"command":"ls -la"}"#);
    assert_eq!(first.results[0].content, "README.md\nsrc");
    assert_eq!(tokens(first), (Some(500), Some(40), Some(100)));
    assert_eq!(first.usage.as_ref().unwrap().reasoning_tokens, Some(12));
    assert_eq!(
        (run.model.as_deref(), run.agent_version.as_deref()),
        (Some("gpt-5-codex"), Some("0.146.0"))
    );
    assert_eq!(ending(run), None);

    let read = fixture("codex", "ccsc_codex_rollout.jsonl");
    let run = read.only();
    assert_eq!(counts(run), (3, 2, 1, 1, 0));
    assert_eq!(ending(run), Some(("final", "task_complete")));
    assert_eq!(run.ending.as_ref().unwrap().answer.as_deref(), Some("Implemented and validated."));
    assert_eq!(run.run_id, "019c0000-0000-7000-8000-000000000001");
    assert_eq!((run.totals.prompt_tokens, run.totals.completion_tokens), (Some(100), Some(20)));
}

#[test]
fn exec_turns_are_estimated() {
    let read = fixture("codex", "atifmake_codex-exec.jsonl");
    let run = read.only();
    assert_eq!((counts(run), ending(run)), ((1, 1, 1, 1, 0), Some(("final", "turn.completed"))));
    assert!(run.is_tagged("estimated_turns"));
    assert_eq!(run.steps[0].results[0].exit_code, Some(0));
    assert_eq!((run.totals.prompt_tokens, run.totals.cached_tokens), (Some(900), Some(200)));
}

fn line(kind: &str, payload: Value) -> Value {
    json!({"timestamp": "2026-01-01T00:00:00Z", "type": kind, "payload": payload})
}

fn item(payload: Value) -> Value {
    line("response_item", payload)
}

fn event(payload: Value) -> Value {
    line("event_msg", payload)
}

fn call(id: &str) -> Value {
    item(json!({"type": "function_call", "name": "shell", "call_id": id, "arguments": "{}"}))
}

fn output(id: &str, text: &str) -> Value {
    item(json!({"type": "function_call_output", "call_id": id, "output": text}))
}

fn message(role: &str, text: &str) -> Value {
    item(json!({"type": "message", "role": role, "content": [{"type": "text", "text": text}]}))
}

fn tokens_of(last: u64, total: u64) -> Value {
    event(json!({"type": "token_count", "info": {"last_token_usage": {"input_tokens": last},
        "total_token_usage": {"input_tokens": total}}}))
}

fn meta() -> Value {
    line("session_meta", json!({"id": "s", "cli_version": "1"}))
}

#[test]
fn consecutive_items_form_a_turn() {
    let file = lines(&[
        meta(),
        event(json!({"type": "task_started", "model_context_window": 1000})),
        message("developer", "rules"),
        message("user", "go"),
        event(json!({"type": "user_message", "message": "go"})),
        item(json!({"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]})),
        message("assistant", "looking"),
        call("c1"),
        call("c2"),
        // Repeated because rate limits changed: it ends nothing and belongs to no turn.
        tokens_of(10, 10),
        tokens_of(10, 10),
        output("c2", "Exit code: 1\nWall time: 0 seconds\nOutput:\nno"),
        output("c1", "Chunk ID: x\nWall time: 0 seconds\nProcess exited with code 0\nOutput:\nyes"),
        item(
            json!({"type": "custom_tool_call", "name": "apply_patch", "call_id": "c3", "input": "*** Begin"}),
        ),
        tokens_of(20, 30),
        item(json!({"type": "custom_tool_call_output", "call_id": "c3",
            "output": "{\"output\":\"bad\",\"metadata\":{\"exit_code\":2}}"})),
        item(
            json!({"type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}),
        ),
        message("assistant", "done"),
        tokens_of(40, 70),
        event(json!({"type": "task_complete", "last_agent_message": "done"})),
        event(json!({"type": "something_new"})),
    ]);
    let read = read("codex", &file);
    let run = read.only();
    assert_eq!(counts(run), (5, 3, 4, 3, 2));
    let turns: Vec<_> = run.turns().collect();
    assert_eq!(ids(turns[0]), (vec!["c1", "c2"], vec!["c2", "c1"]));
    assert_eq!(
        turns.iter().map(|turn| tokens(turn).0).collect::<Vec<_>>(),
        [Some(10), Some(20), Some(40)]
    );
    let exits: Vec<_> = run.turns().flat_map(|turn| &turn.results).map(|r| r.exit_code).collect();
    assert_eq!(exits, [Some(1), Some(0), Some(2)]);
    assert_eq!(turns[1].calls[0].arguments, r#""*** Begin""#);
    assert_eq!((run.steps[0].role, run.steps[1].role), (Role::System, Role::User));
    assert_eq!(run.totals.prompt_tokens, Some(70));
    assert_eq!(run.limits["model_context_window"], 1000);
    assert_eq!(run.notes, ["records that are not steps: event something_new 1"]);
}

#[test]
fn call_outcomes_come_from_events() {
    let file = lines(&[
        meta(),
        message("user", "go"),
        call("c1"),
        call("c2"),
        call("c3"),
        event(json!({"type": "exec_command_end", "call_id": "c1", "exit_code": 3})),
        event(json!({"type": "patch_apply_end", "call_id": "c2", "success": false})),
        event(
            json!({"type": "mcp_tool_call_end", "call_id": "c3", "result": {"Ok": {"isError": true}}}),
        ),
        output("c1", "x"),
        output("c2", "x"),
        output("c3", "x"),
    ]);
    let read = read("codex", &file);
    assert_eq!(counts(read.only()), (2, 1, 3, 3, 3));
    assert_eq!(read.only().steps[1].results[0].exit_code, Some(3));
}

#[test]
fn rollout_ending_follows_last_event() {
    let of = |events: &[Value]| {
        let mut all = vec![meta(), message("user", "go"), message("assistant", "x")];
        all.extend_from_slice(events);
        read("codex", &lines(&all)).only().ending.clone().map(|e| e.reason.into_owned())
    };
    let complete =
        |said: Value| event(json!({"type": "task_complete", "last_agent_message": said}));
    let aborted = |why: &str| event(json!({"type": "turn_aborted", "reason": why}));
    let error =
        |kind: Value| event(json!({"type": "error", "message": "m", "codex_error_info": kind}));
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[complete(json!("x"))]).as_deref(), Some("final"));
    assert_eq!(of(&[aborted("interrupted")]).as_deref(), Some("cancelled"));
    assert_eq!(of(&[aborted("budget_limited")]).as_deref(), Some("cost_limit"));
    assert_eq!(of(&[aborted("of the future")]).as_deref(), Some("unknown"));
    assert_eq!(
        of(&[error(json!("server_overloaded")), complete(json!(null))]).as_deref(),
        Some("provider_error")
    );
    assert_eq!(of(&[error(json!("context_window_exceeded"))]).as_deref(), Some("context_overflow"));
    let stream = json!({"response_stream_disconnected": {"http_status_code": 500}});
    assert_eq!(of(&[error(stream)]).as_deref(), Some("provider_error"));
    // The user sent a message after it, so the file ends in the middle of another task.
    assert_eq!(of(&[complete(json!("x")), message("user", "more")]), None);
}

#[test]
fn exec_turn_begins_after_result() {
    let of = |event: &str, item: Value| json!({"type": event, "item": item});
    let command = |id: &str, status: &str, code: Value| {
        json!({"id": id, "type": "command_execution", "command": "c", "aggregated_output": "o",
            "exit_code": code, "status": status})
    };
    let file = lines(&[
        json!({"type": "thread.started", "thread_id": "t"}),
        json!({"type": "turn.started"}),
        of("item.completed", json!({"id": "0", "type": "reasoning", "text": "hm"})),
        // Two calls at the same time belong to one turn.
        of("item.started", command("1", "in_progress", json!(null))),
        of("item.started", command("2", "in_progress", json!(null))),
        of("item.completed", command("1", "completed", json!(0))),
        of("item.completed", command("2", "failed", json!(1))),
        of("item.completed", command("3", "declined", json!(null))),
        of(
            "item.completed",
            json!({"id": "4", "type": "mcp_tool_call", "server": "s", "tool": "t",
            "arguments": {"a": 1}, "error": {"message": "broken"}, "status": "failed"}),
        ),
        of("item.completed", json!({"id": "5", "type": "agent_message", "text": "done"})),
        of("item.started", command("6", "in_progress", json!(null))),
        json!({"type": "turn.failed", "error": {"message": "stream disconnected"}}),
    ]);
    let read = read("codex", &file);
    let run = read.only();
    let turns: Vec<_> = run.turns().map(ids).collect();
    assert_eq!(
        turns,
        [
            (vec!["1", "2"], vec!["1", "2"]),
            (vec!["3"], vec!["3"]),
            (vec!["4"], vec!["4"]),
            (vec!["6"], vec![]),
        ]
    );
    assert_eq!(counts(run), (4, 4, 5, 4, 3));
    assert_eq!(run.steps[2].results[0].content, "broken");
    assert_eq!(run.steps[3].text, "done");
    assert_eq!(ending(run), Some(("provider_error", "error")));
    assert_eq!(run.notes, ["calls without a result: 1"]);
}

#[test]
fn early_layouts_are_read() {
    let bare = [
        json!({"id": "old", "timestamp": "2025-07-01T00:00:00Z", "instructions": null}),
        json!({"record_type": "state"}),
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": "go"}]}),
        json!({"type": "local_shell_call", "call_id": "c", "status": "completed",
            "action": {"type": "exec", "command": ["ls"]}}),
        json!({"type": "function_call_output", "call_id": "c",
            "output": {"content": "denied", "success": false}}),
        json!({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}),
    ];
    let of_lines = lines(&bare);
    let name = endstop_trajectory::read::testing::recognised("rollout-1.jsonl", &of_lines);
    assert_eq!(name, Some("codex"));
    let first = read("codex", &of_lines);
    assert_eq!((&*first.only().run_id, counts(first.only())), ("old", (3, 2, 1, 1, 1)));
    let document = json!({"session": bare[0], "items": bare[2..]}).to_string();
    let second = read("codex", document.as_bytes());
    assert_eq!(second.only().steps, first.only().steps);
}

#[test]
fn responses_without_turn_are_paid() {
    let file = lines(&[
        line("session_meta", json!({"id": "s", "cli_version": "1"})),
        line("turn_context", json!({"model": "gpt-5.1-codex"})),
        // A fork repeats the last count of its parent, which did not grow this session's total.
        tokens_of(40, 900),
        message("user", "go"),
        message("assistant", "Done."),
        tokens_of(20, 920),
        // A compaction has no item.
        tokens_of(30, 950),
        tokens_of(30, 950),
        // An estimate without a response: the total did not grow by it.
        tokens_of(70, 960),
    ]);
    let read = read("codex", &file);
    let run = read.only();
    let outside = &run.totals.outside_turns;
    assert_eq!((run.turns().count(), outside.len()), (1, 1), "{outside:?}");
    assert_eq!(outside[0].model.as_deref(), Some("gpt-5.1-codex"));
    assert_eq!(outside[0].usage.prompt_tokens, Some(30));
}

/// A record at this second.
fn at(second: u32, mut record: Value) -> Value {
    record["timestamp"] = json!(format!("2026-01-01T00:00:{second:02}.000Z"));
    record
}

#[test]
fn history_of_another_session_is_counted_there() {
    let meta = |id: &str, from: Option<&str>| {
        line("session_meta", json!({"id": id, "cli_version": "1", "forked_from_id": from}))
    };
    let history = |begun: u32| {
        [
            event(json!({"type": "task_started"})),
            message("user", "Do it."),
            message("assistant", "Done."),
            tokens_of(100, 100),
            event(json!({"type": "task_complete", "last_agent_message": "Done."})),
        ]
        .map(|record| at(begun, record))
    };
    let own = [
        at(9, message("user", "More.")),
        at(10, message("assistant", "More done.")),
        at(10, tokens_of(50, 150)),
    ];
    for (heads, ends, turns, tokens) in [
        // Without another session nothing is copied.
        (vec![meta("a", None)], true, 2, 150),
        // Resumed in the same file.
        (vec![meta("a", None), meta("a", None)], true, 2, 150),
        (vec![meta("b", Some("a")), meta("a", None)], true, 1, 50),
        (vec![meta("c", Some("b")), meta("b", Some("a")), meta("a", None)], true, 1, 50),
        // Recorders that name only the other session, or only copy its record.
        (vec![meta("b", Some("a"))], true, 1, 50),
        (vec![meta("b", None), meta("a", None)], true, 1, 50),
        // A fork that has done nothing yet.
        (vec![meta("b", Some("a")), meta("a", None)], false, 0, 0),
    ] {
        let mut records: Vec<Value> = heads.iter().cloned().map(|head| at(6, head)).collect();
        records.extend(history(6));
        records.extend(own.iter().filter(|_| ends).cloned());
        let run = read("codex", &lines(&records)).only().clone();
        let counted =
            run.turns().filter_map(|step| step.usage.as_ref()?.prompt_tokens).sum::<u64>();
        assert_eq!((run.turns().count(), counted), (turns, tokens), "{heads:?}");
        let total = run.totals.prompt_tokens.unwrap_or(0);
        assert!(total == 0 || total == tokens, "{heads:?}");
    }
}

#[test]
fn turns_before_another_session_record_are_not_copied() {
    let other = line("session_meta", json!({"id": "other", "cli_version": "1"}));
    let file = lines(&[
        at(1, meta()),
        at(2, message("user", "Do it.")),
        at(3, message("assistant", "Done.")),
        at(3, tokens_of(100, 100)),
        at(6, other),
        at(9, message("user", "More.")),
        at(10, message("assistant", "More done.")),
        at(10, tokens_of(50, 150)),
    ]);
    let read = read("codex", &file);
    let run = read.only();
    let counted: u64 = run.turns().filter_map(|step| step.usage.as_ref()?.prompt_tokens).sum();
    assert_eq!((run.turns().count(), counted), (2, 150));
}
