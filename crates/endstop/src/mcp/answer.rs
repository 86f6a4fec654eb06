//! Converts a server's answer to text, images and documents for the model.
//!
//! ```text
//! let output = output(ServerResult::CallToolResult(result)); // a tool's output
//! ```

use crate::tool::ToolOutput;
use endstop_core::{Attachment, MediaError};
use endstop_process::Capture;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult};

/// The most bytes of the images and documents of a result, in base64.
const MOST_ATTACHED: usize = 20 << 20;

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

/// Returns the beginning and the end of a result as text, and its images and documents. Other content
/// is replaced by a placeholder.
fn of_result(result: CallToolResult) -> ToolOutput {
    let mut kept = Kept::default();
    for block in result.content {
        match block {
            ContentBlock::Text(text) => kept.part(&text.text),
            ContentBlock::Image(image) => kept.attachment("image", &image.mime_type, &image.data),
            ContentBlock::Audio(audio) => kept.named("audio", &audio.mime_type, audio.data.len()),
            ContentBlock::Resource(resource) => match resource.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => {
                    kept.part(&format!("[resource {uri}]"));
                    kept.part(&text);
                }
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                    let kind = mime_type.as_deref().unwrap_or("unknown type");
                    kept.attachment(&format!("resource {uri}"), kind, &blob);
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
    let failed = result.is_error == Some(true);
    let output = if failed { ToolOutput::error(content) } else { ToolOutput::ok(content) };
    ToolOutput { attachments: kept.attachments, ..output }
}

/// Collects parts, one per line, within the size limit for the output of a command.
#[derive(Default)]
struct Kept {
    capture: Capture,
    any: bool,
    attachments: Vec<Attachment>,
    /// Bytes of the attachments in base64.
    attached: usize,
}

impl Kept {
    fn part(&mut self, text: &str) {
        if std::mem::replace(&mut self.any, true) {
            self.capture.take(b"\n");
        }
        self.capture.take(text.as_bytes());
    }

    /// Adds an image or a document, or a placeholder if it is not one.
    fn attachment(&mut self, what: &str, kind: &str, data: &str) {
        let attached = self.attached.saturating_add(data.len());
        match Attachment::from_base64(data, kind) {
            Ok(_) if attached > MOST_ATTACHED => {
                let most = MOST_ATTACHED / 4 * 3;
                let why = format!("the images of a result may have {most} bytes");
                self.not_shown(what, kind, data.len(), &why);
            }
            Ok(mut attachment) => {
                if let (Attachment::Document(document), Some(uri)) =
                    (&mut attachment, what.strip_prefix("resource "))
                {
                    document.name = uri.rsplit('/').next().map(str::to_owned);
                }
                self.attached = attached;
                self.part(&format!("[{attachment}]"));
                self.attachments.push(attachment);
            }
            Err(MediaError::UnknownType(_)) => self.named(what, kind, data.len()),
            Err(problem) => self.not_shown(what, kind, data.len(), &problem.to_string()),
        }
    }

    fn not_shown(&mut self, what: &str, kind: &str, base64: usize, why: &str) {
        self.part(&format!("[{what}: {kind}, {} bytes, not shown: {why}]", base64 / 4 * 3));
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
        let lines = "one\n[image: image/png, 3 bytes, not shown: invalid image: the data is not image/png]\n\
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
    fn images_and_documents_are_attached() {
        let (gif, pdf) = ("R0lGODlhgALgAQ==", "JVBERi0xLjQK");
        let output = said(json!({"content": [
            {"type": "image", "data": gif, "mimeType": "image/gif"},
            {"type": "text", "text": "after"},
            {"type": "resource", "resource":
                {"uri": "file:///x/a.pdf", "blob": pdf, "mimeType": "application/pdf"}},
            {"type": "image", "data": "no base64!", "mimeType": "image/gif"},
        ]}));
        let lines = "[image: image/gif, 640x480 pixels, 10 bytes]\nafter\n\
            [document: a.pdf, application/pdf, 9 bytes]\n\
            [image: image/gif, 6 bytes, not shown: invalid image or document: the data is not base64]";
        assert_eq!(output.content, lines);
        let [Attachment::Image(image), Attachment::Document(document)] = &output.attachments[..]
        else {
            panic!("{output:?}")
        };
        assert_eq!((image.size(), document.name.as_deref()), (Some((640, 480)), Some("a.pdf")));
        // The images of a result are bounded together.
        let large = format!("R0lGODlhgALgAQAA{}", "A".repeat(12 << 20));
        let twice = json!({"type": "image", "data": large, "mimeType": "image/gif"});
        let output = said(json!({"content": [twice, twice]}));
        assert_eq!(output.attachments.len(), 1);
        assert!(output.content.contains("may have 15728640 bytes"), "{}", output.content);
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
