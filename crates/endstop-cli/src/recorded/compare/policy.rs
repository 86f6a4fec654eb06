//! The policies that are compared: by name, as a specification, as limits, or none.

use crate::failure::{Failure, Result};
use crate::recorded::backtest::limits::limited;
use endstop_trajectory::backtest::Candidate;

/// Reads a policy; `None` for `none`.
pub(super) fn of(text: &str) -> Result<Option<Candidate>> {
    if text == "none" {
        return Ok(None);
    }
    if let Some(limits) = text.strip_prefix("limits:") {
        let limits: Vec<String> = limits.split(',').map(str::to_owned).collect();
        return limited(text, &limits).map(Some);
    }
    let fault = |error: endstop::policy::PolicyError| Failure::fault(error.to_string());
    let mut known = Candidate::reference().map_err(fault)?;
    known.extend(Candidate::grid().map_err(fault)?);
    known.push(Candidate::default_limits());
    if let Some(candidate) = known.into_iter().find(|candidate| candidate.name == text) {
        return Ok(Some(candidate));
    }
    let read =
        Candidate::parse(text).map_err(|error| Failure::usage(format!("{text}: {error}")))?;
    Ok(Some(Candidate { name: text.to_owned(), ..read }))
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn policies_are_read_in_each_form() {
        assert!(of("none").unwrap().is_none());
        for text in [
            "same_error(3)",
            "max_steps(9)",
            "stuck(3,4,-,7)",
            "any[repeat_call(9),stuck(2,5,4,9)]",
            "repeat_call={\"times\": 3}",
            "limits:max_turns=20,timeout=10m",
            "stuck",
        ] {
            assert_eq!(of(text).unwrap().unwrap().name, text);
        }
        for text in ["nothing", "limits:max_turns", "limits:max_turns=x", "limits:turns=3", ""] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
