//! A limit at several values: `max_turns=5..40`, `max_budget_usd=0.1,0.2,0.5`.
//!
//! ```text
//! let (curve, candidates) = curve::of("max_turns=5..40")?;    // max_turns=5, max_turns=6, …
//! ```

use super::limits::limited;
use crate::failure::{Failure, Result};
use endstop_report::backtest::Curve;
use endstop_trajectory::backtest::Candidate;

/// Maximum number of values. A range with more is thinned out evenly.
const MOST: usize = 60;

/// Returns `true` if a limit is given at several values.
pub(super) fn is_one(text: &str) -> bool {
    text.split_once('=').is_some_and(|(_, value)| value.contains(',') || value.contains(".."))
}

/// Reads a limit at several values.
pub(super) fn of(text: &str) -> Result<(Curve, Vec<Candidate>)> {
    let wrong = |what: &str| {
        Failure::usage(format!(
            "invalid --limit `{text}`: {what}; expected a range such as max_turns=5..40, or a list \
             such as max_budget_usd=0.1,0.2,0.5"
        ))
    };
    let (limit, values) = text.split_once('=').ok_or_else(|| wrong("no value"))?;
    let limit = limit.trim().replace('-', "_");
    let values = match values.split_once("..") {
        Some((from, to)) => {
            let whole = |text: &str| text.trim().parse::<u32>().ok();
            let range = whole(from).zip(whole(to)).filter(|(from, to)| from < to);
            let (from, to) = range.ok_or_else(|| wrong("not a range of whole numbers"))?;
            range_of(from, to)
        }
        None => values.split(',').map(|value| value.trim().to_owned()).collect(),
    };
    let mut points: Vec<(String, String)> = Vec::new();
    let mut candidates = Vec::new();
    for value in values {
        let name = format!("{limit}={value}");
        if value.is_empty() {
            return Err(wrong("an empty value"));
        }
        if points.iter().any(|(_, known)| *known == name) {
            return Err(wrong(&format!("`{value}` occurs twice")));
        }
        candidates.push(limited(&name, std::slice::from_ref(&name))?);
        points.push((value, name));
    }
    if points.len() > MOST {
        return Err(wrong(&format!("more than {MOST} values")));
    }
    Ok((Curve { limit, points }, candidates))
}

/// Returns the numbers from one to another, both included, or about [`MOST`] of them.
fn range_of(from: u32, to: u32) -> Vec<String> {
    let step = (u64::from(to) - u64::from(from) + 1).div_ceil(MOST as u64 - 1).max(1);
    let mut values: Vec<u64> = (u64::from(from)..=u64::from(to)).step_by(step as usize).collect();
    if values.last() != Some(&u64::from(to)) {
        values.push(u64::from(to));
    }
    values.iter().map(u64::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_lists_are_read() {
        let values = |text: &str| -> Vec<String> {
            of(text).unwrap().0.points.into_iter().map(|(value, _)| value).collect()
        };
        assert_eq!(values("max-turns=5..8"), ["5", "6", "7", "8"]);
        assert_eq!(values("max_budget_usd=0.1, 0.2,0.5"), ["0.1", "0.2", "0.5"]);
        assert_eq!(values("timeout=5m,10m"), ["5m", "10m"]);
        let (curve, candidates) = of("max_turns=1..1000").unwrap();
        assert!(curve.points.len() <= MOST && candidates.len() == curve.points.len());
        assert_eq!(curve.points.last().unwrap().1, "max_turns=1000");
        assert_eq!(range_of(0, u32::MAX).len(), 60);
        for text in
            ["max_turns=8..5", "max_turns=a..b", "max_turns=5,,6", "max_turns=5,5", "turns=1,2"]
        {
            assert!(of(text).is_err(), "{text}");
        }
        assert!(!is_one("max_turns=5") && is_one("max_turns=5..6"));
    }
}
