//! Compares backtests of random runs with a slow implementation of their definition: the turn at
//! which each rule fires, the counts, the caps, the comparison within tasks, and the calibration.

use endstop_trajectory::backtest::{
    Backtest, Candidate, DatasetFigures, Family, Figures, Verdict, share,
};
use endstop_trajectory::{Call, CallResult, Recorded, Role, Step, Trajectory, Usage};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

/// The values of a turn that rules inspect.
#[derive(Clone, Debug)]
struct Turn {
    /// Each call as its name and its sorted arguments.
    calls: Vec<String>,
    results: Vec<String>,
    /// The first failed result, trimmed.
    error: Option<String>,
    text: String,
    reward: Option<f64>,
    /// Dollars up to this turn.
    cost: f64,
}

impl Turn {
    fn key(&self) -> String {
        self.calls.join("\u{1e}")
    }
}

fn turns_of(run: &Trajectory<'_>) -> Vec<Turn> {
    let mut cost = 0.0;
    run.turns()
        .map(|step| {
            cost += step.cost_usd.unwrap_or(0.0);
            let failed = step.results.iter().find(|result| result.is_error);
            Turn {
                calls: step
                    .calls
                    .iter()
                    .map(|call| {
                        let arguments: BTreeMap<String, Value> =
                            serde_json::from_str(&call.arguments).unwrap();
                        format!("{} {arguments:?}", call.name)
                    })
                    .collect(),
                results: step.results.iter().map(|result| result.content.to_string()).collect(),
                error: failed.map(|result| result.content.trim().to_owned()),
                text: step.text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" "),
                reward: step.reward,
                cost,
            }
        })
        .collect()
}

/// Returns the first turn, from 1, at which the last `times` turns satisfy `all`.
fn window(turns: &[Turn], times: usize, all: impl Fn(&[Turn]) -> bool) -> Option<u32> {
    (times..=turns.len()).find(|end| all(&turns[end - times..*end])).map(|end| end as u32)
}

/// Returns `true` if the turn at `at` brought nothing that an earlier turn did not bring.
fn is_stale(turns: &[Turn], at: usize) -> bool {
    let (before, now) = (&turns[..at], &turns[at]);
    !before.is_empty()
        && now.calls.iter().all(|call| before.iter().any(|turn| turn.calls.contains(call)))
        && (now.text.is_empty() || before.iter().any(|turn| turn.text == now.text))
        && now.results.iter().all(|told| before.iter().any(|turn| turn.results.contains(told)))
}

/// Returns the turn at which a rule fires, by its definition.
fn fires(spec: &Value, turns: &[Turn]) -> Option<u32> {
    let (name, config) = spec.as_object().unwrap().iter().next().unwrap();
    let times = config["times"].as_u64().unwrap_or(0) as usize;
    let same = |last: &[Turn], of: &dyn Fn(&Turn) -> String| {
        !of(&last[0]).is_empty() && last.iter().all(|turn| of(turn) == of(&last[0]))
    };
    let periodic = |period: usize| {
        window(turns, period * times, |last| {
            let keys: Vec<String> = last.iter().map(Turn::key).collect();
            keys.iter().all(|key| !key.is_empty())
                && (period..keys.len()).all(|at| keys[at] == keys[at - period])
                && keys.iter().any(|key| *key != keys[0])
        })
    };
    match name.as_str() {
        "repeat_call" => window(turns, times, |last| same(last, &Turn::key)),
        "repeat_call_res" => window(turns, times, |last| {
            same(last, &Turn::key) && last.iter().all(|turn| turn.results == last[0].results)
        }),
        "total_repeat" => (1..=turns.len())
            .find(|end| {
                let calls: Vec<&String> = turns[..*end].iter().flat_map(|t| &t.calls).collect();
                calls.iter().any(|call| calls.iter().filter(|c| c == &call).count() >= times)
            })
            .map(|end| end as u32),
        "alternate" => periodic(2),
        "cycle" => periodic(config["period"].as_u64().unwrap() as usize),
        "same_error" => {
            window(turns, times, |last| same(last, &|turn| turn.error.clone().unwrap_or_default()))
        }
        "any_error" => window(turns, times, |last| last.iter().all(|turn| turn.error.is_some())),
        "same_text" => window(turns, times, |last| same(last, &|turn| turn.text.clone())),
        "no_new" => (times..=turns.len())
            .find(|end| (end - times..*end).all(|at| is_stale(turns, at)))
            .map(|end| end as u32),
        "max_steps" => {
            let steps = config["steps"].as_u64().unwrap() as u32;
            (turns.len() as u32 >= steps).then_some(steps)
        }
        "reward" => window(turns, 1, |last| {
            last[0].reward.is_some_and(|reward| reward >= config["at_least"].as_f64().unwrap())
        }),
        "cost" => window(turns, 1, |last| last[0].cost >= config["usd"].as_f64().unwrap() - 1e-9),
        "any" => {
            let rules = config.as_array().unwrap().iter();
            rules.filter_map(|rule| fires(rule, turns)).min()
        }
        other => panic!("{other}"),
    }
}

fn specs() -> Vec<Value> {
    let mut specs = Vec::new();
    for times in 1..=4 {
        if times > 1 {
            for name in ["repeat_call", "repeat_call_res", "total_repeat", "same_error"] {
                specs.push(json!({name: {"times": times}}));
            }
            for name in ["any_error", "same_text"] {
                specs.push(json!({name: {"times": times}}));
            }
        }
        specs.push(json!({"no_new": {"times": times}}));
        specs.push(json!({"max_steps": {"steps": 2 * times}}));
    }
    specs.extend([
        json!({"alternate": {"times": 2}}),
        json!({"cycle": {"period": 3, "times": 2}}),
        json!({"reward": {"at_least": 0.5}}),
        json!({"cost": {"usd": 0.3}}),
        json!({"any": [{"repeat_call": {"times": 3}}, {"same_text": {"times": 2}}]}),
        json!({"any": [{"no_new": {"times": 2}}, {"cost": {"usd": 0.2}}, {"alternate": {"times": 2}}]}),
    ]);
    specs
}

fn step() -> impl Strategy<Value = Step<'static>> {
    let text = proptest::sample::select(vec!["", "", " ", "Éa  b", "éA\tb", "c"]);
    // The first two are the same arguments.
    const ARGUMENTS: &[&str] =
        &[r#"{"a":1,"b":"x"}"#, r#"{ "b": "x", "a": 1 }"#, r#"{"a":2,"b":"x"}"#, "{}"];
    let call = (0_usize..2, proptest::sample::select(ARGUMENTS));
    let told = proptest::sample::select(vec!["", "ok", " no ", "no"]);
    let cost = option::weighted(0.6, proptest::sample::select(vec![0.0, 0.1, 0.05]));
    let reward = option::weighted(0.2, proptest::sample::select(vec![0.0, 0.5, 1.0]));
    (text, vec(call, 0..3), vec((told, any::<bool>()), 0..3), reward, cost, option::of(0_u64..90))
        .prop_map(|(text, calls, results, reward, cost_usd, tokens)| Step {
            text: text.into(),
            calls: calls
                .into_iter()
                .map(|(name, arguments)| Call {
                    name: ["f", "g"][name].into(),
                    arguments: arguments.into(),
                    ..Call::default()
                })
                .collect(),
            results: results
                .into_iter()
                .map(|(content, is_error)| CallResult {
                    content: content.into(),
                    is_error,
                    ..CallResult::default()
                })
                .collect(),
            reward,
            cost_usd,
            usage: tokens.map(|n| {
                let (prompt_tokens, completion_tokens) = (Some(n), Some(2 * n));
                Box::new(Usage { prompt_tokens, completion_tokens, ..Usage::default() })
            }),
            ..Step::new(Role::Agent)
        })
}

/// A run of few different turns, so that they repeat.
fn steps() -> impl Strategy<Value = Vec<Step<'static>>> {
    (vec(step(), 1..4), vec(any::<proptest::sample::Index>(), 1..12))
        .prop_map(|(kinds, order)| order.iter().map(|at| at.get(&kinds).clone()).collect())
}

fn run_of(steps: Vec<Step<'static>>, task: Option<String>, success: bool) -> Trajectory<'static> {
    Trajectory {
        task_id: task.map(Into::into),
        recorded: Recorded { reward: None, success: Some(success) },
        steps,
        ..Trajectory::new("r")
    }
}

type Runs = Vec<(&'static str, Trajectory<'static>)>;

fn runs(most: usize) -> impl Strategy<Value = Runs> {
    let dataset = proptest::sample::select(vec!["a", "b"]);
    let run = (dataset, steps(), option::weighted(0.9, 0_u8..9), any::<bool>());
    vec(run, 1..most).prop_map(|list| {
        let run = |(dataset, steps, task, success): (_, _, Option<u8>, _)| {
            (dataset, run_of(steps, task.map(|task| format!("t{task}")), success))
        };
        list.into_iter().map(run).collect()
    })
}

fn figures(runs: &Runs, candidates: &[Candidate]) -> Figures {
    let mut test = Backtest::new(candidates).unwrap();
    for (dataset, run) in runs {
        test.run(dataset, run).unwrap();
    }
    test.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn rules_fire_by_their_definition(steps in steps()) {
        let specs = specs();
        let mut test =
            Backtest::new(&Candidate::read(&json!(specs)).unwrap()).unwrap();
        let run = run_of(steps, None, true);
        let turns = turns_of(&run);
        let judged = test.judge(&run);
        prop_assert_eq!(judged.turns as usize, turns.len());
        for (spec, fired) in specs.iter().zip(judged.fired) {
            let free = spec["cost"].is_object() && run.steps.iter().all(|s| s.cost_usd.is_none());
            let want = fires(spec, &turns).filter(|_| !free);
            prop_assert_eq!(fired, want, "{}: {:?}", spec, turns);
        }
    }
}

/// The runs of a dataset with the turn at which a candidate fires.
struct Member<'r> {
    dataset: &'r str,
    run: &'r Trajectory<'static>,
    turns: u64,
    stop: Option<u64>,
    good: bool,
    /// The first turn after which the reward was full.
    full: Option<u64>,
}

impl Member<'_> {
    /// What a stop after this turn is worth, and if it kills a good run.
    fn worth(&self, stop: Option<u64>) -> (i64, bool) {
        let Some(stop) = stop.filter(|stop| *stop < self.turns) else { return (0, false) };
        if self.good && self.full.is_none_or(|full| stop < full) {
            return (-(stop as i64), true);
        }
        ((self.turns - stop) as i64, false)
    }
}

fn members<'r>(runs: &'r Runs, dataset: &str, spec: &Value) -> Vec<Member<'r>> {
    let of = runs.iter().filter(|(name, _)| dataset == "ALL" || *name == dataset);
    of.map(|(dataset, run)| {
        let turns = turns_of(run);
        let fired = fires(spec, &turns).map(u64::from);
        let turns = turns.len() as u64;
        let stop = fired.filter(|turn| *turn < turns);
        let full = run.turns().position(|step| step.reward == Some(1.0)).map(|at| at as u64 + 1);
        Member { dataset, run, turns, stop, good: run.recorded.success == Some(true), full }
    })
    .collect()
}

fn check(figures: &DatasetFigures, runs: &Runs, specs: &[Value]) -> Result<(), TestCaseError> {
    let all = members(runs, &figures.name, &specs[0]);
    let good = all.iter().filter(|one| one.good).count() as u64;
    prop_assert_eq!((figures.runs, figures.succeeded), (all.len() as u64, good));
    let steps: u64 = all.iter().map(|one| one.turns).sum();
    prop_assert_eq!(figures.steps, steps);
    // The baseline: the length that three quarters of the runs do not exceed.
    let mut lengths: Vec<u64> = all.iter().map(|one| one.turns).collect();
    lengths.sort_unstable();
    let cap = lengths[(3 * lengths.len()).div_ceil(4) - 1];
    prop_assert_eq!(u64::from(figures.cap.turns), cap);
    let saved_by = |cap: u64| all.iter().map(|one| one.turns.saturating_sub(cap)).sum::<u64>();
    prop_assert_eq!(figures.cap.steps_saved, saved_by(cap));
    let longer = |cap: u64| all.iter().filter(|one| one.good && one.turns > cap).count() as u64;
    prop_assert_eq!(figures.cap.succ_stopped, longer(cap));
    let mut known = HashSet::new();
    for (spec, one) in specs.iter().zip(&figures.candidates) {
        let all = members(runs, &figures.name, spec);
        let stopped = |is: &dyn Fn(&Member<'_>) -> bool| {
            all.iter().filter(|one| one.stop.is_some() && is(one)).count() as u64
        };
        let saved = |is: &dyn Fn(&Member<'_>) -> bool| -> u64 {
            let of = all.iter().filter(|one| is(one));
            of.filter_map(|one| Some(one.turns - one.stop?)).sum()
        };
        let counts = &one.counts;
        prop_assert_eq!(counts.succ_stopped, stopped(&|one| one.good), "{}", spec);
        prop_assert_eq!(counts.fail_stopped, stopped(&|one| !one.good), "{}", spec);
        prop_assert_eq!(counts.succ4_stopped, stopped(&|one| one.good && one.turns >= 4));
        prop_assert_eq!(counts.steps_saved, saved(&|_| true), "{}", spec);
        prop_assert_eq!(counts.steps_saved_fail, saved(&|one| !one.good), "{}", spec);
        let worth = |stop: &dyn Fn(&Member<'_>) -> Option<u64>| -> (i64, u64) {
            let each = all.iter().map(|one| one.worth(stop(one)));
            each.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + u64::from(one.1)))
        };
        let (net, killed) = worth(&|one| one.stop);
        prop_assert_eq!((one.net_steps, counts.succ_stopped - one.done_stopped), (net, killed));
        // Against every cap that kills no more good runs.
        let caps = (1..=13).map(|cap| worth(&|_| Some(cap)));
        let best = caps.filter(|cap| cap.1 <= killed).map(|cap| cap.0).max().unwrap();
        let verdict = match net {
            _ if good < 20 => Verdict::TooFewGoodRuns,
            ..=0 => Verdict::Idle,
            net if net > best => Verdict::BetterThanACap,
            _ => Verdict::WorseThanACap,
        };
        prop_assert_eq!(one.verdict, verdict, "{}", spec);
        // Tokens of the runs in which each turn has a count.
        let tokens = |one: &Member<'_>| -> Option<Vec<u64>> {
            one.run.turns().map(|step| step.tokens()).collect()
        };
        let after: Vec<u64> = all
            .iter()
            .filter_map(|one| Some((tokens(one)?, one.stop)))
            .map(|(tokens, stop)| stop.map_or(0, |stop| tokens[stop as usize..].iter().sum()))
            .collect();
        let want = (!after.is_empty()).then(|| after.iter().sum::<u64>());
        prop_assert_eq!(one.tokens_saved, want, "{}", spec);
        // Tasks with good and failed runs.
        let mut tasks: BTreeMap<(&str, &str), [[f64; 2]; 2]> = BTreeMap::new();
        for one in &all {
            let Some(task) = one.run.task_id.as_deref() else { continue };
            let counts = tasks.entry((one.dataset, task)).or_default();
            counts[usize::from(one.good)][0] += 1.0;
            let stopped = if one.good { one.worth(one.stop).1 } else { one.stop.is_some() };
            counts[usize::from(one.good)][1] += f64::from(u8::from(stopped));
        }
        let mixed = tasks.values().filter(|[failed, good]| failed[0] > 0.0 && good[0] > 0.0);
        let apart: Vec<f64> =
            mixed.map(|[failed, good]| failed[1] / failed[0] - good[1] / good[0]).collect();
        prop_assert_eq!(figures.mixed_tasks, apart.len() as u64);
        prop_assert_eq!(one.paired.is_some(), apart.len() >= 2);
        if let Some(paired) = one.paired {
            let mean = apart.iter().sum::<f64>() / apart.len() as f64;
            prop_assert_eq!(paired.tasks, apart.len() as u64);
            prop_assert!((paired.difference - mean).abs() < 1e-12, "{}", spec);
            let (low, high) = (paired.low, paired.high);
            prop_assert!(-1.0 <= low && low <= mean + 1e-12 && mean <= high + 1e-12 && high <= 1.0);
            // Also tasks that do not differ leave it open what others would do.
            prop_assert!(high - low > 1e-9, "{} {}", low, high);
            let cut = low <= -1.0 || high >= 1.0 || (mean - low).min(high - mean) < 1e-9;
            let centre = apart.iter().sum::<f64>() / (apart.len() + 2) as f64;
            prop_assert!(
                cut || (f64::midpoint(low, high) - centre).abs() < 1e-9,
                "{} {}",
                low,
                high
            );
        }
        known.insert(one.name.clone());
    }
    prop_assert_eq!(known.len(), specs.len());
    // No candidate is better than one on the front in both respects.
    let front = figures.pareto();
    let harm = |name: &str| figures.candidate(name).unwrap().harm().value.unwrap_or(0.0);
    for one in &figures.candidates {
        let beaten = front
            .iter()
            .any(|point| point.saved >= one.net && harm(&point.name) <= harm(&one.name));
        let on_front = front.iter().any(|point| point.name == one.name);
        prop_assert!(on_front || beaten || one.net <= 0.0, "{}", one.name);
        let better = figures
            .candidates
            .iter()
            .any(|other| other.net > one.net && harm(&other.name) < harm(&one.name));
        prop_assert!(!(on_front && better), "{}", one.name);
    }
    // The recommended candidate saves the most among those within the limit.
    for limit in [0.0, 0.1, 1.0] {
        let within = |one: &&endstop_trajectory::backtest::CandidateFigures| {
            [one.good_killed, one.good4_killed]
                .iter()
                .all(|share| share.value.is_none_or(|value| value <= limit))
        };
        let most = figures.candidates.iter().filter(within).map(|one| one.net_steps).max();
        let most = most.filter(|saved| *saved > 0 && good >= 20);
        let found = figures.best_within(limit).map(|one| one.net_steps);
        prop_assert_eq!(found, most);
        // A promise requires that the whole interval is within the limit.
        let bounded = figures.best_bounded(limit);
        prop_assert!(bounded.is_none_or(|one| one.harm().high <= limit));
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

    #[test]
    fn figures_follow_from_the_runs(runs in runs(70)) {
        let specs = specs();
        let figures = figures(&runs, &Candidate::read(&json!(specs)).unwrap());
        for dataset in &figures.datasets {
            check(dataset, &runs, &specs)?;
        }
        let names: HashSet<&str> = runs.iter().map(|(name, _)| *name).collect();
        prop_assert_eq!(figures.datasets.len(), names.len() + usize::from(names.len() > 1));
    }

    #[test]
    fn calibration_follows_from_the_runs(
        runs in runs(90),
        alpha in proptest::sample::select(vec![0.05, 0.1, 0.2, 0.34, 0.5, 0.9]),
    ) {
        let families = Family::all();
        let families: Vec<Family> =
            families.into_iter().filter(|family| family.name() != "stuck").collect();
        let mut test = Backtest::new(&[]).unwrap().calibrating(&families, alpha);
        for (dataset, run) in &runs {
            test.run(dataset, run);
        }
        let figures = test.finish();
        for dataset in &figures.datasets {
            for (family, found) in families.iter().zip(&dataset.calibrated) {
                let levels: Vec<u32> = (1..=150).filter(|level| {
                    // The levels of a family, as its documentation lists them.
                    match family.name() {
                        "max_steps" => true,
                        "no_new" => *level <= 20,
                        _ => (2..=20).contains(level),
                    }
                }).collect();
                let own: Vec<Calibrating> = runs
                    .iter()
                    .filter(|(name, _)| dataset.name == "ALL" || dataset.name == *name)
                    .map(|(name, run)| Calibrating::of(name, run, family, &levels))
                    .collect();
                let all = |_: &Calibrating| true;
                let chosen = choose(&own, levels.len(), alpha, &all);
                let rule = chosen.map(|at| family.rule(levels[at]).to_string());
                prop_assert_eq!(&found.rule, &rule, "{}: {:?}", family.name(), found);
                prop_assert_eq!(found.refused.is_none(), chosen.is_some());
                let tasks = |killed: &dyn Fn(&Calibrating) -> bool| {
                    let of = own.iter().filter(|one| one.good && killed(one));
                    of.map(|one| one.key).collect::<HashSet<_>>().len() as u64
                };
                prop_assert_eq!(found.calibration_tasks, tasks(&all));
                let kills = |at: usize, one: &Calibrating| one.worth[at].1;
                let stopped = chosen.map_or(0, |at| tasks(&|one| kills(at, one)));
                prop_assert_eq!(found.calibration_tasks_stopped, stopped);
                // Each fold is judged by the choice of the others.
                let folds: Vec<Option<usize>> = (0..10)
                    .map(|fold| choose(&own, levels.len(), alpha, &|one| one.key % 10 != fold))
                    .map(|choice| choice.filter(|_| chosen.is_some()))
                    .collect();
                let at = |one: &Calibrating| folds[(one.key % 10) as usize];
                let held = &found.test;
                prop_assert_eq!(held.test_tasks, tasks(&all));
                prop_assert_eq!(
                    held.test_tasks_stopped, tasks(&|one| at(one).is_some_and(|at| kills(at, one)))
                );
                let net: i64 = own.iter().filter_map(|one| Some(one.worth[at(one)?].0)).sum();
                prop_assert_eq!(held.test_net_steps, net);
                let failed = own.iter().filter(|one| !one.good);
                prop_assert_eq!(held.test_failed, failed.clone().count() as u64);
                let stopped = failed.filter(|one| at(one).is_some_and(|at| one.worth[at].0 != 0));
                prop_assert_eq!(held.test_failed_stopped, stopped.count() as u64);
            }
        }
    }
}

/// A run as a calibration sees it.
struct Calibrating {
    key: u64,
    good: bool,
    /// For each level what its stop is worth, and if it kills the run.
    worth: Vec<(i64, bool)>,
}

impl Calibrating {
    fn of(
        dataset: &str,
        run: &Trajectory<'static>,
        family: &Family,
        levels: &[u32],
    ) -> Calibrating {
        let turns = turns_of(run);
        let good = run.recorded.success == Some(true);
        let full = run.turns().position(|step| step.reward == Some(1.0)).map(|at| at as u64 + 1);
        let member = Member { dataset, run, turns: turns.len() as u64, stop: None, good, full };
        let worth = levels
            .iter()
            .map(|level| member.worth(fires(&family.rule(*level).spec(), &turns).map(u64::from)));
        let task = run.task_id.as_deref().unwrap_or("r");
        Calibrating { key: hash(&[dataset, task]), good, worth: worth.collect() }
    }
}

/// The first of the levels that are worth most, among those that keep the promise.
fn choose(
    runs: &[Calibrating],
    levels: usize,
    alpha: f64,
    used: &dyn Fn(&Calibrating) -> bool,
) -> Option<usize> {
    let runs: Vec<&Calibrating> = runs.iter().filter(|one| used(one)).collect();
    let good = || runs.iter().filter(|one| one.good);
    let tasks = good().map(|one| one.key).collect::<HashSet<_>>().len();
    let mut best: Option<(i64, usize)> = None;
    for at in 0..levels {
        let killed = good().filter(|one| one.worth[at].1).map(|one| one.key);
        let killed = killed.collect::<HashSet<_>>().len();
        let net = runs.iter().map(|one| one.worth[at].0).sum();
        let keeps = (killed + 1) as f64 <= alpha * (tasks + 1) as f64 + 1e-9;
        if keeps && best.is_none_or(|(most, _)| net > most) {
            best = Some((net, at));
        }
    }
    best.map(|(_, at)| at)
}

/// FNV-1a of each part and the byte 255, and the finaliser of SplitMix64.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([255]));
    let mut hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9), (27, 0x94d0_49bb_1331_11eb)] {
        hash = (hash ^ hash >> shift).wrapping_mul(factor);
    }
    hash ^ hash >> 31
}

/// The interval of Clopper and Pearson, by the sums of its definition.
#[test]
fn share_interval_has_defined_tails() {
    let binomial = |n: u64, k: u64, p: f64| {
        let choose = (0..k).fold(1.0, |all, i| all * (n - i) as f64 / (i + 1) as f64);
        choose * p.powi(k as i32) * (1.0 - p).powi((n - k) as i32)
    };
    for n in [1, 2, 5, 20, 47] {
        for k in 0..=n {
            let share = share(k, n);
            let tail = if k == 0 || k == n { 0.05 } else { 0.025 };
            let above: f64 = (k..=n).map(|i| binomial(n, i, share.low)).sum();
            let below: f64 = (0..=k).map(|i| binomial(n, i, share.high)).sum();
            assert_eq!(share.value, Some(k as f64 / n as f64));
            assert!(k == 0 || (above - tail).abs() < 1e-6, "{k} of {n}: {above}");
            assert!(k == n || (below - tail).abs() < 1e-6, "{k} of {n}: {below}");
            assert_eq!((k == 0, k == n), (share.low == 0.0, share.high == 1.0), "{k} of {n}");
        }
    }
}

/// Hostile counts saturate; they do not stop the backtest.
#[test]
fn huge_and_negative_usage_is_bounded() {
    let step = |tokens: u64, cost_usd: f64| Step {
        usage: Some(Box::new(Usage {
            prompt_tokens: Some(tokens),
            completion_tokens: Some(tokens),
            ..Usage::default()
        })),
        cost_usd: Some(cost_usd),
        ..Step::new(Role::Agent)
    };
    for (what, tokens, cost) in [
        ("huge", u64::MAX, 1e300),
        ("negative", 1, -5.0),
        ("tiny", 0, 1e-300),
        ("both", u64::MAX - 1, -1e300),
    ] {
        let steps = vec![step(tokens, cost); 4];
        let runs: Runs = (0..3).map(|_| ("a", run_of(steps.clone(), None, false))).collect();
        let figures =
            figures(&runs, &Candidate::read(&json!([{"max_steps": {"steps": 2}}])).unwrap());
        let all = figures.whole().unwrap();
        let one = &all.candidates[0];
        assert!(one.tokens_saved <= all.tokens, "{what}");
        let (saved, usd) = (one.usd_saved.unwrap(), all.usd.unwrap());
        assert!(usd.is_finite() && (0.0..=usd).contains(&saved), "{what}: {saved} of {usd}");
    }
}

/// A dataset may have the name of the pooled one.
#[test]
fn pooled_figures_win_over_their_name() {
    let step = || Step { text: "a".into(), ..Step::new(Role::Agent) };
    let run = |turns: usize| run_of(vec![step(); turns], None, true);
    let runs: Runs = vec![("ALL", run(1)), ("z", run(2)), ("z", run(3))];
    let figures = figures(&runs, &[]);
    assert_eq!(figures.dataset("ALL").unwrap().runs, 3);
    assert_eq!(figures.whole().unwrap().runs, 3);
    assert_eq!(figures.dataset("z").unwrap().steps, 5);
}
