//! Compares simulated agents with known differences: how often an interval shows a difference that is
//! not there, how often it contains the true one, and that order and division change nothing.

use endstop_trajectory::compare::{Comparison, Measure, Pairing, Policies, Set, Sets};
use endstop_trajectory::{Ending, Prices, Recorded, Role, Step, Trajectory, Usage};

/// A fixed sequence of numbers from 0 to 1.
struct Random(u64);

impl Random {
    fn share(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The high bits, because the low ones of such a generator have a short period.
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

fn run(task: usize, trial: usize, success: bool) -> Trajectory<'static> {
    Trajectory {
        task_id: Some(format!("t{task}").into()),
        steps: vec![Step::new(Role::Agent)],
        recorded: Recorded { success: Some(success), ..Recorded::default() },
        ..Trajectory::new(format!("r{task}-{trial}"))
    }
}

/// Compares two agents on tasks of different difficulty, with some attempts at each. B succeeds in
/// `better` more of the attempts.
fn simulated(random: &mut Random, tasks: usize, attempts: usize, better: f64) -> Comparison {
    let (mut sets, prices) = (Sets::default(), Prices::new());
    for task in 0..tasks {
        // The mean is 0.6 for A; tasks are easy, hard or between.
        let own = [0.15, 0.35, 0.6, 0.85, 0.9][(random.share() * 5.0) as usize] + 0.03;
        for trial in 0..attempts {
            let success = |random: &mut Random, share: f64| random.share() < share;
            sets.a.add(&run(task, trial, success(random, own - better / 2.0)), &prices);
            sets.b.add(&run(task, trial, success(random, own + better / 2.0)), &prices);
        }
    }
    sets.finish("a", "b")
}

#[test]
fn equal_agents_seldom_differ() {
    let mut random = Random(7);
    for (tasks, attempts) in [(5, 1), (12, 1), (40, 1), (25, 4)] {
        let found = (0..500).map(|_| simulated(&mut random, tasks, attempts, 0.0));
        let false_alarms = found
            .filter(|found| found.measures[0].difference.is_some_and(|one| one.is_shown()))
            .count();
        // 6 % of 500 are 30; three standard errors above the nominal 5 % are 40.
        assert!(false_alarms <= 30, "{tasks} tasks, {attempts} attempts: {false_alarms} of 500");
    }
}

#[test]
fn intervals_contain_true_difference() {
    let mut random = Random(8);
    for (tasks, attempts, better) in [(30, 1, 0.1), (30, 3, 0.05), (100, 1, 0.02)] {
        let held = (0..300)
            .filter(|_| {
                let found = simulated(&mut random, tasks, attempts, better);
                let [low, high] = found.measures[0].difference.unwrap().interval.unwrap();
                low <= better && better <= high
            })
            .count();
        assert!(held >= 279, "{tasks} tasks, {better}: {held} of 300");
    }
}

#[test]
fn large_difference_is_shown() {
    let mut random = Random(9);
    let shown = (0..50).filter(|_| {
        let found = simulated(&mut random, 150, 4, 0.1);
        found.measures[0].difference.is_some_and(|one| one.is_above_zero())
    });
    assert!(shown.count() >= 45);
    // The detectable difference shrinks with the number of tasks.
    let reach = |tasks| {
        let found = simulated(&mut Random(3), tasks, 1, 0.0);
        found.measures[0].difference.unwrap().detectable.unwrap()
    };
    assert!(reach(400) < reach(100) && reach(100) < reach(25));
}

#[test]
fn order_and_division_change_nothing() {
    let prices = Prices::new();
    let all: Vec<_> = (0..60).map(|n| run(n % 17, n, n % 3 == 0)).collect();
    let mut whole = Sets::default();
    all.iter().for_each(|run| whole.a.add(run, &prices));
    all.iter().rev().take(40).for_each(|run| whole.b.add(run, &prices));
    let mut parts = Sets::default();
    for chunk in all.chunks(7).rev() {
        let mut part = Set::default();
        chunk.iter().rev().for_each(|run| part.add(run, &prices));
        parts.a.merge(part);
    }
    parts.b = whole.b.clone();
    assert_eq!(whole.finish("a", "b"), parts.finish("a", "b"));
}

#[test]
fn retries_weigh_as_one_task() {
    let (mut sets, prices) = (Sets::default(), Prices::new());
    for trial in 0..10_000 {
        sets.a.add(&run(0, trial, true), &prices);
        sets.b.add(&run(0, trial, false), &prices);
    }
    for task in 1..40 {
        sets.a.add(&run(task, 0, true), &prices);
        sets.b.add(&run(task, 0, true), &prices);
    }
    let found = sets.finish("a", "b");
    let success = found.measures[0].difference.unwrap();
    assert_eq!((success.value, success.tasks, success.differing), (-1.0 / 40.0, 40, 1));
    assert!(!success.is_shown(), "one task of forty");
}

#[test]
fn unpaired_sets_are_named() {
    let (mut sets, prices) = (Sets::default(), Prices::new());
    for task in 0..50 {
        sets.a.add(&run(task, 0, task % 10 > 0), &prices);
        sets.b.add(&run(task + 1000, 0, task % 10 > 6), &prices);
    }
    let found = sets.finish("a", "b");
    assert_eq!((found.pairing, found.common_tasks), (Pairing::None, 0));
    assert!(found.measures[0].difference.unwrap().is_below_zero());
    assert_eq!(Sets::default().finish("a", "b").measures[0].difference, None);
}

#[test]
fn policies_count_kills_and_usage() {
    let (mut policies, prices) = (Policies::default(), Prices::new());
    for nth in 0..40 {
        let turn = |reward: Option<f64>| Step {
            usage: Some(Box::new(Usage {
                prompt_tokens: Some(100),
                completion_tokens: Some(10),
                ..Usage::default()
            })),
            cost_usd: Some(0.5),
            reward,
            ..Step::new(Role::Agent)
        };
        let mut steps = vec![turn(None); 10];
        // Every fourth good run is done after its third step.
        if nth % 8 == 0 {
            steps[2] = turn(Some(1.0));
        }
        let made = Trajectory {
            steps,
            ending: Some(Ending { reason: "final".into(), ..Ending::default() }),
            ..run(nth, 0, nth % 2 == 0)
        };
        policies.add("set", &made, [Some(10), Some(4)], &prices);
    }
    let found = policies.finish("late", "early");
    let [success, steps, tokens, usd] = &found.measures[..] else { panic!("{found:#?}") };
    assert_eq!((success.a, success.b), (Some(0.5), Some(5.0 / 40.0)));
    assert_eq!((steps.a, steps.b), (Some(10.0), Some(4.0)));
    assert_eq!((tokens.a, tokens.b), (Some(1100.0), Some(440.0)));
    assert_eq!((usd.a, usd.b), (Some(5.0), Some(2.0)));
    // A policy that fires at the last step stops nothing.
    let names: Vec<_> = found.endings.iter().map(|one| (one.name.as_str(), one.a, one.b)).collect();
    let stopped = ("stopped by the policy", Some(0.0), Some(1.0));
    assert_eq!(names, [("final", Some(1.0), Some(0.0)), stopped]);
    assert_eq!((found.differing, found.pairing), (40, Pairing::Run));
}

/// A run with some steps, usage, cost and ending that depend on `n`.
fn varied(n: usize) -> Trajectory<'static> {
    let step = |nth: usize| Step {
        usage: Some(Box::new(Usage {
            prompt_tokens: Some((n * 37 + nth) as u64 % 900),
            completion_tokens: Some(nth as u64),
            ..Usage::default()
        })),
        cost_usd: Some((n % 11) as f64 / 8.0),
        ..Step::new(Role::Agent)
    };
    let reasons = ["final", "timeout", "a name that no recorder has", "unknown"];
    let ending = |reason: &&'static str| Ending { reason: (*reason).into(), ..Ending::default() };
    Trajectory {
        steps: (0..1 + n % 7).map(step).collect(),
        ending: reasons.get(n % 5).map(ending),
        recorded: Recorded {
            success: (!n.is_multiple_of(9)).then_some(!n.is_multiple_of(3)),
            ..Recorded::default()
        },
        ..run(n % 23, n, true)
    }
}

#[test]
fn policies_add_up_in_any_order() {
    let prices = Prices::new();
    let all: Vec<_> = (0..300).map(varied).collect();
    let fired =
        |nth: usize| [(!nth.is_multiple_of(4)).then_some(nth as u32 % 6), Some(nth as u32 % 3 + 1)];
    let dataset = |nth: usize| ["one", "two"][nth % 2];
    let add = |policies: &mut Policies, nth: usize| {
        policies.add(dataset(nth), &all[nth], fired(nth), &prices);
    };
    let mut whole = Policies::default();
    (0..300).for_each(|nth| add(&mut whole, nth));
    let whole = whole.finish("a", "b");
    for part in [1, 7, 150] {
        let mut sum = Policies::default();
        for start in (0..300).step_by(part).rev() {
            let mut own = Policies::default();
            (start..(start + part).min(300)).rev().for_each(|nth| add(&mut own, nth));
            sum.merge(own);
        }
        assert_eq!(sum.finish("a", "b"), whole, "parts of {part}");
    }
}

#[test]
fn swapped_sets_give_the_opposite() {
    let prices = Prices::new();
    let (mut sets, mut swapped) = (Sets::default(), Sets::default());
    for n in 0..400 {
        let mut one = varied(n);
        if n % 2 == 0 {
            sets.a.add(&one, &prices);
            swapped.b.add(&one, &prices);
        } else {
            one.steps.truncate(1 + n % 3);
            sets.b.add(&one, &prices);
            swapped.a.add(&one, &prices);
        }
    }
    let (one, other) = (sets.finish("a", "b"), swapped.finish("b", "a"));
    let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs().max(1.0);
    let measures = |found: &Comparison| [&found.measures[..], &found.endings].concat();
    for (one, other) in measures(&one).iter().zip(measures(&other)) {
        assert_eq!((&one.name, one.a, one.b), (&other.name, other.b, other.a));
        let (own, opposite) = (one.difference.unwrap(), other.difference.unwrap());
        assert!(close(own.value, -opposite.value), "{one:?}");
        assert!(close(own.value, one.b.unwrap() - one.a.unwrap()), "{one:?}");
        let ([low, high], [from, to]) = (own.interval.unwrap(), opposite.interval.unwrap());
        assert!(close(low, -to) && close(high, -from), "{one:?}");
        assert!(low <= own.value && own.value <= high, "{one:?}");
    }
    assert_eq!((one.differing, one.examples.len()), (other.differing, other.examples.len()));
    // Each run has one ending, also if it is missing or has an unknown name.
    for side in [|measure: &Measure| measure.a, |measure: &Measure| measure.b] {
        assert!(close(one.endings.iter().filter_map(side).sum(), 1.0), "{:?}", one.endings);
    }
}

#[test]
fn huge_usage_gives_finite_figures() {
    let prices = Prices::new();
    let (mut sets, mut policies) = (Sets::default(), Policies::default());
    for n in 0..60 {
        let count = if n % 3 == 0 { u64::MAX } else { n as u64 };
        let step = Step {
            usage: Some(Box::new(Usage {
                prompt_tokens: Some(count),
                completion_tokens: Some(count),
                ..Usage::default()
            })),
            cost_usd: Some([f64::MAX, 0.0, 1.0][n % 3]),
            ..Step::new(Role::Agent)
        };
        let made = Trajectory { steps: vec![step; 1 + n % 4], ..run(n, 0, n % 2 == 0) };
        sets.a.add(&made, &prices);
        sets.b.add(&Trajectory { steps: vec![made.steps[0].clone()], ..made.clone() }, &prices);
        policies.add("d", &made, [None, Some(1)], &prices);
    }
    for found in [sets.finish("a", "b"), policies.finish("a", "b")] {
        for one in &found.measures {
            let difference = one.difference.unwrap();
            let bounds = difference.interval.into_iter().flatten().chain(difference.detectable);
            let all: Vec<f64> =
                bounds.chain([difference.value]).chain(one.a).chain(one.b).collect();
            assert!(all.len() >= 5 && all.iter().all(|number| number.is_finite()), "{one:?}");
            // Usage that saturates must not look like a small one.
            let large = ["tokens", "dollars"].contains(&one.name.as_str());
            assert!(!large || one.a >= one.b && one.b > Some(1e9), "{one:?}");
        }
    }
}
