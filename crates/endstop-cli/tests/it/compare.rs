//! `endstop compare`: two policies on the same runs, and two sets of runs on the same tasks.

use crate::cli::Cli;
use serde_json::{Value, json};

/// Runs of one version: `succeeds` decides by the task.
fn version(tasks: u32, steps: u32, succeeds: impl Fn(u32) -> bool) -> String {
    let run = |task: u32| {
        let step = |nth: u32| {
            json!({"role": "agent", "text": "", "calls": [{"id": nth.to_string(), "name": "ls", "arguments": "{}"}],
                "results": [{"call_id": nth.to_string(), "content": "a"}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 10}})
        };
        let all: Vec<Value> = (0..steps + task % 3).map(step).collect();
        json!({"schema": "neutral-traj/1", "run_id": format!("r{task}"), "task_id": format!("t{task}"),
            "outcome": {"success": succeeds(task), "ending": "final"}, "steps": all})
        .to_string()
    };
    (0..tasks).map(|task| run(task) + "\n").collect()
}

fn compared(cli: &Cli, args: &[&str]) -> Value {
    let done = cli.run(["compare"].iter().chain(args).chain(&["--json"])).exits(0);
    serde_json::from_str(&done.stdout).unwrap()
}

#[test]
fn sets_show_known_difference() {
    let cli = Cli::new();
    cli.write("v1.jsonl", version(120, 3, |task| task % 4 > 0));
    cli.write("v2.jsonl", version(150, 5, |task| task % 4 > 1));
    let found = compared(&cli, &["sets", "v1.jsonl", "v2.jsonl"]);
    assert_eq!(found["verdict"], "b_succeeds_less", "{found:#}");
    assert_eq!((&found["pairing"], &found["common_tasks"]), (&json!("task"), &json!(120)));
    assert_eq!((&found["runs"], &found["differing"]), (&json!([120, 150]), &json!(30)));
    let success = &found["measures"][0];
    assert_eq!((&success["a"], &success["b"]), (&json!(0.75), &json!(0.5)));
    assert_eq!(success["difference"]["value"], -0.25);
    let steps = &found["measures"][1]["difference"];
    assert_eq!((&steps["value"], &steps["differing"]), (&json!(2.0), &json!(120)));
    assert_eq!(found["examples"][0]["b"], "0 of 1 succeed");

    let text = cli.run(["compare", "sets", "v1.jsonl", "v2.jsonl", "--report", "c.html"]).exits(0);
    assert!(text.stdout.starts_with("B succeeds less often: by −25.0 points ("), "{}", text.stdout);
    assert!(text.stdout.contains("0 only in A and 30 only in B are left out"), "{}", text.stdout);
    let page = cli.read("c.html");
    assert!(page.contains("<svg") && page.contains("B succeeds less often"));
    for outside in ["<script", "http://", "https://", "src=", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn few_runs_are_not_enough() {
    let cli = Cli::new();
    cli.write("v1.jsonl", version(9, 3, |task| task > 1));
    cli.write("v2.jsonl", version(9, 3, |task| task > 2));
    let text = cli.run(["compare", "sets", "v1.jsonl", "v2.jsonl"]).exits(0).stdout;
    assert!(text.starts_with("Not enough runs to say: success: −11.1 points ("), "{text}");
    assert!(text.contains("with 9 tasks a difference of "), "{text}");
    // Without a common task the sets are compared as they are.
    let other = version(9, 3, |task| task > 2).replace("\"t", "\"other-");
    cli.write("v3.jsonl", other);
    let found = compared(&cli, &["sets", "v1.jsonl", "v3.jsonl"]);
    assert_eq!((&found["pairing"], &found["common_tasks"]), (&json!("none"), &json!(0)));
    // The same set twice differs in nothing.
    let same = cli.run(["compare", "sets", "v1.jsonl", "v1.jsonl"]).exits(0).stdout;
    assert!(same.starts_with("No run differs in success: success: ±0.0 points ("), "{same}");
    // One task tells nothing about the others.
    cli.write("one.jsonl", version(1, 3, |_| true));
    cli.write("two.jsonl", version(1, 3, |_| false));
    let found = compared(&cli, &["sets", "one.jsonl", "two.jsonl"]);
    assert_eq!(found["measures"][0]["difference"]["interval"], Value::Null);
}

#[test]
fn policies_are_paired_by_run() {
    let cli = Cli::new();
    cli.write("runs.jsonl", version(60, 6, |task| task % 5 > 0));
    let args = ["policies", "max_steps(4)", "limits:max_turns=7", "runs.jsonl"];
    let found = compared(&cli, &args);
    assert_eq!((&found["pairing"], &found["runs"]), (&json!("run"), &json!([60, 60])));
    // Each of 48 good runs has at least 6 steps; the limit stops the third of them that has 8.
    assert_eq!(found["measures"][0]["a"], 0.0);
    let kept = found["measures"][0]["b"].as_f64().unwrap();
    assert!((kept - 32.0 / 60.0).abs() < 1e-9, "{found:#}");
    assert_eq!(found["verdict"], "b_succeeds_more");
    assert_eq!(found["differing"], 60);
    assert_eq!(found["examples"][0]["a"], "stopped after step 4 of 6");
    assert_eq!(found["measures"][2]["a"], 440.0);
    let none = compared(&cli, &["policies", "none", "none", "runs.jsonl"]);
    assert_eq!((&none["verdict"], &none["differing"]), (&json!("not_enough_runs"), &json!(0)));
    let bad = cli.run(["compare", "policies", "nothing", "none", "runs.jsonl"]).exits(2);
    assert!(bad.stderr.contains("nothing"), "{bad:#?}");
    cli.write("empty.jsonl", "");
    for args in [["sets", "gone", "runs.jsonl"], ["sets", "empty.jsonl", "runs.jsonl"]] {
        cli.run(["compare"].iter().chain(&args)).exits(2);
    }
}

#[test]
fn unknown_success_is_said() {
    let cli = Cli::new();
    let run = |id: u32| {
        json!({"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}], "task_id": id})
            .to_string()
            + "\n"
    };
    cli.write("a.jsonl", (0..20).map(run).collect::<String>());
    let text = cli.run(["compare", "sets", "a.jsonl", "a.jsonl"]).exits(0).stdout;
    assert!(text.starts_with("Success is not recorded: no run has a recorded outcome"), "{text}");
    assert!(text.contains("20 runs of A and 20 of B without a recorded outcome"), "{text}");
}

#[test]
fn long_ids_keep_their_ends() {
    let cli = Cli::new();
    // Of ids that were cut at their end, all were alike.
    let long = format!("\"run_id\":\"{}-", "x".repeat(80));
    cli.write("runs.jsonl", version(3, 6, |_| true).replace("\"run_id\":\"r", &long));
    let args = ["compare", "policies", "max_steps(4)", "none", "runs.jsonl"];
    let text = cli.run(args).exits(0).stdout;
    for end in ["xx-0: A", "xx-1: A", "xx-2: A"] {
        assert!(text.contains(end), "{end}: {text}");
    }
}
