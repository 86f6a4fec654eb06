//! The endings of guarded runs: limits, rules, refusals, and the card.

use super::{
    CLIENT, EXTRACTS, ONLY_CLIENT, SHOWS, SHOWS_ONCE, TITLED, UNUSABLE, WAITS, guarded, outcome,
    run, step,
};
use crate::cli::{ANTHROPIC_KEY, Cli, Done, OPENAI_KEY, Started, answering, eventually, playing};
use crate::terminal::Terminal;
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;

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
fn reasoning_without_an_end_names_its_limit() {
    let server = answering(|_| {
        let delta = json!({"choices": [{"delta": {"reasoning_content": "hm "}}]});
        let stream = format!("data: {delta}\n\n").repeat(20_000);
        Reply::new(200, "text/event-stream", stream).drip(Duration::from_millis(1))
    });
    let card = [
        "── stopped: error_thinking_starved (capacity)",
        "or its time; the model wrote no visible text",
        "no text or tool call within 300ms",
        "next     raise --thinking-timeout",
    ];
    with_card(&server, &["--thinking-timeout", "300ms"], "x", "; exit 0").exits(20).notes(&card);
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

/// The card and the record name the command that continues the session of a known client, under the limits of the run.
#[test]
fn next_continues_session_of_known_client() {
    use std::os::unix::fs::PermissionsExt;
    let call = Turn::call("work", &json!({})).usage(10, 5);
    let server = answering(move |request| Reply::turn(request, &call));
    let (cli, client) = (Cli::new(), std::env::current_exe().unwrap());
    let script = format!("#!/bin/sh\nexec '{}' {}\n", client.display(), ONLY_CLIENT.join(" "));
    for (program, next) in [
        ("claude", "endstop guard --max-turns 4 --timeout 10m -- claude --continue"),
        ("agent", "raise --max-turns to 4, or reduce the task"),
    ] {
        let file = cli.write(program, &script);
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = cli.path(program);
        let limits = ["--max-turns", "2", "--timeout", "10m"];
        let mut command = cli.command(["guard", "--journal", "j.db"]);
        command.args(limits).arg("--").arg(path);
        let base = server.base_url().replace("127.0.0.1", "localhost");
        command.env("OPENAI_BASE_URL", base).env(CLIENT, "x");
        let done = Started::new(command, "").finish().notes(&[next]);
        assert!(done.stderr.contains("error_max_turns"), "{done:#?}");
        let explained = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
        assert!(explained.contains(next), "no {next:?} in {explained}");
    }
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
    with_card(&server, &ceiling, "x", "; exit 0").exits(20).notes(&price);
    let done = with_card(&server, &strict, SHOWS, "; exit 0").exits(30).notes(&image);
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
        // The card is wrapped at the width of the terminal.
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
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
fn program_that_still_works_at_its_deadline_has_not_succeeded() {
    let server = playing([Turn::text("I will run the tests now.").usage(10, 5)]);
    let options = ["--timeout", "2s", "--grace", "100ms"];
    with_card(&server, &options, "x", "; sleep 60").exits(20).outcome_is("error_timeout");
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
