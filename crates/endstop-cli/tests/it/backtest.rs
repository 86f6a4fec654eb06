//! `endstop backtest`: its counts, recommendations and refusals, and damaged input.

use crate::cli::{Cli, Done, agent_args, playing};
use endstop::testkit::Turn;
use serde_json::{Value, json};

/// A run of `steps` steps that makes the same call `again` times in a row, then others.
pub(crate) fn run(id: &str, success: Option<bool>, steps: usize, again: usize) -> Value {
    let steps: Vec<Value> = (0..steps)
        .map(|nth| {
            let file = if nth < again { 0 } else { nth };
            json!({
                "index": nth, "role": "agent", "text": format!("step {nth}"),
                "tool_calls": [{"id": format!("c{nth}"), "name": "read",
                    "arguments": {"path": format!("{file}.txt")}}],
                "tool_results": [{"call_id": format!("c{nth}"),
                    "content": format!("content of {file}"), "is_error": false}],
            })
        })
        .collect();
    json!({
        "schema": "neutral-traj/1", "run_id": id, "source": "made", "model": "gpt-4o",
        "task_id": format!("task-{}", id.trim_start_matches(|c: char| !c.is_ascii_digit())),
        "outcome": {"reward": null, "success": success},
        "termination": {"reason": "final"}, "steps": steps,
    })
}

pub(crate) fn lines(runs: impl IntoIterator<Item = Value>) -> String {
    runs.into_iter().map(|run| format!("{run}\n")).collect()
}

/// Good runs that never repeat themselves, and failed runs that do so from the first step on.
pub(crate) fn clear(good: usize, failed: usize) -> String {
    let good = (0..good).map(|nth| run(&format!("good-{nth}"), Some(true), 6, 0));
    let failed = (0..failed).map(|nth| run(&format!("failed-{nth}"), Some(false), 10, 10));
    lines(good.chain(failed))
}

pub(crate) fn json_of(done: &Done) -> Value {
    done.lines().pop().unwrap()
}

#[test]
fn counts_match_the_runs() {
    let cli = Cli::new();
    cli.write("runs.jsonl", clear(30, 20));
    let args = ["backtest", "runs.jsonl", "--policy", "repeat_call", "--limit", "max_turns=7"];
    let found = json_of(&cli.run(args.iter().chain(&["--json"])).exits(0));
    let all = &found["results"]["ALL"];
    assert_eq!(
        (&all["runs"], &all["succeeded"], &all["failed"]),
        (&json!(50), &json!(30), &json!(20))
    );
    assert_eq!((&all["steps"], &all["steps_failed"]), (&json!(380), &json!(200)));
    assert_eq!(
        all["policies"]["repeat_call(3)"],
        json!({"fired": 20, "fail_stopped": 20, "succ_stopped": 0, "succ4_stopped": 0,
               "steps_saved": 140, "steps_saved_fail": 140})
    );
    let limits = &all["policies"]["limits"];
    assert_eq!((&limits["fail_stopped"], &limits["steps_saved"]), (&json!(20), &json!(60)));
    assert_eq!(found["recommended"]["name"], "repeat_call(3)");
    assert_eq!(found["strength"], "try");
    assert_eq!(found["census"]["runs"], 50);
    assert_eq!(found["pareto"]["runs"][0]["name"], "repeat_call(3)");
    assert!(found["calibrated"].is_null() && found["refused"].is_null());

    let told = cli.run(args).exits(0).stdout;
    for says in [
        "50 judged runs: 30 good, 20 failed; 380 steps in 1 dataset.",
        "WHAT A STOP WOULD HAVE COST: good runs stopped",
        "of 30 with 4 steps or more",
        "cap at 6 turns",
        "doing nothing",
        "TRY repeat_call(3): not shown that it stops at most 1 % of good runs",
        "It stops 0 of 30 good runs, 0 % (95 %: 0–9.5 %)",
        "With your 30 good runs at most 9.5 % can be promised, not 1 %.",
        "# observe: reports that the rule fired, and stops nothing",
        "after a nudge",
    ] {
        assert!(told.contains(says), "no {says:?} in {told}");
    }
    // The cost comes before the savings.
    assert!(told.find("HAVE COST").unwrap() < told.find("HAVE SAVED").unwrap());
    for line in told.lines() {
        assert!(line.chars().count() <= 100, "{line}");
        assert!(!line.contains('\x1b'), "a colour without a terminal: {line}");
    }
}

#[test]
fn too_few_good_runs_recommend_nothing() {
    let cli = Cli::new();
    cli.write("runs.jsonl", clear(19, 40));
    let told = cli.run(["backtest", "runs.jsonl"]).exits(0).stdout;
    assert!(told.contains("NOT ENOUGH RUNS TO SAY"), "{told}");
    assert!(told.contains("19 good runs of at least 20"), "{told}");
    let found = json_of(&cli.run(["backtest", "runs.jsonl", "--json"]).exits(0));
    assert!(found["recommended"].is_null());
    assert!(found["refused"].as_str().unwrap().contains("19 good runs"));
    cli.run(["backtest", "runs.jsonl", "--write", "e.toml"]).exits(2).notes(&["nothing to write"]);
    assert!(!cli.path("e.toml").exists());
}

#[test]
fn harmful_candidate_is_not_recommended() {
    let cli = Cli::new();
    // One good run of twenty-five repeats itself, too.
    let text = clear(24, 20) + &lines([run("good-x", Some(true), 6, 4)]);
    cli.write("runs.jsonl", text);
    let args = ["backtest", "runs.jsonl", "--policy", "repeat_call"];
    let told = cli.run(args).exits(0).stdout;
    assert!(
        told.contains("no candidate saves a step and stops at most 1 % of good runs"),
        "{told}"
    );
    // The lines of the reason are above the title of the axis.
    cli.run(args.iter().chain(&["--report", "r.html"])).exits(0);
    for chart in cli.read("r.html").split("<svg").skip(1) {
        let texts: Vec<(f64, &str)> = chart
            .split("<text ")
            .skip(1)
            .filter_map(|text| {
                let (_, y) = text.split_once("y=\"")?;
                Some((y.split('"').next()?.parse().ok()?, text.split_once('>')?.1))
            })
            .collect();
        let title = texts.iter().find(|(_, text)| text.starts_with('↑')).unwrap().0;
        let reason =
            texts.iter().position(|(_, text)| text.starts_with("nothing is recom")).unwrap();
        let lines: Vec<f64> =
            texts[reason..].iter().map(|(y, _)| *y).take_while(|y| *y < title + 1.0).collect();
        assert!(lines.len() > 1, "{texts:?}");
        assert!(lines.iter().all(|y| title - y > 12.0), "{title}: {lines:?}");
    }
    let more = ["--max-harm", "5%"];
    let told = cli.run(args.iter().chain(&more)).exits(0).stdout;
    assert!(told.contains("TRY repeat_call(3): not shown that it stops at most 5 %"), "{told}");
    assert!(told.contains("It stops 1 of 25 good runs, 4 % (95 %: 0.1–20 %)"), "{told}");
}

#[test]
fn page_shows_recommended_setting() {
    let cli = Cli::new();
    cli.write("runs.jsonl", clear(400, 100));
    cli.run(["backtest", "runs.jsonl", "--sweep", "--report", "r.html"])
        .exits(0)
        .notes(&["written: r.html"]);
    let page = cli.read("r.html");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    for no in ["http://", "https://", "<script", "src=", "@import", "NaN", "inf"] {
        assert!(!page.contains(no), "{no:?} in the page");
    }
    for says in [
        "<svg",
        "prefers-color-scheme:dark",
        "stops 0 % of good runs (95 %: 0–0.7 %)",
        "at most 1 %",
        "doing nothing",
        "cap at 6 turns",
        "share of good runs stopped",
        "[[watch]]",
    ] {
        assert!(page.contains(says), "no {says:?} in the page");
    }
    // The narrow chart has letters as large as the other text.
    let narrow = page.split("class=\"narrow\">").nth(1).unwrap();
    let narrow = narrow.split("</svg>").next().unwrap();
    for size in narrow.split("font-size=\"").skip(1) {
        let size: f64 = size.split('"').next().unwrap().parse().unwrap();
        assert!(size >= 12.0, "{size}");
    }
}

#[test]
fn sweep_shows_only_the_front() {
    let cli = Cli::new();
    cli.write("runs.jsonl", clear(40, 40));
    let told = cli.run(["backtest", "runs.jsonl", "--sweep"]).exits(0).stdout;
    assert!(told.contains("not shown, because another is better in both"), "{told}");
    assert!(told.contains("TRY "), "{told}");
    // Only the candidates on the front are listed, so the table is short.
    assert!(told.lines().count() < 60, "{told}");
    let found = json_of(&cli.run(["backtest", "runs.jsonl", "--sweep", "--json"]).exits(0));
    let all = found["figures"]["datasets"][0]["candidates"].as_array().unwrap();
    assert!(all.len() > 60, "{}", all.len());
}

#[test]
fn threshold_is_calibrated_and_written() {
    let cli = Cli::new();
    cli.write("runs.jsonl", clear(120, 120));
    let args = ["backtest", "runs.jsonl", "--calibrate", "alpha=0.05"];
    let told = cli.run(args).exits(0).stdout;
    assert!(told.contains("CALIBRATED: at most 5 % of good tasks stopped"), "{told}");
    assert!(
        told.contains("gpt-4o: repeat_call(2), worth 50 % of all steps (960 of 1,920)."),
        "{told}"
    );
    assert!(told.contains("Promised in runs (0 of 120 good tasks)."), "{told}");
    let found = json_of(&cli.run(args.iter().chain(&["--json"])).exits(0));
    let chosen = found["calibrated"]["runs"].as_array().unwrap();
    assert_eq!(chosen.len(), 9);
    let repeat = chosen.iter().find(|one| one["family"] == "repeat_call").unwrap();
    assert_eq!(repeat["rule"], "repeat_call(2)");
    assert_eq!(repeat["test_good_stopped"], 0);
    assert_eq!(repeat["test_failed_stopped"], repeat["test_failed"]);
    cli.run(args.iter().chain(&["--write", "e.toml"])).exits(0);
    let written = cli.read("e.toml");
    for says in [
        "[calibrated]",
        "model = \"gpt-4o\"",
        "groups = [\"runs\"]",
        "good_tasks = 120",
        "promise = 0.05",
        "date = \"20",
        "[[watch]]",
    ] {
        assert!(written.contains(says), "no {says:?} in {written}");
    }

    // With too few tasks there is no threshold, and the report gives the number needed.
    cli.write("few.jsonl", clear(10, 10));
    let told = cli.run(["backtest", "few.jsonl", "--calibrate", "0.05"]).exits(0).stdout;
    assert!(told.contains("requires at least 19"), "{told}");
    cli.run(["backtest", "few.jsonl", "--calibrate", "0.05", "--write", "f.toml"]).exits(2);
    for wrong in ["alpha=0", "alpha=1", "alpha=many", "beta=0.1"] {
        cli.run(["backtest", "few.jsonl", "--calibrate", wrong]).exits(2).notes(&["alpha=0.05"]);
    }
}

/// Runs of two models: those of the second one repeat themselves.
fn two_models() -> String {
    let of = |model: &str, runs: Vec<Value>| -> Vec<Value> {
        let named = |mut run: Value| {
            run["model"] = json!(model);
            run["run_id"] = json!(format!("{model}-{}", run["run_id"].as_str().unwrap()));
            run
        };
        runs.into_iter().map(named).collect()
    };
    let runs = |repeats: usize| -> Vec<Value> {
        let good = (0..400).map(|nth| run(&format!("good-{nth}"), Some(true), 6, repeats));
        let failed = (0..100).map(|nth| run(&format!("failed-{nth}"), Some(false), 10, 10));
        good.chain(failed).collect()
    };
    lines(of("careful", runs(0)).into_iter().chain(of("stubborn", runs(4))))
}

#[test]
fn groups_lead_the_report() {
    let cli = Cli::new();
    cli.write("runs.jsonl", two_models());
    let args = ["backtest", "runs.jsonl", "--policy", "repeat_call", "--max-harm", "60%"];
    let told = cli.run(args).exits(0).stdout;
    assert!(told.find("BY MODEL AND KIND OF TASK").unwrap() < told.find("HAVE COST").unwrap());
    let row = |name: &str| {
        let line = told.lines().find(|line| line.trim_start().starts_with(name));
        line.unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
    };
    // 700 of 3,400 steps saved; and 700 saved, less 400 times three that were lost.
    assert!(row("careful").ends_with("21 % 0 %"), "{told}");
    assert!(row("stubborn").ends_with("-15 % 100 %"), "{told}");
    for line in told.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    let found = json_of(&cli.run(args.iter().chain(&["--json"])).exits(0));
    let groups = found["figures"]["groups"].as_array().unwrap();
    assert_eq!((groups.len(), &groups[1]["model"]), (2, &json!("stubborn")));
    cli.run(args.iter().chain(&["--report", "r.html"])).exits(0);
    assert!(cli.read("r.html").contains("By model and kind of task"));
    let told = cli.run(args.iter().chain(&["--group-by", "agent"])).exits(0).stdout;
    assert!(told.contains("careful"), "{told}");
}

/// The bound follows the upper end of the interval, not the observed share.
#[test]
fn enough_good_runs_support_a_promise() {
    let cli = Cli::new();
    cli.write("runs.jsonl", clear(400, 100));
    let args = ["backtest", "runs.jsonl", "--policy", "repeat_call"];
    let told = cli.run(args).exits(0).stdout;
    assert!(told.contains("SET repeat_call(3): at most 1 % of good runs stopped"), "{told}");
    let found = json_of(&cli.run(args.iter().chain(&["--json"])).exits(0));
    assert_eq!(found["strength"], "set");
    let told = cli.run(args.iter().chain(&["--max-harm", "0.5%"])).exits(0).stdout;
    assert!(told.contains("at most 0.7 % can be promised, not 0.5 %"), "{told}");
}

#[test]
fn calibrated_rule_is_bound_to_its_model() {
    let cli = Cli::new();
    cli.write("runs.jsonl", two_models());
    let args = ["backtest", "runs.jsonl", "--calibrate", "alpha=0.05", "--write", "e.toml"];
    cli.run(args).exits(2).notes(&["choose one with --model: careful, stubborn"]);
    cli.run(args.iter().chain(&["--model", "other"])).exits(2).notes(&["no calibrated rule"]);
    let mode = ["--model", "careful", "--mode", "stop"];
    cli.run(args.iter().chain(&mode)).exits(0);
    let written = cli.read("e.toml");
    assert!(written.contains("model = \"careful\"") && written.contains("times = 2"), "{written}");

    // Another model is a warning, which the journal stores.
    let server = playing([Turn::text("Paris."), Turn::text("Paris.")]);
    let more = ["What is the capital of France?", "--config", "e.toml", "--journal", "j.db"];
    let said =
        ["warning: the promise of at most 5 %", "was made for careful, and does not hold for"];
    cli.run(agent_args(&server, "openai-chat", &more)).exits(0).notes(&said);
    let text = std::fs::read(cli.path("j.db")).unwrap();
    let stored = String::from_utf8_lossy(&text).contains("does not hold for");
    let wal = std::fs::read(cli.path("j.db-wal")).unwrap_or_default();
    assert!(stored || String::from_utf8_lossy(&wal).contains("does not hold for"));
    cli.write(
        "bad.toml",
        "[calibrated]\nmodel = \"m\"\ndate = \"x\"\ngood_tasks = 1\npromise = 7\n",
    );
    let more = ["Task", "--config", "bad.toml"];
    cli.run(agent_args(&server, "openai-chat", &more)).exits(2).notes(&["[calibrated]", "promise"]);
}

#[test]
fn written_setting_is_accepted_by_run() {
    let server = playing([Turn::text("Paris.")]);
    let cli = Cli::new();
    cli.write("runs.jsonl", clear(30, 20));
    let candidates = [
        (vec!["--policy", "repeat_call"], vec![], "mode = \"observe\""),
        (vec!["--policy", "repeat_call"], vec!["--mode", "stop"], "mode = \"stop\""),
        (vec!["--policy", r#"{"any":["repeat_call","no_new"]}"#], vec![], "any"),
        (vec!["--policy", "stuck"], vec!["--mode", "nudge"], "mode = \"nudge\""),
        (vec!["--policy", r#"max_steps={"steps":7}"#], vec!["--mode", "stop"], "max_turns = 7"),
        (vec!["--limit", "max_turns=8"], vec![], "max_consecutive_mistakes = \"off\""),
        (vec!["--limit", "max_turns=6"], vec!["--mode", "warn"], "max_turns = 6"),
    ];
    for (what, mode, says) in candidates {
        // With 30 good runs a promise of 10 % holds.
        let base = ["backtest", "runs.jsonl", "--write", "e.toml", "--overwrite", "--max-harm"];
        let args = [&base[..], &["10%"], &what, &mode].concat();
        cli.run(&args).exits(0).notes(&["written: e.toml"]);
        let written = cli.read("e.toml");
        assert!(written.contains(says), "no {says:?} in {written}");
        let more = ["What is the capital of France?", "--config", "e.toml", "--journal", "off"];
        let done = cli.run(agent_args(&server, "openai-chat", &more)).exits(0);
        assert!(done.stdout.contains("Paris."), "{args:?}: {written}");
    }
    // A promise of 1 % does not hold, so that nothing is written that stops runs.
    let args = ["backtest", "runs.jsonl", "--policy", "repeat_call", "--write", "stop.toml"];
    let says =
        ["--mode stop needs a bound that holds", "at most 9.5 % can be promised", "--mode observe"];
    cli.run(args.iter().chain(&["--mode", "stop"])).exits(2).notes(&says);
    assert!(!cli.path("stop.toml").exists());
    cli.run(args).exits(0);
    assert!(cli.read("stop.toml").contains("--mode stop needs more good runs"));
    // `--mode` requires `--write`.
    cli.run(["backtest", "runs.jsonl", "--mode", "stop"]).exits(2).notes(&["--write"]);
    cli.run(["backtest", "runs.jsonl", "--write", "e.toml", "--mode", "hard"])
        .exits(2)
        .notes(&["nudge"]);
}

#[test]
fn explain_shows_one_run() {
    let cli = Cli::new();
    cli.write("runs.jsonl", clear(2, 2));
    let told = cli.run(["backtest", "runs.jsonl", "--explain", "failed-1"]).exits(0).stdout;
    for says in [
        "run failed-1: failed, 10 steps",
        "    1  read({\"path\":\"0.txt\"}) → content of 0",
        "■ repeat_call(3) fires: would have saved 7 steps",
        "would have stopped a failed run",
    ] {
        assert!(told.contains(says), "no {says:?} in {told}");
    }
    let told = cli.run(["backtest", "runs.jsonl", "--explain", "good-0"]).exits(0).stdout;
    assert!(told.contains("no candidate stops it before its end"), "{told}");
    let one = ["backtest", "runs.jsonl", "--explain", "failed-0", "--json", "--policy", "no_new"];
    let found = json_of(&cli.run(one).exits(0));
    assert_eq!(found["turns"], 10);
    assert_eq!(found["steps"].as_array().unwrap().len(), 10);
    cli.run(["backtest", "runs.jsonl", "--explain", "missing"]).exits(2).notes(&["no such run"]);
    cli.run(["backtest", "runs.jsonl", "--explain", "fail"])
        .exits(2)
        .notes(&["failed-0, failed-1"]);
}

#[test]
fn savings_cover_runs_with_usage() {
    let cli = Cli::new();
    let spent = |mut run: Value| {
        for step in run["steps"].as_array_mut().unwrap() {
            step["usage"] = json!({"prompt_tokens": 1000, "completion_tokens": 100});
        }
        run
    };
    let priced = spent(run("a", Some(false), 10, 10));
    let mut strange = spent(run("b", Some(false), 10, 10));
    strange["model"] = json!("an-unknown-model");
    cli.write("runs.jsonl", lines([priced, strange, run("c", Some(false), 10, 10)]));
    let args = ["backtest", "runs.jsonl", "--policy", "repeat_call", "--limit", "max_budget_usd=1"];
    let found = json_of(&cli.run(args.iter().chain(&["--json"])).exits(0));
    let all = &found["figures"]["datasets"][0];
    assert_eq!((&all["runs_with_tokens"], &all["runs_with_usd"]), (&json!(2), &json!(1)));
    assert_eq!(
        (&all["tokens"], &all["candidates"][0]["tokens_saved"]),
        (&json!(22_000), &json!(15_400))
    );
    let saved = all["candidates"][0]["usd_saved"].as_f64().unwrap();
    let usd = all["usd"].as_f64().unwrap();
    assert!(usd > 0.0 && (saved / usd - 0.7).abs() < 1e-9, "{saved} of {usd}");
    // The limit needs the cost of each step: one run has the price of its model, two have none.
    assert_eq!(all["candidates"][1]["lacking"], 2);
    let told = cli.run(args).exits(0).stdout;
    for says in [
        "Tokens cover 2 of 3 runs",
        "Dollars cover 1 of 3 runs",
        "The price list has no price for an-unknown-model.",
        "limits could not fire in 2 runs",
    ] {
        assert!(told.contains(says), "no {says:?} in {told}");
    }
}

#[test]
fn limit_with_several_values_is_curve() {
    let cli = Cli::new();
    let spent = |mut run: Value| {
        for step in run["steps"].as_array_mut().unwrap() {
            step["usage"] = json!({"prompt_tokens": 1000, "completion_tokens": 100});
        }
        run
    };
    let good = (0..30).map(|n| spent(run(&format!("g{n}"), Some(true), 4 + n % 4, 0)));
    let failed = (0..30).map(|n| spent(run(&format!("f{n}"), Some(false), 10, 10)));
    cli.write("runs.jsonl", lines(good.chain(failed)));
    let args = [
        "backtest",
        "runs.jsonl",
        "--limit",
        "max_turns=3..12",
        "--limit",
        "max_budget_usd=0.001,0.02,5",
    ];
    let found = json_of(&cli.run(args.iter().chain(&["--json"])).exits(0));
    let curves = found["curves"].as_array().unwrap();
    assert_eq!(
        (curves.len(), &curves[0]["limit"], &curves[1]["limit"]),
        (2, &json!("max_turns"), &json!("max_budget_usd"))
    );
    let points = curves[0]["points"].as_array().unwrap();
    assert_eq!(
        (points.len(), &points[0]["value"], &points[9]["value"]),
        (10, &json!("3"), &json!("12"))
    );
    let lost: Vec<f64> =
        points.iter().map(|point| point["good_lost"]["value"].as_f64().unwrap()).collect();
    assert!(lost[0] == 1.0 && lost[9] == 0.0 && lost.is_sorted_by(|a, b| a >= b), "{lost:?}");
    // At seven turns no good run is lost, and three of ten steps of each failed run are saved.
    assert_eq!((lost[4], points[4]["candidate"].as_str()), (0.0, Some("max_turns=7")));
    let share = points[4]["net_usd_share"].as_f64().unwrap();
    assert!((share - points[4]["net"].as_f64().unwrap()).abs() < 1e-9, "equal steps cost the same");
    // The budgets are judged by the price of the model.
    assert_eq!(curves[1]["points"][0]["lacking"], 0);
    assert_eq!(curves[1]["points"][0]["good_lost"]["value"], 1.0);
    let told = cli.run(args.iter().chain(&["--report", "c.html"])).exits(0).stdout;
    assert!(told.contains("MAX_TURNS: good runs lost, and what is saved"), "{told}");
    let page = cli.read("c.html");
    assert!(page.contains("<polyline") && page.contains("<polygon") && !page.contains("<script"));
    let bad = cli.run(["backtest", "runs.jsonl", "--limit", "max_turns=9..3"]).exits(2);
    assert!(bad.stderr.contains("expected a range such as max_turns=5..40"), "{bad:#?}");
}

/// A transcript of Cursor with the same call `calls` times, without any results.
pub(crate) fn transcript(calls: usize, said: &str) -> String {
    let call = json!({"type": "tool_use", "name": "Shell", "input": {"command": "ls"}});
    let text = |text: &str| json!({"type": "text", "text": text});
    let message = |role: &str, part: Value| json!({"role": role, "message": {"content": [part]}});
    lines(
        std::iter::once(message("user", text("go")))
            .chain((0..calls).map(|_| message("assistant", call.clone())))
            .chain((!said.is_empty()).then(|| message("assistant", text(said))))
            .chain([json!({"type": "turn_ended", "status": "success"})]),
    )
}

#[test]
fn missing_data_is_reported_per_candidate() {
    let cli = Cli::new();
    cli.write("cursor.jsonl", transcript(30, ""));
    let args = ["backtest", "cursor.jsonl"];
    let either = ["--policy", r#"{"any":["repeat_call","stuck"]}"#];
    let told = cli.run(args).exits(0).stdout;
    for says in [
        "stuck(2,4,3,7) could not fire in 1 run: the data it needs was not recorded.",
        "default limits evaluated 1 run in part: some of the data it needs was not recorded.",
    ] {
        assert!(told.contains(says), "no {says:?} in {told}");
    }
    let cells = |name: &str| {
        let row = told.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        row.split_whitespace().rev().take(2).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(cells("stuck(2,4,3,7)"), ["data", "no"]);
    assert_eq!(cells("repeat_call(3)"), ["27", "1"]);
    assert_eq!(cells("default limits"), ["5", "1"]);
    assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
    cli.run(args.iter().chain(&["--report", "r.html"])).exits(0);
    assert!(cli.read("r.html").contains("stuck(2,4,3,7) could not fire in 1 run"));
    let found = json_of(&cli.run(args.iter().chain(&either).chain(&["--json"])).exits(0));
    let unjudged = &found["figures"]["unjudged"][0];
    let name = "any[repeat_call(3),stuck(2,4,3,7)]";
    assert_eq!(unjudged["lacking"], json!([[name, 0, 1]]));
    assert_eq!(unjudged["candidates"], json!([[name, 1, 27]]));

    cli.write("o.json", r#"{"cursor": false}"#);
    let given = ["--outcomes", "o.json"];
    let told = cli.run(args.iter().chain(&either).chain(&given)).exits(0).stdout;
    assert!(told.contains("evaluated 1 run in part"), "{told}");
    let found = json_of(&cli.run(args.iter().chain(&given).chain(&["--json"])).exits(0));
    let all = found["figures"]["datasets"][0]["candidates"].as_array().unwrap();
    let lacking = |name: &str| {
        let one = all.iter().find(|one| one["name"] == name).unwrap();
        (one["lacking"].as_u64().unwrap(), one["lacking_in_part"].as_u64().unwrap())
    };
    assert_eq!(lacking("stuck(2,4,3,7)"), (1, 0));
    assert_eq!((lacking("default limits"), lacking("repeat_call(3)")), ((0, 1), (0, 0)));
}

#[test]
fn calibration_omits_runs_without_results() {
    let cli = Cli::new();
    std::fs::create_dir(cli.path("cursor")).unwrap();
    let mut outcomes = serde_json::Map::new();
    for nth in 0..120 {
        cli.write(&format!("cursor/s{nth}.jsonl"), transcript(5, "Done."));
        outcomes.insert(format!("s{nth}"), json!(true));
    }
    cli.write("o.json", Value::Object(outcomes).to_string());
    let args = ["backtest", "cursor", "--outcomes", "o.json", "--calibrate", "alpha=0.05"];
    let told = cli.run(args.iter().chain(&["--report", "r.html"])).exits(0).stdout;
    let says = "120 runs of cursor left out for repeat_call_res, same_error, any_error, no_new, stuck: tool results were not recorded.";
    let flat = told.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains(says), "{told}");
    assert!(cli.read("r.html").contains(says));
    let row = |name: &str| {
        let chosen = told.split("CALIBRATED").nth(1).unwrap();
        chosen.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_owned()
    };
    for family in ["stuck", "same_error", "any_error", "no_new", "repeat_call_res"] {
        assert!(row(family).contains("none: 0 good tasks to calibrate on"), "{told}");
    }
    assert!(row("max_steps").contains("0 %"), "{told}");
    assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
    let found = json_of(&cli.run(args.iter().chain(&["--json"])).exits(0));
    let chosen = found["calibrated"]["cursor"].as_array().unwrap();
    let left_out = chosen.iter().filter(|one| one["left_out"] == 120 && one["rule"].is_null());
    assert_eq!(left_out.count(), 5, "{chosen:#?}");
    assert_eq!(chosen.iter().filter(|one| one["left_out"] == 0).count(), 4);
}

#[cfg(feature = "parquet")]
#[test]
fn table_has_one_row_per_run() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::Field;
    let cli = Cli::new();
    cli.write("runs.jsonl", clear(3, 2) + &lines([run("open", None, 4, 4)]));
    let args = ["backtest", "runs.jsonl", "--policy", "repeat_call", "--parquet", "t.parquet"];
    cli.run(args).exits(0).notes(&["written: t.parquet"]);
    let file = std::fs::File::open(cli.path("t.parquet")).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let mut rows: Vec<Vec<(String, Field)>> = reader
        .get_row_iter(None)
        .unwrap()
        .map(|row| {
            row.unwrap()
                .get_column_iter()
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect()
        })
        .collect();
    assert_eq!(rows.len(), 6);
    rows.sort_by_key(|row| row[1].1.to_string());
    let names: Vec<&str> = rows[0].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        ["dataset", "run_id", "task_id", "model", "success", "steps", "repeat_call(3)"]
    );
    let failed = &rows[0];
    assert_eq!(failed[1].1, Field::Str("failed-0".to_owned()));
    assert_eq!((&failed[4].1, &failed[5].1), (&Field::Bool(false), &Field::Int(10)));
    assert_eq!(failed[6].1, Field::Int(3));
    let good = &rows[2];
    assert_eq!((&good[4].1, &good[6].1), (&Field::Bool(true), &Field::Null));
    assert_eq!(rows[5][4].1, Field::Null, "its success is unknown");
}

/// A run of the journal that makes the same call until its limit.
fn stuck_run(cli: &Cli, turns: &str) {
    let server = playing([Turn::call("shell", &json!({"command": "echo same"}))]);
    let args = ["Go.", "--tool", "shell", "--watch", "off", "--max-unproductive-turns", "off"];
    let args = [&args[..], &["--max-turns", turns, "--journal", "runs/j.db"]].concat();
    cli.run(agent_args(&server, "openai-chat", &args)).exits(20);
}

#[test]
fn stopped_runs_are_chosen_to_continue() {
    let cli = Cli::new();
    std::fs::create_dir(cli.path("runs")).unwrap();
    for turns in ["5", "6", "7"] {
        stuck_run(&cli, turns);
    }
    // The last turn is the third: a stop there changes nothing.
    stuck_run(&cli, "3");
    cli.write("runs/other.jsonl", clear(2, 4));
    let args = ["backtest", "runs", "--policy", "repeat_call={\"times\":3}", "--branch", "2"];
    let text = cli.run(args).exits(0).stdout;
    let commands: Vec<&str> =
        text.lines().filter(|line| line.contains("endstop branch ")).collect();
    assert_eq!(commands.len(), 2, "{text}");
    for says in [
        "2 of 3 runs that repeat_call(3) would have stopped",
        " --at 3 --journal runs/j.db   # turn 3 of ",
        ", failed",
        "endstop compare runs ",
        "4 runs that repeat_call(3) would have stopped cannot be continued",
    ] {
        assert!(text.contains(says), "no {says:?} in {text}");
    }
    // The same choice each time, and a larger one contains it.
    let again = cli.run(args).exits(0).stdout;
    assert!(commands.iter().all(|command| again.contains(command)), "{again}");
    let json = json_of(&cli.run([&args[..5], &["9", "--json"]].concat()).exits(0));
    let found = &json["branches"];
    assert_eq!((&found["can_be_continued"], &found["cannot_be_continued"]), (&json!(3), &json!(4)));
    let runs = found["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &runs[0]["at"], &runs[0]["success"]), (3, &json!(3), &json!(false)));
    assert!(commands[1].contains(runs[1]["run_id"].as_str().unwrap()), "{commands:?}");

    // The printed command works.
    let command = runs[0]["command"].as_str().unwrap();
    let args: Vec<&str> = command.split(' ').skip(1).collect();
    let server = playing([Turn::text("I stop here.")]);
    let url = server.base_url();
    let more = ["--trust-journal", "--base-url", &url, "--json"];
    let outcome = cli.run([&args[..], &more].concat()).exits(0).outcome();
    assert_eq!((&outcome["branched_from"]["turn"], &outcome["turns"]), (&json!(3), &json!(1)));

    let none = ["backtest", "runs", "--policy", "repeat_call={\"times\":30}", "--branch", "2"];
    let text = cli.run(none).exits(0).stdout;
    assert!(
        text.ends_with("repeat_call(30) would have stopped no run before its last turn\n"),
        "{text}"
    );
    let good = ["backtest", "runs/other.jsonl", "--limit", "max_turns=2,3", "--branch", "2"];
    let text = cli.run(good).exits(0).stdout;
    assert!(text.contains("--branch: none of the candidates is recommended"), "{text}");
    cli.run(["backtest", "runs", "--branch", "0"]).exits(2);
}
