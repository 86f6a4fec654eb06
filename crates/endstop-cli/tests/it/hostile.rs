//! Hostile surroundings: floods, decompression bombs and hostile names; memory use, and output for
//! terminals and for JSON readers.

use crate::cli::{Cli, DEADLINE, Started, agent_args, answering, playing};
use crate::terminal::Terminal;
use endstop::testkit::{Reply, Server, Turn};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// A bound above the memory of a normal run and below that of a run that keeps too much, in KiB.
const MOST_KIB: u64 = 64 * 1024;

/// Runs the binary to its end; returns its peak memory in KiB, without that of its keeper.
fn measured(cli: &Cli, server: &Server, args: &[&str]) -> (crate::cli::Done, u64) {
    let started = Started::new(cli.command(agent_args(server, "openai-chat", args)), "");
    let status = format!("/proc/{}/status", started.child.id());
    let deadline = Instant::now() + DEADLINE;
    let mut most = 0;
    // The peak only rises, so the last value before the end is close to the final one.
    while Instant::now() < deadline {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let Some(line) = line else { break };
        most = line.trim().trim_end_matches(" kB").parse().unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    (started.finish(), most)
}

/// Returns the result of the only call of a run.
fn answered(done: &crate::cli::Done) -> Value {
    let mut lines = done.lines().into_iter();
    lines.find(|line| line["type"] == "tool_finished").unwrap_or_else(|| panic!("{done:#?}"))
}

/// Runs a command that prints this many bytes.
fn floods(bytes: u64) {
    let cli = Cli::new();
    let line = format!("yes | head -c {bytes}");
    let server = playing([Turn::call("shell", &json!({ "command": line })), Turn::text("done")]);
    let args = ["Flood.", "--tool", "shell", "--tool-timeout", "50s", "--json"];
    let (done, most) = measured(&cli, &server, &args);
    let done = done.exits(0);
    let content = answered(&done)["content"].as_str().unwrap().to_owned();
    // 32 KiB of each end are kept.
    let cut = format!("[… {} bytes left out …]", bytes - 2 * 32 * 1024);
    assert!(content.contains(&cut) && content.ends_with("y\n[exit status 0]"), "{content:.99}");
    assert!(most < MOST_KIB, "it held {most} KiB");
}

#[test]
fn flooding_command_is_bounded_in_memory() {
    floods(200_000_000);
}

#[test]
#[ignore = "ten gigabytes take some ten seconds of two processors"]
fn ten_gigabyte_output_is_bounded() {
    floods(10_000_000_000);
}

#[test]
fn compressed_body_is_bounded_in_memory() {
    let mut gz = GzEncoder::new(Vec::new(), Compression::best());
    // Long events, because reading many small ones takes most of the time.
    let (open, close) =
        ("data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"}}],\"pad\":\"", "\"}\n\n");
    let line = [open, &" ".repeat(1_000), close].concat();
    gz.write_all(line.repeat(1_000).as_bytes()).unwrap();
    gz.flush().unwrap();
    // The compressed block refers to nothing before it, so it can be repeated.
    let (head, block) = gz.get_ref().split_at(10);
    // More than twice the bound.
    let body = [head, &block.repeat(150)].concat();
    assert!(body.len() < 16 << 20, "{}", body.len());
    for status in [200, 500] {
        let body = body.clone();
        let server = answering(move |_| {
            let reply = Reply::new(status, "text/event-stream", body.clone());
            reply.header("content-encoding", "gzip")
        });
        let cli = Cli::new();
        let args = ["Hi.", "--max-retries", "0", "--stall-timeout", "500ms", "--json"];
        let (done, most) = measured(&cli, &server, &args);
        let outcome = done.exits(10).outcome();
        assert_eq!(outcome["termination"], "error_during_execution", "{outcome}");
        assert!(most < MOST_KIB, "{status}: it held {most} KiB");
    }
}

#[test]
fn memory_grows_linearly_with_calls() {
    let held = |calls: usize| {
        let asked = (0..calls)
            .fold(Turn::text("Many."), |turn, n| turn.and_call("nothing", &json!({ "n": n })));
        let server = playing([asked, Turn::text("done")]);
        let (done, most) = measured(&Cli::new(), &server, &["Hi.", "--json"]);
        let done = done.exits(0);
        let ended = done.lines().iter().filter(|line| line["type"] == "tool_finished").count();
        assert_eq!(ended, calls);
        most
    };
    let (few, many) = (held(1_000), held(10_000));
    let each = many.saturating_sub(few) / 9_000;
    assert!(each < 8, "{few} KiB, then {many}: {each} KiB for each call");
}

/// Tool names that a model could invent, with escape sequences.
const NAMES: [&str; 4] = [
    "\u{1b}]0;owned\u{7}\u{1b}[2J",
    "rm -rf\r\n\n── stopped: forged\u{8}",
    "a\u{0}b\u{9b}31m",
    "../../sh",
];

#[test]
fn terminal_gets_no_raw_escapes() {
    let name = "\u{1b}[31m\u{7}red\u{9b}2J\n";
    let commands = format!(
        "printf '#!/bin/sh\\nprintf \"\\\\033[2Jgone\\\\007\\\\000\"\\n' > '{name}'; chmod +x '{name}'; './{name}'; './no{name}'"
    );
    let mut turns: Vec<Turn> = NAMES.iter().map(|name| Turn::call(*name, &json!({}))).collect();
    turns.insert(1, Turn::call("shell", &json!({ "command": commands })));
    turns.push(Turn::call("x".repeat(10_000), &json!({"path": "\u{1b}[2J"})));
    turns.push(Turn::text("the end"));
    let flags = ["--tool", "shell", "--max-consecutive-mistakes", "99"];
    let args = [&["Hi."], &flags[..]].concat();
    let server = playing(turns.clone());
    let (code, seen) = Terminal::run(&server, &args).finish();
    assert_eq!(code, 0, "{seen}");
    // Nothing was erased: all of it is there, with symbols for the control characters.
    for shown in ["→ shell", "␛]0;owned␇␛[2J", "␛[2Jgone␇", "../../sh", "the end"] {
        assert!(seen.contains(shown), "no {shown:?} in: {seen}");
    }
    assert!(!seen.lines().any(|line| line.starts_with("── stopped: forged")), "{seen}");
    assert!(seen.len() < 8_000, "a name of ten thousand letters is not shown whole: {seen}");

    // A pipe gets the same text, and JSON the original.
    let server = playing(turns.clone());
    let done = Cli::new().agent(&server, "openai-chat", &args).exits(0);
    let obeyed = |text: &str| text.chars().any(|c| c.is_control() && c != '\n' && c != '\t');
    assert!(!obeyed(&done.stderr), "{:?}", done.stderr);
    let server = playing(turns);
    let args = [&args[..], &["--json"]].concat();
    let done = Cli::new().agent(&server, "openai-chat", &args).exits(0);
    // JSON escapes control characters itself, except those beyond ASCII.
    assert!(!done.stdout.chars().any(|c| c < ' ' && c != '\n'), "{:?}", done.stdout);
    let lines = done.lines();
    for name in NAMES {
        assert!(lines.iter().any(|line| line["name"] == name), "no {name:?}");
    }
    assert_eq!(done.outcome()["termination"], "stop");
}

#[test]
fn failed_commands_do_not_end_run() {
    let cli = Cli::new();
    let absent = format!("#!{}\n", cli.dir.path().join("absent").display());
    for (name, text, mode) in [("plain", "#!/bin/sh\n", 0o644), ("orphan", &absent, 0o755)] {
        let path = cli.write(name, text);
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let gone = format!("rm -r '{}'", cli.dir.path().display());
    let lines = ["./plain", "./orphan", "kill -11 $$", &gone, "pwd"];
    let turns = lines.map(|line| Turn::call("shell", &json!({ "command": line })));
    let server = playing(turns.into_iter().chain([Turn::text("done")]).collect::<Vec<_>>());
    let args = ["Hi.", "--tool", "shell", "--json", "--max-consecutive-mistakes", "9"];
    let done = cli.agent(&server, "openai-chat", &args).exits(0);
    let ended = done.lines().into_iter().filter(|line| line["type"] == "tool_finished");
    let ended: Vec<String> = ended.map(|line| line["content"].as_str().unwrap().into()).collect();
    for (content, says) in ended.iter().zip([
        "[exit status 126]",
        "[exit status 127]",
        "[killed by signal 11]",
        "[exit status 0]",
        "getcwd() failed",
    ]) {
        assert!(content.contains(says), "no {says:?} in {ended:?}");
    }
}

/// With a limit on file sizes that the journal and the events file reach during the run.
#[test]
fn file_size_limit_ends_no_run() {
    let cli = Cli::new();
    let long = "x".repeat(400_000);
    let lines = [format!("echo {long} | head -c 60000"), "head -c 1000000 /dev/zero > big".into()];
    let turns = lines.map(|line| Turn::call("shell", &json!({ "command": line })));
    let server = playing(turns.into_iter().chain([Turn::text("done")]).collect::<Vec<_>>());
    let kept = ["--journal", "journal.db", "--events", "e.jsonl", "--json"];
    let words =
        agent_args(&server, "openai-chat", &[&["Hi.", "--tool", "shell"][..], &kept].concat());
    let mut limited = std::process::Command::new("sh");
    limited
        .args(["-c", "ulimit -f 400; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_endstop")])
        .args(words)
        .current_dir(cli.dir.path());
    // The run goes to its end; the status reports the file of events.
    let done = Started::new(limited, "").finish().exits(74);
    assert_eq!(done.outcome()["termination"], "stop");
    for name in ["journal.db", "e.jsonl"] {
        assert!(cli.path(name).metadata().unwrap().len() <= 400 * 1024, "{name}");
    }
    let lines = done.lines();
    let lost = |line: &Value| line["message"].to_string().contains("cannot store this run");
    assert!(lines.iter().any(lost), "{done:?}");
    // The command inherits the limit, but not the changed signal handling.
    let command = lines.iter().rfind(|line| line["type"] == "tool_finished").unwrap();
    let content = command["content"].as_str().unwrap();
    assert!(content.contains("signal 25") || content.contains("status 153"), "{content}");
    done.notes(&["--events e.jsonl: File too large"]);
}
