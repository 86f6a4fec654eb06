//! A person is notified of runs, by `--notify` and `[notify]`: at thresholds, when they are parked and when they end.
//! Nothing delays a run.

use crate::cli::{Cli, Started, answering, eventually};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Command;
use std::time::{Duration, Instant};

/// A server that collects what it gets, and answers with this status.
fn webhook(status: u16) -> Server {
    answering(move |_| Reply::new(status, "text/plain", "ok"))
}

fn texts(webhook: &Server) -> Vec<String> {
    let requests = webhook.requests();
    let text = |body: &Value| {
        assert_eq!(body.as_object().unwrap().len(), 1, "{body}");
        body["text"].as_str().unwrap().to_owned()
    };
    requests.iter().map(|request| text(&request.body)).collect()
}

/// A model that calls a tool until it has answered this often. Each turn is 100 tokens and more.
fn working(turns: u64) -> Server {
    answering(move |request| {
        let call = Turn::call("read_file", &json!({"path": format!("f{}", request.number)}));
        let turn = if request.number < turns { call } else { Turn::text("done") };
        Reply::turn(request, &turn)
    })
}

fn configured(webhook: &Server, more: &str) -> Cli {
    at(&webhook.base_url(), more)
}

fn at(base: &str, more: &str) -> Cli {
    let cli = Cli::new();
    let url = format!("{base}/T0/B1");
    cli.write("notify.toml", format!("[notify]\nwebhook = \"{url}\"\n{more}"));
    cli
}

/// The arguments of `run` with the file and these limits.
fn agent(server: &Server, limits: &[&str]) -> Vec<String> {
    let url = server.base_url();
    let mut args =
        vec!["run", "Work.", "--model", "scripted", "--api", "openai-chat", "--base-url", &url];
    args.extend(["--tool", "read_file", "--config", "notify.toml", "--journal", "off", "--json"]);
    args.extend([
        "--watch",
        "off",
        "--max-unproductive-turns",
        "off",
        "--max-consecutive-mistakes",
        "off",
    ]);
    args.extend(limits);
    args.into_iter().map(str::to_owned).collect()
}

#[test]
fn thresholds_and_endings_are_reported_once() {
    let hook = webhook(200);
    let cli = configured(&hook, "command = \"cat >> notices\"");
    let server = working(40);
    cli.run(agent(&server, &["--max-turns", "20"])).exits(20);
    let texts = texts(&hook);
    let expected = [
        "has used 80 % of max_turns: 16 of 20",
        "has used 95 % of max_turns: 19 of 20",
        "has ended: error_max_turns (capacity)",
    ];
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.starts_with("endstop: run ") && text.contains(expected), "{text}");
    }
    let notices = cli.read("notices");
    let kinds: Vec<Value> =
        notices.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = kinds.iter().map(|notice| notice["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["limit_near", "limit_near", "run_ended"], "{notices}");
}

#[test]
fn thresholds_of_the_file_replace_the_default() {
    let hook = webhook(200);
    let cli = configured(&hook, "thresholds = [50]");
    let server = working(9);
    cli.run(agent(&server, &["--max-turns", "10"])).exits(0);
    let texts = texts(&hook);
    assert_eq!(texts.len(), 2, "{texts:#?}");
    assert!(texts[0].contains("has used 50 % of max_turns: 5 of 10"), "{texts:#?}");
    assert!(texts[1].contains("has ended: stop (success)"), "{texts:#?}");
    // More than all of a limit is never reached.
    cli.write("notify.toml", "[notify]\ncommand = \"true\"\nthresholds = [80, 150]");
    cli.run(agent(&working(1), &[]))
        .exits(2)
        .notes(&["notify.toml: line 3: [notify]: `thresholds`: `150`"]);
}

#[test]
fn time_is_a_threshold_while_a_call_waits() {
    let hook = webhook(200);
    let cli = configured(&hook, "");
    let server =
        answering(|request| Reply::turn(request, &Turn::text("a long answer")).stall_after(20));
    cli.run(agent(&server, &["--timeout", "2s"])).exits(20);
    let texts = texts(&hook);
    assert!(texts[0].contains("has used 80 % of timeout"), "{texts:#?}");
    assert!(texts.last().unwrap().contains("has ended: error_timeout"), "{texts:#?}");
}

/// A webhook that fails delays no run, and is noted.
#[test]
fn webhook_that_fails_delays_no_run() {
    let fails = webhook(500);
    let elsewhere = webhook(200);
    let url = elsewhere.base_url();
    let moves = answering(move |_| Reply::new(307, "text/plain", "").header("location", &url));
    // Connections are accepted by the system, and nothing answers them.
    let hangs = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = format!("http://{}", hangs.local_addr().unwrap());
    for (base, says) in [
        (fails.base_url(), "answered with status 500"),
        (moves.base_url(), "answered with status 307: redirects are not followed"),
        (hanging, "did not answer within 5 s"),
    ] {
        let (cli, server) = (at(&base, ""), working(20));
        let began = Instant::now();
        let started = Started::new(cli.command(agent(&server, &["--max-turns", "20"])), "");
        // The last line is the outcome, which does not wait.
        eventually("the outcome", || started.stdout().contains("\"termination\""));
        let ended = began.elapsed();
        let done = started.finish();
        let waited = began.elapsed() - ended;
        assert!(waited < Duration::from_secs(15), "{waited:?}");
        done.exits(0).notes(&[says]);
    }
    assert!(elsewhere.requests().is_empty());
}

#[test]
fn address_and_secrets_are_not_shown() {
    let hook = webhook(404);
    let cli = Cli::new();
    cli.write("notify.toml", "[notify]\nwebhook = \"$HOOK\"");
    let url = format!("{}/T0/very-secret-path", hook.base_url());
    let server = working(1);
    let mut command = cli.command(agent(&server, &[]));
    command.env("HOOK", &url);
    let done = Started::new(command, "").finish().exits(0).notes(&["answered with status 404"]);
    assert!(!done.stderr.contains("very-secret-path"), "{done:#?}");
    // Without the variable nothing starts.
    cli.run(agent(&server, &[])).exits(2).notes(&["[notify]: `webhook`", "HOOK"]);
}

/// A repository must not choose who hears of the runs of those who clone it.
#[test]
fn table_of_a_repository_needs_consent() {
    let cli = Cli::new();
    for line in ["command = \"touch stolen\"", "webhook = \"https://collect.example/x\""] {
        cli.write("endstop.toml", format!("[notify]\n{line}"));
        let mut args = agent(&working(1), &[]);
        args.retain(|arg| !["--config", "notify.toml"].contains(&arg.as_str()));
        cli.run(args).exits(2).notes(&["your consent", "endstop trust", "--notify"]);
    }
    assert!(!cli.path("stolen").exists());
}

/// A guarded program, and two of them at once with one webhook.
#[test]
fn guarded_runs_are_reported() {
    let hook = webhook(200);
    let server = answering(|request| Reply::turn(request, &Turn::text("text")));
    let script = "import json, os, urllib.request as u
for n in range(10):
    messages = [{'role': 'user', 'content': 'q'}, {'role': 'assistant', 'content': 'a'}] * n + [{'role': 'user', 'content': 'q'}]
    body = {'model': 'gpt-4o', 'messages': messages, 'tools': [{'type': 'function', 'function': {'name': 'w', 'parameters': {}}}]}
    u.urlopen(u.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', json.dumps(body).encode(), {'content-type': 'application/json'})).read()";
    let cli = configured(&hook, "");
    let start = |name: &str| {
        let args = [
            "guard",
            "--max-turns",
            "10",
            "--config",
            "notify.toml",
            "--journal",
            "off",
            "--name",
            name,
            "--",
            "python3",
            "-c",
            script,
        ];
        let mut command: Command = cli.command(args);
        command.env("OPENAI_BASE_URL", server.base_url());
        Started::new(command, "")
    };
    for started in ["one", "two"].map(start) {
        started.finish().exits(0);
    }
    let texts = texts(&hook);
    for name in ["one", "two"] {
        let own: Vec<&String> =
            texts.iter().filter(|text| text.contains(&format!("run {name} "))).collect();
        assert_eq!(own.len(), 3, "{texts:#?}");
        assert!(own[0].contains("80 % of max_turns: 8 of 10"), "{own:#?}");
        assert!(own[1].contains("95 % of max_turns: 10 of 10"), "{own:#?}");
        assert!(own[2].contains("has ended: stop (success)"), "{own:#?}");
    }
}

/// One message for each threshold and ending, however many runs there are at a time.
#[test]
fn each_served_run_is_reported() {
    let many = std::env::var("ENDSTOP_NOTIFIED").ok();
    let runs = many.map_or(60, |runs| runs.parse().unwrap());
    let hook = webhook(200);
    let model = answering(|request| {
        let calls = request.body["messages"].as_array().unwrap().len() / 2;
        let turn = if calls < 4 {
            Turn::call("read_file", &json!({"path": format!("f{calls}")}))
        } else {
            Turn::text("done")
        };
        Reply::turn(request, &turn)
    });
    let cli = Cli::new();
    for n in 0..4 {
        cli.write(&format!("f{n}"), format!("text {n}"));
    }
    let (url, base) = (format!("{}/hook", hook.base_url()), model.base_url());
    cli.write("serve.toml", format!(
        "[notify]\nwebhook = \"{url}\"\n[agents.a]\nmodel = \"scripted\"\napi = \"openai-chat\"\nbase_url = \"{base}\"\ntools = [\"read_file\"]\n[agents.a.limits]\nmax_turns = 5\n"
    ));
    let args = [
        "--json",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--config",
        "serve.toml",
        "--journal",
        "j.db",
    ];
    let mut started = Started::new(cli.command(args), "");
    eventually("the address", || started.stdout().contains("listening"));
    let line: Value = serde_json::from_str(started.stdout().lines().next().unwrap()).unwrap();
    let address = line["address"].as_str().unwrap().to_owned();
    let headers = format!("host: {address}\r\ncontent-type: application/json\r\n");
    for _ in 0..runs {
        let body = json!({"agent": "a", "task": "work"}).to_string();
        let (status, answer) = crate::cli::ask(&address, "POST /v1/runs", &headers, &body);
        assert!((200..300).contains(&status), "{status} {answer}");
    }
    let count =
        |texts: &[String], part: &str| texts.iter().filter(|text| text.contains(part)).count();
    eventually("all endings", || count(&texts(&hook), "has ended") == runs);
    let all = texts(&hook);
    let mut by_run: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for text in &all {
        by_run.entry(text.split_whitespace().nth(2).unwrap()).or_default().push(text);
    }
    assert_eq!(by_run.len(), runs);
    for (run, texts) in by_run {
        // The fourth of five turns, and the fifth.
        let counts = ["80 % of max_turns", "95 % of max_turns", "has ended: stop"]
            .map(|part| texts.iter().filter(|text| text.contains(part)).count());
        assert_eq!((counts, texts.len()), ([1, 1, 1], 3), "{run}: {texts:#?}");
    }
    started.child.kill().unwrap();
    started.child.wait().unwrap();
}
