//! Sets of runs from which little can be concluded, and what `endstop backtest` and `endstop compare` state
//! about them.

use crate::backtest::{clear, json_of, lines, run};
use crate::cli::Cli;
use serde_json::{Value, json};

#[test]
fn group_with_one_run_is_refused() {
    let cli = Cli::new();
    let mut lonely = run("lonely-7", Some(true), 6, 0);
    lonely["model"] = json!("rare");
    cli.write("runs.jsonl", clear(60, 20) + &lines([lonely]));
    let args = ["backtest", "runs.jsonl", "--policy", "repeat_call", "--calibrate", "alpha=0.05"];
    let told = cli.run(args).exits(0).stdout;
    // One of one is not 100 %.
    let row = told.lines().find(|line| line.trim_start().starts_with("rare")).unwrap();
    assert!(row.contains("100 %") && row.contains("5–100 %"), "{told}");
    let why = "rare: no rule: 1 good task in its largest group; a promise of 0.05 requires 19.";
    assert!(told.contains(why), "{told}");
}

#[test]
fn all_good_or_all_failed() {
    let cli = Cli::new();
    cli.write("good.jsonl", clear(40, 0));
    cli.write("failed.jsonl", clear(0, 40));
    let told = cli.run(["backtest", "good.jsonl", "--policy", "repeat_call"]).exits(0).stdout;
    assert!(told.contains("40 judged runs: 40 good, 0 failed"), "{told}");
    assert!(told.contains("NOTHING IS RECOMMENDED"), "{told}");
    assert!(told.contains("none of 40 runs failed, so a stop has nothing to save"), "{told}");
    let args = ["backtest", "failed.jsonl", "--policy", "repeat_call", "--calibrate", "alpha=0.1"];
    let told = cli.run(args).exits(0).stdout;
    assert!(told.contains("NOT ENOUGH RUNS TO SAY"), "{told}");
    assert!(told.contains("0 good runs of at least 20 that are needed"), "{told}");
    assert!(
        told.contains("0 good tasks in its largest group; a promise of 0.1 requires 9"),
        "{told}"
    );
    let found =
        json_of(&cli.run(["compare", "sets", "good.jsonl", "failed.jsonl", "--json"]).exits(0));
    assert_eq!(found["verdict"], "b_succeeds_less");
}

#[test]
fn retries_of_one_task_promise_nothing() {
    let cli = Cli::new();
    let retry = |nth: usize| {
        let good = !nth.is_multiple_of(4);
        let mut run = run(&format!("r-{nth}"), Some(good), 5, if good { 0 } else { 5 });
        run["task_id"] = json!("the-task");
        run
    };
    cli.write("retries.jsonl", lines((0..10_000).map(retry)));
    let told = cli.run(["backtest", "retries.jsonl", "--policy", "repeat_call"]).exits(0).stdout;
    assert!(told.contains("TRY repeat_call(3)"), "{told}");
    let says = "With your 7,500 good runs (1 good task) at most 95 % can be promised, not 1 %.";
    let one_line = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(one_line.contains(says), "{told}");
    // Compared with itself it is one task, which has no interval.
    let args = ["compare", "sets", "retries.jsonl", "retries.jsonl", "--json"];
    let found = json_of(&cli.run(args).exits(0));
    assert_eq!((&found["common_tasks"], &found["runs"]), (&json!(1), &json!([10_000, 10_000])));
    assert_eq!(found["measures"][0]["difference"]["interval"], Value::Null);
    assert_eq!(found["verdict"], "not_enough_runs");
}

#[test]
fn sets_without_common_task() {
    let cli = Cli::new();
    cli.write("a.jsonl", clear(30, 10));
    cli.write("b.jsonl", clear(20, 20).replace("\"task-", "\"other-"));
    let told = cli.run(["compare", "sets", "a.jsonl", "b.jsonl"]).exits(0).stdout;
    assert!(told.contains("no task is in both sets"), "{told}");
    assert!(told.contains("the intervals are wide"), "{told}");
}

/// Runs whose steps cost this much each.
fn priced(name: &str, usd: f64) -> Value {
    let mut run = run(name, Some(false), 6, 0);
    for step in run["steps"].as_array_mut().unwrap() {
        step["usage"] = json!({"prompt_tokens": 100, "completion_tokens": 10});
        step["cost"] = json!(usd);
    }
    run
}

#[test]
fn recorded_price_may_change() {
    let cli = Cli::new();
    // The same tokens, before and after a price was doubled: each run has its own dollars.
    cli.write("runs.jsonl", lines([priced("old-1", 0.1), priced("new-2", 0.2)]));
    let args = ["backtest", "runs.jsonl", "--limit", "max_budget_usd=0.35,0.45,5", "--json"];
    let found = json_of(&cli.run(args).exits(0));
    let points = found["curves"][0]["points"].as_array().unwrap();
    let saved: Vec<f64> = points.iter().map(|point| point["net_usd"].as_f64().unwrap()).collect();
    // $0.35: after step 4 of 0.1 and step 2 of 0.2, at $0.40 each; $0.45: after steps 5 and 3.
    let near = |at: usize, usd: f64| (saved[at] - usd).abs() < 1e-9;
    assert!(near(0, 0.2 + 0.8) && near(1, 0.1 + 0.6) && near(2, 0.0), "{saved:?}");
    assert_eq!(found["figures"]["datasets"][0]["usd"].as_f64().map(|usd| usd.round()), Some(2.0));
}

#[test]
fn unpriced_model_cannot_exceed_dollars() {
    let cli = Cli::new();
    let unpriced = |nth: usize| {
        let mut run = run(&format!("r-{nth}"), Some(nth.is_multiple_of(2)), 6, 0);
        run["model"] = json!("my-own-model");
        run
    };
    cli.write("runs.jsonl", lines((0..4).map(unpriced)));
    let args = ["backtest", "runs.jsonl", "--limit", "max_budget_usd=0.1,0.2"];
    let told = cli.run(args).exits(0).stdout;
    let says =
        "In 4 of 4 runs it cannot fire, because they record neither the dollars of each step";
    assert!(told.contains(says), "{told}");
    let told = cli.run(["backtest", "runs.jsonl", "--limit", "max_budget_usd=0.1"]).exits(0).stdout;
    assert!(
        told.contains("limits could not fire in 4 runs: the data it needs was not recorded."),
        "{told}"
    );
}
