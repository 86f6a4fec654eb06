//! `--background`: calls that the run does not wait for.

use crate::cli::{Cli, answering, playing};
use endstop::testkit::{Reply, Turn};
use serde_json::json;

#[test]
fn open_call_is_stopped_and_reported() {
    let cli = Cli::new();
    let server = || {
        playing([
            Turn::call("shell", &json!({"command": "sleep 600"})),
            Turn::call("finish", &json!({"deliverable": "42"})),
        ])
    };
    let args = ["Go.", "--tool", "shell", "--background", "shell", "--journal", "j.db"];
    let done = cli.agent(&server(), "openai-chat", &args).exits(0);
    let row = "stopped  background call h1 (`shell`) was still running";
    assert!(done.stderr.contains(row), "{}", done.stderr);
    let explained = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
    assert!(explained.contains(row), "{explained}");
    let json = cli.agent(&server(), "openai-chat", &[&args[..], &["--json"]].concat()).exits(0);
    let outcome = json.lines().pop().unwrap();
    let work = json!([{"handle": "h1", "call_id": "call_1", "name": "shell"}]);
    assert_eq!(outcome["background"], work, "{outcome}");
}

#[test]
fn result_reaches_the_model_later() {
    let cli = Cli::new();
    cli.write("endstop.toml", "");
    cli.write("run.toml", "tools = [\"shell\"]\nbackground = [\"shell\"]\n");
    let server = answering(|request| {
        let text = request.body.to_string();
        let turn = match (text.contains("Background call h1"), text.contains("handle h1")) {
            (true, _) => Turn::text("It printed 42."),
            (false, true) => Turn::text("It works."),
            (false, false) => Turn::call("shell", &json!({"command": "echo 42"})),
        };
        Reply::turn(request, &turn)
    });
    let args = ["Go.", "--config", "run.toml", "--journal", "j.db"];
    let done = cli.agent(&server, "anthropic-messages", &args).exits(0);
    assert!(done.stdout.contains("It printed 42."), "{}", done.stdout);
    let unknown = cli.agent(&server, "openai-chat", &["Go.", "--background", "shel"]).exits(2);
    assert!(unknown.stderr.contains("unknown tool `shel` in `background`"), "{}", unknown.stderr);
}
