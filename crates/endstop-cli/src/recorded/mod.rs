//! Recorded runs, read from files and journals for `audit` and `backtest`, and expectations about one.

pub(crate) mod audit;
pub(crate) mod backtest;
pub(crate) mod compare;
pub(crate) mod expectation;
pub(crate) mod journal_runs;
pub(crate) mod opencode;

use crate::failure::Failure;

/// Returns the error for paths in which nothing could be read, with the reasons: one of them on the same line.
pub(crate) fn nothing_read<'a>(what: &str, problems: impl Iterator<Item = &'a str>) -> Failure {
    let problems: Vec<&str> = problems.collect();
    let why = match &problems[..] {
        [] => ": no file there has runs".to_owned(),
        [one] => format!(": {one}"),
        several => format!(":\n  {}\n ", several.join("\n  ")),
    };
    Failure::usage(format!(
        "{what}{why}; `endstop audit --find` searches the folders of known agents"
    ))
}
