//! Converts a server's answer to text for the model.
//!
//! ```text
//! let output = output(ServerResult::CallToolResult(result)); // a tool's output
//! ```

use crate::tool::ToolOutput;
use endstop_process::Capture;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult};

/// Returns the tool output for an answer of the server.
pub(super) fn output(answer: ServerResult) -> ToolOutput {
    match answer {
        ServerResult::CallToolResult(result) => of_result(result),
        ServerResult::InputRequiredResult(_) => {
            ToolOutput::error("the server asked for input during the call, which is not supported")
        }
        ServerResult::CreateTaskResult(_) => {
            ToolOutput::error("the server answered the call with a task, which is not supported")
        }
        _ => ToolOutput::error("the server's answer is not the result of a tool call"),
    }
}

/// Returns the beginning and the end of a result as text. Content that a model cannot read as text
/// is replaced by a placeholder.
fn of_result(result: CallToolResult) -> ToolOutput {
    let mut kept = Kept::default();
    for block in result.content {
        match block {
            ContentBlock::Text(text) => kept.part(&text.text),
            ContentBlock::Image(image) => kept.named("image", &image.mime_type, image.data.len()),
            ContentBlock::Audio(audio) => kept.named("audio", &audio.mime_type, audio.data.len()),
            ContentBlock::Resource(resource) => match resource.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => {
                    kept.part(&format!("[resource {uri}]"));
                    kept.part(&text);
                }
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                    let kind = mime_type.as_deref().unwrap_or("unknown type");
                    kept.named(&format!("resource {uri}"), kind, blob.len());
                }
                _ => kept.part("[resource of an unknown type]"),
            },
            ContentBlock::ResourceLink(link) => {
                kept.part(&format!("[resource {}: {}]", link.uri, link.name));
            }
            _ => kept.part("[content of an unknown type]"),
        }
    }
    // By the protocol, structured content repeats the text, so it is used only if there is no text.
    if !kept.any
        && let Some(value) = result.structured_content
    {
        kept.part(&value.to_string());
    }
    let content = if kept.any { kept.capture.text() } else { "[no content]".to_owned() };
    if result.is_error == Some(true) {
        return ToolOutput::error(content);
    }
    ToolOutput::ok(content)
}

/// Collects parts, one per line, within the size limit for the output of a command.
#[derive(Default)]
struct Kept {
    capture: Capture,
    any: bool,
}

impl Kept {
    fn part(&mut self, text: &str) {
        if std::mem::replace(&mut self.any, true) {
            self.capture.take(b"\n");
        }
        self.capture.take(text.as_bytes());
    }

    /// Adds a placeholder for content that exists only as base64.
    fn named(&mut self, what: &str, kind: &str, base64: usize) {
        self.part(&format!("[{what}: {kind}, {} bytes, not shown]", base64 / 4 * 3));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn said(result: Value) -> ToolOutput {
        output(serde_json::from_value(result).unwrap())
    }

    #[test]
    fn content_kinds_become_text_or_placeholder() {
        let all = json!({"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "QUJD", "mimeType": "image/png"},
            {"type": "audio", "data": "QUJDREVG", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///b", "blob": "QUJD"}},
            {"type": "resource_link", "uri": "file:///c", "name": "see"},
        ], "structuredContent": {"not": "said twice"}});
        let lines = "one\n[image: image/png, 3 bytes, not shown]\n\
            [audio: audio/wav, 6 bytes, not shown]\n[resource file:///a]\ninside\n\
            [resource file:///b: unknown type, 3 bytes, not shown]\n[resource file:///c: see]";
        assert_eq!(said(all), ToolOutput::ok(lines));
        let structured = json!({"content": [], "structuredContent": {"a": 1}});
        assert_eq!(said(structured), ToolOutput::ok(r#"{"a":1}"#));
        assert_eq!(said(json!({"content": []})), ToolOutput::ok("[no content]"));
        let failed = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
        assert_eq!(said(failed), ToolOutput::error("no"));
    }

    #[test]
    fn long_answer_is_cut_in_middle() {
        let long = "x".repeat(1_000_000);
        let output = said(json!({"content": [{"type": "text", "text": long}]}));
        assert!(output.content.len() < 66_000 && output.content.contains("934464 bytes left out"));
    }

    #[test]
    fn other_answer_kind_is_error() {
        for other in [json!({"tools": []}), json!({"some": "thing"})] {
            assert!(said(other.clone()).is_error(), "{other}");
        }
    }
}
