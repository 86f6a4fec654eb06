//! A candidate as settings that `endstop run --config` takes.
//!
//! ```ignore
//! setting::write(&report, &NewFile::of("--write", path, false)?, WatchMode::Observe)?;
//! ```

use super::{Report, calibrated, words};
use crate::new_file::NewFile;
use crate::{Failure, Result, output};
use endstop::core::detector::Rule;
use endstop::{Limits, WatchMode};
use endstop_trajectory::backtest::{Candidate, Trial};
use serde_json::{Map, Value, json};

/// Writes what was calibrated, where that was asked for, else what is recommended.
pub(super) fn write(report: &Report, file: &NewFile, mode: WatchMode) -> Result<()> {
    let place = format!("--write {}", file.path().display());
    let nothing = |why: &str| Failure::usage(format!("{place}: nothing is written: {why}"));
    let (candidate, why) = match report.alpha {
        Some(alpha) => chosen(report, alpha, &nothing)?,
        None => recommended(report, &nothing)?,
    };
    let mut text = String::from("# By `endstop backtest`, from recorded runs.\n");
    for line in words::wrapped(&why, 96, "# ") {
        text.push_str(&line);
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&toml_of(&candidate, mode)?);
    file.write(&text)?;
    output::note(&format!("written: {}", file.path().display()));
    Ok(())
}

/// What was calibrated, and what it does.
fn chosen(
    report: &Report,
    alpha: f64,
    nothing: &dyn Fn(&str) -> Failure,
) -> Result<(Candidate, String)> {
    let most = words::share(alpha);
    let one = calibrated::best(report).ok_or_else(|| {
        nothing(&format!("no threshold stops a failed run and at most {most} of good tasks"))
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

/// What is recommended, and what it does.
fn recommended(report: &Report, nothing: &dyn Fn(&str) -> Failure) -> Result<(Candidate, String)> {
    let (Some(one), Some(whole)) = (report.recommended(), report.whole()) else {
        return Err(nothing(&words::refusal(report)));
    };
    let candidate = report.candidates.iter().find(|candidate| candidate.name == one.name);
    let candidate =
        candidate.ok_or_else(|| Failure::fault(format!("no candidate `{}`", one.name)))?;
    Ok((candidate.clone(), format!("{}: {}.", one.name, words::effect(one, whole))))
}

/// The recommended setting, to be shown.
pub(super) fn snippet(report: &Report) -> Option<String> {
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
                // A name alone is a table of it.
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

/// A rule that watches; a cap that stops is the limit of that name.
fn watch(rule: &Rule, mode: WatchMode) -> Value {
    match (rule, mode) {
        (Rule::MaxSteps { steps }, WatchMode::Stop) => json!({"limits": {"max_turns": steps}}),
        _ => json!({"watch": [{"mode": mode.as_str(), "rule": rule.spec()}]}),
    }
}

/// The limits of a candidate that are not those of any run.
fn limits(limits: &Limits) -> Map<String, Value> {
    let usual = Limits::default();
    let off = || json!("off");
    let time = |time: Option<std::time::Duration>| {
        time.map_or_else(off, |time| json!(format!("{}ms", time.as_millis())))
    };
    let count = |count: Option<u32>| count.map_or_else(off, |count| json!(count));
    let all = [
        ("max_turns", count(limits.max_turns), count(usual.max_turns)),
        (
            "max_budget_usd",
            limits.max_budget_usd.map_or_else(off, |usd| json!(usd)),
            usual.max_budget_usd.map_or_else(off, |usd| json!(usd)),
        ),
        (
            "max_tokens",
            limits.max_tokens.map_or_else(off, |tokens| json!(tokens)),
            usual.max_tokens.map_or_else(off, |tokens| json!(tokens)),
        ),
        ("timeout", time(limits.timeout), time(usual.timeout)),
        (
            "max_consecutive_mistakes",
            count(limits.max_consecutive_mistakes),
            count(usual.max_consecutive_mistakes),
        ),
        (
            "max_unproductive_turns",
            count(limits.max_unproductive_turns),
            count(usual.max_unproductive_turns),
        ),
        ("max_empty_turns", count(limits.max_empty_turns), count(usual.max_empty_turns)),
    ];
    all.into_iter()
        .filter(|(_, value, usual)| value != usual)
        .map(|(name, value, _)| (name.to_owned(), value))
        .collect()
}
