//! Tests backtests: the counts equal those of the reference implementation, and rules behave the
//! same on recordings and on live runs.

use endstop_core::{Limits, Watch, WatchMode};
use endstop_trajectory::backtest::{
    Backtest, Calibrated, Candidate, Engine, Family, Figures, Trial, Verdict, share,
};
use endstop_trajectory::read::{Options, for_each};
use endstop_trajectory::replay::{Setting, replay};
use endstop_trajectory::{Call, CallResult, Recorded, Role, Step, Trajectory, Usage};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/reference")
}

fn no_limits() -> Limits {
    Limits {
        max_turns: None,
        max_consecutive_mistakes: None,
        max_unproductive_turns: None,
        max_empty_turns: None,
        ..Limits::default()
    }
}

#[test]
fn counts_equal_reference_implementation() {
    let expected = std::fs::read_to_string(fixtures().join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&expected).unwrap();
    for threads in [1, 3] {
        let files: Vec<PathBuf> = std::fs::read_dir(fixtures())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|end| end == "zst"))
            .collect();
        assert_eq!(files.len(), 3);
        let engine = Engine { threads, ..Engine::default() };
        let done = engine.run(&files, || Backtest::new(&Candidate::reference()?), &|_| {}).unwrap();
        assert!(done.stats.problems.is_empty());
        let results = done.backtest.finish().reference_results();
        for (dataset, counts) in expected.as_object().unwrap() {
            assert_eq!(&results[dataset], counts, "{dataset} on {threads} threads");
        }
        // The pooled dataset is the sum.
        let sum = |key: &str| -> u64 {
            expected.as_object().unwrap().values().map(|one| one[key].as_u64().unwrap()).sum()
        };
        for key in ["runs", "failed", "succeeded", "steps"] {
            assert_eq!(results["ALL"][key], json!(sum(key)));
        }
    }
}

/// Rules that inspect tool results must not guess if the recording lacks them.
#[test]
fn run_without_results_uses_calls_only() {
    let turn = || Step {
        text: "again".into(),
        calls: vec![Call { name: "ls".into(), arguments: "{}".into(), ..Call::default() }],
        ..Step::new(Role::Agent)
    };
    let mut run = Trajectory::new("a");
    run.recorded = Recorded { reward: Some(0.0), success: Some(false) };
    run.steps = (0..40).map(|_| turn()).collect();
    let policies = json!([
        {"repeat_call_res": {"times": 3}}, {"no_new": {"times": 3}}, {"stuck": {}},
        {"any": [{"stuck": {}}, {"same_error": {"times": 2}}]},
        {"any": [{"repeat_call": {"times": 5}}, {"no_new": {"times": 2}}]},
        {"repeat_call": {"times": 3}},
        {"name": "progress", "limits": {"max_unproductive_turns": 2}},
        {"name": "either", "policy": {"any": ["final_pattern", "no_new", "same_text"]}},
        {"name": "both", "policy": {"all": ["final_pattern", "no_new"]}},
    ]);
    let mut candidates = Candidate::read(&policies).unwrap();
    candidates.push(Candidate::default_limits());
    let fired = |run: &Trajectory<'_>| {
        let mut backtest = Backtest::new(&candidates).unwrap();
        backtest.run("d", run);
        let fired = backtest.judge(run).fired;
        let figures = backtest.finish();
        let all = figures.dataset("ALL").unwrap();
        let lacking: Vec<_> =
            all.candidates.iter().map(|one| (one.lacking, one.lacking_in_part)).collect();
        (fired, lacking)
    };
    let (seen, lacking) = fired(&run);
    assert_eq!(
        seen,
        [Some(3), Some(4), Some(3), Some(3), Some(3), Some(3), Some(3), Some(3), None, Some(4)]
    );
    assert_eq!(lacking, [(0, 0); 10]);
    run.tags.push("no_results".into());
    let (seen, lacking) = fired(&run);
    // The remaining members of `any` apply: five equal calls, three equal texts; and the turn
    // limit, not the lack of progress.
    let most = Limits::default().max_turns;
    assert_eq!(seen, [None, None, None, None, Some(5), Some(3), None, Some(3), None, most]);
    let (none, part, whole) = ((1, 0), (0, 1), (0, 0));
    assert_eq!(lacking, [none, none, none, none, part, whole, none, part, none, part]);
}

/// A limit on tokens cannot use a usage with only one of the two counts.
#[test]
fn token_limit_requires_both_counts() {
    let limit = json!([{"name": "tokens", "limits": {"max_tokens": 1000}}]);
    let lacking = |prompt_tokens| {
        let usage = Usage { prompt_tokens, completion_tokens: Some(10), ..Usage::default() };
        let turn = Step { usage: Some(Box::new(usage)), ..step("a", "b") };
        let mut test = Backtest::new(&Candidate::read(&limit).unwrap()).unwrap();
        test.run("made", &run(1, 1, true, vec![turn; 3]));
        test.finish().dataset("made").unwrap().candidates[0].lacking
    };
    assert_eq!((lacking(None), lacking(Some(5))), (1, 0));
}

/// A threshold is calibrated only on runs that its rule can evaluate: the others would all look as
/// if the rule stopped none.
#[test]
fn runs_without_results_are_not_calibrated() {
    let chosen = |blind: usize, seen: usize| -> Vec<Calibrated> {
        let test = Backtest::new(&Candidate::read(&json!(["repeat_call"])).unwrap()).unwrap();
        let mut test = test.calibrating(&Family::all(), 0.05);
        for nth in 0..blind + seen {
            let steps = (0..6).map(|at| step(&format!("look {at}"), "fine")).collect();
            let mut good = run(nth, nth, true, steps);
            if nth < blind {
                good.tags.push("no_results".into());
                good.steps.iter_mut().for_each(|step| step.results.clear());
            }
            test.run("made", &good);
        }
        test.finish().dataset("made").unwrap().calibrated.clone()
    };
    let looks = ["repeat_call_res", "same_error", "any_error", "no_new", "stuck"];
    for one in chosen(120, 0) {
        if looks.contains(&one.family.as_str()) {
            assert_eq!((one.left_out, one.calibration_tasks, one.test.test_tasks), (120, 0, 0));
            assert!(one.rule.is_none(), "{one:?}");
            assert!(one.refused.as_ref().unwrap().contains("requires at least 19"), "{one:?}");
        } else {
            assert_eq!(one.left_out, 0, "{one:?}");
            assert_eq!((one.calibration_tasks, one.test.test_tasks), (120, 120));
            assert!(one.rule.is_some(), "{one:?}");
        }
    }
    // Such runs do not change the result for the others.
    for (both, alone) in chosen(40, 120).into_iter().zip(chosen(0, 120)) {
        if looks.contains(&both.family.as_str()) {
            assert_eq!((both.left_out, alone.left_out), (40, 0));
            assert_eq!((both.calibration_tasks, both.test.test_tasks), (120, 120));
            assert_eq!(both.rule, alone.rule);
        }
    }
}

/// Each rule that watches in the kernel fires in the same turn as in the rule set.
#[test]
fn rule_fires_equally_in_replay() {
    let candidates = Candidate::reference().unwrap();
    let watches: Vec<Watch> = candidates
        .iter()
        .filter_map(|candidate| match &candidate.trial {
            Trial::Rule(rule) => Some(Watch { mode: WatchMode::Observe, rule: rule.clone() }),
            Trial::Kernel(_) => None,
        })
        // The kernel calculates costs itself.
        .filter(|watch| watch.rule.name() != "cost")
        .collect();
    let setting = Setting { limits: no_limits(), watches: watches.clone(), ..Setting::default() };
    let mut test = Backtest::new(&candidates).unwrap();
    let (mut compared, mut fired) = (0, 0);
    for_each(fixtures(), &Options::default(), &mut |run| {
        let Ok(run) = run else { return };
        // A result without a call cannot occur in a live run.
        let paired = |step: &Step<'_>| step.results.len() == step.calls.len();
        if !run.turns().all(paired)
            || run.turns().any(|step| step.text.trim().is_empty() && step.calls.is_empty())
        {
            return;
        }
        compared += 1;
        let judged = test.judge(&run);
        let replayed = replay(&run, &setting).unwrap();
        for (candidate, turn) in candidates.iter().zip(&judged.fired) {
            let Trial::Rule(rule) = &candidate.trial else { continue };
            if rule.name() == "cost" {
                continue;
            }
            let live = replayed.fired.iter().find(|fired| fired.rule == rule.to_string());
            assert_eq!(live.map(|fired| fired.turn), *turn, "{} in {}", candidate.name, run.run_id);
            fired += u32::from(turn.is_some());
        }
    })
    .unwrap();
    assert!(compared > 100 && fired > 500, "{compared} runs, {fired} fired");
}

fn step(call: &str, said: &str) -> Step<'static> {
    Step {
        calls: vec![Call {
            name: "sh".into(),
            arguments: format!("{{\"c\":\"{call}\"}}").into(),
            ..Call::default()
        }],
        results: vec![CallResult { content: said.to_owned().into(), ..CallResult::default() }],
        ..Step::new(Role::Agent)
    }
}

fn run(id: usize, task: usize, success: bool, steps: Vec<Step<'static>>) -> Trajectory<'static> {
    Trajectory {
        task_id: Some(format!("task-{task}").into()),
        recorded: Recorded { success: Some(success), ..Recorded::default() },
        steps,
        ..Trajectory::new(format!("run-{id}"))
    }
}

/// Good runs are short and varied; failed ones repeat themselves.
fn made(good: usize, failed: usize) -> Figures {
    let list = json!([
        {"repeat_call": {"times": 3}},
        {"max_steps": {"steps": 4}},
        {"cost": {"usd": 1}},
        {"name": "six turns", "limits": {"max_turns": 6}},
        {"name": "idle", "policy": {"same_text": {"times": 9}}},
    ]);
    let mut test = Backtest::new(&Candidate::read(&list).unwrap()).unwrap();
    for nth in 0..good {
        let steps = (0..6).map(|at| step(&format!("look {at}"), "fine")).collect();
        test.run("made", &run(nth, nth % 5, true, steps));
    }
    for nth in 0..failed {
        let steps = vec![step("again", "no"); 10];
        test.run("made", &run(1000 + nth, nth % 5, false, steps));
    }
    test.finish()
}

#[test]
fn figures_show_cost_and_savings() {
    let figures = made(40, 40);
    let made = figures.dataset("ALL").unwrap();
    assert_eq!((made.runs, made.steps, made.steps_failed), (80, 640, 400));
    let repeat = made.candidate("repeat_call(3)").unwrap();
    assert_eq!(repeat.counts.fail_stopped, 40);
    assert_eq!(repeat.counts.steps_saved, 40 * 7);
    assert_eq!(repeat.good_stopped.value, Some(0.0));
    // The runs are of five tasks.
    assert_eq!(repeat.good_stopped.high, share(0, 5).high);
    assert_eq!(repeat.verdict, Verdict::BetterThanACap);
    let paired = repeat.paired.unwrap();
    assert_eq!((paired.tasks, paired.difference), (5, 1.0));
    // A cap at four steps stops every good run.
    let cap = made.candidate("max_steps(4)").unwrap();
    assert_eq!(cap.good_stopped.value, Some(1.0));
    assert_eq!(cap.verdict, Verdict::WorseThanACap);
    let six = made.candidate("six turns").unwrap();
    assert_eq!((six.counts.succ_stopped, six.counts.fail_stopped), (0, 40));
    assert_eq!(made.candidate("idle").unwrap().verdict, Verdict::Idle);
    // No run has a cost, so the rule cannot fire, and the report states that.
    assert_eq!(made.candidate("cost(1)").unwrap().lacking, 80);
    assert_eq!((made.cap.turns, made.cap.steps_saved), (10, 0));
    assert_eq!(made.best_within(0.01).unwrap().name, "repeat_call(3)");
    let front: Vec<String> = made.pareto().into_iter().map(|point| point.name).collect();
    // The cap at four steps kills every good run, so it is worth less.
    assert_eq!(front, ["repeat_call(3)"]);
}

/// A hash map with a random order must not reach the figures: not even the last digit of a mean.
#[test]
fn same_runs_give_identical_figures() {
    let figures = || {
        let list = json!([{"repeat_call": {"times": 3}}, {"max_steps": {"steps": 4}}]);
        let mut test = Backtest::new(&Candidate::read(&list).unwrap()).unwrap();
        for nth in 0..400_usize {
            // Shares of sevenths and elevenths, whose sum rounds differently in another order.
            let long = nth % 7 < nth % 11;
            let steps = vec![step("again", "no"); if long { 10 } else { 2 }];
            test.run("made", &run(nth, nth % 41, nth % 3 == 0, steps));
        }
        let candidates = test.finish().dataset("made").unwrap().candidates.clone();
        candidates.iter().map(|one| format!("{:?}", one.paired)).collect::<Vec<_>>()
    };
    let first = figures();
    assert!(first.iter().all(|paired| paired.contains("tasks: 41")), "{first:?}");
    assert!((0..20).all(|_| figures() == first));
}

#[test]
fn few_good_runs_prevent_recommendation() {
    let figures = made(19, 40);
    let made = figures.dataset("made").unwrap();
    assert!(made.best_within(0.5).is_none());
    assert!(made.candidates.iter().all(|one| one.verdict == Verdict::TooFewGoodRuns));
}

#[test]
fn runs_without_evidence_are_skipped() {
    let mut test = Backtest::new(&Candidate::reference().unwrap()).unwrap();
    let unjudged =
        Trajectory { recorded: Recorded::default(), ..run(1, 1, true, vec![step("a", "b"); 9]) };
    test.run("made", &unjudged);
    test.run("made", &run(2, 1, true, Vec::new()));
    let tagged = |tag: &'static str| Trajectory {
        tags: vec![tag.into()],
        ..run(3, 1, false, vec![step("a", "b")])
    };
    test.run("made", &tagged("summary_only"));
    test.run("made", &tagged("single_turn"));
    let figures = test.finish();
    let skipped = figures.skipped;
    assert_eq!(
        (skipped.without_outcome, skipped.empty, skipped.summary_only, skipped.single_turn),
        (1, 1, 1, 1)
    );
    assert!(figures.datasets.is_empty());
    // The savings are known, the cost of a stop is not.
    let repeat = figures.unjudged[0].candidates.iter().find(|(name, ..)| name == "repeat_call(3)");
    assert_eq!(repeat, Some(&("repeat_call(3)".to_owned(), 1, 6)));
    let lacking = |name: &str| {
        let mut all = figures.unjudged[0].lacking.iter();
        all.find(|(own, ..)| own == name).map(|(_, all, part)| (*all, *part))
    };
    assert_eq!(lacking("repeat_call(3)"), Some((0, 0)));
    assert_eq!(lacking("cost_usd(0.1)"), Some((1, 0)), "no cost is recorded");
}

#[test]
fn invalid_candidate_is_reported() {
    for (list, problem) in [
        (json!({"repeat_call": {}}), "expected a list of candidates"),
        (json!([{"repeat_cal": {}}]), "candidate 1: "),
        (json!([{"name": "x", "limits": {"max_turn": 3}}]), "candidate 1: limit `max_turn`"),
        (json!([{"limits": {"max_turns": 3}}]), "candidate 1: missing `name`"),
        (json!(["no_new", "no_new"]), "candidate 2: duplicate name `no_new(3)`"),
        (json!([{"name": "x", "policy": "no_new", "mode": "stop"}]), "unknown key `mode`"),
    ] {
        let error = Candidate::read(&list).unwrap_err().to_string();
        assert!(error.contains(problem), "{list}: {error}");
    }
}

/// A stop after the reward was full loses nothing, and a good run that is killed has to be run again.
#[test]
fn harm_and_worth_count_what_is_lost() {
    let list = json!([{"max_steps": {"steps": 2}}, {"max_steps": {"steps": 4}}]);
    let mut test = Backtest::new(&Candidate::read(&list).unwrap()).unwrap();
    let mut done = run(1, 1, true, vec![step("a", "b"); 6]);
    done.steps[2].reward = Some(1.0);
    test.run("made", &done);
    let mut late = run(2, 2, true, vec![step("a", "b"); 6]);
    late.steps[5].reward = Some(1.0);
    test.run("made", &late);
    test.run("made", &run(3, 3, false, vec![step("a", "b"); 10]));
    let figures = test.finish();
    let made = figures.dataset("made").unwrap();
    let [two, four] = &made.candidates[..] else { panic!() };
    // At step 2 neither good run was done: both have to be run again, after 2 steps each.
    assert_eq!((two.counts.succ_stopped, two.done_stopped), (2, 0));
    assert_eq!((two.net_steps, two.counts.steps_saved), (8 - 2 - 2, 8 + 4 + 4));
    // At step 4 the first was done, so its last two steps are saved.
    assert_eq!((four.counts.succ_stopped, four.done_stopped), (2, 1));
    assert_eq!((four.net_steps, four.counts.steps_saved), (6 + 2 - 4, 6 + 2 + 2));
    assert_eq!((four.good_killed.value, four.good_stopped.value), (Some(0.5), Some(1.0)));
}

/// A run that ends by itself is not a run that a setting ended.
/// A step that is not like any other one, which differs from them by more than numbers.
fn different(n: usize) -> Step<'static> {
    let word = |n: usize| -> String {
        n.to_string().bytes().map(|digit| char::from(digit - b'0' + b'k')).collect()
    };
    step(&word(n), &word(n * 7 + 300))
}

#[test]
fn natural_end_is_not_a_stop() {
    let candidates = [Candidate::default_limits()];
    let mut test = Backtest::new(&candidates).unwrap();
    let mut own = run(1, 1, true, vec![step("a", "b")]);
    own.steps.push(Step { text: "Paris.".into(), ..Step::new(Role::Agent) });
    assert_eq!(test.run("made", &own).unwrap(), [None]);
    let long = run(2, 2, false, (0..60).map(different).collect());
    assert_eq!(test.run("made", &long).unwrap(), [Limits::default().max_turns]);
    assert_eq!(test.finish().whole().unwrap().candidates[0].counts.fired, 1);
}

#[test]
fn groups_lead_by_model_and_kind() {
    let list = json!([{"repeat_call": {"times": 3}}]);
    let mut test = Backtest::new(&Candidate::read(&list).unwrap()).unwrap();
    for nth in 0..900_usize {
        let kind = ["hard", "easy"][nth % 2];
        let good = nth % 2 == 1 || nth % 20 == 0;
        let mut one = run(nth, nth, good, vec![step("a", "b"); 5]);
        one.task_id = Some(format!("{kind}/{nth}").into());
        one.model = (nth % 3 > 0).then(|| format!("m{}", nth % 3).into());
        test.run("made", &one);
    }
    let figures = test.finish();
    let names: Vec<String> = figures.groups.iter().map(|one| one.group.to_string()).collect();
    let want = ["made · easy", "made · hard", "made · m1 · easy", "made · m1 · hard"];
    assert_eq!(names[..4], want);
    assert_eq!(figures.groups.iter().map(|one| one.runs).sum::<u64>(), 900);
    for one in &figures.groups {
        assert_eq!(one.hopeless, one.group.kind.as_deref() == Some("hard"), "{one:?}");
        assert_eq!(one.candidate("repeat_call(3)").unwrap().killed, one.succeeded);
    }
    // With too many kinds the dataset is the kind.
    let mut test = Backtest::new(&Candidate::read(&list).unwrap()).unwrap();
    for nth in 0..600_usize {
        let mut one = run(nth, nth, true, vec![step("a", "b")]);
        one.task_id = Some(format!("repository-{nth}/issue").into());
        test.run("made", &one);
    }
    let figures = test.finish();
    assert_eq!((figures.groups.len(), figures.groups[0].runs), (1, 600));
}

/// A promise over a mixture would let one kind of task take the whole allowance.
#[test]
fn calibration_holds_in_each_kind() {
    let test = Backtest::new(&[]).unwrap().calibrating(&Family::all(), 0.05);
    let mut test = test;
    for nth in 0..1200_usize {
        let (kind, steps) = if nth % 12 == 0 { ("long", 9) } else { ("short", 3) };
        let steps = (0..steps).map(different).collect();
        let mut one = run(nth, nth, true, steps);
        one.task_id = Some(format!("{kind}/{nth}").into());
        test.run("made", &one);
    }
    for nth in 0..300_usize {
        let steps = (0..12).map(different).collect();
        let mut one = run(2000 + nth, nth, false, steps);
        one.task_id = Some(format!("{}/f{nth}", ["short", "long"][nth % 2]).into());
        test.run("made", &one);
    }
    let figures = test.finish();
    let one = &figures.calibrations[0];
    assert_eq!(one.rule.as_deref(), Some("max_steps(9)"));
    assert!(one.groups.iter().all(|group| group.promised && group.tasks_stopped == 0), "{one:?}");
    assert_eq!(one.net_steps, 900);
    assert_eq!((one.test.test_tasks, one.test.test_tasks_stopped), (1200, 0));
    assert_eq!(one.test.test_net_steps, 900);
}

#[test]
fn small_group_is_refused_with_the_number_needed() {
    let mut test = Backtest::new(&[]).unwrap().calibrating(&Family::all(), 0.05);
    for nth in 0..15_usize {
        let mut good = run(nth, nth, true, vec![step("a", "b"); 2]);
        good.model = Some("m".into());
        test.run("made", &good);
        let mut failed = run(100 + nth, nth, false, vec![step("a", "b"); 9]);
        failed.model = Some("m".into());
        test.run("made", &failed);
    }
    let figures = test.finish();
    let one = &figures.calibrations[0];
    assert_eq!((one.rule.clone(), one.model.as_deref()), (None, Some("m")));
    let refused = one.refused.as_deref().unwrap();
    assert_eq!(refused, "15 good tasks in its largest group; a promise of 0.05 requires 19");
    assert_eq!(one.groups[0].needed, Some(19));
}

#[test]
fn impossible_share_calibrates_no_rule() {
    for alpha in [f64::NAN, 0.0, -0.5] {
        let mut test = Backtest::new(&[]).unwrap().calibrating(&Family::all(), alpha);
        for nth in 0..60_usize {
            let steps = (0..6).map(|at| step(&format!("look {at}"), "fine")).collect();
            test.run("made", &run(nth, nth, nth % 2 == 0, steps));
        }
        // A choice that compares with NaN must end, and must not promise anything.
        let figures = test.finish();
        let one = &figures.calibrations[0];
        assert_eq!((&one.rule, one.net_steps), (&None, 0), "{alpha}");
        assert!(one.refused.as_deref().unwrap().contains("promise"), "{alpha}: {one:?}");
        assert!(one.groups.iter().all(|group| !group.promised), "{alpha}: {one:?}");
        for one in &figures.dataset("made").unwrap().calibrated {
            assert!(one.rule.is_none() && one.refused.is_some(), "{alpha}: {one:?}");
        }
    }
}
