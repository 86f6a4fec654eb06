//! Misbehaving commands: they hide their output, ignore signals, die in odd ways, write binary
//! data, or do not exist. The run continues, the model gets a report, and no process is left.

use crate::processes::{SOON, alive, gone, marker};
use crate::support::{agent, results};
use endstop::testkit::Turn;
use endstop::tool::{ReadFile, Shell, ToolOutput, tool_fn};
use endstop::{Limits, Outcome, Termination, ToolStatus};
use serde_json::{Map, Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(300);

/// Limits for a command that does not end.
fn limits() -> Limits {
    Limits { tool_timeout: Some(TICK), cancel_grace: TICK, ..Limits::default() }
}

/// Limits for a command that ends, whose start may take seconds on a busy machine.
fn patient() -> Limits {
    Limits { tool_timeout: Some(SOON), ..limits() }
}

/// A run that calls the shell with these lines, one per turn, and then ends.
async fn shell_in(dir: Option<&Path>, lines: &[&str], limits: Limits) -> Outcome {
    let turns = lines.iter().map(|line| Turn::call("shell", &json!({ "command": line })));
    let mut builder =
        agent(turns.chain([Turn::text("done")])).tool(Shell::default()).limits(limits);
    if let Some(dir) = dir {
        builder = builder.working_dir(dir);
    }
    let began = Instant::now();
    let outcome = builder.build().unwrap().run("hi").unwrap().await;
    assert!(began.elapsed() < 2 * SOON, "{:?}: {outcome:?}", began.elapsed());
    assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
    outcome
}

/// Returns the result of one command line as the model receives it.
async fn told(line: &str) -> (ToolStatus, String) {
    let outcome = shell_in(None, &[line], patient()).await;
    let result = results(&outcome)[0];
    (result.status, result.content.clone())
}

/// Returns the result of a command line that does not end by itself, as the model receives it.
/// The timeout is stepwise longer, until the command had the time to print `begins`.
async fn timed_out(line: &str, begins: &str) -> String {
    let mut tick = TICK;
    loop {
        let limits = Limits { tool_timeout: Some(tick), ..limits() };
        let outcome = shell_in(None, &[line], limits).await;
        let result = results(&outcome)[0];
        assert_eq!(result.status, ToolStatus::Timeout, "{}", result.content);
        if result.content.contains(begins) || tick * 4 > SOON {
            return result.content.clone();
        }
        tick *= 4;
    }
}

#[tokio::test]
async fn closed_output_waits_until_timeout() {
    let mark = marker();
    let content = timed_out(&format!("echo begun; exec >&- 2>&-; sleep {mark}"), "begun").await;
    assert!(content.contains("timed out after") && content.contains("begun"), "{content}");
    gone(mark);
    // A command that ends on its own is waited for, and its exit is reported.
    let (status, content) = told("echo begun; exec >&- 2>&-; sleep 0.05; exit 3").await;
    assert_eq!((status, content.as_str()), (ToolStatus::Ok, "begun\n[exit status 3]"));
    // The same for a command that closes all of its descriptors at the start.
    let (status, content) = told("exec <&- >&- 2>&-; sleep 0.05; true").await;
    assert_eq!((status, content.as_str()), (ToolStatus::Ok, "[exit status 0]"));
}

#[tokio::test]
async fn ignored_signals_end_in_kill() {
    let mark = marker();
    let line = format!("trap '' TERM HUP INT QUIT; sleep {mark}; sleep {mark}; sleep {mark}");
    let outcome = shell_in(None, &[&line], limits()).await;
    assert_eq!(results(&outcome)[0].status, ToolStatus::Timeout, "{outcome:?}");
    gone(mark);
}

#[tokio::test]
async fn slow_endless_output_is_stopped() {
    let mark = marker();
    let line = format!("sleep {mark} & while :; do printf 'so far '; sleep 0.02; done");
    let content = timed_out(&line, "so far so far").await;
    assert!(content.contains("so far so far"), "{content}");
    gone(mark);
}

#[tokio::test]
async fn death_by_signal_is_reported() {
    for (signal, number) in [("SEGV", 11), ("ABRT", 6), ("KILL", 9), ("TERM", 15), ("PIPE", 13)] {
        let (status, content) = told(&format!("echo last words; kill -{signal} $$")).await;
        let said = format!("last words\n[killed by signal {number}]");
        assert_eq!((status, content), (ToolStatus::Error, said));
    }
    // Reporting the death of a child is the task of its parent.
    let (status, content) = told("sh -c 'kill -9 $$'; echo \"child: $?\"").await;
    assert_eq!(status, ToolStatus::Ok);
    assert!(content.contains("child: 137"), "{content}");
}

#[tokio::test]
async fn binary_output_is_reported_as_text() {
    let (status, content) = told(r"printf 'a\000b\377\376c\303'; printf '\251\n\033[2J'").await;
    assert_eq!(status, ToolStatus::Ok);
    assert_eq!(content, "a\0b\u{fffd}\u{fffd}c\u{e9}\n\u{1b}[2J\n[exit status 0]");
    // The conversation contains it as JSON that can be parsed again.
    let outcome = shell_in(None, &[r"printf '\000\377'"], patient()).await;
    let text = serde_json::to_string(&outcome).unwrap();
    let again: Value = serde_json::from_str(&text).unwrap();
    assert!(again["messages"].to_string().contains("\\u0000\u{fffd}"), "{again}");
}

#[tokio::test]
async fn unrunnable_command_names_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let script = |name: &str, text: &str, mode: u32| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    script("plain", "#!/bin/sh\necho never\n", 0o644);
    let orphan = format!("#!{}\necho never\n", dir.path().join("absent").display());
    script("orphan", &orphan, 0o755);
    script("garbage", "\u{7f}ELF\u{1}\u{2}\u{3}", 0o755);
    for (line, says) in [
        ("./plain", "ermission denied"),
        ("./orphan", "not found"),
        ("./absent", "not found"),
        ("./garbage", "garbage"),
        ("./", "ermission denied"),
    ] {
        let outcome = shell_in(Some(dir.path()), &[line], patient()).await;
        let result = results(&outcome)[0];
        // The shell ran; its exit status reports that the command did not.
        assert_eq!(result.status, ToolStatus::Ok, "{line}: {result:?}");
        let named = result.content.contains(says) || result.content.contains("bad interpreter");
        assert!(named, "{line}: {result:?}");
        let status = result.content.contains("[exit status 126]")
            || result.content.contains("[exit status 127]")
            || line == "./garbage";
        assert!(status && !result.content.contains("never"), "{line}: {result:?}");
    }
}

#[tokio::test]
async fn removed_folder_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let work = dir.path().join("work");
    std::fs::create_dir(&work).unwrap();
    let gone = format!("rm -r '{}'; echo gone; exit 0", work.display());
    let outcome = shell_in(Some(&work), &[&gone, "echo here"], patient()).await;
    let results = results(&outcome);
    assert_eq!(results[0].content, "gone\n[exit status 0]");
    assert_eq!(results[1].status, ToolStatus::Error);
    let says = format!("the working folder {} does not exist", work.display());
    assert!(results[1].content.contains(&says), "{results:?}");
}

/// Names that are unusual for terminals, logs or providers.
fn names() -> [String; 5] {
    [
        "rm -rf\n\r\t".to_owned(),
        "\u{1b}[2J\u{1b}]0;owned\u{7}".to_owned(),
        "a\u{0}b\u{9b}31m\u{202e}".to_owned(),
        "x".repeat(10_000),
        "../../bin/sh; exit".to_owned(),
    ]
}

#[tokio::test]
async fn unknown_tool_is_an_error() {
    for name in names() {
        let ran = Arc::new(AtomicUsize::new(0));
        let runs = Arc::clone(&ran);
        let known = tool_fn("known", "Is there.", move |_: Map<String, Value>, _| {
            runs.fetch_add(1, Ordering::SeqCst);
            async { ToolOutput::ok("ran") }
        });
        let turns = [Turn::call(&name, &json!({})), Turn::text("done")];
        let outcome = agent(turns).tool(known).build().unwrap().run("hi").unwrap().await;
        assert_eq!(outcome.termination, Termination::Stop, "{outcome:?}");
        let result = results(&outcome)[0];
        assert_eq!((result.status, result.started), (ToolStatus::Error, false));
        assert!(result.content.ends_with("`; there are: known, finish"), "{}", result.content);
        assert!(result.content.chars().count() < 300, "{}", result.content.len());
        assert_eq!(ran.load(Ordering::SeqCst), 0);
        let text = serde_json::to_string(&outcome).unwrap();
        assert!(!text.contains('\u{1b}') && !text.contains('\u{0}'), "it is escaped in JSON");
    }
}

#[tokio::test]
async fn odd_names_are_used_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    for name in
        ["new\nline", "\u{1b}[31mred", "-rf", "q'uo\"te $(touch owned) `touch owned`", "é\u{301}"]
    {
        std::fs::write(dir.path().join(name), format!("in {name}")).unwrap();
        let turns = [Turn::call("read_file", &json!({ "path": name })), Turn::text("done")];
        let builder = agent(turns).tool(ReadFile::default()).working_dir(dir.path());
        let outcome = builder.build().unwrap().run("hi").unwrap().await;
        let result = results(&outcome)[0];
        assert_eq!(result.status, ToolStatus::Ok, "{result:?}");
        assert!(result.content.contains(&format!("in {name}")), "{result:?}");
        // Quoting is left to the shell, whose message names the missing command.
        let line = format!("'./no such {}'", name.replace('\'', "'\\''"));
        let outcome = shell_in(Some(dir.path()), &[&line], limits()).await;
        assert!(results(&outcome)[0].content.ends_with("[exit status 127]"), "{name:?}");
    }
    let long = "x".repeat(10_000);
    let turns = [Turn::call("read_file", &json!({ "path": long })), Turn::text("done")];
    let builder = agent(turns).tool(ReadFile::default()).working_dir(dir.path());
    let outcome = builder.build().unwrap().run("hi").unwrap().await;
    assert_eq!(results(&outcome)[0].status, ToolStatus::Error);
    assert!(!dir.path().join("owned").exists(), "a name was run");
}

/// A smaller version of a test with ten gigabytes.
#[tokio::test]
async fn flood_until_timeout_is_truncated() {
    let mark = marker();
    let content = timed_out(&format!("sleep {mark} & yes"), "y\ny\n").await;
    assert!(content.len() < 70_000, "{}", content.len());
    gone(mark);
    assert!(alive(mark).is_empty());
    let outcome = shell_in(None, &["yes | head -c 30000000"], patient()).await;
    let result = results(&outcome)[0];
    assert_eq!(result.status, ToolStatus::Ok);
    assert!(result.content.contains("[… 29934464 bytes left out …]"), "{:.200}", result.content);
}
