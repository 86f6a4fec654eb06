//! Detectors compared with their definitions: over random runs, each rule fires at the step at
//! which a slow and literal implementation of its definition does.

use endstop_core::Registry;
use endstop_core::decide::Decider;
use endstop_core::detector::{Rule, RuleSet};
use proptest::prelude::*;
use serde_json::json;

/// A step of a run over a small alphabet, so that steps repeat often.
#[derive(Clone, Debug)]
struct Made {
    text: String,
    calls: Vec<(String, String)>,
    results: Vec<(String, bool)>,
    reward: Option<f64>,
}

impl Made {
    fn key(&self) -> String {
        self.calls
            .iter()
            .map(|(name, args)| format!("{name} {args}"))
            .collect::<Vec<_>>()
            .join("\x1e")
    }

    fn words(&self) -> String {
        self.text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn error(&self) -> Option<&str> {
        self.results.iter().find(|(_, failed)| *failed).map(|(said, _)| said.trim())
    }

    fn said(&self) -> Vec<&str> {
        self.results.iter().map(|(said, _)| said.as_str()).collect()
    }
}

fn made() -> impl Strategy<Value = Made> {
    let text = prop::sample::select(vec!["", " ", "Hm", "hm ", "so  it is", "FINAL: 3"]);
    let call =
        (prop::sample::select(vec!["a", "b"]), prop::sample::select(vec!["{}", r#"{"n":1}"#]));
    let result = (prop::sample::select(vec!["x", "y", " ", "x "]), prop::bool::weighted(0.4));
    let reward = prop::option::weighted(0.3, prop::sample::select(vec![0.0, 0.5, 1.0]));
    (text, prop::collection::vec(call, 0..3), prop::collection::vec(result, 0..3), reward).prop_map(
        |(text, calls, results, reward)| Made {
            text: text.to_owned(),
            calls: calls.into_iter().map(|(a, b)| (a.to_owned(), b.to_owned())).collect(),
            results: results.into_iter().map(|(a, b)| (a.to_owned(), b)).collect(),
            reward,
        },
    )
}

/// Returns the last `k` steps up to `t`, if the run has as many.
fn last(run: &[Made], t: usize, k: usize) -> Option<&[Made]> {
    (t >= k).then(|| &run[t - k..t])
}

fn all_equal<T: PartialEq>(of: impl IntoIterator<Item = T>) -> bool {
    let mut of = of.into_iter();
    let first = of.next();
    of.all(|other| Some(&other) == first.as_ref())
}

fn nothing_new(run: &[Made], t: usize) -> bool {
    let (before, now) = (&run[..t - 1], &run[t - 1]);
    t > 1
        && now.calls.iter().all(|call| before.iter().any(|step| step.calls.contains(call)))
        && now.said().iter().all(|said| before.iter().any(|step| step.said().contains(said)))
        && (now.words().is_empty() || before.iter().any(|step| step.words() == now.words()))
}

/// Returns `true` if the rule holds at step `t` (from 1).
fn holds(rule: &Rule, run: &[Made], t: usize) -> bool {
    let steps = |k: &u32| last(run, t, *k as usize);
    match rule {
        Rule::RepeatCall { times } => steps(times)
            .is_some_and(|s| !s[0].key().is_empty() && all_equal(s.iter().map(Made::key))),
        Rule::RepeatCallRes { times } => steps(times).is_some_and(|s| {
            !s[0].key().is_empty() && all_equal(s.iter().map(|s| (s.key(), s.said())))
        }),
        Rule::TotalRepeat { times } => {
            let calls: Vec<_> = run[..t].iter().flat_map(|step| &step.calls).collect();
            calls
                .iter()
                .any(|call| calls.iter().filter(|other| other == &call).count() >= *times as usize)
        }
        Rule::Cycle { period, times } => {
            let p = *period as usize;
            last(run, t, p * *times as usize).is_some_and(|s| {
                let keys: Vec<String> = s.iter().map(Made::key).collect();
                keys.iter().all(|key| !key.is_empty())
                    && (p..keys.len()).all(|at| keys[at] == keys[at - p])
                    && keys.iter().any(|key| *key != keys[0])
            })
        }
        Rule::Alternate { times } => holds(&Rule::Cycle { period: 2, times: *times }, run, t),
        Rule::SameError { times } => steps(times).is_some_and(|s| {
            s[0].error().is_some_and(|error| !error.is_empty())
                && all_equal(s.iter().map(Made::error))
        }),
        Rule::AnyError { times } => {
            steps(times).is_some_and(|s| s.iter().all(|s| s.error().is_some()))
        }
        Rule::SameText { times } => steps(times)
            .is_some_and(|s| !s[0].words().is_empty() && all_equal(s.iter().map(Made::words))),
        Rule::NoNew { times } => {
            t >= *times as usize && (0..*times as usize).all(|back| nothing_new(run, t - back))
        }
        Rule::Monologue { times } => {
            steps(times).is_some_and(|s| s.iter().all(|s| s.calls.is_empty()))
        }
        Rule::MaxSteps { steps } => t >= *steps as usize,
        Rule::Reward { at_least } => run[t - 1].reward.is_some_and(|reward| reward >= *at_least),
        Rule::TextMention(_) => run[t - 1].text.starts_with("FINAL:"),
        Rule::ToolCalled { name, .. } => {
            let results = run[t - 1].calls.iter().zip(&run[t - 1].results);
            results.into_iter().any(|((tool, _), (_, failed))| tool == name && !failed)
        }
        Rule::Any(rules) => rules.iter().any(|rule| holds(rule, run, t)),
        Rule::Cost { .. } | Rule::Chanting { .. } | Rule::Stuck(_) => false,
        other => panic!("no condition for {other:?}"),
    }
}

fn rules() -> Vec<Rule> {
    let mut specs = vec![
        json!({"max_steps": {"steps": 4}}),
        json!({"reward": {"at_least": 0.5}}),
        json!({"tool_called": {"name": "b"}}),
        json!({"tool_called": {"name": "b", "answer": "result"}}),
        json!({"text_mention": {"pattern": r"(?m)^[ \t]*\**FINAL(?: ANSWER)?\**[ \t]*:"}}),
        json!({"any": [{"repeat_call": {"times": 3}}, {"same_error": {"times": 2}}, "alternate"]}),
    ];
    for times in 1..5 {
        for name in [
            "repeat_call",
            "repeat_call_res",
            "total_repeat",
            "alternate",
            "same_error",
            "any_error",
            "same_text",
            "no_new",
            "monologue",
        ] {
            specs.push(json!({name: {"times": times}}));
        }
        for period in 2..4 {
            specs.push(json!({"cycle": {"period": period, "times": times}}));
        }
    }
    specs.iter().map(|spec| Rule::from_spec(spec).unwrap()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn rules_fire_as_defined(
        runs in prop::collection::vec(prop::collection::vec(made(), 0..14), 1..3),
    ) {
        let rules = rules();
        let mut rule_set = RuleSet::new(rules.clone());
        // The second run checks that `reset` forgets the first.
        for run in runs {
            rule_set.reset();
            for step in &run {
                rule_set.text(&step.text);
                for (name, arguments) in &step.calls {
                    rule_set.call(name, arguments);
                }
                for (nth, (said, failed)) in step.results.iter().enumerate() {
                    let tool = step.calls.get(nth).map_or("", |(name, _)| name);
                    rule_set.result(tool, said, *failed);
                }
                if let Some(reward) = step.reward {
                    rule_set.reward(reward);
                }
                rule_set.end();
            }
            for (rule, fired) in rules.iter().zip(rule_set.fired()) {
                let first = (1..=run.len()).find(|t| holds(rule, &run, *t));
                prop_assert_eq!(fired.map(|t| t as usize), first, "{} over {:#?}", rule, run);
            }
        }
    }
}

#[test]
fn rule_specification_round_trips() {
    for rule in rules() {
        assert_eq!(Rule::from_spec(&rule.spec()).unwrap(), rule);
    }
    for (spec, problem) in [
        (json!("repeat"), "unknown rule `repeat` (did you mean `repeat_call`?); known are "),
        (
            json!("repeat_cal"),
            "unknown rule `repeat_cal` (did you mean `repeat_call`?); known are ",
        ),
        (json!({"cycle": {"period": 65}}), "`period` must be at most 64"),
        (json!({"no_new": {"times": 0}}), "`times` must be a whole number of at least 1"),
        (json!({"no_new": {"times": 5_000_000_000u64}}), "`times` must be a whole number from 1"),
        (json!({"text_mention": {}}), "`text` must be a string (or give `pattern`)"),
        (json!({"text_mention": {"pattern": "(?=x)"}}), "pattern `(?=x)`"),
        (json!({"tool_called": {}}), "`name` must be the name of a tool"),
        (json!({"tool_called": {"name": "b", "answer": "text"}}), "`answer` must be \"result\""),
        (json!({"any": []}), "`any` needs at least one rule"),
        (json!({"chanting": {"times": 1}}), "`times` must be at least 2"),
        (json!({"cost": {"usd": 0}}), "`usd` must be more than 0"),
        (json!(["no_new"]), "a rule is a name or an object"),
        (json!({"no_new": {}, "cost": {}}), "a rule is a name, an object of one key"),
    ] {
        let error = Rule::from_spec(&spec).unwrap_err().to_string();
        assert!(error.contains(problem), "{spec}: {error}");
    }
}

/// In `decide` a call has succeeded if its own `success` states it, or else that of the step.
#[test]
fn decided_step_states_if_its_calls_succeeded() {
    for (step, fires) in [
        (json!({"calls": [{"name": "b"}]}), true),
        (json!({"calls": [{"name": "b"}], "success": false}), false),
        (json!({"calls": [{"name": "b", "success": true, "result": "42"}]}), true),
        (json!({"calls": [{"name": "b", "success": false, "result": "42"}]}), false),
        (
            json!({"calls": [{"name": "a", "success": true}, {"name": "b", "success": false}]}),
            false,
        ),
    ] {
        let policy = Registry::new().build_text(r#"tool_called={"name":"b"}"#).unwrap();
        let decided = Decider::new(policy).line(json!({ "result": step }).to_string());
        assert_eq!(decided.unwrap().unwrap()["terminate"], fires, "{step}");
    }
}
