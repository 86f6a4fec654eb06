//! Parts of messages whose size in tokens does not follow from their bytes: images, sounds, files, references to what
//! a provider stores.
//!
//! The lists have what is text. Anything else is such a part, also one that a provider adds tomorrow.

use super::fields::{Fields, elements_of};
use super::tools::tool_of_provider;

/// Values of `type` of items and parts that are text.
const TYPES: &[&str] = &[
    "message",
    "text",
    "input_text",
    "output_text",
    "summary_text",
    "refusal",
    // Reasoning, also encrypted, and the summary of a history.
    "reasoning",
    "reasoning_text",
    "thinking",
    "redacted_thinking",
    "compaction",
    "compaction_summary",
    "context_compaction",
    "compaction_trigger",
    // Calls of tools that the client runs, and their results.
    "function",
    "tool_use",
    "tool_result",
    "tool_reference",
    "function_call",
    "function_call_output",
    "custom_tool_call",
    "custom_tool_call_output",
    "local_shell_call",
    "local_shell_call_output",
    "apply_patch_call",
    "apply_patch_call_output",
    "tool_search_call",
    "tool_search_output",
    // Cohere's documents are text.
    "document",
];

/// The values of a member of a message or part.
#[derive(Clone, Copy)]
enum Holds {
    /// Text and plain values.
    Text,
    /// Parts, or an object like one.
    Parts,
    /// Tools.
    Tools,
}

use Holds::{Parts, Text, Tools};

/// Members of messages and parts, in all formats.
const MEMBERS: &[(&str, Holds)] = &[
    ("content", Parts),
    ("parts", Parts),
    ("output", Parts),
    ("summary", Parts),
    ("document", Parts),
    ("functionResponse", Parts),
    ("function_response", Parts),
    ("toolResult", Parts),
    ("tools", Tools),
    ("type", Text),
    ("role", Text),
    ("name", Text),
    ("text", Text),
    ("id", Text),
    ("status", Text),
    ("phase", Text),
    ("index", Text),
    ("data", Text),
    ("json", Text),
    ("title", Text),
    ("refusal", Text),
    ("thinking", Text),
    ("signature", Text),
    ("encrypted_content", Text),
    ("reasoning", Text),
    ("reasoning_content", Text),
    ("reasoning_details", Text),
    ("reasoning_text", Text),
    ("reasoning_opaque", Text),
    ("reasoningContent", Text),
    ("thought", Text),
    ("thoughtSignature", Text),
    ("thought_signature", Text),
    ("tool_plan", Text),
    ("tool_calls", Text),
    ("tool_call_id", Text),
    ("tool_use_id", Text),
    ("tool_name", Text),
    ("toolUse", Text),
    ("toolUseId", Text),
    ("function", Text),
    ("function_call", Text),
    ("functionCall", Text),
    ("call_id", Text),
    ("arguments", Text),
    ("args", Text),
    ("input", Text),
    ("action", Text),
    ("operation", Text),
    ("execution", Text),
    ("namespace", Text),
    ("caller", Text),
    ("response", Text),
    ("success", Text),
    ("is_error", Text),
    ("cache_control", Text),
    ("cachePoint", Text),
    ("annotations", Text),
    ("citations", Text),
    ("logprobs", Text),
    ("prefix", Text),
    ("partial", Text),
    ("metadata", Text),
    // The effort from this message on.
    ("output_config", Text),
    ("internal_chat_message_metadata_passthrough", Text),
];

/// Returns the name of the first part that may be more than text: its type, or its member.
pub fn unknown_part(text: &str) -> Option<String> {
    if text.starts_with('[') {
        return elements_of(text).into_iter().find_map(unknown_part);
    }
    if !text.starts_with('{') {
        return None;
    }
    // Not reached for a body that was read.
    let Ok(fields) = Fields::of(text) else { return Some(text.chars().take(64).collect()) };
    let is_empty = |value: &str| ["null", "false", "[]", "{}", "\"\""].contains(&value);
    // A member may be there twice, and a server may read the other one.
    fields.iter().find_map(|(name, value)| {
        let holds = MEMBERS.iter().find(|member| member.0 == name).map(|member| member.1);
        match holds {
            _ if name == "type" => {
                let kind: Option<String> = super::fields::parsed(value);
                let kind = kind.unwrap_or_else(|| value.to_owned());
                (!TYPES.contains(&kind.as_str())).then_some(kind)
            }
            Some(Parts) => unknown_part(value),
            Some(Tools) => tool_of_provider(value),
            Some(Text) => None,
            None if is_empty(value) => None,
            None => Some(name.to_owned()),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::unknown_part;
    use serde_json::json;

    #[test]
    fn media_of_each_format_are_found() {
        for part in [
            json!({"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
            json!({"image_url": "https://x/y.png"}),
            json!({"type": "text", "text": "x", "video_url": {"url": "https://x"}}),
            json!({"type": "input_image", "file_id": "f"}),
            json!({"type": "input_video", "video": "x"}),
            json!({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}),
            json!({"type": "document", "source": {"type": "text", "data": "x"}}),
            json!({"type": "tool_result", "content": [{"type": "image", "source": {}}]}),
            json!({"type": "function_call_output", "output": [{"type": "input_image"}]}),
            json!({"type": "function_call_output", "output": {"content": [{"type": "input_file"}]}}),
            json!({"type": "reasoning", "summary": [{"type": "new_kind"}]}),
            json!({"type": "item_reference", "id": "msg_1"}),
            json!({"type": "server_tool_use", "name": "web_search"}),
            json!({"type": "tool_search_output", "tools": [{"type": "web_search"}]}),
            json!({"type": 4}),
            json!({"Type": "image"}),
            json!({"inlineData": {"mimeType": "image/png", "data": "iVBO"}}),
            json!({"file_data": {"file_uri": "gs://x"}}),
            json!({"functionResponse": {"parts": [{"fileData": {"fileUri": "gs://x"}}]}}),
            json!({"document": {"format": "pdf", "source": {"s3Location": {"uri": "s3://x"}}}}),
            json!({"toolResult": {"content": [{"video": {"format": "mp4"}}]}}),
            json!({"role": "user", "content": "see", "images": ["iVBO"]}),
            json!({"role": "assistant", "audio": {"id": "audio_1"}}),
        ] {
            for value in [json!({"role": "user", "content": [part]}), json!([part])] {
                assert!(unknown_part(&value.to_string()).is_some(), "{part}");
            }
        }
        // The other one of two members counts, too.
        let twice = r#"{"content":[{"type":"image"}],"content":"x"}"#;
        assert_eq!(unknown_part(twice).as_deref(), Some("image"));
        let twice = r#"{"type":"image","text":"x","type":"text"}"#;
        assert_eq!(unknown_part(twice).as_deref(), Some("image"));
    }

    #[test]
    fn text_is_no_media() {
        for part in [
            json!("an image of type image_url"),
            json!({"type": "text", "text": "{\"type\":\"image\"}"}),
            json!({"type": "tool_use", "input": {"image": "x.png", "document": 4, "type": "image"}}),
            json!({"type": "tool_result", "content": [{"type": "tool_reference", "tool_name": "x"}]}),
            json!({"type": "function_call", "arguments": "{\"type\":\"image\"}", "call_id": "c"}),
            json!({"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}),
            json!({"text": "video"}),
            json!({"type": "compaction_trigger"}),
            json!({"functionCall": {"name": "f", "args": {"inlineData": 1}}}),
            json!({"functionResponse": {"name": "f", "response": {"image": "x"}}}),
            json!({"toolResult": {"toolUseId": "t", "content": [{"json": {"image": {}}}]}}),
            json!({"type": "document", "document": {"data": "{\"rows\":4}"}}),
            json!({"type": "text", "text": "x", "images": [], "audio": null}),
        ] {
            let message = json!({"role": "user", "content": [part]}).to_string();
            assert_eq!(unknown_part(&message), None, "{part}");
        }
    }
}
