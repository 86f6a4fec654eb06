//! Tests the reader for Codex. The expected counts of the fixtures were determined by hand.

use crate::common::{Folder, read_with};
use crate::reading::{counts, ending, fixture, ids, lines, read, tokens};
use endstop_trajectory::Role;
use endstop_trajectory::read::Options;
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

/// A session id of version 7, from this millisecond of the test's time.
fn v7(ms: u64) -> String {
    let ms = format!("{:012x}", 1_767_225_600_000 + ms);
    format!("{}-{}-7abc-8def-000000000001", &ms[..8], &ms[8..])
}

/// The record at this millisecond.
fn at_ms(ms: u64, mut record: Value) -> Value {
    record["timestamp"] = json!(format!("2026-01-01T00:00:{:02}.{:03}Z", ms / 1000, ms % 1000));
    record
}

/// The lines of a turn: a prompt, a response, and its count.
fn turn(id: Option<&str>, prompt: &str, tokens: u64, total: u64) -> Vec<Value> {
    vec![
        event(json!({"type": "task_started", "turn_id": id})),
        line("turn_context", json!({"model": "gpt-5", "turn_id": id})),
        message("user", prompt),
        message("assistant", "Done."),
        tokens_of(tokens, total),
        event(json!({"type": "task_complete", "last_agent_message": "Done."})),
    ]
}

/// Gives the lines these times.
fn timed(lines: Vec<Value>, first: u64, step: u64) -> Vec<Value> {
    (0..).map(|nth| first + nth * step).zip(lines).map(|(ms, line)| at_ms(ms, line)).collect()
}

fn untimed(mut lines: Vec<Value>) -> Vec<Value> {
    for line in &mut lines {
        line.as_object_mut().unwrap().remove("timestamp");
    }
    lines
}

fn session(id: &str, more: Value) -> Value {
    let mut payload = json!({"id": id, "cli_version": "1"});
    payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    line("session_meta", payload)
}

/// Counts the turns and the input tokens of a run itself.
fn own(run: &endstop_trajectory::Trajectory<'_>) -> (usize, u64) {
    let turns = run.turns().filter_map(|step| step.usage.as_ref()?.prompt_tokens);
    let outside = run.totals.outside_turns.iter().filter_map(|call| call.usage.prompt_tokens);
    (run.turns().count(), turns.chain(outside).sum())
}

#[test]
fn fork_ends_copy_at_its_first_turn() {
    let (parent, fork) = (v7(0), v7(6000));
    let heads = |more: Value| {
        let mut more = more;
        more["forked_from_id"] = json!(parent);
        vec![session(&fork, more), session(&parent, json!({}))]
    };
    let history = |id: &dyn Fn(u64) -> Option<String>| {
        [
            turn(id(1000).as_deref(), "One.", 1000, 1000),
            turn(id(3000).as_deref(), "Two.", 1100, 2100),
        ]
        .concat()
    };
    let own_turn = |id: Option<&str>| turn(id, "Sub task.", 1200, 3300);
    let ids = |ms: u64| Some(v7(ms));
    let file = |parts: &[&[Value]]| lines(&parts.concat());
    let all = |of: Vec<Value>, first: u64, step: u64| timed(of, first, step);
    let started = |mut lines: Vec<Value>, second: u64| {
        for line in &mut lines {
            if line["payload"]["type"] == "task_started" {
                line["payload"]["started_at"] = json!(1_767_225_600 + second);
            }
        }
        lines
    };
    let v4 = "00000000-0000-4000-8000-000000000001";
    let numbered = |lines: Vec<Value>, from: u64| {
        (from..)
            .zip(lines)
            .map(|(nth, mut line)| {
                line["ordinal"] = json!(nth);
                line
            })
            .collect::<Vec<_>>()
    };
    for (name, bytes, expected) in [
        // Turn ids: whatever the times are.
        (
            "within a second",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &all(history(&ids), 6000, 0),
                &all(own_turn(Some(&v7(6100))), 6100, 1),
            ]),
            (1, 1200),
        ),
        (
            "at once",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &all(history(&ids), 6000, 0),
                &all(own_turn(Some(&v7(6000))), 6000, 0),
            ]),
            (1, 1200),
        ),
        (
            "slowly",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &all(history(&ids), 6000, 700),
                &all(own_turn(Some(&v7(20_000))), 20_000, 100),
            ]),
            (1, 1200),
        ),
        (
            "original times",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &all(history(&ids), 1000, 100),
                &all(own_turn(Some(&v7(6100))), 6100, 0),
            ]),
            (1, 1200),
        ),
        (
            "no times",
            file(&[
                &untimed(heads(json!({}))),
                &untimed(history(&ids)),
                &untimed(own_turn(Some(&v7(6100)))),
            ]),
            (1, 1200),
        ),
        (
            "no own turn",
            file(&[&all(heads(json!({})), 6000, 0), &all(history(&ids), 6000, 500)]),
            (0, 0),
        ),
        (
            "two own turns",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &all(history(&ids), 6000, 0),
                &all(own_turn(Some(&v7(6100))), 6100, 0),
                &all(own_turn(Some(&v7(6900))), 6900, 0),
            ]),
            (2, 1200),
        ),
        (
            "early ids",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &all(history(&|_| Some(v4.to_owned())), 6000, 0),
                &all(own_turn(Some(&v7(6100))), 6000, 0),
            ]),
            (1, 1200),
        ),
        (
            "start times",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &started(all(history(&|_| None), 6000, 0), 3),
                &started(all(own_turn(None), 6000, 0), 7),
            ]),
            (1, 1200),
        ),
        // Ordinals: whatever the turn ids are.
        (
            "ordinals",
            file(&[
                &numbered(all(heads(json!({"subagent_history_start_ordinal": 14})), 6000, 0), 0),
                &numbered(all(history(&|_| None), 6000, 0), 2),
                &numbered(all(own_turn(None), 6000, 0), 14),
            ]),
            (1, 1200),
        ),
        (
            "ordinals, no own turn",
            file(&[
                &numbered(all(heads(json!({"subagent_history_start_ordinal": 14})), 6000, 0), 0),
                &numbered(all(history(&|_| None), 6000, 900), 2),
            ]),
            (0, 0),
        ),
        // A reference to the other session repeats nothing.
        (
            "reference",
            file(&[
                &all(
                    vec![session(
                        &fork,
                        json!({"forked_from_id": parent, "history_base": {"thread_id": parent, "end_ordinal_exclusive": 9}}),
                    )],
                    6000,
                    0,
                ),
                &all(own_turn(None), 6000, 0),
            ]),
            (1, 1200),
        ),
        (
            "nothing repeated",
            file(&[
                &all(vec![session(&fork, json!({"forked_from_id": parent}))], 6000, 0),
                &all(own_turn(Some(&v7(6100))), 6000, 0),
            ]),
            (1, 1200),
        ),
        // Times before the session, its own record, and pauses.
        (
            "original times, no ids",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &all(history(&|_| None), 1000, 100),
                &all(own_turn(None), 6000, 0),
            ]),
            (1, 1200),
        ),
        (
            "own record",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &all(history(&|_| None), 6000, 300),
                &all(vec![session(&fork, json!({}))], 9000, 0),
                &all(own_turn(None), 9000, 0),
            ]),
            (1, 1200),
        ),
        (
            "pause within a second",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &all(history(&|_| None), 6000, 1),
                &all(own_turn(None), 6200, 0),
            ]),
            (1, 1200),
        ),
        (
            "pause before the response",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &all(history(&|_| None), 6000, 1),
                &all(own_turn(None), 6012, 150),
            ]),
            (1, 1200),
        ),
        (
            "copy of 90 ms steps",
            file(&[
                &all(heads(json!({})), 6000, 0),
                &all(history(&|_| None), 6000, 90),
                &all(own_turn(None), 9000, 200),
            ]),
            (1, 1200),
        ),
        // Without any mark all is counted, and a note states it.
        (
            "unknown",
            file(&[
                &untimed(heads(json!({}))),
                &untimed(history(&|_| None)),
                &untimed(own_turn(None)),
            ]),
            (3, 3300),
        ),
    ] {
        let read = read("codex", &bytes);
        let run = read.only();
        assert_eq!(own(run), expected, "{name}");
        let ended = run.ending.as_ref().map(|ending| &*ending.reason);
        assert_eq!(ended, (expected.0 > 0).then_some("final"), "{name}");
        let note = if name == "unknown" { "nothing shows" } else { "forked from" };
        assert_eq!(run.notes.iter().any(|one| one.contains(note)), name != "reference", "{name}");
    }
}

#[test]
fn fork_is_compared_with_file_of_other_session() {
    let folder = Folder::new("codex-forks");
    let history = || [turn(None, "One.", 1000, 1000), turn(None, "Two.", 1100, 2100)].concat();
    let own_turn = || turn(None, "Sub task.", 1200, 3300);
    let heads =
        || vec![session("th2", json!({"forked_from_id": "th1"})), session("th1", json!({}))];
    let file = |parts: &[&[Value]]| lines(&parts.concat());
    let parent = |more: &[Value]| {
        file(&[&[at_ms(0, session("th1", json!({})))], &timed(history(), 1000, 100), more])
    };
    let whole = parent(&[]);
    let final_only = |lines: Vec<Value>| -> Vec<Value> {
        lines.into_iter().filter(|line| line["type"] == "response_item").collect()
    };
    // A response that the fork lacks, as Codex leaves out the calls for some subagents.
    let with_call = [vec![call("c1"), output("c1", "x"), tokens_of(5, 5)], history()].concat();
    let mut regenerated = turn(None, "Two.", 1200, 2200);
    regenerated[3] = message("assistant", "Done.");
    for (name, parent_at, parent, fork, expected) in [
        (
            "at once",
            "2026/01/01",
            whole.clone(),
            file(&[
                &timed(heads(), 6000, 0),
                &timed(history(), 6000, 0),
                &timed(own_turn(), 6000, 0),
            ]),
            (1, 1200),
        ),
        (
            "within a second",
            "2026/01/01",
            whole.clone(),
            file(&[
                &timed(heads(), 6000, 0),
                &timed(history(), 6000, 0),
                &timed(own_turn(), 6300, 50),
            ]),
            (1, 1200),
        ),
        (
            "slowly",
            "2026/01/01",
            whole.clone(),
            file(&[
                &timed(heads(), 6000, 0),
                &timed(history(), 6000, 400),
                &timed(own_turn(), 20_000, 50),
            ]),
            (1, 1200),
        ),
        (
            "no times",
            "2026/01/01",
            whole.clone(),
            file(&[&untimed(heads()), &untimed(history()), &untimed(own_turn())]),
            (1, 1200),
        ),
        (
            "original times",
            "2026/01/01",
            whole.clone(),
            file(&[
                &timed(heads(), 6000, 0),
                &timed(history(), 1000, 100),
                &timed(own_turn(), 6000, 0),
            ]),
            (1, 1200),
        ),
        (
            "no own turn",
            "2026/01/01",
            whole.clone(),
            file(&[&timed(heads(), 6000, 0), &timed(history(), 6000, 500)]),
            (0, 0),
        ),
        (
            "another day",
            "2025/12/31",
            whole.clone(),
            file(&[
                &timed(heads(), 6000, 0),
                &timed(history(), 6000, 0),
                &timed(own_turn(), 6000, 0),
            ]),
            (1, 1200),
        ),
        (
            "only the other record",
            "2026/01/01",
            whole.clone(),
            file(&[
                &timed(vec![session("th2", json!({})), session("th1", json!({}))], 6000, 0),
                &timed(history(), 6000, 0),
                &timed(own_turn(), 6000, 0),
            ]),
            (1, 1200),
        ),
        // The other session continued with the same prompt and the same answer.
        (
            "continued",
            "2026/01/01",
            parent(&timed(own_turn(), 7000, 0)),
            file(&[
                &timed(heads(), 6000, 0),
                &timed(history(), 6000, 0),
                &timed(own_turn(), 6000, 0),
            ]),
            (1, 1200),
        ),
        // Forked before the last turn, and asked the same again.
        (
            "asked again",
            "2026/01/01",
            whole.clone(),
            file(&[
                &timed(heads(), 6000, 0),
                &timed(turn(None, "One.", 1000, 1000), 6000, 0),
                &timed(regenerated, 6000, 0),
            ]),
            (1, 1200),
        ),
        (
            "without the calls",
            "2026/01/01",
            file(&[&[at_ms(0, session("th1", json!({})))], &timed(with_call, 1000, 10)]),
            file(&[
                &timed(heads(), 6000, 0),
                &timed(final_only(history()), 6000, 0),
                &timed(own_turn(), 6000, 0),
            ]),
            (1, 1200),
        ),
        (
            "fork of a fork",
            "2026/01/01",
            file(&[
                &timed(
                    vec![
                        session("th1", json!({"forked_from_id": "th0"})),
                        session("th0", json!({})),
                    ],
                    500,
                    0,
                ),
                &timed(history(), 1000, 0),
            ]),
            file(&[
                &timed(heads(), 6000, 0),
                &timed(vec![session("th0", json!({}))], 6000, 0),
                &timed(history(), 6000, 0),
                &timed(own_turn(), 6000, 0),
            ]),
            (1, 1200),
        ),
    ] {
        let at = name.replace(' ', "-");
        let path = format!("{at}/{parent_at}/rollout-2026-01-01T00-00-00-th1.jsonl");
        let packed = zstd::encode_all(&parent[..], 1).unwrap();
        folder.file(&path, &parent);
        let fork =
            folder.file(&format!("{at}/2026/01/01/rollout-2026-01-01T00-00-06-th2.jsonl"), fork);
        let check = |path: &std::path::Path, runs: usize| {
            let (found, problems) = read_with(path, &Options::default());
            assert_eq!((found.len(), problems.len()), (runs, 0), "{name}: {problems:?}");
            let run = found.iter().find(|run| run.run_id == "th2").unwrap();
            assert_eq!(own(run), expected, "{name}");
        };
        check(&folder.0.join(&at), 2);
        check(&fork, 1);
        std::fs::remove_file(folder.0.join(&path)).unwrap();
        folder.file(&format!("{path}.zst"), packed);
        check(&folder.0.join(&at), 2);
    }
}
