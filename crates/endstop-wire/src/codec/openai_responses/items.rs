//! Output items that the client must answer, as data: the call to run and the type of its result.

use super::wire::{Item, filled};
use crate::codec::request::body::{document_name, document_url, image_url};
use crate::json::{self, Str, lenient};
use endstop_core::{Attachment, Document, Image, ToolResult};
use serde_json::value::RawValue;

/// Type of a result item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Function,
    Custom,
    Computer,
    LocalShell,
    Shell,
    ApplyPatch,
    ToolSearch,
    McpApproval,
}

/// Item types of calls, with the result type that the API requires.
const CALLS: &[(&str, Answer)] = &[
    ("function_call", Answer::Function),
    ("custom_tool_call", Answer::Custom),
    ("computer_call", Answer::Computer),
    ("local_shell_call", Answer::LocalShell),
    ("shell_call", Answer::Shell),
    ("apply_patch_call", Answer::ApplyPatch),
    ("tool_search_call", Answer::ToolSearch),
    ("mcp_approval_request", Answer::McpApproval),
];

/// Returns the result type for an item that a client may have to run, or `None` for any other item.
pub(super) fn answer_of(kind: &str) -> Option<Answer> {
    CALLS.iter().find(|(name, _)| *name == kind).map(|(_, answer)| *answer)
}

/// Returns the id that the result must name.
pub(super) fn call_id<'a>(item: &'a Item<'_>) -> &'a str {
    item.call_id.filled().unwrap_or(item.id.get())
}

/// Returns the tool's name, which is the item's own or derived from its type. An approval request
/// never uses the remote tool's name, because a local tool could have the same name.
pub(super) fn tool_name<'a>(item: &'a Item<'_>, answer: Answer) -> &'a str {
    let kind = item.kind.get();
    match answer {
        Answer::Function | Answer::Custom => item.name.get(),
        Answer::McpApproval => kind,
        _ => kind.strip_suffix("_call").unwrap_or(kind),
    }
}

/// Returns the arguments of the call, as a JSON object if the item has one. Otherwise returns the
/// item itself.
pub(super) fn arguments(item: &Item<'_>, raw: &str, answer: Answer) -> String {
    let text = |raw: &RawValue| {
        let string = lenient::<Str<'_>>(raw).filter(|_| raw.get().starts_with('"'));
        string.map_or_else(|| raw.get().to_owned(), |text| text.get().to_owned())
    };
    let object = |from: Option<&RawValue>| from.map(text).filter(|text| json::is_object(text));
    match answer {
        Answer::Function => return filled(item.arguments).map(text).unwrap_or_default(),
        Answer::Custom => return custom(item.input.get()),
        Answer::ToolSearch => object(item.arguments),
        Answer::ApplyPatch => object(item.operation),
        Answer::Computer | Answer::LocalShell | Answer::Shell => object(item.action),
        Answer::McpApproval => None,
    }
    .unwrap_or_else(|| raw.to_owned())
}

/// Returns the input that the model wrote for a tool, in an item that is not a call for the client; empty if there is
/// none.
pub(super) fn hidden_input<'a>(item: &'a Item<'_>) -> &'a str {
    let objects = [item.arguments, item.action, item.operation].into_iter().find_map(filled);
    let texts = [&item.code, &item.input].into_iter().find_map(|text| text.filled());
    objects.map(RawValue::get).or(texts).unwrap_or_default()
}

/// Text around the input of a custom tool in its object, see [`custom`].
pub(super) const CUSTOM_BEGIN: &str = "{\"input\":\"";
pub(super) const CUSTOM_END: &str = "\"}";

/// Wraps the free text input of a custom tool in an object.
pub(super) fn custom(input: &str) -> String {
    let mut out = b"{\"input\":".to_vec();
    json::string(&mut out, input);
    out.push(b'}');
    String::from_utf8(out).unwrap_or_default()
}

/// The `type` of the item that answers a call.
fn item_type(answer: Answer) -> &'static str {
    match answer {
        Answer::Function => "function_call_output",
        Answer::Custom => "custom_tool_call_output",
        Answer::Computer => "computer_call_output",
        Answer::LocalShell => "local_shell_call_output",
        Answer::Shell => "shell_call_output",
        Answer::ApplyPatch => "apply_patch_call_output",
        Answer::ToolSearch => "tool_search_output",
        Answer::McpApproval => "mcp_approval_response",
    }
}

/// Writes the item that answers a call, with the `caller` that the call named.
pub(super) fn write_answer(
    out: &mut Vec<u8>,
    result: &ToolResult,
    answer: Answer,
    caller: Option<&str>,
) {
    let failed = result.status.is_error();
    out.extend_from_slice(b"{\"type\":");
    json::string(out, item_type(answer));
    json::key(out, if answer == Answer::McpApproval { "approval_request_id" } else { "call_id" });
    json::string(out, &result.call_id);
    if let Some(caller) = caller {
        json::key(out, "caller");
        out.extend_from_slice(caller.as_bytes());
    }
    match answer {
        Answer::Function | Answer::Custom if !result.attachments.is_empty() => {
            json::key(out, "output");
            output_parts(out, result);
        }
        Answer::Function | Answer::Custom | Answer::LocalShell => {
            json::key(out, "output");
            json::string(out, &result.content);
        }
        Answer::ApplyPatch => {
            json::key(out, "status");
            json::string(out, if failed { "failed" } else { "completed" });
            json::key(out, "output");
            json::string(out, &result.content);
        }
        Answer::Shell => {
            out.extend_from_slice(b",\"output\":[{\"stdout\":");
            json::string(out, &result.content);
            out.extend_from_slice(
                b",\"stderr\":\"\",\"outcome\":{\"type\":\"exit\",\"exit_code\":",
            );
            out.push(if failed { b'1' } else { b'0' });
            out.extend_from_slice(b"}}]");
        }
        Answer::Computer => {
            out.extend_from_slice(b",\"output\":{\"type\":\"computer_screenshot\",\"image_url\":");
            let screenshot = result.attachments.iter().find_map(|content| match content {
                Attachment::Image(image) => Some(image),
                _ => None,
            });
            match screenshot {
                Some(image) => image_url(out, image),
                None => json::string(out, &result.content),
            }
            out.push(b'}');
        }
        Answer::ToolSearch => {
            // The API requires a list of tools, so any other result means that none were found.
            out.extend_from_slice(b",\"execution\":\"client\",\"status\":\"completed\",\"tools\":");
            match serde_json::from_str::<Vec<&RawValue>>(&result.content) {
                Ok(_) => out.extend_from_slice(result.content.trim().as_bytes()),
                Err(_) => out.extend_from_slice(b"[]"),
            }
        }
        Answer::McpApproval => {
            // Anything but an explicit approval is a rejection, because the remote tool runs right
            // after it.
            let approve = !failed && result.content.trim() == "approve";
            json::key(out, "approve");
            json::value(out, &approve);
            json::key(out, "reason");
            json::string(out, &result.content);
        }
    }
    out.push(b'}');
}

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
fn output_parts(out: &mut Vec<u8>, result: &ToolResult) {
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
