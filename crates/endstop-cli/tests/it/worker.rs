//! `endstop worker` without an engine: its settings, and runs that are not in its store.

use crate::cli::{Cli, Refusing, Started};

const AGENT: &str = "model = \"openai/m\"\n[agents.a]\nsystem = \"Be brief.\"\n";

#[test]
fn wrong_settings_of_worker_are_named() {
    let cli = Cli::new();
    cli.write("agents.toml", AGENT);
    cli.write("none.toml", "model = \"openai/m\"\n");
    cli.write("spend.toml", AGENT.replace("[agents", "[spend]\nmax_usd_per_day = 5\n[agents"));
    for (args, part) in [
        (&["--config", "none.toml"][..], "no agent is configured"),
        (&["--config", "spend.toml"], "set --shared-budget NAME=USD"),
        (&["--config", "agents.toml", "--listen", "0.0.0.0:0"], "set --identity-key KEY"),
        (&["--config", "agents.toml", "--identity-key", "secret"], "publickeyv1_"),
        (&["--config", "agents.toml", "--shared-budget", "team"], "expected NAME=USD"),
        (&["--config", "agents.toml", "--shared-budget", "team=-1"], "expected NAME=USD"),
        (&["--config", "agents.toml", "--store", "agents.toml"], "--store: store agents.toml"),
        (&["--config", "agents.toml", "--restate", "localhost"], "http://127.0.0.1:8080"),
    ] {
        let mut all = vec!["worker", "--listen", "127.0.0.1:0"];
        for (flag, value) in [("--restate", "http://127.0.0.1:1"), ("--store", "store")] {
            if !args.contains(&flag) {
                all.extend([flag, value]);
            }
        }
        if args.contains(&"--listen") {
            all.drain(1..3);
        }
        all.extend(args);
        let done = Started::new(cli.command(all), "").finish().exits(2);
        assert!(done.stderr.contains(part), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn wrong_flags_of_worker_are_named() {
    let cli = Cli::new();
    cli.write("agents.toml", AGENT);
    let engine = ["--restate", "http://127.0.0.1:1"];
    let store = ["--store", "store"];
    for (args, part) in [
        (&[&store[..]][..], "--restate <URL>"),
        (&[&engine[..]], "--store <FOLDER>"),
        (&[&engine, &store, &["--journal", "runs.db"]], "--export <RUN>"),
        (&[&engine, &store, &["--export", "r1"]], "cannot be used with"),
        (&[&store, &["--export", "r1", "--admin", "http://127.0.0.1:1"]], "cannot be used with"),
        (&[&engine, &store, &["--identity-key", "k", "--unverified"]], "cannot be used with"),
        (&[&engine, &store, &["--advertise", "http://workers:9080"]], "--admin <URL>"),
        (&[&engine, &store, &["--listen", "9080"]], "--listen <ADDR>"),
        (&[&engine, &store, &["--grace", "soon"]], "--grace <TIME>"),
    ] {
        let done = cli.run(["worker"].iter().chain(args.concat().iter())).exits(2);
        assert!(done.stderr.contains(part), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn wrong_flags_of_durable_serve_are_named() {
    let cli = Cli::new();
    cli.write("agents.toml", AGENT);
    cli.write("none.toml", "model = \"openai/m\"\n");
    let config = ["--config", "agents.toml"];
    let engine = ["--restate", "http://127.0.0.1:1"];
    let store = ["--store", "store"];
    for (args, part) in [
        (&[&config[..], &engine][..], "--store <FOLDER>"),
        (&[&config, &store], "--restate <URL>"),
        (&[&config, &engine, &store, &["--journal", "runs.db"]], "cannot be used with"),
        (&[&config, &engine, &store, &["--max-running", "4"]], "cannot be used with"),
        (&[&config, &engine, &store, &["--grace", "5s"]], "cannot be used with"),
        (&[&config, &engine, &store, &["--park-after", "5s"]], "cannot be used with"),
        (&[&config, &engine, &store, &["--park-expiry", "5s"]], "cannot be used with"),
        (&[&config, &engine, &["--store", "agents.toml"]], "--store: store agents.toml"),
        (&[&config, &store, &["--restate", "localhost:8080"]], "http://127.0.0.1:8080"),
        (&[&["--config", "none.toml"], &engine, &store], "no agent is configured"),
    ] {
        let words = ["serve", "--listen", "127.0.0.1:0"];
        // A server that accepts the flags would not end by itself.
        let command = cli.command(words.iter().chain(args.concat().iter()));
        let done = Started::new(command, "").finish().exits(2);
        assert!(done.stderr.contains(part), "{args:?}: {}", done.stderr);
    }
}

/// The token of the engine must not cross a network in clear text.
#[test]
fn token_is_not_sent_in_clear_text() {
    let cli = Cli::new();
    cli.write("agents.toml", AGENT);
    for command in ["serve", "worker"] {
        let engine = "http://engine.example:8080";
        let args = ["--config", "agents.toml", "--restate", engine, "--store", "store"];
        let mut command = cli.command([command].iter().chain(&args));
        command.env("ENDSTOP_RESTATE_TOKEN", "of-the-engine");
        let done = Started::new(command, "").finish().exits(2);
        assert!(done.stderr.contains("without encryption"), "{}", done.stderr);
        assert!(!done.stderr.contains("of-the-engine"), "{}", done.stderr);
    }
}

#[test]
fn unreachable_engine_ends_the_worker() {
    let cli = Cli::new();
    cli.write("agents.toml", AGENT);
    let refusing = Refusing::new();
    let engine = format!("http://{}", refusing.address);
    let args = ["worker", "--config", "agents.toml", "--store", "store", "--listen", "127.0.0.1:0"];
    let mut command = cli.command(args);
    command.args(["--restate", &engine, "--admin", &engine]);
    let done = Started::new(command, "").finish().exits(2);
    assert!(done.stderr.contains("did not answer"), "{}", done.stderr);
}

#[test]
fn unknown_run_is_not_exported() {
    let cli = Cli::new();
    let done = cli.run(["worker", "--store", "store", "--export", "r1", "--journal", "runs.db"]);
    let done = done.exits(2);
    assert!(done.stderr.contains("the store has no run r1"), "{}", done.stderr);
    let done = cli.run(["worker", "--store", "store", "--export", "../r1", "--journal", "runs.db"]);
    assert!(done.exits(2).stderr.contains("invalid run id"));
}
