//! Parameters of requests: flags, the table `[params]`, and what is refused before a request.

use crate::cli::{Cli, playing};
use endstop::testkit::Turn;
use serde_json::json;

#[test]
fn flags_and_table_reach_the_request() {
    let cli = Cli::new();
    let server = playing([Turn::text("fine")]);
    cli.write(
        "own.toml",
        "[params]\ntemperature = 0.25\ntop_p = 0.5\nheaders = { \"X-Team\" = \"hush-hush-4711\" }\n",
    );
    let flags = [
        "Say it.",
        "--config",
        "own.toml",
        "--temperature",
        "0.75",
        "--stop",
        "END",
        "--seed",
        "7",
        "--effort",
        "low",
        "--param",
        "logit_bias={\"1\": 2}",
        "--header",
        "X-Other: 12",
        "--json",
    ];
    let done = cli.agent(&server, "openai-chat", &flags).exits(0);
    let request = server.requests().remove(0);
    let body = &request.body;
    assert_eq!((&body["temperature"], &body["top_p"]), (&json!(0.75), &json!(0.5)));
    assert_eq!((&body["stop"], &body["seed"]), (&json!(["END"]), &json!(7)));
    assert_eq!(body["reasoning_effort"], "low");
    assert_eq!(body["logit_bias"], json!({"1": 2}));
    assert_eq!(request.headers["x-team"], "hush-hush-4711");
    assert_eq!(request.headers["x-other"], "12");
    assert!(!done.stdout.contains("hush") && !done.stderr.contains("hush"), "{}", done.stderr);
    let shown = cli.run(["config", "show", "--json", "--config", "own.toml"]).exits(0);
    assert!(shown.stdout.contains("params.temperature"), "{}", shown.stdout);
    assert!(shown.stdout.contains("x-team") && !shown.stdout.contains("hush"), "{}", shown.stdout);
}

#[test]
fn unsupported_parameter_is_a_usage_error() {
    let cli = Cli::new();
    let server = playing([Turn::text("never")]);
    for (api, flags, expected) in [
        ("anthropic-messages", &["--seed", "1"][..], "`seed` is not a parameter of anthropic"),
        ("openai-chat", &["--tool-choice", "fly"], "the agent has no tools"),
        ("openai-chat", &["--thinking", "2000"], "use `effort`"),
        ("openai-chat", &["--param", "max_tokens=9"], "set `max_output_tokens` instead"),
        ("openai-chat", &["--param", "x"], "expected KEY=JSON"),
        ("openai-chat", &["--header", "hush-hush"], "expected NAME: VALUE"),
        ("openai-chat", &["--header", "a b: hush-hush"], "expected a header name"),
        ("openai-chat", &["--header", "x-key: $ENDSTOP_NO_SUCH_VARIABLE"], "is not set"),
    ] {
        let args = [&["Go."], flags].concat();
        let done = cli.agent(&server, api, &args).exits(2);
        assert!(done.stderr.contains(expected), "{flags:?}: {}", done.stderr);
        assert!(!done.stderr.contains("hush-hush"), "{}", done.stderr);
    }
    assert!(server.requests().is_empty());
}

#[test]
fn parameters_of_a_folder_need_consent() {
    let cli = Cli::new();
    let server = playing([Turn::text("fine")]);
    cli.write(
        "endstop.toml",
        "[params]\ntemperature = 0.25\nheaders = { \"X-Team\" = \"hush-hush-4711\" }\n",
    );
    let done = cli.agent(&server, "openai-chat", &["Go."]).exits(2);
    assert!(done.stderr.contains("`params.headers`, `params.temperature`"), "{}", done.stderr);
    assert!(done.stderr.contains("--header, --temperature"), "{}", done.stderr);
    assert!(!done.stderr.contains("hush"), "{}", done.stderr);
    assert!(server.requests().is_empty());
    let flags = ["Go.", "--temperature", "0.5", "--header", "x-team: mine"];
    cli.agent(&server, "openai-chat", &flags).exits(0);
    let request = server.requests().remove(0);
    assert_eq!(request.body["temperature"], 0.5);
    assert_eq!(request.headers["x-team"], "mine");
}
