//! What programs read, against the schemas in the book. An output may not have a key that its schema lacks, so a
//! new field is a new line there.

use crate::cli::{Cli, Started, agent_args, answering, eventually};
use endstop::testkit::{Reply, Server, Turn};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/src/schemas")
}

/// The schemas, of which each must describe an output of these tests.
struct Schemas {
    all: Map<String, Value>,
    unused: BTreeSet<String>,
}

impl Schemas {
    fn read() -> Schemas {
        let mut all = Map::new();
        for file in std::fs::read_dir(folder()).unwrap() {
            let path = file.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let mut schema: Value = serde_json::from_str(&text).unwrap();
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            assert_eq!(schema["$id"], format!("{name}.json"));
            close(&mut schema);
            all.insert(name, schema);
        }
        let unused = all.keys().cloned().collect();
        Schemas { all, unused }
    }

    /// Asserts that each line is valid, and returns the lines.
    fn check(&mut self, name: &str, text: &str) -> Vec<Value> {
        let id = self.all[name]["$id"].clone();
        let bundle = json!({"$ref": id, "$defs": self.all});
        let validator = jsonschema::validator_for(&bundle).unwrap();
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!lines.is_empty(), "no output for {name}");
        for line in &lines {
            let problems: Vec<String> = validator
                .iter_errors(line)
                .map(|error| format!("{}: {error}", error.instance_path()))
                .collect();
            assert!(problems.is_empty(), "{name}: {}\n{line}", problems.join("\n"));
        }
        self.unused.remove(name);
        lines
    }
}

/// Forbids keys that a schema does not list. The published schemas allow them, because a later version may
/// have more.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            members.values_mut().for_each(close);
            let lists = members.get("properties").is_some_and(Value::is_object);
            if lists && !members.contains_key("oneOf") {
                members.entry("additionalProperties").or_insert(json!(false));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

/// A model that reads a file twice and answers; its first answer waits until the flag is set.
fn model() -> (Server, Arc<AtomicBool>) {
    let open = Arc::new(AtomicBool::new(false));
    let gate = Arc::clone(&open);
    let server = answering(move |request| {
        eventually("the list of live runs", || gate.load(Ordering::SeqCst));
        let turn = match request.number {
            1 | 2 => Turn::call("shell", &json!({"command": "echo same"})),
            _ => Turn::text("Done."),
        };
        Reply::turn(request, &turn.usage(1_000, 100))
    });
    (server, open)
}

#[test]
fn outputs_match_their_schemas() {
    let mut schemas = Schemas::read();
    let cli = Cli::new();
    let (server, open) = model();
    cli.write("spend.toml", "[spend]\nmax_usd_per_day = 5\nmax_tokens_per_day = 1000000\n");
    let own = |more: &[&str]| {
        let args = ["Go.", "--tool", "shell", "--config", "spend.toml", "--json"];
        let args = [&args[..], &["--events", "events.jsonl", "--overwrite"], more].concat();
        cli.command(agent_args(&server, "openai-chat", &args))
    };

    // A run with a price, whose cost is known, and one without.
    let mut run = own(&["--price", "in=3,out=15", "--journal", "j.db"]);
    run.env("XDG_RUNTIME_DIR", cli.dir.path());
    let run = Started::new(run, "");
    let live = || {
        let mut list = cli.command(["runs", "--live", "--json"]);
        list.env("XDG_RUNTIME_DIR", cli.dir.path());
        Started::new(list, "").finish().stdout
    };
    eventually("the live run", || !live().is_empty());
    let refused = Cli::new().run(["run", "--json", "--model", "gpt5", "Go."]).exits(2);
    schemas.check("event", &refused.stdout);
    let live = schemas.check("live-run", &live());
    open.store(true, Ordering::SeqCst);
    let done = run.finish().exits(0);
    let lines = schemas.check("event", &done.stdout);
    let outcome = lines.last().unwrap();
    assert_eq!(outcome["run_id"], live[0]["run_id"]);
    assert!(outcome["cost_usd"].as_f64().unwrap() > 0.01, "{outcome}");
    schemas.check("outcome", &outcome.to_string());
    let in_file = schemas.check("event", &cli.read("events.jsonl"));
    let ended = in_file.iter().rfind(|line| line["type"] == "turn_finished").unwrap();
    assert_eq!(ended["cost_usd"], outcome["cost_usd"]);
    // A ceiling of the day needs a price, so this run has none.
    let args = ["Go.", "--tool", "shell", "--json", "--journal", "j.db"];
    let free = cli.agent(&server, "openai-chat", &args).exits(0).stdout;
    let unknown = schemas.check("event", &free).pop().unwrap();
    assert_eq!((&unknown["cost_usd"], &unknown["cost_unknown"]), (&Value::Null, &json!(true)));

    let journal = ["--journal", "j.db", "--json"];
    let with = |args: &[&str]| cli.run([args, &journal].concat()).stdout;
    let runs = schemas.check("run", &with(&["runs"]));
    assert_eq!((&runs[0]["cost_usd"], &runs[1]["cost_usd"]), (&Value::Null, &outcome["cost_usd"]));
    schemas.check("explain", &with(&["explain", "last"]));
    schemas.check("explain", &cli.run(["explain", "events.jsonl", "--json"]).exits(0).stdout);
    for by in ["day", "model", "project", "ending"] {
        schemas.check("spend", &with(&["spend", "--config", "spend.toml", "--by", by]));
    }
    schemas.check("assert", &with(&["assert", "last", "--max-turns", "1"]));
    let id = runs[1]["run_id"].as_str().unwrap();
    schemas.check("run-comparison", &with(&["compare", "runs", "last", id]));
    assert_eq!(
        schemas.unused.into_iter().collect::<Vec<_>>(),
        ["audit", "backtest", "comparison", "conformance", "detect"]
    );
}

#[cfg(target_os = "linux")]
#[test]
fn guard_and_demos_match_their_schemas() {
    let mut schemas = Schemas::read();
    let cli = Cli::new();
    let run = |args: &[&str]| {
        let mut command = cli.command(args);
        command.env("ENDSTOP_JOURNAL", cli.path("j.db"));
        Started::new(command, "").finish()
    };
    for (demo, status) in [("loop", 20), ("budget", 20), ("cut", 20), ("fix", 0), ("filtered", 30)]
    {
        let done = run(&["demo", demo, "--json"]).exits(status);
        schemas.check("event", &done.stdout);
    }
    for stored in schemas.check("run", &run(&["runs", "--json"]).exits(0).stdout) {
        let id = stored["run_id"].as_str().unwrap();
        schemas.check("explain", &run(&["explain", id, "--json"]).exits(0).stdout);
    }
    let (server, open) = model();
    open.store(true, Ordering::SeqCst);
    let program = r#"exec "$ENDSTOP" run "Go." --model gpt-4o --api openai-chat --base-url "$OPENAI_BASE_URL" \
        --tool shell --journal off >/dev/null 2>&1"#;
    let args = ["guard", "--name", "g", "--max-turns", "2", "--json", "--", "sh", "-c", program];
    let mut guard = cli.command(args);
    guard
        .env("ENDSTOP", env!("CARGO_BIN_EXE_endstop"))
        .env("ENDSTOP_JOURNAL", cli.path("j.db"))
        .env("OPENAI_BASE_URL", server.base_url());
    let done = Started::new(guard, "").finish();
    let lines = schemas.check("event", &done.stdout);
    assert!(lines.last().unwrap()["agent"]["calls"].as_u64().unwrap() >= 2, "{lines:?}");
    // The model of a guarded run is known from its calls.
    let spent = run(&["spend", "--by", "model", "--json"]).exits(0).stdout;
    let spent = schemas.check("spend", &spent);
    assert!(spent[0]["name"].is_string() && spent.len() == 1, "{spent:?}");
    schemas.check("explain", &run(&["explain", "g", "--json"]).exits(0).stdout);
    let judged = ["conform", "--json", "--only", "T-01", "--", env!("CARGO_BIN_EXE_endstop")];
    schemas.check("conformance", &run(&judged).exits(0).stdout);
}

#[test]
fn reports_of_recorded_runs_match_their_schemas() {
    let mut schemas = Schemas::read();
    let cli = Cli::new();
    let recorded = folder().join("../../../crates/endstop-trajectory/fixtures");
    let recorded = recorded.to_str().unwrap();
    schemas.check("audit", &cli.run(["audit", recorded, "--json"]).stdout);
    schemas.check("backtest", &cli.run(["backtest", recorded, "--json"]).stdout);
    let policies = ["compare", "policies", "stuck", "no_new(2)", recorded, "--json"];
    schemas.check("comparison", &cli.run(policies).stdout);
    let own = format!("{recorded}/endstop");
    let (a, b) = (format!("{own}/fix.jsonl"), format!("{own}/loop.jsonl"));
    schemas.check("comparison", &cli.run(["compare", "sets", &a, &b, "--json"]).stdout);

    let body = r#"{"choices":[{"message":{"content":"hi"},"finish_reason":"length"}],"usage":{"prompt_tokens":1}}"#;
    schemas.check("detect", &cli.feed(["detect", "--api", "openai-chat"], body).exits(0).stdout);
    let failed = json!({"id": 1, "api": "openai-chat", "status": 429, "body": "{\"error\":{\"message\":\"slow\"}}"});
    let lines = format!("{failed}\n{{not JSON\n");
    schemas.check("detect", &cli.feed(["detect", "--jsonl"], &lines).exits(2).stdout);
}
