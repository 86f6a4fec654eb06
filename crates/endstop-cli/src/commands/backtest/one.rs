//! `backtest --explain`: shows one run with its steps, the step at which each candidate fires, and
//! what a stop there saves.

use crate::failure::{Failure, Result};
use crate::output;
use crate::recorded::backtest::Input;
use crate::recorded::{journal_runs, opencode};
use crate::render::amounts::count;
use crate::visible::shorten;
use endstop_report::backtest::{fitted, usd};
use endstop_trajectory::backtest::{Backtest, Candidate, Judged};
use endstop_trajectory::read::{Outcomes, Problem, for_each};
use endstop_trajectory::{Prices, Step, Trajectory};
use serde_json::{Value, json};

/// Shows the run with this id, or with the only id that has it as a prefix.
pub(super) fn run(input: &Input, candidates: &[Candidate], name: &str, as_json: bool) -> Result {
    let mut look = Look {
        test: Backtest::new(candidates).map_err(|error| Failure::usage(error.to_string()))?,
        name,
        outcomes: input.outcomes.clone(),
        exact: None,
        alike: Vec::new(),
        others: 0,
    };
    for path in &input.files {
        for_each(path, &input.options, &mut |run| {
            // Problems with other runs do not matter here.
            if let Ok(run) = run {
                look.at(run, None);
            }
        })
        .map_err(|error| Failure::usage(error.to_string()))?;
    }
    for (path, nth) in input.journals.iter().zip(0..) {
        let mut take = |run: std::result::Result<journal_runs::Run, Problem>| match run {
            Ok(run) => look.at(run.trajectory, Some(&run.recorded)),
            // A damaged run may be the one that the user asked for, so its problem is shown.
            Err(problem) => output::note(&format!("endstop: {problem}")),
        };
        if nth < input.named {
            journal_runs::each(path, &mut take)?;
        } else {
            journal_runs::each_found(path, &mut take);
        }
    }
    for path in &input.databases {
        opencode::each(path, &mut |run| {
            if let Ok(run) = run {
                look.at(run, None);
            }
        });
    }
    let found = look.found()?;
    if as_json {
        output::json(&found.json(candidates));
        return Ok(0);
    }
    for line in found.lines(candidates) {
        output::painted_line(&line);
    }
    Ok(0)
}

/// The search for the run.
struct Look<'l> {
    test: Backtest,
    name: &'l str,
    outcomes: Option<Outcomes>,
    /// The first run with exactly this id.
    exact: Option<Found>,
    /// Runs whose ids start with the name; at most four are kept, because the error lists only a
    /// few.
    alike: Vec<Found>,
    /// Number of further runs with the same id.
    others: u64,
}

/// The run that was found, with the results of the candidates.
struct Found {
    run: Trajectory<'static>,
    judged: Judged,
    others: u64,
}

impl Look<'_> {
    fn at(&mut self, mut run: Trajectory<'_>, own: Option<&endstop::journal::RecordedRun>) {
        let exact = run.run_id == self.name;
        if exact && self.exact.is_some() {
            self.others += 1;
            return;
        }
        if !exact && (!run.run_id.starts_with(self.name) || self.alike.len() > 3) {
            return;
        }
        if let Some(outcomes) = &mut self.outcomes {
            outcomes.apply(&mut run);
        }
        let judged = match own {
            Some(own) => {
                self.test.judge_by(&run, &|setting| journal_runs::ends_after(own, setting))
            }
            None => self.test.judge(&run),
        };
        let found = Found { run: run.into_owned(), judged, others: 0 };
        if exact {
            self.exact = Some(found);
        } else {
            self.alike.push(found);
        }
    }

    fn found(mut self) -> Result<Found> {
        if let Some(found) = self.exact {
            return Ok(Found { others: self.others, ..found });
        }
        match self.alike.len() {
            0 => Err(Failure::usage(format!("--explain {}: no such run", self.name))),
            1 => Ok(self.alike.swap_remove(0)),
            _ => {
                let ids: Vec<&str> = self.alike.iter().map(|found| &*found.run.run_id).collect();
                Err(Failure::usage(format!(
                    "--explain {}: ambiguous, matches {}; pass a longer prefix",
                    self.name,
                    ids.join(", ")
                )))
            }
        }
    }
}

impl Found {
    fn outcome(&self) -> &'static str {
        match self.run.recorded.success {
            Some(true) => "good",
            Some(false) => "failed",
            None => "without an outcome",
        }
    }

    fn lines(&self, candidates: &[Candidate]) -> Vec<String> {
        let run = &self.run;
        let place = match run.origin.at {
            Some(at) => format!("{}:{at}", run.origin.file),
            None => run.origin.file.clone(),
        };
        let mut lines = vec![format!(
            "run {}: {}, {}",
            shorten(&run.run_id, 80),
            self.outcome(),
            count(u64::from(self.judged.turns), "step")
        )];
        let mut facts = vec![place];
        facts.extend(run.model.iter().map(|model| format!("model {model}")));
        facts.extend(run.task_id.iter().map(|task| format!("task {}", shorten(task, 60))));
        facts.extend(run.ending.iter().map(|ending| format!("ended as {}", ending.reason)));
        lines.push(shorten(&facts.join(" · "), 300).replace('\n', " "));
        if self.others > 0 {
            lines.push(format!("{} more with this id; showing the first", self.others));
        }
        lines.push(String::new());
        for (step, number) in run.turns().zip(1u32..) {
            lines.push(format!("{number:>5}  {}", in_short(step)));
            for (candidate, fired) in candidates.iter().zip(&self.judged.fired) {
                if *fired == Some(number) {
                    let saved = self.judged.turns - number;
                    let saved = if saved == 0 {
                        "at the last step, which saves nothing".to_owned()
                    } else {
                        format!("would have saved {}", count(u64::from(saved), "step"))
                    };
                    lines.push(format!("       ■ {} fires: {saved}", candidate.name));
                }
            }
        }
        lines.push(String::new());
        let stops = self.stops(candidates);
        let stopped = stops.len() as u64;
        let what = match self.run.recorded.success {
            _ if stopped == 0 => "no candidate stops it before its end".to_owned(),
            Some(true) => format!("{} would have stopped a good run", count(stopped, "candidate")),
            Some(false) => {
                format!("{} would have stopped a failed run", count(stopped, "candidate"))
            }
            None => format!(
                "{} would have stopped it; it is unknown whether that would have been right",
                count(stopped, "candidate")
            ),
        };
        lines.push(what);
        for (name, at, saved) in stops {
            let mut said =
                format!("  {:<40} at step {at}: {}", fitted(name, 40), count(saved, "step"));
            let usage = self.after(at);
            if let Some(tokens) = usage.0 {
                said = format!("{said}, {}", count(tokens, "token"));
            }
            if let Some(dollars) = usage.1 {
                said = format!("{said}, {}", usd(dollars));
            }
            lines.push(said);
        }
        lines
    }

    /// Returns the candidates that stop the run before its end, with the step and the number of
    /// steps after it.
    fn stops<'c>(&self, candidates: &'c [Candidate]) -> Vec<(&'c str, u32, u64)> {
        let turns = self.judged.turns;
        let fired = candidates.iter().zip(&self.judged.fired);
        fired
            .filter_map(|(candidate, at)| {
                // A stop at the last step would have changed nothing.
                let at = at.filter(|at| *at < turns)?;
                Some((candidate.name.as_str(), at, u64::from(turns - at)))
            })
            .collect()
    }

    /// Returns the tokens and dollars of the steps after this one, or `None` if a step does not
    /// record them.
    fn after(&self, at: u32) -> (Option<u64>, Option<f64>) {
        let prices = Prices::new();
        let behind = || self.run.turns().skip(at as usize);
        let tokens = behind().map(Step::tokens).sum();
        let usd = behind().map(|step| prices.usd(step, &self.run)).sum();
        (tokens, usd)
    }

    fn json(&self, candidates: &[Candidate]) -> Value {
        let fired: Vec<Value> = candidates
            .iter()
            .zip(&self.judged.fired)
            .map(|(candidate, at)| {
                let saved = at.map(|at| self.judged.turns.saturating_sub(at));
                json!({"name": candidate.name, "fires_at": at, "steps_saved": saved})
            })
            .collect();
        let steps: Vec<String> = self.run.turns().map(in_short).collect();
        json!({
            "run_id": self.run.run_id,
            "file": self.run.origin.file,
            "at": self.run.origin.at,
            "task_id": self.run.task_id,
            "model": self.run.model,
            "success": self.run.recorded.success,
            "turns": self.judged.turns,
            "steps": steps,
            "candidates": fired,
        })
    }
}

/// Formats a step in one line: the calls and their results, or the text.
fn in_short(step: &Step<'_>) -> String {
    let line = |text: &str, most: usize| shorten(text, most).replace('\n', " ⏎ ");
    if step.calls.is_empty() && step.results.is_empty() {
        return format!("text {:?}", line(&step.text, 80));
    }
    let calls: Vec<String> = step
        .calls
        .iter()
        .take(3)
        .map(|call| format!("{}({})", line(&call.name, 40), line(&call.arguments, 50)))
        .collect();
    let more = if step.calls.len() > 3 { " …" } else { "" };
    let result = step.results.first().map_or_else(
        || "no result".to_owned(),
        |result| {
            let failed = if result.is_error { "failed: " } else { "" };
            format!("{failed}{}", line(&result.content, 40))
        },
    );
    format!("{}{more} → {result}", calls.join(", "))
}
