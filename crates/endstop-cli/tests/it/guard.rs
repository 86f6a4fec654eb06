//! `endstop guard` around a scripted client: this test program itself, which is started again with
//! [`CLIENT`] and then talks to the provider that its environment names.

#![allow(
    clippy::exit,
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "the test program is also the client program that guard runs"
)]

use crate::cli::{
    ANTHROPIC_KEY, Cli, Done, OPENAI_KEY, Started, answering, ask, eventually, playing,
    post_as_nobody,
};
use crate::terminal::Terminal;
use endstop::testkit::{Reply, Server, Turn};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, exit};

/// The variable that makes this program the client. Its value is what the tool of the client does:
/// a text that it returns, or `sleep N`. With [`TITLED`], it first asks for a title without tools.
const CLIENT: &str = "GUARD_TEST_CLIENT";

const TITLED: &str = "with a title";

/// The client that makes requests, but no model call.
const PROBES: &str = "probes";

/// The client whose tool waits for a file.
const WAITS: &str = "waits";

/// The client that shows an image to the model, and ends if it may not.
const SHOWS: &str = "shows";

/// The client that continues without the image.
const SHOWS_ONCE: &str = "shows once";

/// The client that first tries which models there are, each with a call for one token.
const TESTS_MODELS: &str = "tests models";

/// The client that forces one call and takes its arguments for the answer.
const EXTRACTS: &str = "extract";

/// Arguments of the test program that run only [`scripted_client`].
const ONLY_CLIENT: [&str; 5] =
    ["guard::scripted_client", "--exact", "--ignored", "--nocapture", "--quiet"];

/// The client whose tool returns the base URL.
const TELLS: &str = "its address";

/// Status of the client after an answer that it cannot use.
const UNUSABLE: i32 = 7;

#[test]
#[ignore = "the client of the other tests"]
fn scripted_client() {
    let Ok(tool) = std::env::var(CLIENT) else { return };
    let base = std::env::var("OPENAI_BASE_URL").unwrap();
    let mut messages = vec![json!({"role": "user", "content": "do the task"})];
    let url = format!("{base}/chat/completions?key={ANTHROPIC_KEY}");
    if tool == PROBES {
        // Requests that no limit counts.
        let tested = TcpStream::connect(base.split('/').nth(2).unwrap()).and_then(|mut stream| {
            stream.write_all(b"HEAD / HTTP/1.1\r\nhost: guard\r\nconnection: close\r\n\r\n")?;
            stream.read_to_string(&mut String::new())
        });
        tested.unwrap();
        post(&format!("{base}/embeddings"), &json!({"model": "e", "input": "x"}));
        exit(0);
    }
    if tool == TESTS_MODELS {
        let body =
            json!({"model": "gpt-4o", "max_tokens": 1, "stream": true, "messages": messages});
        for _ in 0..5 {
            post(&url, &body);
        }
    }
    if tool == TITLED {
        post(&url, &json!({"model": "gpt-4o", "stream": true, "messages": messages})).unwrap();
    }
    if [SHOWS, SHOWS_ONCE].contains(&&*tool) {
        let image =
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
        let mut body = json!({"model": "gpt-4o", "stream": true,
            "messages": [{"role": "user", "content": [image]}],
            "tools": [{"type": "function", "function": {"name": "work", "parameters": {}}}]});
        if post(&url, &body).is_none() && tool == SHOWS {
            exit(UNUSABLE);
        }
        body["messages"] = json!(messages);
        exit(if post(&url, &body).is_some() { 0 } else { UNUSABLE });
    }
    for turn in 0..60 {
        let mut body = json!({"model": "gpt-4o", "stream": true, "messages": messages,
            "stream_options": {"include_usage": true},
            "tools": [{"type": "function", "function": {"name": "work", "parameters": {}}}]});
        if tool == EXTRACTS {
            body["tool_choice"] = json!({"type": "function", "function": {"name": "work"}});
        }
        let reply = post(&url, &body);
        let Some((text, calls)) = reply else { exit(UNUSABLE) };
        if calls.is_empty() || tool == EXTRACTS {
            println!("answer: {text}");
            exit(0);
        }
        messages.push(json!({"role": "assistant", "content": text, "tool_calls": calls}));
        for call in calls {
            let id = format!("{}-{turn}", call["id"].as_str().unwrap());
            messages.last_mut().unwrap()["tool_calls"][0]["id"] = json!(id);
            messages.push(json!({"role": "tool", "tool_call_id": id, "content": work(&tool)}));
        }
    }
}

/// Runs the client's tool: `exit` ends the client. A sleep has its own session, as with real agents.
fn work(tool: &str) -> String {
    if let Some(seconds) = tool.strip_prefix("sleep ") {
        Command::new("setsid").args(["-w", "sleep", seconds]).status().unwrap();
    }
    if tool == "exit" {
        exit(0);
    }
    if tool == TELLS {
        return std::env::var("OPENAI_BASE_URL").unwrap();
    }
    if tool == WAITS {
        eventually("the file", || std::path::Path::new("go").exists());
    }
    tool.to_owned()
}

/// Posts a body and reads a stream of chunks. Returns `None` if it is an error or has no end.
fn post(url: &str, body: &Value) -> Option<(String, Vec<Value>)> {
    let rest = url.strip_prefix("http://")?;
    let (address, path) = rest.split_once('/')?;
    let body = body.to_string();
    let mut stream = TcpStream::connect(address).ok()?;
    let key = std::env::var("CLIENT_KEY").unwrap_or_else(|_| OPENAI_KEY.to_owned());
    let head = format!(
        "POST /{path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(body.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    if !reply.starts_with("HTTP/1.1 200") {
        eprintln!("client: {}", reply.lines().last().unwrap_or_default());
        return None;
    }
    let (mut text, mut calls) = (String::new(), Vec::<Value>::new());
    // The sizes of the chunks are lines of their own, which no event is.
    for event in reply.lines().filter_map(|line| line.strip_prefix("data: ")) {
        let Ok(event) = serde_json::from_str::<Value>(event) else { continue };
        let delta = &event["choices"][0]["delta"];
        text.push_str(delta["content"].as_str().unwrap_or_default());
        for part in delta["tool_calls"].as_array().into_iter().flatten() {
            if part["id"].is_string() {
                calls.push(part.clone());
            }
        }
    }
    reply.contains("data: [DONE]").then_some((text, calls))
}

/// A call of the tool that is different in each turn.
fn step(request: &endstop::testkit::Request) -> Reply {
    let turn = Turn::call("work", &json!({"step": request.number})).usage(1000, 20);
    Reply::turn(request, &turn)
}

fn guarded(cli: &Cli, server: &Server, limits: &[&str], tool: &str) -> Command {
    let mut args = vec!["--json".to_owned(), "guard".to_owned()];
    args.extend(limits.iter().map(|word| (*word).to_owned()));
    args.extend(["--".to_owned(), std::env::current_exe().unwrap().display().to_string()]);
    args.extend(ONLY_CLIENT.map(str::to_owned));
    let mut command = cli.command(args);
    command.env("OPENAI_BASE_URL", server.base_url()).env(CLIENT, tool);
    command
}

/// Runs the client under these limits to its end.
fn run(server: &Server, limits: &[&str]) -> (Done, Value) {
    let cli = Cli::new();
    let done = Started::new(guarded(&cli, server, limits, "a result"), "").finish();
    let outcome = outcome(&done);
    (done, outcome)
}

/// The last line of the output; the others are those of the client.
fn outcome(done: &Done) -> Value {
    let line = done.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {done:#?}"))
}

#[test]
fn without_limits_the_client_is_only_observed() {
    let server = answering(|request| match request.number {
        1..=2 => step(request),
        _ => Reply::turn(request, &Turn::text("the work is done")),
    });
    let (done, outcome) = run(&server, &[]);
    assert!(done.stdout.contains("answer: the work is done"), "{done:#?}");
    assert_eq!(outcome["termination"], "stop", "{outcome:#}");
    assert_eq!(outcome["turns"], 3, "{outcome:#}");
    assert_eq!(outcome["agent"]["exit_status"], 0, "{outcome:#}");
    for request in server.requests() {
        assert_eq!(request.path, format!("/v1/chat/completions?key={ANTHROPIC_KEY}"));
        assert_eq!(request.headers["authorization"], format!("Bearer {OPENAI_KEY}"));
    }
    done.exits(0);
}

#[test]
fn turn_limit_gives_the_reason_as_the_answer_and_in_the_status() {
    let server = answering(step);
    let (done, outcome) = run(&server, &["--max-turns", "2"]);
    assert_eq!(outcome["termination"], "error_max_turns", "{outcome:#}");
    assert_eq!(server.requests().len(), 2, "the third call must not reach the provider");
    assert_eq!(outcome["agent"]["final_texts"], 1, "{outcome:#}");
    assert_eq!(outcome["agent"]["exit_status"], 0, "the client takes the text for an answer");
    assert!(done.stdout.contains("answer: Run stopped by endstop: error_max_turns"), "{done:#?}");
    done.exits(20);
}

#[test]
fn limits_without_effect_are_refused() {
    let cli = Cli::new();
    for (flag, value) in
        [("--verify-rounds", Some("3")), ("--turn-timeout", Some("5m")), ("--wrap-up", None)]
    {
        let args = ["guard", flag].into_iter().chain(value).chain(["--", "true"]);
        let done = cli.run(args).exits(2);
        let problem = format!("{flag} has no effect");
        assert!(done.stderr.contains(&problem), "{done:#?}");
    }
    // A file may be that of `endstop run` as well.
    cli.write("limits.toml", "[limits]\nverify_rounds = 3\nmax_turns = 5\n");
    let done = cli.run(["guard", "--config", "limits.toml", "--", "true"]).exits(0);
    let note = "endstop guard: `verify_rounds` of limits.toml (--config) has no effect";
    assert!(done.stderr.contains(note), "{done:#?}");
}

#[test]
fn program_that_cannot_start_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let cli = Cli::new();
    std::fs::create_dir(cli.path("folder")).unwrap();
    cli.write("plain", "echo");
    for (name, text) in [("odd", "#!/no/such/interpreter\n"), ("garbage", "\u{1}\u{2}")] {
        let file = cli.write(name, text);
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    for (program, status, problem) in [
        ("no-such-program", 127, "there is no such program in the folders of PATH"),
        ("", 127, "there is no such program in the folders of PATH"),
        ("./missing", 127, "no such file"),
        ("./plain/deeper", 126, "Not a directory"),
        ("./plain", 126, "it is not executable"),
        ("./folder", 126, "it is a folder"),
        ("./odd", 126, "the interpreter that its first line names does not exist"),
        ("./garbage", 126, "Exec format error"),
    ] {
        let expected = format!("`{program}` could not be started: {problem}");
        for limits in [&[][..], &["--max-turns", "2"]] {
            let args = [&["--json", "guard"], limits, &["--", program, "word"]].concat();
            let done = cli.run(args).exits(status).notes(&[&expected]);
            let line = done.lines().pop().unwrap();
            assert_eq!(line["type"], "error", "{done:#?}");
            assert!(line["message"].as_str().unwrap().contains(&expected), "{done:#?}");
        }
    }
    // These statuses are the program's own.
    for (words, status) in
        [(["sh", "-c", "exit 126"], 126), (["env", "--", "no-such-program"], 127)]
    {
        let done = cli.run(["guard", "--"].iter().chain(&words)).exits(status);
        assert!(done.stderr.contains("── stopped: "), "{done:#?}");
    }
}

/// The warning of a program that makes no call. The time is the real one, so all cases wait together.
#[test]
fn program_that_makes_no_call_is_reported() {
    const WARNING: &str =
        "no call after 20 s: the program waits for you, or it does not use the proxy";
    let server = playing([Turn::call("work", &json!({"step": 1})), Turn::text("done")]);
    let cli = Cli::new();
    let quiet = ["--json", "guard", "--journal", "off", "--", "sleep", "1000"];
    let quiet = Started::new(cli.command(quiet), "");
    let refused = ["--max-budget-usd", "1", "--journal", "journal.db"];
    let bare = Started::new(
        cli.command([&["guard"][..], &refused, &["--", "sh", "-c", "sleep 1000"]].concat()),
        "",
    );
    let calls = Started::new(guarded(&cli, &server, &[], "sleep 25"), "");
    let draws = ["guard", "--", "sh", "-c", "stty raw -echo; sleep 24; stty sane"];
    let draws = Terminal::with(Cli::new(), draws);
    let leaves = ["guard", "--", "sh", "-c", "stty raw -echo; sleep 2; stty sane; exec sleep 22"];
    let leaves = Terminal::with(Cli::new(), leaves);
    for started in [quiet, bare] {
        eventually("the warning", || started.stderr().contains(WARNING));
        kill_process(Pid::from_child(&started.child), Signal::TERM).unwrap();
        let done = started.finish().exits(143);
        assert_eq!(done.stderr.matches(WARNING).count(), 1, "{done:#?}");
        let lines = done.stdout.matches(WARNING).count();
        assert_eq!(lines, usize::from(!done.stdout.is_empty()), "{done:#?}");
    }
    let called = calls.finish();
    assert!(!called.stderr.contains(WARNING), "{called:#?}");
    assert!(!called.stdout.contains(WARNING), "{called:#?}");
    // Not over the picture of a program.
    let (status, shown) = draws.finish();
    assert!(status == 0 && !shown.contains(WARNING), "{shown}");
    let (status, shown) = leaves.finish();
    assert!(status == 0 && shown.contains(WARNING), "{shown}");
}

/// Starts a program under these options of guard in a folder with programs that have the names of clients, do nothing,
/// and succeed.
fn without_calls(options: &[&str], program: &[&str]) -> Done {
    use std::os::unix::fs::PermissionsExt;
    let cli = Cli::new();
    for name in ["claude", "codex", "gemini", "opencode", "aider", "agent"] {
        let file = cli.write(name, "#!/bin/sh\n");
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    cli.write("limits.toml", "[limits]\nmax_turns = 5\nmax_budget_usd = 1.0\n");
    let mut command =
        cli.command([&["--json", "guard", "--journal", "off"], options, &["--"], program].concat());
    command.env("GEMINI_API_KEY", "a-key-of-gemini");
    Started::new(command, "").finish()
}

#[test]
fn program_without_calls_under_limits_is_no_success() {
    for options in [
        &["--max-turns", "2"][..],
        &["--max-budget-usd", "1"],
        &["--max-tokens", "900"],
        &["--max-consecutive-mistakes", "3"],
        &["--timeout", "1h", "--max-turns", "9"],
        &["--config", "limits.toml", "--max-turns", "2"],
        &["--max-turns", "2", "--strict"],
    ] {
        let done = without_calls(options, &["./agent", "task"]).exits(20);
        let outcome = outcome(&done);
        assert_eq!(outcome["category"], "capacity", "{options:?}");
        let evidence = &outcome["decided_by"]["evidence"];
        assert_eq!(evidence, "no call came through guard, so no limit held", "{options:?}");
        assert_eq!(outcome["agent"]["exit_status"], 0);
    }
    // Without a limit of the command line that only calls can meet, the status is the program's.
    for options in [
        &[][..],
        &["--timeout", "1h"],
        &["--max-turns", "off"],
        &["--config", "limits.toml"],
        &["--max-turns", "2", "--allow-no-calls"],
        &["--price", "in=1,out=1"],
    ] {
        let done = without_calls(options, &["./agent", "task"]).exits(0);
        let outcome = outcome(&done);
        assert_eq!(outcome["decided_by"]["evidence"], "no call came through guard", "{options:?}");
        assert_eq!(outcome["termination"], "error_during_execution", "{options:?}");
    }
    without_calls(&["--max-turns", "2"], &["sh", "-c", "exit 7"]).exits(7);
    without_calls(&["--max-turns", "2"], &["sh", "-c", "kill -9 $$"]).exits(137);
}

#[test]
fn invocation_that_makes_no_run_needs_no_call() {
    let limits = ["--max-turns", "2"];
    for program in [
        &["./agent", "--version"][..],
        &["./agent", "-h"],
        &["./claude", "--version"],
        &["./claude", "mcp", "list"],
        &["./claude", "--model", "opus", "auth", "login"],
        &["./claude", "--settings={}", "config"],
        &["./claude", "-p", "task", "--help"],
        &["./codex", "-c", "model=m", "login"],
        &["./codex", "exec", "--help"],
        &["./gemini", "extensions", "list"],
        &["./opencode", "auth", "login"],
        &["./aider", "--list-models", "gpt"],
        &["env", "A=1", "./codex", "logout"],
    ] {
        without_calls(&limits, program).exits(0);
    }
    for program in [
        &["./agent", "--version", "task"][..],
        &["./agent", "login"],
        &["./claude"],
        &["./claude", "-p", "log in with mcp"],
        &["./claude", "-p", "task", "login"],
        &["./claude", "--model", "login", "task"],
        &["./codex", "exec", "login"],
        &["./codex", "-c", "login", "exec", "task"],
        &["./codex", "exec", "--", "--help"],
        &["./gemini", "-p", "mcp"],
        &["./opencode", "run", "auth"],
        &["./aider", "--message", "--version.txt is wrong"],
    ] {
        without_calls(&limits, program).exits(20);
    }
}

#[test]
fn program_that_cannot_be_guarded_is_not_started_under_limits() {
    use std::os::unix::fs::PermissionsExt;
    let cli = Cli::new();
    for name in ["claude", "cursor-agent", "gemini", "codex", "opencode", "qwen"] {
        let file = cli.write(name, "#!/bin/sh\ntouch started\n");
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let run = |limits: &[&str], program: &[&str], variables: &[(&str, &str)]| {
        let mut command =
            cli.command([&["guard", "--journal", "off"], limits, &["--"], program].concat());
        command.env("HOME", cli.path("home")).envs(variables.iter().copied());
        let done = Started::new(command, "").finish();
        let started = std::fs::remove_file(cli.path("started")).is_ok();
        (done, started)
    };
    let limits = ["--max-turns", "2"];
    let vertex = ("CLAUDE_CODE_USE_VERTEX", "1");
    for (program, variables, problem) in [
        (&["./cursor-agent", "-p", "task"][..], &[][..], "Cursor calls its own service"),
        (&["./claude", "-p", "task"], &[("CLAUDE_CODE_USE_MANTLE", "1")], "Bedrock's Mantle"),
        (
            &["./claude", "-p", "task"],
            &[("CLAUDE_CODE_USE_BEDROCK", "1")],
            "keys to sign them again",
        ),
        (&["./claude", "-p", "task"], &[vertex], "the region of Vertex AI"),
        (
            &["./claude", "-p", "task"],
            &[("CLAUDE_CODE_USE_FOUNDRY", "1")],
            "the address of Foundry",
        ),
        (&["./codex", "exec", "--oss", "task"], &[], "its server is on this machine"),
        (&["./opencode", "run", "-m", "groq/m", "task"], &[], "the provider `groq`"),
        (
            &["./gemini", "-p", "x"],
            &[("GOOGLE_GENAI_USE_VERTEXAI", "true")],
            "Gemini CLI on Vertex",
        ),
        (&["./qwen", "--auth-type", "qwen-oauth", "-p", "x"], &[], "Qwen login"),
    ] {
        let (done, started) = run(&limits, program, variables);
        assert!(!started, "{done:#?}");
        let done = done.exits(2).notes(&[problem, "--allow-no-calls starts it nevertheless"]);
        assert!(!done.stderr.contains("── stopped"), "{done:#?}");
        // It is started if that was asked for, without limits that only calls meet, and for a login.
        let allowed = [&limits[..], &["--allow-no-calls"]].concat();
        for limits in [&allowed[..], &[], &["--timeout", "1h"]] {
            let (done, started) = run(limits, program, variables);
            assert!(started, "{limits:?}: {done:#?}");
            done.exits(0).notes(&[problem]);
        }
        let (done, started) = run(&limits, &[program[0], "--version"], variables);
        assert!(started, "{done:#?}");
        done.exits(0);
    }
    // What merely lies in the environment selects nothing.
    for (program, variables) in [
        (&["./claude", "-p", "task"][..], &[("ANTHROPIC_FOUNDRY_API_KEY", "k")][..]),
        (&["./claude", "-p", "task"], &[("CLAUDE_CODE_USE_MANTLE", "0")]),
        (&["./claude", "-p", "task"], &[vertex, ("CLOUD_ML_REGION", "global")]),
        (&["./gemini", "-p", "task"], &[("GOOGLE_API_KEY", "k")]),
        (&["./qwen", "-p", "task"], &[]),
    ] {
        let (done, started) = run(&limits, program, variables);
        assert!(started, "{done:#?}");
        done.exits(20);
    }
}

/// Claude Code on Bedrock sends such calls under the name of its library.
#[test]
fn calls_before_the_first_turn_of_a_known_program_are_no_turns() {
    use std::os::unix::fs::PermissionsExt;
    // In a program that is not known, each of them is a turn. One of aider is.
    for (program, auxiliary, requests, tokens) in
        [("claude", 5, 7, 45), ("codex", 5, 7, 45), ("agent", 3, 2, 2), ("aider", 3, 2, 2)]
    {
        let server = answering(|request| match &request.body["tools"] {
            Value::Null => Reply::turn(request, &Turn::text("x").usage(10, 1)),
            _ => step(request),
        });
        let cli = Cli::new();
        let script = format!("#!/bin/sh\nexec \"$PROGRAM\" {}\n", ONLY_CLIENT.join(" "));
        let file = cli.write(program, script);
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let name = format!("./{program}");
        let limits = ["--json", "guard", "--max-turns", "2", "--price", "in=1,out=1", "--", &name];
        let mut command = cli.command(limits);
        command
            .env("OPENAI_BASE_URL", server.base_url())
            .env("PROGRAM", std::env::current_exe().unwrap())
            .env(CLIENT, TESTS_MODELS);
        let done = Started::new(command, "").finish();
        let outcome = outcome(&done);
        assert_eq!(outcome["termination"], "error_max_turns", "{program}: {outcome:#}");
        assert_eq!(outcome["turns"], 2, "{program}");
        assert_eq!(outcome["agent"]["auxiliary_calls"], auxiliary, "{program}");
        assert_eq!(server.requests().len(), requests, "{program}");
        assert_eq!(outcome["usage"]["output_tokens"], tokens, "their cost counts: {program}");
    }
}

#[test]
fn service_of_a_client_is_guarded_below_its_prefix() {
    use std::os::unix::fs::PermissionsExt;
    for (switch, address) in [
        ("CLAUDE_CODE_USE_FOUNDRY", "ANTHROPIC_FOUNDRY_BASE_URL"),
        ("CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_VERTEX_BASE_URL"),
    ] {
        let server = answering(step);
        let cli = Cli::new();
        let script = format!(
            "#!/bin/sh\nOPENAI_BASE_URL=\"${address}\" exec \"$PROGRAM\" {}\n",
            ONLY_CLIENT.join(" ")
        );
        let file = cli.write("claude", script);
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = cli.command(["--json", "guard", "--max-turns", "2", "--", "./claude"]);
        command
            .env(switch, "1")
            .env(address, server.base_url())
            .env("ANTHROPIC_FOUNDRY_RESOURCE", "acme")
            .env("PROGRAM", std::env::current_exe().unwrap())
            .env(CLIENT, "a result");
        let done = Started::new(command, "").finish();
        assert_eq!(outcome(&done)["termination"], "error_max_turns", "{done:#?}");
        let paths: Vec<_> = server.requests().iter().map(|request| request.path.clone()).collect();
        assert_eq!(paths.len(), 2, "{paths:?}");
        assert!(paths.iter().all(|path| path.starts_with("/v1/chat/completions")), "{paths:?}");
        done.exits(20);
    }
}

#[test]
fn requests_that_no_limit_counts_are_no_calls() {
    let server = answering(|_| Reply::new(200, "application/json", "{}"));
    let cli = Cli::new();
    let done = Started::new(guarded(&cli, &server, &["--max-turns", "2"], PROBES), "").finish();
    let outcome = outcome(&done);
    let evidence = &outcome["decided_by"]["evidence"];
    assert_eq!(evidence, "no model call came through guard, so no limit held", "{done:#?}");
    let agent = &outcome["agent"];
    assert_eq!((&agent["calls"], &agent["other_requests"]), (&json!(1), &json!(0)), "{done:#?}");
    done.exits(20);
    // They are the work of a program that needs no answer in text.
    for options in [&[][..], &["--max-budget-usd", "1", "--price", "in=1,out=1"]] {
        let done = Started::new(guarded(&cli, &server, options, PROBES), "").finish();
        let outcome = self::outcome(&done);
        assert_eq!(outcome["termination"], "stop", "{done:#?}");
        assert_eq!(outcome["decided_by"]["name"], "closed", "{done:#?}");
        done.exits(0);
    }
}

#[test]
fn person_may_leave_a_program_without_a_call() {
    let script = "stty raw -echo; sleep 1; stty sane";
    let args = ["guard", "--max-turns", "2", "--", "sh", "-c", script];
    let (status, shown) = Terminal::with(Cli::new(), args).finish();
    assert_eq!(status, 0, "{shown}");
    for part in [
        "stopped: cancelled",
        "no call came through guard: its user left it, or it does not use the proxy",
    ] {
        assert!(shown.contains(part), "no {part:?} in {shown}");
    }
    // No person sits in front of a program that only writes to a terminal, and a failure is one.
    for (script, expected) in [("true", 20), ("stty raw -echo; sleep 1; stty sane; exit 3", 3)] {
        let args = ["guard", "--max-turns", "2", "--", "sh", "-c", script];
        assert_eq!(Terminal::with(Cli::new(), args).finish().0, expected, "{script}");
    }
}

#[test]
fn call_for_a_title_is_no_turn() {
    let server = answering(|request| match &request.body["tools"] {
        Value::Null => Reply::turn(request, &Turn::text("A title")),
        _ => step(request),
    });
    let cli = Cli::new();
    let command = guarded(&cli, &server, &["--max-turns", "2"], TITLED);
    let done = Started::new(command, "").finish();
    let outcome = outcome(&done);
    assert_eq!(outcome["agent"]["auxiliary_calls"], 1, "{outcome:#}");
    assert_eq!(outcome["turns"], 2, "{outcome:#}");
    assert_eq!(server.requests().len(), 3, "a title and two turns");
}

#[test]
fn forced_call_is_the_answer() {
    let server = answering(step);
    let cli = Cli::new();
    let done = Started::new(guarded(&cli, &server, &[], EXTRACTS), "").finish();
    let outcome = outcome(&done);
    assert_eq!(outcome["termination"], "stop", "{outcome:#}");
    assert_eq!(outcome["last_text"], r#"{"step":1}"#, "{outcome:#}");
    // Without the force a program that ends at a call has not finished its work.
    let server = playing([Turn::call("work", &json!({"step": 1}))]);
    let unfinished = Started::new(guarded(&cli, &server, &[], "exit"), "").finish();
    assert_ne!(self::outcome(&unfinished)["termination"], "stop", "{unfinished:#?}");
    assert_eq!(unfinished.code(), 0);
}

#[test]
fn dollar_limit_stops_when_the_money_is_spent() {
    let server = answering(step);
    // A turn costs 0.0032 dollars.
    let (done, outcome) = run(&server, &["--max-budget-usd", "0.0095", "--price", "in=3,out=10"]);
    assert_eq!(outcome["termination"], "error_max_budget_usd", "{outcome:#}");
    assert_eq!(server.requests().len(), 3, "money is left for a third call, not for a fourth");
    done.exits(20);
}

#[test]
fn dollar_limit_without_a_price_refuses_the_call() {
    let server = answering(|_| Reply::new(500, "text/plain", "must not be called"));
    let cli = Cli::new();
    let mut command = guarded(&cli, &server, &["--max-budget-usd", "1"], "a result");
    // An address whose models have no known prices.
    command.env("OPENAI_BASE_URL", server.base_url().replace("127.0.0.1", "localhost"));
    let done = Started::new(command, "").finish().notes(&["no price is known", "--price"]);
    assert!(server.requests().is_empty(), "{done:#?}");
    let outcome = outcome(&done);
    assert_eq!(outcome["agent"]["exit_status"], UNUSABLE);
    assert_eq!(outcome["termination"], "error_max_budget_usd", "{outcome:#}");
    assert_eq!(outcome["decided_by"]["name"], "unknown_price", "{outcome:#}");
    done.exits(UNUSABLE);
}

/// Runs the client under these options to its end, with a card. `after` follows it in the shell.
fn with_card(server: &Server, options: &[&str], tool: &str, after: &str) -> Done {
    let cli = Cli::new();
    let client = std::env::current_exe().unwrap();
    let script = format!("'{}' {}{after}", client.display(), ONLY_CLIENT.join(" "));
    let args = [&["guard", "--journal", "j.db"], options, &["--", "sh", "-c", &script]].concat();
    let mut command = cli.command(args);
    let base = server.base_url().replace("127.0.0.1", "localhost");
    command.env("OPENAI_BASE_URL", base).env(CLIENT, tool);
    let done = Started::new(command, "").finish();
    // The record leads to the same card.
    let explained = cli.run(["explain", "j.db"]).exits(0).stdout;
    let decided = done.stderr.lines().find(|line| line.starts_with("  decided"));
    let decided =
        decided.unwrap_or_else(|| panic!("{done:#?}")).trim_start_matches("  decided").trim();
    assert!(explained.contains(decided), "no {decided:?} in {explained}");
    done
}

#[test]
fn refusal_of_guard_is_the_reason_of_a_run_that_fails() {
    let server = answering(|request| Reply::turn(request, &Turn::text("done").usage(10, 5)));
    let ceiling = ["--max-budget-usd", "1"];
    let strict = [&ceiling[..], &["--price", "in=1,out=1", "--cap-output"]].concat();
    let price = [
        "── stopped: error_max_budget_usd (capacity)",
        "why      a ceiling on cost holds, and the price of a call is not known",
        "decided  limit `unknown_price`: no price is known for the model `gpt-4o`",
        "next     give the price of the model with --price",
    ];
    let image = [
        "── stopped: error_provider_rejected (fatal)",
        "why      guard refused a call; repeating it will not help",
        "decided  caller `refused`: guard refused the last call: the request has `image_url` in `messages`",
        "--cap-output",
        "next     change what",
    ];
    with_card(&server, &ceiling, "x", "").exits(UNUSABLE).notes(&price);
    with_card(&server, &strict, SHOWS, "").exits(UNUSABLE).notes(&image);
    // Also if the program hides it, as aider does.
    let hidden = with_card(&server, &ceiling, "x", "; exit 0").exits(0).notes(&price);
    hidden.notes(&["the exit status 0 is the program's own, --strict gives 20"]);
    let done = with_card(&server, &strict, SHOWS, "; exit 0").exits(0).notes(&image);
    assert!(!done.stderr.contains("another attempt"), "{done:#?}");
    with_card(&server, &[&strict[..], &["--strict"]].concat(), SHOWS, "; exit 0").exits(30);
    assert!(server.requests().is_empty());
    // A program that continues without it is judged by what follows.
    let done = with_card(&server, &strict, SHOWS_ONCE, "").exits(0);
    done.outcome_is("stop");
    let done = with_card(&server, &strict, SHOWS_ONCE, "; exit 3").exits(3);
    assert!(!done.stderr.contains("guard refused"), "{done:#?}");
    // Without a ceiling nothing is refused.
    with_card(&server, &["--max-turns", "5"], SHOWS, "").exits(0).outcome_is("stop");
}

#[test]
fn client_that_the_program_starts_is_noted_if_it_goes_around() {
    let cli = Cli::new();
    for name in ["codex", "claude", "pi", "gemini", "make"] {
        // A process has the name of its file.
        std::fs::copy("/bin/sh", cli.path(name)).unwrap();
    }
    let own = r#"{"env":{"ANTHROPIC_BASE_URL":"https://gateway.example"}}"#;
    for (folder, file, text) in [
        (".codex", "config.toml", "openai_base_url = \"https://gw.example/v1\"\n"),
        (".claude", "settings.json", own),
    ] {
        std::fs::create_dir_all(cli.path("own").join(folder)).unwrap();
        std::fs::write(cli.path("own").join(folder).join(file), text).unwrap();
    }
    let work = "'sleep 2; true'";
    for (home, script, expected) in [
        ("none", format!("./codex -c {work}; ./codex -c {work}"), Some("codex")),
        ("own", format!("./codex -c {work}"), Some("codex")),
        ("none", format!("exec ./codex -c {work}"), Some("codex")),
        ("none", format!("sh -c \"setsid -w ./pi -c {work}\""), Some("pi")),
        ("own", format!("./claude -c {work}"), Some("Claude Code")),
        ("none", format!("./claude -c {work}"), None),
        ("none", format!("./gemini -c {work}"), None),
        ("own", format!("./make -c {work} codex"), None),
        ("none", "./codex -c 'sleep 2; : http://127.0.0.1:9/v1'".to_owned(), None),
    ] {
        let mut command =
            cli.command(["--json", "guard", "--journal", "off", "--", "sh", "-c", &script]);
        command.env("HOME", cli.path(home)).env("GEMINI_API_KEY", "a-key-of-gemini");
        let done = Started::new(command, "").finish().exits(0);
        for text in [&done.stdout, &done.stderr] {
            let notes = text.matches("the program has started ").count();
            assert_eq!(notes, usize::from(expected.is_some()), "{script}: {done:#?}");
            let named = format!("has started {}, whose calls", expected.unwrap_or_default());
            assert_eq!(text.contains(&named), expected.is_some(), "{script}: {done:#?}");
        }
    }
    // The program itself was pointed at guard, and so is what it starts with its own arguments.
    let args = ["guard", "--journal", "off", "--", "./codex", "-c", "./codex -c 'sleep 2; true'"];
    let done = cli.run(args);
    assert!(!done.stderr.contains("has started"), "{done:#?}");
}

#[test]
fn calls_of_a_subscription_are_noted() {
    const NOTE: &str =
        "logged in with a subscription: costs are what the same calls would cost by key";
    let server = playing([Turn::text("done").usage(10, 5)]);
    let cli = Cli::new();
    for (key, times) in [("sk-ant-oat01-Dummy0authT0ken", 1), ("sk-ant-api03-Dummy0authT0ken", 0)] {
        let mut command = guarded(&cli, &server, &[], "x");
        command.env("CLIENT_KEY", key);
        let done = Started::new(command, "").finish().exits(0);
        assert_eq!(done.stderr.matches(NOTE).count(), times, "{done:#?}");
        assert_eq!(done.stdout.matches(NOTE).count(), times, "{done:#?}");
        assert!(!format!("{done:?}").contains("Dummy0authT0ken"), "{done:#?}");
    }
}

#[test]
fn person_may_leave_a_program_in_the_middle() {
    let client = std::env::current_exe().unwrap();
    let client = format!("'{}' {}", client.display(), ONLY_CLIENT.join(" "));
    let stalls = || answering(|request| step(request).stall_after(20));
    let calls = || answering(step);
    let answers = || playing([Turn::text("done")]);
    let fails = || answering(|_| Reply::new(500, "application/json", "{}"));
    let cut = || playing([Turn::text("the wo").finish("length")]);
    // The tools of the client leave it in the middle of a call, or of a response.
    for (server, before, tool, after, expected) in [
        (stalls(), "timeout 1 ", "x", "exit 0", "cancelled"),
        (calls(), "", "exit", "exit 0", "cancelled"),
        (answers(), "", "x", "exit 0", "stop"),
        (fails(), "", "x", "exit 0", "error_during_execution"),
        (cut(), "", "x", "exit 0", "error_output_truncated"),
        (calls(), "", "exit", "exit 1", "error_during_execution"),
    ] {
        let script =
            format!("stty raw -echo; sleep 1; {before}{client} >/dev/null; stty sane; {after}");
        let cli = Cli::new();
        cli.write("script", &script);
        let address = format!("OPENAI_BASE_URL={}", server.base_url());
        let start = format!("{CLIENT}='{tool}' exec sh script");
        let limits = ["guard", "--max-turns", "9", "--journal", "j.db"];
        let args = [&limits[..], &["--", "env", &address, "sh", "-c", &start]].concat();
        let (status, shown) = Terminal::with(cli, args).finish();
        assert_eq!(status, i32::from(after == "exit 1"), "{shown}");
        assert!(shown.contains(&format!("stopped: {expected} (")), "not {expected}: {shown}");
        let is_left = shown.contains("the program's user left it before an answer was complete");
        assert_eq!(is_left, expected == "cancelled", "{shown}");
        assert_eq!(
            shown.contains("another attempt"),
            expected == "error_during_execution",
            "{shown}"
        );
    }
}

#[test]
fn card_has_the_limits_that_held_at_the_end() {
    let server = answering(step);
    let cli = Cli::new();
    let script =
        format!("'{}' {}", std::env::current_exe().unwrap().display(), ONLY_CLIENT.join(" "));
    let limits = ["--max-turns", "30", "--max-budget-usd", "1", "--price", "in=1,out=1"];
    let args = [
        &["guard", "--name", "night", "--journal", "j.db"],
        &limits[..],
        &["--", "sh", "-c", &script],
    ];
    let with_state = |mut command: Command| {
        command.env("XDG_STATE_HOME", cli.path("state"));
        Started::new(command, "")
    };
    let mut command = cli.command(args.concat());
    command.env("OPENAI_BASE_URL", server.base_url()).env(CLIENT, WAITS);
    let started = with_state(command);
    eventually("the first turn", || server.requests().len() == 1);
    let change =
        ["limits", "night", "--max-turns", "2", "--max-budget-usd", "0.5", "--timeout", "1h"];
    with_state(cli.command(change)).finish().exits(0);
    cli.write("go", "");
    let done = started.finish().exits(20);
    let explained = cli.run(["explain", "night", "--journal", "j.db"]).exits(0).stdout;
    for text in [&done.stderr, &explained] {
        for part in ["2 of 2 turns", "2/2 turns", "/$0.50", "/60 min"] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        assert!(!text.contains("/30"), "{text}");
    }
}

#[test]
fn refusal_after_an_answer_is_the_ending() {
    let server = answering(|request| Reply::turn(request, &Turn::text("done").usage(10, 5)));
    let strict = ["--max-budget-usd", "1", "--price", "in=1,out=1", "--cap-output"];
    let again = |status: u8| {
        let client = std::env::current_exe().unwrap();
        let rest = ONLY_CLIENT.join(" ");
        format!("; {CLIENT}={SHOWS} '{}' {rest}; exit {status}", client.display())
    };
    with_card(&server, &strict, "x", &again(0)).exits(0).outcome_is("error_provider_rejected");
    with_card(&server, &strict, "x", &again(4)).exits(4).outcome_is("error_provider_rejected");
}

#[test]
fn timeout_aborts_a_stream_that_stands_still() {
    let server = answering(|request| step(request).stall_after(20));
    let (done, outcome) = run(&server, &["--timeout", "1s"]);
    assert_eq!(outcome["termination"], "error_timeout", "{outcome:#}");
    // The client must not take what it got for an answer.
    assert!(!done.stdout.contains("answer: \n"), "{done:#?}");
    done.exits(20);
}

#[test]
fn repeated_call_is_stopped_by_its_rule() {
    let server = playing([Turn::call("work", &json!({"same": true})).usage(10, 5)]);
    let (done, outcome) = run(&server, &["--watch", "stop:stuck"]);
    assert_eq!(outcome["termination"], "error_no_progress", "{outcome:#}");
    assert!(server.requests().len() < 10, "it was stopped late: {}", server.requests().len());
    done.exits(20);
}

#[test]
fn cut_answer_is_no_success_even_if_the_client_says_so() {
    let server = playing([Turn::text("the wo").finish("length")]);
    let (done, outcome) = run(&server, &[]);
    assert_eq!(outcome["termination"], "error_output_truncated", "{outcome:#}");
    assert_eq!(outcome["agent"]["exit_status"], 0, "{outcome:#}");
    done.exits(0);
    let (done, strict) = run(&server, &["--strict"]);
    assert_eq!(strict["termination"], "error_output_truncated", "{strict:#}");
    done.exits(20);
}

#[test]
fn interrupt_ends_the_client_and_what_its_tool_has_started() {
    let server = answering(step);
    let cli = Cli::new();
    let seconds = format!("{}", 2_000_000_000_u64 + u64::from(std::process::id()));
    let started = Started::new(guarded(&cli, &server, &[], &format!("sleep {seconds}")), "");
    eventually("the tool runs", || sleeping(&seconds));
    kill_process(Pid::from_child(&started.child), Signal::INT).unwrap();
    let done = started.finish();
    assert_eq!(outcome(&done)["termination"], "cancelled", "{done:#?}");
    assert!(!sleeping(&seconds), "the tool still runs");
    done.exits(130);
}

#[test]
fn killed_guard_leaves_no_client_running() {
    let server = answering(step);
    let cli = Cli::new();
    let seconds = format!("{}", 3_000_000_000_u64 + u64::from(std::process::id()));
    let started = Started::new(guarded(&cli, &server, &[], &format!("sleep {seconds}")), "");
    eventually("the tool runs", || sleeping(&seconds));
    kill_process(Pid::from_child(&started.child), Signal::KILL).unwrap();
    eventually("the tool has ended", || !sleeping(&seconds));
}

/// Starts guard around a program that writes its base URL, and waits for a file before it becomes the
/// client.
fn waiting(cli: &Cli, server: &Server, options: &[&str]) -> (Started, String) {
    let script = "echo \"$OPENAI_BASE_URL\" > url.new; mv url.new url
        until [ -e go ]; do sleep 0.02; done; exec \"$@\"";
    let mut args = [&["--json", "guard"][..], options, &["--", "sh", "-c", script, "sh"]].concat();
    let client = std::env::current_exe().unwrap().display().to_string();
    args.push(&client);
    args.extend(ONLY_CLIENT);
    let mut command = cli.command(args);
    command.env("OPENAI_BASE_URL", server.base_url()).env(CLIENT, TELLS);
    let started = Started::new(command, "");
    eventually("the address", || cli.path("url").exists());
    (started, cli.read("url").trim().to_owned())
}

/// The secret segment of a base URL.
fn secret(url: &str) -> &str {
    let secret = url.split('/').nth(3).unwrap();
    let hex = secret.strip_prefix("endstop_guard_").unwrap();
    assert!(hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()), "{url}");
    secret
}

#[test]
fn strangers_do_not_join_the_run() {
    let server = answering(|request| match request.number {
        1..=2 => step(request),
        _ => {
            // The model repeats what the program has told it.
            let told =
                request.body["messages"].as_array().unwrap().last().unwrap()["content"].clone();
            Reply::turn(request, &Turn::text(format!("done at {}", told.as_str().unwrap())))
        }
    });
    let cli = Cli::new();
    let options = ["--max-turns", "3", "--journal", "journal.db", "--events", "events"];
    let (started, url) = waiting(&cli, &server, &options);
    let address = url.split('/').nth(2).unwrap();
    let base = url.strip_prefix(&format!("http://{address}")).unwrap();
    let base = base.strip_suffix("/v1").unwrap();
    let body =
        json!({"model": "gpt-4o", "messages": [{"role": "user", "content": "x"}]}).to_string();
    let own = format!("host: {address}\r\n");
    let page = format!("{own}origin: http://evil.example\r\n");
    let name = base.rsplit('/').next().unwrap();
    let mut strangers = 0;
    for (path, headers, status) in [
        ("/v1/chat/completions", &own, 404),
        (&*format!("/run/{name}/v1/chat/completions"), &own, 404),
        ("/v1/messages", &own, 404),
        (&*format!("{}/v1/chat/completions", base.to_uppercase()), &own, 404),
        (&*format!("{base}1/v1/chat/completions"), &own, 404),
        (&*format!("{base}/v1/chat/completions"), &page, 403),
        (&*format!("{base}/v1/chat/completions"), &"host: evil.example\r\n".to_owned(), 421),
    ] {
        // More often than the limit allows turns.
        for _ in 0..4 {
            let (got, answer) = ask(address, &format!("POST {path}"), headers, &body);
            assert_eq!(got, status, "{path} {headers} {answer}");
            assert!(status != 404 || answer.contains("keep the whole path"), "{answer}");
            strangers += 1;
        }
    }
    assert!(server.requests().is_empty());
    cli.write("go", "");
    let done = started.finish();
    let outcome = outcome(&done);
    assert_eq!(
        (&outcome["termination"], &outcome["turns"]),
        (&json!("stop"), &json!(3)),
        "{done:#?}"
    );
    assert_eq!(outcome["agent"]["refusals"], 0, "{outcome:#}");
    assert_eq!(server.requests().len(), 3);
    // Not a line for each, because such a client may repeat its request for ever.
    assert!(strangers > 16 && done.stderr.matches("(16 in all)").count() == 1, "{}", done.stderr);
    assert_eq!(done.stderr.matches(" in all)").count(), 5, "{}", done.stderr);
    // The program knows its address; nothing that is stored or reported has it.
    assert!(done.stdout.contains(&format!("answer: done at {url}\n")), "{}", done.stdout);
    let journal = std::fs::read(cli.path("journal.db")).unwrap();
    let reported = done.stdout.lines().filter(|line| line.starts_with('{')).collect::<String>();
    let journal = String::from_utf8_lossy(&journal);
    for text in [&*cli.read("events"), &reported, &done.stderr, &journal] {
        assert!(!text.contains(secret(&url)), "{text}");
    }
    let told = cli.run(["explain", "last", "--journal", "journal.db", "--json"]).exits(0).stdout;
    assert!(told.contains("/[redacted]/run/") && !told.contains(secret(&url)), "{told}");
}

#[test]
fn guard_in_guard_counts_both() {
    let server = answering(|request| match request.number {
        1..=2 => step(request),
        _ => Reply::turn(request, &Turn::text("the work is done")),
    });
    let cli = Cli::new();
    let inner = env!("CARGO_BIN_EXE_endstop");
    let script = "echo \"$OPENAI_BASE_URL\" > outer; exec \"$@\"";
    let client = std::env::current_exe().unwrap().display().to_string();
    let mut args = vec!["--json", "guard", "--journal", "off", "--", "sh", "-c", script, "sh"];
    args.extend([inner, "guard", "--journal", "off", "--events", "inner", "--", &client]);
    args.extend(ONLY_CLIENT);
    let mut command = cli.command(args);
    command.env("OPENAI_BASE_URL", server.base_url()).env(CLIENT, TELLS);
    let done = Started::new(command, "").finish();
    let outer = outcome(&done);
    let inner = cli.read("inner");
    let line: Value = serde_json::from_str(inner.lines().last().unwrap()).unwrap();
    for outcome in [&outer, &line] {
        assert_eq!(
            (&outcome["termination"], &outcome["turns"]),
            (&json!("stop"), &json!(3)),
            "{done:#?}"
        );
    }
    for request in server.requests() {
        assert_eq!(request.path, format!("/v1/chat/completions?key={ANTHROPIC_KEY}"));
    }
    let outer = cli.read("outer");
    let said = [&inner, &done.stdout, &done.stderr].map(String::as_str).concat();
    assert!(!said.contains(secret(outer.trim())) && !said.contains("endstop_guard_"), "{said}");
}

/// codex gets its address as an argument, which every user can read in the list of processes.
#[cfg(target_os = "linux")]
#[test]
fn other_users_cannot_use_a_visible_address() {
    use std::os::unix::fs::PermissionsExt;
    let (cli, server) = (Cli::new(), answering(step));
    let codex = "#!/bin/sh\nfor word in \"$@\"; do case \"$word\" in openai_base_url=*) \
        word=\"${word#*=\\\"}\"; echo \"${word%\\\"}\" > url.new;; esac; done; mv url.new url\n\
        until [ -e go ]; do sleep 0.02; done\n";
    let file = cli.write("codex", codex);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    let program = file.display().to_string();
    let mut command =
        cli.command(["--json", "guard", "--journal", "off", "--", &program, "exec", "x"]);
    command.env("OPENAI_BASE_URL", server.base_url());
    let started = Started::new(command, "");
    eventually("the address", || cli.path("url").exists());
    let url = cli.read("url").trim().to_owned();
    secret(&url);
    let address = url.split('/').nth(2).unwrap();
    let path = format!("{}/responses", url.strip_prefix(&format!("http://{address}")).unwrap());
    if let Some(answer) = post_as_nobody(address, &path, "") {
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(server.requests().is_empty());
    }
    let (status, answer) =
        ask(address, &format!("POST {path}"), &format!("host: {address}\r\n"), "{}");
    assert_ne!((status, answer.contains("another user")), (403, true), "{answer}");
    cli.write("go", "");
    started.finish();
}

/// Returns `true` if a process sleeps for this many seconds.
fn sleeping(seconds: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.first() == Some(&b"sleep".as_slice()) && words.contains(&seconds.as_bytes())
    })
}
