//! The advice table: the meaning of each ending, and the next step.
//!
//! ```
//! use endstop_core::Termination;
//! use endstop_report::advice::{advice, meaning};
//! assert_eq!(meaning(Termination::ErrorMaxTurns), "the turn cap was reached");
//! assert_eq!(advice(Termination::ErrorMaxTurns), "raise --max-turns, or reduce the task");
//! ```

use endstop_core::Termination;
use std::fmt::Write as _;

/// An ending, described for the user.
struct Row {
    termination: Termination,
    meaning: &'static str,
    /// The advice as the book prints it: settings by their names in backticks.
    advice: &'static str,
}

const fn row(termination: Termination, meaning: &'static str, advice: &'static str) -> Row {
    Row { termination, meaning, advice }
}

const TABLE: [Row; 25] = [
    row(
        Termination::Stop,
        "the model gave a complete answer and requested no tool",
        "nothing: the work is done",
    ),
    row(Termination::Submitted, "the model submitted its answer", "nothing: the work is done"),
    row(
        Termination::ErrorMaxTurns,
        "the turn cap was reached",
        "raise `max_turns`, or reduce the task",
    ),
    row(
        Termination::ErrorMaxToolCalls,
        "the run, or one of its tools, had used up its calls",
        "raise `max_tool_calls` or `max_calls`, or reduce the task",
    ),
    row(
        Termination::ErrorMaxBudgetUsd,
        "the cost ceiling was reached, or the next call could exceed it",
        "raise `max_budget_usd`, or reduce the task",
    ),
    row(
        Termination::ErrorMaxTokens,
        "the token ceiling was reached, or the next call could exceed it",
        "raise `max_tokens`, or reduce the task",
    ),
    row(
        Termination::ErrorMaxWindow,
        "a window of the subscription was used up to its share",
        "run again after the reset, let it wait with `wait_for_window`, or raise `max_window`",
    ),
    row(
        Termination::ErrorTimeout,
        "the run's time limit was reached",
        "raise `timeout`, or reduce the task",
    ),
    row(
        Termination::ErrorMaxStructuredOutputRetries,
        "the answer never satisfied the schema",
        "raise `max_structured_output_retries`, or loosen the schema",
    ),
    row(
        Termination::ErrorConsecutiveMistakes,
        "too many failures in a row",
        "read the tool errors: the tools, their permissions or the task may be wrong",
    ),
    row(
        Termination::ErrorPromptTooLong,
        "the prompt does not fit the model's context window",
        "shorten the conversation, or use a model with a larger context window",
    ),
    row(
        Termination::ErrorNoProgress,
        "the run was stuck: it repeated itself",
        "describe the obstacle to the model, or give it a tool that can handle it",
    ),
    row(
        Termination::ErrorThinkingStarved,
        "reasoning used the whole output budget, or its time; the model wrote no visible text",
        "raise `max_output_tokens`, or `thinking_timeout` if that decided, or lower the model's thinking effort",
    ),
    row(
        Termination::ErrorOutputTruncated,
        "the answer was cut off by the token limit, so it is incomplete",
        "raise `max_output_tokens`, or allow `max_continuations`",
    ),
    row(
        Termination::ErrorNotVerified,
        "the verifier rejected every answer",
        "read what the verifier printed; raise `verify_rounds`, or change the task or the verifier",
    ),
    row(
        Termination::ErrorDuringExecution,
        "a failure; another attempt may succeed",
        "run again; if it fails again, check the address and the provider's status",
    ),
    row(
        Termination::ErrorSchemaValidation,
        "the output could not be parsed",
        "run again; if a call was lost, configure the server's tool parser; if an answer broke the schema, raise `max_structured_output_retries`",
    ),
    row(
        Termination::ErrorContentFiltered,
        "the model refused, or a filter cut its answer",
        "change the task, because the same wording will be refused again",
    ),
    row(
        Termination::ErrorProviderRejected,
        "the provider rejected the request; repeating it will not help",
        "fix the request, the model name or the account",
    ),
    row(
        Termination::GaveUp,
        "the model reported that the task cannot be done",
        "read the model's reason, and change the task or the tools",
    ),
    row(
        Termination::ErrorHalted,
        "a hook, a tool or a policy halted the run",
        "read the reason, and change the task or what halted the run",
    ),
    row(
        Termination::ErrorCompactionFailed,
        "the conversation could not be shortened",
        "start with a shorter conversation, or fix the compactor",
    ),
    row(
        Termination::ErrorProviderAuth,
        "the API key is missing, invalid, or not permitted to do this",
        "check the key: `endstop providers NAME` shows its variable",
    ),
    row(
        Termination::Cancelled,
        "the run was cancelled",
        "nothing: it was stopped on purpose, and nothing is left running",
    ),
    row(
        Termination::Terminated,
        "the run was terminated",
        "nothing: it was stopped on purpose, and nothing is left running",
    ),
];

fn of(termination: Termination) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.termination == termination)
}

/// Returns the meaning of an ending.
pub fn meaning(termination: Termination) -> &'static str {
    of(termination).map_or("", |row| row.meaning)
}

/// Returns the next step for an ending, with settings spelled as flags of `endstop run`.
pub fn advice(termination: Termination) -> String {
    of(termination).map_or_else(String::new, |row| as_flags(row.advice))
}

/// Replaces each setting in backticks by its flag, so that `` raise `max_turns` `` becomes `raise
/// --max-turns`.
fn as_flags(text: &str) -> String {
    // A command line is not the name of a setting. A test of the command compares the names with its
    // flags.
    let is_flag = |name: &str| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    let mut out = String::new();
    for (at, piece) in text.split('`').enumerate() {
        let _ = match at % 2 {
            0 => write!(out, "{piece}"),
            _ if is_flag(piece) => write!(out, "--{}", piece.replace('_', "-")),
            _ => write!(out, "`{piece}`"),
        };
    }
    out
}

/// Quotes a word for the shell.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text after `To do:` under the heading of an ending, joined into one line.
    fn in_the_book(termination: Termination) -> Option<String> {
        let book = include_str!("../../../docs/src/endings.md");
        let section = book
            .split("\n### ")
            .find(|section| section.lines().next() == Some(format!("`{termination}`").as_str()))?;
        let (_, todo) = section.split_once("\nTo do: ")?;
        let todo = todo.split("\n\n").next()?.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(todo.trim_end_matches('.').to_owned())
    }

    #[test]
    fn book_matches_the_advice_table() {
        for row in &TABLE {
            let book = in_the_book(row.termination);
            assert_eq!(book.as_deref(), Some(row.advice), "endings.md, `{}`", row.termination);
        }
    }

    #[test]
    fn each_ending_has_one_row() {
        let listed: Vec<Termination> = TABLE.iter().map(|row| row.termination).collect();
        for termination in Termination::all() {
            let rows = listed.iter().filter(|listed| *listed == termination).count();
            assert_eq!(rows, 1, "{termination}");
        }
    }
}
