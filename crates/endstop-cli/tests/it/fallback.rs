//! `--fallback`: the switch on the screen, in the card, in `--json` and in `explain`, and wrong uses.

use crate::cli::{Cli, Done, Started, agent_args, playing};
use endstop::testkit::{Server, Turn, strict};
use serde_json::{Value, json};

const CLAUDE: &str = "anthropic/claude-sonnet-4-5";

fn gone() -> Turn {
    Turn::error(404, json!({"error": {"message": "no such model"}}).to_string())
}

/// Runs the agent with the first server, and Anthropic's API at the second one.
fn run(cli: &Cli, first: &Server, second: &Server, args: &[&str]) -> Done {
    let mut command = cli.command(agent_args(first, "openai-chat", args));
    command.env("ANTHROPIC_BASE_URL", second.base_url().replace("/v1", ""));
    Started::new(command, "").finish()
}

#[test]
fn run_continues_with_fallback() {
    let cli = Cli::new();
    let read = Turn::call("read_file", &json!({"path": "a.txt"})).reasoning("hm");
    let first = playing([read, gone()]);
    let second = playing([Turn::text("Done.").usage(50, 5)]);
    cli.write("a.txt", "text");
    let args = ["Read.", "--tool", "read_file", "--fallback", CLAUDE, "--journal", "j.db"];
    let done = run(&cli, &first, &second, &args).exits(0);
    assert_eq!(done.stdout, "Done.\n");
    done.notes(&[
        "→ continues with anthropic/claude-sonnet-4-5, because of not_found",
        "model    ",
        "/scripted: 2 model calls",
        "model    anthropic/claude-sonnet-4-5: 1 model call",
    ]);
    let requests = second.requests();
    assert_eq!(requests[0].body["model"], "claude-sonnet-4-5");
    assert_eq!(strict::problem("anthropic-messages", &requests[0].body), None);
    let told = cli.run(["explain", "last", "--journal", "j.db"]).exits(0);
    assert!(
        told.stdout.contains("→ continues with anthropic/claude-sonnet-4-5, because of not_found")
    );
    let told = cli.run(["explain", "last", "--journal", "j.db", "--json"]).exits(0).lines();
    let timeline = told[0]["timeline"].as_array().unwrap();
    let switch = timeline.iter().find(|event| event["type"] == "model_switched").unwrap();
    assert_eq!((&switch["fallback"], &switch["provider"]), (&json!(1), &json!("anthropic")));
    assert_eq!(told[0]["outcome"]["models"].as_array().unwrap().len(), 2);
    let audit = cli.run(["audit", "j.db", "--json"]).exits(0);
    let report: Value = serde_json::from_str(&audit.stdout).unwrap();
    let sum = |part: &str| {
        let models =
            report["total"]["models"].as_object().or(report["models"].as_object()).unwrap();
        let named = models.iter().filter(|(name, _)| name.contains(part));
        named.map(|(_, spent)| spent["turns"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((sum("scripted"), sum("claude-sonnet-4-5")), (1, 1), "{}", audit.stdout);
}

#[test]
fn json_names_each_model() {
    let cli = Cli::new();
    cli.write("own.toml", format!("fallback = [\"{CLAUDE}\"]\n"));
    let servers = || (playing([gone()]), playing([Turn::text("Done.")]));
    let (first, second) = servers();
    let args = ["Go.", "--config", "own.toml", "--json"];
    let outcome = run(&cli, &first, &second, &args).exits(0).outcome();
    let calls: Vec<&Value> =
        outcome["models"].as_array().unwrap().iter().map(|m| &m["calls"]).collect();
    assert_eq!(calls, [1, 1]);
    assert_eq!((&outcome["provider"], outcome["turns"].as_u64()), (&json!("anthropic"), Some(1)));
    // A flag removes the models of the file.
    let (first, second) = servers();
    let args = ["Go.", "--config", "own.toml", "--fallback", "off", "--json"];
    let outcome = run(&cli, &first, &second, &args).exits(30).outcome();
    assert_eq!((outcome.get("models"), second.requests().len()), (None, 0));
}

#[test]
fn wrong_fallbacks_name_their_fix() {
    let cli = Cli::new();
    let server = playing([Turn::text("Done.")]);
    for (args, says) in [
        (&["--fallback", "claude"][..], &["--fallback", "`claude`", "PROVIDER/MODEL"][..]),
        (&["--fallback", "unheard/x"], &["--fallback unheard/x", "unheard"]),
        (&["--fallback", CLAUDE, "--record", "r.jsonl"], &["--record", "--fallback off"]),
        (
            &["--fallback", "ollama/unknown", "--max-budget-usd", "1", "--price", "in=1,out=1"],
            &["max_budget_usd", "the fallback `unknown`"],
        ),
    ] {
        let args: Vec<&str> = ["Go."].iter().chain(args).copied().collect();
        let done = run(&cli, &server, &server, &args);
        done.exits(2).notes(says);
    }
    assert_eq!(server.requests().len(), 0);
}
