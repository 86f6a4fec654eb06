//! `bench-users FOLDER [USERS] [SEED] [GROUP]`: simulated users of a backtest, who have some of the recorded runs
//! of FOLDER (`*.jsonl.zst`), and what becomes of the promises that their reports make.
//!
//! ```text
//! target/release/bench-users runs/ 100 1
//! ```
//!
//! The recorded tasks of a group are the population. A user draws tasks from it with replacement, with all
//! their runs, until it has the given number of runs. Its report is computed by the code of `endstop
//! backtest`, and what it promises is compared with the population:
//!
//! - *calibrate*: the mean of the true share of good tasks that the calibrated rule stops, in each kind of
//!   task that it was promised for, and the share of the steps of failed runs that it saves;
//! - *set*: users of whom the recommended candidate stops more good runs than its bound (`--max-harm`), of all
//!   users. Where every useful candidate is above the bound in the population, the few users with a
//!   recommendation are those whom chance misled;
//! - *intervals*: how often a 95 % interval contains the value of the population, for each printed interval:
//!   failed runs stopped, good runs killed or stopped (of all, and of those with four steps or more), and
//!   failed − good, for each dataset and candidate, and the success of each group. After the mean comes the
//!   lowest of the cells that a tenth of the users have, and each cell below 93 %, with the probability that
//!   chance explains it. Compare that with 0.05 divided by the number of cells, which the last line has.
//!
//! Each user has its own random numbers, so that the output does not depend on the number of processors.

mod coverage;
mod population;

use coverage::{Cells, Coverage};
use endstop_trajectory::backtest::{Backtest, Candidate, Family, Figures};
use population::{Population, Random, Stops};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The groups: a name, and the begin of the file name and the part of the model name that it takes.
const GROUPS: [(&str, &str, &str); 13] = [
    ("sql gpt-4", "intercode_sql", "gpt-4"),
    ("sql gpt-3.5", "intercode_sql", "gpt-3.5"),
    ("sql all models", "intercode_sql", ""),
    ("bash all models", "intercode_bash", ""),
    ("ctf", "intercode_ctf", ""),
    ("python", "intercode_python", ""),
    ("hotpot", "reflexion", ""),
    ("tau", "taubench", ""),
    ("tothf 72B", "tothf", "72B"),
    ("tothf Coder-32B", "tothf", "Coder-32B"),
    ("tothf Coder-Next", "tothf", "Coder-Next"),
    ("tothf all models", "tothf", ""),
    ("all", "", ""),
];

/// The promises of calibration: the share of good tasks that may be stopped.
const ALPHAS: [f64; 4] = [0.01, 0.02, 0.05, 0.1];

/// The bounds of recommendations.
const BOUNDS: [f64; 3] = [0.01, 0.02, 0.05];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| words.get(at).map_or(Ok(or), |word| word.parse());
    let done = match (words.first(), number(1, 20), number(2, 1)) {
        (Some(folder), Ok(users), Ok(seed)) => {
            measured(folder, users, seed, words.get(3), &mut |line| println!("{line}"))
        }
        _ => Err("expected a folder, and optionally the numbers of users and of the seed".into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-users: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the figures of each group as soon as they are known.
fn measured(
    folder: &str,
    users: u64,
    seed: u64,
    only: Option<&String>,
    print: &mut dyn FnMut(&str),
) -> Outcome<()> {
    print(&format!("{users} users of each group, seed {seed}"));
    let mut cells = Cells::default();
    for (name, file, model) in GROUPS {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let grid = Candidate::grid()?;
        let (families, names) = families();
        let all: Vec<Candidate> = grid.iter().chain(&families).cloned().collect();
        let population = Population::read(folder, file, model)?.shortened(&all)?;
        if population.tasks.is_empty() {
            continue;
        }
        print(&format!(
            "\n{name}: {} runs of {} tasks, {} good",
            population.runs(),
            population.tasks.len(),
            population.good()
        ));
        let world = World {
            truth: {
                let every: Vec<usize> = (0..population.tasks.len()).collect();
                report(&population, &every, Backtest::new(&grid)?).finish()
            },
            rules: Stops::of(&population, &families)?,
            names,
            stops: Stops::of(&population, &grid)?,
            grid,
            population,
        };
        for runs in [200, 500, 1000, 2000] {
            // Of a smaller set most of the tasks of a user would be drawn twice.
            if runs > 2 * world.population.runs() {
                continue;
            }
            let seen = world.users(users, seed, runs)?;
            let (lines, own) = seen.coverage.lines(runs, users);
            for line in seen.lines(users, runs).iter().chain(&lines) {
                print(line);
            }
            cells.add(own);
        }
    }
    let least = cells.least_likely.map_or(String::new(), |one| {
        format!("; the least likely of them has a probability of {one:.2e} by chance")
    });
    print(&format!("\n{} of {} cells below 93 %{least}", cells.below, cells.all));
    Ok(())
}

/// Returns the rules of all families, with the index of each name.
fn families() -> (Vec<Candidate>, BTreeMap<String, usize>) {
    let of = |family: &Family| -> Vec<Candidate> {
        let last = if family.name() == "max_steps" { 150 } else { 20 };
        (1..=last).map(|level| Candidate::rule(family.rule(level))).collect()
    };
    let rules: Vec<Candidate> = Family::all().iter().flat_map(of).collect();
    let names = rules.iter().enumerate().map(|(at, rule)| (rule.name.clone(), at)).collect();
    (rules, names)
}

/// Counts the runs of a user.
fn report(population: &Population, own: &[usize], mut test: Backtest) -> Backtest {
    for (draw, task) in own.iter().enumerate() {
        for (dataset, run) in &population.tasks[*task] {
            let mut run = run.clone();
            // A task that is drawn twice is two tasks of the user.
            let id = run.task_id.as_deref().unwrap_or_default();
            let kind = id.rsplit_once('/').map_or("", |(kind, _)| kind);
            run.task_id = Some(format!("{kind}/{draw}").into());
            test.run(dataset, &run);
        }
    }
    test
}

/// The population of a group, and its values.
struct World {
    population: Population,
    truth: Figures,
    grid: Vec<Candidate>,
    /// The effect of the candidates.
    stops: Stops,
    /// The effect of the rules of all families, with the index of each.
    rules: Stops,
    names: BTreeMap<String, usize>,
}

/// The effect of a promise over users.
#[derive(Clone, Copy, Default)]
struct Calibrated {
    harms: f64,
    saved: f64,
    promises: u64,
    refused: u64,
}

/// The effect of a recommendation over users.
#[derive(Clone, Copy, Default)]
struct Bounded {
    above: u64,
    recommended: u64,
    saved: f64,
}

/// The reports of users, compared with the population.
#[derive(Default)]
struct Seen {
    calibrated: [Calibrated; ALPHAS.len()],
    bounded: [Bounded; BOUNDS.len()],
    coverage: Coverage,
}

impl World {
    /// Computes the reports of all users.
    fn users(&self, users: u64, seed: u64, runs: usize) -> Outcome<Seen> {
        let next = AtomicU64::new(0);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        // The families must be known before a run is counted; the share may change afterwards.
        let empty = Backtest::new(&self.grid)?.calibrating(&Family::all(), ALPHAS[0]);
        // A backtest belongs to one thread.
        let part = |empty: &Backtest| -> Result<Seen, String> {
            let mut seen = Seen::default();
            loop {
                let user = next.fetch_add(1, Ordering::Relaxed);
                if user >= users {
                    return Ok(seen);
                }
                let own = self.population.draw(runs, &mut Random::of_user(seed, runs, user));
                self.user(&own, empty, &mut seen)?;
            }
        };
        let mut all = Seen::default();
        std::thread::scope(|scope| -> Outcome<()> {
            let part = &part;
            let start = |_| {
                let empty = empty.clone();
                scope.spawn(move || part(&empty))
            };
            let parts: Vec<_> = (0..threads).map(start).collect();
            for part in parts {
                all.add(part.join().map_err(|_| "a thread has failed")??);
            }
            Ok(())
        })?;
        Ok(all)
    }

    fn user(&self, own: &[usize], empty: &Backtest, seen: &mut Seen) -> Result<(), String> {
        let test = report(&self.population, own, empty.clone());
        for (alpha, count) in ALPHAS.iter().zip(&mut seen.calibrated) {
            let figures = test.clone().calibrating(&Family::all(), *alpha).finish();
            self.calibrated(&figures, count)?;
        }
        let figures = test.finish();
        let Some(user) = figures.whole() else { return Ok(()) };
        seen.coverage.count(&figures, &self.truth);
        for (most, count) in BOUNDS.iter().zip(&mut seen.bounded) {
            let Some(one) = user.best_bounded(*most) else { continue };
            let at = self.grid.iter().position(|candidate| candidate.name == one.name);
            let whole = self.truth.whole().and_then(|whole| whole.candidate(&one.name));
            let harm = whole.ok_or("no such candidate")?.harm();
            count.above += u64::from(harm.value.is_some_and(|value| value > *most));
            count.recommended += 1;
            count.saved += at.map_or(0.0, |at| self.stops.saved(at, None));
        }
        Ok(())
    }

    fn calibrated(&self, figures: &Figures, count: &mut Calibrated) -> Result<(), String> {
        let chosen: Vec<_> = figures.calibrations.iter().filter(|one| one.rule.is_some()).collect();
        count.refused += u64::from(chosen.is_empty());
        for one in chosen {
            let model = one.model.as_deref();
            let at = one.rule.as_ref().and_then(|rule| self.names.get(rule));
            let at = *at.ok_or("no such rule")?;
            count.saved += self.rules.saved(at, model);
            count.promises += 1;
            let kinds = one.groups.iter().filter(|group| group.promised);
            let harm: Vec<f64> = kinds
                .map(|group| {
                    let kind = group.kind.as_deref();
                    self.rules.harmed_tasks(at, model, &group.dataset, kind)
                })
                .collect();
            count.harms += harm.iter().sum::<f64>() / harm.len().max(1) as f64;
        }
        Ok(())
    }
}

impl Seen {
    fn add(&mut self, other: Seen) {
        for (own, other) in self.calibrated.iter_mut().zip(other.calibrated) {
            own.harms += other.harms;
            own.saved += other.saved;
            own.promises += other.promises;
            own.refused += other.refused;
        }
        for (own, other) in self.bounded.iter_mut().zip(other.bounded) {
            own.above += other.above;
            own.recommended += other.recommended;
            own.saved += other.saved;
        }
        self.coverage.add(other.coverage);
    }

    fn lines(&self, users: u64, runs: usize) -> Vec<String> {
        let percent = |sum: f64, of: u64| match of {
            0 => "–".to_owned(),
            of => format!("{:.2} %", 100.0 * sum / of as f64),
        };
        let mut lines = Vec::new();
        for (alpha, one) in ALPHAS.iter().zip(&self.calibrated) {
            lines.push(format!(
                "  {runs:>5} runs  calibrate {alpha:<4}  true harm {:>7}  failed steps saved {:>7}  {} promises, {} users refused",
                percent(one.harms, one.promises),
                percent(one.saved, one.promises),
                one.promises,
                one.refused
            ));
        }
        for (most, one) in BOUNDS.iter().zip(&self.bounded) {
            lines.push(format!(
                "  {runs:>5} runs  set {most:<4}  above the bound {} of {users} users, of whom {} have a recommendation  failed steps saved {}",
                one.above,
                one.recommended,
                percent(one.saved, one.recommended)
            ));
        }
        lines
    }
}
