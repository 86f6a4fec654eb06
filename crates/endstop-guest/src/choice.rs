//! Values of the kernel by their names, as programs of other languages spell them.

use endstop_core::{
    Category, Confidence, ErrorClass, PolicyEnd, SignalReason, Termination, ToolStatus, TurnDelta,
};
use std::fmt;

/// A name that is not one of the choices of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidChoice {
    /// The argument, as the caller's language spells it.
    pub argument: &'static str,
    /// The name that was given.
    pub given: String,
    /// The expected value, or the list of the names.
    pub expected: String,
}

impl fmt::Display for InvalidChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidChoice { argument, given, expected } = self;
        write!(f, "invalid `{argument}` `{given}`: expected {expected}")
    }
}

impl std::error::Error for InvalidChoice {}

fn choose<T: Copy>(
    argument: &'static str,
    given: &str,
    choices: &[T],
    name: impl Fn(T) -> &'static str,
) -> Result<T, InvalidChoice> {
    choices.iter().copied().find(|one| name(*one) == given).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|one| name(*one)).collect();
        let expected = format!("one of {}", names.join(", "));
        InvalidChoice { argument, given: given.to_owned(), expected }
    })
}

/// Returns the status of a tool's result by its name.
///
/// # Errors
/// No result can have the status.
pub fn tool_status(given: &str) -> Result<ToolStatus, InvalidChoice> {
    // Without `skipped`, because only the kernel decides that a call is skipped.
    let choices = [
        ToolStatus::Ok,
        ToolStatus::Error,
        ToolStatus::Denied,
        ToolStatus::Timeout,
        ToolStatus::Aborted,
    ];
    choose("status", given, &choices, ToolStatus::as_str)
}

/// Returns the class of an error by its name.
///
/// # Errors
/// There is no such class.
pub fn error_class(given: &str) -> Result<ErrorClass, InvalidChoice> {
    choose("kind", given, &ErrorClass::ALL, ErrorClass::as_str)
}

/// Returns the termination that a policy may cause, by its name. `argument` is the name of the
/// argument.
///
/// # Errors
/// No policy can cause it.
pub fn policy_end(argument: &'static str, given: &str) -> Result<PolicyEnd, InvalidChoice> {
    // Only these, because every other ending is a fact about the run that a policy cannot know.
    let choices = [
        PolicyEnd::Submitted,
        PolicyEnd::NoProgress,
        PolicyEnd::ConsecutiveMistakes,
        PolicyEnd::Halted,
    ];
    choose(argument, given, &choices, |end| Termination::from(end).as_str())
}

/// Returns streamed content by the name of its kind.
///
/// # Errors
/// There is no such kind.
pub fn delta(text: String, kind: &str) -> Result<TurnDelta, InvalidChoice> {
    let chars = text.chars().count() as u64;
    match kind {
        "text" => Ok(TurnDelta::Text(text)),
        // Only their length is needed, to estimate the tokens of a response that is cut.
        "arguments" | "call" | "hidden" => Ok(TurnDelta::ToolArguments(chars)),
        // A refusal is content, but not text that a policy may read as an answer.
        "reasoning" | "refusal" | "hidden_reasoning" => Ok(TurnDelta::Reasoning(chars)),
        _ => {
            let expected =
                "one of text, reasoning, refusal, call, arguments, hidden, hidden_reasoning";
            let expected = expected.to_owned();
            Err(InvalidChoice { argument: "kind", given: kind.to_owned(), expected })
        }
    }
}

/// Returns the values of all enumerations as the kernel spells them, by name of the enumeration.
pub fn members() -> Vec<(&'static str, Vec<&'static str>)> {
    let categories = [Category::Success, Category::Retryable, Category::Capacity, Category::Fatal];
    let confidences = [Confidence::Low, Confidence::Medium, Confidence::High];
    let statuses = [
        ToolStatus::Ok,
        ToolStatus::Error,
        ToolStatus::Denied,
        ToolStatus::Timeout,
        ToolStatus::Aborted,
        ToolStatus::Skipped,
    ];
    vec![
        ("Termination", Termination::all().iter().map(|one| one.as_str()).collect()),
        ("Category", categories.iter().map(|one| one.as_str()).collect()),
        ("SignalReason", SignalReason::ALL.iter().map(|one| one.as_str()).collect()),
        ("Confidence", confidences.iter().map(|one| one.as_str()).collect()),
        ("ErrorClass", ErrorClass::ALL.iter().map(|one| one.as_str()).collect()),
        ("ToolStatus", statuses.iter().map(|one| one.as_str()).collect()),
    ]
}
