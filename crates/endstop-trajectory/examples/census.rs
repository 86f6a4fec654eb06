//! Prints counts and irregularities of recorded runs, and the time that reading them took.
//!
//! ```text
//! cargo run --release -p endstop-trajectory --example census -- [--runs] PATH…
//! ```
//!
//! `--runs` prints a line for each run: file, position, format, id, steps, turns, calls, results,
//! errors, success and ending, separated by tabs.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use endstop_trajectory::Trajectory;
use endstop_trajectory::read::{Census, Finding, Options, for_each};
use std::time::Instant;

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let runs = args.iter().any(|arg| arg == "--runs");
    args.retain(|arg| arg != "--runs");
    let mut census = Census::new();
    let start = Instant::now();
    for path in &args {
        let read = for_each(path, &Options::default(), &mut |run| match run {
            Ok(run) => {
                if runs {
                    line(&run);
                }
                census.run(&run);
            }
            Err(problem) => census.problem(&problem),
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
        census.runs,
        census.turns,
        census.calls,
        census.results,
        census.errors,
        census.labelled,
        census.succeeded
    );
    println!("endings: {:?}", census.endings);
    let odd = [
        ("without a turn", &census.empty),
        ("without outcome", &census.without_outcome),
        ("steps out of order", &census.out_of_order),
        ("twice in a file", &census.twice_in_file),
        ("twice over files", &census.twice_over_files),
    ];
    for (what, finding) in odd {
        show(what, finding);
    }
    for (kind, finding) in &census.notes {
        show(kind, finding);
    }
    for (kind, finding) in &census.problems {
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
