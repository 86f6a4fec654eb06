//! The candidates of a backtest: from the command line, from a file, or the defaults.

use super::curve;
use super::limits::limited;
use crate::config::trust::file::toml_file;
use crate::failure::{Failure, Result};
use crate::input::Source;
use crate::recorded_args::BacktestArgs;
use endstop::policy::PolicyError;
use endstop_report::backtest::Curve;
use endstop_trajectory::backtest::Candidate;
use serde_json::{Value, json};
use std::path::Path;

/// Returns the requested candidates, or the default ones if none was requested.
pub(crate) fn of(args: &BacktestArgs) -> Result<(Vec<Candidate>, Vec<Curve>)> {
    let mut all: Vec<Candidate> = Vec::new();
    if let Some(set) = &args.policies {
        all.extend(named(set)?);
    }
    for spec in &args.policy {
        let candidate = Candidate::parse(spec)
            .map_err(|error| Failure::usage(format!("--policy {spec}: {error}")))?;
        all.push(candidate);
    }
    let (single, several): (Vec<String>, Vec<String>) =
        args.limits.iter().cloned().partition(|text| !curve::is_one(text));
    if !single.is_empty() {
        // All limits that are given form one candidate.
        all.push(limited("limits", &single)?);
    }
    let mut curves = Vec::new();
    for text in &several {
        let (curve, candidates) = curve::of(text)?;
        add(&mut all, candidates);
        curves.push(curve);
    }
    if args.sweep {
        add(&mut all, Candidate::grid().map_err(|error| fault(&error))?);
    }
    if all.is_empty() {
        all = usual()?;
    }
    for (nth, one) in all.iter().enumerate() {
        if all[..nth].iter().any(|other| other.name == one.name) {
            return Err(Failure::usage(format!(
                "duplicate candidate `{}`; set another `name` for one of them",
                one.name
            )));
        }
    }
    Ok((all, curves))
}

/// Reads a set by its name, or from a file.
fn named(set: &str) -> Result<Vec<Candidate>> {
    let path = Path::new(set);
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    match (set, ending.as_deref()) {
        ("reference", _) => Candidate::reference().map_err(|error| fault(&error)),
        ("default", _) => usual(),
        (_, Some("toml")) => {
            let table = toml_file(path)?;
            if let Some(key) = table.keys().find(|key| *key != "candidate") {
                return Err(Failure::usage(format!(
                    "{set}: unknown key `{key}`; write candidates as tables [[candidate]]"
                )));
            }
            let list = table.get("candidate").cloned().unwrap_or_else(|| json!([]));
            read(set, &list)
        }
        (_, Some("json")) => read(set, &Source::of(Some(path)).json()?),
        _ => Err(Failure::usage(format!(
            "invalid --policies `{set}`: expected `default`, `reference`, or a .json or .toml file with a list of candidates"
        ))),
    }
}

fn read(file: &str, list: &Value) -> Result<Vec<Candidate>> {
    let read = Candidate::read(list).map_err(|error| Failure::usage(format!("{file}: {error}")))?;
    if read.is_empty() {
        return Err(Failure::usage(format!("{file}: no candidates found")));
    }
    Ok(read)
}

/// Returns the default candidates.
fn usual() -> Result<Vec<Candidate>> {
    Candidate::defaults().map_err(|error| fault(&error))
}

/// Adds the candidates that are not in the list yet, so that a sweep can contain a named candidate.
fn add(all: &mut Vec<Candidate>, more: Vec<Candidate>) {
    for one in more {
        if !all.iter().any(|other| other.name == one.name) {
            all.push(one);
        }
    }
}

/// Converts an error of a built-in candidate, which can only be an internal fault.
fn fault(error: &PolicyError) -> Failure {
    Failure::fault(error.to_string())
}
