//! `endstop assert`: checks a recorded run against expectations, for CI of agents.

use super::one_run;
use crate::assert_args::AssertArgs;
use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::output;
use crate::recorded::expectation::{Expectation, RunFacts};
use crate::render::assertion::Assertion;
use crate::render::explain::timeline::Timeline;
use crate::render::junit;
use crate::visible::shorten;

const NONE: &str = "no expectation: give at least one, for example --success, --max-usd 1 or \
                    --tool-called run_tests (see `endstop assert --help`)";

pub(crate) fn run(args: &AssertArgs, as_json: bool) -> Result {
    let expectations = expectations(args);
    if expectations.is_empty() {
        return Err(Failure::usage(NONE));
    }
    let file = args.junit.as_deref();
    let file = file.map(|path| NewFile::of("--junit", path, args.overwrite)).transpose()?;
    let timeline = one_run::timeline(&args.run, args.journal.as_deref())?;
    let facts = facts(&timeline);
    let checks = expectations.iter().map(|one| one.check(&facts)).collect();
    let assertion = Assertion::new(&args.run, &timeline, checks);
    if let Some(file) = file {
        file.write(&junit::document(&assertion))?;
    }
    if as_json {
        output::json(&assertion);
    } else {
        for problem in &timeline.problems {
            output::note(&format!("⚠ {}", shorten(problem, 600)));
        }
        for line in assertion.lines() {
            output::line(&line);
        }
    }
    Ok(u8::from(!assertion.passed))
}

/// Returns the expectations, in the order of the help.
fn expectations(args: &AssertArgs) -> Vec<Expectation> {
    let mut all = Vec::new();
    all.extend(args.success.then_some(Expectation::Success));
    if !args.termination.is_empty() {
        all.push(Expectation::Termination(args.termination.clone()));
    }
    if !args.category.is_empty() {
        all.push(Expectation::Category(args.category.clone()));
    }
    all.extend(args.verified.then_some(Expectation::Verified));
    all.extend(args.max_usd.map(Expectation::MaxUsd));
    all.extend(args.max_turns.map(Expectation::MaxTurns));
    all.extend(args.max_tokens.map(Expectation::MaxTokens));
    all.extend(args.max_duration.map(Expectation::MaxDuration));
    let called = args.tool_called.iter().cloned();
    all.extend(called.map(|(name, range)| Expectation::ToolCalled(name, range)));
    all.extend(args.no_tool.iter().cloned().map(Expectation::NoTool));
    all.extend(args.final_contains.iter().cloned().map(Expectation::FinalContains));
    all
}

/// Returns the facts that the record proves.
fn facts(timeline: &Timeline) -> RunFacts<'_> {
    let ending = match (&timeline.ending, timeline.state) {
        (Some(outcome), _) => Ok(outcome),
        (None, "ended") => {
            let why = timeline.problems.iter().find(|problem| problem.contains("cannot be read"));
            Err(why.cloned().unwrap_or_else(|| "the outcome cannot be read".to_owned()))
        }
        (None, "running") => Err("the run has not ended: a process still drives it".to_owned()),
        (None, _) => Err("the run has no ending: its process died, or the file was cut".to_owned()),
    };
    let elsewhere = timeline.entries.iter().any(|entry| entry["type"] == "spent_elsewhere");
    let more_calls = if let Some(problem) = timeline.problems.first() {
        Some(format!("the calls are not all known: {problem}"))
    } else if elsewhere {
        Some(
            "the journal has the calls of one conversation only, and the program had others; pass \
             the file of `endstop guard --events`"
                .to_owned(),
        )
    } else {
        ending.as_ref().err().cloned()
    };
    let diverged = timeline.beside().diverged;
    RunFacts { ending, diverged, calls: timeline.calls.clone(), more_calls }
}
