//! The check of a request under a strict ceiling: it may have only members with a known bound, which each format lists
//! ([`Members`](endstop_wire::codec::request::Members)). What is not in the list is refused with its name.

use endstop_wire::codec::request::Holds::{
    Any, Count, Edits, Messages, MessagesOrText, Nothing, Object, Parts, Text, Tools, Word,
};
use endstop_wire::codec::request::{
    Fields, Holds, Member, RequestReader, tool_of_provider, unknown_part,
};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashSet;

/// Returns the reason why the cost of a request has no known bound, or `None` if it has one.
pub(super) fn unbounded(reader: &RequestReader, fields: &Fields<'_>) -> Option<String> {
    object(reader, fields, reader.members.rows, reader.cap.is_in(None))
}

/// Checks the members of an object. `has_caps`: it is the one with the output cap.
fn object(
    reader: &RequestReader,
    fields: &Fields<'_>,
    rows: &'static [Member],
    has_caps: bool,
) -> Option<String> {
    let mut seen: HashSet<&str> = HashSet::new();
    for (name, value) in fields.iter() {
        let in_snake_case = reader.members.also_in_snake_case;
        let plain = if in_snake_case { camel(name) } else { Cow::Borrowed(name) };
        let row = rows.iter().find(|row| row.0 == plain);
        let is_cap = has_caps && reader.cap.names().contains(&name);
        if row.is_none() && !is_cap {
            if value == "null" {
                continue;
            }
            return Some(format!("guard does not know what `{}` costs", shown(name)));
        }
        // A server may take either of two. Caps are lowered one by one.
        let means = row.map_or(name, |row| row.0);
        if !seen.insert(means) {
            return Some(format!("the request has `{means}` twice"));
        }
        let found = match row {
            _ if value == "null" => None,
            Some((means, holds)) => member(reader, means, value, *holds),
            // A negative cap means "none", and is replaced like a large one.
            None => (value.parse::<i64>().is_err() || value.starts_with('+'))
                .then(|| format!("`{means}` is not a plain number")),
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Checks the value of a member.
fn member(reader: &RequestReader, name: &str, value: &str, holds: Holds) -> Option<String> {
    let is_list = value.starts_with('[');
    match holds {
        Any => None,
        Count => (value.parse::<u32>().is_err() || value.starts_with('+'))
            .then(|| format!("`{name}` is not a plain number")),
        Messages | Tools if !is_list => Some(format!("`{name}` is not a list")),
        MessagesOrText if !is_list && !value.starts_with('"') => {
            Some(format!("`{name}` is not a list"))
        }
        Messages | MessagesOrText | Parts => unknown_part(value).map(|part| {
            format!(
                "the request has `{}` in `{name}`, such as an image or a file, whose size in tokens is not known",
                shown(&part)
            )
        }),
        Tools => tool_of_provider(value).map(|tool| {
            format!("the request lets the provider run `{tool}` itself, whose uses are billed in addition")
        }),
        Word(words) => {
            let word = word_in(value);
            let is_known = word.is_some_and(|word| words.contains(&word.as_str()));
            (!is_known).then(|| format!("`{name}` may have another price than that of the list"))
        }
        Text => {
            let list: Option<Vec<String>> = parsed(value);
            let is_text =
                list.is_some_and(|list| list.iter().all(|one| one.eq_ignore_ascii_case("text")));
            (!is_text)
                .then(|| format!("`{name}` asks for more than text, which has another price"))
        }
        Edits => {
            let edits: Vec<Fields<'_>> = parsed(value).unwrap_or_default();
            let generates = |edit: &Fields<'_>| {
                !edit.string("type").is_some_and(|kind| kind.starts_with("clear_"))
            };
            (!is_list || edits.iter().any(generates)).then(|| {
                "the request lets the provider summarise the conversation itself".to_owned()
            })
        }
        Nothing => (!["false", "[]", "{}", "\"\""].contains(&value))
            .then(|| format!("guard does not know what `{name}` costs")),
        Object(rows) => match Fields::of(value) {
            Ok(inside) => object(reader, &inside, rows, reader.cap.is_in(Some(name))),
            Err(_) => Some(format!("`{name}` is not an object")),
        },
    }
}

/// Returns a word or a number. Amazon puts words into an object.
fn word_in(value: &str) -> Option<String> {
    if let Ok(inside) = Fields::of(value) {
        let mut members = inside.iter();
        let (name, value) = members.next()?;
        let is_alone = members.next().is_none() && matches!(name, "type" | "latency");
        return parsed(value).filter(|_| is_alone);
    }
    parsed(value).or_else(|| value.parse::<u32>().ok().map(|number| number.to_string()))
}

/// Returns a name of protocol buffers in camel case.
fn camel(name: &str) -> Cow<'_, str> {
    // Only a name that begins so has its own spelling.
    if !name.trim_start_matches('_').contains('_') {
        return Cow::Borrowed(name);
    }
    let mut words = name.split('_').filter(|word| !word.is_empty());
    let first = words.next().unwrap_or_default().to_owned();
    Cow::Owned(words.fold(first, |text, word| {
        let mut letters = word.chars();
        let upper = letters.next().map(|letter| letter.to_ascii_uppercase());
        text + &upper.into_iter().chain(letters).collect::<String>()
    }))
}

/// Parses a value of this type, or returns `None` if the text has another shape.
fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    serde_json::from_str(text).ok()
}

fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::Fields;
    use WireFormat::{
        Anthropic, BedrockConverse, CohereV2, Gemini, Ollama, OpenAiChat, OpenAiResponses,
    };
    use endstop_wire::WireFormat;
    use endstop_wire::codec::request_reader;

    fn unbounded(shape: WireFormat, body: &str) -> Option<String> {
        let fields = Fields::of(body).unwrap();
        super::unbounded(request_reader(shape, &fields).unwrap(), &fields)
    }

    #[test]
    fn what_has_no_bound_is_found() {
        for (shape, body) in [
            (OpenAiChat, r#"{"n":8.0}"#),
            (OpenAiChat, r#"{"n":"8"}"#),
            (OpenAiChat, r#"{"n":8e0}"#),
            (OpenAiChat, r#"{"n":-1}"#),
            (OpenAiChat, r#"{"n":[8]}"#),
            (OpenAiChat, r#"{"n":4294967296}"#),
            (OpenAiChat, r#"{"n":8,"n":1}"#),
            (OpenAiChat, r#"{"N":8}"#),
            (OpenAiChat, r#"{"best_of":8}"#),
            (OpenAiChat, r#"{"Best_Of":8}"#),
            (OpenAiChat, r#"{"use_beam_search":true}"#),
            (OpenAiChat, r#"{"extra_body":{"best_of":2}}"#),
            (OpenAiChat, r#"{"MAX_TOKENS":100000,"max_tokens":5}"#),
            (OpenAiChat, r#"{"max_output_tokens":100000}"#),
            (OpenAiChat, r#"{"max_tokens":5,"max_tokens":5}"#),
            (OpenAiChat, r#"{"max_tokens":"100000"}"#),
            (OpenAiChat, r#"{"max_tokens":1e5}"#),
            (OpenAiChat, "{\"max_token\u{17f}\":1}"),
            (OpenAiChat, r#"{"service_tier":"priority"}"#),
            (OpenAiChat, r#"{"service_tier":4}"#),
            (OpenAiChat, r#"{"Service_Tier":"priority"}"#),
            (OpenAiChat, r#"{"models":["a","b"]}"#),
            (OpenAiChat, r#"{"prediction":{"type":"content","content":"x"}}"#),
            (OpenAiChat, r#"{"modalities":["text","audio"]}"#),
            (OpenAiChat, r#"{"audio":{"voice":"x"}}"#),
            (OpenAiChat, r#"{"web_search_options":{}}"#),
            (OpenAiResponses, r#"{"prompt":{"id":"pmpt_1"}}"#),
            (OpenAiResponses, r#"{"context_management":[{"type":"compaction"}]}"#),
            (OpenAiResponses, r#"{"max_tokens":100000}"#),
            (Anthropic, r#"{"speed":"fast"}"#),
            (Anthropic, r#"{"fallbacks":[{"model":"x"}]}"#),
            (Anthropic, r#"{"container":"c"}"#),
            (Anthropic, r#"{"context_management":{"edits":[{"type":"compact_20260112"}]}}"#),
            (Gemini, r#"{"cachedContent":"cachedContents/abc"}"#),
            (Gemini, r#"{"cached_content":"cachedContents/abc"}"#),
            (Gemini, r#"{"generationConfig":{"candidateCount":"8"}}"#),
            (Gemini, r#"{"generationConfig":{"candidateCount":1,"candidate_count":8}}"#),
            (Gemini, r#"{"generationConfig":{"responseModalities":["TEXT","IMAGE"]}}"#),
            (Gemini, r#"{"GenerationConfig":{}}"#),
            (Gemini, r#"{"generationConfig":{},"generationConfig":{}}"#),
            (Gemini, r#"{"generationConfig":[1]}"#),
            (BedrockConverse, r#"{"additionalModelRequestFields":{"max_tokens":100000}}"#),
            (BedrockConverse, r#"{"performanceConfig":{"latency":"optimized"}}"#),
            (BedrockConverse, r#"{"serviceTier":{"type":"priority"}}"#),
            (Ollama, r#"{"options":{"NUM_PREDICT":9}}"#),
            (Ollama, r#"{"options":{"n":9}}"#),
            (OpenAiChat, r#"{"extra_body":{"n":9}}"#),
            (OpenAiChat, r#"{"extra_body":{"Prediction":{"x":1}}}"#),
            (OpenAiChat, r#"{"candidateCount":9}"#),
            (Anthropic, r#"{"n":9}"#),
            (OpenAiResponses, r#"{"n":9}"#),
            (OpenAiResponses, r#"{"prompt":"pmpt_123"}"#),
            (BedrockConverse, r#"{"additionalModelRequestFields":{"n":9}}"#),
            (Gemini, r#"{"tools":{"google_search":{}}}"#),
            (Gemini, r#"{"contents":{"parts":[{"text":"x"}]}}"#),
            (Gemini, r#"{"CachedContent":"c"}"#),
            (Gemini, r#"{"systemInstruction":{"parts":[{"fileData":{"fileUri":"gs://x"}}]}}"#),
            (Anthropic, r#"{"system":[{"type":"image","source":{}}]}"#),
            (Anthropic, r#"{"messages":[],"messages":[]}"#),
            (Anthropic, r#"{"Thread":{"type":"continue"}}"#),
            (Anthropic, r#"{"inference_geo":"us"}"#),
            (OpenAiChat, r#"{"tools":[],"Tools":[]}"#),
            (OpenAiChat, r#"{"Web_Search_Options":{}}"#),
            (OpenAiChat, r#"{"data_sources":[{"type":"x"}]}"#),
            (OpenAiChat, r#"{"chat_template":"{% for %}"}"#),
            (OpenAiChat, r#"{"tools":[{"type":"browser_search"}]}"#),
            (
                OpenAiChat,
                r#"{"tools":[{"type":"builtin_function","function":{"name":"$web_search"}}]}"#,
            ),
            (
                OpenAiResponses,
                r#"{"tools":[{"type":"shell","environment":{"type":"container_auto"}}]}"#,
            ),
            (OpenAiResponses, r#"{"tools":[{"type":"Web_Search"}]}"#),
            // What is not in the list, whatever it is.
            (OpenAiChat, r#"{"new_member":1}"#),
            (OpenAiChat, r#"{"search_parameters":{"mode":"off"}}"#),
            (OpenAiChat, r#"{"provider":{"order":["dear"]}}"#),
            (OpenAiChat, r#"{"reasoning":{"effort":"low","mode":"pro"}}"#),
            (OpenAiChat, r#"{"temperature":1,"temperature":0}"#),
            (OpenAiResponses, r#"{"input":[{"type":"item_reference","id":"i"}]}"#),
            (OpenAiResponses, r#"{"input":{"role":"user"}}"#),
            (OpenAiResponses, r#"{"tools":[{"type":"namespace","tools":[{"type":"mcp"}]}]}"#),
            (Anthropic, r#"{"messages":[{"role":"user","content":[{"type":"image"}]}]}"#),
            (Anthropic, r#"{"messages":"x"}"#),
            (Anthropic, r#"{"output_config":{"effort":"low","other":1}}"#),
            (Anthropic, r#"{"context_management":{"edits":{"type":"clear_x"}}}"#),
            (Anthropic, r#"{"context_management":{"edits":[{"kind":"clear_x"}]}}"#),
            (Gemini, r#"{"generationConfig":{"speechConfig":{}}}"#),
            (Gemini, r#"{"generationConfig":{"routingConfig":{"autoMode":{}}}}"#),
            (Gemini, r#"{"generation_config":{"candidate_count":2,"candidateCount":2}}"#),
            (BedrockConverse, r#"{"guardrailConfig":{"guardrailIdentifier":"g"}}"#),
            (BedrockConverse, r#"{"serviceTier":{"type":"default","other":"priority"}}"#),
            (Ollama, r#"{"messages":[{"role":"user","content":"x","images":["iVBO"]}]}"#),
            (CohereV2, r#"{"connectors":[{"id":"web-search"}]}"#),
        ] {
            assert!(unbounded(shape, body).is_some(), "{shape:?} {body}");
        }
    }

    #[test]
    fn usual_requests_have_a_bound() {
        for (shape, body) in [
            (
                OpenAiChat,
                r#"{"model":"m","n":2,"max_tokens":9,"max_completion_tokens":null,"service_tier":"auto","modalities":["text"],"best_of":1}"#,
            ),
            (
                OpenAiChat,
                r#"{"N_shots":null,"audio":null,"models":[],"use_beam_search":false,"max_tokens":-1}"#,
            ),
            (
                OpenAiResponses,
                r#"{"max_output_tokens":9,"service_tier":"flex","prompt":null,"truncation":"auto"}"#,
            ),
            (
                Anthropic,
                r#"{"max_tokens":9,"service_tier":"standard_only","speed":"standard","context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}}"#,
            ),
            (
                Gemini,
                r#"{"generationConfig":{"candidateCount":1,"maxOutputTokens":9,"responseModalities":["TEXT"]},"cachedContent":""}"#,
            ),
            (
                BedrockConverse,
                r#"{"inferenceConfig":{"maxTokens":9},"serviceTier":{"type":"default"},"additionalModelRequestFields":{"top_k":4}}"#,
            ),
            (Ollama, r#"{"options":{"num_predict":-1,"temperature":0}}"#),
            (
                Gemini,
                r#"{"generation_config":{"top_p":1,"max_output_tokens":9},"system_instruction":{"parts":[{"text":"x"}]}}"#,
            ),
            (OpenAiResponses, r#"{"input":"x","instructions":"y","background":true}"#),
            (CohereV2, r#"{"documents":["text"],"max_tokens":9,"thinking":{"token_budget":4}}"#),
        ] {
            assert_eq!(unbounded(shape, body), None, "{shape:?} {body}");
        }
    }
}
