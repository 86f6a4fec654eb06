//! Reads spans, events and list elements in any order and in any split, and tests the endings that an
//! audit derives.

use crate::common::{counts, ending, fixture, parsed, read_bytes};
use endstop_trajectory::audit::{How, Session};
use endstop_trajectory::read::{Chunks, Opened, Options, ProblemKind, Source};
use endstop_trajectory::{Call, CallResult, Ending, Prices, Role, Step, Trajectory, write};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::fs;
use std::io::Read;

/// Changes the order of each list of spans, wherever it is.
fn reorder(value: &mut Value, turn: usize, lists: &mut usize) {
    let is_span = |one: &Value| one.get("spanId").is_some() || one.get("span_id").is_some();
    match value {
        Value::Array(list) => {
            if list.len() > 1 && list.iter().any(is_span) {
                *lists += 1;
                if turn == 3 {
                    list.reverse();
                } else {
                    let by = (turn + 1) % list.len();
                    list.rotate_left(by);
                }
            }
            list.iter_mut().for_each(|one| reorder(one, turn, lists));
        }
        Value::Object(map) => map.values_mut().for_each(|one| reorder(one, turn, lists)),
        _ => {}
    }
}

fn steps(runs: &[Trajectory<'static>]) -> Vec<Vec<Step<'static>>> {
    let mut all: Vec<_> = runs.iter().map(|run| run.steps.clone()).collect();
    all.sort_by_key(|steps| format!("{steps:?}"));
    all
}

const SPANS: &[&str] = &[
    "otel/agentpile_pydantic_ai_2.58.0.json",
    "otel/agentpile_pydantic_ai_2.58.0_delegation.json",
];

#[test]
fn spans_may_come_in_any_order() {
    for name in SPANS {
        let text = fs::read_to_string(fixture(name)).unwrap();
        let want = steps(&parsed("a.json", text.clone()));
        for turn in 0..4 {
            let mut document: Value = serde_json::from_str(&text).unwrap();
            let mut lists = 0;
            reorder(&mut document, turn, &mut lists);
            assert!(lists > 0, "{name}");
            let runs = parsed("a.json", document.to_string());
            assert_eq!(steps(&runs), want, "{name}: order {turn}");
        }
    }
}

#[test]
fn lines_of_spans_in_any_order() {
    let name = "otel/agentpile_openai_agents_0.24.0_oi_2.5.3.jsonl";
    let text = fs::read_to_string(fixture(name)).unwrap();
    let want = steps(&parsed("a.jsonl", text.clone()));
    let mut lines: Vec<&str> = text.lines().collect();
    for _ in 0..lines.len() {
        lines.rotate_left(1);
        assert_eq!(steps(&parsed("a.jsonl", lines.join("\n"))), want);
        lines.reverse();
        assert_eq!(steps(&parsed("a.jsonl", lines.join("\r\n"))), want);
        lines.reverse();
    }
}

fn copilot(events: &[(&str, Value)]) -> Trajectory<'static> {
    let lines: Vec<String> = events
        .iter()
        .map(|(kind, data)| {
            json!({"type": kind, "data": data, "id": "e", "timestamp": "2026-03-01T10:00:00Z"})
                .to_string()
        })
        .collect();
    parsed("events.jsonl", lines.join("\n")).remove(0)
}

#[test]
fn copilot_results_in_any_order() {
    let ask = || ("user.message", json!({"content": "go"}));
    let call = |ids: &[&str]| {
        let requests: Vec<Value> = ids
            .iter()
            .map(|id| json!({"toolCallId": id, "name": "bash", "arguments": {"command": "ls"}}))
            .collect();
        ("assistant.message", json!({"messageId": "m", "content": "", "toolRequests": requests}))
    };
    let done = |id: &str, success: bool| {
        let result = json!({"content": "a"});
        ("tool.execution_complete", json!({"toolCallId": id, "success": success, "result": result}))
    };
    for (what, events, want) in [
        ("none", vec![ask(), call(&["a"])], [2, 1, 1, 0, 0]),
        ("one", vec![ask(), call(&["a"]), done("a", true)], [2, 1, 1, 1, 0]),
        ("failed", vec![ask(), call(&["a"]), done("a", false)], [2, 1, 1, 1, 1]),
        (
            "reversed",
            vec![ask(), call(&["a", "b"]), done("b", true), done("a", true)],
            [2, 1, 2, 2, 0],
        ),
        ("early", vec![ask(), done("a", true), call(&["a"])], [2, 1, 1, 1, 0]),
    ] {
        let run = copilot(&events);
        assert_eq!(counts(&run), want, "{what}: {:?}", run.notes);
    }
}

#[test]
fn copilot_records_of_wrong_shape() {
    let good = r#"{"type":"user.message","data":{"content":"go"},"id":"e","timestamp":"2026-03-01T10:00:00Z"}"#;
    for (line, what) in [
        (r#"{"data":{}}"#, "an event without its `type`"),
        (r#"{"type":"abort"}"#, "invalid `data`: expected an object, found nothing"),
        (r#"{"type":"abort","data":[]}"#, "found a list"),
        ("7", "expected a JSON object, found a number"),
    ] {
        let text = [good, line, good].join("\n");
        let (runs, problems) = read_bytes("events.jsonl", text, &Options::default());
        assert_eq!((runs.len(), problems.len()), (1, 1), "{line}: {problems:?}");
        assert!(problems[0].what.contains(what), "{line}: {}", problems[0].what);
        assert_eq!(problems[0].at, Some(2), "{line}");
        assert_eq!(runs[0].steps.len(), 2, "{line}");
    }
}

/// A reader that returns at most a few bytes at once.
struct Slow(Vec<u8>, usize, usize);

impl Read for Slow {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let n = self.2.min(buffer.len()).min(self.0.len() - self.1);
        buffer[..n].copy_from_slice(&self.0[self.1..self.1 + n]);
        self.1 += n;
        Ok(n)
    }
}

fn ids_of(text: &str, at_once: usize, options: &Options) -> (Vec<String>, Vec<ProblemKind>) {
    let input = Box::new(Slow(text.as_bytes().to_vec(), 0, at_once));
    let opened = Chunks::of(input, Source::file("a.json"), "a.json".to_owned(), options).unwrap();
    let Opened::Runs(chunks) = opened else { panic!("{text}") };
    let (mut ids, mut kinds) = (Vec::new(), Vec::new());
    for chunk in *chunks {
        match chunk {
            Err(problem) => kinds.push(problem.kind),
            Ok(chunk) => chunk.each(&mut |run| match run {
                Ok(run) => ids.push(run.run_id.to_string()),
                Err(problem) => kinds.push(problem.kind),
            }),
        }
    }
    (ids, kinds)
}

fn junk() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[\\]\\[{}\",:\\\\ a\n\u{e9}]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 10, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec(("[\\]\\[{}\",a]{0,3}", inner), 0..4)
                .prop_map(|list| Value::Object(list.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    #[test]
    fn elements_survive_any_split(
        all in vec(junk(), 1..9),
        at_once in 1_usize..40,
        space in "[ \n\t\r]{0,3}",
    ) {
        let rows: Vec<String> = all
            .iter()
            .enumerate()
            .map(|(nth, junk)| {
                json!({"run_id": nth, "nodes": [], "has_chain_of_thought": true, "junk": junk})
                    .to_string()
            })
            .collect();
        let text = format!("{space}[{space}{}{space}]{space}", rows.join(&format!("{space},{space}")));
        let want: Vec<String> = (0..all.len()).map(|nth| nth.to_string()).collect();
        let (ids, problems) = ids_of(&text, at_once, &Options::default());
        prop_assert_eq!((ids, problems), (want.clone(), vec![]), "{}", text);
        // A list that is cut keeps its complete elements, and reports the rest.
        let first = text.find(&rows[0]).unwrap() + rows[0].len();
        let end = text.rfind(']').unwrap();
        let mut cut = end - at_once.min(end - first);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let (ids, problems) = ids_of(&text[..cut], at_once, &Options::default());
        prop_assert!(!ids.is_empty() && want.starts_with(&ids), "{}", &text[..cut]);
        prop_assert_eq!(problems, [ProblemKind::Half], "{}", &text[..cut]);
    }

    #[test]
    fn long_elements_are_skipped_alone(lengths in vec(0_usize..400, 2..8), at_once in 1_usize..60) {
        let rows: Vec<String> = lengths
            .iter()
            .enumerate()
            .map(|(nth, length)| {
                json!({"run_id": nth, "nodes": [], "has_chain_of_thought": true,
                    "junk": "x".repeat(*length)})
                .to_string()
            })
            .collect();
        let mut options = Options::default();
        options.max_record = 260;
        let fits = |row: &&String| row.len() as u64 <= options.max_record;
        let (ids, problems) = ids_of(&format!("[{}]", rows.join(",")), at_once, &options);
        prop_assert_eq!(ids.len(), rows.iter().filter(fits).count());
        prop_assert_eq!(problems.len(), rows.len() - ids.len());
        prop_assert!(problems.iter().all(|kind| *kind == ProblemKind::TooLong));
        let lines = rows.join("\n");
        let (ids, problems) = ids_of(&format!("{lines}\n"), at_once, &options);
        prop_assert_eq!((ids.len(), problems.len()),
            (rows.iter().filter(fits).count(), rows.len() - rows.iter().filter(fits).count()));
    }
}

#[test]
fn every_prefix_of_atif_is_reported() {
    let run = Trajectory {
        steps: vec![Step {
            text: "é \"a\"\n".into(),
            calls: vec![Call { name: "f".into(), arguments: "{}".into(), ..Call::default() }],
            results: vec![CallResult { content: "1".into(), ..CallResult::default() }],
            ..Step::new(Role::Agent)
        }],
        children: vec![Trajectory::new("child")],
        extra: Map::from_iter([("a".to_owned(), json!([1, {"b": null}]))]),
        ..Trajectory::new("r")
    };
    let mut line = Vec::new();
    write::atif(&run, &mut line).unwrap();
    assert_eq!(parsed("a.json", line.clone()).len(), 1);
    for cut in 0..line.len() {
        let (runs, problems) = read_bytes("a.json", &line[..cut], &Options::default());
        assert!(runs.is_empty() && problems.len() == 1, "{cut}: {problems:?}");
    }
    for tail in ["x", "}", "{}", "\n{}"] {
        let text = [&line[..], tail.as_bytes()].concat();
        let (_, problems) = read_bytes("a.json", text, &Options::default());
        assert_eq!(problems.len(), 1, "{tail:?}: {problems:?}");
    }
}

#[test]
fn writing_errors_are_returned() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            if bytes.len() > self.0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    for room in [0, 1, 40, 100] {
        let error = write::atif(&Trajectory::new("r"), Full(room)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{room}");
    }
}

#[test]
fn audit_maps_every_recorded_reason() {
    let said = |text: &'static str| Step { text: text.into(), ..Step::new(Role::Agent) };
    for (reason, text, how) in [
        ("final", "a", How::Answered),
        ("final", " \n", How::NoAnswer),
        ("agent_submit", "", How::Answered),
        ("reward_threshold", "", How::Answered),
        ("plan_end", "", How::Answered),
        ("handoff", "", How::Answered),
        ("user_stop", "a", How::Answered),
        ("cancelled", "a", How::Stopped),
        ("max_turns", "a", How::Limit),
        ("max_steps", "a", How::Limit),
        ("timeout", "a", How::Limit),
        ("cost_limit", "a", How::Limit),
        ("token_limit", "a", How::Limit),
        ("context_overflow", "a", How::Cut),
        ("output_length", "a", How::Cut),
        ("provider_error", "a", How::Failed),
        ("agent_error", "a", How::Failed),
        ("harness_error", "a", How::Failed),
        ("unknown", "a", How::Unknown),
        ("verifier_timeout", "a", How::Unknown),
        ("of a new kind", "a", How::Unknown),
        ("", "a", How::Unknown),
    ] {
        let run = Trajectory {
            ending: Some(Ending { reason: reason.into(), ..Ending::default() }),
            steps: vec![said(text)],
            ..Trajectory::new("s")
        };
        let ended = Session::of(&run, &Prices::new()).ended;
        assert_eq!((ended.how, ended.recorded), (how, true), "{reason}: {}", ended.words);
        assert!(!ended.words.is_empty() && ended.how.to_string() == ended.how.as_str());
        let with_advice = ended.termination.is_some();
        assert!(!with_advice || ended.how.is_without_answer(), "{reason}");
    }
}

#[test]
fn audit_derives_ending_from_steps() {
    let user = || Step { text: "go".into(), ..Step::new(Role::User) };
    let said = |text: &'static str| Step { text: text.into(), ..Step::new(Role::Agent) };
    let called = |results: usize| Step {
        calls: vec![Call { name: "f".into(), arguments: "{}".into(), ..Call::default() }; 2],
        results: vec![CallResult { content: "a".into(), ..CallResult::default() }; results],
        ..Step::new(Role::Agent)
    };
    let copied = |step: Step<'static>| Step { copied: true, ..step };
    let system = || Step { text: "note".into(), ..Step::new(Role::System) };
    for (what, steps, how) in [
        ("nothing", vec![], How::Empty),
        ("a prompt", vec![user()], How::Empty),
        ("an answer", vec![user(), said("a")], How::Answered),
        ("no text", vec![user(), said("")], How::NoAnswer),
        ("another prompt", vec![user(), said("a"), user()], How::NoAnswer),
        ("all results", vec![user(), called(2)], How::NoAnswer),
        ("a missing result", vec![user(), called(1)], How::Interrupted),
        ("no results", vec![user(), called(0)], How::Interrupted),
        ("a system message last", vec![user(), said("a"), system()], How::Answered),
        ("a copied step last", vec![user(), said("a"), copied(user())], How::Answered),
        ("only copied steps", vec![copied(user()), copied(said("a"))], How::Empty),
    ] {
        let run = Trajectory { steps, ..Trajectory::new("s") };
        let ended = Session::of(&run, &Prices::new()).ended;
        assert_eq!((ended.how, ended.recorded), (how, false), "{what}: {}", ended.words);
        assert_eq!(ending(&run), None, "{what}");
    }
}
