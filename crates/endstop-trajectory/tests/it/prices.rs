//! Tests the cost of recorded turns, and which rules lack the data that a recording does not have.

use endstop_trajectory::audit::Session;
use endstop_trajectory::backtest::{Backtest, Candidate};
use endstop_trajectory::{
    Call, CallResult, Prices, Recorded, Role, Step, Totals, Trajectory, Usage,
};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

fn used(input: u64, cached: Option<u64>, written: Option<u64>, output: u64) -> Option<Box<Usage>> {
    Some(Box::new(Usage {
        prompt_tokens: Some(input),
        completion_tokens: Some(output),
        cached_tokens: cached,
        cache_write_tokens: written,
        ..Usage::default()
    }))
}

#[test]
fn model_names_find_the_makers_price() {
    let prices = Prices::new();
    let opus = prices.of("claude-opus-4-5", None).unwrap();
    for (name, provider, found) in [
        ("claude-opus-4-5", Some("anthropic"), Some(opus)),
        ("anthropic/claude-opus-4-5", None, Some(opus)),
        ("claude-opus-4-5[1m]", None, Some(opus)),
        ("Claude-Opus-4-5", None, Some(opus)),
        // A provider without a price list of its own: the list of the model's maker.
        ("claude-opus-4-5", Some("my-gateway"), Some(opus)),
        ("claude-opus-9000", None, None),
        ("<synthetic>", None, None),
        ("", None, None),
        ("/", None, None),
        ("opus", None, None),
    ] {
        // The second lookup is answered by the cache.
        for _ in 0..2 {
            assert_eq!(prices.of(name, provider), found, "{name} of {provider:?}");
        }
    }
}

#[test]
fn hour_writes_cost_more_in_every_format() {
    let usage = json!({"input_tokens": 10, "cache_read_input_tokens": 0, "output_tokens": 0,
        "cache_creation_input_tokens": 1_000_000, "cache_creation":
            {"ephemeral_5m_input_tokens": 400_000, "ephemeral_1h_input_tokens": 600_000}});
    let litellm = json!({"prompt_tokens": 1_000_010, "completion_tokens": 0,
        "cache_write_tokens": 1_000_000, "prompt_tokens_details": {"cached_tokens": 0,
            "cache_creation_token_details": {"ephemeral_1h_input_tokens": 600_000}}});
    let ours = json!({"prompt_tokens": 1_000_010, "completion_tokens": 0,
        "cache_write_tokens": 1_000_000, "cache_write_1h_tokens": 600_000});
    let claude = json!({"type": "assistant", "session_id": "s", "uuid": "a", "message":
        {"id": "m", "role": "assistant", "model": "claude-opus-4-5", "usage": usage,
         "content": [{"type": "text", "text": "x"}], "stop_reason": "end_turn"}});
    let init = json!({"type": "system", "subtype": "init", "session_id": "s",
        "model": "claude-opus-4-5", "tools": [], "claude_code_version": "2.1.0"});
    let talk = |usage: &Value| {
        json!({"messages": [{"role": "user", "content": "?"},
            {"role": "assistant", "content": "x", "model": "claude-opus-4-5", "usage": usage}]})
    };
    let price = Prices::new().of("claude-opus-4-5", None).unwrap().price;
    // A write for an hour costs twice the input, and one for five minutes 1.25 times.
    let hour = price.input.0 * 2 * 6 / 10;
    let minutes = price.cache_write.unwrap().0 * 4 / 10;
    let expected = (hour + minutes + price.input.0 / 100_000) as f64 / 1e9;
    for (format, text) in [
        ("claude-code", format!("{init}\n{claude}\n")),
        ("openai-messages", talk(&usage).to_string()),
        ("openai-messages", talk(&litellm).to_string()),
        ("openai-messages", talk(&ours).to_string()),
    ] {
        let read = crate::reading::read(format, text.as_bytes());
        let run = read.only();
        let step = run.turns().next().unwrap();
        let usd = Prices::new().usd(step, run).unwrap();
        assert!((usd - expected).abs() < 1e-9, "{format}: {usd}, {expected}: {step:?}");
    }
}

proptest! {
    #[test]
    fn cost_is_sum_of_its_parts(
        input in 0_u64..2_000_000, cached in option::of(0_u64..3_000_000),
        written in option::of(0_u64..1_000_000), output in 0_u64..500_000,
    ) {
        let prices = Prices::new();
        for model in ["claude-opus-4-5", "gpt-5", "gemini-2.5-flash", "deepseek-chat"] {
            let Some(listed) = prices.of(model, None) else { continue };
            let price = listed.price;
            let step = Step {
                usage: used(input, cached, written, output),
                model: Some(model.into()),
                ..Step::new(Role::Agent)
            };
            let usd = prices.usd(&step, &Trajectory::new("r")).unwrap();
            // Cached tokens are a part of the input, so they are not paid twice.
            let (cached, written) = (cached.unwrap_or(0), written.unwrap_or(0));
            let plain = input.saturating_sub(cached + written);
            let part = |tokens: u64, price: u64| u128::from(tokens) * u128::from(price);
            let all = part(plain, price.input.0)
                + part(cached, price.cached_input.unwrap_or(price.input).0)
                + part(written, price.cache_write.unwrap_or(price.input).0)
                + part(output, price.output.0);
            let want = all.div_ceil(1_000_000) as f64 / 1e9;
            prop_assert!((usd - want).abs() < 1e-9, "{model}: {usd}, {want}");
        }
    }
}

#[test]
fn recorded_cost_wins_over_the_price() {
    let prices = Prices::new();
    let mut run = Trajectory::new("r");
    run.model = Some("claude-opus-4-5".into());
    let step = |usage, cost_usd, model: Option<&'static str>| Step {
        usage,
        cost_usd,
        model: model.map(Into::into),
        ..Step::new(Role::Agent)
    };
    let million = || used(1_000_000, None, None, 0);
    let listed = |model| prices.of(model, None).unwrap().price.input.to_usd();
    for (what, step, want) in [
        ("recorded", step(million(), Some(0.125), None), Some(0.125)),
        ("recorded as free", step(million(), Some(0.0), None), Some(0.0)),
        ("the run's model", step(million(), None, None), Some(listed("claude-opus-4-5"))),
        ("the step's model", step(million(), None, Some("gpt-5")), Some(listed("gpt-5"))),
        ("an unknown model", step(million(), None, Some("x")), None),
        ("no usage", step(None, None, None), None),
    ] {
        assert_eq!(prices.usd(&step, &run), want, "{what}");
    }
}

#[test]
fn session_cost_is_that_of_turns() {
    let step = |cost_usd: Option<f64>, usage| Step {
        text: "a".into(),
        cost_usd,
        usage,
        model: Some("gpt-5".into()),
        ..Step::new(Role::Agent)
    };
    let usage = || used(1_000, None, None, 10);
    let prices = Prices::new();
    let priced = prices.usd(&step(None, usage()), &Trajectory::new("r")).unwrap();
    for (what, steps, total, usd, recorded, silent) in [
        (
            "all recorded",
            vec![step(Some(0.25), usage()), step(Some(0.5), None)],
            None,
            0.75,
            true,
            0,
        ),
        (
            "one recorded",
            vec![step(Some(0.25), usage()), step(None, usage())],
            None,
            0.25 + priced,
            false,
            0,
        ),
        (
            "the total",
            vec![step(Some(0.25), usage()), step(None, usage())],
            Some(2.0),
            2.0,
            true,
            0,
        ),
        ("none", vec![step(None, None), step(None, used(0, None, None, 0))], None, 0.0, false, 2),
        (
            "a negative cost",
            vec![step(Some(-3.0), usage()), step(Some(0.5), None)],
            None,
            0.5,
            true,
            0,
        ),
    ] {
        let totals = Totals { cost_usd: total, ..Totals::default() };
        let run = Trajectory { steps, totals, ..Trajectory::new("s") };
        let session = Session::of(&run, &prices);
        assert!((session.spent.usd.to_usd() - usd).abs() < 1e-9, "{what}: {:?}", session.spent);
        assert_eq!(
            (session.cost_recorded, session.spent.silent_turns),
            (recorded, silent),
            "{what}"
        );
        assert_eq!(session.models.len(), 1, "{what}");
        assert_eq!(session.models["gpt-5"].usd, session.spent.usd, "{what}");
    }
}

/// The usage of subagents, however deep, is a part of the session's.
#[test]
fn nested_subagents_are_counted_once() {
    let leaf = |tokens: u64| Trajectory {
        steps: vec![Step {
            text: "a".into(),
            usage: used(tokens, None, None, 0),
            calls: vec![Call { name: "f".into(), arguments: "{}".into(), ..Call::default() }],
            results: vec![CallResult { is_error: true, ..CallResult::default() }],
            at: Some(format!("2026-01-01T00:00:{:02}Z", tokens % 60).into()),
            ..Step::new(Role::Agent)
        }],
        ..Trajectory::new(format!("r{tokens}"))
    };
    for depth in 1..=14_u64 {
        let mut run = leaf(depth);
        for level in (1..depth).rev() {
            let sibling = leaf(100 + level);
            run = Trajectory { children: vec![run, sibling], ..leaf(level) };
        }
        let session = Session::of(&run, &Prices::new());
        let turns = 2 * depth - 1;
        let tokens = (1..=depth).sum::<u64>() + (1..depth).map(|level| 100 + level).sum::<u64>();
        assert_eq!((session.spent.turns, session.spent.tokens()), (turns, tokens), "{depth}");
        assert_eq!((session.calls, session.failures), (turns, turns), "{depth}");
        assert!(session.first_ms <= session.last_ms);
    }
}

/// A candidate whose data a recording lacks is counted as lacking, and does not fire.
#[test]
fn candidates_lack_what_is_not_recorded() {
    let candidates = json!([
        {"name": "cost", "policy": {"cost": {"usd": 0.1}}},
        {"name": "budget", "limits": {"max_budget_usd": 0.1}},
        {"name": "tokens", "limits": {"max_tokens": 10}},
        {"name": "time", "limits": {"timeout": 5}},
        {"name": "reward", "policy": {"reward": {"at_least": 0.5}}},
        {"name": "errors", "policy": {"same_error": {"times": 2}}},
        {"name": "calls", "policy": {"repeat_call": {"times": 2}}},
        {"name": "turns", "limits": {"max_turns": 2}},
        {"name": "either", "policy": {"any": [{"cost": {"usd": 9}}, {"repeat_call": {"times": 2}}]}},
    ]);
    let candidates = Candidate::read(&candidates).unwrap();
    let full = |nth: usize| Step {
        calls: vec![Call { name: "f".into(), arguments: "{}".into(), ..Call::default() }],
        results: vec![CallResult { content: "no".into(), is_error: true, ..CallResult::default() }],
        cost_usd: Some(0.25),
        reward: Some(1.0),
        usage: used(20, None, None, 1),
        at: Some(format!("2026-01-01T00:00:{:02}Z", nth * 10).into()),
        ..Step::new(Role::Agent)
    };
    type Strip = fn(&mut Step<'static>);
    let nothing: Strip = |_| {};
    let all: [(&str, Strip, bool, &[&str], &[&str]); 7] = [
        ("all", nothing, false, &[], &[]),
        ("no cost", |step| step.cost_usd = None, false, &["cost", "budget"], &["either"]),
        ("no usage", |step| step.usage = None, false, &["tokens"], &[]),
        ("no times", |step| step.at = None, false, &["time"], &[]),
        ("no time that can be read", |step| step.at = Some("soon".into()), false, &["time"], &[]),
        ("no reward", |step| step.reward = None, false, &["reward"], &[]),
        ("no results", |step| step.results.clear(), true, &["errors"], &[]),
    ];
    for (what, strip, blind, lacking, in_part) in all {
        let mut steps: Vec<_> = (0..6).map(full).collect();
        steps.iter_mut().for_each(strip);
        let mut run = Trajectory { steps, ..Trajectory::new("r") };
        run.recorded = Recorded { reward: None, success: Some(false) };
        run.tags.extend(blind.then(|| "no_results".into()));
        let mut test = Backtest::new(&candidates).unwrap();
        test.run("d", &run).unwrap();
        let figures = test.finish();
        let of =
            |is: &dyn Fn(&endstop_trajectory::backtest::CandidateFigures) -> bool| -> Vec<String> {
                let found = figures.whole().unwrap().candidates.iter().filter(|one| is(one));
                found.map(|one| one.name.clone()).collect()
            };
        assert_eq!(of(&|one| one.lacking > 0), lacking, "{what}");
        assert_eq!(of(&|one| one.lacking_in_part > 0), in_part, "{what}");
        // All others fire in a run that breaks every rule.
        assert_eq!(of(&|one| one.counts.fired == 0), lacking, "{what}");
    }
}

/// Times that are missing or go backwards do not end a run early, nor keep it from ending.
#[test]
fn times_of_turns_may_be_odd() {
    for (what, times, want) in [
        // The limit is reached while the third turn runs, so that turn is not one of the run.
        ("forward", &[Some(0), Some(3), Some(8)][..], Some(2)),
        ("all early", &[Some(0), Some(1), Some(2)], None),
        ("backwards", &[Some(9), Some(3), Some(0)], None),
        ("late, then backwards", &[Some(0), Some(9), Some(1), Some(2)], Some(1)),
        ("a gap", &[Some(0), None, Some(8), Some(9)], Some(2)),
        ("a gap at the start", &[None, Some(0), Some(7)], Some(2)),
        ("none after the limit", &[Some(0), Some(3), Some(7), None], Some(2)),
    ] {
        let step = |time: &Option<u64>| Step {
            calls: vec![Call { name: "f".into(), arguments: "{}".into(), ..Call::default() }],
            results: vec![CallResult::default()],
            at: time.map(|second| format!("2026-01-01T00:00:{second:02}Z").into()),
            ..Step::new(Role::Agent)
        };
        let run = Trajectory { steps: times.iter().map(step).collect(), ..Trajectory::new("r") };
        let limit: Value = json!([{"name": "time", "limits": {"timeout": 5}}]);
        let mut test = Backtest::new(&Candidate::read(&limit).unwrap()).unwrap();
        assert_eq!(test.judge(&run).fired, [want], "{what}");
    }
}

/// A recording may contain a negative cost. It must not pay for other steps, and a rule must see the same
/// sum as the kernel and the totals.
#[test]
fn negative_cost_pays_for_nothing() {
    let prices = Prices::new();
    let rules = Candidate::read(&json!([
        {"cost": {"usd": 1.0}},
        {"name": "budget", "limits": {"max_budget_usd": 1.0}},
    ]))
    .unwrap();
    for bad in [-1.0, -f64::MIN_POSITIVE, -f64::MAX, -0.0] {
        let steps =
            [Some(bad), Some(0.75), Some(bad), Some(0.75), Some(0.75)].map(|cost_usd| Step {
                calls: vec![Call { name: "f".into(), arguments: "{}".into(), ..Call::default() }],
                results: vec![CallResult::default()],
                cost_usd,
                ..Step::new(Role::Agent)
            });
        let run = Trajectory { steps: steps.to_vec(), ..Trajectory::new("r") };
        let fired = Backtest::new(&rules).unwrap().judge(&run).fired;
        assert_eq!(fired, [Some(4), Some(4)], "{bad}");
        let each: f64 = run.turns().filter_map(|step| prices.usd(step, &run)).sum();
        assert_eq!((each, Session::of(&run, &prices).spent.usd.to_usd()), (2.25, 2.25), "{bad}");
    }
}

/// The largest numbers that a recording can contain saturate, and reach each limit.
#[test]
fn largest_numbers_reach_the_limits() {
    let turn = |count: u64, cost: f64| Step {
        calls: vec![Call { name: "f".into(), arguments: "{}".into(), ..Call::default() }],
        results: vec![CallResult::default()],
        usage: used(count, Some(count), Some(count), count),
        cost_usd: Some(cost),
        reward: Some(f64::MAX),
        model: Some("claude-opus-4-5".into()),
        ..Step::new(Role::Agent)
    };
    let run = Trajectory { steps: vec![turn(u64::MAX, f64::MAX); 4], ..Trajectory::new("r") };
    let rules = json!([
        {"name": "tokens", "limits": {"max_tokens": 1_000_000_000}},
        {"name": "budget", "limits": {"max_budget_usd": 1_000_000.0}},
        {"cost": {"usd": 1_000_000.0}},
        {"reward": {"at_least": 1e300}},
    ]);
    let mut test = Backtest::new(&Candidate::read(&rules).unwrap()).unwrap();
    assert_eq!(test.judge(&run).fired, [Some(1); 4]);
    let mut unpaid = run.clone();
    unpaid.steps.iter_mut().for_each(|step| step.cost_usd = None);
    for run in [run, unpaid] {
        let spent = Session::of(&run, &Prices::new()).spent;
        assert_eq!((spent.tokens(), spent.usd.0), (u64::MAX, u64::MAX));
        assert_eq!((spent.turns, spent.unpriced_tokens), (4, 0));
    }
}
