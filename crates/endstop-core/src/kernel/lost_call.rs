//! Detects lost tool calls: turns that are complete for the provider but contain no answer, because
//! the tool call arrived as text, or because the turn ends inside its reasoning.
//!
//! Servers of local models send such turns if their parser fails or is not configured. The finish
//! value is then `stop`, and the call or the reasoning is in the text. Accepting it would end the
//! run with markup as its answer.

use crate::message::ModelTurn;

/// Opening marks of tool calls that a server should have parsed, each with its model families.
const RAW_CALLS: &[(&str, &str)] = &[
    ("<tool_call>", "Hermes, Qwen"),
    ("<tool_calls>", "Jamba, Nemotron"),
    ("<function_call>", "Granite 3, InternLM"),
    ("<|tool_call|>", "Granite, Phi-4"),
    ("<|tool_call>", "Phi-4-mini"),
    ("<function=", "Llama 3, Qwen3-Coder"),
    ("<|python_tag|>", "Llama 3.1"),
    ("[TOOL_CALLS]", "Mistral"),
    ("<｜tool▁calls▁begin｜>", "DeepSeek"),
    ("<｜tool▁call▁begin｜>", "DeepSeek"),
    ("<｜DSML｜", "DeepSeek V3.2"),
    ("<|tool_calls_section_begin|>", "Kimi K2"),
    ("<|tool_call_begin|>", "Kimi K2"),
    ("<|action_start|>", "InternLM 2"),
    ("<|START_ACTION|>", "Command R"),
    ("<minimax:tool_call>", "MiniMax M2"),
    ("<|channel|>commentary to=", "gpt-oss"),
];

/// Tags around reasoning that a server should have removed from the text.
const REASONING: &[(&str, &str)] = &[
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel|>analysis<|message|>", "<|end|>"),
];

/// The reason why a turn without calls is not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoAnswer {
    /// The finish value announces a call, but there is none.
    Announced,
    /// The text contains a call in raw form, opened by this mark.
    RawCall(&'static str),
    /// The text consists of reasoning that is never closed, opened by this mark.
    UnclosedReasoning(&'static str),
}

impl NoAnswer {
    /// Checks a turn without calls. `text` is its text, including earlier parts of a continued
    /// answer.
    pub(super) fn of(turn: &ModelTurn, text: &str, tools: bool) -> Option<NoAnswer> {
        if turn.call_missing {
            return Some(NoAnswer::Announced);
        }
        let start = text.trim_start();
        // Only at the beginning: an answer may mention a tag further down.
        let unclosed = REASONING
            .iter()
            .find(|(open, close)| start.starts_with(open) && !start.contains(close));
        if let Some((open, _)) = unclosed {
            return Some(NoAnswer::UnclosedReasoning(open));
        }
        // Without tools the same markup can only be quoted text.
        if !tools {
            return None;
        }
        raw_call(text).map(NoAnswer::RawCall)
    }

    /// Describes the problem for the outcome.
    pub(super) fn evidence(self, shown: &str) -> String {
        match self {
            NoAnswer::Announced => format!("{shown} announces a tool call, but there is none"),
            NoAnswer::RawCall(open) => format!(
                "the text has a tool call that the server did not parse (`{open}`; {shown})"
            ),
            NoAnswer::UnclosedReasoning(open) => {
                format!("the text is reasoning that never ends (`{open}`; {shown})")
            }
        }
    }

    /// The message that asks the model to repeat its turn correctly.
    pub(super) fn message(self) -> &'static str {
        match self {
            NoAnswer::Announced => {
                "Your last response announced a tool call but did not contain one. Make the call again, or give your answer as text."
            }
            NoAnswer::RawCall(_) => {
                "Your last response contained a tool call as plain text, which cannot be run. Use the tool interface, or give your answer as text without tool call markup."
            }
            NoAnswer::UnclosedReasoning(_) => {
                "Your last response ended inside your reasoning and gave no answer. Continue the task, or give your answer."
            }
        }
    }
}

/// Returns the last mark that opens a call at the beginning of a line. The text after the mark must
/// look like a call: an answer that explains the mark puts it into quotes or a code fence, or
/// continues with prose.
fn raw_call(text: &str) -> Option<&'static str> {
    let (mut found, mut fenced, mut start) = (None, false, 0);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            fenced = !fenced;
        } else if !fenced && trimmed.starts_with(['<', '[']) {
            let mark = RAW_CALLS.iter().find(|(open, _)| trimmed.starts_with(open));
            if let Some((open, _)) = mark {
                found = Some((start + line.len() - trimmed.len(), *open));
            }
        }
        start += line.len();
    }
    let (at, open) = found?;
    let body = text[at + open.len()..].trim();
    let closed = body.is_empty() || body.ends_with(['}', ']', '>', ')', '|']);
    // A call that was cut in the middle has an opening bracket, and no closing tag.
    let cut = body.starts_with(['{', '[']) && !body.contains("</");
    (closed || cut).then_some(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_calls_differ_from_prose() {
        for text in [
            "<tool_call>\n{\"name\": \"ls\", \"arguments\": {}}\n</tool_call>",
            "I will look.\n\n<tool_call>{\"name\": \"ls\"}",
            "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": \"it was cut he",
            "<function=ls>{\"path\": \".\"}</function>",
            "[TOOL_CALLS][{\"name\": \"ls\", \"arguments\": {}}]",
            "  <|python_tag|>ls(path=\".\")",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>ls\n{}<｜tool▁calls▁end｜>",
        ] {
            assert!(raw_call(text).is_some(), "{text}");
        }
        for text in [
            "",
            "Paris.",
            "The model writes `<tool_call>` and the server reads it.",
            "<tool_call> is the mark that opens a call.",
            "Write it so:\n```\n<tool_call>\n{\"name\": \"ls\"}\n</tool_call>\n```",
            "<tool_call>\n{\"name\": \"ls\"}\n</tool_call>\n\nThat is what a call looks like.",
            "a < b and [1, 2]",
        ] {
            assert_eq!(raw_call(text), None, "{text}");
        }
    }
}
