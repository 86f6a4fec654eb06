//! Rewrites a message for a model that does not take all of its images and documents.
//!
//! ```text
//! tool result with an image   ─►  tool result, and the image as a part after all results
//! image for a blind model     ─►  [image: image/png, 64x64 pixels, 120 bytes; not shown: the model reads only text]
//! ```

use super::MediaSupport;
use endstop_core::{Attachment, Message, Part, ToolResult};
use std::borrow::Cow;

impl MediaSupport {
    /// Returns the message in the form that the encoder of the format writes.
    pub(crate) fn lower<'a>(&self, message: &'a Message) -> Cow<'a, Message> {
        if !message.has_attachments() {
            return Cow::Borrowed(message);
        }
        let mut parts = Vec::with_capacity(message.parts.len());
        // Content of results that follows all of them.
        let mut after = Vec::new();
        for part in &message.parts {
            match part {
                Part::ToolResult(result) if !result.attachments.is_empty() => {
                    parts.push(Part::ToolResult(self.lower_result(result, &mut after)));
                }
                part => parts.push(match part.attachment() {
                    Some(content) => self.lower_part(content),
                    None => part.clone(),
                }),
            }
        }
        parts.append(&mut after);
        let Message { id, role, pinned, .. } = *message;
        Cow::Owned(Message { id, role, parts, pinned })
    }

    fn lower_part(&self, content: Attachment) -> Part {
        match self.check(&content) {
            Ok(()) => content.into_part(),
            Err(why) => Part::Text { text: not_shown(&content, &why.to_string()) },
        }
    }

    fn lower_result(&self, result: &ToolResult, after: &mut Vec<Part>) -> ToolResult {
        let mut text = result.content.clone();
        let mut attachments = Vec::new();
        for content in &result.attachments {
            match self.check(content) {
                Ok(()) if self.in_results => attachments.push(content.clone()),
                Ok(()) => {
                    let of = format!("[{content}, from the result of `{}`]", result.name);
                    after.push(Part::Text { text: of });
                    after.push(content.clone().into_part());
                }
                Err(why) => {
                    // The text of the result usually names the content.
                    let (named, note) =
                        (format!("[{content}]"), not_shown(content, &why.to_string()));
                    if text.contains(&named) {
                        text = text.replacen(&named, &note, 1);
                    } else {
                        if !text.is_empty() {
                            text.push('\n');
                        }
                        text.push_str(&note);
                    }
                }
            }
        }
        ToolResult {
            call_id: result.call_id.clone(),
            name: result.name.clone(),
            content: text,
            attachments,
            ..*result
        }
    }
}

fn not_shown(content: &Attachment, why: &str) -> String {
    format!("[{content}; not shown: {why}]")
}
