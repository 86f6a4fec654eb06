//! The `finish` tool: the model declares its answer, or that the task is not feasible.
//!
//! A call of `finish` is evaluated after the other calls of its turn have ended, so that the model
//! cannot declare success before it has seen a failure. A declaration without content is a mistake,
//! and the model is informed.

use super::open_calls::OpenCalls;
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::{Ending, excerpt};
use crate::kernel::records::Counts;
use crate::termination::Termination;
use crate::visible::{is_blank, is_blank_value};
use serde_json::{Map, Value};

/// Filler values that small models write into fields that do not apply, in lower case and without
/// quotes, brackets and full stops around them.
const FILLERS: &[&str] = &[
    "n/a",
    "na",
    "n.a",
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
pub(crate) enum Declaration {
    /// The answer. `contradicted` is the reason for which the same call states that there is none.
    Answer { deliverable: Value, summary: Option<String>, contradicted: Option<String> },
    /// The task is not feasible, with the reason.
    GaveUp { reason: String, summary: Option<String> },
}

impl Declaration {
    /// Parses the arguments by the tool's schema. `text` is the visible text of the same turn, which is the
    /// answer of a declaration without one: a text of an earlier turn may be a plan.
    ///
    /// # Errors
    /// A description of the problem for the model.
    pub(crate) fn read(arguments: &Map<String, Value>, text: &str) -> Result<Declaration, String> {
        let filled = |text: &String| !is_blank(text);
        // A filler may be the real answer, but not the reason why there is none.
        let summary = text_of(arguments, "summary")?.filter(filled);
        let reason = text_of(arguments, "infeasible")?.filter(|text| !is_filler(text));
        let deliverable =
            arguments.get("deliverable").filter(|value| !is_blank_value(value)).cloned();
        let summary = summary.filter(|text| deliverable.is_none() || !is_filler(text));
        match (deliverable, reason) {
            (None, Some(reason)) => Ok(Declaration::GaveUp { reason, summary }),
            (Some(deliverable), contradicted) => {
                Ok(Declaration::Answer { deliverable, summary, contradicted })
            }
            (None, None) => {
                let answer = summary.clone().or_else(|| Some(text.to_owned()).filter(filled));
                let Some(answer) = answer else {
                    return Err(
                        "not finished: give the answer as `deliverable`, or the reason why there is none as `infeasible`"
                            .to_owned(),
                    );
                };
                let deliverable = Value::String(answer);
                Ok(Declaration::Answer { deliverable, summary, contradicted: None })
            }
        }
    }

    fn ending(self) -> Box<Ending> {
        match self {
            Declaration::Answer { deliverable, summary, .. } => {
                let mut ending = Ending::new(
                    Termination::Submitted,
                    Layer::Tool,
                    Decision::Finish,
                    "the model called `finish`",
                );
                ending.deliverable = Some(deliverable);
                ending.summary = summary;
                ending
            }
            Declaration::GaveUp { reason, summary } => {
                let mut ending =
                    Ending::new(Termination::GaveUp, Layer::Tool, Decision::Finish, reason.clone());
                ending.halted_reason = Some(reason);
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

fn is_filler(text: &str) -> bool {
    // Models also wrap fillers in quotes or brackets: `"N/A"`, `(none)`.
    let text = text.trim().trim_matches(['"', '\'', '(', ')', '<', '>', '.']).trim().to_lowercase();
    is_blank(&text) || FILLERS.contains(&text.as_str())
}

/// Evaluates the `finish` calls of a turn whose other calls have ended. The first valid declaration
/// ends the run; every other call is answered as a mistake.
pub(super) fn judge_finish(
    open: &mut OpenCalls,
    text: &str,
    counts: &mut Counts,
) -> Option<Box<Ending>> {
    let pending = open.pending_finishes();
    if pending.is_empty() {
        // A turn without `finish` means that the model went back to work, so a later `finish`
        // is checked again.
        counts.finish_refused = false;
        counts.contradiction_refused = false;
        return None;
    }
    let failed = open.first_failed().map(str::to_owned);
    let mut ending: Option<Box<Ending>> = None;
    let mut contradicted = false;
    for (at, arguments) in pending {
        match Declaration::read(&arguments, text) {
            Err(problem) => open.refuse_finish(at, problem),
            // Refuse once only: then the answer counts, because a filler in the other field is more
            // likely than an answer to a task that is not feasible.
            Ok(Declaration::Answer { contradicted: Some(reason), .. })
                if !counts.contradiction_refused && ending.is_none() =>
            {
                contradicted = true;
                let reason = excerpt(&reason);
                open.refuse_finish(
                    at,
                    format!(
                        "not finished: `deliverable` gives an answer, and `infeasible` says that there is none ({reason}). Call `finish` again with only one of them."
                    ),
                );
            }
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
    counts.contradiction_refused |= contradicted;
    ending
}

/// Returns the answer that `finish` has declared in the current turn while other calls still run; its
/// call is then answered as accepted.
pub(crate) fn declared_by_finish(
    open: &mut OpenCalls,
    text: &str,
    counts: &Counts,
) -> Option<Box<Ending>> {
    if open.first_failed().is_some() && !counts.finish_refused {
        return None;
    }
    let (at, declaration) = open.pending_finishes().into_iter().find_map(|(at, arguments)| {
        let declaration = Declaration::read(&arguments, text).ok()?;
        let stands = match &declaration {
            Declaration::Answer { contradicted, .. } => {
                contradicted.is_none() || counts.contradiction_refused
            }
            Declaration::GaveUp { .. } => false,
        };
        stands.then_some((at, declaration))
    })?;
    open.accept_finish(at);
    Some(declaration.ending())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(arguments: &Value, text: &str) -> Result<Declaration, String> {
        Declaration::read(arguments.as_object().unwrap(), text)
    }

    fn answer(deliverable: Value, summary: Option<&str>) -> Declaration {
        let summary = summary.map(str::to_owned);
        Declaration::Answer { deliverable, summary, contradicted: None }
    }

    #[test]
    fn filler_is_no_reason() {
        for filler in [
            "N/A",
            "none",
            "",
            "  ",
            "None.",
            "null",
            "\"N/A\"",
            "not applicable",
            "-",
            "n.a.",
            "<none>",
        ] {
            let arguments = json!({"deliverable": "42", "infeasible": filler, "summary": "n/a"});
            assert_eq!(read(&arguments, ""), Ok(answer(json!("42"), None)), "{filler}");
        }
    }

    #[test]
    fn answer_with_a_reason_is_a_contradiction() {
        for reason in ["no access to the disk", "feasible", "0", "[]", "The task is feasible."] {
            let both = json!({"deliverable": "half", "infeasible": reason});
            let declared = Declaration::Answer {
                deliverable: json!("half"),
                summary: None,
                contradicted: Some(reason.to_owned()),
            };
            assert_eq!(read(&both, ""), Ok(declared));
        }
        let reason = json!({"infeasible": "no access", "summary": "I tried."});
        assert!(matches!(read(&reason, "text"), Ok(Declaration::GaveUp { .. })));
    }

    #[test]
    fn declaration_without_an_answer_needs_a_text_of_its_turn() {
        for arguments in [
            json!({}),
            json!({"deliverable": ""}),
            json!({"deliverable": null, "summary": " ", "infeasible": "none"}),
            json!({"answer": "42"}),
        ] {
            assert!(read(&arguments, " ").is_err(), "{arguments}");
            let text = answer(json!("Paris."), None);
            assert_eq!(read(&arguments, "Paris."), Ok(text), "{arguments}");
        }
        // Empty lists and objects can be the answer.
        for value in [json!([]), json!({}), json!(0), json!(false)] {
            assert!(read(&json!({"deliverable": value}), "").is_ok());
        }
    }

    #[test]
    fn lone_summary_is_the_answer() {
        for summary in ["All tests pass.", "No.", "none", "0"] {
            let declared = answer(json!(summary), Some(summary));
            assert_eq!(read(&json!({"summary": summary}), "Paris."), Ok(declared));
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
            let problem = read(&arguments, "text").unwrap_err();
            assert!(problem.contains(field), "{problem}");
        }
    }
}
