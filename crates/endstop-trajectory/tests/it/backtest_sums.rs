//! Tests that the figures of a backtest do not depend on how its runs are split and ordered.

use endstop_trajectory::backtest::{Backtest, Candidate, share};
use endstop_trajectory::{Call, CallResult, Recorded, Role, Step, Trajectory, Usage};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

fn candidates() -> Vec<Candidate> {
    let mut all = Candidate::read(&json!([
        {"repeat_call": {"times": 3}},
        {"repeat_call_res": {"times": 3}},
        {"same_error": {"times": 2}},
        {"any": [{"repeat_call": {"times": 4}}, {"no_new": {"times": 2}}]},
        {"name": "short", "limits": {"max_turns": 4}},
    ]))
    .unwrap();
    all.push(Candidate::default_limits());
    all
}

fn run() -> impl Strategy<Value = (&'static str, Trajectory<'static>)> {
    let turn = (0_u8..3, 0_u8..3, any::<bool>(), option::of(0_u64..500), option::of(0.0..0.1));
    let steps = vec(turn, 0..9);
    let dataset = proptest::sample::select(vec!["a", "b"]);
    (dataset, steps, option::of(any::<bool>()), 0_u8..4, any::<bool>()).prop_map(
        |(dataset, steps, success, task, blind)| {
            let mut run = Trajectory::new(format!("r{task}"));
            run.task_id = Some(format!("t{task}").into());
            run.recorded = Recorded { reward: None, success };
            run.tags.extend(blind.then(|| "no_results".into()));
            for (call, said, is_error, tokens, cost_usd) in steps {
                run.steps.push(Step {
                    calls: vec![Call {
                        name: "f".into(),
                        arguments: format!("{{\"a\":{call}}}").into(),
                        ..Call::default()
                    }],
                    results: vec![CallResult {
                        content: said.to_string().into(),
                        is_error,
                        ..CallResult::default()
                    }],
                    usage: tokens.map(|n| {
                        let (prompt_tokens, completion_tokens) = (Some(n), Some(n / 2));
                        Box::new(Usage { prompt_tokens, completion_tokens, ..Usage::default() })
                    }),
                    cost_usd,
                    ..Step::new(Role::Agent)
                });
            }
            (dataset, run)
        },
    )
}

fn figures<'r>(runs: impl Iterator<Item = &'r (&'static str, Trajectory<'static>)>) -> Value {
    let mut test = Backtest::new(&candidates()).unwrap();
    for (dataset, run) in runs {
        test.run(dataset, run);
    }
    serde_json::to_value(test.finish()).unwrap()
}

/// Rounds all fractions, because sums of floats depend on the order.
fn rounded(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            json!((number.as_f64().unwrap() * 1e9).round() / 1e9)
        }
        Value::Array(list) => list.into_iter().map(rounded).collect(),
        Value::Object(map) => map.into_iter().map(|(name, one)| (name, rounded(one))).collect(),
        other => other,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn split_runs_add_up(runs in vec(run(), 0..14), mask in any::<u16>()) {
        let whole = figures(runs.iter());
        let (mut one, mut other) =
            (Backtest::new(&candidates()).unwrap(), Backtest::new(&candidates()).unwrap());
        for (nth, (dataset, run)) in runs.iter().enumerate() {
            let part = if mask >> nth & 1 == 0 { &mut one } else { &mut other };
            part.run(dataset, run);
        }
        one.add(other);
        let parts = serde_json::to_value(one.finish()).unwrap();
        prop_assert_eq!(rounded(parts), rounded(whole));
    }

    #[test]
    fn order_does_not_change_figures(runs in vec(run(), 0..14)) {
        prop_assert_eq!(rounded(figures(runs.iter().rev())), rounded(figures(runs.iter())));
    }

    #[test]
    fn counts_stay_within_runs(runs in vec(run(), 0..14)) {
        let figures = figures(runs.iter());
        for dataset in figures["datasets"].as_array().unwrap() {
            let count = |name: &str| dataset[name].as_u64().unwrap();
            prop_assert_eq!(count("failed") + count("succeeded"), count("runs"));
            prop_assert!(count("succeeded_4") <= count("succeeded"));
            prop_assert!(count("steps_failed") <= count("steps"));
            for candidate in dataset["candidates"].as_array().unwrap() {
                let saved = candidate["saved"].as_f64().unwrap();
                prop_assert!((0.0..=1.0).contains(&saved), "{}", candidate);
                prop_assert!(candidate["lacking"].as_u64().unwrap() <= count("runs"));
                for name in ["good_stopped", "good4_stopped", "failed_stopped"] {
                    let share = &candidate[name];
                    if let Some(value) = share["value"].as_f64() {
                        let (low, high) =
                            (share["low"].as_f64().unwrap(), share["high"].as_f64().unwrap());
                        prop_assert!(
                            0.0 <= low && low <= value && value <= high && high <= 1.0,
                            "{}: {}", name, share
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn share_interval_contains_the_share(of in 0_u64..2_000, part in 0.0..=1.0) {
        let hits = (of as f64 * part) as u64;
        let share = share(hits, of);
        match share.value {
            None => prop_assert_eq!(of, 0),
            Some(value) => {
                prop_assert!((value - hits as f64 / of as f64).abs() < 1e-12);
                prop_assert!(share.low <= value + 1e-12 && value <= share.high + 1e-12);
                prop_assert!(share.low >= 0.0 && share.high <= 1.0);
            }
        }
    }
}
