//! Finds images, sounds and files in messages, whose size in tokens does not follow from their bytes.

use serde_json::Value;

/// Values of `type` of content parts other than text.
const TYPES: [&str; 17] = [
    "image",
    "image_url",
    "input_image",
    "input_audio",
    "audio",
    "video_url",
    "document",
    "file",
    "input_file",
    "container_upload",
    "item_reference",
    "document_url",
    "audio_url",
    "file_url",
    "video",
    "image_embeds",
    "input_video",
];
/// Members of Gemini's parts other than text.
const MEMBERS: [&str; 10] = [
    "inlineData",
    "inline_data",
    "fileData",
    "file_data",
    // Some servers read parts without a type.
    "image_url",
    "audio_url",
    "video_url",
    "document_url",
    "file_url",
    "image_embeds",
];
/// Members of Converse's content blocks other than text, if they are objects.
const BLOCKS: [&str; 4] = ["image", "document", "video", "audio"];

/// `true` if a value has a part other than text, at any depth: results of tools have parts, too.
pub(super) fn has_media(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_media),
        Value::Object(object) => {
            // Cohere's documents are text.
            let is_text = object.get("document").is_some_and(|inner| inner.get("data").is_some());
            let is_type = |text: &str| TYPES.contains(&text) && !is_text;
            object.get("type").and_then(Value::as_str).is_some_and(is_type)
                || MEMBERS.iter().any(|name| object.contains_key(*name))
                || BLOCKS.iter().any(|name| {
                    object.get(*name).is_some_and(|block| block.get("source").is_some())
                })
                // Ollama.
                || object.get("images").is_some_and(Value::is_array)
                // Arguments of calls have members of any name.
                || object.iter().any(|(name, value)| {
                    !matches!(name.as_str(), "input" | "args" | "arguments") && has_media(value)
                })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::has_media;
    use serde_json::json;

    #[test]
    fn media_of_each_format_are_found() {
        for part in [
            json!({"type": "image_url", "image_url": {"url": "https://x/y.png"}}),
            json!({"type": "input_image", "file_id": "f"}),
            json!({"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}),
            json!({"type": "tool_result", "content": [{"type": "image", "source": {}}]}),
            json!({"inlineData": {"mimeType": "image/png", "data": "iVBO"}}),
            json!({"functionResponse": {"parts": [{"fileData": {"fileUri": "gs://x"}}]}}),
            json!({"document": {"format": "pdf", "source": {"s3Location": {"uri": "s3://x"}}}}),
            json!({"role": "user", "content": "see", "images": ["iVBO"]}),
        ] {
            assert!(has_media(&json!({"role": "user", "content": [part]})), "{part}");
        }
        for part in [
            json!("an image of type image_url"),
            json!({"type": "text", "text": "{\"type\":\"image\"}"}),
            json!({"type": "tool_use", "input": {"image": "x.png", "document": 4}}),
            json!({"text": "video"}),
            json!({"type": "document", "document": {"data": "{\"rows\":4}"}}),
        ] {
            assert!(!has_media(&json!({"role": "user", "content": [part]})), "{part}");
        }
    }
}
