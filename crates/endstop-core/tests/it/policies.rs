//! Built-in policies: conformance vectors (through the code of `endstop decide`) and the rules that
//! the vectors do not cover.

use crate::vectors::{assert_differences, cases, id};
use endstop_core::decide::{Decider, Line, parse_line};
use endstop_core::policy::{FinalPattern, PolicyEnd, RewardThreshold, k_of};
use endstop_core::{
    BoxPolicy, Registry, StepContext, StepOutput, StepResult, Stop, TerminationPolicy, Verdict,
};
use serde_json::{Value, json};

fn run(file: &str, count: usize, differs: &[(&str, &str)]) {
    let registry = Registry::new();
    let mut found = Vec::new();
    for case in cases(file, count) {
        let spec = format!("{}={}", case["policy"].as_str().unwrap(), case["config"]);
        let policy = registry.build_text(&spec).unwrap();
        let mut decider = Decider::new(policy);
        let lines = case["lines"].as_array().unwrap();
        let expect = case["expect"].as_array().unwrap();
        assert_eq!(lines.len(), expect.len());
        for (line, expect) in lines.iter().zip(expect) {
            let output = decider.line(line.to_string()).unwrap().unwrap();
            let ours = if output.is_null() {
                Value::Null
            } else {
                json!({"terminate": output["terminate"], "answer": output["answer"]})
            };
            if ours != *expect {
                found.push((id(&case).to_owned(), format!("{ours} for {expect}")));
            }
        }
    }
    found.dedup_by(|a, b| a.0 == b.0);
    assert_differences(&found, differs);
}

#[test]
fn final_pattern_call_matches_vectors() {
    run("policy_final_pattern_call.json", 71, &[]);
}

#[test]
fn final_pattern_regex_matches_vectors() {
    run("policy_final_pattern_regex.json", 83, &[]);
}

#[test]
fn reward_threshold_matches_vectors() {
    run("policy_reward_threshold.json", 23, &[]);
}

#[test]
fn confidence_matches_vectors() {
    run("policy_confidence.json", 11, &[]);
}

#[test]
fn composite_matches_vectors() {
    run("policy_composite.json", 13, &[]);
}

fn step(action_type: &str, output: &str) -> StepResult {
    StepResult {
        action_type: action_type.into(),
        success: true,
        output: Some(output.into()),
        ..StepResult::default()
    }
}

fn rewarded(reward: f64) -> StepContext {
    let mut context = StepContext::default();
    context.metrics.insert("last_reward".into(), json!(reward));
    context
}

fn build(spec: &Value) -> BoxPolicy {
    Registry::new().build(spec).unwrap()
}

fn answer(verdict: &Verdict) -> Option<&str> {
    verdict.stop().and_then(|s| s.answer.as_deref())
}

#[test]
fn reward_format_matches_python() {
    // Both round the exact binary value, half to even.
    for (reward, shown) in [
        (0.125, "0.12"),
        (0.375, "0.38"),
        (2.675, "2.67"),
        (0.845, "0.84"),
        (1.005, "1.00"),
        (-0.004, "-0.00"),
        (1e9, "1000000000.00"),
    ] {
        let mut policy =
            RewardThreshold::from_config(&json!({"min_reward_threshold": -1})).unwrap();
        let verdict = policy.should_terminate(&step("code", ""), &rewarded(reward));
        let expected = format!("Reward threshold reached: {shown}");
        assert_eq!(answer(&verdict), Some(expected.as_str()));
    }
}

#[test]
fn sum_of_decimal_fractions_meets_threshold() {
    let mut policy = build(&json!({"reward_threshold": {"min_reward_threshold": 0.8}}));
    for _ in 0..7 {
        let verdict = policy.should_terminate(&step("code", "x"), &rewarded(0.1));
        assert_eq!(verdict, Verdict::Continue);
    }
    // 0.1 added eight times is 0.7999999999999999.
    let verdict = policy.should_terminate(&step("code", "x"), &rewarded(0.1));
    assert_eq!(answer(&verdict), Some("x"));
}

#[test]
fn negative_streak_overrides_required_final_action() {
    let mut policy = build(&json!({"reward_threshold": {
        "require_final_action": true, "min_reward_threshold": -100, "max_negative_streak": 2}}));
    let first = policy.should_terminate(&step("code", "x"), &rewarded(-1.0));
    assert_eq!(first, Verdict::Continue);
    let Verdict::Stop(stop) = policy.should_terminate(&step("code", "x"), &rewarded(-1.0)) else {
        panic!("no stop");
    };
    assert_eq!(stop.ends_as, PolicyEnd::ConsecutiveMistakes);
    assert_eq!(stop.answer, None);
}

#[test]
fn invalid_confidence_is_ignored() {
    for (value, stops) in [
        (json!(0.85), true),
        (json!(1), true),
        (json!("0.9"), true),
        (json!(" 90 % "), true),
        (json!("90"), false),
        (json!(1.5), false),
        (json!(-1), false),
        (json!(true), false),
        (json!("high"), false),
        (json!("nan"), false),
        (json!(null), false),
    ] {
        let mut step = step("code", "42");
        step.metadata.insert("confidence".into(), value.clone());
        let context = StepContext { step: 2, ..StepContext::default() };
        let verdict = build(&json!("confidence")).should_terminate(&step, &context);
        assert_eq!(verdict.stop().is_some(), stops, "{value}");
    }
    let mut ignored = step("code", "FINAL('x')");
    ignored.metadata.insert("confidence".into(), json!(90));
    let context = StepContext { step: 2, ..StepContext::default() };
    let verdict = build(&json!("confidence")).should_terminate(&ignored, &context);
    let stop = verdict.stop().unwrap();
    assert_eq!(stop.answer.as_deref(), Some("x"));
    assert!(stop.evidence.contains("90 is not a number in 0..1"), "{stop:?}");
}

#[test]
fn final_action_bypasses_minimum_steps() {
    let mut policy = build(&json!("confidence"));
    let verdict = policy.should_terminate(&step("final", "done"), &StepContext::default());
    assert_eq!(answer(&verdict), Some("done"));
    let verdict = policy.should_terminate(&step("code", "FINAL('x')"), &StepContext::default());
    assert_eq!(verdict, Verdict::Continue);
}

#[test]
fn confidence_fallback_is_off_in_and() {
    let context = StepContext { step: 5, ..StepContext::default() };
    let declared = step("code", "FINAL('x')");
    for spec in [
        json!({"all": ["confidence", "final_pattern"]}),
        json!({"all": [{"any": ["confidence", "reward_threshold"]}, "final_pattern"]}),
        json!({"all": ["confidence"]}),
    ] {
        let verdict = build(&spec).should_terminate(&declared, &context);
        assert_eq!(verdict, Verdict::Continue, "{spec}");
    }
    let any = build(&json!({"any": ["reward_threshold", "confidence"]}))
        .should_terminate(&declared, &context);
    assert_eq!(answer(&any), Some("x"));
}

#[test]
fn and_takes_first_nonblank_answer() {
    let mut policy = build(&json!({"all": ["reward_threshold", "final_pattern"]}));
    for i in 0..3 {
        let verdict = policy.should_terminate(&step("message", "FINAL('x')"), &rewarded(-1.0));
        assert_eq!(answer(&verdict), (i == 2).then_some("x"));
    }
    let mut alone = build(&json!({"all": ["reward_threshold"]}));
    for _ in 0..2 {
        alone.should_terminate(&step("message", "x"), &rewarded(-1.0));
    }
    let verdict = alone.should_terminate(&step("message", "x"), &rewarded(-1.0));
    assert_eq!(verdict.stop().map(|s| s.ends_as), Some(PolicyEnd::ConsecutiveMistakes));
}

#[test]
fn operators_match_specifications() {
    let declared = || BoxPolicy::new(FinalPattern::default());
    let reward = || build(&json!("reward_threshold"));
    let says = step("message", "FINAL('x')");
    let silent = step("message", "working");

    let verdict = (declared() | reward()).should_terminate(&silent, &rewarded(1.0));
    assert_eq!(answer(&verdict), Some("working"));
    let verdict = (declared() & reward()).should_terminate(&says, &rewarded(0.0));
    assert_eq!(verdict, Verdict::Continue);
    let verdict = (declared() & reward()).should_terminate(&says, &rewarded(1.0));
    assert_eq!(answer(&verdict), Some("x"));
    let mut not = !declared();
    assert!(not.should_terminate(&says, &rewarded(0.0)).stop().is_none());
    assert!(not.should_terminate(&silent, &rewarded(0.0)).stop().is_some());
    let mut two = k_of(2, vec![declared(), reward(), !declared()]);
    assert!(two.should_terminate(&says, &rewarded(0.0)).stop().is_none());
    assert!(two.should_terminate(&says, &rewarded(1.0)).stop().is_some());

    let mut late = declared().after_steps(2);
    for n in 0..4 {
        let context = StepContext { step: n, ..StepContext::default() };
        late.begin_turn();
        assert_eq!(late.on_delta("FINAL('x')", &context).is_some(), n >= 2);
        assert_eq!(late.should_terminate(&says, &context).stop().is_some(), n >= 2);
    }
    let mut thrice = declared().sustained(3);
    let stops: Vec<bool> = [&says, &says, &silent, &says, &says, &says]
        .into_iter()
        .map(|s| thrice.should_terminate(s, &rewarded(0.0)).stop().is_some())
        .collect();
    assert_eq!(stops, [false, false, false, false, false, true]);
}

#[test]
fn only_or_decides_mid_stream() {
    let look = |spec: Value| build(&spec).on_delta("FINAL('x')", &StepContext::default());
    assert!(look(json!({"any": ["reward_threshold", "final_pattern"]})).is_some());
    assert!(look(json!({"all": ["final_pattern", {"any": ["final_pattern"]}]})).is_none());
    assert!(look(json!({"all": ["final_pattern"]})).is_none());
    assert!(look(json!({"not": "final_pattern"})).is_none());
    assert!(look(json!("confidence")).is_none());
    assert!(look(json!({"final_pattern": {"matching": "regex"}})).is_none());
    assert!(look(json!({"final_pattern": {"pick": "last"}})).is_none());
    assert!(look(json!({"final_pattern": {"extract_answer": false}})).is_none());
}

#[test]
fn step_text_precedes_tool_outputs() {
    let mut policy = build(&json!("final_pattern"));
    let output = |text: &str| StepOutput {
        action_type: "tool".into(),
        name: "bash".into(),
        success: true,
        output: text.into(),
    };
    let mut turn = step("message", "Let me see: `FINAL('no')`");
    turn.outputs = vec![output("```\nFINAL('b')\n```"), output("FINAL('c')")];
    let context = StepContext::default();
    assert_eq!(answer(&policy.should_terminate(&turn, &context)), Some("b"));
    turn.output = Some("FINAL('a')".into());
    assert_eq!(answer(&policy.should_terminate(&turn, &context)), Some("a"));
}

#[test]
fn invalid_line_error_names_the_field() {
    let mut decider = Decider::new(build(&json!("final_pattern")));
    assert!(decider.line("  ").is_none());
    for (line, problem) in [
        ("{", "line 2: is not valid JSON: EOF while parsing an object at column 1"),
        ("[]", "line 3: is not a JSON object"),
        ("{}", "line 4: `result` is missing"),
        (r#"{"result": 1}"#, "line 5: `result` must be an object"),
        (
            r#"{"result": {"action_type": 1}}"#,
            "line 6: `result.action_type` must be a string or null",
        ),
        (
            r#"{"result": {"action_type": "code", "output": 1}}"#,
            "line 7: `result.output` must be a string or null",
        ),
        (
            r#"{"result": {"action_type": "code"}, "context": {"step": "x"}}"#,
            "line 8: `context.step` must be a whole number",
        ),
        (r#"{"reset": 1}"#, "line 9: `reset` must be true"),
    ] {
        let error = decider.line(line).unwrap().unwrap_err();
        assert_eq!(error.to_string(), problem);
    }
    let line = r#"{"result": {"action_type": "code", "output": null}}"#;
    let output = decider.line(line).unwrap().unwrap();
    assert_eq!(output["terminate"], json!(false));
    assert!(matches!(parse_line(line, 1), Ok(Line::Step(..))));
    let Ok(Line::Step(step, _)) = parse_line("{\"result\": {}}", 1) else { panic!("not a step") };
    assert_eq!(step.action_type, "message");
}

#[test]
fn custom_policy_needs_three_methods() {
    #[derive(Clone)]
    struct Done;
    impl TerminationPolicy for Done {
        fn name(&self) -> &'static str {
            "done"
        }
        fn should_terminate(&mut self, _: &StepResult, _: &StepContext) -> Verdict {
            Verdict::Stop(Stop::submitted("done", "always"))
        }
        fn reset(&mut self) {}
    }
    let mut policy = BoxPolicy::new(Done) & build(&json!("final_pattern"));
    let verdict = policy.should_terminate(&step("message", "FINAL(1)"), &StepContext::default());
    assert_eq!(answer(&verdict), Some("1"));
}
