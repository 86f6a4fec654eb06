//! The `finish` tool: the model declares its answer, or that the task is not feasible.
//!
//! A call of `finish` is evaluated after the other calls of its turn have ended, so that the model
//! cannot declare success before it has seen a failure. A declaration without content is a mistake,
//! and the model is informed.

use super::counts::Counts;
use super::decided_by::{Decision, Layer};
use super::ending::Ending;
use super::open_calls::OpenCalls;
use crate::termination::Termination;
use serde_json::{Map, Value};

/// Filler values that small models write into fields that do not apply, in lower case.
const FILLERS: &[&str] = &[
    "n/a",
    "na",
    "n.a.",
    "none",
    "null",
    "nil",
    "no",
    "false",
    "not applicable",
    "nothing",
    "empty",
    "undefined",
    "-",
    "--",
    "—",
];

/// The content of a `finish` call.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Declaration {
    /// The answer. Without a deliverable, the run's last text is the answer.
    Answer { deliverable: Option<Value>, summary: Option<String> },
    /// The task is not feasible, with the reason.
    GaveUp { reason: String, deliverable: Option<Value>, summary: Option<String> },
}

impl Declaration {
    /// Parses the arguments by the tool's schema. `last_text` is the run's last text that is not
    /// blank, if any.
    ///
    /// # Errors
    /// A description of the problem for the model.
    pub(super) fn read(
        arguments: &Map<String, Value>,
        last_text: Option<&str>,
    ) -> Result<Declaration, String> {
        // Fillers are ignored in text fields only: a deliverable of "none" may be the real answer.
        let summary = text_of(arguments, "summary")?.filter(|text| !is_filler(text));
        let reason = text_of(arguments, "infeasible")?.filter(|text| !text.trim().is_empty());
        let deliverable = arguments.get("deliverable").filter(|value| !is_blank(value)).cloned();
        let reason = reason.filter(|text| !is_filler(text));
        if let Some(reason) = reason {
            return Ok(Declaration::GaveUp { reason, deliverable, summary });
        }
        let deliverable = deliverable.or_else(|| summary.clone().map(Value::String));
        if deliverable.is_none() && last_text.is_none() {
            return Err(
                "not finished: give the answer as `deliverable`, or the reason why there is none as `infeasible`"
                    .to_owned(),
            );
        }
        Ok(Declaration::Answer { deliverable, summary })
    }

    fn ending(self) -> Box<Ending> {
        match self {
            Declaration::Answer { deliverable, summary } => {
                let mut ending = Ending::new(
                    Termination::Submitted,
                    Layer::Tool,
                    Decision::Finish,
                    "the model called `finish`",
                );
                ending.deliverable = deliverable;
                ending.summary = summary;
                ending
            }
            Declaration::GaveUp { reason, deliverable, summary } => {
                let mut ending =
                    Ending::new(Termination::GaveUp, Layer::Tool, Decision::Finish, reason.clone());
                ending.halted_reason = Some(reason);
                ending.deliverable = deliverable;
                ending.summary = summary;
                ending
            }
        }
    }
}

/// Reads an optional string. Models write `null` and `false` for "does not apply".
fn text_of(arguments: &Map<String, Value>, field: &str) -> Result<Option<String>, String> {
    match arguments.get(field) {
        None | Some(Value::Null | Value::Bool(false)) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!(
            "not finished: `{field}` must be a string; leave it out if it does not apply"
        )),
    }
}

fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        _ => false,
    }
}

fn is_filler(text: &str) -> bool {
    // Models also wrap fillers in quotes or brackets: `"N/A"`, `(none)`.
    let text = text.trim().trim_matches(['"', '\'', '(', ')', '.']).trim().to_lowercase();
    text.is_empty() || FILLERS.contains(&text.as_str())
}

/// Evaluates the `finish` calls of a turn whose other calls have ended. The first valid declaration
/// ends the run; every other call is answered as a mistake.
pub(super) fn judge_finish(
    open: &mut OpenCalls,
    last_text: Option<&str>,
    counts: &mut Counts,
) -> Option<Box<Ending>> {
    let pending = open.pending_finishes();
    if pending.is_empty() {
        // A turn without `finish` means that the model went back to work, so a later `finish`
        // is checked again.
        counts.finish_refused = false;
        return None;
    }
    let failed = open.first_failed().map(str::to_owned);
    let mut ending: Option<Box<Ending>> = None;
    for (at, arguments) in pending {
        match Declaration::read(&arguments, last_text) {
            Err(problem) => open.refuse_finish(at, problem),
            Ok(Declaration::Answer { .. })
                // Refuse once only: the model has now seen the failure, and may decide that it
                // does not matter. Giving up is never refused.
                if failed.is_some() && !counts.finish_refused && ending.is_none() =>
            {
                let failed = failed.as_deref().unwrap_or_default();
                open.refuse_finish(
                    at,
                    format!(
                        "not finished: call `{failed}` failed. Read its result and fix the problem, or call `finish` again and state what is missing."
                    ),
                );
            }
            Ok(declaration) => {
                open.accept_finish(at);
                ending.get_or_insert_with(|| declaration.ending());
            }
        }
    }
    if failed.is_some() && ending.is_none() {
        counts.finish_refused = true;
    }
    ending
}

/// Returns the answer that `finish` has declared in the current turn while other calls still run; its
/// call is then answered as accepted.
pub(super) fn declared_by_finish(
    open: &mut OpenCalls,
    last_text: Option<&str>,
    counts: &Counts,
) -> Option<Box<Ending>> {
    if open.first_failed().is_some() && !counts.finish_refused {
        return None;
    }
    let (at, declaration) = open.pending_finishes().into_iter().find_map(|(at, arguments)| {
        let declaration = Declaration::read(&arguments, last_text).ok()?;
        matches!(declaration, Declaration::Answer { .. }).then_some((at, declaration))
    })?;
    open.accept_finish(at);
    Some(declaration.ending())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(arguments: &Value, last_text: Option<&str>) -> Result<Declaration, String> {
        Declaration::read(arguments.as_object().unwrap(), last_text)
    }

    #[test]
    fn filler_does_not_withdraw_a_deliverable() {
        for filler in ["N/A", "none", "", "  ", "None.", "null", "\"N/A\"", "not applicable", "-"] {
            let arguments = json!({"deliverable": "42", "infeasible": filler, "summary": "n/a"});
            let answer = Declaration::Answer { deliverable: Some(json!("42")), summary: None };
            assert_eq!(read(&arguments, None), Ok(answer), "{filler}");
        }
        let both = json!({"deliverable": "half", "infeasible": "no access to the disk"});
        assert!(matches!(read(&both, None), Ok(Declaration::GaveUp { .. })));
    }

    #[test]
    fn empty_declaration_needs_a_text() {
        for arguments in [
            json!({}),
            json!({"deliverable": ""}),
            json!({"deliverable": null, "summary": " ", "infeasible": "none"}),
            json!({"answer": "42"}),
        ] {
            assert!(read(&arguments, None).is_err(), "{arguments}");
            let answer = Declaration::Answer { deliverable: None, summary: None };
            assert_eq!(read(&arguments, Some("Paris.")), Ok(answer), "{arguments}");
        }
        let summary = Some("All tests pass.".to_owned());
        let answer = Declaration::Answer { deliverable: Some(json!("All tests pass.")), summary };
        assert_eq!(read(&json!({"summary": "All tests pass."}), Some("Paris.")), Ok(answer));
        // Empty lists and objects can be the answer.
        for value in [json!([]), json!({}), json!(0), json!(false)] {
            assert!(read(&json!({"deliverable": value}), None).is_ok());
        }
    }

    #[test]
    fn wrong_types_are_named() {
        for (arguments, field) in [
            (json!({"infeasible": {"reason": "no permission"}}), "infeasible"),
            (json!({"infeasible": ["no network"]}), "infeasible"),
            (json!({"infeasible": true}), "infeasible"),
            (json!({"deliverable": "x", "summary": 3}), "summary"),
        ] {
            let problem = read(&arguments, Some("text")).unwrap_err();
            assert!(problem.contains(field), "{problem}");
        }
    }
}
