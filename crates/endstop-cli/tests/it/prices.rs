//! Prices of models: `[prices]`, `endstop prices`, its update from a published list, and `--unknown-price`.

use crate::cli::{Cli, Done, Started, answering};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::Value;

const LIST: &str = r#"{"openai": {"id": "openai", "models": {
    "gpt-tomorrow": {"cost": {"input": 2, "output": 8, "cache_read": 0.2}},
    "gpt-4o": {"cost": {"input": 100, "output": 100}}}}}"#;

/// A folder whose `config` is the user's own.
fn home() -> Cli {
    let cli = Cli::new();
    std::fs::create_dir_all(cli.path("config/endstop")).unwrap();
    cli
}

fn own(cli: &Cli, args: &[&str]) -> Done {
    let mut command = cli.command(args);
    command.env("XDG_CONFIG_HOME", cli.path("config"));
    Started::new(command, "").finish()
}

/// A server that answers with a million prompt tokens and no output.
fn server() -> Server {
    answering(|request| Reply::turn(request, &Turn::text("done").usage(1_000_000, 0)))
}

/// The cost of a run, without that of the few tokens of its answer.
fn dollars(outcome: &Value) -> f64 {
    (outcome["cost_usd"].as_f64().unwrap() * 1000.0).round() / 1000.0
}

/// Guards one call to this model. Returns the outcome.
fn guarded(cli: &Cli, server: &Server, model: &str, options: &[&str]) -> Value {
    let script = "import json, os, sys, urllib.request as u
body = {'model': sys.argv[1], 'messages': [{'role': 'user', 'content': 'q'}], 'tools': [{'type': 'function', 'function': {'name': 'w', 'parameters': {}}}]}
try: u.urlopen(u.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', json.dumps(body).encode(), {'content-type': 'application/json'})).read()
except u.HTTPError as error: sys.exit(error.read().decode())";
    let before = ["--json", "guard", "--journal", "off", "--max-budget-usd", "500"];
    let args = [&before[..], options, &["--", "python3", "-c", script, model]].concat();
    let mut command = cli.command(args);
    command.env("XDG_CONFIG_HOME", cli.path("config")).env("OPENAI_BASE_URL", server.base_url());
    let done = Started::new(command, "").finish();
    serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap()
}

#[test]
fn first_of_flag_settings_file_and_catalogue_applies() {
    let (cli, server) = (home(), server());
    let cost = |model: &str, options: &[&str]| dollars(&guarded(&cli, &server, model, options));
    // The catalogue, and a model that it does not have.
    assert_eq!(cost("gpt-4o", &[]), 2.5);
    assert_eq!(guarded(&cli, &server, "gpt-tomorrow", &[])["decided_by"]["name"], "unknown_price");
    assert_eq!(cost("gpt-tomorrow", &["--unknown-price", "in=30,out=150"]), 30.0);
    cli.write("api.json", LIST);
    own(&cli, &["prices", "update", "--from", "api.json"])
        .exits(0)
        .notes(&["2 prices of models.dev"]);
    assert_eq!(cost("gpt-tomorrow", &[]), 2.0);
    assert_eq!(cost("gpt-tomorrow", &["--unknown-price", "in=30,out=150"]), 2.0);
    assert_eq!(cost("gpt-4o", &[]), 100.0);
    cli.write("config/endstop/config.toml", "[prices]\n\"openai/gpt-tomorrow\" = { in = 3, out = 9 }\n\"openai/gpt-4o\" = \"in=4,out=8\"\n");
    assert_eq!(cost("gpt-tomorrow", &[]), 3.0);
    assert_eq!(cost("gpt-4o", &[]), 4.0);
    assert_eq!(cost("gpt-4o", &["--price", "in=5,out=5"]), 5.0);
}

#[test]
fn run_has_the_price_of_its_model() {
    let (cli, server) = (home(), server());
    cli.write("config/endstop/config.toml", "[prices]\n\"acme/in-house\" = \"in=0.5,out=1\"\n");
    let url = server.base_url();
    let args = |model| {
        [
            "--json",
            "run",
            "Work.",
            "--journal",
            "off",
            "--api",
            "openai-chat",
            "--base-url",
            &url,
            "--max-budget-usd",
            "9",
            "--model",
            model,
        ]
    };
    let done = own(&cli, &args("acme/in-house")).exits(0);
    let outcome: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(dollars(&outcome), 0.5);
    own(&cli, &args("acme/other")).exits(2).notes(&["price"]);
    let more = [&args("acme/other")[..], &["--unknown-price", "in=2,out=2"]].concat();
    let done = own(&cli, &more).exits(0);
    let outcome: Value = serde_json::from_str(done.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(dollars(&outcome), 2.0);
    own(&cli, &[&args("acme/other")[..], &["--unknown-price", "in=-2,out=2"]].concat())
        .exits(2)
        .notes(&["--unknown-price: `in`: `-2` is not an amount"]);
}

#[test]
fn known_prices_are_listed_with_their_origin() {
    let cli = home();
    cli.write("api.json", LIST);
    own(&cli, &["prices", "update", "--from", "api.json"]).exits(0);
    cli.write("config/endstop/config.toml", "[prices]\n\"openai/gpt-4o\" = \"in=4,out=8\"\n");
    let listed = own(&cli, &["prices", "openai/gpt-4o"]).exits(0).stdout;
    let rows: Vec<&str> = listed.lines().collect();
    assert_eq!(rows.len(), 3, "{listed}");
    assert!(rows[0].contains("in=4,out=8") && rows[0].contains("config.toml"), "{listed}");
    assert!(rows[1].contains("in=100,out=100") && rows[1].contains("models.dev"), "{listed}");
    assert!(
        rows[2].contains("in=2.5,out=10")
            && rows[2].contains("2026-11-21, catalogue: openai/gpt-4o"),
        "{listed}"
    );
    let all = own(&cli, &["--json", "prices"]).exits(0).stdout;
    let all: Vec<Value> = serde_json::from_str(&all).unwrap();
    assert_eq!(all.len(), 3, "{all:#?}");
    own(&cli, &["prices", "openai/not-listed"]).exits(2).notes(&["no price is known"]);
}

#[test]
fn wrong_rows_name_file_and_row() {
    let cli = home();
    for (list, says) in [
        (LIST.replace("8,", "-8,"), "--from api.json: `openai/gpt-tomorrow`: `output`: `-8`"),
        (
            LIST.replace("\"output\": 8", "\"output\": NaN"),
            "--from api.json: expected value at line 2",
        ),
        (
            LIST.replace("openai\": {\"id", "x\": {}, \"x\": {\"id"),
            "--from api.json: `x` is there twice",
        ),
    ] {
        cli.write("api.json", list);
        own(&cli, &["prices", "update", "--from", "api.json"]).exits(2).notes(&[says]);
        assert!(!cli.path("config/endstop/prices.json").exists());
    }
    let settings = "config/endstop/config.toml";
    for (row, says) in [
        (
            "\"openai/x\" = { in = nan, out = 1 }",
            "config.toml: `prices`: `openai/x`: `in`: expected a finite number, found NaN",
        ),
        (
            "\"openai/x\" = { in = -1, out = 1 }",
            "config.toml: line 2: [prices]: `openai/x`: price: `in`: `-1`",
        ),
        ("\"openai/x\" = \"in=1,out=1\"\n\"openai/x\" = \"in=2,out=2\"", "config.toml"),
        ("\"openai/x\" = \"in=1,out=1\"\n\"OpenAI/x\" = \"in=2,out=2\"", "is the same model"),
    ] {
        cli.write(settings, format!("[prices]\n{row}\n"));
        own(&cli, &["prices"]).exits(2).notes(&[says]);
    }
}

#[test]
fn prices_of_a_repository_need_consent() {
    let cli = home();
    cli.write("endstop.toml", "[prices]\n\"openai/gpt-4o\" = \"in=0,out=0\"\n");
    own(&cli, &["guard", "--max-budget-usd", "1", "--", "true"]).exits(2).notes(&[
        "`prices.openai/gpt-4o`",
        "your consent",
        "endstop trust",
    ]);
}
