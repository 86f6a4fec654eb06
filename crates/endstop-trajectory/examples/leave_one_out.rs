//! Evaluates detectors on runs that were not used to choose them: chosen on all datasets but one,
//! measured on that one. The best reference policy, chosen in the same way, is shown for
//! comparison.
//!
//! ```text
//! cargo run --release -p endstop-trajectory --example leave_one_out -- 0.02 runs/
//! ```
//!
//! The first argument is the maximum share of good runs with at least four steps that may be
//! stopped, both over all training datasets together and averaged over those with at least ten such
//! runs. Among the detectors within this bound, the one with the largest average share of saved
//! steps is chosen. Caps on steps, and rules that read the answer, the reward or the cost, are not
//! detectors and are excluded.

use endstop_trajectory::backtest::{
    Backtest, Candidate, CandidateFigures, DatasetFigures, Engine, share,
};

/// Minimum number of good runs for a share of a single dataset.
const LEAST: u64 = 10;

#[expect(clippy::print_stdout, reason = "an example")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args_os().skip(1);
    let harm: f64 = words.next().and_then(|word| word.to_str()?.parse().ok()).ok_or(
        "missing arguments: expected the share of good runs that may be stopped, and paths",
    )?;
    let paths: Vec<_> = words.map(Into::into).collect();
    let ours = stuck()?;
    let mut theirs = Candidate::reference()?;
    theirs.retain(|one| {
        !["max_steps", "final_pattern", "reward", "cost"].iter().any(|not| one.name.contains(not))
    });
    let names = |list: &[Candidate]| list.iter().map(|one| one.name.clone()).collect::<Vec<_>>();
    let (our_names, their_names) = (names(&ours), names(&theirs));
    let all: Vec<Candidate> = ours.into_iter().chain(theirs).collect();
    let done = Engine::default().run(&paths, || Backtest::new(&all), &|_| {})?;
    let figures = done.backtest.finish();
    let datasets: Vec<&DatasetFigures> =
        figures.datasets.iter().filter(|dataset| dataset.name != "ALL").collect();
    let mut sums = [(0.0, 0, 0), (0.0, 0, 0), (0.0, 0, 0)];
    for held in &datasets {
        let others: Vec<&DatasetFigures> =
            datasets.iter().filter(|other| other.name != held.name).copied().collect();
        println!(
            "{} ({} runs, {} good of at least 4 steps)",
            held.name, held.runs, held.succeeded_4
        );
        let chosen = [
            ("ours, chosen on the others", best(&our_names, &others, harm)),
            ("the best of the reference", best(&their_names, &others, harm)),
            ("ours, as it comes", Some("stuck(2,4,3,7)")),
        ];
        for ((label, name), sum) in chosen.into_iter().zip(&mut sums) {
            let Some(one) = name.and_then(|name| held.candidate(name)) else {
                println!("  {label:<28} no detector is within the bound");
                continue;
            };
            println!("  {label:<28} {}", line(one, held));
            sum.0 += one.saved;
            sum.1 += one.counts.succ4_stopped;
            sum.2 += held.succeeded_4;
        }
    }
    println!("on average over {} datasets that were held out", datasets.len());
    for ((saved, cut, good), label) in sums.into_iter().zip(["ours", "reference", "as it comes"]) {
        let cut = share(cut, good);
        println!(
            "  {label:<28} saves {:5.2} % of steps, stops {:.2} % of good runs ({:.2} to {:.2} %)",
            100.0 * saved / datasets.len() as f64,
            100.0 * cut.value.unwrap_or_default(),
            100.0 * cut.low,
            100.0 * cut.high
        );
    }
    Ok(())
}

/// Returns `stuck` with all combinations of thresholds for its four signs, including off.
fn stuck() -> Result<Vec<Candidate>, endstop_core::PolicyError> {
    let mut list = Vec::new();
    for repeats in [Some(1), Some(2), Some(3), Some(4), None] {
        for same_errors in [Some(2), Some(3), Some(4), Some(5), Some(6), None] {
            for stale in [Some(2), Some(3), Some(4), None] {
                for failures in [Some(5), Some(6), Some(7), Some(8), Some(10), None] {
                    let config = serde_json::json!({
                        "repeats": repeats,
                        "same_errors": same_errors,
                        "stale": stale,
                        "failures": failures,
                    });
                    list.push(serde_json::json!({"stuck": config}));
                }
            }
        }
    }
    Candidate::read(&serde_json::Value::Array(list))
}

/// Returns the detector within the bound that saves the most steps on these datasets.
fn best<'n>(names: &'n [String], on: &[&DatasetFigures], harm: f64) -> Option<&'n str> {
    let worth = |name: &str| -> Option<f64> {
        let of: Vec<(&DatasetFigures, &CandidateFigures)> =
            on.iter().filter_map(|dataset| Some((*dataset, dataset.candidate(name)?))).collect();
        let cut = |one: &CandidateFigures| one.counts.succ4_stopped as f64;
        let (all, good) = of.iter().fold((0.0, 0), |(all, good), (dataset, one)| {
            (all + cut(one), good + dataset.succeeded_4)
        });
        let own: Vec<f64> = of
            .iter()
            .filter(|(dataset, _)| dataset.succeeded_4 >= LEAST)
            .map(|(dataset, one)| cut(one) / dataset.succeeded_4 as f64)
            .collect();
        let average = own.iter().sum::<f64>() / own.len().max(1) as f64;
        if all / good.max(1) as f64 > harm || average > harm {
            return None;
        }
        Some(of.iter().map(|(_, one)| one.saved).sum::<f64>() / of.len().max(1) as f64)
    };
    let mut best: Option<(&str, f64)> = None;
    for name in names {
        if let Some(worth) =
            worth(name).filter(|worth| best.is_none_or(|(_, other)| *worth > other))
        {
            best = Some((name, worth));
        }
    }
    best.map(|(name, _)| name)
}

fn line(one: &CandidateFigures, dataset: &DatasetFigures) -> String {
    let shown = one.good4_stopped;
    format!(
        "{:<52} saves {:5.2} %, stops {}/{} good ({:.1} to {:.1} %), {} of {} failed",
        one.name,
        100.0 * one.saved,
        one.counts.succ4_stopped,
        dataset.succeeded_4,
        100.0 * shown.low,
        100.0 * shown.high,
        one.counts.fail_stopped,
        dataset.failed,
    )
}
