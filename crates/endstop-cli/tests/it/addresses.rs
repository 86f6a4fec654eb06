//! Unreachable servers: the error names the requested address, without the secrets in it.

use crate::cli::{Cli, FORMATS, Refusing, playing};
use endstop::testkit::Turn;
use serde_json::Value;

/// Returns the evidence of a run at this address, which contains a user and a password.
fn evidence(scheme: &str, place: &str, api: &str, status: i32) -> String {
    let cli = Cli::new();
    let url = format!("{scheme}://someone:hunter2@{place}/v1");
    let args = ["run", "Go.", "--model", "m-1", "--api", api, "--base-url", &url];
    let done =
        cli.run(args.iter().chain(&["--allow-http", "--max-retries", "0", "--json"])).exits(status);
    for shown in [&done.stdout, &done.stderr] {
        assert!(!shown.contains("hunter2") && !shown.contains("someone"), "{done:#?}");
    }
    let outcome: Value = done.outcome();
    outcome["decided_by"]["evidence"].as_str().unwrap().to_owned()
}

fn path(api: &str) -> &'static str {
    match api {
        "openai-chat" => "/v1/chat/completions",
        "openai-responses" => "/v1/responses",
        _ => "/v1/messages",
    }
}

#[test]
fn unreachable_server_is_named() {
    for api in FORMATS {
        let nothing = Refusing::new();
        let free = &nothing.address;
        let refused = evidence("http", free, api, 10);
        assert!(refused.contains(&format!("http://{free}{}", path(api))), "{refused}");
        assert!(refused.contains("refused"), "{refused}");
        let unknown = evidence("http", "no-such-host.invalid:81", api, 10);
        assert!(
            unknown.contains(&format!("http://no-such-host.invalid:81{}", path(api))),
            "{unknown}"
        );
    }
}

#[test]
fn unreachable_server_shows_no_cost() {
    let cli = Cli::new();
    let nothing = Refusing::new();
    let url = format!("http://{}/v1", nothing.address);
    let args = ["run", "Go.", "--model", "m-1", "--api", "openai-chat", "--base-url", &url];
    let args = [&args[..], &["--max-retries", "0", "--journal", "j.db"]].concat();
    let spent = "  spent    0/25 turns · 1 model call · 0 tool calls · unknown tokens · ";
    let row =
        |text: &str| text.lines().find_map(|line| line.strip_prefix(spent)).map(str::to_owned);
    // No price is known, so an amount of dollars would be a claim.
    let done = cli.run(&args).exits(10);
    assert!(!row(&done.stderr).unwrap().contains('$'), "{done:#?}");
    let explained = cli.run(["explain", "last", "--journal", "j.db"]).exits(0);
    assert_eq!(row(&explained.stdout), row(&done.stderr), "{explained:#?}");
    // With a ceiling a price is known, and a call that reached no server costs nothing.
    let ceiling = ["--price", "in=1,out=2", "--max-budget-usd", "1"];
    let done = cli.run(args.iter().chain(&ceiling)).exits(10);
    assert!(row(&done.stderr).unwrap().starts_with("$0.00/$1.00 · "), "{done:#?}");
}

#[test]
fn server_without_tls_is_named() {
    let server = playing([Turn::text("Hi.")]);
    let place = server.base_url();
    let place = place.strip_prefix("http://").unwrap().split('/').next().unwrap();
    let evidence = evidence("https", place, "openai-chat", 10);
    assert!(evidence.contains(&format!("https://{place}/v1/chat/completions: ")), "{evidence}");
}

#[test]
fn missing_address_error_names_request() {
    for api in FORMATS {
        for status in [404, 405] {
            let server = playing([Turn::error(status, "<html>nothing here</html>")]);
            let place = server.base_url();
            let place = place.strip_prefix("http://").unwrap().split('/').next().unwrap();
            let evidence = evidence("http", place, api, 30);
            let asked = format!("HTTP {status} for POST http://{place}{}, model `m-1`", path(api));
            assert!(evidence.contains(&asked), "{evidence}");
        }
    }
}

#[test]
fn replayed_error_is_the_recorded_one() {
    let cli = Cli::new();
    let server = playing([Turn::error(404, "")]);
    let base = server.base_url();
    let first = cli.run([
        "run",
        "Go.",
        "--model",
        "m",
        "--base-url",
        &base,
        "--json",
        "--record",
        "r.jsonl",
    ]);
    let replayed = cli.run(["run", "--replay", "r.jsonl", "--json"]).exits(30).outcome();
    assert_eq!(replayed["decided_by"], first.outcome()["decided_by"]);
}
