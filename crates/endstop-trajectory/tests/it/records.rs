//! Reads records of sessions, logs and results in unusual order or shape, one table for each reader,
//! and separate outcomes of any text.

use crate::common::{counts, ending, parsed, read_bytes};
use endstop_trajectory::Trajectory;
use endstop_trajectory::read::{Options, Outcomes, ProblemKind, testing};
use proptest::collection::btree_map;
use proptest::prelude::*;
use serde_json::{Value, json};

fn lines(records: &[Value]) -> String {
    records.iter().map(|record| format!("{record}\n")).collect()
}

/// Reads records as one run.
fn one(records: &[Value]) -> Trajectory<'static> {
    let mut runs = parsed("a.jsonl", lines(records));
    assert_eq!(runs.len(), 1, "{records:?}");
    runs.remove(0)
}

#[test]
fn codex_events_in_any_order() {
    let start = || json!({"type": "thread.started", "thread_id": "t"});
    let turn = || json!({"type": "turn.started"});
    let end = |usage: Value| json!({"type": "turn.completed", "usage": usage});
    let item = |event: &str, item: Value| json!({"type": event, "item": item});
    let said = |text: &str| {
        item("item.completed", json!({"id": "m", "type": "agent_message", "text": text}))
    };
    let command = |event: &str, status: &str, code: Value| {
        item(
            event,
            json!({"id": "c", "type": "command_execution", "command": "ls",
            "aggregated_output": "a", "exit_code": code, "status": status}),
        )
    };
    let done = || command("item.completed", "completed", json!(0));
    for (what, events, want, reason) in [
        ("answer", vec![said("a"), end(json!({}))], [1, 1, 0, 0, 0], Some("final")),
        ("command", vec![done(), said("a"), end(json!({}))], [2, 2, 1, 1, 0], Some("final")),
        ("failure", vec![command("item.completed", "failed", json!(2))], [1, 1, 1, 1, 1], None),
        (
            "only started",
            vec![command("item.started", "in_progress", json!(null))],
            [1, 1, 1, 0, 0],
            None,
        ),
        (
            "both",
            vec![command("item.started", "in_progress", json!(null)), done()],
            [1, 1, 1, 1, 0],
            None,
        ),
        ("cut", vec![said("a")], [1, 1, 0, 0, 0], None),
        (
            "two prompts",
            vec![said("a"), end(json!({})), turn(), said("b"), end(json!({}))],
            [2, 2, 0, 0, 0],
            Some("final"),
        ),
        ("open prompt", vec![said("a"), end(json!({})), turn()], [1, 1, 0, 0, 0], None),
        (
            "unknown item",
            vec![item("item.completed", json!({"type": "hum"})), said("a")],
            [1, 1, 0, 0, 0],
            None,
        ),
    ] {
        let records: Vec<Value> = [start(), turn()].into_iter().chain(events).collect();
        let run = one(&records);
        assert_eq!(
            (counts(&run), ending(&run).map(|e| e.0)),
            (want, reason),
            "{what}: {:?}",
            run.notes
        );
        assert_eq!(run.run_id, "t", "{what}");
    }
}

#[test]
fn codex_totals_lose_no_count() {
    let of = |usage: Value| {
        one(&[
            json!({"type": "thread.started", "thread_id": "t"}),
            json!({"type": "turn.started"}),
            json!({"type": "item.completed", "item": {"id": "m", "type": "agent_message", "text": "a"}}),
            json!({"type": "turn.completed", "usage": usage}),
        ])
        .totals
    };
    for (usage, input, extra) in [
        (json!({"input_tokens": 5, "output_tokens": 2}), Some(5), json!({})),
        (
            json!({"input_tokens": 5, "reasoning_output_tokens": 3}),
            Some(5),
            json!({"reasoning_output_tokens": 3}),
        ),
        (
            json!({"cache_write_input_tokens": 1, "new": 2}),
            None,
            json!({"new": 2, "cache_write_input_tokens": 1}),
        ),
        (json!({"input_tokens": u64::MAX}), Some(u64::MAX), json!({})),
        (json!({"input_tokens": "5"}), None, json!({"input_tokens": "5"})),
        (json!({"input_tokens": -5}), None, json!({"input_tokens": -5})),
        (json!(null), None, json!({})),
    ] {
        let totals = of(usage.clone());
        assert_eq!((totals.prompt_tokens, json!(totals.extra)), (input, extra), "{usage}");
    }
}

#[test]
fn misshapen_codex_lines_are_reported() {
    let first =
        r#"{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"s"}}"#;
    let last = r#"{"timestamp":"2026-01-01T00:00:01Z","type":"response_item","payload":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"a"}]}}"#;
    for (line, what) in [
        (
            r#"{"type":"event_msg","payload":7}"#,
            "invalid `payload`: expected an object, found a number",
        ),
        (r#"{"type":"event_msg","payload":null}"#, "found null"),
        (r#"{"type":"event_msg"}"#, "a line without its `payload`"),
        (r#"{"a":1}"#, "a line without its `type`"),
        ("[]", "found a list"),
        ("nonsense", "invalid JSON"),
    ] {
        let (runs, problems) =
            read_bytes("a.jsonl", [first, line, last].join("\n"), &Options::default());
        assert_eq!((runs.len(), problems.len()), (1, 1), "{line}: {problems:?}");
        assert!(problems[0].what.contains(what), "{line}: {}", problems[0].what);
        assert_eq!((problems[0].at, problems[0].kind), (Some(2), ProblemKind::Malformed), "{line}");
        assert_eq!(counts(&runs[0]), [1, 1, 0, 0, 0], "{line}: the rest is read");
    }
}

#[test]
fn claude_sessions_share_a_file() {
    let of = |session: &str, uuid: &str, parent: Value, role: &str, text: &str| {
        json!({"type": role, "sessionId": session, "uuid": uuid, "parentUuid": parent,
            "timestamp": "2026-01-01T00:00:00Z",
            "message": {"id": uuid, "role": role, "content": [{"type": "text", "text": text}]}})
    };
    let ask = |session: &str, uuid: &str, parent: Value| of(session, uuid, parent, "user", "go");
    let say = |session: &str, uuid: &str, parent: &str| {
        of(session, uuid, json!(parent), "assistant", "yes")
    };
    for (what, records, want) in [
        ("one", vec![ask("s", "1", json!(null)), say("s", "2", "1")], vec![2]),
        (
            "one after the other",
            vec![
                ask("s", "1", json!(null)),
                say("s", "2", "1"),
                ask("t", "3", json!(null)),
                say("t", "4", "3"),
            ],
            vec![2, 2],
        ),
        (
            "mixed",
            vec![
                ask("s", "1", json!(null)),
                ask("t", "3", json!(null)),
                say("s", "2", "1"),
                say("t", "4", "3"),
            ],
            vec![2, 2],
        ),
        (
            "resumed",
            vec![
                ask("s", "1", json!(null)),
                say("s", "2", "1"),
                ask("t", "3", json!("2")),
                say("t", "4", "3"),
            ],
            vec![4],
        ),
        (
            "repeated records",
            vec![ask("s", "1", json!(null)), say("s", "2", "1"), say("s", "2", "1")],
            vec![2],
        ),
        ("missing parent", vec![ask("s", "1", json!("gone")), say("s", "2", "1")], vec![2]),
        ("own parent", vec![ask("s", "1", json!("1")), say("s", "2", "1")], vec![2]),
        ("no answer", vec![ask("s", "1", json!(null))], vec![1]),
    ] {
        let (runs, problems) = read_bytes("a.jsonl", lines(&records), &Options::default());
        assert_eq!(problems, [], "{what}");
        let steps: Vec<usize> = runs.iter().map(|run| run.steps.len()).collect();
        assert_eq!(steps, want, "{what}");
        let mut ids: Vec<&str> = runs.iter().map(|run| &*run.run_id).collect();
        ids.dedup();
        assert_eq!(ids.len(), runs.len(), "{what}: each has its id");
    }
}

#[test]
fn inspect_scores_decide_success() {
    let of = |scores: Value| {
        let log = json!({"version": 2, "status": "success", "eval": {"task": "t"}, "samples": [
            {"id": 1, "epoch": 1, "messages": [{"role": "user", "content": "go"},
             {"role": "assistant", "content": "a"}], "scores": scores}]});
        parsed("a.json", log.to_string()).remove(0).recorded
    };
    for (scores, success, reward) in [
        (json!({"m": {"value": "C"}}), Some(true), Some(1.0)),
        (json!({"m": {"value": "I"}}), Some(false), Some(0.0)),
        (json!({"m": {"value": "P"}}), None, Some(0.5)),
        (json!({"m": {"value": "N"}}), None, Some(0.0)),
        (json!({"m": {"value": 1}}), Some(true), Some(1.0)),
        (json!({"m": {"value": 0.9999999}}), Some(true), Some(0.9999999)),
        (json!({"m": {"value": 0.4}}), None, Some(0.4)),
        (json!({"m": {"value": 7}}), None, Some(7.0)),
        (json!({"m": {"value": -0.0}}), Some(false), Some(-0.0)),
        (json!({"m": {"value": true}}), Some(true), Some(1.0)),
        (json!({"m": 1}), Some(true), Some(1.0)),
        (json!({"m": {"value": null}}), None, None),
        (json!({"m": {"value": [1]}}), None, None),
        (json!({"a": {"value": "C"}, "b": {"value": 1}}), Some(true), None),
        (json!({"a": {"value": "C"}, "b": {"value": "I"}}), None, None),
        (json!({"a": {"value": "C"}, "b": {"value": "P"}}), None, None),
        (json!({}), None, None),
        (json!(null), None, None),
        (json!("C"), None, None),
    ] {
        let recorded = of(scores.clone());
        assert_eq!((recorded.success, recorded.reward), (success, reward), "{scores}");
    }
}

#[test]
fn inspect_versions_above_are_refused() {
    for (version, runs) in [
        (json!(1), 1),
        (json!(2), 1),
        (json!(3), 1),
        (json!(4), 0),
        (json!(-1), 0),
        (json!(u64::MAX), 0),
        (json!("2"), 0),
        (json!(2.5), 0),
    ] {
        let log = json!({"version": version, "status": "success", "eval": {"task": "t"}, "samples": [
            {"id": 1, "epoch": 1, "messages": [{"role": "assistant", "content": "a"}]}]});
        let (found, problems) = read_bytes("a.json", log.to_string(), &Options::default());
        assert_eq!((found.len(), problems.len()), (runs, 1 - runs), "{version}: {problems:?}");
        if let Some(problem) = problems.first() {
            assert_eq!(problem.kind, ProblemKind::UnknownVersion, "{version}");
        }
    }
}

#[test]
fn react_logs_of_any_line_ends() {
    let log = "Question: Who?\nThought 1: a\nAction 1: Search[x]\nObservation 1: y\n\n\
               Thought 2: b\nAction 2: Finish[z]\nObservation 2: Answer is CORRECT\n";
    let want = parsed("a.txt", log).remove(0);
    assert_eq!(counts(&want), [3, 2, 2, 2, 0]);
    for (what, text) in [
        ("CRLF", log.replace('\n', "\r\n")),
        ("no end", log.trim_end().to_owned()),
        ("blank lines before", format!("\n\n{log}")),
        ("blank lines after", format!("{log}\n\n\n")),
        ("spaces at the end", log.replace("CORRECT\n", "CORRECT  \n")),
    ] {
        let (runs, problems) = read_bytes("a.txt", text, &Options::default());
        assert_eq!((runs.len(), problems.len()), (1, 0), "{what}: {problems:?}");
        assert_eq!((runs[0].recorded, &runs[0].steps.len()), (want.recorded, &3), "{what}");
        assert_eq!(ending(&runs[0]), ending(&want), "{what}");
    }
    let huge = log.replace("Thought 2", "Thought 18446744073709551616");
    assert_eq!(parsed("a.txt", huge)[0].turns().count(), 2, "not the number of the turn");
}

#[test]
fn tau_results_of_any_shape() {
    let row = |more: Value| {
        let mut row = json!({"task_id": 1, "trial": 0, "reward": 1.0, "info": {}, "traj": [
            {"role": "user", "content": "go"}, {"role": "assistant", "content": "yes"}]});
        row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        row
    };
    for (more, success) in [
        (json!({}), Some(true)),
        (json!({"reward": 0.0}), Some(false)),
        (json!({"reward": 0.999}), Some(false)),
        (json!({"reward": 0.9999999}), Some(true)),
        (json!({"reward": 2}), Some(true)),
        (json!({"reward": -1}), Some(false)),
        (json!({"reward": null}), None),
    ] {
        let runs = parsed("m.json", json!([row(more.clone())]).to_string());
        assert_eq!(runs[0].recorded.success, success, "{more}");
        assert_eq!(runs[0].turns().count(), 1, "{more}");
    }
    for (bad, what) in [
        (json!({"reward": "1"}), "reward"),
        (json!({"traj": 7}), "traj"),
        (json!({"traj": [7]}), "traj"),
    ] {
        let list = json!([row(json!({})), row(bad.clone()), row(json!({"task_id": 2}))]);
        let (runs, problems) = read_bytes("m.json", list.to_string(), &Options::default());
        assert_eq!((runs.len(), problems.len()), (2, 1), "{bad}: {problems:?}");
        assert!(problems[0].what.contains(what), "{bad}: {}", problems[0].what);
        assert_eq!(problems[0].at, Some(2), "{bad}");
    }
}

#[test]
fn similar_documents_have_distinct_formats() {
    let messages =
        json!([{"role": "user", "content": "go"}, {"role": "assistant", "content": "a"}]);
    for (document, format) in [
        (json!({"schema": "neutral-traj/1", "run_id": "r", "steps": []}), Some("neutral-traj/1")),
        (json!({"schema": "neutral-traj/9"}), Some("neutral-traj/1")),
        (json!({"schema": "other/1"}), None),
        (json!({"type": "turn_started", "turn": 1, "attempt": 1}), Some("endstop-events")),
        (json!({"type": "outcome"}), None),
        (json!({"messages": messages}), Some("openai-messages")),
        (
            json!({"messages": messages, "response": {"choices": []}, "kwargs": {}}),
            Some("openhands-log"),
        ),
        (
            json!({"suite_name": "s", "pipeline_name": "p", "user_task_id": "u", "messages": messages}),
            Some("agentdojo"),
        ),
        (json!({"trajectory": [{"action": "ls"}], "history": []}), Some("swe-agent")),
        (json!({"history": [{"role": "user", "agent": "main"}]}), Some("swe-agent")),
        (json!({"0": {"environment": "ic_bash", "query": "q"}}), Some("intercode")),
        (json!({"0": {"environment": "bash", "query": "q"}}), None),
        (json!({"condition_id": "c", "item_id": "1", "trace": []}), Some("tothf")),
        (json!({"run_id": 1, "nodes": [], "has_chain_of_thought": true}), Some("malt")),
        (json!({"run_id": 1, "nodes": []}), None),
        (json!({"version": 2, "eval": {}, "samples": []}), Some("inspect")),
        (json!({"type": "thread.started", "thread_id": "t"}), Some("codex")),
        (json!({"type": "turn_ended", "status": "success"}), None),
        (json!({}), None),
        (json!([]), None),
        (json!(null), None),
        (json!("text"), None),
    ] {
        let found = testing::recognised("a.json", document.to_string().as_bytes());
        assert_eq!(found, format, "{document}");
    }
}

/// Quotes a cell if it must be.
fn cell(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) || text.starts_with([' ', '\t']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn known(text: &str, ids: &[String]) -> Vec<Option<bool>> {
    let mut outcomes = Outcomes::parse(text).unwrap_or_else(|e| panic!("{text:?}: {e}"));
    assert_eq!(outcomes.len(), ids.len(), "{text:?}");
    ids.iter()
        .map(|id| {
            let mut run = Trajectory::new(id.clone());
            assert!(outcomes.apply(&mut run), "{id:?} in {text:?}");
            run.recorded.success
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn outcomes_of_any_id_are_found(
        all in btree_map("[a-z\",\n é/#;]{0,6}[a-z]", any::<bool>(), 1..6),
        crlf in any::<bool>(),
    ) {
        // Cells of CSV are trimmed, so an id must not begin with a space.
        let all: Vec<(String, bool)> =
            all.into_iter().map(|(id, success)| (format!("r{id}"), success)).collect();
        let ids: Vec<String> = all.iter().map(|(id, _)| id.clone()).collect();
        let want: Vec<Option<bool>> = all.iter().map(|(_, success)| Some(*success)).collect();
        let end = if crlf { "\r\n" } else { "\n" };
        let rows: String =
            all.iter().map(|(id, success)| format!("{},{success}{end}", cell(id))).collect();
        prop_assert_eq!(known(&format!("run_id,success{end}{rows}"), &ids), want.clone());
        let map: Value = all.iter().map(|(id, success)| (id.clone(), json!(success))).collect();
        prop_assert_eq!(known(&map.to_string(), &ids), want.clone());
        let lines: String = all
            .iter()
            .map(|(id, success)| format!("{}{end}", json!({"run_id": id, "success": success})))
            .collect();
        prop_assert_eq!(known(&lines, &ids), want);
    }

    #[test]
    fn any_outcomes_text_does_not_panic(text in "(run_id|id|success|reward|[\",\r\n{}:\\[\\]a1 -]){0,30}") {
        if let Ok(outcomes) = Outcomes::parse(&text) {
            prop_assert!(outcomes.unused() == outcomes.len());
        }
    }
}
