//! The formats, in the order in which they are tried on a file.
//!
//! ```text
//! let format = all().find(|format| (format.recognises)(&head));
//! ```

pub(crate) mod agents;
pub(crate) mod benchmarks;
pub(crate) mod generic;

use super::format::Format;
use agents::{
    claude_code, codex, copilot, cursor, endstop, gemini_cli, opencode, openhands, pi, qwen_code,
    swe_agent,
};
use benchmarks::{agentdojo, intercode, malt, react_log, tau_bench, tau2, tothf};
use generic::{atif, inspect, messages, neutral, otel};

/// All formats. The most specific format comes first, so that a list of messages with a score next
/// to it is recognised by the score.
const FORMATS: &[&[Format]] = &[
    neutral::FORMATS,
    atif::FORMATS,
    endstop::FORMATS,
    // Before Claude Code, whose records have similar members.
    qwen_code::FORMATS,
    claude_code::FORMATS,
    codex::FORMATS,
    copilot::FORMATS,
    cursor::FORMATS,
    gemini_cli::FORMATS,
    pi::FORMATS,
    opencode::FORMATS,
    inspect::FORMATS,
    otel::FORMATS,
    tau2::FORMATS,
    tau_bench::FORMATS,
    swe_agent::FORMATS,
    intercode::FORMATS,
    agentdojo::FORMATS,
    openhands::FORMATS,
    malt::FORMATS,
    tothf::FORMATS,
    react_log::FORMATS,
    // Last, because many files resemble a list of plain messages.
    messages::FORMATS,
];

/// Returns all formats, in order. A name occurs several times if a format has several shapes.
pub(crate) fn all() -> impl Iterator<Item = &'static Format> {
    FORMATS.iter().copied().flatten()
}

/// Returns `true` if the runs of a format are sessions of a person.
pub(crate) fn is_of_a_person(name: &str) -> bool {
    all().any(|format| format.name == name && format.of_a_person)
}

/// Returns the formats that are recognised: name, and a description of the program that writes it.
pub fn formats() -> Vec<(&'static str, &'static str)> {
    let mut list: Vec<(&'static str, &'static str)> = Vec::new();
    for format in all() {
        // A format with several shapes is listed once.
        if list.iter().all(|(name, _)| *name != format.name) {
            list.push((format.name, format.about));
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn book_lists_each_format() {
        let pages = [
            include_str!("../../../../../docs/src/recorded-runs.md"),
            include_str!("../../../../../docs/src/sessions-and-spans.md"),
        ];
        for (name, _) in formats() {
            let row = format!("\n| `{name}` |");
            let rows: usize = pages.iter().map(|page| page.matches(&row).count()).sum();
            assert_eq!(rows, 1, "`{name}` in recorded-runs.md or sessions-and-spans.md");
        }
    }

    #[test]
    fn format_shapes_share_one_description() {
        for format in all() {
            let of_name = formats().iter().filter(|(name, _)| *name == format.name).count();
            assert_eq!(of_name, 1, "{}", format.name);
            assert!(!format.about.is_empty());
        }
    }
}
