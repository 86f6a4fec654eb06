//! Programs that guard starts: which of their calls count, and what it says if there are none.

use super::{CLIENT, ONLY_CLIENT, PROBES, TESTS_MODELS, guarded, outcome, step};
use crate::cli::{Cli, Done, Started, answering, eventually, playing};
use crate::terminal::Terminal;
use endstop::testkit::{Reply, Turn};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

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
    for (program, switch, address) in [
        ("claude", "CLAUDE_CODE_USE_FOUNDRY", "ANTHROPIC_FOUNDRY_BASE_URL"),
        ("claude", "CLAUDE_CODE_USE_VERTEX", "ANTHROPIC_VERTEX_BASE_URL"),
        ("copilot", "COPILOT_OFFLINE", "COPILOT_PROVIDER_BASE_URL"),
    ] {
        let server = answering(step);
        let cli = Cli::new();
        let script = format!(
            "#!/bin/sh\nOPENAI_BASE_URL=\"${address}\" exec \"$PROGRAM\" {}\n",
            ONLY_CLIENT.join(" ")
        );
        let file = cli.write(program, script);
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let start = format!("./{program}");
        let mut command = cli.command(["--json", "guard", "--max-turns", "2", "--", &start]);
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
    // The card is wrapped at the width of the terminal.
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
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
