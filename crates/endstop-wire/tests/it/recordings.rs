//! Recorded responses: the detected signal is the one that each row expects.

use endstop_wire::detect::detect;
use endstop_wire::dialect::dialect;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The recordings in this repository.
pub(crate) const RECORDINGS: [&str; 12] = [
    "openai-chat.jsonl.gz",
    "anthropic-messages.jsonl.gz",
    "openai-responses.jsonl.gz",
    "xai-responses.jsonl.gz",
    "gemini.jsonl.gz",
    "mistral.jsonl.gz",
    "vertex-gemini.jsonl.gz",
    "cohere-v2.jsonl.gz",
    "cohere-v1.jsonl.gz",
    "ollama.jsonl.gz",
    "bedrock-converse.jsonl.gz",
    "bedrock-invoke.jsonl.gz",
];

pub(crate) fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings").join(name)
}

pub(crate) fn rows(path: &Path) -> Vec<Value> {
    let file = std::fs::File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

fn chars(v: &Value) -> usize {
    v.as_str().map_or(0, |s| s.chars().count())
}

/// Returns the fields by which the row is compared, named as in its `expected` object.
fn seen(out: &Value) -> Value {
    let signal = &out["signal"];
    let calls = out["turn"]["tool_calls"].as_array().unwrap();
    json!({
        "reason": signal["reason"],
        "should_terminate": signal["should_terminate"],
        "confidence": signal["confidence"],
        "original_field": signal["provider_specific"]["original_field"],
        "original_value": signal["provider_specific"]["original_value"],
        "has_tool_calls": !calls.is_empty(),
        "tool_call_count": calls.len(),
        "tool_args_valid_json": if calls.is_empty() {
            Value::Null
        } else {
            Value::Bool(calls.iter().all(|c| c["arguments"].is_object()))
        },
        "text_chars": chars(&out["turn"]["text"]),
        "reasoning_chars": out["turn"]["reasoning_chars"],
        "refusal_chars": chars(&out["turn"]["refusal"]),
        "input_tokens": out["usage"]["input_tokens"],
        "output_tokens": out["usage"]["output_tokens"],
        "error_class": out["error"]["class"],
    })
}

fn differences(expected: &Value, out: &Value) -> Vec<String> {
    seen(out)
        .as_object()
        .unwrap()
        .iter()
        .filter(|(k, v)| expected.get(*k).is_some_and(|e| e != *v))
        // Of a response with content, zero tokens are no report.
        .filter(|(k, v)| !(k.ends_with("_tokens") && expected[k.as_str()] == 0 && v.is_null()))
        // The arguments `null` are none.
        .filter(|(k, _)| {
            let no_arguments = || out["turn"]["tool_calls"][0]["arguments"] == json!({});
            !(*k == "tool_args_valid_json" && expected[k.as_str()] == false && no_arguments())
        })
        .map(|(k, v)| format!("{k}: expected {}, got {v}", expected[k.as_str()]))
        .collect()
}

/// Returns the number of certain rows that agree, the number of those rows, and the differences.
fn agree(path: &Path) -> (usize, usize, Vec<String>) {
    let (mut agreed, mut certain, mut told) = (0, 0, Vec::new());
    for row in rows(path) {
        let out = detect(&row).unwrap();
        let wrong = differences(&row["expected"], &out);
        let uncertain = row["expected"]["uncertain"] == true;
        certain += usize::from(!uncertain);
        if wrong.is_empty() {
            agreed += usize::from(!uncertain);
        } else {
            let mark = if uncertain { " (uncertain)" } else { "" };
            told.push(format!("{}{mark}: {}", row["id"], wrong.join("; ")));
        }
    }
    (agreed, certain, told)
}

#[test]
fn certain_rows_agree() {
    for name in RECORDINGS {
        let (agreed, certain, told) = agree(&data(name));
        println!("{name}: {agreed} of {certain} certain rows agree");
        for line in &told {
            println!("  {line}");
        }
        assert_eq!(agreed, certain, "{told:#?}");
    }
}

/// Checks any other set of recordings: `ENDSTOP_RECORDINGS=DIR cargo test … -- --ignored`.
#[test]
#[ignore = "needs recordings that are not kept here"]
fn other_rows() {
    let Some(dir) = std::env::var_os("ENDSTOP_RECORDINGS") else {
        return;
    };
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some(api) = name.strip_suffix(".jsonl.gz") else {
            continue;
        };
        if dialect(api).is_err() {
            continue;
        }
        let (agreed, certain, told) = agree(&path);
        println!("{name}: {agreed} of {certain} certain rows agree");
        for line in told {
            println!("  {line}");
        }
    }
}
