//! Images and documents in messages, and in the results of functions.
//!
//! ```json
//! {"type":"function_call_output","call_id":"c1","output":[
//!   {"type":"input_text","text":"…"},{"type":"input_image","detail":"auto","image_url":"data:…"}]}
//! ```

use crate::codec::body::{document_name, document_url, image_url};
use crate::json;
use endstop_core::{Attachment, Document, Image, ToolResult};

pub(super) fn input_image(out: &mut Vec<u8>, image: &Image) {
    out.extend_from_slice(b"{\"type\":\"input_image\",\"detail\":\"auto\",\"image_url\":");
    image_url(out, image);
    out.push(b'}');
}

pub(super) fn input_file(out: &mut Vec<u8>, document: &Document) {
    out.extend_from_slice(b"{\"type\":\"input_file\",\"filename\":");
    json::string(out, document_name(document));
    json::key(out, "file_data");
    document_url(out, document);
    out.push(b'}');
}

/// Writes the output of a function as a list: its text, its images and its documents.
pub(super) fn output_parts(out: &mut Vec<u8>, result: &ToolResult) {
    out.push(b'[');
    if !result.content.is_empty() {
        input_text(out, &result.content);
    }
    for content in &result.attachments {
        json::comma(out);
        match content {
            Attachment::Image(image) => input_image(out, image),
            Attachment::Document(document) => input_file(out, document),
            // `lower` has replaced what the format does not take.
            _ => input_text(out, "[not shown]"),
        }
    }
    out.push(b']');
}

fn input_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b"{\"type\":\"input_text\",\"text\":");
    json::string(out, text);
    out.push(b'}');
}
