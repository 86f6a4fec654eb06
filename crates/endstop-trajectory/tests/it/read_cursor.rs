//! Tests the reader for Cursor.

use crate::common::{counts, ending, parsed, read_bytes, runs};
use endstop_trajectory::Role;
use endstop_trajectory::read::{Options, ProblemKind};

#[test]
fn fixture_counts_match_manual_count() {
    let run = runs("cursor/atifmake_cursor_transcript.jsonl").remove(0);
    assert_eq!(run.run_id, "atifmake_cursor_transcript");
    assert_eq!(counts(&run), [4, 3, 3, 0, 0]);
    assert_eq!(ending(&run), Some(("cancelled", Some("error"))));
    assert_eq!(run.ending.unwrap().failure_mode.as_deref(), Some("User aborted request"));
    assert!(run.tags.contains(&"no_results".into()), "{:?}", run.tags);
    let calls: Vec<_> =
        run.steps[1].calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
    assert_eq!(
        calls,
        [
            ("Glob", r#"{"target_directory":"/repo/src","glob_pattern":"**/*.py"}"#),
            ("ReadFile", r#"{"path":"/repo/README.md","limit":15}"#),
        ]
    );
    assert_eq!(run.steps[1].text, "I'll look at the tree first.");
}

const ASKED: &str = r#"{"role":"user","message":{"content":[{"type":"text","text":"go"}]}}"#;
const SAID: &str = r#"{"role":"assistant","message":{"content":[{"type":"text","text":"done"}]}}"#;

#[test]
fn last_turn_end_decides_ending() {
    let ended = |status: &str| format!(r#"{{"type":"turn_ended","status":"{status}"}}"#);
    let of = |lines: &[&str]| parsed("a.jsonl", lines.join("\n")).remove(0);
    let run = of(&[ASKED, SAID, &ended("success")]);
    assert_eq!(ending(&run), Some(("final", Some("success"))));
    assert_eq!(run.ending.unwrap().answer.as_deref(), Some("done"));
    let run = of(&[ASKED, SAID, &ended("success"), ASKED]);
    assert_eq!(ending(&run), None, "what was asked next was not answered");
    let run = of(&[ASKED, SAID, &ended("cancelled")]);
    assert_eq!(ending(&run), Some(("cancelled", Some("cancelled"))));
    let run = of(&[ASKED, SAID, &ended("error")]);
    assert_eq!(ending(&run), Some(("unknown", Some("error"))), "an error of which nothing is said");
}

#[test]
fn complete_run_has_no_tags() {
    let ended = r#"{"type":"turn_ended","status":"success"}"#;
    let chat = parsed("a.jsonl", [ASKED, SAID, ended].join("\n")).remove(0);
    assert!(chat.tags.is_empty(), "it has no calls: {:?}", chat.tags);
    let run = parsed("a.jsonl", [ASKED, SAID, ASKED, ended].join("\n")).remove(0);
    assert_eq!(run.ending.unwrap().answer, None);
    let chat = r#"{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}"#;
    let (runs, _) = read_bytes("a.jsonl", [chat, ended, chat].join("\n"), &Options::default());
    assert!(runs.len() == 2 && runs[0].origin.format == "openai-messages", "{runs:?}");
}

#[test]
fn results_are_read_if_present() {
    let call = r#"{"role":"assistant","message":{"content":[{"type":"tool_use","id":"t1","name":"Shell","input":{"command":"ls"}}]}}"#;
    let result = r#"{"role":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"a.py","is_error":true}]}}"#;
    let run = parsed("a.jsonl", [ASKED, call, result, SAID].join("\n")).remove(0);
    assert_eq!(counts(&run), [3, 2, 1, 1, 1]);
    assert_eq!(run.steps[1].results[0].content, "a.py");
    assert!(run.tags.is_empty() && run.notes.is_empty(), "{:?} {:?}", run.tags, run.notes);
}

#[test]
fn unknown_role_is_a_problem() {
    let odd = r#"{"role":"narrator","message":{"content":[]}}"#;
    let (runs, problems) =
        read_bytes("a.jsonl", [ASKED, odd, SAID].join("\n"), &Options::default());
    assert_eq!(problems.len(), 1);
    assert_eq!((problems[0].kind, problems[0].at), (ProblemKind::Malformed, Some(2)));
    assert!(problems[0].what.contains("`narrator`"), "{}", problems[0].what);
    assert_eq!(runs[0].steps.last().unwrap().role, Role::Agent, "the rest is read");
    let image =
        r#"{"role":"user","message":{"content":[{"type":"image","source":{"path":"a.png"}}]}}"#;
    let run = parsed("a.jsonl", [ASKED, image].join("\n")).remove(0);
    assert_eq!(run.steps[1].extra.as_ref().unwrap()["content"][0]["source"]["path"], "a.png");
}
