//! The loop of a guest is gone: the provisional ending becomes final, or the run ends as unfinished.

use crate::kernel::context::RunContext;
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::Ending;
use crate::kernel::outcome::excerpt::excerpt;
use crate::kernel::outcome::nested_ending::NestedEnding;
use crate::kernel::phase::Phase;
use crate::kernel::stopping::outrank;
use crate::kernel::tools::open_calls::OpenCalls;
use crate::termination::Termination;

/// Builds the ending of a run whose loop is gone. `late` is the ending of a deadline that has passed
/// without an event.
pub(crate) fn closed(
    phase: &mut Phase,
    ok: bool,
    detail: &str,
    ended_as: Option<Box<NestedEnding>>,
    late: Option<Box<Ending>>,
    context: &RunContext,
) -> Box<Ending> {
    let decided = match (ended_as, &mut *phase) {
        (Some(nested), _) => Some(Ending::of_nested(*nested)),
        (None, Phase::Guest(idle)) => idle.provisional.take(),
        (None, _) => None,
    };
    if let Some(ending) = decided {
        return if ok { ending } else { failed(ending, detail) };
    }
    match phase.take() {
        Phase::Stopping { ending, calls, .. } => {
            // `conclude` closes calls in the `Tools` phase, so hand them over there.
            *phase = Phase::Tools(calls);
            ending
        }
        other => {
            let unfinished = unfinished(&during(&other), detail);
            *phase = other;
            late.unwrap_or_else(|| outrank(phase, unfinished, context).0)
        }
    }
}

/// The ending of a run whose loop ended with an error after the model's last response.
fn failed(mut ending: Box<Ending>, detail: &str) -> Box<Ending> {
    if !ending.termination.is_success() {
        // The response had failed before the loop did, so its own ending stands.
        if !detail.is_empty() {
            ending.diagnostic.get_or_insert_with(|| detail.to_owned());
        }
        return ending;
    }
    let mut failed = unfinished("after an answer, with an error", detail);
    failed.carry(&ending);
    failed.nested = ending.nested.take();
    failed.outranked.append(&mut ending.outranked);
    failed
}

fn unfinished(when: &str, detail: &str) -> Box<Ending> {
    let mut evidence = format!("the loop ended {when}");
    if !detail.is_empty() {
        evidence = format!("{evidence}: {detail}");
    }
    let termination = Termination::ErrorDuringExecution;
    let mut ending = Ending::new(termination, Layer::Caller, Decision::Closed, evidence);
    ending.diagnostic = (!detail.is_empty()).then(|| detail.to_owned());
    ending
}

/// Describes what the run was waiting for.
fn during(phase: &Phase) -> String {
    match phase {
        Phase::New => "before the run started".to_owned(),
        Phase::Calling(call) if call.text.is_empty() && call.hidden == 0 => {
            "during a model call, before any content".to_owned()
        }
        Phase::Calling(_) => "during a model call, in the middle of its response".to_owned(),
        Phase::Reserving { .. } => "while a shared budget was asked for a model call".to_owned(),
        Phase::Backoff { .. } => "before a failed model call was retried".to_owned(),
        Phase::Tools(calls) => format!("with open tool calls ({})", names(calls)),
        Phase::Guest(_) => "before the model gave an answer".to_owned(),
        Phase::Consulting { .. }
        | Phase::Compacting { .. }
        | Phase::Validating { .. }
        | Phase::Verifying { .. }
        | Phase::Waiting { .. }
        | Phase::WrappingUp(_) => "while an answer of the driver was outstanding".to_owned(),
        Phase::Stopping { .. } => "while the run was being stopped".to_owned(),
    }
}

/// The names of the calls that have no result.
fn names(calls: &OpenCalls) -> String {
    // A response may have thousands of calls, and each name may be arbitrarily long.
    const SHOWN: usize = 4;
    let mut open = calls.running.iter().filter_map(|running| calls.calls.get(running.at));
    let shown: Vec<String> =
        open.by_ref().take(SHOWN).map(|open| excerpt(&open.call.name)).collect();
    let names = shown.join(", ");
    match open.count() {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}
