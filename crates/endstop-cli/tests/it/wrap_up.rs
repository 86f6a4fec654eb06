//! `--wrap-up` and `--tell-remaining`: a hand-over when a ceiling ends the run.

use crate::cli::{Cli, FORMATS, Started, agent_args, answering, eventually, playing};
use crate::run::last_message;
use endstop::testkit::{Reply, Turn};
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn hand_over_is_no_answer() {
    for api in FORMATS {
        let cli = Cli::new();
        cli.write("a.txt", "the content");
        let server = playing([
            Turn::call("read_file", &json!({"path": "a.txt"})).usage(100, 10),
            Turn::text("Read a.txt. Open: b.txt.").usage(150, 12),
        ]);
        let args =
            ["Go.", "--tool", "read_file", "--max-turns", "1", "--wrap-up", "--journal", "j.db"];
        let done = cli.agent(&server, api, &args).exits(20);
        done.notes(&["stopped: error_max_turns (capacity)", "  handover Read a.txt. Open: b.txt."]);
        let requests = server.requests();
        assert_eq!(requests.len(), 2);
        let told = last_message(&requests[1].body);
        assert!(told.contains("its limit on the number of turns is reached"), "{told}");
        // The tools stay in the request, and the model may not call them.
        let body = &requests[1].body;
        assert!(body["tools"].is_array(), "{body}");
        let choice = &body["tool_choice"];
        assert!(*choice == "none" || choice["type"] == "none", "{body}");
        let text = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
        assert!(text.contains("hand-over: Read a.txt."), "{text}");
        let outcome = cli.run(["explain", "last", "--journal", "j.db", "--json"]).exits(0).stdout;
        let outcome: Value = serde_json::from_str(&outcome).unwrap();
        let outcome = &outcome["outcome"];
        assert_eq!(outcome["hand_over"], "Read a.txt. Open: b.txt.");
        assert_eq!((&outcome["deliverable"], &outcome["turns"]), (&Value::Null, &json!(1)));
    }
}

#[test]
fn resumed_run_drops_the_hand_over() {
    let cli = Cli::new();
    cli.write("a.txt", "the content");
    let server = playing([
        Turn::call("read_file", &json!({"path": "a.txt"})),
        Turn::text("Read a.txt."),
        Turn::text("All done."),
    ]);
    let args = ["Go.", "--tool", "read_file", "--max-turns", "1", "--wrap-up", "--journal", "j.db"];
    cli.agent(&server, "openai-chat", &args).exits(20);
    let resume = ["run", "--resume", "last", "--max-turns", "4", "--journal", "j.db"];
    let outcome = cli.run(resume.iter().chain(&["--trust-journal", "--json"])).exits(0).outcome();
    assert_eq!((&outcome["termination"], &outcome["turns"]), (&json!("stop"), &json!(2)));
    assert_eq!(outcome["model_calls"], 2);
    let requests = server.requests();
    assert!(!requests[2].body.to_string().contains("hand-over"));
}

#[test]
fn run_killed_in_hand_over_keeps_ending() {
    let cli = Cli::new();
    cli.write("a.txt", "the content");
    let server = answering(|request| match request.number {
        1 => Reply::turn(request, &Turn::call("read_file", &json!({"path": "a.txt"}))),
        2 => Reply::turn(request, &Turn::text("Read a.txt.")).after(Duration::from_secs(100)),
        _ => Reply::turn(request, &Turn::text("All done.")),
    });
    let args = ["Go.", "--tool", "read_file", "--max-turns", "1", "--wrap-up", "--journal", "j.db"];
    let mut started = Started::new(cli.command(agent_args(&server, "openai-chat", &args)), "");
    eventually("the hand-over", || server.requests().len() == 2);
    started.child.kill().unwrap();
    drop(started);
    let resume = ["run", "--resume", "last", "--journal", "j.db", "--trust-journal"];
    let resume = |more: &[&str]| cli.run(resume.iter().chain(more));
    resume(&[]).exits(20).outcome_is("error_max_turns");
    assert_eq!(server.requests().len(), 2);
    let runs = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines();
    assert_eq!((runs.len(), &runs[0]["termination"]), (1, &json!("error_max_turns")));
    // From now on it is a run like any other that reached its limit.
    resume(&[]).exits(2).notes(&["would end again at once"]);
    resume(&["--max-turns", "2"]).exits(0).outcome_is("stop");
}

#[test]
fn remaining_is_part_of_each_prompt() {
    for api in FORMATS {
        let cli = Cli::new();
        cli.write("a.txt", "the content");
        let server =
            playing([Turn::call("read_file", &json!({"path": "a.txt"})), Turn::text("Done.")]);
        let args = ["Go.", "--tool", "read_file", "--max-turns", "3", "--tell-remaining"];
        cli.agent(&server, api, &args).exits(0);
        let requests = server.requests();
        for (request, left) in requests.iter().zip([3, 2]) {
            let told = last_message(&request.body);
            assert!(told.contains(&format!("Left in this run: {left} of 3 turns.")), "{told}");
        }
        // The first request is the beginning of the second, so a cache of it stays valid.
        let list = |at: usize| {
            let body = &requests[at].body;
            body.get("messages").unwrap_or(&body["input"]).as_array().unwrap().clone()
        };
        let (first, second) = (list(0), list(1));
        assert!(second.starts_with(&first), "{second:?}");
    }
}
