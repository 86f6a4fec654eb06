//! The view of a check, and the questions that several checks ask.

use super::verdict::{Finding, fail, not_reached, pass};
use crate::case::{Case, UNKNOWN};
use crate::evidence::{Evidence, Exit, Kind, Stopped};
use crate::profile::Profile;

/// A case with its observations, for a check.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The case.
    pub case: &'a Case,
    /// The profile of the program.
    pub profile: &'a Profile,
    /// Observations.
    pub evidence: &'a Evidence,
}

/// Returns a finding if the run has not ended by itself.
pub(super) fn unended(observed: &Observed<'_>) -> Option<Finding> {
    let evidence = observed.evidence;
    let calls = evidence.calls.len();
    Some(match evidence.exit {
        Some(Exit::Status(_)) => return None,
        None => not_reached("the program was not started"),
        Some(Exit::Stopped(Stopped::Time)) => {
            fail(format!("still running after {:.0} s, with {calls} calls", evidence.seconds))
        }
        Some(Exit::Stopped(Stopped::Patience)) => {
            not_reached(format!("patience {} s; {calls} calls so far", evidence.patience))
        }
        Some(Exit::Stopped(Stopped::Calls)) => fail(format!("{calls} calls, and no end")),
        Some(Exit::Stopped(Stopped::Output)) => {
            fail(format!("printed more than {} MB, and no end", crate::program::MOST_OUTPUT >> 20))
        }
    })
}

/// Time in seconds between two calls of which the second one is not of the same moment.
const LATER: f64 = 1.0;

/// Judges a run whose response must be given up. A closed connection and a later call show that it was, also if the run then
/// waits again; how often a call is repeated, other checks say. A call next to one that is still waited for shows nothing.
pub(super) fn given_up(observed: &Observed<'_>) -> Finding {
    let calls: Vec<f64> = observed.evidence.of_kind(Kind::Main).map(|call| call.at).collect();
    match calls[..] {
        [first, .., last]
            if !observed.evidence.has_ended()
                && last > first + LATER
                && observed.evidence.hung_up.len() + 1 >= calls.len() =>
        {
            let next = calls.iter().find(|at| **at > first + LATER).unwrap_or(&last);
            pass(format!("given up, and called again after {:.0} s", next - first))
        }
        _ => not_a_success(observed),
    }
}

/// Judges a run that must end, and not as a success.
pub(super) fn not_a_success(observed: &Observed<'_>) -> Finding {
    if let Some(finding) = unended(observed) {
        return finding;
    }
    match success(observed.evidence) {
        Some(how) => fail(how),
        None => pass(end(observed.evidence)),
    }
}

/// Returns the verdict that is a success, if there is one.
pub(super) fn success(evidence: &Evidence) -> Option<String> {
    let record = evidence.record.success == Some(true);
    match (evidence.exit, record) {
        (Some(Exit::Status(0)), true) => Some("a success in exit status and record".to_owned()),
        (Some(Exit::Status(0)), false) => Some("exit status 0".to_owned()),
        (_, true) => Some("the record says success".to_owned()),
        _ => None,
    }
}

/// Describes an end that is not a success.
pub(super) fn end(evidence: &Evidence) -> String {
    let status = match evidence.exit {
        Some(Exit::Status(status)) => format!("exit status {status}"),
        Some(Exit::Stopped(why)) => format!("stopped: {why:?}"),
        None => "not started".to_owned(),
    };
    let calls = evidence.calls.len();
    let reason = evidence.record.reason.as_ref().map(|reason| format!(", `{reason}`"));
    let noun = if calls == 1 { "call" } else { "calls" };
    format!("{status}{} after {calls} {noun}", reason.unwrap_or_default())
}

/// Judges a run that must be a success.
pub(super) fn a_success(observed: &Observed<'_>) -> Result<(), Finding> {
    if let Some(finding) = unended(observed) {
        return Err(finding);
    }
    match observed.evidence.success() {
        Some(true) => Ok(()),
        _ => Err(fail(format!("a good run was not a success: {}", end(observed.evidence)))),
    }
}

/// `true` if the output has the unknown finish value.
pub(super) fn keeps_unknown(evidence: &Evidence) -> bool {
    let places = [&evidence.stdout, &evidence.stderr, &evidence.record.text];
    places.iter().any(|text| text.to_lowercase().contains(UNKNOWN))
}
