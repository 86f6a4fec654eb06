//! The members that a request may have under a strict ceiling: only those with a known bound.
//!
//! The members are a list of what may be there, for each format: a provider can add a member that costs at any
//! time, and a server can read a member otherwise than guard does, for example in another case. What is not in
//! the list is refused with its name.

use super::caps::cap_place;
use super::fields::{Fields, parsed};
use super::hosted::tool_of_provider;
use super::media::unknown_part;
use endstop_wire::WireFormat;
use std::borrow::Cow;
use std::collections::HashSet;

/// The values that a member may hold.
#[derive(Clone, Copy)]
enum Holds {
    /// Anything: it costs no more than the tokens of the request, and of an answer up to its cap.
    Any,
    /// The number of answers.
    Count,
    /// Messages: a list, or a text in the Responses format.
    Messages,
    /// Instructions: a text, or parts like those of messages.
    Parts,
    /// Tools that the client runs.
    Tools,
    /// One of these words, alone or in an object.
    Word(&'static [&'static str]),
    /// A list of text modalities.
    Text,
    /// Changes of the history that generate nothing.
    Edits,
    /// A value that stands for nothing: some clients send members that they do not use.
    Nothing,
    /// An object with these members.
    Object(&'static [Row]),
}

use Holds::{Any, Count, Edits, Messages, Nothing, Object, Parts, Text, Tools, Word};

type Row = (&'static str, Holds);

/// Service tiers at the list price or below.
const TIER: Holds = Word(&["auto", "default", "flex", "standard", "standard_only", "batch"]);
/// Members that make a server generate more than it returns; one of them is allowed.
const ONE: Holds = Word(&["1"]);

/// Members of `chat/completions`, also of servers of open models and of gateways.
const CHAT: &[Row] = &[
    ("model", Any),
    ("messages", Messages),
    ("tools", Tools),
    ("tool_choice", Any),
    ("parallel_tool_calls", Any),
    ("functions", Any),
    ("function_call", Any),
    ("stream", Any),
    ("stream_options", Any),
    ("n", Count),
    ("temperature", Any),
    ("top_p", Any),
    ("top_k", Any),
    ("min_p", Any),
    ("top_a", Any),
    ("typical_p", Any),
    ("frequency_penalty", Any),
    ("presence_penalty", Any),
    ("repetition_penalty", Any),
    ("logit_bias", Any),
    ("logprobs", Any),
    ("top_logprobs", Any),
    ("stop", Any),
    ("stop_token_ids", Any),
    ("min_tokens", Any),
    ("ignore_eos", Any),
    ("seed", Any),
    ("random_seed", Any),
    ("response_format", Any),
    ("guided_json", Any),
    ("guided_regex", Any),
    ("guided_choice", Any),
    ("guided_grammar", Any),
    ("structured_outputs", Any),
    ("reasoning", REASONING),
    ("reasoning_effort", Any),
    ("reasoning_format", Any),
    ("include_reasoning", Any),
    ("thinking", THINKING),
    ("enable_thinking", Any),
    ("thinking_budget", Any),
    (
        "chat_template_kwargs",
        Object(&[("enable_thinking", Any), ("thinking", Any), ("reasoning_effort", Any)]),
    ),
    ("verbosity", Any),
    ("user", Any),
    ("metadata", Any),
    ("store", Any),
    ("usage", Object(&[("include", Any)])),
    ("transforms", Any),
    ("safe_prompt", Any),
    ("prompt_mode", Any),
    ("safety_identifier", Any),
    ("prompt_cache_key", Any),
    ("prompt_cache_retention", Any),
    ("cache_control", Any),
    ("service_tier", TIER),
    ("modalities", Text),
    ("best_of", ONE),
    ("use_beam_search", Nothing),
    ("audio", Nothing),
    ("prediction", Nothing),
    ("models", Nothing),
    ("fallbacks", Nothing),
    ("plugins", Nothing),
    ("mcp_servers", Nothing),
    ("extra_body", Nothing),
];

const RESPONSES: &[Row] = &[
    ("model", Any),
    ("input", Messages),
    ("instructions", Parts),
    ("tools", Tools),
    ("tool_choice", Any),
    ("parallel_tool_calls", Any),
    ("max_tool_calls", Any),
    ("stream", Any),
    ("stream_options", Any),
    ("temperature", Any),
    ("top_p", Any),
    ("top_logprobs", Any),
    ("text", Any),
    ("reasoning", REASONING),
    ("include", Any),
    ("truncation", Any),
    ("store", Any),
    ("metadata", Any),
    ("client_metadata", Any),
    ("user", Any),
    ("safety_identifier", Any),
    ("prompt_cache_key", Any),
    ("prompt_cache_retention", Any),
    // Whether the stored part of a conversation is known is asked elsewhere.
    ("previous_response_id", Any),
    ("conversation", Any),
    ("background", Any),
    ("service_tier", TIER),
    ("prompt", Nothing),
    ("context_management", Nothing),
];

const ANTHROPIC: &[Row] = &[
    ("model", Any),
    ("messages", Messages),
    ("system", Parts),
    ("tools", Tools),
    ("tool_choice", Any),
    ("stream", Any),
    ("temperature", Any),
    ("top_p", Any),
    ("top_k", Any),
    ("stop_sequences", Any),
    ("thinking", THINKING),
    ("output_config", Object(&[("effort", Any), ("format", Any), ("task_budget", Any)])),
    ("output_format", Any),
    ("context_management", Object(&[("edits", Edits)])),
    ("metadata", Any),
    ("cache_control", Any),
    // Whether the stored part of a conversation is known is asked elsewhere.
    ("thread", Any),
    ("service_tier", TIER),
    ("speed", TIER),
    ("anthropic_version", Any),
    ("anthropic_beta", Any),
    ("container", Nothing),
    ("mcp_servers", Nothing),
    ("fallbacks", Nothing),
    ("inference_geo", Word(&["global"])),
];

/// In camel case; Google's servers read snake case, too.
const GEMINI: &[Row] = &[
    ("model", Any),
    ("contents", Messages),
    ("systemInstruction", Parts),
    ("tools", Tools),
    ("toolConfig", Object(&[("functionCallingConfig", Any)])),
    ("safetySettings", Any),
    ("labels", Any),
    ("generationConfig", Object(GENERATION)),
    ("serviceTier", TIER),
    ("cachedContent", Nothing),
];

const GENERATION: &[Row] = &[
    ("candidateCount", Count),
    ("temperature", Any),
    ("topP", Any),
    ("topK", Any),
    ("stopSequences", Any),
    ("seed", Any),
    ("presencePenalty", Any),
    ("frequencyPenalty", Any),
    ("responseLogprobs", Any),
    ("logprobs", Any),
    ("responseMimeType", Any),
    ("responseSchema", Any),
    ("responseJsonSchema", Any),
    ("_responseJsonSchema", Any),
    ("thinkingConfig", Any),
    ("mediaResolution", Any),
    ("responseModalities", Text),
];

const CONVERSE: &[Row] = &[
    ("modelId", Any),
    ("schemaVersion", Any),
    ("messages", Messages),
    ("system", Parts),
    ("toolConfig", Object(&[("tools", Tools), ("toolChoice", Any)])),
    ("outputConfig", Any),
    (
        "inferenceConfig",
        Object(&[
            ("temperature", Any),
            ("topP", Any),
            ("topK", Any),
            ("stopSequences", Any),
            ("top_p", Any),
            ("top_k", Any),
        ]),
    ),
    (
        "additionalModelRequestFields",
        Object(&[
            ("temperature", Any),
            ("top_p", Any),
            ("top_k", Any),
            ("thinking", THINKING),
            ("reasoning_config", THINKING),
            ("reasoning_effort", Any),
            ("output_config", Any),
            ("anthropic_beta", Any),
        ]),
    ),
    ("additionalModelResponseFieldPaths", Any),
    ("requestMetadata", Any),
    ("performanceConfig", TIER),
    ("serviceTier", TIER),
    ("promptVariables", Nothing),
];

const OLLAMA: &[Row] = &[
    ("model", Any),
    ("messages", Messages),
    ("tools", Tools),
    ("stream", Any),
    ("format", Any),
    ("think", Any),
    ("keep_alive", Any),
    ("truncate", Any),
    ("logprobs", Any),
    ("top_logprobs", Any),
    ("options", Object(OPTIONS)),
];

const OPTIONS: &[Row] = &[
    ("num_ctx", Any),
    ("num_keep", Any),
    ("num_batch", Any),
    ("num_gpu", Any),
    ("num_thread", Any),
    ("main_gpu", Any),
    ("use_mmap", Any),
    ("temperature", Any),
    ("seed", Any),
    ("top_k", Any),
    ("top_p", Any),
    ("min_p", Any),
    ("typical_p", Any),
    ("repeat_last_n", Any),
    ("repeat_penalty", Any),
    ("presence_penalty", Any),
    ("frequency_penalty", Any),
    ("penalize_newline", Any),
    ("mirostat", Any),
    ("mirostat_tau", Any),
    ("mirostat_eta", Any),
    ("stop", Any),
];

const COHERE: &[Row] = &[
    ("model", Any),
    ("messages", Messages),
    ("tools", Tools),
    ("strict_tools", Any),
    ("tool_choice", Any),
    ("documents", Any),
    ("citation_options", Any),
    ("response_format", Any),
    ("safety_mode", Any),
    ("stream", Any),
    ("stop_sequences", Any),
    ("temperature", Any),
    ("seed", Any),
    ("frequency_penalty", Any),
    ("presence_penalty", Any),
    ("k", Any),
    ("p", Any),
    ("logprobs", Any),
    ("thinking", THINKING),
];

/// The reasoning of OpenAI's models, and of gateways. It counts against the output cap.
const REASONING: Holds = Object(&[
    ("effort", Any),
    ("summary", Any),
    ("generate_summary", Any),
    ("max_tokens", Any),
    ("enabled", Any),
    ("exclude", Any),
]);
/// The reasoning of other models. It counts against the output cap.
const THINKING: Holds = Object(&[
    ("type", Any),
    ("budget_tokens", Any),
    ("token_budget", Any),
    ("display", Any),
    ("clear_thinking", Any),
]);

fn rows(shape: WireFormat) -> &'static [Row] {
    match shape {
        WireFormat::OpenAiResponses => RESPONSES,
        WireFormat::Anthropic => ANTHROPIC,
        WireFormat::Gemini => GEMINI,
        WireFormat::BedrockConverse => CONVERSE,
        WireFormat::Ollama => OLLAMA,
        WireFormat::CohereV2 => COHERE,
        // Of a format without rows of its own, everything but the members that it shares with chat is refused.
        _ => CHAT,
    }
}

/// Returns the reason why the cost of a request has no known bound, or `None` if it has one.
pub(super) fn unbounded(shape: WireFormat, fields: &Fields<'_>) -> Option<String> {
    let has_caps = cap_place(shape).objects.is_empty();
    object(shape, fields, rows(shape), has_caps)
}

/// Checks the members of an object. `has_caps`: it is the one with the output cap.
fn object(
    shape: WireFormat,
    fields: &Fields<'_>,
    rows: &'static [Row],
    has_caps: bool,
) -> Option<String> {
    let place = cap_place(shape);
    let mut seen: HashSet<&str> = HashSet::new();
    for (name, value) in fields.iter() {
        let plain = if shape == WireFormat::Gemini { camel(name) } else { Cow::Borrowed(name) };
        let row = rows.iter().find(|row| row.0 == plain);
        let is_cap = has_caps && place.names.contains(&name);
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
            Some((means, holds)) => member(shape, means, value, *holds),
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
fn member(shape: WireFormat, name: &str, value: &str, holds: Holds) -> Option<String> {
    let is_list = value.starts_with('[');
    match holds {
        Any => None,
        Count => (value.parse::<u32>().is_err() || value.starts_with('+'))
            .then(|| format!("`{name}` is not a plain number")),
        Messages
            if !(is_list || shape == WireFormat::OpenAiResponses && value.starts_with('"')) =>
        {
            Some(format!("`{name}` is not a list"))
        }
        Messages | Parts => unknown_part(value).map(|part| {
            format!(
                "the request has `{}` in `{name}`, such as an image or a file, whose size in tokens is not known",
                shown(&part)
            )
        }),
        Tools if !is_list => Some(format!("`{name}` is not a list")),
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
            Ok(inside) => {
                let has_caps = cap_place(shape).objects.contains(&name)
                    || shape == WireFormat::Gemini && name == "generationConfig";
                object(shape, &inside, rows, has_caps)
            }
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

fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}
#[cfg(test)]
mod tests {
    use super::{Fields, WireFormat, unbounded};
    use WireFormat::{
        Anthropic, BedrockConverse, CohereV2, Gemini, Ollama, OpenAiChat, OpenAiResponses,
    };

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
            assert!(unbounded(shape, &Fields::of(body).unwrap()).is_some(), "{shape:?} {body}");
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
            assert_eq!(unbounded(shape, &Fields::of(body).unwrap()), None, "{shape:?} {body}");
        }
    }
}
