//! The table: each ending, what it means, and what to do about it.

use clap::CommandFactory as _;
use endstop::Termination;
use std::fmt::Write as _;

/// An ending, for a person.
struct Row {
    termination: Termination,
    meaning: &'static str,
    /// As the book has it: settings by their names in backticks.
    advice: &'static str,
}

const fn row(termination: Termination, meaning: &'static str, advice: &'static str) -> Row {
    Row { termination, meaning, advice }
}

const TABLE: [Row; 22] = [
    row(
        Termination::Stop,
        "the model answered, asked for no tool, and its answer is whole",
        "nothing: the work is done",
    ),
    row(Termination::Submitted, "the answer was declared", "nothing: the work is done"),
    row(
        Termination::ErrorMaxTurns,
        "the turn cap was reached",
        "raise `max_turns`, or ask for less",
    ),
    row(
        Termination::ErrorMaxBudgetUsd,
        "the cost ceiling was reached, or the next call could pass it",
        "raise `max_budget_usd`, or ask for less",
    ),
    row(
        Termination::ErrorMaxTokens,
        "the token ceiling was reached, or the next call could pass it",
        "raise `max_tokens`, or ask for less",
    ),
    row(Termination::ErrorTimeout, "the run's time was up", "raise `timeout`, or ask for less"),
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
        "say in the task what is in the way, or give the model a tool that can do it",
    ),
    row(
        Termination::ErrorThinkingStarved,
        "the output budget went into reasoning; nothing visible came",
        "raise `max_output_tokens`, or lower the model's thinking effort",
    ),
    row(
        Termination::ErrorOutputTruncated,
        "the answer was cut by the token limit; it is not whole",
        "raise `max_output_tokens`, or allow `max_continuations`",
    ),
    row(
        Termination::ErrorDuringExecution,
        "a failure; running again may help",
        "run again; if it fails again, check the address and the provider's status",
    ),
    row(
        Termination::ErrorSchemaValidation,
        "the output could not be parsed",
        "run again, raise `max_structured_output_retries`, or loosen the schema",
    ),
    row(
        Termination::ErrorContentFiltered,
        "the model refused, or a filter cut its answer",
        "change the task: the same words are refused again",
    ),
    row(
        Termination::ErrorProviderRejected,
        "the provider refuses the request; repeating it will not help",
        "fix the request, the name of the model or the account",
    ),
    row(
        Termination::GaveUp,
        "the model says that the task cannot be done",
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
        "the key is missing, wrong, or may not do this",
        "check the key: `endstop providers NAME` shows its variable",
    ),
    row(
        Termination::Cancelled,
        "it was cancelled",
        "nothing: it was stopped on purpose, and nothing is left running",
    ),
    row(
        Termination::Terminated,
        "it was terminated",
        "nothing: it was stopped on purpose, and nothing is left running",
    ),
];

fn of(termination: Termination) -> Option<&'static Row> {
    TABLE.iter().find(|row| row.termination == termination)
}

/// What an ending means.
pub(crate) fn meaning(termination: Termination) -> &'static str {
    of(termination).map_or("", |row| row.meaning)
}

/// What to do about an ending, with settings spelled as flags of `endstop run`.
pub(crate) fn advice(termination: Termination) -> String {
    of(termination).map_or_else(String::new, |row| as_flags(row.advice))
}

/// `raise `max_turns`` as `raise --max-turns`.
fn as_flags(text: &str) -> String {
    let args = crate::args::Args::command();
    let run = args.find_subcommand("run");
    let is_flag = |name: &str| {
        run.into_iter()
            .flat_map(clap::Command::get_arguments)
            .any(|arg| arg.get_long() == Some(name))
    };
    let mut out = String::new();
    for (at, piece) in text.split('`').enumerate() {
        let flag = piece.replace('_', "-");
        let _ = match at % 2 {
            0 => write!(out, "{piece}"),
            _ if is_flag(&flag) => write!(out, "--{flag}"),
            _ => write!(out, "`{piece}`"),
        };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands behind `To do:` under the heading of an ending, on one line.
    fn in_the_book(termination: Termination) -> Option<String> {
        let book = include_str!("../../../../docs/src/endings.md");
        let section = book
            .split("\n### ")
            .find(|section| section.lines().next() == Some(format!("`{termination}`").as_str()))?;
        let (_, todo) = section.split_once("\nTo do: ")?;
        let todo = todo.split("\n\n").next()?.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(todo.trim_end_matches('.').to_owned())
    }

    #[test]
    fn book_gives_the_advice_of_the_table() {
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

    #[test]
    fn settings_are_shown_as_flags() {
        assert_eq!(advice(Termination::ErrorMaxTurns), "raise --max-turns, or ask for less");
        for row in &TABLE {
            let shown = advice(row.termination);
            let other = shown.split('`').skip(1).step_by(2);
            for name in other {
                assert_eq!(name, "endstop providers NAME", "not a flag of `endstop run`");
            }
        }
    }
}
