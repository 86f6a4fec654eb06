//! Tests the reader for Claude Code. The expected counts come from a script that read the raw
//! files.

use crate::reading::{counts, ending, fixture, ids, lines, read, tokens};
use endstop_trajectory::Role;
use endstop_trajectory::read::ProblemKind;
use serde_json::{Value, json};

#[test]
fn fixture_counts_match_script() {
    for (file, expected, prompt, completion) in [
        ("agentpile_api_error", (2, 1, 0, 0, 0), 100, 20),
        ("agentpile_attachment_beside_result", (2, 1, 1, 1, 0), 100, 20),
        ("agentpile_compaction", (4, 2, 0, 0, 0), 200, 40),
        ("agentpile_duplicates", (3, 2, 2, 1, 0), 200, 40),
        ("agentpile_early_result", (2, 1, 1, 1, 0), 100, 20),
        ("agentpile_edit_branch", (3, 1, 0, 0, 0), 100, 20),
        ("agentpile_images", (2, 1, 1, 1, 0), 100, 20),
        ("agentpile_split_interleaved", (2, 1, 2, 2, 0), 100, 20),
        ("agentpile_sub_agent-afx0000000000003", (2, 1, 1, 1, 0), 50, 35),
        ("agentpile_subagents", (2, 1, 4, 4, 0), 100, 20),
        ("agentpile_tc_session-tc-02", (3, 2, 1, 1, 0), 210, 30),
        ("agentpile_unknown", (2, 1, 0, 0, 0), 100, 20),
        ("agentpile_unpaired", (3, 1, 1, 2, 0), 100, 20),
        ("atifmake_claude-code-stream", (3, 2, 3, 3, 0), 210, 37),
        ("atifmake_claude-code-transcript", (3, 2, 1, 1, 0), 210, 40),
        ("ccsc_records", (2, 1, 0, 0, 0), 42_001, 209),
    ] {
        let read = fixture("claude_code", &format!("{file}.jsonl"));
        let run = read.only();
        assert_eq!(counts(run), expected, "{file}");
        let usage = || run.turns().filter_map(|step| step.usage.as_ref());
        assert_eq!(usage().filter_map(|usage| usage.prompt_tokens).sum::<u64>(), prompt, "{file}");
        assert_eq!(
            usage().filter_map(|usage| usage.completion_tokens).sum::<u64>(),
            completion,
            "{file}"
        );
        assert_eq!(run.recorded.success, None, "{file}");
    }
}

#[test]
fn response_blocks_form_one_turn() {
    let read = fixture("claude_code", "agentpile_split_interleaved.jsonl");
    let turn = read.only().turns().next().unwrap();
    assert_eq!(turn.text, "I will run task A and task B.");
    let both = vec!["toolu_fx_a1", "toolu_fx_a2"];
    assert_eq!(ids(turn), (both.clone(), both));
    assert_eq!(turn.calls[0].arguments, r#"{"command":"taskA"}"#);
    assert_eq!(turn.results[1].content, "result of task B");
    assert_eq!(tokens(turn), (Some(100), Some(20), Some(0)));
    assert_eq!(turn.at.as_deref(), Some("2026-10-01T12:00:02.000Z"));
}

#[test]
fn duplicates_count_once_with_note() {
    let read = fixture("claude_code", "agentpile_duplicates.jsonl");
    let run = read.only();
    assert_eq!(run.steps[0].text, "Test duplicate handling");
    assert_eq!(
        run.notes,
        [
            "calls without a result: 1",
            "reused call ids: 1",
            "different records with the uuid of an earlier one: 1",
            "duplicate records: 1",
            "records that are not messages: queue-operation 1",
        ]
    );
}

#[test]
fn abandoned_branch_is_only_counted() {
    let read = fixture("claude_code", "agentpile_edit_branch.jsonl");
    let run = read.only();
    assert_eq!(run.steps.last().unwrap().text, "Edited follow-up");
    assert!(run.notes.contains(&"records on abandoned branches: user 1".to_owned()));
}

/// Creates a record of a transcript.
fn record(kind: &str, uuid: &str, parent: Option<&str>, message: Value) -> Value {
    json!({"type": kind, "uuid": uuid, "parentUuid": parent, "sessionId": "s", "isSidechain": false,
        "timestamp": "2026-01-01T00:00:00Z", "message": message})
}

fn asked(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn said(id: &str, content: Value, stop: Option<&str>) -> Value {
    json!({"id": id, "role": "assistant", "model": "m", "content": content, "stop_reason": stop,
        "usage": {"input_tokens": 10, "output_tokens": 2}})
}

fn gave(call: &str) -> Value {
    json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": call, "content": call}]})
}

fn calls(id: &str) -> Value {
    json!([{"type": "tool_use", "id": id, "name": "Read", "input": {}}])
}

fn says(text: &str) -> Value {
    json!([{"type": "text", "text": text}])
}

#[test]
fn parallel_results_are_not_a_branch() {
    let file = lines(&[
        record("user", "u1", None, asked("go")),
        record("assistant", "a1", Some("u1"), said("m1", calls("c1"), None)),
        record("assistant", "a2", Some("a1"), said("m1", calls("c2"), None)),
        // The result of the first call is off the path, which continues below the second call.
        record("user", "r1", Some("a1"), gave("c1")),
        record("user", "r2", Some("a2"), gave("c2")),
        record("assistant", "x1", Some("r2"), said("left", says("left"), Some("end_turn"))),
        record("user", "x2", Some("x1"), asked("no")),
        record("assistant", "x3", Some("x2"), said("left too", says("left"), Some("end_turn"))),
        record("assistant", "a3", Some("r2"), said("m2", says("done"), Some("end_turn"))),
    ]);
    let read = read("claude-code", &file);
    let run = read.only();
    assert_eq!(counts(run), (3, 2, 2, 2, 0));
    assert_eq!(ending(run), Some(("final", "end_turn")));
    assert_eq!(run.ending.as_ref().unwrap().answer.as_deref(), Some("done"));
    assert_eq!(run.notes, ["records on abandoned branches: assistant 2, user 1"]);
}

#[test]
fn subagents_are_children_of_session() {
    let side = |mut record: Value, agent: Option<&str>| {
        record["isSidechain"] = json!(true);
        if let Some(agent) = agent {
            record["agentId"] = json!(agent);
        }
        record
    };
    let task = |id: &str, prompt: &str| json!([{"type": "tool_use", "id": id, "name": "Task", "input": {"prompt": prompt}}]);
    let mut result = record("user", "u2", Some("a1"), gave("t1"));
    result["toolUseResult"] = json!({"agentId": "one"});
    let file = lines(&[
        record("user", "u1", None, asked("go")),
        record("assistant", "a1", Some("u1"), said("m1", task("t1", "look"), None)),
        side(record("user", "s1", None, asked("look")), Some("one")),
        side(
            record("assistant", "s2", Some("s1"), said("m2", task("t2", "dig"), None)),
            Some("one"),
        ),
        // A nested subagent, as recorded by versions that do not name the agent.
        side(record("user", "d1", None, asked("dig")), None),
        side(
            record("assistant", "d2", Some("d1"), said("m3", says("dug"), Some("end_turn"))),
            None,
        ),
        side(record("user", "s3", Some("s2"), gave("t2")), Some("one")),
        result,
        record("assistant", "a2", Some("u2"), said("m4", says("done"), Some("end_turn"))),
    ]);
    let read = read("claude-code", &file);
    let run = read.only();
    assert_eq!(counts(run), (3, 2, 1, 1, 0));
    let [child] = run.children.as_slice() else { panic!("{} children", run.children.len()) };
    assert_eq!((&*child.run_id, counts(child)), ("one", (2, 1, 1, 1, 0)));
    assert!(child.is_tagged("subagent"));
    assert_eq!(child.extra["started_by_call"], "t1");
    let [grandchild] = child.children.as_slice() else { panic!("{:?}", child.children) };
    assert_eq!(
        (counts(grandchild), ending(grandchild)),
        ((2, 1, 0, 0, 0), Some(("final", "end_turn")))
    );
    assert_eq!(grandchild.extra["started_by_call"], "t2");
}

#[test]
fn subagent_file_is_a_run() {
    let read = fixture("claude_code", "agentpile_sub_agent-afx0000000000003.jsonl");
    let run = read.only();
    assert_eq!(run.run_id, "afx0000000000003");
    assert!(run.is_tagged("subagent"));
    assert_eq!(run.extra["sessionId"], "00000000-0000-4000-8000-000000000099");
    // The last block has the largest usage.
    assert_eq!(tokens(run.turns().next().unwrap()), (Some(50), Some(35), Some(0)));
}

#[test]
fn results_without_call_are_stored() {
    let read = fixture("claude_code", "agentpile_unpaired.jsonl");
    let run = read.only();
    assert_eq!((run.steps[0].role, run.steps[0].results.len()), (Role::User, 1));
    assert_eq!(run.steps[0].results[0].content, "result before agent");
    assert_eq!(run.notes[..2], ["calls without a result: 1", "results without a call: 2"]);
    let early = fixture("claude_code", "agentpile_early_result.jsonl");
    assert_eq!(ids(&early.only().steps[1]), (vec!["toolu_fx_b1"], vec!["toolu_fx_b1"]));
}

#[test]
fn unknown_parts_are_stored_and_counted() {
    let read = fixture("claude_code", "agentpile_unknown.jsonl");
    let run = read.only();
    let extra = run.steps[1].extra.as_ref().unwrap();
    assert_eq!(extra["content"], json!([{"widget": "data", "type": "future_gadget"}]));
    assert_eq!(
        run.notes,
        [
            "unknown parts of messages: future_gadget 1",
            "records that are not messages: future-widget-event 1, queue-operation 1",
        ]
    );
    assert_eq!(run.agent_version.as_deref(), Some("2.1.170"));
    assert_eq!(run.extra["cwd"], "/repo");
}

#[test]
fn invalid_lines_are_reported() {
    let read = fixture("claude_code", "daaain_edge_cases.jsonl");
    let malformed = |at| (Some(at), ProblemKind::Malformed);
    assert_eq!(read.kinds(), [10, 11, 13, 14, 15, 16, 18].map(malformed));
    // The records of two sessions are two runs.
    let runs: Vec<_> =
        read.runs.iter().map(|run| (&*run.run_id, run.origin.at, counts(run))).collect();
    assert_eq!(
        runs,
        [
            ("edge_cases", Some(1), (9, 3, 2, 1, 1)),
            ("todowrite_session", Some(17), (1, 1, 1, 0, 0)),
        ]
    );
    let failed = read.runs[0].steps.iter().flat_map(|step| &step.results).next().unwrap();
    assert_eq!(failed.content, "Error: Tool execution failed with error: Command not found");
    assert_eq!(
        read.runs[0].extra["summary"].as_str().map(|s| s.starts_with("Tested various")),
        Some(true)
    );
}

#[test]
fn api_error_is_not_a_turn() {
    let mut synthetic = said("x", says("API Error: 529 overloaded"), Some("stop_sequence"));
    synthetic["model"] = json!("<synthetic>");
    let mut error = record("assistant", "a2", Some("u2"), synthetic);
    error["isApiErrorMessage"] = json!(true);
    let file = lines(&[
        record("user", "u1", None, asked("go")),
        record("assistant", "a1", Some("u1"), said("m1", says("yes"), Some("end_turn"))),
        record("user", "u2", Some("a1"), asked("on")),
        error,
    ]);
    let read = read("claude-code", &file);
    assert_eq!(counts(read.only()), (4, 1, 0, 0, 0));
    // The text is a message, so it is never parsed as the name of an ending.
    assert_eq!(ending(read.only()), Some(("provider_error", "api_error")));
    let failed = read.only().ending.as_ref().unwrap().failure_mode.as_deref();
    assert_eq!(failed, Some("API Error: 529 overloaded"));
}

#[test]
fn transcript_ending_follows_last_message() {
    let of = |last: Value| {
        let file = lines(&[record("user", "u1", None, asked("go")), last]);
        read("claude-code", &file).only().ending.clone().map(|ending| ending.reason.into_owned())
    };
    let answer = |stop| of(record("assistant", "a", Some("u1"), said("m", says("x"), stop)));
    assert_eq!(answer(Some("end_turn")).as_deref(), Some("final"));
    assert_eq!(answer(Some("max_tokens")).as_deref(), Some("output_length"));
    assert_eq!(answer(Some("model_context_window_exceeded")).as_deref(), Some("context_overflow"));
    assert_eq!(answer(Some("refusal")).as_deref(), Some("unknown"));
    assert_eq!(answer(Some("a new word")).as_deref(), Some("unknown"));
    assert_eq!(answer(Some("tool_use")), None);
    assert_eq!(answer(None), None);
    let stopped = asked("[Request interrupted by user for tool use]");
    assert_eq!(of(record("user", "u2", Some("u1"), stopped)).as_deref(), Some("cancelled"));
    assert_eq!(of(record("user", "u2", Some("u1"), asked("and?"))), None);
    let limit = json!({"type": "attachment", "uuid": "x", "parentUuid": "u1", "sessionId": "s",
        "attachment": {"type": "max_turns_reached", "maxTurns": 3, "turnCount": 4}});
    assert_eq!(of(limit).as_deref(), Some("max_turns"));
}

#[test]
fn stream_ending_follows_result_record() {
    let read_stream = |result: Value| {
        let message = json!({"type": "assistant", "session_id": "s", "uuid": "a",
            "parent_tool_use_id": null, "message": said("m", says("x"), Some("end_turn"))});
        let init = json!({"type": "system", "subtype": "init", "session_id": "s", "model": "m",
            "tools": ["Bash"], "claude_code_version": "2.1.0"});
        read("claude-code", &lines(&[init, message, result]))
    };
    let result = |subtype: &str, is_error: bool| {
        json!({"type": "result", "subtype": subtype, "is_error": is_error, "session_id": "s",
            "num_turns": 7, "duration_ms": 1500, "total_cost_usd": 0.25, "result": "the answer",
            "usage": {"input_tokens": 1, "cache_read_input_tokens": 2,
                "cache_creation_input_tokens": 4, "output_tokens": 8}})
    };
    for (subtype, is_error, reason) in [
        ("success", false, "final"),
        ("success", true, "provider_error"),
        ("error_max_turns", false, "max_turns"),
        ("error_max_budget_usd", true, "cost_limit"),
        ("error_during_execution", true, "agent_error"),
        ("error_of_the_future", true, "unknown"),
    ] {
        let read = read_stream(result(subtype, is_error));
        assert_eq!(ending(read.only()), Some((reason, subtype)));
    }
    let read = read_stream(result("success", false));
    let run = read.only();
    assert_eq!(run.ending.as_ref().unwrap().answer.as_deref(), Some("the answer"));
    let totals = &run.totals;
    assert_eq!((totals.prompt_tokens, totals.completion_tokens), (Some(7), Some(8)));
    assert_eq!((totals.cached_tokens, totals.turns), (Some(2), Some(7)));
    assert_eq!((totals.cost_usd, totals.wall_s), (Some(0.25), Some(1.5)));
    assert_eq!((run.tools.len(), run.agent_version.as_deref()), (1, Some("2.1.0")));
    // A truncated stream has no result record, so its last message is used.
    let cut = fixture("claude_code", "atifmake_claude-code-stream.jsonl");
    assert_eq!(cut.only().totals.completion_tokens, Some(37));
}

#[test]
fn list_file_equals_line_file() {
    let file = crate::reading::bytes("claude_code", "atifmake_claude-code-stream.jsonl");
    let list = String::from_utf8(file.clone()).unwrap().trim().replace('\n', ",");
    let as_list = read("claude-code", format!("[{list}]").as_bytes());
    assert_eq!(as_list.only().steps, read("claude-code", &file).only().steps);
}

#[test]
fn records_of_other_formats_are_counted() {
    let mut file = crate::reading::bytes("claude_code", "agentpile_tc_session-tc-02.jsonl");
    file.extend(crate::reading::bytes("codex", "atifmake_codex-rollout.jsonl"));
    let read = read("claude-code", &file);
    assert_eq!(counts(read.only()), (3, 2, 1, 1, 0));
    let note = "event_msg 1, queue-operation 1, response_item 5, session_meta 1, turn_context 1";
    assert_eq!(read.only().notes, [format!("records that are not messages: {note}")]);
}

/// A session: letters are responses with calls (`A`, `B`), their blocks (`a`, `b`), results (`r`), prompts
/// (`p`), answers (`z`), and records between messages (`x`).
#[derive(Clone, Copy)]
struct Session<'s> {
    ids: fn(char, usize) -> Option<String>,
    request: fn(usize) -> Option<String>,
    stop: fn(char) -> Value,
    between: &'s str,
    linked: bool,
}

impl Session<'_> {
    fn turns(&self, records: &str) -> usize {
        let mut lines = vec![record("user", "u", None, asked("Do it."))];
        let (mut parent, mut open) = ("u".to_owned(), Vec::new());
        for (nth, kind) in records.chars().enumerate() {
            let uuid = format!("{kind}{nth}");
            let call = format!("t{nth}");
            let mut one = match kind {
                'r' => {
                    let answered: String = open.remove(0);
                    record("user", &uuid, Some(&parent), gave(&answered))
                }
                'p' => record("user", &uuid, Some(&parent), asked("More.")),
                'x' => json!({"type": self.between, "subtype": "x", "sessionId": "s", "uuid": uuid,
                    "parentUuid": parent, "attachment": {"type": "x"}, "data": {}}),
                _ => {
                    let id = (self.ids)(kind, nth);
                    let part = if kind == 'z' { says("Done.") } else { calls(&call) };
                    if kind != 'z' {
                        open.push(call);
                    }
                    let mut message = said("", part, None);
                    message["id"] = json!(id);
                    message["stop_reason"] = (self.stop)(kind);
                    let mut one = record("assistant", &uuid, Some(&parent), message);
                    one["requestId"] = json!((self.request)(nth));
                    one
                }
            };
            if !self.linked {
                one.as_object_mut().unwrap().remove("parentUuid");
            }
            lines.push(one);
            parent = uuid;
        }
        let read = read("claude-code", &crate::reading::lines(&lines));
        let run = read.only();
        let counted: u64 = run.turns().filter_map(|step| step.usage.as_ref()?.prompt_tokens).sum();
        assert_eq!(counted, 10 * run.turns().count() as u64);
        run.turns().count()
    }
}

#[test]
fn constant_ids_do_not_merge_turns() {
    let constant = Session {
        ids: |_, _| Some("chatcmpl-0".to_owned()),
        request: |_| None,
        stop: |kind| json!(if kind == 'z' { "end_turn" } else { "tool_use" }),
        between: "system",
        linked: true,
    };
    let anthropic = Session { ids: |_, _| Some("msg_0".to_owned()), ..constant };
    let empty = Session { ids: |_, _| Some(String::new()), ..constant };
    let absent = Session { ids: |_, _| None, ..constant };
    let no_reasons = |session: Session<'static>| Session { stop: |_| Value::Null, ..session };
    let not_linked = |session: Session<'static>| Session { linked: false, ..session };
    let with = |between| Session { between, ..constant };
    for (session, records, turns) in [
        (&constant, "ArArz", 3),
        (&empty, "ArArz", 3),
        (&absent, "ArArz", 3),
        (&with("system"), "ArxArxz", 3),
        (&with("attachment"), "ArxArxz", 3),
        (&with("progress"), "AxrxxAxrxxz", 3),
        (&not_linked(constant), "ArArz", 3),
        (&not_linked(with("progress")), "AxrxAxrxz", 3),
        (&no_reasons(constant), "ArArz", 3),
        (&no_reasons(constant), "ArAr", 2),
        (&no_reasons(with("attachment")), "ArxArxz", 3),
        (&no_reasons(not_linked(constant)), "ArArz", 3),
        (&no_reasons(constant), "zpzpz", 3),
        (&no_reasons(anthropic), "ArArz", 3),
        (&no_reasons(anthropic), "zpzpz", 3),
        (&no_reasons(not_linked(anthropic)), "ArArArz", 4),
        // Parallel calls, with results in between: blocks of one response.
        (&constant, "AArrAArrz", 3),
        (&no_reasons(constant), "AArrAArrz", 3),
        (&no_reasons(not_linked(constant)), "AAAarrrrAz", 2),
        (&no_reasons(constant), "AArarrz", 2),
        // Another request is another response, whatever stands between.
        (&Session { request: |nth| Some(nth.to_string()), ..no_reasons(anthropic) }, "ArAr", 2),
        (&Session { request: |nth| Some(nth.to_string()), ..no_reasons(constant) }, "AAA", 3),
    ] {
        assert_eq!(session.turns(records), turns, "{records}");
    }
}

#[test]
fn blocks_between_results_are_one_turn() {
    let session = Session {
        ids: |kind, _| Some(format!("msg_{}", kind.to_ascii_lowercase())),
        request: |_| Some("same".to_owned()),
        stop: |_| Value::Null,
        between: "progress",
        linked: true,
    };
    let other = Session { ids: |kind, _| Some(kind.to_ascii_lowercase().to_string()), ..session };
    let at_the_end = Session { stop: |kind| json!((kind == 'z').then_some("end_turn")), ..other };
    for (session, records, turns) in [
        (&session, "Ara", 1),
        (&session, "Arara", 1),
        (&session, "AraraBrbz", 3),
        (&session, "Axrxaxrxz", 2),
        (&Session { linked: false, ..session }, "AraraBrbz", 3),
        (&other, "AraraBrbz", 3),
        (&other, "AararBbrrz", 3),
        (&Session { linked: false, ..other }, "AraBz", 3),
        (&at_the_end, "AraraBrbz", 3),
        // The first response has its stop reason, and its blocks are linked to one another.
        (&Session { stop: |_| json!("tool_use"), ..other }, "AaarrrBbrrz", 3),
    ] {
        assert_eq!(session.turns(records), turns, "{records}");
    }
}

/// A result on a side branch, and a hook between two blocks of one response, which the links show.
#[test]
fn links_lead_over_other_records() {
    let file = lines(&[
        record("user", "u1", None, asked("go")),
        record("assistant", "a1", Some("u1"), said("m", calls("c1"), Some("tool_use"))),
        record("user", "r1", Some("a1"), gave("c1")),
        json!({"type": "progress", "uuid": "x", "parentUuid": "a1", "sessionId": "s", "data": {}}),
        record("assistant", "a2", Some("x"), said("m", calls("c2"), Some("tool_use"))),
        record("user", "r2", Some("a2"), gave("c2")),
        json!({"type": "system", "uuid": "y", "parentUuid": "r2", "sessionId": "s", "subtype": "y"}),
        record("assistant", "a3", Some("y"), said("m", says("done"), Some("end_turn"))),
    ]);
    let read = read("claude-code", &file);
    assert_eq!(counts(read.only()), (3, 2, 2, 2, 0));
}
