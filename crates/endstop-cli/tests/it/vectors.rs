//! `simulate`, `decide` and `detect` on every vector and every recording with a certain result.

use crate::cli::Cli;
use flate2::read::GzDecoder;
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::{Path, PathBuf};

fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata").join(name)
}

/// Returns the cases of a file of vectors; asserts their number.
fn cases(file: &str, count: usize) -> Vec<Value> {
    let path = testdata("conformance").join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let document: Value = serde_json::from_str(&text).unwrap();
    let cases = document["cases"].as_array().unwrap().clone();
    assert_eq!(cases.len(), count, "{file}");
    cases
}

fn jsonl(values: impl IntoIterator<Item = Value>) -> String {
    values.into_iter().map(|value| format!("{value}\n")).collect()
}

/// Returns the differences between an output and its expected fields.
fn differences(expect: &Value, output: &Value) -> Vec<String> {
    expect
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, value)| output[key.as_str()] != **value)
        .map(|(key, value)| format!("{key}: expected {value}, got {}", output[key.as_str()]))
        .collect()
}

#[test]
fn simulate_agrees_with_every_scenario() {
    let cli = Cli::new();
    let cases = cases("kernel.json", 86);
    let lines = cases.iter().map(|case| json!({"id": case["id"], "scenario": case["scenario"]}));
    let file = cli.write("scenarios.jsonl", jsonl(lines));
    let done = cli.run(["simulate", "--jsonl", file.to_str().unwrap()]).exits(0);
    let outputs = done.lines();
    assert_eq!(outputs.len(), cases.len());
    let mut wrong = Vec::new();
    for (case, output) in cases.iter().zip(&outputs) {
        assert_eq!(case["id"], output["id"]);
        let differences = differences(&case["expect"], output);
        // A known difference from the original, which the page of departures explains.
        if case["quirk"] == true {
            assert!(!differences.is_empty(), "{}: no departure any more", case["id"]);
            continue;
        }
        if !differences.is_empty() {
            wrong.push(format!("{}: {}", case["id"], differences.join("; ")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn simulate_reads_file_and_stdin() {
    let cli = Cli::new();
    for case in cases("kernel.json", 86).iter().step_by(17) {
        let text = case["scenario"].to_string();
        cli.write("scenario.json", &text);
        for done in [cli.run(["simulate", "scenario.json"]), cli.feed(["simulate", "-"], &text)] {
            let output = done.exits(0).outcome();
            assert_eq!(differences(&case["expect"], &output), [""; 0], "{}", case["id"]);
        }
    }
}

fn decide(file: &str, count: usize) {
    let cli = Cli::new();
    let mut wrong = Vec::new();
    for case in cases(file, count) {
        let policy = format!("{}={}", case["policy"].as_str().unwrap(), case["config"]);
        let lines = case["lines"].as_array().unwrap();
        let done =
            cli.feed(["decide", "--policy", &policy], &jsonl(lines.iter().cloned())).exits(0);
        let expect = case["expect"].as_array().unwrap();
        let outputs = done.lines();
        assert_eq!(outputs.len(), expect.len(), "{}: {done:#?}", case["id"]);
        for (expect, output) in expect.iter().zip(&outputs) {
            let agrees = match expect {
                Value::Null => output.is_null(),
                expect => differences(expect, output).is_empty(),
            };
            if !agrees {
                wrong.push(format!("{}: expected {expect}, got {output}", case["id"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn decide_agrees_on_final_pattern_calls() {
    decide("policy_final_pattern_call.json", 71);
}

#[test]
fn decide_agrees_on_final_pattern_expressions() {
    decide("policy_final_pattern_regex.json", 83);
}

#[test]
fn decide_agrees_on_reward_thresholds() {
    decide("policy_reward_threshold.json", 23);
}

#[test]
fn decide_agrees_on_confidence() {
    decide("policy_confidence.json", 11);
}

#[test]
fn decide_agrees_on_composites() {
    decide("policy_composite.json", 13);
}

fn recordings(name: &str) -> Vec<Value> {
    let path = testdata("recordings").join(name);
    let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Converts an output to the form of the rows' `expected`.
fn seen(output: &Value) -> Value {
    let signal = &output["signal"];
    json!({
        "reason": signal["reason"],
        "should_terminate": signal["should_terminate"],
        "confidence": signal["confidence"],
        "original_field": signal["provider_specific"]["original_field"],
        "original_value": signal["provider_specific"]["original_value"],
        "tool_call_count": output["turn"]["tool_calls"].as_array().map_or(0, Vec::len),
        "text_chars": output["turn"]["text"].as_str().map_or(0, |text| text.chars().count()),
        "input_tokens": output["usage"]["input_tokens"],
        "output_tokens": output["usage"]["output_tokens"],
        "error_class": output["error"]["class"],
    })
}

fn detect(name: &str, count: usize, certain: usize) {
    let cli = Cli::new();
    let rows = recordings(name);
    assert_eq!(rows.len(), count);
    let file = cli.write("rows.jsonl", jsonl(rows.iter().cloned()));
    let outputs = cli.run(["detect", "--jsonl", file.to_str().unwrap()]).exits(0).lines();
    assert_eq!(outputs.len(), count);
    let (mut compared, mut wrong) = (0, Vec::new());
    for (row, output) in rows.iter().zip(&outputs) {
        assert_eq!(row["id"], output["id"]);
        let expected = &row["expected"];
        if expected["uncertain"] == true {
            continue;
        }
        compared += 1;
        for (key, seen) in seen(output).as_object().unwrap() {
            let expected = expected.get(key).unwrap_or_else(|| panic!("{}: no {key}", row["id"]));
            if expected != seen {
                wrong.push(format!("{}: {key}: expected {expected}, got {seen}", row["id"]));
            }
        }
    }
    assert_eq!(compared, certain);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn detect_agrees_on_openai_chat() {
    detect("openai-chat.jsonl.gz", 129, 127);
}

#[test]
fn detect_agrees_on_anthropic_messages() {
    detect("anthropic-messages.jsonl.gz", 113, 112);
}

#[test]
fn detect_agrees_on_gemini() {
    detect("gemini.jsonl.gz", 94, 93);
    detect("vertex-gemini.jsonl.gz", 91, 85);
}

#[test]
fn detect_agrees_on_cohere() {
    detect("cohere-v2.jsonl.gz", 63, 63);
    detect("cohere-v1.jsonl.gz", 12, 12);
}

#[test]
fn detect_agrees_on_bedrock() {
    detect("bedrock-converse.jsonl.gz", 95, 95);
    detect("bedrock-invoke.jsonl.gz", 48, 48);
}

#[test]
fn detect_reads_file_and_stdin() {
    let cli = Cli::new();
    for name in ["openai-chat.jsonl.gz", "anthropic-messages.jsonl.gz"] {
        // Rows are left out if their result depends on the request, which a body alone does not
        // contain.
        let rows = recordings(name).into_iter().filter(|row| {
            row["body_encoding"] == "utf-8"
                && row["expected"]["uncertain"] != true
                && row["request"].get("stop").is_none()
                && row["request"].get("stop_sequences").is_none()
        });
        for row in rows.step_by(20) {
            let body = row["body"].as_str().unwrap();
            cli.write("body", body);
            let (api, status) = (row["api"].as_str().unwrap(), row["status"].to_string());
            let args = ["detect", "--api", api, "--status", &status];
            let piped = cli.feed(args, body).exits(0);
            let file = cli.run(args.into_iter().chain(["body"])).exits(0);
            assert_eq!(piped.stdout, file.stdout);
            let output = &file.lines()[0];
            for key in ["reason", "original_value", "text_chars", "error_class"] {
                assert_eq!(row["expected"][key], seen(output)[key], "{}: {key}", row["id"]);
            }
        }
    }
}

#[test]
fn detect_finds_missing_format() {
    let cli = Cli::new();
    for name in ["openai-chat.jsonl.gz", "anthropic-messages.jsonl.gz", "gemini.jsonl.gz"] {
        let rows = recordings(name);
        for row in rows.iter().filter(|row| row["status"] == 200).step_by(25) {
            let (body, api) = (row["body"].as_str().unwrap(), row["api"].as_str().unwrap());
            let found = cli.feed(["detect"], body).exits(0).lines().remove(0);
            let given = cli.feed(["detect", "--api", api], body).exits(0).lines().remove(0);
            assert_eq!(found["api"], api, "{}", row["id"]);
            let mut rest = found.clone();
            rest.as_object_mut().unwrap().remove("api");
            assert_eq!(rest, given, "{}", row["id"]);
        }
    }
}

#[test]
fn detect_names_likely_format() {
    let cli = Cli::new();
    let stream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\n";
    let done = cli.feed(["detect", "--api", "openai-chat"], stream).exits(0);
    let says = "this looks like anthropic-messages";
    assert!(done.stderr.contains(&format!("{says}; pass --api anthropic-messages")), "{done:#?}");
    let found = done.lines().remove(0);
    for message in [&found["signal"]["message"], &found["error"]["message"]] {
        assert!(message.as_str().unwrap().contains(says), "{found}");
    }
    let error = r#"{"error":{"message":"no","type":"t","param":null,"code":null}}"#;
    cli.feed(["detect", "--status", "400"], error)
        .exits(2)
        .notes(&["--api is not given", "openai-chat or openai-responses"]);
    let row = json!({"id": 7, "body": stream}).to_string();
    let line = cli.feed(["detect", "--jsonl"], &row).exits(0).lines().remove(0);
    assert_eq!((&line["id"], &line["api"]), (&json!(7), &json!("anthropic-messages")));
}
