//! The inputs of `endstop backtest`: files, folders, standard input, journals, and damage.

use crate::backtest::{clear, json_of, lines, run};
use crate::cli::{Cli, agent_args, playing};
use endstop::testkit::Turn;
use serde_json::json;

#[test]
fn damaged_input_is_named_strict_refuses() {
    let cli = Cli::new();
    let mut late = run("late", Some(true), 3, 0);
    for (nth, minute) in [5, 9, 7].into_iter().enumerate() {
        late["steps"][nth]["timestamp"] = json!(format!("2026-01-01T00:{minute:02}:00Z"));
    }
    let whole = clear(2, 2);
    let cases = [
        ("half.jsonl", format!("{whole}{}", &clear(1, 0)[..200]), "ends inside a record"),
        (
            "open.jsonl",
            format!("{whole}{}", lines([run("open", None, 3, 0)])),
            "without an outcome",
        ),
        ("twice.jsonl", format!("{whole}{whole}"), "duplicate in its file"),
        ("late.jsonl", format!("{whole}{}", lines([late])), "with steps out of order"),
        (
            "odd.jsonl",
            format!("{whole}{{\"schema\":\"neutral-traj/1\",\"steps\":7}}\n"),
            "invalid data for its format",
        ),
        (
            "next.jsonl",
            format!("{whole}{{\"schema\":\"neutral-traj/9\"}}\n"),
            "unknown format version",
        ),
        (
            "empty-run.jsonl",
            format!("{whole}{}", lines([run("none", Some(true), 0, 0)])),
            "without a turn",
        ),
    ];
    for (name, text, says) in cases {
        cli.write(name, text);
        let told = cli.run(["backtest", name]).exits(0).stdout;
        assert!(told.contains("NOT READ, OR UNUSUAL") && told.contains(says), "{name}: {told}");
        assert!(told.contains(name), "{name} is not named in {told}");
        cli.run(["backtest", name, "--strict"]).exits(2).notes(&["--strict", says, name]);
    }
    cli.write("sound.jsonl", &whole);
    let told = cli.run(["backtest", "sound.jsonl", "--strict"]).exits(0).stdout;
    assert!(!told.contains("NOT READ, OR UNUSUAL"), "{told}");
    // The same runs in another file.
    cli.write("again.jsonl", &whole);
    cli.run(["backtest", "sound.jsonl", "again.jsonl", "--strict"])
        .exits(2)
        .notes(&["another file"]);
}

#[test]
fn input_without_runs_is_refused() {
    let cli = Cli::new();
    cli.write("note.txt", "Nothing to see.\n");
    cli.write("other.json", "{\"a\": 1}");
    cli.write("empty.jsonl", "");
    for name in ["note.txt", "other.json", "empty.jsonl", "gone.jsonl"] {
        cli.run(["backtest", name]).exits(2).notes(&["no runs could be read", name]);
        let said = json_of(&cli.run(["backtest", name, "--json"]).exits(2));
        assert_eq!(said["type"], "error");
    }
    cli.run(["backtest"]).exits(2);
    cli.run(["backtest", "note.txt", "--format", "mine"])
        .exits(2)
        .notes(&["unknown format `mine`"]);
    cli.write("runs.jsonl", clear(1, 1));
    for (args, says) in [
        (["--policies", "mine"], "`default`, `reference`"),
        (["--policies", "gone.toml"], "gone.toml"),
        (["--policy", "repeat_cal"], "repeat_cal"),
        (["--limit", "max_turns"], "NAME=VALUE"),
        (["--limit", "max_turn=3"], "max_turns"),
        (["--max-harm", "2"], "share from 0 to 1"),
        (["--outcomes", "gone.csv"], "gone.csv"),
        (["--report", "no/such/folder.html"], "--report"),
        #[cfg(feature = "parquet")]
        (["--parquet", "no/such/folder.parquet"], "--parquet"),
    ] {
        let all = ["backtest", "runs.jsonl"].into_iter().chain(args);
        cli.run(all).exits(2).notes(&[says]);
    }
    let twice = ["backtest", "runs.jsonl", "--policy", "no_new", "--policy", "no_new"];
    cli.run(twice).exits(2).notes(&["duplicate candidate"]);
}

#[test]
fn candidates_are_read_from_files() {
    let cli = Cli::new();
    cli.write("runs.jsonl", clear(1, 3));
    cli.write(
        "c.toml",
        "[[candidate]]\nname = \"three\"\npolicy = { repeat_call = { times = 3 } }\n\n[[candidate]]\nname = \"tight\"\nlimits = { max_turns = 4 }\n",
    );
    cli.write("c.json", r#"[{"name": "three", "policy": {"repeat_call": {"times": 3}}}]"#);
    cli.write("bad.toml", "[[candidates]]\nname = \"x\"\n");
    cli.write("bad.json", r#"[{"name": "x", "limits": {"max_turn": 4}}]"#);
    cli.write("none.json", "[]");
    let args = ["backtest", "runs.jsonl", "--json", "--policies"];
    let found = json_of(&cli.run(args.iter().chain(&["c.toml"])).exits(0));
    let all = &found["results"]["ALL"]["policies"];
    assert_eq!(all["three"]["steps_saved"], 21);
    // The good run of six steps is stopped, too.
    assert_eq!(
        (&all["tight"]["steps_saved"], &all["tight"]["succ_stopped"]),
        (&json!(20), &json!(1))
    );
    let found = json_of(&cli.run(args.iter().chain(&["c.json"])).exits(0));
    assert_eq!(found["results"]["ALL"]["policies"]["three"]["steps_saved"], 21);
    for (file, says) in
        [("bad.toml", "[[candidate]]"), ("bad.json", "max_turns"), ("none.json", "no candidates")]
    {
        cli.run(args.iter().chain(&[file])).exits(2).notes(&[file, says]);
    }
    let found = json_of(&cli.run(args.iter().chain(&["reference"])).exits(0));
    assert_eq!(found["results"]["ALL"]["policies"].as_object().unwrap().len(), 55);
}

#[test]
fn outcomes_are_read_from_file() {
    let cli = Cli::new();
    let open = (0..4).map(|nth| run(&format!("r{nth}"), None, 5, 5));
    cli.write("runs.jsonl", lines(open));
    let told = cli.run(["backtest", "runs.jsonl", "--policy", "no_new"]).exits(0).stdout;
    assert!(told.contains("4 runs read, none with an outcome"), "{told}");
    assert!(told.contains("no run has an outcome"), "{told}");
    assert!(told.contains("4 runs without an outcome, 20 steps"), "{told}");
    cli.write("o.json", r#"{"r0": true, "r1": false, "r2": 0.0, "r9": true}"#);
    let args = ["backtest", "runs.jsonl", "--policy", "no_new", "--outcomes", "o.json"];
    let told = cli.run(args).exits(0).stdout;
    for says in
        ["3 judged runs: 1 good, 2 failed", "1 run, first r3", "not among the runs: 1, first r9"]
    {
        assert!(told.contains(says), "no {says:?} in {told}");
    }
}

#[test]
fn standard_input_and_folders_are_read() {
    let cli = Cli::new();
    let told = cli.feed(["backtest", "-", "--policy", "no_new"], &clear(3, 2)).exits(0).stdout;
    assert!(told.contains("5 judged runs"), "{told}");
    std::fs::create_dir(cli.path("many")).unwrap();
    cli.write("many/a.jsonl", clear(3, 2));
    cli.write("many/b.jsonl", clear(4, 1));
    let found = json_of(&cli.run(["backtest", "many", "--json"]).exits(0));
    let sets: Vec<&String> = found["results"].as_object().unwrap().keys().collect();
    assert_eq!(sets, ["a", "b", "ALL"]);
    assert_eq!(found["results"]["ALL"]["runs"], 10);
}

#[test]
fn journal_runs_replay_their_events() {
    let cli = Cli::new();
    cli.write("note.txt", "still building\n");
    // One run repeats its call until it is ended, the other answers at once.
    let stuck = playing([Turn::call("read_file", &json!({"path": "note.txt"}))]);
    let journal = ["--tool", "read_file", "--journal", "j.db"];
    let wait = [&["Wait."][..], &journal].concat();
    cli.run(agent_args(&stuck, "openai-chat", &wait)).exits(20);
    let good = playing([Turn::text("Paris.")]);
    // Another limit gives this run a header of its own; equal headers are stored once.
    let ask = [&["Which city?", "--max-turns", "77"][..], &journal].concat();
    cli.run(agent_args(&good, "openai-chat", &ask)).exits(0);

    let args = ["backtest", "j.db", "--json", "--limit", "max_turns=2", "--policy", "repeat_call"];
    let found = json_of(&cli.run(args).exits(0));
    let all = &found["results"]["ALL"];
    assert_eq!(
        (&all["runs"], &all["succeeded"], &all["failed"]),
        (&json!(2), &json!(1), &json!(1))
    );
    assert_eq!(all["steps"], 5, "four of one, one of the other");
    assert_eq!(all["policies"]["limits"]["fail_stopped"], 1);
    assert_eq!(all["policies"]["limits"]["steps_saved"], 2);
    assert_eq!(all["policies"]["limits"]["succ_stopped"], 0);
    assert_eq!(all["policies"]["repeat_call(3)"]["steps_saved"], 1);
    assert_eq!(found["census"]["formats"]["endstop-journal"], 2);
    assert_eq!(found["figures"]["datasets"][0]["runs_with_tokens"], 2);
    assert_eq!(found["census"]["results"], 4);

    let id = cli.run(["runs", "--json", "--journal", "j.db"]).exits(0).lines()[1]["run_id"].clone();
    let explain = ["backtest", "j.db", "--limit", "max_turns=2", "--explain", id.as_str().unwrap()];
    let told = cli.run(explain).exits(0).stdout;
    assert!(told.contains("■ limits fires: would have saved 2 steps"), "{told}");
    assert!(told.contains("→ still building"), "{told}");

    // A run that cannot be read is reported next to one that can, because it may be the one that
    // was meant.
    let text = std::fs::read(cli.path("j.db")).unwrap();
    let damaged = without_quote(text, b"s\":77");
    cli.write("j.db", damaged);
    let done = cli.run(explain).exits(0);
    assert!(done.stdout.contains("■ limits fires"), "{}", done.stdout);
    done.notes(&["j.db:2: run ", "header cannot be read"]);
    cli.run(["backtest", "j.db", "--explain", "gone"])
        .exits(2)
        .notes(&["header cannot be read", "no such run"]);
}

/// Returns the bytes with the first quote of each such text blanked, so that its record is not
/// valid JSON.
fn without_quote(mut bytes: Vec<u8>, text: &[u8]) -> Vec<u8> {
    let places: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
    assert!(!places.is_empty(), "the text is nowhere");
    places.into_iter().for_each(|at| bytes[at + 1] = b' ');
    bytes
}

/// The command has the readers of benchmarks if a crate of the same build needs them.
#[test]
fn benchmark_is_read_or_named() {
    let cli = Cli::new();
    std::fs::create_dir(cli.path("runs")).unwrap();
    let traj = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]);
    let result = json!([{"task_id": 0, "reward": 1.0, "info": {}, "traj": traj, "trial": 0}]);
    cli.write("runs/results.json", result.to_string());
    cli.write("runs/other.jsonl", clear(2, 3));
    let built = endstop_trajectory::read::testing::is_built("tau-bench");
    let what = "results.json: in the format `tau-bench`, which this build cannot read: build endstop-cli with `--features benchmarks`";
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for command in ["audit", "backtest"] {
        let done = cli.run([command, "runs", "--json"]).exits(0);
        let found = json_of(&done);
        let census = if command == "audit" { &found } else { &found["census"] };
        let problems = &census["problems"];
        let runs = if command == "audit" { &found["sessions"] } else { &census["runs"] };
        let text = one_line(&cli.run([command, "runs"]).exits(0).stdout);
        let alone = cli.run([command, "runs/results.json"]);
        if built {
            assert_eq!((problems, runs), (&json!({}), &json!(6)), "{found:#}");
            assert!(!text.contains("results.json: "), "{text}");
            alone.exits(0);
        } else {
            assert_eq!((&problems["not_built"]["count"], runs), (&json!(1), &json!(5)));
            assert!(problems["not_built"]["first"].to_string().contains(what), "{found:#}");
            assert!(text.contains("runs/results.json"), "{command}: {text}");
            let alone = alone.exits(2);
            let said = one_line(&format!("{} {}", alone.stdout, alone.stderr));
            assert!(said.contains(what), "{command}: {said}");
        }
    }
    let policies = ["compare", "policies", "max_steps(4)", "none", "runs/results.json"];
    let policies = cli.run(policies.iter().chain(&["--format", "tau-bench"]));
    let sets = cli.run(["compare", "sets", "runs/results.json", "runs/other.jsonl"]);
    for done in [policies, sets] {
        assert_eq!(one_line(&done.stderr).contains(what), !built, "{done:#?}");
    }
}

#[test]
fn journal_in_folder_is_found() {
    let cli = Cli::new();
    let good = playing([Turn::text("Paris.")]);
    let ask = ["Which city?", "--journal", "runs/deep/kept.db"];
    std::fs::create_dir_all(cli.path("runs/deep")).unwrap();
    cli.run(agent_args(&good, "openai-chat", &ask)).exits(0);
    cli.write("runs/other.jsonl", clear(2, 3));
    // The database of another program is not reported.
    let mut other = b"SQLite format 3\0".to_vec();
    other.resize(4096, 7);
    cli.write("runs/other.db", other);
    // A journal of a later version does not stop the rest.
    let mut newer = b"SQLite format 3\0".to_vec();
    newer.resize(4096, 0);
    newer[68..72].copy_from_slice(b"Estp");
    std::fs::create_dir_all(cli.path("newer")).unwrap();
    cli.write("newer/later.db", newer);
    cli.write("newer/other.jsonl", clear(2, 3));
    for command in ["audit", "backtest"] {
        let found = json_of(&cli.run([command, "newer", "--json"]).exits(0));
        let census = if command == "audit" { &found } else { &found["census"] };
        assert_eq!(census["problems"]["unreadable"]["count"], 1, "{found:#}");
        cli.run([command, "newer/later.db"]).exits(2);
    }
    let explain = |path| cli.run(["backtest", path, "--explain", "good-0"]);
    assert!(explain("newer").exits(0).notes(&["later.db: "]).stdout.contains("run good-0: good"));
    explain("newer/later.db").exits(2);
    let found = json_of(&cli.run(["backtest", "runs", "--json"]).exits(0));
    assert_eq!(found["census"]["formats"], json!({"endstop-journal": 1, "neutral-traj/1": 5}));
    assert_eq!(found["census"]["problems"], json!({}));
    assert_eq!(found["results"]["kept"]["succeeded"], 1);

    let audit = json_of(&cli.run(["audit", "runs", "--json"]).exits(0));
    assert_eq!((&audit["sessions"], &audit["files"]), (&json!(6), &json!(2)));
    let one = json_of(&cli.run(["audit", "runs/deep/kept.db", "--json"]).exits(0));
    assert_eq!((&one["sessions"], &one["formats"]["endstop-journal"]), (&json!(1), &json!(1)));
    assert_eq!(one["ended"]["answered"]["sessions"], 1, "{one:#}");
    assert!(one["first_ms"].is_i64() || one["first_ms"].is_u64(), "{one:#}");
}
