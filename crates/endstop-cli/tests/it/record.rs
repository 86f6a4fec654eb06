//! `endstop run --record`: the content of the file, and data that must not be in it.

use crate::cli::{
    ANTHROPIC_KEY, Cli, OPENAI_KEY, Started, agent_args, answering, eventually, playing,
};
use endstop::testkit::{Reply, Request, Server, Turn};
use serde_json::{Value, json};

/// The formats in which a run is recorded.
pub(crate) const RECORDED: [&str; 8] = [
    "openai-chat",
    "anthropic-messages",
    "gemini",
    "openai-responses",
    "cohere-v2",
    "ollama",
    "bedrock-converse",
    "bedrock-invoke",
];

/// The Google key, set for the formats that need it.
const GOOGLE_KEY: &str = "AIzaSyDummyG00gleKeyThatMustNeverBeShown";

/// Returns the lines of a recording.
pub(crate) fn lines(cli: &Cli, file: &str) -> Vec<Value> {
    cli.read(file).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    lines.iter().map(|line| line["type"].as_str().unwrap()).collect()
}

#[test]
fn recording_has_requests_and_responses() {
    for api in RECORDED {
        for more in [&[][..], &["--no-stream"]] {
            let cli = Cli::new();
            let server = playing([
                Turn::error(500, r#"{"error": {"message": "try again"}}"#).header("x-seen", "1"),
                Turn::text("Grüße."),
            ]);
            let args =
                [&["Hello.", "--record", "r.jsonl", "--price", "in=3,out=15"], more].concat();
            cli.agent(&server, api, &args).exits(0);
            let lines = lines(&cli, "r.jsonl");
            assert_eq!(kinds(&lines), ["recording", "exchange", "exchange", "ended"]);
            let header = &lines[0];
            assert_eq!((&header["version"], &header["model"]), (&json!(1), &json!("scripted")));
            assert_eq!(header["task"], "Hello.");
            assert_eq!(header["price"]["input"], 3_000_000_000_u64);
            assert!(header["provider"].is_string() && header["api"].is_string(), "{header}");
            let requests = server.requests();
            for (at, line) in lines[1..3].iter().enumerate() {
                assert_eq!(line["id"], (at + 1).to_string());
                assert_eq!(line["method"], "POST");
                assert!(line["url"].as_str().unwrap().ends_with(&requests[at].path), "{line}");
                assert_eq!(line["request"], requests[at].body);
                assert_eq!(line["ended"], "clean");
                // Binary frames are not text.
                let binary = api.starts_with("bedrock") && line["status"] == 200 && more.is_empty();
                assert_eq!(line["body_encoding"], if binary { "base64" } else { "utf-8" });
                assert!(binary || at == 0 || line["body"].as_str().unwrap().contains("Grüße."));
            }
            assert_eq!((&lines[1]["status"], &lines[2]["status"]), (&json!(500), &json!(200)));
            assert_eq!(lines[1]["headers"]["x-seen"], "1");
            assert_eq!(lines[3]["termination"], "stop");
            // `detect` reads the same file.
            let found = cli.run(["detect", "--jsonl", "r.jsonl"]).exits(0).lines();
            assert_eq!(found.len(), 2);
            assert_eq!(
                (&found[0]["id"], &found[0]["error"]["class"]),
                (&json!("1"), &json!("server_error"))
            );
            assert_eq!(
                (&found[1]["turn"]["text"], &found[1]["error"]),
                (&json!("Grüße."), &Value::Null)
            );
        }
    }
}

#[cfg(unix)]
#[test]
fn recording_is_private_and_not_overwritten() {
    use std::os::unix::fs::PermissionsExt as _;
    let cli = Cli::new();
    let server = playing([Turn::text("Yes.")]);
    let args = ["Is it?", "--record", "r.jsonl"];
    cli.agent(&server, "openai-chat", &args).exits(0);
    let mode = std::fs::metadata(cli.path("r.jsonl")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let before = cli.read("r.jsonl");
    cli.agent(&server, "openai-chat", &args).exits(2).notes(&["--record r.jsonl", "not empty"]);
    assert_eq!((server.requests().len(), cli.read("r.jsonl")), (1, before));
    // An empty file may be replaced.
    cli.write("r.jsonl", "");
    cli.agent(&server, "openai-chat", &args).exits(0);
    assert_eq!(lines(&cli, "r.jsonl").len(), 3);
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_does_not_end_run() {
    let cli = Cli::new();
    let server = playing([Turn::text("Yes.")]);
    let done = cli.agent(&server, "openai-chat", &["Is it?", "--record", "/dev/full"]).exits(0);
    assert_eq!(done.stdout, "Yes.\n");
    done.notes(&["--record /dev/full: No space left", "the recording is incomplete"]);
}

#[cfg(target_os = "linux")]
#[test]
fn killed_run_leaves_complete_exchanges() {
    let cli = Cli::new();
    cli.write("a.txt", "a");
    let server = answering(|request| match request.number {
        1 => Reply::turn(request, &Turn::call("read_file", &json!({"path": "a.txt"}))),
        _ => Reply::turn(request, &Turn::text("Half an answer.")).stall_after(900),
    });
    let args = ["Read.", "--tool", "read_file", "--record", "r.jsonl"];
    let mut run = Started::new(cli.command(agent_args(&server, "openai-chat", &args)), "");
    eventually("the second call", || server.requests().len() == 2);
    run.child.kill().unwrap();
    drop(run);
    let lines = lines(&cli, "r.jsonl");
    assert_eq!(kinds(&lines), ["recording", "exchange"]);
    drop(server);
    let done = cli.run(["run", "--replay", "r.jsonl", "--tool", "read_file", "--json"]).exits(10);
    let outcome = done.outcome();
    assert_eq!(outcome["termination"], "error_during_execution");
    assert_eq!((&outcome["turns"], &outcome["tool_calls"]), (&json!(1), &json!(1)));
    let told =
        done.lines().iter().find(|line| line["type"] == "attempt_failed").unwrap().to_string();
    assert!(told.contains("the recording has 1 exchange, "), "{told}");
    assert!(told.contains("it stops before its run ended"), "{told}");
}

/// A reply with the key in every place that can hold it, also split into chunks.
fn echoing(request: &Request, key: &str) -> Reply {
    let key_is = format!("the key is {key}.");
    let headed = |reply: Reply| {
        reply
            .header("x-echo", key)
            .header("x-masked", &format!("{}****{}", &key[..11], &key[key.len() - 4..]))
            .header("set-cookie", "session=0123456789abcdef")
            // The client need not wait before it sends the request again.
            .header("retry-after-ms", "1")
            .split(5)
    };
    let masked = format!("Incorrect key: {}****{}", &key[..12], &key[key.len() - 4..]);
    match request.number {
        1 => headed(Reply::new(
            503,
            "application/json",
            json!({"error": {"message": masked}}).to_string(),
        )),
        2 => headed(Reply::new(500, "text/plain", format!("Bearer {key}\nkey={key}"))),
        3 => {
            let turn =
                Turn::text(&key_is).reasoning(&key_is).and_call("read_file", &json!({"path": key}));
            headed(Reply::turn(request, &turn))
        }
        _ => {
            // Token by token, as a model streams it.
            let pieces: Vec<&str> = key_is
                .as_bytes()
                .chunks(3)
                .map(|piece| std::str::from_utf8(piece).unwrap())
                .collect();
            headed(Reply::turn(request, &Turn::pieces(&pieces)))
        }
    }
}

#[test]
fn recording_contains_no_key_part() {
    for api in RECORDED {
        for more in [&[][..], &["--no-stream"]] {
            let key = match api {
                "gemini" => GOOGLE_KEY,
                "anthropic-messages" => ANTHROPIC_KEY,
                _ => OPENAI_KEY,
            };
            let cli = Cli::new();
            let server = answering(move |request| echoing(request, key));
            let task = format!("Keep {key} to yourself.");
            // An address may contain a password.
            let url = server.base_url().replace("//", "//me:hunter2hunter2@");
            let base = ["run", &task, "--model", "scripted", "--api", api, "--base-url"];
            let flags = ["--tool", "read_file", "--record", "r.jsonl", "--json"];
            let args = [&base[..], &[&url], &flags, more].concat();
            let mut command = cli.command(&args);
            command.env("GOOGLE_API_KEY", GOOGLE_KEY);
            command.env("CO_API_KEY", OPENAI_KEY).env("OLLAMA_API_KEY", OPENAI_KEY);
            match api {
                "bedrock-converse" => command.env("AWS_BEARER_TOKEN_BEDROCK", OPENAI_KEY),
                // Each request is signed.
                "bedrock-invoke" => command
                    .env("AWS_ACCESS_KEY_ID", "AKIADUMMYKEY00000000")
                    .env("AWS_SECRET_ACCESS_KEY", OPENAI_KEY)
                    .env("AWS_SESSION_TOKEN", "hunter2hunter2hunter2")
                    .env("AWS_REGION", "eu-west-3"),
                _ => &mut command,
            };
            let (outcome, _) = outcome_of(command);
            // JSON stays valid after redaction, so the text around the key is kept.
            assert_eq!(outcome["last_text"], "the key is [redacted].", "{api} {more:?}");
            let text = cli.read("r.jsonl");
            assert_eq!(kinds(&lines(&cli, "r.jsonl")).len(), 6, "{api}: {text}");
            for part in key.as_bytes().windows(7) {
                let part = std::str::from_utf8(part).unwrap();
                assert!(!text.contains(part), "{api} {more:?}: {part} in {text}");
            }
            for secret in ["hunter2", "AKIADUMMY", "0123456789abcdef", "bWU6aHVudGVyM"] {
                assert!(!text.contains(secret), "{api}: {secret} in {text}");
            }
            // The chunks joined do not give the key either.
            let found = cli.run(["detect", "--jsonl", "r.jsonl"]).exits(0).lines();
            let last = found.last().unwrap();
            assert_eq!(last["turn"]["text"], "the key is [redacted].", "{api} {more:?}");
            // The redacted request matches, whether or not the key is set now.
            let replay = ["run", "--replay", "r.jsonl", "--tool", "read_file", "--json"];
            for given in [&[][..], &[task.as_str()]] {
                let (outcome, told) = outcome_of(cli.command(replay.iter().chain(given)));
                assert!(!told.contains("differs"), "{told}");
                assert_eq!(outcome["last_text"], "the key is [redacted].");
            }
        }
    }
}

/// Returns the outcome of a run whose output may contain a key, because the model said it, and its
/// notes.
fn outcome_of(mut command: std::process::Command) -> (Value, String) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{done:?}");
    let text = String::from_utf8(done.stdout).unwrap();
    let outcome = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    (outcome, String::from_utf8(done.stderr).unwrap())
}

#[test]
fn call_without_response_is_recorded() {
    let cli = Cli::new();
    let server: Server = playing([Turn::text("Yes.")]);
    let url = server.base_url();
    drop(server);
    let base =
        ["run", "Hello.", "--model", "m", "--base-url", &url, "--max-retries", "0", "--json"];
    let outcome = cli.run(base.iter().chain(&["--record", "r.jsonl"])).exits(10).outcome();
    let lines = lines(&cli, "r.jsonl");
    assert_eq!((&lines[1]["ended"], &lines[1]["status"]), (&json!("failed"), &json!(0)));
    let replayed =
        cli.run(["run", "--replay", "r.jsonl", "--max-retries", "0", "--json"]).exits(10).outcome();
    assert_eq!(replayed["decided_by"], outcome["decided_by"]);
}

#[test]
fn recording_requires_a_model() {
    let cli = Cli::new();
    cli.run(["run", "--record", "r.jsonl"]).exits(2).notes(&["no model is configured"]);
    assert!(!cli.path("r.jsonl").exists());
}
