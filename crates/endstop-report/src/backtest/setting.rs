//! Writes a candidate as settings for `endstop run --config`.

use super::report::{Report, Strength};
use super::{calibrated, format};
use crate::amounts::count;
use endstop_core::detector::Rule;
use endstop_core::limits::TABLE;
use endstop_core::{Limits, WatchMode};
use endstop_trajectory::backtest::{CalibratedGroup, Calibration, Candidate, Trial};
use serde_json::{Map, Value, json};

/// A report without a candidate to write, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoSettings(String);

/// Returns a recommended or calibrated candidate as settings. `day` is today, as `2026-11-23`.
///
/// # Errors
/// Describes why there is nothing to write.
pub fn settings(report: &Report, mode: WatchMode, day: &str) -> Result<String, NoSettings> {
    let (candidate, why, calibration) = if report.alpha.is_some() {
        chosen(report)?
    } else {
        let (candidate, why) = recommended(report)?;
        (candidate, why, None)
    };
    let rule = matches!(candidate.trial, Trial::Rule(_));
    if rule && mode == WatchMode::Stop && calibration.is_none() {
        may_stop(report)?;
    }
    let mut text = String::from("# Written by `endstop backtest` from recorded runs.\n");
    for line in format::wrapped(&why, 96, "# ") {
        text.push_str(&line);
        text.push('\n');
    }
    text.push('\n');
    if let Some(one) = &calibration {
        text.push_str(&promise(one, day)?);
    }
    let holds = calibration.is_some() || report.strength() == Some(Strength::Set);
    text.push_str(&said_of(&candidate, mode, holds));
    text.push_str(&toml_of(&candidate, mode)?);
    Ok(text)
}

/// Refuses to write a rule that stops runs if the bound of its harm is not shown.
fn may_stop(report: &Report) -> Result<(), NoSettings> {
    let (Some(one), Some(whole)) = (report.recommended(), report.whole()) else { return Ok(()) };
    if one.keeps(report.max_harm) {
        return Ok(());
    }
    let most = format::share(report.max_harm);
    let shown = if one.good4_killed.value.is_none() {
        "no good run has 4 steps or more".to_owned()
    } else {
        let runs = count(whole.succeeded, "good run");
        format!("with your {runs} at most {} can be promised", format::share(one.harm().high))
    };
    Err(nothing(&format!(
        "--mode stop needs a bound that holds, and it is not shown that {} stops at most {most} of good runs: {shown}; \
         pass --mode observe, or a larger --max-harm",
        one.name
    )))
}

/// Returns the calibrated candidate, its effect in words, and the calibration.
fn chosen(report: &Report) -> Result<(Candidate, String, Option<&Calibration>), NoSettings> {
    let all: Vec<&Calibration> = calibrated::chosen(report).collect();
    let named = |one: &&&Calibration| one.model == report.model;
    let one = match (&all[..], &report.model) {
        // The named model takes precedence even if only one was calibrated, because it may be
        // another one.
        (_, Some(model)) => *all
            .iter()
            .find(named)
            .ok_or_else(|| nothing(&format!("no calibrated rule for the model `{model}`")))?,
        ([one], None) => one,
        ([], None) => {
            let refused = report.figures.calibrations.iter().map(calibrated::about);
            let why: Vec<String> = refused.filter_map(|said| said.into_iter().next()).collect();
            return Err(nothing(&why.join(" ")));
        }
        (several, None) => {
            let names: Vec<&str> = several.iter().map(|one| calibrated::model(one)).collect();
            let names = names.join(", ");
            return Err(nothing(&format!(
                "a promise holds for one model; choose one with --model: {names}"
            )));
        }
    };
    let spec = one.spec.as_ref().unwrap_or(&Value::Null);
    let rule = Rule::from_spec(spec).map_err(|error| NoSettings(error.to_string()))?;
    Ok((Candidate::rule(rule), calibrated::about(one).join(" "), Some(one)))
}

/// Returns the table that records for which runs a promise was made.
fn promise(one: &Calibration, day: &str) -> Result<String, NoSettings> {
    let promised = || one.groups.iter().filter(|group| group.promised);
    let name = |group: &CalibratedGroup| match &group.kind {
        Some(kind) => format!("{}/{kind}", group.dataset),
        None => group.dataset.clone(),
    };
    let mut table = json!({"calibrated": {
        "date": day,
        "groups": promised().map(name).collect::<Vec<_>>(),
        // The smallest group, because the promise is as weak as its weakest group.
        "good_tasks": promised().map(|group| group.good_tasks).min().unwrap_or(0),
        "promise": one.alpha,
        "endstop": env!("CARGO_PKG_VERSION"),
    }});
    if let Some(model) = &one.model {
        table["calibrated"]["model"] = json!(model);
    }
    let text = toml::to_string(&table).map_err(|error| NoSettings(error.to_string()))?;
    Ok(format!("{text}\n"))
}

fn nothing(why: &str) -> NoSettings {
    NoSettings(format!("nothing to write: {why}"))
}

/// Returns a comment that states what the mode of a written rule does; `holds` if the runs support a promise.
fn said_of(candidate: &Candidate, mode: WatchMode, holds: bool) -> String {
    let rule = match &candidate.trial {
        Trial::Rule(rule) => rule,
        Trial::Kernel(setting)
            if setting.policy.is_none() && limits(&setting.limits).is_empty() =>
        {
            return "# These are the defaults: nothing has to be set.\n".to_owned();
        }
        Trial::Kernel(_) => return "# Limits take effect immediately.\n".to_owned(),
    };
    let does = match mode {
        WatchMode::Observe if holds => {
            "reports that the rule fired, and stops nothing; --mode stop ends the run"
        }
        WatchMode::Observe => {
            "reports that the rule fired, and stops nothing; --mode stop needs more good runs"
        }
        WatchMode::Warn => "warns if the rule fires, and stops nothing",
        WatchMode::Nudge => "informs the model that the rule fired, and stops nothing",
        WatchMode::Stop if matches!(rule, Rule::MaxSteps { .. }) => "a cap on turns ends the run",
        WatchMode::Stop => "ends the run if the rule fires",
    };
    format!("# {}: {does}.\n", mode.as_str())
}

/// Returns the recommended candidate, and its effect in words.
fn recommended(report: &Report) -> Result<(Candidate, String), NoSettings> {
    let (Some(one), Some(whole)) = (report.recommended(), report.whole()) else {
        return Err(nothing(&format::refusal(report)));
    };
    let candidate = report.candidates.iter().find(|candidate| candidate.name == one.name);
    let candidate = candidate.ok_or_else(|| NoSettings(format!("no candidate `{}`", one.name)))?;
    Ok((candidate.clone(), format!("{}: {}.", one.name, format::effect(one, whole))))
}

/// Returns the recommended setting as TOML, for display.
pub(crate) fn snippet(report: &Report) -> Option<String> {
    let name = &report.recommended()?.name;
    let candidate = report.candidates.iter().find(|candidate| candidate.name == *name)?;
    let text = toml_of(candidate, WatchMode::Observe).ok()?;
    let holds = report.strength() == Some(Strength::Set);
    Some(format!("{}{text}", said_of(candidate, WatchMode::Observe, holds)))
}

fn toml_of(candidate: &Candidate, mode: WatchMode) -> Result<String, NoSettings> {
    let settings = match &candidate.trial {
        Trial::Rule(rule) => watch(rule, mode),
        Trial::Kernel(setting) => {
            let mut settings = Map::new();
            let limits = limits(&setting.limits);
            if !limits.is_empty() {
                settings.insert("limits".to_owned(), Value::Object(limits));
            }
            if let Some(policy) = &setting.policy {
                // A policy given by name becomes an empty table, because a settings file has no
                // other form for it.
                let policy = match policy {
                    Value::String(name) => json!({ name.as_str(): {} }),
                    policy => policy.clone(),
                };
                settings.insert("policy".to_owned(), policy);
            }
            Value::Object(settings)
        }
    };
    toml::to_string(&settings).map_err(|error| NoSettings(error.to_string()))
}

/// Returns a rule as a watch. A turn cap that stops becomes the limit of the same meaning, which
/// the kernel enforces.
fn watch(rule: &Rule, mode: WatchMode) -> Value {
    match (rule, mode) {
        (Rule::MaxSteps { steps }, WatchMode::Stop) => json!({"limits": {"max_turns": steps}}),
        _ => json!({"watch": [{"mode": mode.as_str(), "rule": rule.spec()}]}),
    }
}

/// Returns the limits of a candidate that differ from the defaults.
fn limits(limits: &Limits) -> Map<String, Value> {
    // Only the differences, so that the user gets later defaults for everything that was not tried.
    let default = Limits::default();
    let changed = TABLE.iter().filter(|row| row.value(limits) != row.value(&default));
    changed.map(|row| (row.name.to_owned(), row.value(limits).spelled())).collect()
}
