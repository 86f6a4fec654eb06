//! Endings that a loop declares, because only its framework knows them.

use endstop_core::{DecidedBy, Decision, Layer, Limit, NestedEnding, Termination, is_blank};
use serde_json::Value;
use std::fmt;

/// An ending that the loop declares, because only its framework knows it.
#[derive(Clone, Debug, PartialEq)]
pub enum Declared {
    /// The framework took an answer that was not a text: of an output tool, or a structured one.
    Submitted(Value),
    /// A limit of the framework on turns, money or tokens ended its loop.
    Limit(Limit),
    /// Another limit of the framework, or a guardrail, ended its loop.
    Halted,
}

/// The endings that a loop can declare.
pub const DECLARED: [Termination; 5] = [
    Termination::Submitted,
    Termination::ErrorMaxTurns,
    Termination::ErrorMaxBudgetUsd,
    Termination::ErrorMaxTokens,
    Termination::ErrorHalted,
];

/// An ending that no loop can declare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvalidDeclaration {
    /// The name is not one of [`DECLARED`].
    Name(String),
    /// `submitted` without a deliverable, or a deliverable without it.
    Deliverable,
    /// `error_halted` without the name of what halted the loop.
    Reason,
}

impl fmt::Display for InvalidDeclaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidDeclaration::Name(name) => {
                let known = DECLARED.map(Termination::as_str).join(", ");
                write!(f, "a loop cannot declare the ending `{name}`; expected one of {known}")
            }
            InvalidDeclaration::Deliverable => {
                f.write_str("`submitted` needs a `deliverable`, and no other ending has one")
            }
            InvalidDeclaration::Reason => {
                f.write_str("`error_halted` needs a `detail`: the name of what halted the loop")
            }
        }
    }
}

impl std::error::Error for InvalidDeclaration {}

impl Declared {
    /// Reads an ending by its name.
    ///
    /// # Errors
    /// A loop cannot declare this ending, or it lacks what it owes.
    pub fn read(
        name: &str,
        deliverable: Option<Value>,
        detail: &str,
    ) -> Result<Declared, InvalidDeclaration> {
        let ending = DECLARED.into_iter().find(|known| known.as_str() == name);
        let declared = match (ending, deliverable) {
            (None, _) => return Err(InvalidDeclaration::Name(name.to_owned())),
            (Some(Termination::Submitted), Some(value)) => Declared::Submitted(value),
            (Some(Termination::Submitted), None) | (_, Some(_)) => {
                return Err(InvalidDeclaration::Deliverable);
            }
            (Some(Termination::ErrorMaxTurns), None) => Declared::Limit(Limit::MaxTurns),
            (Some(Termination::ErrorMaxBudgetUsd), None) => Declared::Limit(Limit::MaxBudgetUsd),
            (Some(Termination::ErrorMaxTokens), None) => Declared::Limit(Limit::MaxTokens),
            (Some(_), None) if is_blank(detail) => return Err(InvalidDeclaration::Reason),
            (Some(_), None) => Declared::Halted,
        };
        Ok(declared)
    }

    /// `true` if an answer has nothing in it.
    pub(crate) fn is_blank(&self) -> bool {
        match self {
            Declared::Submitted(Value::Null) => true,
            Declared::Submitted(Value::String(text)) => is_blank(text),
            Declared::Submitted(_) | Declared::Limit(_) | Declared::Halted => false,
        }
    }

    pub(crate) fn nested(self, detail: &str) -> NestedEnding {
        let evidence = |default: &str| {
            let given = if detail.trim().is_empty() { default } else { detail };
            given.to_owned()
        };
        let (termination, layer, decision, evidence, deliverable) = match self {
            Declared::Submitted(value) => {
                let evidence = evidence("the loop took an answer that is not a text");
                (Termination::Submitted, Layer::Caller, Decision::Closed, evidence, Some(value))
            }
            Declared::Limit(limit) => {
                let termination = match limit {
                    Limit::MaxBudgetUsd => Termination::ErrorMaxBudgetUsd,
                    Limit::MaxTokens => Termination::ErrorMaxTokens,
                    _ => Termination::ErrorMaxTurns,
                };
                let evidence = evidence("a limit of the framework ended its loop");
                (termination, Layer::Limit, Decision::Limit(limit), evidence, None)
            }
            Declared::Halted => {
                let name = detail.split(':').next().unwrap_or(detail).trim();
                let decision = Decision::of(Layer::Caller, name);
                (Termination::ErrorHalted, Layer::Caller, decision, evidence(""), None)
            }
        };
        NestedEnding {
            termination,
            decided_by: DecidedBy { layer, decision, evidence },
            last_text: None,
            deliverable,
            retry_after: None,
            error_diagnostic: None,
            would_fit: None,
            no_progress_snapshot: None,
        }
    }
}
