//! Reads files that are truncated or changed at arbitrary positions: no panic, and losses are
//! reported.

use crate::reading::{Read, bytes, read};
use endstop_trajectory::Trajectory;
use endstop_trajectory::read::ProblemKind;
use endstop_trajectory::read::testing;
use std::path::Path;

const FILES: &[(&str, &str, &str)] = &[
    ("claude-code", "claude_code", "agentpile_duplicates.jsonl"),
    ("claude-code", "claude_code", "agentpile_subagents.jsonl"),
    ("claude-code", "claude_code", "atifmake_claude-code-transcript.jsonl"),
    ("claude-code", "claude_code", "daaain_edge_cases.jsonl"),
    ("codex", "codex", "atifmake_codex-exec.jsonl"),
    ("codex", "codex", "ccsc_codex_rollout.jsonl"),
    ("copilot", "copilot", "atifmake_copilot-cli.jsonl"),
    ("cursor", "cursor", "atifmake_cursor_transcript.jsonl"),
    ("inspect", "inspect", "log_formats.json"),
    ("inspect", "inspect", "inspect-sample-bundle.json"),
    ("inspect", "inspect", "log_streaming.eval"),
    ("otel", "otel", "agentpile_pydantic_ai_2.58.0_delegation.json"),
    ("otel", "otel", "agentpile_openai_agents_0.24.0_oi_2.5.3.jsonl"),
    ("otel", "otel", "ai-generateText-doGenerate.json"),
];

/// Bytes with a meaning in JSON, and bytes that are valid nowhere.
const INTERESTING: &[u8] = b"\"{}[],:0\\n-e\n\xff\x00 tu";

/// Checks properties that hold for every run.
fn is_sound(run: &Trajectory<'_>) {
    for call in run.steps.iter().flat_map(|step| &step.calls) {
        let arguments: serde_json::Value = serde_json::from_str(&call.arguments).unwrap();
        assert!(arguments.is_object() || arguments.is_string(), "{}", call.arguments);
    }
    assert!(!run.origin.file.is_empty() || run.origin.format.is_empty());
    run.children.iter().for_each(is_sound);
}

fn is_said(read: &Read) {
    assert!(!read.runs.is_empty() || !read.problems.is_empty(), "neither a run nor a problem");
    read.runs.iter().for_each(is_sound);
}

#[test]
fn truncated_file_is_reported() {
    for (format, folder, file) in FILES {
        let whole = bytes(folder, file);
        let is_lines = file.strip_suffix(".jsonl").is_some();
        for cut in (0..whole.len()).step_by(whole.len() / 120 + 1) {
            let part = &whole[..cut];
            let read = read(format, part);
            is_said(&read);
            testing::recognised(file, part);
            let last = part.rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
            let ends_whole = serde_json::from_slice::<serde_json::Value>(last).is_ok();
            if is_lines && !last.trim_ascii().is_empty() && !ends_whole {
                let half = read.problems.iter().any(|p| p.kind == ProblemKind::Half);
                assert!(half, "{file} cut at {cut}: {:?}", read.problems);
            } else if !is_lines && !whole[cut..].trim_ascii().is_empty() {
                assert!(!read.problems.is_empty(), "{file} cut at {cut}");
                assert!(read.runs.is_empty(), "{file} cut at {cut}");
            }
        }
    }
}

/// Each format of lines finds its records behind damaged ones, wherever those break off.
#[test]
fn records_behind_damaged_ones_are_read() {
    const CUTS: &[&str] =
        &["{\"a\":\"x", "{\"a\":", "{\"a\":1, ", "{\"a\":[", "{\"a\":[{\"b\":1},", "{\"a", "\0\0"];
    const FOLDERS: &[(&str, &str)] = &[
        ("claude-code", "claude_code"),
        ("codex", "codex"),
        ("copilot", "copilot"),
        ("cursor", "cursor"),
        ("gemini-cli", "gemini_cli"),
        ("pi", "pi"),
        ("qwen-code", "qwen_code"),
    ];
    let mut files = 0;
    for (format, folder) in FOLDERS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(folder);
        for entry in std::fs::read_dir(path).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            // This stream names no session, so its messages could be parts of other records.
            if !name.ends_with(".jsonl") || name == "atifmake_claude-code-stream.jsonl" {
                continue;
            }
            files += 1;
            let whole = bytes(folder, &name);
            let expected = read(format, &whole);
            for shift in 0..CUTS.len() {
                let lines = whole.split(|byte| *byte == b'\n').zip(shift..);
                let damaged: Vec<_> = lines
                    .map(|(line, nth)| [CUTS[nth % CUTS.len()].as_bytes(), line].concat())
                    .collect();
                let found = read(format, &damaged.join(&b'\n'));
                let steps =
                    |read: &Read| read.runs.iter().map(|run| run.steps.clone()).collect::<Vec<_>>();
                assert_eq!(steps(&found), steps(&expected), "{name}");
                assert!(found.problems.len() >= expected.problems.len());
            }
        }
    }
    assert!(files > 25);
}

#[test]
fn changed_bytes_do_not_panic() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for (format, folder, file) in FILES {
        let whole = bytes(folder, file);
        for _ in 0..40 {
            let mut changed = whole.clone();
            for _ in 0..=next(8) {
                let at = next(changed.len());
                match next(3) {
                    0 => changed[at] = INTERESTING[next(INTERESTING.len())],
                    1 => drop(changed.remove(at)),
                    _ => {
                        let from = next(changed.len());
                        let piece = changed[from..(from + next(200)).min(changed.len())].to_vec();
                        changed.splice(at..at, piece);
                    }
                }
            }
            // Every format must handle every input.
            for format in [*format, "claude-code", "codex", "inspect", "otel"] {
                is_said(&read(format, &changed));
            }
            testing::recognised(file, &changed);
        }
    }
}

#[test]
fn nonsense_is_not_recognised() {
    for format in ["claude-code", "codex", "inspect", "otel"] {
        for nonsense in [
            &b""[..],
            b"\n\n",
            b"42",
            b"null",
            b"[]",
            b"{}",
            b"\"x\"",
            b"\xff\xfe",
            b"PK\x03\x04",
            b"[[[[",
        ] {
            let read = read(format, nonsense);
            assert!(read.runs.is_empty(), "{format} {nonsense:?}");
            assert!(!read.problems.is_empty(), "{format} {nonsense:?}");
            assert_eq!(testing::recognised("x", nonsense), None, "{nonsense:?}");
        }
    }
}

#[test]
fn formats_recognise_only_their_files() {
    for (format, folder, file) in FILES {
        assert_eq!(testing::recognised(file, &bytes(folder, file)), Some(*format), "{file}");
    }
    for (folder, file) in [("claude_code", "LICENCES.md"), ("otel", "LICENCES.md")] {
        assert_eq!(testing::recognised(file, &bytes(folder, file)), None);
    }
    let openai = br#"{"messages":[{"role":"user","content":"gen_ai. traceId"}]}"#;
    assert_eq!(testing::recognised("chat.json", openai), Some("openai-messages"));
}

#[test]
fn deep_nesting_is_refused() {
    for open in ["[", "{\"a\":", "{\"resourceSpans\":["] {
        let deep = open.repeat(100_000);
        for format in ["claude-code", "codex", "inspect", "otel"] {
            assert!(read(format, deep.as_bytes()).runs.is_empty());
        }
    }
    let closed = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(read("otel", closed.as_bytes()).runs.is_empty());
}

#[test]
fn hostile_input_takes_linear_time() {
    use serde_json::json;
    let mut file = Vec::new();
    // Results without calls, each before a prompt: there is no turn that they could be attached to.
    for i in 0..10_000 {
        for record in [
            json!({"type": "user", "sessionId": "s", "uuid": format!("r{i}"), "message": {"content": [
                {"type": "tool_result", "tool_use_id": i.to_string(), "content": ""}]}}),
            json!({"type": "user", "sessionId": "s", "uuid": format!("u{i}"), "message": {"content": "x"}}),
        ] {
            file.extend(format!("{record}\n").into_bytes());
        }
    }
    let sessions = read("claude-code", &file);
    assert_eq!(sessions.runs[0].steps.len(), 20_000);
    // Spans that are each the child of the one before.
    let spans: Vec<_> = (0..10_000_u64)
        .map(|i| {
            json!({"traceId": "t", "spanId": i.to_string(), "name": "x", "startTimeUnixNano": i,
                "parentSpanId": i.checked_sub(1).map(|i| i.to_string()), "attributes": {
                    "gen_ai.operation.name": if i % 2 == 0 { "execute_tool" } else { "chat" }}})
        })
        .collect();
    let spans = read("otel", serde_json::to_string(&spans).unwrap().as_bytes());
    assert_eq!(spans.runs.len(), 1);
}

#[test]
fn many_agents_take_linear_time() {
    use serde_json::json;
    let started = std::time::Instant::now();
    let agents = 20_000_u64;
    let spans: Vec<_> = (0..agents)
        .flat_map(|nth| {
            let span = |id: String, parent: Option<String>, kind: &str| {
                json!({"traceId": "t", "spanId": id, "parentSpanId": parent, "name": "x",
                    "startTimeUnixNano": nth, "attributes": {"gen_ai.operation.name": kind}})
            };
            [
                span(format!("a{nth}"), None, "invoke_agent"),
                span(format!("c{nth}"), Some(format!("a{nth}")), "chat"),
            ]
        })
        .chain([json!({"traceId": "t", "spanId": "alone", "name": "x", "startTimeUnixNano": 0,
            "attributes": {"gen_ai.operation.name": "chat"}})])
        .collect();
    let found = read("otel", serde_json::to_string(&spans).unwrap().as_bytes());
    // Each agent at the top is a run, and so is what no agent encloses.
    assert_eq!((found.runs.len() as u64, found.problems.len()), (agents + 1, 0));
    assert!(found.runs.iter().all(|run| run.turns().count() == 1));
    assert_eq!(found.runs.last().unwrap().run_id, "t/rest");
    assert!(started.elapsed().as_secs() < 60, "{:?}", started.elapsed());
}
