//! A decided ending, before the outcome is assembled; the text that is quoted in one; and the guard that
//! turns a panic of user code into one.
//!
//! A guest may consist of several conversations, each with a run of its own. One of them is recorded
//! and hears what the others spend. If another one decides how the whole ends, its ending goes into
//! the recorded run as an event, so that a replay gives the same outcome.

use super::decided_by::{DecidedBy, Decision, Layer};
use super::{NoProgressSnapshot, Outcome, WouldFit};
use crate::limits::Limit;
use crate::policy::PolicyFault;
use crate::termination::Termination;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::ops::ControlFlow::{self, Break, Continue};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A decided ending, before the outcome is assembled.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ending {
    pub(crate) termination: Termination,
    pub(crate) decided_by: DecidedBy,
    pub(crate) deliverable: Option<Value>,
    pub(crate) summary: Option<String>,
    pub(crate) structured: Option<Value>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) diagnostic: Option<String>,
    pub(crate) halted_reason: Option<String>,
    pub(crate) would_fit: Option<WouldFit>,
    /// The nested run that decided, if it was not the run itself.
    pub(crate) nested: Option<Box<NestedEnding>>,
    /// Endings that were also decided but that this one outranks. If this ending is withdrawn (by a
    /// veto, or because the answer violates the schema), the first of them replaces it.
    pub(crate) outranked: Vec<Ending>,
}

impl Ending {
    /// Builds the ending of a run that reached one of its limits.
    pub(crate) fn at_limit(
        limit: Limit,
        termination: Termination,
        evidence: String,
    ) -> Box<Ending> {
        Ending::new(termination, Layer::Limit, Decision::Limit(limit), evidence)
    }

    pub(crate) fn new(
        termination: Termination,
        layer: Layer,
        decision: Decision,
        evidence: impl Into<String>,
    ) -> Box<Ending> {
        Box::new(Ending {
            termination,
            decided_by: DecidedBy { layer, decision, evidence: evidence.into() },
            deliverable: None,
            summary: None,
            structured: None,
            retry_after: None,
            diagnostic: None,
            halted_reason: None,
            would_fit: None,
            nested: None,
            outranked: Vec::new(),
        })
    }

    /// `true` if a guest's next call discards the ending: a response or a failed attempt decided it,
    /// and the client may continue or retry.
    pub(crate) fn is_provisional(&self) -> bool {
        let DecidedBy { layer, decision, .. } = &self.decided_by;
        matches!(layer, Layer::Turn | Layer::Provider)
            || *decision == Decision::Limit(Limit::MaxEmptyTurns)
    }

    /// Copies the answer of a success that does not stand, so that the caller still gets it.
    pub(crate) fn carry(&mut self, answer: &Ending) {
        self.deliverable.clone_from(&answer.deliverable);
        self.summary.clone_from(&answer.summary);
        self.structured.clone_from(&answer.structured);
    }

    /// Returns the answer of a success as text: the declared or validated value, else the visible text.
    pub(crate) fn answer(&self, text: Option<&str>) -> Option<String> {
        match self.deliverable.as_ref().or(self.structured.as_ref()) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(value) => Some(value.to_string()),
            None => text.map(str::to_owned),
        }
    }

    /// Adds the parts of a rejected answer that the ending does not have itself.
    pub(crate) fn complete(&mut self, answer: &Ending) {
        if self.deliverable.is_none() {
            self.deliverable.clone_from(&answer.deliverable);
        }
        if self.summary.is_none() {
            self.summary.clone_from(&answer.summary);
        }
        if self.structured.is_none() {
            self.structured.clone_from(&answer.structured);
        }
    }

    /// Returns the ending that replaces a withdrawn success.
    pub(crate) fn next_in_rank(&mut self) -> Option<Box<Ending>> {
        if self.outranked.is_empty() {
            return None;
        }
        let mut next = self.outranked.remove(0);
        next.outranked.append(&mut self.outranked);
        Some(Box::new(next))
    }

    /// Returns the terminations of all endings that this one outranks, at any depth.
    pub(crate) fn outranked_terminations(&self) -> Vec<Termination> {
        let of = |one: &Ending| {
            std::iter::once(one.termination).chain(one.outranked_terminations()).collect::<Vec<_>>()
        };
        self.outranked.iter().flat_map(of).collect()
    }

    pub(crate) fn diagnostic(mut self: Box<Self>, text: impl Into<String>) -> Box<Ending> {
        self.diagnostic = Some(text.into());
        self
    }

    pub(crate) fn halted(
        layer: Layer,
        decision: Decision,
        reason: impl Into<String>,
    ) -> Box<Ending> {
        let reason = reason.into();
        let mut ending = Ending::new(Termination::ErrorHalted, layer, decision, reason.clone());
        ending.halted_reason = Some(reason);
        ending
    }

    /// Returns the ending of a nested run as that of the run around it.
    pub(crate) fn of_nested(nested: NestedEnding) -> Box<Ending> {
        let DecidedBy { layer, decision, evidence } = nested.decided_by.clone();
        let mut ending = Ending::new(nested.termination, layer, decision, evidence);
        ending.deliverable.clone_from(&nested.deliverable);
        ending.retry_after = nested.retry_after;
        ending.diagnostic.clone_from(&nested.error_diagnostic);
        ending.would_fit = nested.would_fit;
        if nested.termination == Termination::ErrorHalted {
            ending.halted_reason = Some(ending.decided_by.evidence.clone());
        }
        ending.nested = Some(Box::new(nested));
        ending
    }
}

/// The ending of a nested run, for [`EventKind::Closed`](crate::EventKind::Closed).
///
/// ```
/// use endstop_core::{Event, EventKind, NestedEnding, Run, RunSpec, Termination};
/// let end = |kind| Run::new(RunSpec::default()).finish(Event::new(Default::default(), kind), &mut vec![]);
/// let inner = end(EventKind::Cancel);
/// let ended_as = Some(Box::new(NestedEnding::from(&*inner)));
/// let outer = end(EventKind::Closed { ok: true, detail: String::new(), ended_as });
/// assert_eq!(outer.termination, Termination::Cancelled);
/// assert_eq!(outer.decided_by, inner.decided_by);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NestedEnding {
    /// The termination.
    pub termination: Termination,
    /// The decision that ended the nested run.
    pub decided_by: DecidedBy,
    /// The last visible text of the nested run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_text: Option<String>,
    /// The declared answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliverable: Option<Value>,
    /// Wait that the provider asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<Duration>,
    /// Description of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_diagnostic: Option<String>,
    /// Changes under which a refused call would fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_fit: Option<WouldFit>,
    /// Evidence of an `error_no_progress`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_progress_snapshot: Option<NoProgressSnapshot>,
}

impl From<&Outcome> for NestedEnding {
    fn from(outcome: &Outcome) -> NestedEnding {
        NestedEnding {
            termination: outcome.termination,
            decided_by: outcome.decided_by.clone(),
            last_text: outcome.last_text.clone(),
            deliverable: outcome.deliverable.clone(),
            retry_after: outcome.retry_after,
            error_diagnostic: outcome.error_diagnostic.clone(),
            would_fit: outcome.would_fit,
            no_progress_snapshot: outcome.no_progress_snapshot.clone(),
        }
    }
}

/// `Continue` if the run continues, `Break` with the decided ending if it ends. Both a success and a
/// failure are endings, so that `?` leaves every nested step at once.
pub(crate) type Flow<T = ()> = ControlFlow<Box<Ending>, T>;

/// Runs user code; a panic becomes the ending of the run instead of unwinding through the driver.
pub(crate) fn guarded<T>(name: String, code: impl FnOnce() -> T) -> Flow<T> {
    // `AssertUnwindSafe` is sound here because the policy is never used again after a panic: the
    // run ends.
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(value) => Continue(value),
        Err(payload) => {
            // User code in another language unwinds with its own description of the failure.
            if let Some(PolicyFault { evidence, diagnostic }) = payload.downcast_ref() {
                return Break(fault(name, evidence.clone()).diagnostic(diagnostic.clone()));
            }
            let message = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            Break(fault(name, format!("panicked: {message}")))
        }
    }
}

pub(crate) fn fault(name: String, message: String) -> Box<Ending> {
    let decision = Decision::of(Layer::Fault, name);
    Ending::new(Termination::ErrorDuringExecution, Layer::Fault, decision, message.clone())
        .diagnostic(message)
}

/// Returns the ending of a run in which user code gave an answer that has no meaning at its point.
pub(crate) fn misplaced(point: &Decision, answer: &'static str) -> Box<Ending> {
    let message = format!("the answer `{answer}` is not valid at `{point}`");
    fault(point.as_str().to_owned(), message)
}

/// The first 200 characters.
pub(crate) fn excerpt(text: &str) -> String {
    match text.char_indices().nth(200) {
        None => text.to_owned(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// The text without its middle, if it is longer than this number of bytes: a quarter from its
/// beginning and the rest from its end, where programs print their summary.
pub(crate) fn without_middle(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    // The standard library's search for a boundary is newer than the oldest supported compiler.
    let boundary = |at: &usize| text.is_char_boundary(*at);
    let quarter = most / 4;
    let head = (0..=quarter).rev().find(boundary).unwrap_or(0);
    let tail = (text.len() - (most - quarter)..text.len()).find(boundary).unwrap_or(text.len());
    format!("{}\n[… {} bytes left out …]\n{}", &text[..head], tail - head, &text[tail..])
}
