//! The processes around a guarded run: who may use its address, and what ends with it.

use super::{CLIENT, ONLY_CLIENT, TELLS, guarded, outcome, step};
use crate::cli::{ANTHROPIC_KEY, Cli, Started, answering, ask, eventually, post_as_nobody};
use endstop::testkit::{Reply, Server, Turn};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

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
