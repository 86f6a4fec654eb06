//! `endstop branch`: a new run with the beginning of a stored one.

use crate::cli::{Cli, Done, FORMATS, agent_args, answering, playing};
use endstop::testkit::{Reply, Request, Server, Turn};
use serde_json::{Value, json};

const JOURNAL: [&str; 2] = ["--journal", "j.db"];

/// A model that has the shell write one line for each step, and then answers.
fn steps(most: usize) -> impl Fn(&Request) -> Reply + Send + Sync + 'static {
    move |request| {
        let done = request.body.to_string().matches("[exit status 0]").count();
        let command = format!("echo step {} >> steps.txt", done + 1);
        let turn = if done < most {
            Turn::call("shell", &json!({"command": command}))
        } else {
            Turn::text("All is done.")
        };
        Reply::turn(request, &turn)
    }
}

fn stored(cli: &Cli, server: &Server, api: &str) -> String {
    let args = [&["Do the steps.", "--tool", "shell"][..], &JOURNAL].concat();
    cli.run(agent_args(server, api, &args)).exits(0);
    cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines()[0]["run_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn branch(cli: &Cli, run: &str, at: &str, more: &[&str]) -> Done {
    let args = ["branch", run, "--at", at, "--trust-journal"];
    cli.run([&args[..], &JOURNAL, more].concat())
}

#[test]
fn branch_continues_without_repeating() {
    for api in FORMATS {
        let cli = Cli::new();
        let server = answering(steps(4));
        let id = stored(&cli, &server, api);
        let first: Vec<Vec<u8>> = server.requests().into_iter().map(|one| one.bytes).collect();
        assert_eq!((first.len(), cli.read("steps.txt").lines().count()), (5, 4));

        // From turn 2 on, steps 3 and 4 are done again, and only these.
        let done = branch(&cli, &id, "2", &["--json"]).exits(0);
        let done = done.notes(&[&format!("▶ branching from run {id} after turn 2: Do the steps.")]);
        let outcome = done.outcome();
        assert_eq!(server.requests()[5].bytes, first[2], "{api}");
        assert_eq!(cli.read("steps.txt"), "step 1\nstep 2\nstep 3\nstep 4\nstep 3\nstep 4\n");
        assert_eq!((&outcome["termination"], &outcome["turns"]), (&json!("stop"), &json!(3)));
        assert_eq!(outcome["branched_from"]["run_id"], json!(id));
        assert_eq!(outcome["branched_from"]["turn"], json!(2));

        // Both runs name each other.
        let own = outcome["run_id"].as_str().unwrap();
        let runs = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines();
        assert_eq!((&runs[0]["continues"], &runs[0]["branched_at"]), (&json!(id), &json!(2)));
        assert!(runs[1].get("branched_at").is_none(), "{}", runs[1]);
        let listed = cli.run(["runs", "--journal", "j.db"]).exits(0).stdout;
        assert!(listed.contains(&format!("(branch of {id} at turn 2) Do the steps.")), "{listed}");
        let told = cli.run(["explain", own, "--journal", "j.db"]).exits(0).stdout;
        assert!(told.contains(&format!("branches from run {id} after turn 2; its ")), "{told}");
        assert!(told.contains("  branch   of run "), "{told}");
        assert!(!told.contains("which had ended"), "{told}");
        let told = cli.run(["explain", &id, "--journal", "j.db"]).exits(0).stdout;
        assert!(told.contains(&format!("branches of this run: {own} at turn 2\n")), "{told}");
        let story = cli.run(["explain", &id, "--json", "--journal", "j.db"]).exits(0).lines();
        assert_eq!(story[0]["run"]["branches"], json!([{"run_id": own, "turn": 2}]));
        let story = cli.run(["explain", own, "--json", "--journal", "j.db"]).exits(0).lines();
        assert_eq!(story[0]["run"]["branched_from"]["run_id"], json!(id));
        assert_eq!(
            (&story[0]["run"]["continues"], &story[0]["problems"]),
            (&Value::Null, &json!([]))
        );
        cli.run(["explain", own, "--html", "run.html", "--journal", "j.db"]).exits(0);
        assert!(cli.read("run.html").contains(&format!("branches from run {id} after turn 2")));
    }
}

#[test]
fn message_and_limits_apply_to_branch() {
    let cli = Cli::new();
    let server = answering(steps(3));
    let id = stored(&cli, &server, "openai-chat");
    let done = branch(&cli, &id, "1", &["--message", "Hurry.", "--max-turns", "1", "--json"]);
    let outcome = done.exits(20).outcome();
    assert_eq!(outcome["termination"], "error_max_turns");
    let body = server.requests().pop().unwrap().body;
    let said: Vec<&Value> = body["messages"].as_array().unwrap().iter().collect();
    assert_eq!(
        (&said.last().unwrap()["role"], &said.last().unwrap()["content"]),
        (&json!("user"), &json!("Hurry."))
    );
    // The branch can be resumed like any other run, and stays a branch.
    let own = outcome["run_id"].as_str().unwrap();
    let resume = ["run", "--resume", own, "--trust-journal", "--max-turns", "9", "--json"];
    let outcome = cli.run([&resume[..], &JOURNAL].concat()).exits(0).outcome();
    assert_eq!((&outcome["turns"], &outcome["branched_from"]["turn"]), (&json!(3), &json!(1)));
}

#[test]
fn other_model_leaves_old_settings() {
    let cli = Cli::new();
    let server = answering(steps(2));
    let id = stored(&cli, &server, "anthropic-messages");
    let other = playing([Turn::text("I would rather stop.")]);
    let url = other.base_url();
    let flags = ["--model", "other", "--api", "openai-chat", "--base-url", &url, "--json"];
    let outcome = branch(&cli, &id, "1", &flags).exits(0).outcome();
    assert_eq!(outcome["last_text"], "I would rather stop.");
    assert_eq!(other.requests()[0].body["model"], "other");
}

#[test]
fn bad_branches_start_nothing() {
    let cli = Cli::new();
    let server = answering(steps(2));
    let id = stored(&cli, &server, "openai-chat");
    let made = server.requests().len();
    for (run, at, more, says) in [
        (&*id, "4", &[][..], "has no complete turn 4; branch at one of its turns 1 to 3, or at 0"),
        (
            &id,
            "3",
            &[],
            "ends with an answer of the model, which cannot continue without a message",
        ),
        (&id, "3", &[], "--message TEXT"),
        (&id, "-1", &[], "unexpected argument"),
        (&id, "x", &[], "invalid value 'x' for '--at <TURN>'"),
        ("gone", "1", &[], "there is no run `gone`"),
        (&id, "1", &["--system", "Be brief."], "instructions: was none"),
        (&id, "1", &["--tool", "read_file"], "tool shell: was there"),
        (&id, "1", &["--max-turns", "none"], "--max-turns"),
        (&id, "1", &["--message", " "], "the input is blank"),
        (&id, "1", &["--answer-only", "--json"], "--answer-only cannot be combined"),
    ] {
        let done = branch(&cli, run, at, more).exits(2);
        assert!(done.stderr.contains(says), "{says:?} in {}", done.stderr);
    }
    let untrusted = ["branch", &id, "--at", "1", "--journal", "j.db"];
    let refused = cli.run(untrusted).exits(2);
    assert!(refused.stderr.contains("need your consent"), "{}", refused.stderr);
    assert!(!refused.stderr.contains("--resume"), "{}", refused.stderr);
    cli.run(["branch", &id, "--at", "1", "--journal", "none.db"]).exits(2);
    assert_eq!(server.requests().len(), made, "no model was called");
    assert_eq!(cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines().len(), 1);
}
