//! Writes a candidate as settings for `endstop run --config`.

use super::{calibrated, format};
use crate::failure::{Failure, Result};
use crate::new_file::NewFile;
use crate::output;
use crate::recorded::backtest::Report;
use endstop::core::detector::Rule;
use endstop::core::limits::TABLE;
use endstop::{Limits, WatchMode};
use endstop_trajectory::backtest::{Candidate, Trial};
use serde_json::{Map, Value, json};

/// Writes the calibrated setting if a calibration was requested, else the recommended one.
pub(crate) fn write(report: &Report, file: &NewFile, mode: WatchMode) -> Result<()> {
    let place = format!("--write {}", file.path().display());
    let nothing = |why: &str| Failure::usage(format!("{place}: nothing to write: {why}"));
    let (candidate, why) = match report.alpha {
        Some(alpha) => chosen(report, alpha, &nothing)?,
        None => recommended(report, &nothing)?,
    };
    let mut text = String::from("# Written by `endstop backtest` from recorded runs.\n");
    for line in format::wrapped(&why, 96, "# ") {
        text.push_str(&line);
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&toml_of(&candidate, mode)?);
    file.write(&text)?;
    output::note(&format!("written: {}", file.path().display()));
    Ok(())
}

/// Returns the calibrated candidate, and its effect in words.
fn chosen(
    report: &Report,
    alpha: f64,
    nothing: &dyn Fn(&str) -> Failure,
) -> Result<(Candidate, String)> {
    let most = format::share(alpha);
    let one = calibrated::best(report).ok_or_else(|| {
        nothing(&format!("no threshold stops both a failed run and at most {most} of good tasks"))
    })?;
    let spec = one.spec.as_ref().unwrap_or(&Value::Null);
    let rule = Rule::from_spec(spec).map_err(|error| Failure::fault(error.to_string()))?;
    let why = format!(
        "{rule}: at most {most} of good tasks stopped; on other tasks {} good runs, {} failed ones.",
        calibrated::of(one.test_good_stopped, one.test_good),
        calibrated::of(one.test_failed_stopped, one.test_failed),
    );
    Ok((Candidate::rule(rule), why))
}

/// Returns the recommended candidate, and its effect in words.
fn recommended(report: &Report, nothing: &dyn Fn(&str) -> Failure) -> Result<(Candidate, String)> {
    let (Some(one), Some(whole)) = (report.recommended(), report.whole()) else {
        return Err(nothing(&format::refusal(report)));
    };
    let candidate = report.candidates.iter().find(|candidate| candidate.name == one.name);
    let candidate =
        candidate.ok_or_else(|| Failure::fault(format!("no candidate `{}`", one.name)))?;
    Ok((candidate.clone(), format!("{}: {}.", one.name, format::effect(one, whole))))
}

/// Returns the recommended setting as TOML, for display.
pub(crate) fn snippet(report: &Report) -> Option<String> {
    let name = &report.recommended()?.name;
    let candidate = report.candidates.iter().find(|candidate| candidate.name == *name)?;
    toml_of(candidate, WatchMode::Observe).ok()
}

fn toml_of(candidate: &Candidate, mode: WatchMode) -> Result<String> {
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
    toml::to_string(&settings).map_err(|error| Failure::fault(error.to_string()))
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
    let usual = Limits::default();
    let changed = TABLE.iter().filter(|row| row.value(limits) != row.value(&usual));
    changed.map(|row| (row.name.to_owned(), row.value(limits).spelled())).collect()
}
