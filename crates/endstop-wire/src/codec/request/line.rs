//! A line of text at the end of a request's last message of the user or result of a tool. Everything before it stays byte for
//! byte, so that the provider's cache still recognises the prompt.
//!
//! ```
//! use endstop_wire::WireFormat;
//! use endstop_wire::codec::request::Fields;
//! use endstop_wire::codec::request_reader;
//! let body = r#"{"messages":[{"role":"user","content":"Hello"}],"model":"m"}"#;
//! let fields = Fields::of(body)?;
//! let reader = request_reader(WireFormat::Anthropic, &fields).unwrap();
//! let head = reader.head(&fields);
//! let changed = reader.append_line(body, &head.messages, "Finish now.").unwrap();
//! assert_eq!(changed, br#"{"messages":[{"role":"user","content":"Hello\n\nFinish now."}],"model":"m"}"#);
//! # Ok::<(), serde_json::Error>(())
//! ```

use super::cap::{apply, span};
use super::fields::Fields;
use super::read::RequestReader;
use crate::json;
use endstop_core::Role;

/// Names of the members that hold the content of a message or the result of a tool.
const CONTENT: [&str; 3] = ["content", "parts", "output"];

impl RequestReader {
    /// Adds a line to a body, and returns the new one. `messages` are those of the body. `None` if no message is of the user
    /// or has a result, or the content of the last such message has no place for text.
    pub fn append_line(&self, body: &str, messages: &[&str], line: &str) -> Option<Vec<u8>> {
        let is_input = |text: &&&str| matches!(self.message(text).role, Role::User | Role::Tool);
        let message = messages.iter().rev().find(is_input)?;
        // A prompt can be a plain string.
        let content = if message.starts_with('"') {
            message
        } else {
            Fields::of(message).ok()?.all(&CONTENT).last()?
        };
        let place = span(body, content);
        let mut text = Vec::new();
        if content.len() > 1 && content.starts_with('"') {
            json::escaped(&mut text, &format!("\n\n{line}"));
        } else {
            let inside = content.strip_prefix('[')?.strip_suffix(']')?;
            if !inside.trim().is_empty() {
                text.push(b',');
            }
            text.push(b'{');
            if let Some(kind) = self.text_type {
                json::key(&mut text, "type");
                json::string(&mut text, kind);
            }
            json::key(&mut text, "text");
            json::string(&mut text, line);
            text.push(b'}');
        }
        // Before the quote or the bracket that ends the content.
        let at = place.end - 1;
        Some(apply(body.as_bytes(), vec![(at..at, String::from_utf8(text).ok()?)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::request_reader;
    use crate::dialect::WireFormat::{
        self, Anthropic, BedrockConverse, CohereV2, Gemini, Ollama, OpenAiChat, OpenAiResponses,
    };

    fn appended(format: WireFormat, body: &str) -> Option<String> {
        let fields = Fields::of(body).unwrap();
        let reader = request_reader(format, &fields).unwrap();
        let changed = reader.append_line(body, &reader.head(&fields).messages, "\"Now\"")?;
        Some(String::from_utf8(changed).unwrap())
    }

    /// `@` stands for the place of the line.
    #[test]
    fn line_is_after_the_last_input() {
        let string = r#"\n\n\"Now\""#;
        let part = r#"{"type":"text","text":"\"Now\""}"#;
        let plain = r#"{"text":"\"Now\""}"#;
        let input = r#"{"type":"input_text","text":"\"Now\""}"#;
        for (format, body, line) in [
            (
                OpenAiChat,
                r#"{"messages":[{"role":"user","content":"a"},{"role":"tool","tool_call_id":"c","content":"r@"}],"n":1}"#,
                string,
            ),
            (
                OpenAiChat,
                r#"{"messages":[{"role":"user","content":"a@"},{"role":"assistant","content":"b"}]}"#,
                string,
            ),
            (
                OpenAiChat,
                r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},@]}]}"#,
                part,
            ),
            (OpenAiChat, r#"{"messages":[{"content":"@","role":"user"}]}"#, string),
            (
                Anthropic,
                r#"{"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"r"} ,@]}]}"#,
                part,
            ),
            (Anthropic, r#"{"messages":[{"role":"user","content":[@]}]}"#, part),
            (
                BedrockConverse,
                r#"{"messages":[{"role":"user","content":[{"text":"a"},@]}]}"#,
                plain,
            ),
            (Gemini, r#"{"contents":[{"role":"user","parts":[{"text":"a"},@]}]}"#, plain),
            (OpenAiResponses, r#"{"input":"a@"}"#, string),
            (
                OpenAiResponses,
                r#"{"input":[{"type":"function_call_output","call_id":"c","output":"r@"}]}"#,
                string,
            ),
            (
                OpenAiResponses,
                r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"a"},@]}]}"#,
                input,
            ),
            (CohereV2, r#"{"messages":[{"role":"user","content":"a@"}]}"#, string),
            (Ollama, r#"{"messages":[{"role":"user","content":"a@"}]}"#, string),
        ] {
            // The comma before a part is added with it.
            let own = body.replace(",@", "").replace('@', "");
            let expected = body.replace('@', line);
            assert_eq!(appended(format, &own).as_deref(), Some(expected.as_str()), "{format:?}");
        }
    }

    #[test]
    fn unknown_shape_stays_as_it_is() {
        for body in [
            r#"{"messages":[]}"#,
            r#"{"messages":[{"role":"assistant","content":"a"}]}"#,
            r#"{"messages":[{"role":"user","content":null}]}"#,
            r#"{"messages":[{"role":"user","content":{"a":"b"}}]}"#,
            r#"{"messages":[{"role":"user"}]}"#,
            r#"{"messages":"a"}"#,
            r#"{"messages":[5]}"#,
        ] {
            assert_eq!(appended(OpenAiChat, body), None, "{body}");
        }
    }
}
