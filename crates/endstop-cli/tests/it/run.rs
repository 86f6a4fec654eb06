//! `endstop run` against a real server, in each format: output, requests, and exit status.

use crate::cli::{ANTHROPIC_KEY, Cli, Done, FORMATS, OPENAI_KEY, Started, agent_args, playing};
use crate::run_endings::{busy, busy_cli};
use endstop::testkit::Turn;
use serde_json::{Value, json};
use std::process::Stdio;

/// Returns the content of the last message of a request as text; the formats nest it differently.
pub(crate) fn last_message(body: &Value) -> String {
    let messages = body.get("messages").unwrap_or(&body["input"]);
    messages.as_array().unwrap().last().unwrap().to_string()
}

/// Returns a number of bytes into a stream after which its text has started and is incomplete.
pub(crate) fn midst(api: &str) -> usize {
    if api == "openai-responses" { 2_200 } else { 900 }
}

pub(crate) fn with<'a>(args: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    args.iter().chain(more).copied().collect()
}

#[test]
fn whole_answer_is_success() {
    for api in FORMATS {
        for more in [&[][..], &["--no-stream"]] {
            let cli = Cli::new();
            let server = playing([Turn::text("The answer is 42.")]);
            let done = cli.agent(&server, api, &with(&["What is it?"], more)).exits(0);
            assert_eq!(done.stdout, "The answer is 42.\n");
            done.notes(&["stopped: stop (success)", "decided  turn", "1/25 turns"]);
            let requests = server.requests();
            assert_eq!(requests.len(), 1);
            assert_eq!(requests[0].body["model"], "scripted");
            assert_eq!(requests[0].body["stream"] == true, more.is_empty());
            assert!(last_message(&requests[0].body).contains("What is it?"));
            let headers = &requests[0].headers;
            let path = match api {
                "openai-chat" => "/v1/chat/completions",
                "openai-responses" => "/v1/responses",
                _ => "/v1/messages",
            };
            assert_eq!(requests[0].path, path);
            if api == "anthropic-messages" {
                assert_eq!(headers["x-api-key"], ANTHROPIC_KEY);
            } else {
                assert_eq!(headers["authorization"], format!("Bearer {OPENAI_KEY}"));
            }
        }
    }
}

#[test]
fn truncated_answer_is_not_success() {
    for (api, value) in [
        ("openai-chat", "length"),
        ("anthropic-messages", "max_tokens"),
        ("openai-responses", "max_output_tokens"),
    ] {
        let cli = Cli::new();
        let server = playing([Turn::text("Half an ans").finish(value)]);
        let done = cli.agent(&server, api, &["Tell me."]).exits(20);
        assert_eq!(done.stdout, "Half an ans\n");
        done.notes(&["stopped: error_output_truncated (capacity)", "--max-output-tokens"]);
        let outcome = cli.agent(&server, api, &["Tell me.", "--json"]).exits(20).outcome();
        assert_eq!(outcome["termination"], "error_output_truncated");
        assert_eq!(outcome["category"], "capacity");
        assert_eq!(outcome["signal"]["reason"], "token_limit_reached");
        assert_eq!(outcome["signal"]["provider_specific"]["original_value"], value);
        assert_eq!(outcome["last_text"], "Half an ans");
    }
}

#[test]
fn unknown_finish_names_accepting_flag() {
    let cli = Cli::new();
    let server = playing([Turn::text("Whole?").finish("fin")]);
    let done = cli.agent(&server, "openai-chat", &["Tell me."]).exits(10).notes(&[
        "finish_reason = \"fin\"",
        "so the answer may be incomplete",
        "--accept-unknown-finish",
    ]);
    assert!(!done.stderr.contains("$0.00"), "a cost without a price: {done:#?}");
    cli.agent(&server, "openai-chat", &["Tell me.", "--accept-unknown-finish"]).exits(0);
}

#[test]
fn tool_output_cannot_move_cursor() {
    let cli = Cli::new();
    cli.write("note.txt", "\u{1b}[2Jall is well\n");
    let server = playing([
        Turn::call("read_file", &json!({"path": "note.txt"})),
        Turn::text("I read the note."),
    ]);
    let args = ["Read.", "--tool", "read_file", "--events", "events.jsonl"];
    let done = cli.agent(&server, "openai-chat", &args).exits(0);
    let explained = cli.run(["explain", "events.jsonl"]).exits(0);
    for shown in [&done.stderr, &explained.stdout] {
        assert!(shown.contains("␛[2Jall is well"), "{shown}");
        assert!(!shown.contains('\u{1b}'), "{shown}");
    }
}

#[test]
fn refused_key_is_never_shown() {
    for (api, key, body) in [
        (
            "openai-chat",
            OPENAI_KEY,
            json!({"error": {"message": format!("Incorrect API key provided: {OPENAI_KEY}."),
                   "type": "invalid_request_error", "param": null, "code": "invalid_api_key"}}),
        ),
        (
            "anthropic-messages",
            ANTHROPIC_KEY,
            json!({"type": "error", "error": {"type": "authentication_error",
                   "message": format!("invalid x-api-key {ANTHROPIC_KEY}")}}),
        ),
    ] {
        let cli = Cli::new();
        let server = playing([Turn::error(401, body.to_string())]);
        // Every run checks that no key is in its output.
        cli.agent(&server, api, &["Hello.", "--events", "events.jsonl"])
            .exits(30)
            .notes(&["stopped: error_provider_auth (fatal)", "check the key"]);
        assert!(!cli.read("events.jsonl").contains(key));
        let outcome = cli.agent(&server, api, &["Hello.", "--json"]).exits(30).outcome();
        assert_eq!(outcome["termination"], "error_provider_auth");
        // A wrong key is not tried twice.
        assert_eq!(server.requests().len(), 2);
    }
}

#[cfg(unix)]
#[test]
fn tools_work_in_their_folder() {
    for api in FORMATS {
        let cli = Cli::new();
        let work = cli.path("work");
        std::fs::create_dir(&work).unwrap();
        let server = playing([
            Turn::call("write_file", &json!({"path": "notes/a.txt", "content": "grüße\n"})),
            Turn::call("shell", &json!({"command": "cat notes/a.txt; pwd; exit 3"})),
            Turn::call("read_file", &json!({"path": "notes/a.txt"})),
            Turn::text("I wrote, looked and read."),
        ]);
        let args = [
            "Do it.",
            "--tool",
            "shell",
            "--tool",
            "read_file",
            "--tool",
            "write_file",
            "--dir",
            "work",
        ];
        let done = cli.agent(&server, api, &args).exits(0);
        assert_eq!(done.stdout, "I wrote, looked and read.\n");
        done.notes(&["→ write_file", "← shell ok", "[exit status 3]", "3 tool calls"]);
        assert_eq!(cli.read("work/notes/a.txt"), "grüße\n");
        let requests = server.requests();
        assert_eq!(requests.len(), 4);
        let names: Vec<&Value> = requests[0].body["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool.pointer("/function/name").unwrap_or(&tool["name"]))
            .collect();
        assert_eq!(names, ["shell", "read_file", "write_file", "finish"]);
        let shell = last_message(&requests[2].body);
        let real = work.canonicalize().unwrap();
        assert!(shell.contains("grüße") && shell.contains("exit status 3"), "{shell}");
        assert!(shell.contains(real.to_str().unwrap()), "{shell}");
        assert!(last_message(&requests[3].body).contains("grüße"));
    }
}

#[cfg(unix)]
#[test]
fn tool_does_not_see_keys() {
    let cli = Cli::new();
    let server =
        playing([Turn::call("shell", &json!({"command": "env"})), Turn::text("I saw nothing.")]);
    cli.agent(&server, "openai-chat", &["Look.", "--tool", "shell"]).exits(0);
    let seen = last_message(&server.requests()[1].body);
    assert!(seen.contains("PATH=") && !seen.contains(OPENAI_KEY), "{seen}");
    assert!(!seen.contains(ANTHROPIC_KEY), "{seen}");
}

#[test]
fn submitted_answer_is_printed() {
    for api in FORMATS {
        let cli = Cli::new();
        let server = playing([Turn::call("finish", &json!({"deliverable": {"n": 42}}))]);
        let args = ["Do it.", "--tool", "read_file"];
        let done = cli.agent(&server, api, &args).exits(0);
        assert_eq!(done.stdout, "{\"n\":42}\n");
        done.notes(&["stopped: submitted (success)"]);
        let server = playing([Turn::call("finish", &json!({"infeasible": "no network"}))]);
        cli.agent(&server, api, &args).exits(30).notes(&["stopped: gave_up", "no network"]);
    }
}

#[test]
fn answer_is_repaired_to_fit_schema() {
    for api in FORMATS {
        let cli = Cli::new();
        cli.write(
            "schema.json",
            r#"{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}"#,
        );
        let server = playing([Turn::text("n is one"), Turn::text("{\"n\": 1}")]);
        let args = ["How many?", "--output-schema", "schema.json", "--json"];
        let done = cli.agent(&server, api, &args).exits(0);
        assert!(
            done.lines()
                .iter()
                .any(|line| line["type"] == "message_injected" && line["why"] == "repair")
        );
        let outcome = done.outcome();
        assert_eq!(outcome["structured"], json!({"n": 1}));
        assert_eq!(server.requests().len(), 2);
        // An answer that never fits the schema.
        let server = playing([Turn::text("n is one")]);
        let args = with(&args, &["--max-structured-output-retries", "1"]);
        let outcome = cli.agent(&server, api, &args).exits(20).outcome();
        assert_eq!(outcome["termination"], "error_max_structured_output_retries");
        assert_eq!(server.requests().len(), 2);
    }
}

#[test]
fn explain_reads_the_events_file() {
    for api in FORMATS {
        let cli = busy_cli();
        let server = playing([
            Turn::call("read_file", &json!({"path": "1.txt"})).and_text("I look."),
            Turn::text("The file contains: content 1."),
        ]);
        let args = ["Read.", "--tool", "read_file", "--json", "--events", "events.jsonl"];
        let done = cli.agent(&server, api, &args).exits(0);
        let printed = done.lines();
        let written: Vec<Value> = cli
            .read("events.jsonl")
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let kinds = |events: &[Value]| -> Vec<String> {
            events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(kinds(&printed), kinds(&written));
        let kinds: Vec<String> =
            kinds(&written).into_iter().filter(|kind| kind != "delta").collect();
        assert_eq!(
            kinds,
            [
                "turn_started",
                "turn_finished",
                "tool_started",
                "tool_finished",
                "turn_started",
                "turn_finished",
                "outcome"
            ]
        );
        let times: Vec<f64> =
            written.iter().map(|event| event["at_ms"].as_f64().unwrap()).collect();
        assert!(times.is_sorted());
        let told: String = written.iter().filter_map(|event| event["text"].as_str()).collect();
        assert!(told.contains("The file contains: content 1."));

        let explained = cli.run(["explain", "events.jsonl"]).exits(0).stdout;
        for says in [
            "turn 1 attempt 1",
            "→ read_file",
            "← read_file ok",
            "content 1",
            "turn 2 attempt 1",
            "\n── stopped: stop (success) ──",
            "\n  why      the model gave a complete answer and requested no tool\n",
            "\n  decided  turn `natural_completion`: ",
            "\n  spent    2 turns · 2 model calls · 1 tool call · ",
            " tokens · cost unknown (no price) · ",
        ] {
            assert!(explained.contains(says), "no {says:?} in {explained}");
        }
        let explained = cli.run(["explain", "events.jsonl", "--json"]).exits(0).lines();
        assert_eq!(explained.len(), 1);
        assert_eq!(explained[0]["events"], written.len());
        assert_eq!(explained[0]["outcome"], *written.last().unwrap());
        assert!(explained[0]["timeline"].as_array().unwrap().len() >= 6);
        // A file that ends before the run does, as after a kill.
        let half: String =
            cli.read("events.jsonl").lines().take(4).map(|line| format!("{line}\n")).collect();
        cli.write("half.jsonl", half);
        let explained = cli.run(["explain", "half.jsonl"]).exits(0);
        assert!(explained.stdout.contains("no outcome"), "{explained:#?}");
    }
}

#[test]
fn flags_override_settings() {
    for api in FORMATS {
        let (cli, server) = (busy_cli(), busy((50, 10)));
        let toml = format!(
            "model = \"from-the-file\"\napi = \"{api}\"\nbase_url = \"{}\"\nsystem = \"Be brief.\"\n\
             tools = [\"read_file\"]\n\n[limits]\nmax_turns = 1\nmax_retries = 0\n\n\
             [policy]\nany = [\"final_pattern\"]\n",
            server.base_url()
        );
        cli.write("settings.toml", &toml);
        let file = ["run", "Read.", "--config", "settings.toml", "--json"];
        let outcome = cli.run(file).exits(20).outcome();
        assert_eq!(outcome["termination"], "error_max_turns");
        let request = &server.requests()[0];
        assert_eq!(request.body["model"], "from-the-file");
        assert!(request.body.to_string().contains("Be brief."));
        assert!(request.body.to_string().contains("read_file"));
        let above = ["--max-turns", "3", "--model", "from-the-flag"];
        let outcome = cli.run(file.iter().chain(&above)).exits(20).outcome();
        assert_eq!(outcome["turns"], 3);
        assert_eq!(server.requests()[1].body["model"], "from-the-flag");
        // `off` disables the limit.
        let timed = ["--max-turns", "off", "--timeout", "1ms"];
        let outcome = cli.run(file.iter().chain(&timed)).exits(20).outcome();
        assert_eq!(outcome["termination"], "error_timeout");
    }
}

#[test]
fn task_is_read_from_standard_input() {
    for api in FORMATS {
        let cli = Cli::new();
        let server = playing([Turn::text("Yes.")]);
        for task in [&[][..], &["-"]] {
            let args = agent_args(&server, api, task);
            cli.feed(args, "A task of\ntwo lines.\n").exits(0);
            let request = server.requests().pop().unwrap();
            assert!(last_message(&request.body).contains("A task of\\ntwo lines."));
        }
        cli.feed(agent_args(&server, api, &[]), " \n").exits(2).notes(&["the task is empty"]);
    }
}

/// Starts it with a standard output that is closed.
fn unread(cli: &Cli, args: Vec<String>) -> Done {
    let mut command = cli.command(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    Started::unread(child).finish()
}

#[test]
fn closed_stdout_does_not_stop_run() {
    for api in FORMATS {
        for more in [&[][..], &["--json"], &["--answer-only"]] {
            let cli = Cli::new();
            cli.write("notes.txt", "the content");
            let call = Turn::call("read_file", &json!({"path": "notes.txt"}));
            let server = playing([call.and_text("I read it."), Turn::text("It is read.")]);
            let args = ["Read.", "--tool", "read_file", "--events", "events.jsonl"];
            let done = unread(&cli, agent_args(&server, api, &with(&args, more))).exits(0);
            assert!(!done.stderr.contains("standard output"), "{done:#?}");
            assert_eq!(server.requests().len(), 2);
            let events = cli.read("events.jsonl");
            let outcome: Value = serde_json::from_str(events.lines().last().unwrap()).unwrap();
            assert_eq!(outcome["termination"], "stop");
            assert_eq!(outcome["last_text"], "It is read.");
        }
    }
}

#[test]
fn cloud_providers_list_their_variables() {
    let cli = Cli::new();
    let vertex = cli.run(["providers", "vertex"]).exits(0).stdout;
    for said in [
        "location CLOUD_ML_REGION or GOOGLE_CLOUD_LOCATION",
        "project  ANTHROPIC_VERTEX_PROJECT_ID or GOOGLE_CLOUD_PROJECT",
        "endpoint GOOGLE_VERTEX_BASE_URL overrides it",
        "key        CLOUDSDK_AUTH_ACCESS_TOKEN",
        "or the file that GOOGLE_APPLICATION_CREDENTIALS names",
        "or what `gcloud auth application-default login` left",
        "api        anthropic-messages at /v1",
    ] {
        assert!(vertex.contains(said), "{said}: {vertex}");
    }
    let azure = cli.run(["providers", "azure"]).exits(0).stdout;
    for said in [
        "AZURE_OPENAI_ENDPOINT overrides it",
        "version    OPENAI_API_VERSION",
        "key        AZURE_OPENAI_AD_TOKEN",
        "api        openai-responses at /openai/v1/responses",
    ] {
        assert!(azure.contains(said), "{said}: {azure}");
    }
    let lines = cli.run(["providers", "vertex", "--json"]).exits(0).lines();
    assert_eq!(lines[0]["places"][1]["location_vars"][0], "CLOUD_ML_REGION");
    assert_eq!(lines[0]["login"]["file_var"], "GOOGLE_APPLICATION_CREDENTIALS");
}

#[test]
fn closed_stdout_never_panics() {
    let cli = Cli::new();
    let row = r#"{"id":"1","api":"openai-chat","status":200,"headers":{},"body":"{}"}"#;
    cli.write("rows.jsonl", format!("{row}\n").repeat(2_000));
    cli.write("scenario.json", r#"{"turns": [{"text": "done"}]}"#);
    for args in [
        &["policies"][..],
        &["providers"],
        &["providers", "openai", "--json"],
        &["--help"],
        &["detect", "--jsonl", "rows.jsonl"],
        &["simulate", "scenario.json"],
    ] {
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        unread(&cli, args).code();
    }
}

#[test]
fn answer_only_prints_nothing_else() {
    let cli = Cli::new();
    cli.write("note.txt", "It is 42.");
    let read = Turn::call("read_file", &json!({"path": "note.txt"})).and_text("I read the note.");
    let args = ["What is it?", "--tool", "read_file", "--answer-only"];
    let said = playing([read.clone(), Turn::text("It is 42.")]);
    assert_eq!(cli.agent(&said, "openai-chat", &args).exits(0).stdout, "It is 42.\n");
    let finish = Turn::call("finish", &json!({"deliverable": "42"})).and_text("I am done.");
    let declared = playing([read, finish]);
    assert_eq!(cli.agent(&declared, "openai-chat", &args).exits(0).stdout, "42\n");
    let cut = playing([Turn::text("Half an ans").finish("length")]);
    assert_eq!(cli.agent(&cut, "openai-chat", &args).exits(20).stdout, "");
    cli.agent(&cut, "openai-chat", &["Go.", "--answer-only", "--json"])
        .exits(2)
        .notes(&["--answer-only", "--json"]);
}

#[test]
fn required_keys_of_rules_are_printed() {
    let printed = Cli::new().run(["policies"]).exits(0).stdout;
    for key in [
        "    name = (required: the name of a tool)",
        "    text = (required: a string (or give `pattern`))",
    ] {
        assert!(printed.contains(key), "no {key:?} in {printed}");
    }
}

#[test]
fn omitted_lines_of_results_are_counted() {
    let cli = Cli::new();
    cli.write("three.txt", "one\ntwo\n\nthree\n");
    let turns = [Turn::call("read_file", &json!({"path": "three.txt"})), Turn::text("Read.")];
    let args = ["Read it.", "--tool", "read_file"];
    cli.agent(&playing(turns), "openai-chat", &args).exits(0).notes(&[": one (+2 lines)"]);
}
