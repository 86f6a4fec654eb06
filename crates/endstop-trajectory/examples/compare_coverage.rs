//! `compare_coverage [PAIRS] [SEED]`: simulates pairs of agents with a known difference, and prints how
//! often a comparison shows a difference, and how often its 95 % interval contains the true one.
//!
//! ```text
//! cargo run --release -p endstop-trajectory --example compare_coverage -- 2000 1
//! ```
//!
//! Tasks are easy, hard or between. B succeeds in 0, 2, 5 or 10 points more of its attempts. The steps
//! of a run are skewed: most are short, a few are long, and B's are a tenth longer.

use endstop_trajectory::compare::{Comparison, Sets};
use endstop_trajectory::{Prices, Recorded, Role, Step, Trajectory};

/// SplitMix64.
struct Random(u64);

impl Random {
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The design of a simulation.
#[derive(Clone, Copy)]
struct Design {
    tasks: usize,
    attempts: usize,
    better: f64,
    /// `true` if the steps differ too.
    steps: bool,
}

/// The mean number of steps of A, and the factor of B.
const MEAN: f64 = 6.0;
const LONGER: f64 = 1.1;

fn compared(random: &mut Random, design: Design, prices: &Prices) -> Comparison {
    let mut sets = Sets::default();
    for task in 0..design.tasks {
        let own = [0.15, 0.35, 0.6, 0.85, 0.9][(random.share() * 5.0) as usize] + 0.03;
        for trial in 0..design.attempts {
            for (at, set) in [&mut sets.a, &mut sets.b].into_iter().enumerate() {
                let shift = if at == 0 { -design.better / 2.0 } else { design.better / 2.0 };
                let long = if at == 0 { 1.0 } else { LONGER };
                // Exponential, and rounded at random so that the mean is exact.
                let length = -MEAN * long * (1.0 - random.share()).ln();
                let steps =
                    if design.steps { (length + random.share()).floor() as usize } else { 1 };
                let run = Trajectory {
                    task_id: Some(format!("t{task}").into()),
                    steps: vec![Step::new(Role::Agent); steps],
                    recorded: Recorded {
                        success: Some(random.share() < own + shift),
                        ..Recorded::default()
                    },
                    ..Trajectory::new(format!("r{task}-{trial}"))
                };
                set.add(&run, prices);
            }
        }
    }
    sets.finish("a", "b")
}

#[expect(clippy::print_stdout, reason = "a program")]
fn main() {
    let number = |nth: usize, or: u64| {
        std::env::args().nth(nth).and_then(|word| word.parse().ok()).unwrap_or(or)
    };
    let (pairs, seed) = (number(1, 2000), number(2, 1));
    let prices = Prices::new();
    println!("{pairs} pairs, seed {seed}; shown: an interval without 0; held: one with the truth");
    for (tasks, attempts) in [(5, 1), (20, 1), (50, 1), (100, 1), (200, 1), (500, 1), (50, 4)] {
        let mut line = format!("success {tasks:>4} tasks × {attempts}");
        for better in [0.0_f64, 0.02, 0.05, 0.1] {
            let mut random = Random(seed ^ tasks as u64 ^ better.to_bits());
            let design = Design { tasks, attempts, better, steps: false };
            let (mut shown, mut held) = (0_u64, 0_u64);
            for _ in 0..pairs {
                let found = compared(&mut random, design, &prices);
                let Some(one) = found.measures[0].difference else { continue };
                shown += u64::from(one.is_shown());
                held += u64::from(one.interval.is_some_and(|[a, b]| a <= better && better <= b));
            }
            let share = |count: u64| 100.0 * count as f64 / pairs as f64;
            line = format!(
                "{line}   {:>2.0}: shown {:>5.1} % held {:>5.1} %",
                100.0 * better,
                share(shown),
                share(held)
            );
        }
        println!("{line}");
    }
    for (tasks, attempts) in [(12, 1), (20, 1), (50, 1), (50, 3)] {
        let mut random = Random(seed ^ tasks as u64);
        let design = Design { tasks, attempts, better: 0.0, steps: true };
        let (mut held, mut given) = (0_u64, 0_u64);
        let truth = MEAN * (LONGER - 1.0);
        for _ in 0..pairs / 4 {
            let found = compared(&mut random, design, &prices);
            let Some([low, high]) = found.measures[1].difference.and_then(|one| one.interval)
            else {
                continue;
            };
            given += 1;
            held += u64::from(low <= truth && truth <= high);
        }
        let share = 100.0 * held as f64 / given.max(1) as f64;
        println!("steps   {tasks:>4} tasks × {attempts}   held {share:.1} % of {given} intervals");
    }
}
