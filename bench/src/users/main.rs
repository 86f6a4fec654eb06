//! `bench-users FOLDER [USERS] [SEED] [GROUP]`: simulated users of a backtest, who have some of the recorded runs
//! of FOLDER (`*.jsonl.zst`), and what becomes of the promises that their reports make.
//!
//! ```text
//! cargo build --release -p endstop-bench --bin bench-users
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
//!   failed runs stopped and good runs killed (of all, and of those with four steps or more) over all
//!   candidates, failed − good, and the success of each group. After the mean over candidates or groups comes
//!   the lowest of those that a tenth of the users have.

mod coverage;
mod population;

use coverage::Coverage;
use endstop_trajectory::backtest::{Backtest, Candidate, Family, Figures};
use population::{Population, Random, Stops};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The groups: a name, and the begin of the file name and the part of the model name that it takes.
const GROUPS: [(&str, &str, &str); 8] = [
    ("sql gpt-4", "intercode_sql", "gpt-4"),
    ("sql gpt-3.5", "intercode_sql", "gpt-3.5"),
    ("sql all models", "intercode_sql", ""),
    ("bash all models", "intercode_bash", ""),
    ("hotpot", "reflexion", ""),
    ("tothf 72B", "tothf", "72B"),
    ("tothf Coder-Next", "tothf", "Coder-Next"),
    ("all", "", ""),
];

#[expect(clippy::print_stdout, clippy::print_stderr, reason = "a program")]
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: u64| words.get(at).map_or(Ok(or), |word| word.parse());
    let done = match (words.first(), number(1, 20), number(2, 1)) {
        (Some(folder), Ok(users), Ok(seed)) => measured(folder, users, seed, words.get(3)),
        _ => Err("expected a folder, and optionally the numbers of users and of the seed".into()),
    };
    match done {
        Ok(lines) => {
            println!("{lines}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench-users: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measured(folder: &str, users: u64, seed: u64, only: Option<&String>) -> Outcome<String> {
    let mut lines = vec![format!("{users} users of each group, seed {seed}")];
    for (name, file, model) in GROUPS {
        if only.is_some_and(|only| only != name) {
            continue;
        }
        let population = Population::read(folder, file, model)?;
        if population.tasks.is_empty() {
            continue;
        }
        lines.push(format!(
            "\n{name}: {} runs of {} tasks, {} good",
            population.runs(),
            population.tasks.len(),
            population.good()
        ));
        let rules = Rules::of(&population)?;
        for runs in [200, 500, 1000, 2000] {
            if runs > 2 * population.runs() {
                continue;
            }
            let mut random = Random::new(seed ^ runs as u64);
            lines.extend(calibrated(&population, &rules, users, runs, &mut random)?);
            lines.extend(bounded(&population, users, runs, &mut random)?);
        }
    }
    Ok(lines.join("\n"))
}

/// Returns the report of a user.
fn report(population: &Population, own: &[usize], test: Backtest) -> Figures {
    let mut test = test;
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
    test.finish()
}

/// The rules of all families, and what they do to a population.
struct Rules {
    names: BTreeMap<String, usize>,
    stops: Stops,
}

impl Rules {
    fn of(population: &Population) -> Outcome<Rules> {
        let of = |family: &Family| -> Vec<Candidate> {
            let last = if family.name() == "max_steps" { 150 } else { 20 };
            (1..=last).map(|level| Candidate::rule(family.rule(level))).collect()
        };
        let rules: Vec<Candidate> = Family::all().iter().flat_map(of).collect();
        let names = rules.iter().enumerate().map(|(at, rule)| (rule.name.clone(), at)).collect();
        Ok(Rules { names, stops: Stops::of(population, &rules)? })
    }
}

fn calibrated(
    population: &Population,
    Rules { names, stops }: &Rules,
    users: u64,
    runs: usize,
    random: &mut Random,
) -> Outcome<Vec<String>> {
    let mut lines = Vec::new();
    for alpha in [0.01, 0.02, 0.05, 0.1] {
        let (mut harms, mut saved, mut refused, mut promises) = (0.0, 0.0, 0_u64, 0_u64);
        for _ in 0..users {
            let own = population.draw(runs, random);
            let test = Backtest::new(&[])?.calibrating(&Family::all(), alpha);
            let figures = report(population, &own, test);
            let chosen: Vec<_> =
                figures.calibrations.iter().filter(|one| one.rule.is_some()).collect();
            refused += u64::from(chosen.is_empty());
            for one in chosen {
                let at =
                    one.rule.as_ref().and_then(|rule| names.get(rule)).ok_or("no such rule")?;
                saved += stops.saved(*at, one.model.as_deref());
                promises += 1;
                let kinds = one.groups.iter().filter(|group| group.promised);
                let harm: Vec<f64> = kinds
                    .map(|group| {
                        let kind = group.kind.as_deref();
                        stops.harmed_tasks(*at, one.model.as_deref(), &group.dataset, kind)
                    })
                    .collect();
                harms += harm.iter().sum::<f64>() / harm.len().max(1) as f64;
            }
        }
        let percent = |sum: f64| format!("{:.1} %", 100.0 * sum / promises.max(1) as f64);
        lines.push(format!(
            "  {runs:>5} runs  calibrate {alpha:<4}  true harm {:>7}  failed steps saved {:>7}  {promises} promises, {refused} users refused",
            percent(harms),
            percent(saved)
        ));
    }
    Ok(lines)
}

fn bounded(
    population: &Population,
    users: u64,
    runs: usize,
    random: &mut Random,
) -> Outcome<Vec<String>> {
    let grid = Candidate::grid()?;
    let stops = Stops::of(population, &grid)?;
    let truth = {
        let every: Vec<usize> = (0..population.tasks.len()).collect();
        report(population, &every, Backtest::new(&grid)?)
    };
    let whole = truth.whole().ok_or("no runs")?;
    let mut above: BTreeMap<&str, (u64, u64, f64)> = BTreeMap::new();
    let mut coverage = Coverage::default();
    for _ in 0..users {
        let own = population.draw(runs, random);
        let figures = report(population, &own, Backtest::new(&grid)?);
        let Some(user) = figures.whole() else { continue };
        coverage.count(&figures, &truth);
        for (name, most) in [("1 %", 0.01), ("2 %", 0.02), ("5 %", 0.05)] {
            let Some(one) = user.best_bounded(most) else { continue };
            let at = grid.iter().position(|candidate| candidate.name == one.name);
            let harm = whole.candidate(&one.name).ok_or("no such candidate")?.harm();
            let count = above.entry(name).or_default();
            count.0 += u64::from(harm.value.is_some_and(|value| value > most));
            count.1 += 1;
            count.2 += at.map_or(0.0, |at| stops.saved(at, None));
        }
    }
    let mut lines = Vec::new();
    for (name, (wrong, all, saved)) in above {
        lines.push(format!(
            "  {runs:>5} runs  set {name:<4}  above the bound {wrong} of {users} users, of whom {all} have a recommendation  failed steps saved {:.1} %",
            100.0 * saved / all.max(1) as f64
        ));
    }
    lines.extend(coverage.lines(runs, users));
    Ok(lines)
}
