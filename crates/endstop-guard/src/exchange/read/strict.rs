//! What a request may contain under a strict ceiling: only what has a known bound.
//!
//! A server may read a member otherwise than guard does: a number in a string, the first of two members with the
//! same name, a name in another case. What is not written plainly is therefore refused, and so is what makes a
//! call cost more than its tokens at the list price.

use super::caps::cap_place;
use super::fields::{Fields, folded, parsed};
use super::hosted::{TOP, hosted_tool};
use super::media::has_media;
use endstop_wire::WireFormat;
use std::collections::HashSet;

/// Numbers of answers, and members that make a server generate more than it returns.
const COUNTS: &[&str] = &["n", "candidateCount", "candidate_count"];
const MORE: &[&str] = &[
    "best_of",
    "use_beam_search",
    "beam_width",
    "num_beams",
    "num_generations",
    "num_return_sequences",
];
/// Names of members that decide about the cost and must be unmistakable.
const OWN: &[&str] = &[
    "model",
    "messages",
    "contents",
    "input",
    "system",
    "instructions",
    "tools",
    "functions",
    "stream",
    "thread",
    "conversation",
    "previous_response_id",
    "background",
    "thinking",
    "reasoning",
];
/// Members that are lists in these formats. As an object, some servers read one element of it.
const LISTS: &[&str] = &["messages", "contents", "tools"];
/// Members with instructions, which can have images and files like messages.
const INSTRUCTIONS: &[&str] =
    &["system", "instructions", "systemInstruction", "system_instruction"];
/// Service tiers by which a provider may bill more than the list price, and values that do not.
const TIERS: &[&str] = &["service_tier", "serviceTier", "speed", "performanceConfig"];
const USUAL_TIERS: &[&str] = &["auto", "default", "flex", "standard", "standard_only", "batch"];
/// Members that add a prompt which the body does not have, or generate text that no cap counts.
const HIDDEN: &[(&str, &str)] = &[
    ("cachedContent", "a cached prompt"),
    ("cached_content", "a cached prompt"),
    ("prompt", "a stored prompt"),
    ("prediction", "a predicted output, whose rejected tokens are billed"),
    ("audio", "spoken output"),
    ("container", "a container"),
    ("chat_template", "a template"),
    ("promptVariables", "a stored prompt"),
    ("tool_resources", "stored files"),
    ("data_sources", "data of the provider"),
    ("enable_search", "a search"),
    ("search_mode", "a search"),
    ("connectors", "connectors"),
    ("inference_geo", "a place with another price"),
];
/// Members that let a gateway answer with other models than the one whose price is known.
const OTHER_MODELS: &[&str] = &["models", "fallbacks", "route", "fallback_models"];
/// Output caps in any format. Away from the place of its own, a server could take one for the cap.
const ALL_CAPS: &[&str] = &[
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxOutputTokens",
    "maxTokens",
    "max_new_tokens",
    "maxNewTokens",
    "max_tokens_to_sample",
    "max_length",
    "num_predict",
    "n_predict",
];
/// Lists of what a model may return.
const MODALITIES: &[&str] = &["modalities", "responseModalities", "response_modalities"];
/// Objects whose members belong to the request as well.
const OBJECTS: &[&str] = &[
    "generationConfig",
    "generation_config",
    "inferenceConfig",
    "options",
    "extra_body",
    "additionalModelRequestFields",
];

/// Returns the reason why the cost of a request has no known bound, or `None` if it has one.
pub(super) fn unbounded(shape: WireFormat, fields: &Fields<'_>) -> Option<String> {
    if let Some(tool) = hosted_tool(fields) {
        return Some(format!(
            "the request lets the provider run `{tool}` itself, whose uses are billed in addition"
        ));
    }
    // Summaries that the provider makes while it answers are billed in addition.
    if fields.all(&["context_management"]).any(|value| value.contains("compact")) {
        return Some("the request lets the provider summarise the conversation itself".to_owned());
    }
    if INSTRUCTIONS.iter().any(|name| fields.has(name) && has_media(&fields.value(name))) {
        return Some("the request has an image or a file in its instructions".to_owned());
    }
    let is_list = |value: &str| value.starts_with('[') || value == "null";
    if let Some(name) = LISTS.iter().find(|name| !fields.all(&[name]).all(is_list)) {
        return Some(format!("`{name}` is not a list"));
    }
    let place = cap_place(shape);
    let (at_top, counts): (&[&str], &[&str]) = match shape {
        WireFormat::OpenAiChat => (place.names, &["n"]),
        _ if place.objects.is_empty() => (place.names, &[]),
        _ => (&[], &[]),
    };
    let mut found = holder((at_top, counts), fields);
    for name in OBJECTS {
        for object in fields.all(&[name]).filter(|object| *object != "null") {
            let inside = Fields::of(object).ok();
            let is_own = place.objects.contains(name);
            let caps: &[&str] = if is_own { place.names } else { &[] };
            let is_gemini = is_own && shape == WireFormat::Gemini;
            let counts: &[&str] = if is_gemini { &COUNTS[1..] } else { &[] };
            found = found.or_else(|| match &inside {
                Some(inside) => holder((caps, counts), inside),
                None => Some(format!("`{name}` is not an object")),
            });
        }
    }
    found
}

fn is_text(value: &str) -> bool {
    value.starts_with('"')
}

/// `true` if a member is there and has an effect.
fn is_set(fields: &Fields<'_>, name: &str) -> bool {
    let empty = ["null", "false", "[]", "{}", "\"\""];
    fields.all(&[name]).any(|value| !empty.contains(&value))
}

/// Checks the members of one object, of which `caps` are output caps and `own` numbers of answers.
fn holder((caps, own): (&[&str], &[&str]), fields: &Fields<'_>) -> Option<String> {
    let hidden = HIDDEN.iter().map(|(name, _)| *name);
    let mut seen: HashSet<&str> = HashSet::new();
    for name in fields.names() {
        let folded = folded(name);
        let lists =
            [caps, ALL_CAPS, COUNTS, MORE, TIERS, MODALITIES, OBJECTS, OTHER_MODELS, OWN, TOP];
        let mut known = lists.into_iter().flatten().copied().chain(hidden.clone());
        let exact = known.clone().find(|known| *known == name);
        let Some(means) = exact.or_else(|| known.find(|known| known.to_lowercase() == folded))
        else {
            continue;
        };
        if exact.is_none() {
            return Some(format!("`{}` is another spelling of `{means}`", shown(name)));
        }
        if !seen.insert(means) {
            return Some(format!("the request has `{means}` twice"));
        }
        if ALL_CAPS.contains(&means) && !caps.contains(&means) && is_set(fields, means) {
            return Some(format!("`{means}` is not the output cap of this format"));
        }
        let is_one = matches!(fields.raw(means), Some("1" | "null"));
        if COUNTS.contains(&means) && !own.contains(&means) && !is_one {
            return Some(format!("`{means}` is not the number of answers of this format"));
        }
    }
    if let Some((_, what)) = HIDDEN.iter().find(|(name, _)| {
        // A text is the prompt itself and not a reference, but to OpenAI's stored ones.
        let is_prompt = *name == "prompt"
            && fields.raw(name).is_some_and(|value| is_text(value) && !value.contains("pmpt_"));
        is_set(fields, name) && !is_prompt
    }) {
        return Some(format!("the request has {what}, whose size is not known"));
    }
    if let Some(name) = OTHER_MODELS.iter().find(|name| is_set(fields, name)) {
        return Some(format!("`{name}` lets another model answer, whose price is not known"));
    }
    let number = |name: &&str, is_number: fn(&str) -> bool| {
        let value = fields.raw(name).filter(|value| *value != "null")?;
        // Rust also reads a plus sign, which JSON does not have.
        (!is_number(value)).then(|| format!("`{name}` is not a plain number"))
    };
    let counts: Vec<&&str> = COUNTS.iter().filter(|name| fields.has(name)).collect();
    if counts.len() > 1 {
        return Some("the request has the number of its answers twice".to_owned());
    }
    let is_count = |value: &str| value.parse::<u32>().is_ok();
    // A negative cap means "none", and is replaced like a large one.
    let is_cap = |value: &str| value.parse::<i64>().is_ok();
    COUNTS
        .iter()
        .find_map(|name| number(name, is_count))
        .or_else(|| caps.iter().find_map(|name| number(name, is_cap)))
        .or_else(|| {
            let more =
                MORE.iter().find(|name| is_set(fields, name) && fields.raw(name) != Some("1"));
            more.map(|name| format!("`{name}` makes the server generate more than it returns"))
        })
        .or_else(|| {
            let other =
                MODALITIES.iter().find(|name| fields.has(name) && !is_text_alone(fields, name));
            other.map(|name| format!("`{name}` asks for more than text, which has another price"))
        })
        .or_else(|| {
            let other = TIERS.iter().find(|name| fields.has(name) && !is_usual_tier(fields, name));
            other.map(|name| format!("`{name}` may have another price than that of the list"))
        })
}

fn is_text_alone(fields: &Fields<'_>, name: &str) -> bool {
    let list: Option<Vec<String>> = fields.raw(name).and_then(parsed);
    list.is_some_and(|list| list.iter().all(|one| one.eq_ignore_ascii_case("text")))
}

/// `true` if a tier is billed at the list price or below. Amazon puts it into an object.
fn is_usual_tier(fields: &Fields<'_>, name: &str) -> bool {
    let inside = fields.object(name);
    let tier =
        fields.string(name).or_else(|| inside.string("type")).or_else(|| inside.string("latency"));
    tier.is_some_and(|tier| USUAL_TIERS.contains(&tier.as_str()))
}

fn shown(name: &str) -> String {
    name.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::{Fields, WireFormat, unbounded};
    use WireFormat::{Anthropic, BedrockConverse, Gemini, Ollama, OpenAiChat, OpenAiResponses};

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
                r#"{"N_shots":1,"audio":null,"models":[],"use_beam_search":false,"max_tokens":-1}"#,
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
        ] {
            assert_eq!(unbounded(shape, &Fields::of(body).unwrap()), None, "{shape:?} {body}");
        }
    }
}
