//! `endstop run` ends by a limit, a policy or a server that fails, in each format.

use crate::cli::{Cli, FORMATS, answering, eventually, playing};
use crate::run::{midst, with};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn unknown_model_is_rejected() {
    for (api, body) in [
        (
            "openai-chat",
            json!({"error": {"message": "The model `scripted` does not exist",
                   "type": "invalid_request_error", "param": null, "code": "model_not_found"}}),
        ),
        (
            "anthropic-messages",
            json!({"type": "error",
                   "error": {"type": "not_found_error", "message": "model: scripted"}}),
        ),
    ] {
        let cli = Cli::new();
        let server = playing([Turn::error(404, body.to_string())]);
        cli.agent(&server, api, &["Hello."])
            .exits(30)
            .notes(&["stopped: error_provider_rejected (fatal)", "scripted"]);
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn long_retry_delay_ends_run() {
    for (api, body) in [
        (
            "openai-chat",
            json!({"error": {"message": "Rate limit reached", "type": "requests",
                   "param": null, "code": "rate_limit_exceeded"}}),
        ),
        (
            "anthropic-messages",
            json!({"type": "error",
                   "error": {"type": "rate_limit_error", "message": "Too many requests"}}),
        ),
    ] {
        let cli = Cli::new();
        let body = body.to_string();
        let server = answering(move |_| {
            Reply::new(429, "application/json", body.clone()).header("retry-after", "120")
        });
        let outcome = cli.agent(&server, api, &["Hello.", "--json"]).exits(10).outcome();
        assert_eq!(outcome["termination"], "error_during_execution");
        assert_eq!(outcome["category"], "retryable");
        assert_eq!(outcome["retry_after_ms"], 120_000);
        assert_eq!(server.requests().len(), 1);
        cli.agent(&server, api, &["Hello."]).exits(10).notes(&["wait 2 min 0 s"]);
    }
}

#[test]
fn incomplete_stream_is_retried_then_fails() {
    for api in FORMATS {
        let cli = Cli::new();
        let turn = Turn::text("an answer of several words that is never whole");
        let server = answering(move |request| Reply::turn(request, &turn).cut_after(midst(api)));
        let args = ["Hello.", "--max-retries", "1", "--json"];
        let outcome = cli.agent(&server, api, &args).exits(10).outcome();
        assert_eq!(outcome["termination"], "error_during_execution");
        assert_eq!(outcome["decided_by"]["name"], "incomplete_stream", "{outcome}");
        assert_eq!((&outcome["turns"], &outcome["model_calls"]), (&json!(0), &json!(2)));
        assert_eq!(server.requests().len(), 2);
        assert!(outcome["last_text"].as_str().is_some_and(|text| text.starts_with("an answer")));
    }
}

#[test]
fn retried_turn_voids_earlier_text() {
    for api in FORMATS {
        let cli = Cli::new();
        let turn = Turn::text("an answer of several words that is whole in the end");
        let server = answering(move |request| {
            let reply = Reply::turn(request, &turn);
            if request.number == 1 { reply.reset_after(midst(api)) } else { reply }
        });
        let done = cli.agent(&server, api, &["Hello."]).exits(0);
        assert!(done.stdout.ends_with("an answer of several words that is whole in the end\n"));
        done.notes(&["the turn is restarted", "stopped: stop"]);
    }
}

#[test]
fn stall_closes_the_connection() {
    for api in FORMATS {
        let cli = Cli::new();
        let turn = Turn::text("an answer that stops in its midst and says no more");
        let server = answering(move |request| Reply::turn(request, &turn).stall_after(midst(api)));
        let args = ["Hello.", "--stall-timeout", "200ms", "--max-retries", "0", "--json"];
        let outcome = cli.agent(&server, api, &args).exits(10).outcome();
        assert_eq!(outcome["termination"], "error_during_execution");
        assert!(outcome["duration_ms"].as_f64().unwrap() >= 200.0);
        eventually("the server sees the hang-up", || server.hung_up().len() == 1);
    }
}

/// A model that reads another file in every turn: it never ends and never repeats itself.
pub(crate) fn busy(usage: (u64, u64)) -> Server {
    answering(move |request| {
        let path = format!("{}.txt", request.number);
        let turn = Turn::call("read_file", &json!({"path": path}));
        Reply::turn(request, &turn.and_text(format!("I read {path}.")).usage(usage.0, usage.1))
    })
}

pub(crate) fn busy_cli() -> Cli {
    let cli = Cli::new();
    for n in 1..6 {
        cli.write(&format!("{n}.txt"), format!("content {n}"));
    }
    cli
}

#[test]
fn turn_cap_ends_run() {
    for api in FORMATS {
        let (cli, server) = (busy_cli(), busy((50, 10)));
        let args = ["Read.", "--tool", "read_file", "--max-turns", "2"];
        cli.agent(&server, api, &args).exits(20).notes(&[
            "stopped: error_max_turns (capacity)",
            "raise --max-turns",
            "2/2 turns",
        ]);
        assert_eq!(server.requests().len(), 2);
        let none = cli.agent(&server, api, &["Read.", "--max-turns", "0", "--json"]).exits(20);
        assert_eq!(none.outcome()["model_calls"], 0);
        assert_eq!(server.requests().len(), 2);
    }
}

#[test]
fn cost_ceiling_is_enforced() {
    for api in FORMATS {
        let (cli, server) = (busy_cli(), busy((50, 300)));
        let budget = ["Read.", "--tool", "read_file", "--max-budget-usd", "0.5"];
        // Without a price the ceiling is refused before any call.
        cli.agent(&server, api, &budget).exits(2).notes(&["max_budget_usd", "--price"]);
        assert_eq!(server.requests().len(), 0);
        let args = with(&budget, &["--price", "in=1,out=1000", "--json"]);
        let outcome = cli.agent(&server, api, &args).exits(20).outcome();
        assert_eq!(outcome["termination"], "error_max_budget_usd");
        // 300 tokens cost 0.30 dollars; the rest does not pay for a call of 256 tokens.
        assert_eq!(outcome["model_calls"], 1);
        assert_eq!(outcome["tool_calls"], 1);
        assert!((outcome["cost_usd"].as_f64().unwrap() - 0.30005).abs() < 1e-9, "{outcome}");
        assert_eq!(outcome["overrun_usd"], 0.0);
        // The output cap of the call was lowered to fit the ceiling.
        let body = &server.requests()[0].body;
        let cap = ["max_tokens", "max_completion_tokens", "max_output_tokens"]
            .iter()
            .find_map(|key| body[*key].as_u64())
            .unwrap_or_else(|| panic!("no cap: {body}"));
        assert!((256..=500).contains(&cap), "{cap}");
        // A ceiling of zero allows no call.
        let zero = ["Read.", "--max-budget-usd", "0", "--price", "in=1,out=1", "--json"];
        let outcome = cli.agent(&server, api, &zero).exits(20).outcome();
        assert_eq!(outcome["model_calls"], 0);
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn token_ceiling_is_enforced() {
    for api in FORMATS {
        let (cli, server) = (busy_cli(), busy((1_000, 18_500)));
        let args = ["Read.", "--tool", "read_file", "--max-tokens", "20000", "--json"];
        let outcome = cli.agent(&server, api, &args).exits(20).outcome();
        assert_eq!(outcome["termination"], "error_max_tokens");
        assert_eq!(outcome["model_calls"], 1);
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn policy_ends_run_during_stream() {
    for api in FORMATS {
        let cli = Cli::new();
        let turn = Turn::text("So it is FINAL(\"42\") and I could go on for ever and ever.");
        let server = answering(move |request| {
            Reply::turn(request, &turn.clone().pace(Duration::from_millis(1)))
                .stall_after(2 * midst(api))
        });
        let args = ["What?", "--policy", "final_pattern", "--json"];
        let outcome = cli.agent(&server, api, &args).exits(0).outcome();
        assert_eq!(outcome["termination"], "submitted");
        assert_eq!(outcome["deliverable"], "42");
        assert_eq!(outcome["decided_by"]["name"], "final_pattern");
    }
}

#[cfg(unix)]
#[test]
fn verifier_decides_exit_status() {
    for api in FORMATS {
        let cli = Cli::new();
        std::fs::create_dir(cli.path("work")).unwrap();
        cli.write("work/proof", "yes");
        let server = playing([Turn::text("Done.")]);
        let base = ["Do it.", "--dir", "work", "--verify"];
        cli.agent(&server, api, &with(&base, &["test -f proof"])).exits(0).notes(&["verified yes"]);
        let verify = "echo it is wrong; false";
        let done = cli.agent(&server, api, &with(&base, &[verify])).exits(1);
        assert_eq!(done.stdout, "Done.\n");
        done.notes(&["verify: it is wrong", "verified NO", "stopped: stop (success)"]);
        let args = with(&base, &["false", "--json", "--events", "events.jsonl"]);
        let outcome = cli.agent(&server, api, &args).exits(1).outcome();
        assert_eq!(outcome["termination"], "stop");
        assert_eq!(outcome["verified"], false);
        assert!(cli.read("events.jsonl").contains("\"verified\":false"));
        // Only a successful run is verified.
        let server = playing([Turn::error(401, "{}")]);
        let args = with(&base, &["touch was-verified", "--json"]);
        let outcome = cli.agent(&server, api, &args).exits(30).outcome();
        assert_eq!(outcome["verified"], Value::Null);
        assert!(!cli.path("work/was-verified").exists());
    }
}
