//! `--verify-rounds`: the output of a verifier that fails goes back to the model.

use crate::cli::{Cli, FORMATS, answering, playing};
use crate::run::last_message;
use endstop::testkit::{Reply, Turn};
use serde_json::{Value, json};

fn shell(command: &str) -> Turn {
    Turn::call("shell", &json!({ "command": command }))
}

/// Two faults in a program, and a model that fixes one after each rejection.
fn repairs() -> [Turn; 5] {
    [
        Turn::text("It works already."),
        shell("sed -i.bak 's/a - b/a + b/' calc.sh"),
        Turn::text("I fixed the sum."),
        shell("sed -i.bak 's/a + 1/a * b/' calc.sh"),
        Turn::text("I fixed the product, too."),
    ]
}

const CALC: &str =
    "sum() { a=$1; b=$2; echo $((a - b)); }\nproduct() { a=$1; b=$2; echo $((a + 1)); }\n";
const TEST: &str = ". ./calc.sh
failed=0
[ \"$(sum 2 3)\" = 5 ] || { echo 'test_sum: FAILED'; failed=1; }
[ \"$(product 2 3)\" = 6 ] || { echo 'test_product: FAILED'; failed=1; }
exit $failed
";

fn project() -> Cli {
    let cli = Cli::new();
    cli.write("calc.sh", CALC);
    cli.write("test.sh", TEST);
    cli
}

const ARGS: [&str; 7] =
    ["Fix calc.sh.", "--tool", "shell", "--verify", "sh test.sh", "--verify-rounds", "3"];

#[cfg(unix)]
#[test]
fn repair_needs_three_rounds() {
    for api in FORMATS {
        let cli = project();
        let server = playing(repairs());
        let args = [&ARGS[..], &["--journal", "j.db"]].concat();
        let done = cli.agent(&server, api, &args).exits(0);
        done.notes(&[
            "✗ rejected by the verifier (round 1 of 3)",
            "✗ rejected by the verifier (round 2 of 3)",
            "✓ verified (round 3 of 3)",
            "  verified yes",
            "  round    1, after turn 1: rejected",
            "3, after turn 5: accepted",
        ]);
        let requests = server.requests();
        assert_eq!(requests.len(), 5);
        let told = last_message(&requests[1].body);
        assert!(told.contains("test_sum: FAILED") && told.contains("round 1 of 3"), "{told}");
        let told = last_message(&requests[3].body);
        assert!(!told.contains("test_sum: FAILED") && told.contains("test_product"), "{told}");
        let text = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
        assert!(text.contains("✗ rejected by the verifier (round 2 of 3)"), "{text}");
        assert!(text.contains("verified yes (`sh test.sh`)"), "{text}");
    }
}

#[cfg(unix)]
#[test]
fn failing_verifier_ends_as_not_verified() {
    let cli = project();
    let server = playing([Turn::text("Done.").usage(100, 10)]);
    let more = ["--json", "--max-turns", "10", "--max-tokens", "20000", "--journal", "j.db"];
    let outcome =
        cli.agent(&server, "openai-chat", &[&ARGS[..], &more].concat()).exits(20).outcome();
    assert_eq!(outcome["termination"], "error_not_verified");
    assert_eq!(outcome["category"], "capacity");
    assert_eq!((&outcome["verified"], &outcome["turns"]), (&json!(false), &json!(3)));
    assert_eq!(outcome["verify_rounds"].as_array().unwrap().len(), 3);
    // The command that the advice prints continues the run.
    let text = cli.run(["explain", "last", "--journal", "j.db"]).exits(0).stdout;
    assert!(text.contains("--verify-rounds 6"), "{text}");
    let server =
        playing([shell("sed -i.bak 's/a - b/a + b/; s/a + 1/a * b/' calc.sh"), Turn::text("Now.")]);
    let url = server.base_url();
    let resume = ["run", "--resume", "last", "--verify-rounds", "6", "--journal", "j.db"];
    let more = ["--base-url", &url, "--trust-journal", "--accept-changes", "--json"];
    let outcome = cli.run(resume.iter().chain(&more)).exits(0).outcome();
    assert_eq!((&outcome["termination"], &outcome["verified"]), (&json!("stop"), &json!(true)));
    assert_eq!(outcome["turns"], 5);
}

#[test]
fn rounds_without_verifier_are_refused() {
    let cli = Cli::new();
    let server = playing([Turn::text("Done.")]);
    let done = cli.agent(&server, "openai-chat", &["Go.", "--verify-rounds", "2"]).exits(2);
    assert!(done.stderr.contains("--verify"), "{done:#?}");
    let done = cli.agent(&server, "openai-chat", &["Go.", "--verify-rounds", "0"]).exits(2);
    assert!(done.stderr.contains("--verify-rounds: expected at least 1"), "{done:#?}");
    assert!(server.requests().is_empty());
}

#[cfg(unix)]
#[test]
fn verifier_secrets_stay_here() {
    let cli = Cli::new();
    let server = answering(|request| Reply::turn(request, &Turn::text("Done.")));
    let verify = "echo the key is $OPENAI_API_KEY; false";
    let args = ["Go.", "--verify", verify, "--verify-rounds", "2", "--json", "--events", "e.jsonl"];
    let done = cli.agent(&server, "openai-chat", &args).exits(20);
    let sent: Vec<Value> = server.requests().iter().map(|request| request.body.clone()).collect();
    assert_eq!(sent.len(), 2);
    for text in [sent[1].to_string(), done.stdout.clone(), cli.read("e.jsonl")] {
        assert!(text.contains("the key is [redacted]"), "{text}");
        assert!(!text.contains(crate::cli::OPENAI_KEY), "{text}");
    }
}

#[test]
fn blank_verifier_is_refused() {
    let cli = Cli::new();
    let server = playing([Turn::text("Done.")]);
    for blank in ["", " ", "\t\n", "# cargo test", " \n  # one\n# two\n"] {
        for more in [&[][..], &["--verify-rounds", "2"]] {
            let args = [&["Go.", "--verify", blank], more].concat();
            cli.agent(&server, "openai-chat", &args)
                .exits(2)
                .notes(&["--verify: the command is blank"]);
        }
        cli.run(["guard", "--verify", blank, "--", "true"])
            .exits(2)
            .notes(&["--verify: the command"]);
        cli.write("own.toml", format!("verify = {}\n", json!(blank)));
        let args = ["Go.", "--config", "own.toml"];
        cli.agent(&server, "openai-chat", &args)
            .exits(2)
            .notes(&["`verify`: the command is blank"]);
    }
    assert_eq!(server.requests().len(), 0);
    let commented = ["Go.", "--verify", "# the tests\nfalse"];
    cli.agent(&server, "openai-chat", &commented).exits(1);
}
