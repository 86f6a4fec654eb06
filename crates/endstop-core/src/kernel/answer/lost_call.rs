//! Detects lost tool calls: turns that are complete for the provider but contain no answer, because
//! the tool call arrived as text, or because the turn ends inside its reasoning.
//!
//! Servers of local models send such turns if their parser fails or is not configured. The finish
//! value is then `stop`, and the call or the reasoning is in the text. Accepting it would end the
//! run with markup as its answer.

use crate::kernel::setup::guest_mode::Capability;
use crate::kernel::setup::spec::RunSpec;
use crate::message::ModelTurn;
use crate::visible::markdown::outside_code;
use crate::visible::unclosed_reasoning;
use serde_json::{Deserializer, Map, Value};

/// Special tokens of models. They are no part of any text, so one outside code is a call that the server
/// did not parse.
const TOKENS: &[&str] = &[
    "<|tool_call|>",                // Granite, Phi-4
    "<|tool_call>",                 // Phi-4-mini
    "<|python_tag|>",               // Llama 3.1
    "<|python_start|>",             // Llama 4
    "[TOOL_CALLS]",                 // Mistral
    "<｜tool▁calls▁begin｜>",       // DeepSeek
    "<｜tool▁call▁begin｜>",        // DeepSeek
    "<｜DSML｜",                    // DeepSeek V3.2
    "<|DSML|",                      // DeepSeek V3.2, in ASCII
    "<|tool_calls_section_begin|>", // Kimi K2
    "<|tool_call_begin|>",          // Kimi K2
    "<|action_start|>",             // InternLM 2
    "<|START_ACTION|>",             // Command R
    "<|channel|>commentary",        // gpt-oss
    "commentary to=functions.",     // gpt-oss, without its special tokens
];

/// Marks that open a call. An answer may mention them, so what follows must be a call.
const MARKS: &[&str] = &[
    "<tool_call>",         // Hermes, Qwen, GLM
    "<tool_calls>",        // Jamba, Nemotron
    "<TOOLCALL>",          // Nemotron
    "<function_call>",     // Granite 3, InternLM
    "<function_calls>",    // Claude
    "<invoke name=",       // Claude, MiniMax
    "<function=",          // Llama 3, Qwen3-Coder
    "<minimax:tool_call>", // MiniMax M2
    "[TOOL_REQUEST]",      // LM Studio
    "functools[",          // Phi-4-mini
    "```tool_code",        // Gemini
];

/// Number of marks outside code that are examined one by one. A text with more of them repeats itself.
const MOST_MARKS: usize = 256;

/// Prefixes of a function's name in calls that are written as code.
const NAMESPACES: &[&str] = &["default_api.", "functions.", "tools."];

/// The reason why a turn without calls is not an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoAnswer {
    /// The finish value announces a call, but there is none.
    Announced,
    /// The text contains a call in raw form, opened by this mark.
    RawCall(&'static str),
    /// The text is nothing but a call of an offered tool.
    OnlyCall,
    /// The text consists of reasoning that is never closed, opened by this mark.
    UnclosedReasoning(&'static str),
}

impl NoAnswer {
    /// Checks a turn without calls. `text` is its text with earlier parts of a continued answer, and
    /// `visible` the visible part of it.
    pub(crate) fn of(
        turn: &ModelTurn,
        text: &str,
        visible: &str,
        settings: &RunSpec,
    ) -> Option<NoAnswer> {
        if turn.call_missing {
            return Some(NoAnswer::Announced);
        }
        if let Some(open) = unclosed_reasoning(text) {
            return Some(NoAnswer::UnclosedReasoning(open));
        }
        // Without tools the same markup can only be quoted text. The tools of a guest's client are
        // not known, so any text may contain a call.
        let offers =
            settings.finish_tool || !settings.tools.is_empty() || !settings.may(Capability::Loop);
        let offered = |name: &str| {
            settings.finish_tool && name == "finish"
                || settings.tools.iter().any(|tool| tool.name == name)
        };
        if !offers {
            return None;
        }
        let raw = raw_call(visible, &offered).map(NoAnswer::RawCall);
        raw.or_else(|| is_call_alone(visible, &offered).then_some(NoAnswer::OnlyCall))
    }

    /// Describes the problem for the outcome.
    pub(crate) fn evidence(self, shown: &str) -> String {
        match self {
            NoAnswer::Announced => format!("{shown} announces a tool call, but there is none"),
            NoAnswer::RawCall(open) => format!(
                "the text has a tool call that the server did not parse (`{open}`; {shown})"
            ),
            NoAnswer::OnlyCall => format!(
                "the text is a call of an offered tool that the server did not parse ({shown})"
            ),
            NoAnswer::UnclosedReasoning(open) => {
                format!("the text is reasoning that never ends (`{open}`; {shown})")
            }
        }
    }

    /// The message that asks the model to repeat its turn correctly.
    pub(crate) fn message(self) -> &'static str {
        match self {
            NoAnswer::Announced => {
                "Your last response announced a tool call but did not contain one. Make the call again, or give your answer as text."
            }
            NoAnswer::RawCall(_) | NoAnswer::OnlyCall => {
                "Your last response contained a tool call as plain text, which cannot be run. Use the tool interface, or give your answer as text without tool call markup."
            }
            NoAnswer::UnclosedReasoning(_) => {
                "Your last response ended inside your reasoning and gave no answer. Continue the task, or give your answer."
            }
        }
    }
}

/// `true` if the visible text of a complete response holds a call that the server did not parse.
/// `offered` is `true` for the name of a tool that the model was offered.
pub fn holds_lost_call(visible: &str, offered: &dyn Fn(&str) -> bool) -> bool {
    raw_call(visible, offered).is_some() || is_call_alone(visible, offered)
}

/// Returns the token or mark of a call within the text.
fn raw_call(text: &str, offered: &dyn Fn(&str) -> bool) -> Option<&'static str> {
    let known = |rest: &str| {
        let marks = TOKENS.iter().chain(MARKS);
        // Most characters begin none of them.
        if !rest.starts_with(['<', '[', 'c', 'f', '`']) {
            return None;
        }
        marks.copied().find(|mark| rest.starts_with(mark))
    };
    // The fence of `tool_code` is code, and a call at the same time.
    let fences =
        text.match_indices("```tool_code").map(|(at, mark)| (at, &text[at..at + mark.len()]));
    let fences = fences.filter_map(|(at, mark)| Some((at, known(mark)?)));
    let marks = outside_code(text, known);
    if marks.len() > MOST_MARKS {
        return marks.first().map(|(_, mark)| *mark);
    }
    marks.into_iter().chain(fences.take(MOST_MARKS)).find_map(|(at, mark)| {
        let body = &text[at + mark.len()..];
        let begins_line = text[..at].rsplit('\n').next().is_none_or(|line| line.trim().is_empty());
        let is_call = TOKENS.contains(&mark)
            || names_tool(mark, body, offered)
            || begins_line && mark != "```tool_code" && is_envelope(body);
        is_call.then_some(mark)
    })
}

/// `true` if what follows a mark is a call as far as its shape shows, to the end of the text. An answer
/// that explains the mark continues with prose.
fn is_envelope(body: &str) -> bool {
    let body = body.trim();
    let closed = body.is_empty() || body.ends_with(['}', ']', '>', ')', '|']);
    // A call that was cut in the middle has an opening bracket, and no closing tag.
    let cut = body.starts_with(['{', '[']) && !body.contains("</");
    let has = |marks: &[&str]| marks.iter().any(|mark| body.contains(mark));
    let in_parameters = || {
        has(&["<arg_key>", "<parameter=", "<parameter name="])
            && !has(&["</tool_call>", "</function>", "</invoke>", "</function_calls>"])
    };
    closed || cut || in_parameters()
}

/// `true` if what follows a mark begins with a call of an offered tool, whole or cut.
fn names_tool(mark: &str, body: &str, offered: &dyn Fn(&str) -> bool) -> bool {
    // These marks end where the name begins.
    if mark.ends_with('=') {
        return offered(name_at(body.trim_start_matches(['"', '\''])));
    }
    let body = body.trim_start().trim_start_matches('[').trim_start();
    if body.starts_with('{') {
        return is_json_call(body, offered);
    }
    let inner = ["<function=", "<invoke name=", "<function name="];
    if let Some(rest) = inner.iter().find_map(|mark| body.strip_prefix(mark)) {
        return offered(name_at(rest.trim_start_matches(['"', '\''])));
    }
    let code = body.strip_prefix("print(").unwrap_or(body);
    let code = NAMESPACES.iter().find_map(|prefix| code.strip_prefix(prefix)).unwrap_or(code);
    let name = name_at(code);
    offered(name) && code[name.len()..].starts_with(['\n', '<', '(', '{', '['])
}

/// Returns the name that a text begins with.
fn name_at(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.')));
    &text[..end.unwrap_or(text.len())]
}

/// `true` if the text is nothing but calls of offered tools: as JSON or as code, bare or in a fence.
fn is_call_alone(text: &str, offered: &dyn Fn(&str) -> bool) -> bool {
    let text = unfenced(text.trim());
    match text.as_bytes().first() {
        Some(b'{') => return is_json_call(text, offered) && ends_with_value(text),
        Some(b'[') => {
            if let Ok(Value::Array(calls)) = serde_json::from_str(text) {
                return !calls.is_empty() && calls.iter().all(|call| is_call(call, offered));
            }
        }
        Some(_) => {}
        None => return false,
    }
    if raw_call(text, offered).is_some() {
        return true;
    }
    is_code_call(text, offered) || is_imitation(text, offered)
}

/// Removes the fence around a text that is one fenced block.
fn unfenced(text: &str) -> &str {
    let block = text.strip_prefix("```").and_then(|text| text.strip_suffix("```"));
    // The rest of the first line names the language.
    let block = block.and_then(|block| block.split_once('\n')).map(|(_, block)| block.trim());
    block.filter(|block| !block.contains("```")).unwrap_or(text)
}

/// `true` if the text begins with a JSON object that calls an offered tool, or with the beginning of one.
fn is_json_call(text: &str, offered: &dyn Fn(&str) -> bool) -> bool {
    match Deserializer::from_str(text).into_iter::<Value>().next() {
        Some(Ok(value)) => is_call(&value, offered),
        // Cut, or not quite JSON: the name comes first in all formats.
        Some(Err(_)) => {
            let name = text.trim_start_matches(['{', ' ', '\n', '\r', '\t']);
            let name = name.strip_prefix("\"name\"").map(str::trim_start);
            let name = name.and_then(|rest| rest.strip_prefix(':')).map(str::trim_start);
            name.and_then(|rest| rest.strip_prefix('"')).is_some_and(|rest| offered(name_at(rest)))
        }
        None => false,
    }
}

/// `true` if nothing follows the JSON value at the beginning of the text, or if the value is cut.
fn ends_with_value(text: &str) -> bool {
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    let whole = values.next().is_some_and(|value| value.is_ok());
    !whole || text[values.byte_offset()..].trim().is_empty()
}

/// `true` if a JSON value is a call of an offered tool, or holds one as servers do.
fn is_call(value: &Value, offered: &dyn Fn(&str) -> bool) -> bool {
    let Value::Object(object) = value else { return false };
    let is_list = |list: &Value| match list {
        Value::Array(calls) => !calls.is_empty() && calls.iter().all(|call| is_call(call, offered)),
        one => is_call(one, offered),
    };
    let envelope = ["function", "tool_calls", "tool_call", "function_call"];
    if envelope.iter().filter_map(|key| object.get(*key)).any(is_list) {
        return true;
    }
    let names = ["name", "tool", "tool_name", "function", "action"];
    let name = names.iter().find_map(|key| object.get(*key)?.as_str());
    let arguments =
        ["arguments", "parameters", "args", "params", "input", "tool_input", "action_input"];
    let arguments = arguments.iter().find_map(|key| object.get(*key));
    name.is_some_and(offered) && arguments.is_some_and(is_object)
}

/// `true` for an object, also one that is written as a string.
fn is_object(value: &Value) -> bool {
    match value {
        Value::Object(_) => true,
        Value::String(text) => serde_json::from_str::<Map<String, Value>>(text).is_ok(),
        _ => false,
    }
}

/// `true` if the text is nothing but calls in the form of Python: `[ls(path=".")]`.
fn is_code_call(text: &str, offered: &dyn Fn(&str) -> bool) -> bool {
    let mut rest = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    while !rest.is_empty() {
        let printed = rest.strip_prefix("print(");
        let call = printed.unwrap_or(rest);
        let call = NAMESPACES.iter().find_map(|prefix| call.strip_prefix(prefix)).unwrap_or(call);
        let name = name_at(call);
        let after = if offered(name) { after_brackets(&call[name.len()..]) } else { None };
        let after =
            if printed.is_some() { after.and_then(|it| it.strip_prefix(')')) } else { after };
        let Some(after) = after else { return false };
        rest = after.trim_start_matches([',', ';', ' ', '\n', '\r', '\t']);
    }
    !text.is_empty()
}

/// Returns what follows the bracket that a text begins with, and its content. Strings may contain brackets.
fn after_brackets(text: &str) -> Option<&str> {
    let (mut depth, mut quote, mut escaped) = (0_u32, None, false);
    for (at, c) in text.char_indices() {
        match quote {
            _ if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(mark) if c == mark => quote = None,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            None if matches!(c, '(' | '[' | '{') => depth += 1,
            None if matches!(c, ')' | ']' | '}') => depth = depth.checked_sub(1)?,
            Some(_) | None => {}
        }
        if depth == 0 && quote.is_none() {
            return text.starts_with('(').then(|| &text[at + c.len_utf8()..]);
        }
    }
    None
}

/// `true` for a call as a proxy writes it into a history without tools: `[tool call ls] {"path": "."}`.
fn is_imitation(text: &str, offered: &dyn Fn(&str) -> bool) -> bool {
    let Some((head, arguments)) = text.strip_prefix('[').and_then(|text| text.split_once(']'))
    else {
        return false;
    };
    let named = head.split([' ', ':', '(', ')', '`']).any(offered);
    named && serde_json::from_str::<Map<String, Value>>(arguments.trim()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(name: &str) -> bool {
        ["ls", "write_file", "shell", "finish"].contains(&name)
    }

    fn is_lost(text: &str) -> bool {
        holds_lost_call(text, &offered)
    }

    #[test]
    fn calls_of_any_tool_are_found_in_markup() {
        for text in [
            "<tool_call>\n{\"name\": \"dir\", \"arguments\": {}}\n</tool_call>",
            "I will look.\n\n<tool_call>{\"name\": \"dir\"}",
            "<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": \"it was cut he",
            "<tool_call>write\n<arg_key>path</arg_key>\n<arg_value>notes.md</",
            "<tool_call>\n<function=write>\n<parameter=path>\nnotes",
            "<function=dir>{\"path\": \".\"}</function>",
            "court\n<invoke name=\"Bash\">\n<parameter name=\"command\">ls</parameter>\n</invoke>",
            "<function_calls>\n<invoke name=\"Bash\">\n<parameter name=\"command\">ls",
            "[TOOL_REQUEST]{\"name\": \"dir\", \"arguments\": {}}[END_TOOL_REQUEST]",
            "functools[{\"name\": \"dir\", \"arguments\": {}}]",
            "[TOOL_CALLS][{\"name\": \"dir\", \"arguments\": {}}]",
            "  <|python_tag|>dir(path=\".\")",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>dir\n{}<｜tool▁calls▁end｜>",
            "Let me check.<|tool_calls_section_begin|><|tool_call_begin|>functions.dir:0",
            "<|channel|>commentary<|message|>{\"path\": \"/\"}<|end|>",
            "I look.assistantcommentary to=functions.dir json{\"path\": \".\"}",
        ] {
            assert!(is_lost(text), "{text}");
        }
    }

    #[test]
    fn calls_of_offered_tools_are_found_in_more_forms() {
        for text in [
            "{\"name\": \"ls\", \"arguments\": {\"path\": \".\"}}",
            "{\"name\": \"ls\", \"parameters\": {}}",
            "{\"name\": \"ls\", \"arguments\": \"{}\"}",
            "```json\n{\"name\": \"ls\", \"parameters\": {}}\n```",
            "[{\"name\": \"ls\", \"arguments\": {}}, {\"name\": \"shell\", \"arguments\": {}}]",
            "{\"type\": \"function\", \"function\": {\"name\": \"ls\", \"arguments\": {}}}",
            "{\"tool_calls\": [{\"name\": \"ls\", \"arguments\": {}}]}",
            "{\"action\": \"shell\", \"action_input\": {\"command\": \"ls\"}}",
            "{\"name\": \"write_file\", \"arguments\": {\"text\": \"it was cut he",
            "{\"name\": \"finish\", \"arguments\": {\"deliverable\": \"42\"}}",
            "[ls(path=\".\")]",
            "ls(path=\"a)b\")",
            "[ls(path='.'), shell(command=\"echo 'x]'\")]",
            "```tool_code\nprint(default_api.ls(p=\".\"))\n```",
            "I look.\n```tool_code\nprint(default_api.ls(p=\".\"))\n```",
            "```python\nls(path=\".\")\n```",
            "Let me check. <tool_call>{\"name\": \"ls\", \"arguments\": {}}</tool_call>",
            "<tool_call>{\"name\": \"ls\", \"arguments\": {}}</tool_call>\n<tool_response>a</tool_response>\nIt is a.",
            "<tool_call>ls\n<arg_key>path</arg_key>",
            "```xml\n<tool_call>{\"name\": \"ls\", \"arguments\": {}}</tool_call>\n```",
            "[tool call ls] {\"p\":\".\"}",
        ] {
            assert!(is_lost(text), "{text}");
        }
    }

    #[test]
    fn repeated_marks_take_linear_time() {
        for text in
            ["<tool_call>\n", "<tool_call>{\"a\":\"", "```tool_code\n", "ls(", "[", "<think>"]
        {
            let text = text.repeat(200_000);
            // Quadratic work would take hours.
            is_lost(&text);
            crate::visible_text(&text);
        }
    }

    #[test]
    fn text_about_calls_is_an_answer() {
        for text in [
            "",
            "Paris.",
            "The model writes `<tool_call>` and the server reads it.",
            "<tool_call> is the mark that opens a call.",
            "Write it so:\n```\n<tool_call>\n{\"name\": \"ls\"}\n</tool_call>\n```",
            "<tool_call>\n{\"name\": \"dir\"}\n</tool_call>\n\nThat is what a call looks like.",
            "The token `<|python_tag|>` begins a call.",
            "<function=dir>\n<parameter=path>\n.\n</parameter>\n</function>\n\nThat is what a call looks like.",
            "a < b and [1, 2]",
            // JSON that is an answer.
            "{\"name\": \"Ada\", \"arguments\": {}}",
            "{\"name\": \"ls\", \"size\": 3}",
            "{\"answer\": {\"name\": \"ls\", \"arguments\": {}}}",
            "[{\"name\": \"ls\", \"arguments\": {}}, 3]",
            "[]",
            "The call is:\n```json\n{\"name\": \"ls\", \"arguments\": {}}\n```",
            "{\"name\": \"ls\", \"arguments\": {}} is the call.",
            // Code that is an answer.
            "ls(1) lists files (see its manual)",
            "print(ls)",
            "```python\nimport os\nls(path=\".\")\n```",
            "[see ls] and {more}",
            "The commentary to=all is here.",
        ] {
            assert!(!is_lost(text), "{text}");
        }
    }
}
