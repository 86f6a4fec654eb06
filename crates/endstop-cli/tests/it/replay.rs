//! `endstop run --replay`: the same outcome without a server or a key, differences are reported,
//! and files that are not recordings are refused.

use crate::cli::{Cli, Done, Started, agent_args, answering, playing};
use crate::record::{RECORDED, lines};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};
use std::time::Duration;

/// Runs the binary without any key.
fn keyless(cli: &Cli, args: &[&str]) -> Done {
    let mut command = cli.command(args);
    command.env_remove("OPENAI_API_KEY").env_remove("ANTHROPIC_API_KEY");
    Started::new(command, "").finish()
}

/// Returns an outcome without its times.
fn timeless(mut outcome: Value) -> Value {
    // A replay is a run of its own.
    for own in ["duration_ms", "run_id"] {
        outcome.as_object_mut().unwrap().remove(own).unwrap();
    }
    outcome
}

/// Records and replays a run: outcomes and exit statuses are equal, without warnings.
#[track_caller]
fn same_again(
    cli: &Cli,
    server: Server,
    api: &str,
    task: &str,
    flags: &[&str],
    record: &[&str],
) -> Value {
    let recorded = [&[task, "--record", "r.jsonl", "--json"], flags, record].concat();
    let first = cli.agent(&server, api, &recorded);
    let asked = server.requests().len();
    drop(server);
    let replay = [&["run", "--replay", "r.jsonl", "--json"], flags].concat();
    let second = keyless(cli, &replay).exits(first.code());
    let outcome = timeless(first.outcome());
    assert_eq!(timeless(second.outcome()), outcome, "{api}");
    assert!(second.lines().iter().all(|line| line["type"] != "warning"), "{second:#?}");
    assert_eq!(lines(cli, "r.jsonl").len(), asked + 2);
    std::fs::remove_file(cli.path("r.jsonl")).unwrap();
    outcome
}

#[test]
fn replay_ends_like_recorded_run() {
    for api in RECORDED {
        for more in [&[][..], &["--no-stream"]] {
            let cli = Cli::new();
            cli.write("note.txt", "It is 42.");
            let server = playing([
                Turn::error(503, r#"{"error": {"message": "overloaded"}}"#)
                    .header("retry-after", "0"),
                Turn::call("read_file", &json!({"path": "note.txt"}))
                    .reasoning("Where?")
                    .usage(900, 30),
                Turn::text("It is 42.").usage(1_000, 7),
            ]);
            // The price comes from the recording.
            let record = [&["--price", "in=3,out=15"], more].concat();
            let flags = ["--tool", "read_file", "--max-budget-usd", "1"];
            let outcome = same_again(&cli, server, api, "What is it?", &flags, &record);
            assert_eq!(outcome["termination"], "stop", "{outcome}");
            assert_eq!((&outcome["model_calls"], &outcome["tool_calls"]), (&json!(3), &json!(1)));
            assert!(outcome["cost_usd"].as_f64().unwrap() > 0.0, "{outcome}");
        }
    }
}

/// The number of attempts follows from the waits, which are drawn from the seed of the recording.
#[test]
fn used_up_retries_are_replayed() {
    for _ in 0..3 {
        let cli = Cli::new();
        let overloaded = || Turn::error(503, r#"{"error": {"message": "overloaded"}}"#);
        let server = playing(std::iter::repeat_with(overloaded).take(20).collect::<Vec<_>>());
        let outcome = same_again(&cli, server, "openai-chat", "Hi.", &["--retry-for", "3s"], &[]);
        assert_eq!(outcome["termination"], "error_during_execution");
        assert!(outcome["model_calls"].as_u64() > Some(2), "{outcome}");
    }
}

/// Returns a number of bytes into a stream after which its text has started.
fn midst(api: &str) -> usize {
    if matches!(api, "openai-responses" | "bedrock-invoke") { 2_200 } else { 900 }
}

#[test]
fn broken_stream_is_replayed() {
    for api in RECORDED {
        let cli = Cli::new();
        let turn =
            Turn::text("an answer of several words, and of several more, that is never whole");
        let server = answering(move |request| {
            let reply = Reply::turn(request, &turn);
            if request.number == 1 {
                reply.cut_after(midst(api))
            } else {
                reply.reset_after(midst(api))
            }
        });
        let outcome = same_again(&cli, server, api, "Hello.", &["--max-retries", "1"], &[]);
        assert_eq!(outcome["termination"], "error_during_execution");
        assert!(outcome["last_text"].as_str().unwrap().starts_with("an answer"), "{outcome}");
    }
}

#[test]
fn policy_abort_is_replayed() {
    for api in RECORDED {
        let cli = Cli::new();
        let turn =
            Turn::text("So it is FINAL(\"42\") and I could go on for ever and ever and ever.");
        let server = answering(move |request| {
            Reply::turn(request, &turn.clone().pace(Duration::from_millis(1)))
                .stall_after(2 * midst(api))
        });
        let outcome = same_again(&cli, server, api, "What?", &["--policy", "final_pattern"], &[]);
        assert_eq!(
            (&outcome["termination"], &outcome["deliverable"]),
            (&json!("submitted"), &json!("42"))
        );
    }
}

#[test]
fn stall_is_replayed() {
    let cli = Cli::new();
    let turn =
        Turn::text("an answer that stops in its midst and says no more of what it had to say");
    let server = answering(move |request| Reply::turn(request, &turn).stall_after(900));
    let flags = ["--stall-timeout", "300ms", "--max-retries", "0"];
    let recorded = [&["Hello.", "--record", "r.jsonl", "--json"][..], &flags].concat();
    let first = cli.agent(&server, "openai-chat", &recorded).exits(10);
    let replay = [&["run", "--replay", "r.jsonl", "--json"][..], &flags].concat();
    let second =
        keyless(&cli, &replay).exits(10).notes(&["stopped reading exchange 1", "until a limit"]);
    assert_eq!(timeless(second.outcome())["last_text"], first.outcome()["last_text"]);
    assert_eq!(second.outcome()["decided_by"]["name"], first.outcome()["decided_by"]["name"]);
}

#[cfg(target_os = "linux")]
#[test]
fn cancellation_is_replayed() {
    use rustix::process::{Pid, Signal, kill_process};
    for api in RECORDED {
        let cli = Cli::new();
        let server = answering(|request| {
            let words = Turn::text("word ".repeat(10_000)).pace(Duration::from_millis(20));
            Reply::turn(request, &words)
        });
        let args = agent_args(&server, api, &["Talk.", "--record", "r.jsonl", "--json"]);
        let run = Started::new(cli.command(args), "");
        crate::cli::eventually("some words", || run.stdout().matches("word").count() > 3);
        kill_process(Pid::from_child(&run.child), Signal::INT).unwrap();
        let first = run.finish().exits(130);
        drop(server);
        let lines = lines(&cli, "r.jsonl");
        assert_eq!(
            (&lines[1]["ended"], &lines[2]["termination"]),
            (&json!("aborted"), &json!("cancelled"))
        );
        let second = keyless(&cli, &["run", "--replay", "r.jsonl", "--json"]).exits(130);
        let outcome = timeless(second.outcome());
        assert_eq!(outcome, timeless(first.outcome()), "{api}");
        assert!(outcome["last_text"].as_str().unwrap().contains("word"));
        second.notes(&["the recorded run was cancelled at this point"]);
    }
}

/// Records a run with one tool call.
fn recorded(cli: &Cli) {
    cli.write("a.txt", "a");
    let server =
        playing([Turn::call("read_file", &json!({"path": "a.txt"})), Turn::text("It is a.")]);
    let args = ["Read.", "--tool", "read_file", "--record", "r.jsonl"];
    cli.agent(&server, "openai-chat", &args).exits(0);
}

fn warnings(done: &Done) -> Vec<Value> {
    done.lines().into_iter().filter(|line| line["type"] == "warning").collect()
}

#[test]
fn differences_are_reported_with_place() {
    let cli = Cli::new();
    recorded(&cli);
    let base = [
        "run",
        "--replay",
        "r.jsonl",
        "--json",
        "--events",
        "e.jsonl",
        "--overwrite",
        "--tool",
        "read_file",
    ];
    for (more, path, says) in [
        (&["Write."][..], "$.messages[0].content", "it was \"Read.\", and is \"Write.\""),
        (&["--system", "Be brief."], "$.messages[0].role", "it was \"user\", and is \"system\""),
        (&["--no-stream"], "$.stream", "it was true, and is nothing"),
        (&["--max-output-tokens", "99"], "$.max_tokens", "it was nothing, and is 99"),
        (&["--tool", "shell"], "$.tools[1].function.name", "it was \"finish\", and is \"shell\""),
    ] {
        let done = keyless(&cli, &[&base[..], more].concat()).exits(2);
        let told = warnings(&done);
        // A change is reported once, although each later request contains it.
        assert_eq!(told.len(), 1, "{more:?}: {told:#?}");
        assert_eq!((&told[0]["exchange"], &told[0]["path"]), (&json!(1), &json!(path)), "{more:?}");
        let message = told[0]["message"].as_str().unwrap();
        assert!(message.contains(path) && message.contains(says), "{message}");
        let outcome = done.outcome();
        assert_eq!(outcome["termination"], "stop");
        assert_eq!(
            (&outcome["diverged"]["exchange"], &outcome["diverged"]["path"]),
            (&json!(1), &json!(path))
        );
        let accepted = keyless(&cli, &[&base[..], more, &["--accept-divergence"]].concat());
        assert_eq!(accepted.exits(0).outcome()["diverged"], outcome["diverged"]);
        assert!(cli.read("e.jsonl").contains("\"type\":\"warning\""));
        let explained = cli.run(["explain", "e.jsonl"]).exits(0);
        assert!(explained.stdout.contains("differs from the recorded one"), "{explained:#?}");
        assert!(explained.stdout.contains("\n  replay   DIVERGED: "), "{explained:#?}");
        assert!(
            explained.stdout.contains("\n  next     give the task, the tools"),
            "{explained:#?}"
        );
        done.notes(&["differs from the recorded one"]);
    }
    // Tools run for real, so a different result is reported.
    cli.write("a.txt", "b");
    let told = warnings(&keyless(&cli, &base));
    assert_eq!((&told[0]["exchange"], told.len()), (&json!(2), 1));
    assert_eq!(told[0]["path"], "$.messages[2].content");
}

#[test]
fn missing_and_extra_calls_are_reported() {
    let cli = Cli::new();
    recorded(&cli);
    let base = ["run", "--replay", "r.jsonl", "--tool", "read_file", "--json"];
    let done = keyless(&cli, &[&base[..], &["--max-turns", "1"]].concat()).exits(2);
    let told: Vec<String> =
        warnings(&done).iter().map(|told| told["message"].as_str().unwrap().to_owned()).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].contains("asked for 1 of the recording's 2 exchanges"), "{told:?}");
    assert!(told[1].contains("ended as stop, and this one as error_max_turns"), "{told:?}");
    // With the recorded end, an additional call is a divergence; without it, the recording has
    // ended.
    let text = cli.read("r.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    let short = format!("{}\n{}\n{}\n", lines[0], lines[1], lines[3]);
    cli.write("short.jsonl", short);
    let longer = ["run", "--replay", "short.jsonl", "--tool", "read_file"];
    keyless(&cli, &longer).exits(2).notes(&["  replay   DIVERGED: ", "--accept-divergence"]);
    // Without its last exchange.
    let kept: String =
        cli.read("r.jsonl").lines().take(2).map(|line| format!("{line}\n")).collect();
    cli.write("r.jsonl", kept);
    let outcome = keyless(&cli, &base).exits(10).outcome();
    assert_eq!(outcome["termination"], "error_during_execution");
    let evidence = outcome["decided_by"]["evidence"].as_str().unwrap();
    assert!(
        evidence.contains("the recording has 1 exchange, and the run asks for one more"),
        "{evidence}"
    );
    assert_eq!(outcome["model_calls"], 2, "it is not tried again: {outcome}");
}

#[test]
fn partial_last_line_is_reported() {
    let cli = Cli::new();
    recorded(&cli);
    let text = cli.read("r.jsonl");
    cli.write("r.jsonl", &text[..text.len() - 20]);
    let base = ["run", "--replay", "r.jsonl", "--tool", "read_file"];
    keyless(&cli, &base).exits(0).notes(&["r.jsonl: line 4: it is torn", "stopped: stop"]);
}

#[test]
fn file_without_recording_is_refused() {
    let cli = Cli::new();
    recorded(&cli);
    let text = cli.read("r.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    let with = |at: usize, key: &str, value: Value| {
        let mut changed: Value = serde_json::from_str(lines[at]).unwrap();
        match value {
            Value::Null => drop(changed.as_object_mut().unwrap().remove(key)),
            value => changed[key] = value,
        }
        let mut all: Vec<String> = lines.iter().map(|line| (*line).to_owned()).collect();
        all[at] = changed.to_string();
        all.join("\n") + "\n"
    };
    let wrote = "a file that `endstop run --record` wrote";
    for (content, says) in [
        (String::new(), vec!["bad.jsonl: it is empty", wrote]),
        ("\n\n".to_owned(), vec!["bad.jsonl: it is empty"]),
        ("hello\n".to_owned(), vec!["bad.jsonl: line 1: not valid JSON"]),
        (lines[0][..50].to_owned(), vec!["line 1: it is torn", wrote]),
        (lines[1].to_owned() + "\n", vec!["line 1: ", "`type`", wrote]),
        (
            format!("{}\n{}\n{}\n", lines[0], &lines[1][..80], lines[2]),
            vec!["line 2: not valid JSON"],
        ),
        (with(0, "version", json!(2)), vec!["line 1: ", "unsupported `version` `2`", "expected 1"]),
        (with(0, "version", Value::Null), vec!["line 1: ", "`version`"]),
        (with(0, "model", Value::Null), vec!["line 1: ", "missing field `model`"]),
        (with(0, "api", json!("telegraph")), vec!["line 1: ", "`api`", "`telegraph`"]),
        (with(0, "api", json!("cohere-v1")), vec!["line 1: ", "`api`", "decoded"]),
        (with(0, "provider", json!("acme")), vec!["line 1: ", "`provider`", "`acme`"]),
        (with(0, "url", json!("nowhere")), vec!["line 1: ", "`url`"]),
        (with(0, "price", json!({"input": -1})), vec!["line 1: ", "`price.input`"]),
        (with(1, "type", json!("exchanges")), vec!["line 2: ", "`type`"]),
        (with(1, "body", Value::Null), vec!["line 2: ", "missing field `body`"]),
        (with(1, "status", Value::Null), vec!["line 2: ", "missing field `status`"]),
        (with(1, "status", json!("ok")), vec!["line 2: ", "`status`"]),
        (with(1, "request", Value::Null), vec!["line 2: ", "missing field `request`"]),
        (with(1, "headers", json!({"age": 5})), vec!["line 2: ", "`headers.age`"]),
        (with(1, "body_encoding", json!("rot13")), vec!["line 2: ", "`body_encoding`", "base64"]),
        (with(1, "body_encoding", json!("base64")), vec!["line 2: ", "`body`"]),
        (with(1, "ended", json!("well")), vec!["line 2: ", "`ended`", "clean"]),
        (with(1, "ended", json!("failed")), vec!["line 2: ", "`error` is missing"]),
        (with(1, "status", json!(0)), vec!["line 2: ", "invalid `status` `0`"]),
        (with(3, "termination", json!("fin")), vec!["line 4: ", "`termination`"]),
    ] {
        cli.write("bad.jsonl", &content);
        let args = ["run", "Hi.", "--replay", "bad.jsonl", "--json"];
        let done = keyless(&cli, &args).exits(2).notes(&says).notes(&["--replay bad.jsonl"]);
        assert_eq!(done.lines().len(), 1, "{done:#?}");
    }
    keyless(&cli, &["run", "Hi.", "--replay", "absent"])
        .exits(2)
        .notes(&["--replay absent: No such file"]);
    keyless(&cli, &["run", "Hi.", "--replay", "."]).exits(2).notes(&["--replay .: ", "directory"]);
    for flag in ["--model", "--api", "--base-url", "--record"] {
        let done = keyless(&cli, &["run", "Hi.", "--replay", "r.jsonl", flag, "x"]).exits(2);
        done.notes(&[flag, "cannot be combined with --replay"]);
    }
}

#[test]
fn events_file_cannot_be_the_recording() {
    let cli = Cli::new();
    recorded(&cli);
    let before = cli.read("r.jsonl");
    for flag in ["--replay", "--record"] {
        let args = ["run", "Hi.", "--model", "openai/x", flag, "r.jsonl", "--events", "./r.jsonl"];
        cli.run(args).exits(2).notes(&["--events ./r.jsonl", flag, "overwritten"]);
    }
    assert_eq!(cli.read("r.jsonl"), before);
}

#[test]
fn model_settings_do_not_change_replay() {
    let cli = Cli::new();
    recorded(&cli);
    cli.write(
        "settings.toml",
        "model = \"openai/x\"\nprice = \"in=1,out=1\"\ntools = [\"read_file\"]\n",
    );
    let outcome =
        keyless(&cli, &["run", "--replay", "r.jsonl", "--json", "--config", "settings.toml"])
            .exits(0)
            .outcome();
    assert_eq!((&outcome["model"], &outcome["cost_unknown"]), (&json!("script"), &json!(true)));
    let priced =
        ["run", "--replay", "r.jsonl", "--json", "--price", "in=1,out=1", "--tool", "read_file"];
    assert_eq!(keyless(&cli, &priced).exits(0).outcome()["cost_unknown"], false);
}
