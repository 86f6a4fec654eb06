//! Prints counts and irregularities of recorded runs, and the time that reading them took.
//!
//! ```text
//! cargo run --release -p endstop-trajectory --example read_stats -- [--runs] PATH…
//! ```
//!
//! `--runs` prints a line for each run: file, position, format, id, steps, turns, calls, results,
//! errors, success and ending, separated by tabs.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use endstop_trajectory::Trajectory;
use endstop_trajectory::read::{Finding, Options, ReadStats, for_each};
use std::time::Instant;

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let runs = args.iter().any(|arg| arg == "--runs");
    args.retain(|arg| arg != "--runs");
    let mut stats = ReadStats::new();
    let start = Instant::now();
    for path in &args {
        let read = for_each(path, &Options::default(), &mut |run| match run {
            Ok(run) => {
                if runs {
                    line(&run);
                }
                stats.run(&run);
            }
            Err(problem) => stats.problem(&problem),
        });
        match read {
            Ok(read) => {
                println!(
                    "{path}: {} files {:?}, {} skipped",
                    read.files, read.formats, read.skipped
                );
            }
            Err(error) => eprintln!("{error}"),
        }
    }
    let took = start.elapsed();
    println!(
        "{} runs, {} turns, {} calls, {} results, {} errors; {} labelled, {} succeeded; {took:.3?}",
        stats.runs,
        stats.turns,
        stats.calls,
        stats.results,
        stats.errors,
        stats.labelled,
        stats.succeeded
    );
    println!("endings: {:?}", stats.endings);
    let odd = [
        ("without a turn", &stats.empty),
        ("without outcome", &stats.without_outcome),
        ("steps out of order", &stats.out_of_order),
        ("twice in a file", &stats.twice_in_file),
        ("twice over files", &stats.twice_over_files),
    ];
    for (what, finding) in odd {
        show(what, finding);
    }
    for (kind, finding) in &stats.notes {
        show(kind, finding);
    }
    for (kind, finding) in &stats.problems {
        show(kind.as_str(), finding);
    }
}

fn show(what: &str, finding: &Finding) {
    if finding.count > 0 {
        println!("{what}: {}", finding.count);
        for first in &finding.first {
            println!("    {first}");
        }
    }
}

fn line(run: &Trajectory<'_>) {
    let steps = || run.steps.iter().filter(|step| !step.copied);
    println!(
        "{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
        run.origin.file,
        run.origin.at.map_or_else(|| "-".to_owned(), |at| at.to_string()),
        run.origin.format,
        run.run_id,
        run.steps.len(),
        run.turns().count(),
        steps().map(|step| step.calls.len()).sum::<usize>(),
        steps().map(|step| step.results.len()).sum::<usize>(),
        steps().flat_map(|step| &step.results).filter(|result| result.is_error).count(),
        run.recorded.success.map_or_else(|| "-".to_owned(), |success| success.to_string()),
        run.ending.as_ref().map_or("-", |ending| &ending.reason),
    );
}
