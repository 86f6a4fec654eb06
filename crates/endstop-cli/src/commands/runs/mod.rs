//! `endstop runs`: lists the stored runs, newest first.

pub(crate) mod live;
pub(crate) mod pending;
pub(crate) mod prune;

use crate::args::{RunsArgs, RunsCommand};
use crate::config::journal_path::{self, JournalPath};
use crate::failure::{Failure, Result};
use crate::output;
use crate::render::amounts::seconds;
use crate::render::date::now_ms;
use crate::visible::shorten;
use endstop::NanoUsd;
use endstop::core::Category;
use endstop::journal::RunSummary;
use std::collections::BTreeSet;
use std::time::Duration;

pub(crate) fn run(args: &RunsArgs, as_json: bool) -> Result {
    if let Some(RunsCommand::Prune(args)) = &args.command {
        return prune::run(args, as_json);
    }
    if args.live {
        return live::list(as_json);
    }
    let journal = journal_path::to_read(&JournalPath::of(args.journal.as_deref(), None)?)?;
    let now = now_ms();
    let since = args.since.map_or(0, |since| since.unix_ms(now));
    let wanted = |run: &RunSummary, all: &[RunSummary]| {
        run.started_ms >= since
            && (!args.failed || has_failed(run) && succeeded_by(&run.id, all).is_none())
            && args.ended.is_none_or(|ending| run.termination.as_deref() == Some(ending.as_str()))
    };
    let filtered = args.failed || args.ended.is_some() || since > 0;
    let most = if filtered { u32::MAX } else { args.number };
    // A run is newer than the one that it continues, so the last ones have all that continue one of them.
    let all = journal.runs(most).map_err(|error| Failure::usage(error.to_string()))?;
    let listed = all.iter().filter(|run| wanted(run, &all));
    let runs: Vec<&RunSummary> = listed.take(args.number as usize).collect();
    if as_json {
        for run in &runs {
            output::json(run);
        }
        return Ok(0);
    }
    if runs.is_empty() {
        let none = if filtered { "no such run is stored in" } else { "no run is stored yet in" };
        output::note(&format!("{none} {}", journal.path().display()));
        return Ok(0);
    }
    // The ids of guarded runs are names, and longer than those of other runs.
    let width =
        runs.iter().map(|run| one_line(&run.id, 60).chars().count()).max().unwrap_or(0).max(10);
    output::line(&format!(
        "{:<width$}  {:>12}  {:<28}  {:>5}  {:>9}  task",
        "run", "started", "ended as", "turns", "cost"
    ));
    for run in &runs {
        // Redacted again, because the process that stored a run may not have known all secrets.
        output::line(&line(run, &all, width, now));
    }
    Ok(0)
}

/// `true` if a run has ended without a success, or its process died, or a verifier rejected its work.
fn has_failed(run: &RunSummary) -> bool {
    match &run.category {
        Some(category) => category != Category::Success.as_str() || run.verified == Some(false),
        None => !run.running && !run.parked,
    }
}

/// Returns the id of a run that continued or branched from this one, also over several runs, and was a success.
pub(super) fn succeeded_by<'a>(id: &'a str, all: &'a [RunSummary]) -> Option<&'a str> {
    // A damaged journal can have runs that continue each other.
    let (mut seen, mut open) = (BTreeSet::new(), vec![id]);
    while let Some(id) = open.pop() {
        for run in all.iter().filter(|run| run.continues.as_deref() == Some(id)) {
            if run.termination.is_some() && !has_failed(run) {
                return Some(&run.id);
            }
            if seen.insert(&run.id) {
                open.push(&run.id);
            }
        }
    }
    None
}

fn line(run: &RunSummary, all: &[RunSummary], width: usize, now: u64) -> String {
    let ended = match &run.termination {
        Some(name) if run.verified == Some(false) => format!("{}, rejected", one_line(name, 60)),
        Some(name) => one_line(name, 60),
        None if run.running => "(running)".to_owned(),
        None if run.parked => "(parked)".to_owned(),
        None => "(its process died)".to_owned(),
    };
    let turns = run.turns.map_or_else(|| "–".to_owned(), |turns| turns.to_string());
    let cost = run.cost.map(NanoUsd::to_usd);
    let cost = cost.map_or_else(|| "–".to_owned(), |usd| format!("${usd:.4}"));
    format!(
        "{:<width$}  {:>12}  {ended:<28}  {turns:>5}  {cost:>9}  {}",
        one_line(&run.id, 60),
        ago(run.started_ms, now),
        task(run, all)
    )
}

/// Returns the task, after the run that this one continues or that continues it, or why nothing of it is counted.
fn task(run: &RunSummary, all: &[RunSummary]) -> String {
    let mut task = one_line(&run.task, 60);
    let later = |one: &&RunSummary| one.continues.as_ref() == Some(&run.id);
    if let Some(later) = all.iter().find(|one| later(one) && one.branched_at.is_none()) {
        task = format!("(continued by {}) {task}", one_line(&later.id, 60));
    }
    if let Some(name) = &run.uncounted {
        // A demo is named after its script.
        let what = if name == "replay" { "" } else { "demo " };
        return format!("({what}{}) {task}", one_line(name, 30));
    }
    match (&run.continues, run.branched_at) {
        (Some(from), Some(turn)) => {
            format!("(branch of {} at turn {turn}) {task}", one_line(from, 60))
        }
        (Some(from), None) => format!("(continues {}) {task}", one_line(from, 60)),
        (None, _) => task,
    }
}

/// Prepares text of the journal for a column, so that each run stays on one line.
fn one_line(text: &str, most: usize) -> String {
    shorten(text, most).replace(['\n', '\t'], " ")
}

/// Formats a time as `3 min ago`. A time in the future, after a clock was set back, is `now`.
fn ago(then: u64, now: u64) -> String {
    let passed = Duration::from_millis(now.saturating_sub(then));
    let days = passed.as_secs() / 86_400;
    let hours = passed.as_secs() / 3600;
    let minutes = passed.as_secs() / 60;
    match (days, hours, minutes) {
        (0, 0, 0) if passed < Duration::from_secs(1) => "now".to_owned(),
        (0, 0, 0) => {
            format!("{} ago", seconds(Duration::from_secs(passed.as_secs())).replace(".0", ""))
        }
        (0, 0, minutes) => format!("{minutes} min ago"),
        (0, hours, _) => format!("{hours} h ago"),
        (days, ..) => format!("{days} d ago"),
    }
}
