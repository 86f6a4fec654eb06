//! Tests which endings of a session contradict its record, with the commands, results and answers
//! that coding agents write.

use endstop_trajectory::audit::{How, Session};
use endstop_trajectory::{Call, CallResult, Origin, Prices, Role, Step, Trajectory};
use serde_json::json;

fn user(text: &'static str) -> Step<'static> {
    Step { text: text.into(), ..Step::new(Role::User) }
}

fn said(text: &'static str) -> Step<'static> {
    Step { text: text.into(), ..Step::new(Role::Agent) }
}

/// A turn that runs a command with this exit code.
fn ran(line: &str, content: &'static str, exit_code: i64) -> Step<'static> {
    Step {
        calls: vec![Call {
            id: Some("c".into()),
            name: "Bash".into(),
            arguments: json!({"command": line}).to_string().into(),
            extra: None,
        }],
        results: vec![CallResult {
            call_id: Some("c".into()),
            content: content.into(),
            is_error: exit_code != 0,
            exit_code: Some(exit_code),
            extra: None,
        }],
        ..Step::new(Role::Agent)
    }
}

fn session(steps: Vec<Step<'static>>) -> Session {
    let origin = Origin { format: "claude-code", file: "a".into(), at: None };
    Session::of(&Trajectory { steps, origin, ..Trajectory::new("s") }, &Prices::new())
}

fn kind(lines: &[(&str, i64)], answer: &'static str) -> Option<String> {
    let mut steps = vec![user("Fix it.")];
    steps.extend(lines.iter().map(|(line, code)| ran(line, "2 failed", *code)));
    steps.push(said(answer));
    session(steps).sign.map(|sign| sign.kind.into_owned())
}

#[test]
fn searches_without_matches_contradict_nothing() {
    for (line, want) in [
        ("cargo test", Some("test")),
        ("cargo build 2>&1", Some("build")),
        ("cargo clippy", Some("lint")),
        ("./run.sh", Some("command")),
        ("grep -q todo src", None),
        ("grep -E 'todo|fixme' src", None),
        ("rg \"todo; fixme\" src 2>&1", None),
        ("git diff --exit-code > /dev/null 2>&1", None),
        ("test -f Cargo.toml", None),
        ("cargo test 2>&1 | grep -c passed", None),
        ("grep x src || cargo test", Some("test")),
        ("cat > t.sh <<'EOF'\ncargo test # it's\nEOF\ngrep x t.sh", None),
        ("echo 'cargo test' > t.sh; ./t.sh", Some("command")),
    ] {
        assert_eq!(kind(&[(line, 1)], "All done.").as_deref(), want, "{line:?}");
    }
}

#[test]
fn later_success_settles_a_failure() {
    for (lines, want) in [
        (&[("cargo test", 1), ("cargo test", 0)][..], None),
        (&[("cargo test", 0), ("cargo test", 1)], Some("test")),
        // A failed test counts until a test succeeds.
        (&[("cargo test", 1), ("ls", 0)], Some("test")),
        (&[("cargo build", 1), ("cargo test", 0)], None),
        (&[("cargo build", 1), ("ls", 0)], Some("build")),
        (&[("make install", 1), ("cargo build", 0)], None),
        (&[("./run.sh", 1), ("ls", 0)], None),
        (&[("./run.sh", 1), ("grep x a", 1)], Some("command")),
        (&[("cargo clippy", 1), ("cargo test", 1)], Some("test")),
    ] {
        assert_eq!(kind(lines, "It works now.").as_deref(), want, "{lines:?}");
    }
}

#[test]
fn admitting_or_negating_answers_claim_nothing() {
    for (answer, claims) in [
        ("All tests pass.", true),
        ("**Done!** ✅", true),
        ("Fixed the failing test.", true),
        ("It builds without errors and works.", true),
        ("0 failed, all passing.", true),
        ("The tests failed with a timeout before; fixed. It works.", true),
        ("It’s not done.", false),
        ("I couldn’t finish: done later.", false),
        ("Once it is fixed, run it.", false),
        ("Two tests still fail. Otherwise done.", false),
        ("Done, unfortunately one test is broken.", false),
        ("What next?", false),
        ("", false),
    ] {
        assert_eq!(kind(&[("cargo test", 1)], answer).is_some(), claims, "{answer:?}");
    }
}

#[test]
fn sign_quotes_failure_and_claim() {
    let mut steps =
        vec![user("Fix it."), ran("cargo test", "ok\nerror: 2 failed\n\nsee above", 101)];
    steps.push(ran("ls", "a", 0));
    steps.push(said("I looked. Everything works with key sk-abcdefghijklmnopqrstuvwx123456."));
    let sign = session(steps.clone()).sign.unwrap();
    assert_eq!((&*sign.kind, sign.turn, sign.calls_after), ("test", 1, 1));
    assert_eq!((&*sign.command, &*sign.failure), ("cargo test", "error: 2 failed"));
    assert_eq!(sign.exit_code, Some(101));
    assert!(sign.claim.contains("works") && !sign.claim.contains("sk-abc"), "{}", sign.claim);
    // A call that the user refused never ran.
    steps[1].results[0].content = "The user doesn't want to proceed with this tool use.".into();
    assert_eq!(session(steps.clone()).sign, None);
    // Without results nothing is known.
    let run = Trajectory { steps, tags: vec!["no_results".into()], ..Trajectory::new("s") };
    assert_eq!(Session::of(&run, &Prices::new()).sign, None);
}

#[test]
fn last_step_decides_an_unrecorded_ending() {
    let open = || {
        let mut step = ran("ls", "", 0);
        step.results.clear();
        step
    };
    let api_error = || {
        let extra = json!({"isApiErrorMessage": true}).as_object().cloned().map(Box::new);
        Step { extra, ..user("API Error: 529 {\"type\":\"overloaded_error\"}") }
    };
    for (what, steps, how) in [
        ("nothing", vec![], How::Empty),
        ("a prompt", vec![user("go")], How::Empty),
        ("an answer", vec![user("go"), said("Yes.")], How::Answered),
        ("a blank answer", vec![user("go"), said(" \n")], How::NoAnswer),
        ("a prompt after an answer", vec![user("go"), said("Yes."), user("and?")], How::NoAnswer),
        ("an open call", vec![user("go"), open()], How::Interrupted),
        ("a result", vec![user("go"), ran("ls", "a", 0)], How::NoAnswer),
        (
            "an interruption",
            vec![user("go"), open(), user("[Request interrupted by user for tool use]")],
            How::Stopped,
        ),
        (
            "a local command after an answer",
            vec![user("go"), said("Yes."), user("<command-name>/exit</command-name>")],
            How::Answered,
        ),
        ("an error of the provider", vec![user("go"), said("a"), api_error()], How::Failed),
        (
            "instructions last",
            vec![user("go"), said("Yes."), Step::new(Role::System)],
            How::Answered,
        ),
    ] {
        let session = session(steps);
        assert_eq!(session.ended.how, how, "{what}: {}", session.ended.words);
        assert!(!session.ended.recorded, "{what}");
    }
}

#[test]
fn requests_are_split_at_answers() {
    let turn = || ran("ls", "a", 0);
    for (what, steps, requests) in [
        ("one", vec![user("a"), said("b")], 1),
        ("two", vec![user("a"), said("b"), user("c"), said("d")], 2),
        ("a message while it works", vec![user("a"), turn(), user("also"), said("b")], 1),
        (
            "after an interruption",
            vec![user("a"), turn(), user("[Request interrupted by user]"), user("b"), said("c")],
            2,
        ),
        ("an unanswered prompt", vec![user("a"), said("b"), user("c")], 1),
        ("a blank message", vec![user("a"), said("b"), user(" "), said("c")], 1),
        ("no prompt", vec![said("b")], 1),
    ] {
        let session = session(steps.clone());
        assert_eq!(session.requests, requests, "{what}");
        // Other formats are runs of one request.
        let run = Trajectory { steps, ..Trajectory::new("s") };
        assert_eq!(Session::of(&run, &Prices::new()).requests, 1, "{what}");
    }
}

/// Calls and results of one id within a turn are matched in order.
#[test]
fn same_id_calls_have_own_results() {
    let call = |name: &str| json!({"id": "x", "function": {"name": name, "arguments": "{}"}});
    let told = |content: &str| json!({"role": "tool", "tool_call_id": "x", "content": content});
    for (results, notes) in
        [(vec![told("1"), told("2")], 0), (vec![told("1"), told("2"), told("3")], 1)]
    {
        let mut list = vec![
            json!({"role": "user", "content": "go"}),
            json!({"role": "assistant", "content": "", "tool_calls": [call("f"), call("g")]}),
        ];
        list.extend(results);
        let list = json!({"messages": list}).to_string();
        let run = crate::common::parsed("a.json", list).remove(0);
        let step = &run.steps[1];
        let found = [0, 1].map(|nth| &*step.result_of(nth).unwrap().content);
        assert_eq!((found, run.notes.len()), (["1", "2"], notes), "{:?}", run.notes);
    }
}

/// A message of the user that has only results is not a step, whatever else it records.
#[test]
fn message_of_results_is_not_step() {
    let result = json!({"type": "tool_result", "tool_use_id": "c", "content": "ok"});
    for (more, steps) in [
        (json!({}), 3),
        (json!({"id": "m7"}), 3),
        (json!({"timestamp": "2026-01-01T00:00:00Z", "uuid": "u"}), 3),
    ] {
        let mut message = json!({"role": "user", "content": [result]});
        message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let list = json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
            message,
            {"role": "assistant", "content": "Yes."},
        ]);
        let run = crate::common::parsed("a.json", list.to_string()).remove(0);
        assert_eq!(run.steps.len(), steps, "{more}");
        let extra = run.steps[1].results[0].extra.as_deref().cloned().unwrap_or_default();
        assert_eq!(json!(extra), more, "nothing is lost");
    }
    // An image next to the result is a message of its own.
    let image = json!({"type": "image", "source": {"type": "base64", "data": "x"}});
    let list = json!([
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
        {"role": "user", "content": [result, image]},
    ]);
    let run = crate::common::parsed("a.json", list.to_string()).remove(0);
    assert_eq!((run.steps.len(), run.steps[1].results.len()), (3, 1));
}

/// The notes about calls and results, in the readers that build a run step by step.
#[test]
fn notes_count_what_is_odd() {
    let call = |id: &str| json!({"id": id, "function": "f", "arguments": {}});
    let turn = |ids: &[&str]| {
        let calls: Vec<_> = ids.iter().map(|id| call(id)).collect();
        json!({"role": "assistant", "content": "", "tool_calls": calls})
    };
    let told = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": id});
    for (messages, notes, results) in [
        (vec![turn(&["a", "b"]), told("b"), told("a")], &[][..], &[2][..]),
        (vec![turn(&["a"])], &["calls without a result: 1"], &[0]),
        (vec![turn(&["a", "a"]), told("a"), told("a")], &[], &[2]),
        (vec![turn(&["a", "a"]), told("a")], &["calls without a result: 1"], &[1]),
        (
            vec![turn(&["a"]), told("a"), told("a"), told("a")],
            &["calls with more than one result: 1"],
            &[3],
        ),
        (vec![turn(&["a"]), told("a"), turn(&["a"]), told("a")], &["reused call ids: 1"], &[1, 1]),
        (
            vec![turn(&["a"]), turn(&["a"]), told("a")],
            &["calls without a result: 1", "reused call ids: 1"],
            &[0, 1],
        ),
        (vec![told("a"), turn(&["a"])], &["results that come before their call: 1"], &[1]),
        (vec![turn(&["a"]), told("a"), told("x")], &["results without a call: 1"], &[2]),
    ] {
        let sample = json!({"id": 1, "epoch": 1, "messages": messages});
        let log = json!({"version": 2, "status": "success", "eval": {}, "samples": [sample]});
        let run = crate::common::parsed("a.json", log.to_string()).remove(0);
        assert_eq!(run.notes, notes, "{log}");
        let found: Vec<usize> = run.turns().map(|step| step.results.len()).collect();
        assert_eq!(found, results, "{log}");
    }
}
