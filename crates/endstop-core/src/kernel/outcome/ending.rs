//! A decided ending, before the outcome is assembled.

use super::WouldFit;
use super::decided_by::{DecidedBy, Decision, Layer};
use super::nested_ending::NestedEnding;
use crate::limits::Limit;
use crate::termination::Termination;
use serde_json::Value;
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
