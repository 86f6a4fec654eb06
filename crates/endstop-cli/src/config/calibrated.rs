//! The table `[calibrated]` of a settings file: the runs for which a rule's promise was made.
//!
//! `endstop backtest --calibrate --write` writes it. The promise holds for one model: with another one a
//! rule can stop many times as many good runs, so that the run warns.

use crate::visible::visible;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The runs for which a promise was made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Calibrated {
    /// The model; `None` if the runs did not name theirs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    /// The datasets and kinds of task.
    #[serde(default)]
    groups: Vec<String>,
    /// The day of the calibration.
    date: String,
    /// Number of good tasks in the smallest group.
    good_tasks: u64,
    /// The share of good tasks that may be stopped.
    promise: f64,
    /// The release that calibrated.
    #[serde(default)]
    endstop: String,
    /// The warning of the run, as the journal stores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warned: Option<String>,
}

impl Calibrated {
    /// Reads the table.
    ///
    /// # Errors
    /// Describes the invalid member.
    pub(crate) fn read(value: &Value) -> Result<Calibrated, String> {
        let read: Calibrated =
            serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
        if !(0.0..=1.0).contains(&read.promise) {
            return Err(format!("`promise`: expected a share from 0 to 1, not {}", read.promise));
        }
        // Only a run sets it.
        Ok(Calibrated { warned: None, ..read })
    }

    /// Compares the run with the calibration, and returns a warning if the promise does not hold for it.
    pub(crate) fn check(&mut self, model: Option<&str>) -> Option<&str> {
        // Rounded, because 0.07 * 100.0 is 7.000000000000001.
        let promise = format!("{} %", (self.promise * 1e6).round() / 1e4);
        let about = format!("of at most {promise} of good tasks stopped ({})", visible(&self.date));
        let run = model.unwrap_or("a model that is not named");
        self.warned = match &self.model {
            Some(own) if model.is_some_and(|model| is_same(model, own)) => {
                let here = env!("CARGO_PKG_VERSION");
                (self.endstop != here).then(|| {
                    format!(
                        "the promise {about} was made by endstop {}, whose rules may differ from those of {here}; calibrate again",
                        if self.endstop.is_empty() { "of an unknown version".into() } else { visible(&self.endstop) }
                    )
                })
            }
            Some(own) => Some(format!(
                "the promise {about} was made for {}, and does not hold for {}; calibrate on its runs, or watch in mode observe",
                visible(own),
                visible(run)
            )),
            None => Some(format!(
                "the promise {about} was made for runs that do not name their model; it may not hold for {}",
                visible(run)
            )),
        };
        self.warned.as_deref()
    }
}

/// Returns `true` if two names mean the same model: one of them may begin with its provider.
fn is_same(a: &str, b: &str) -> bool {
    let ends = |long: &str, short: &str| {
        long.strip_suffix(short).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    };
    ends(a, b) || ends(b, a)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn promise_holds_for_its_model_and_version() {
        let table = |model: &str| {
            let here = env!("CARGO_PKG_VERSION");
            json!({"model": model, "date": "2026-11-23", "good_tasks": 40, "promise": 0.05, "endstop": here})
        };
        let warned = |table: Value, model: Option<&str>| {
            Calibrated::read(&table).unwrap().check(model).map(str::to_owned)
        };
        for (own, run) in [("gpt-4o", "openai/gpt-4o"), ("openai/gpt-4o", "gpt-4o"), ("m", "m")] {
            assert_eq!(warned(table(own), Some(run)), None, "{own} {run}");
        }
        for (own, run) in [("gpt-4o", "openai/gpt-4o-mini"), ("gpt-4", "xgpt-4"), ("m", "n")] {
            let said = warned(table(own), Some(run)).unwrap();
            assert!(said.contains("5 %") && said.contains(own) && said.contains(run), "{said}");
        }
        assert!(warned(table("m"), None).unwrap().contains("not named"));
        let mut old = table("m");
        old["endstop"] = json!("0.0.1");
        assert!(warned(old.clone(), Some("m")).unwrap().contains("0.0.1"));
        old.as_object_mut().unwrap().remove("endstop");
        old["promise"] = json!(0.07);
        let said = warned(old.clone(), Some("m")).unwrap();
        assert!(said.contains("at most 7 % of") && said.contains("an unknown version"), "{said}");
        old["promise"] = json!(5);
        assert!(Calibrated::read(&old).unwrap_err().contains("promise"));
        assert!(Calibrated::read(&json!({"model": "m"})).unwrap_err().contains("date"));
    }
}
