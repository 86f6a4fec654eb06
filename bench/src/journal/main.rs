//! `bench-journal [RUNS] [STEPS] [WAY]`: measures the cost of a journal, in processor time and bytes
//! per step.
//!
//! ```text
//! target/release/bench-journal 60 20
//! ```
//!
//! Runs with and without a journal alternate over a scripted server. The server is a second process
//! of this program, so that its processor time is not counted. Each step is a streamed response
//! with a tool call, and the tool. The figures are medians; compare the ratio.
//!
//! With a way (`none`, `nowhere` or `file`) all runs have this journal, so that a profiler can count
//! the instructions of each. `nowhere` makes the records and stores none.

#[path = "../measure.rs"]
#[expect(dead_code, reason = "the other programs use the rest")]
mod measure;
mod work;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| words.get(at).map_or(Ok(or), |word| word.parse());
    let done = match words.first().map(String::as_str) {
        Some(work::SERVE) => work::serve().map(|()| String::new()),
        _ => match (number(0, 60), number(1, 20)) {
            (Ok(runs), Ok(steps)) if runs > 0 && steps > 0 => match words.get(2) {
                Some(way) => work::one_way(runs, steps, way),
                None => work::measured(runs, steps),
            },
            _ => Err("expected the number of runs and of steps, for example 60 20".into()),
        },
    };
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench-journal: {error}");
            ExitCode::FAILURE
        }
    }
}
