//! The parts of a request's body that the encoders of the formats share.

use super::history_marks::HistoryMarks;
use super::{RequestSpec, ToolDefinition};
use crate::json;
use crate::media::MediaSupport;
use endstop_core::{Document, Image, Message, MessageId};
use serde_json::{Map, Value};

/// The encoded beginning of a body. It ends inside the list of messages, so that more can be added.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) out: Vec<u8>,
    /// Offset at which the messages end and the tail of the last call begins.
    end: usize,
    count: usize,
    last: Option<MessageId>,
    epoch: u64,
}

impl Kept {
    /// Removes the tail of the last call and returns the number of messages that are already
    /// encoded, or 0 with an empty buffer if none can be reused.
    pub(crate) fn resume(&mut self, messages: &[Message], epoch: u64) -> usize {
        // The id of the last encoded message is enough to detect another history, because messages
        // do not change within an epoch.
        let same = self.count > 0
            && !self.is_taken()
            && self.epoch == epoch
            && messages.get(self.count - 1).map(|m| m.id) == self.last;
        if same {
            self.out.truncate(self.end);
        } else {
            self.out.clear();
            self.count = 0;
        }
        self.epoch = epoch;
        self.count
    }

    /// `true` if the encoded bytes were taken and not given back.
    pub(crate) fn is_taken(&self) -> bool {
        self.out.len() < self.end
    }

    /// Marks the end of the messages. Everything written afterwards is the tail of this call.
    pub(crate) fn settle(&mut self, messages: &[Message]) {
        self.end = self.out.len();
        self.count = messages.len();
        self.last = messages.last().map(|m| m.id);
    }
}

impl Kept {
    /// Encodes the new messages of a format whose history is a plain list that begins with the
    /// instructions, and closes the list. `write` writes one message.
    pub(crate) fn list(
        &mut self,
        system: &str,
        messages: &[Message],
        epoch: u64,
        media: MediaSupport,
        write: fn(&mut Vec<u8>, &Message),
    ) -> &mut Vec<u8> {
        let from = self.resume(messages, epoch);
        if from == 0 {
            self.out.extend_from_slice(b"{\"messages\":[");
            if !system.is_empty() {
                plain_message(&mut self.out, "system", system);
            }
        }
        for m in &messages[from..] {
            write(&mut self.out, &media.lower(m));
        }
        self.settle(messages);
        self.out.push(b']');
        &mut self.out
    }
}

/// Length that the constant fields of most requests have at most, in bytes.
const USUAL_FIELDS: usize = 1000;

/// Writes the constant fields of a request, except those that `extra` replaces.
pub(crate) struct Fields<'a> {
    pub(crate) out: Vec<u8>,
    extra: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(spec: &'a RequestSpec) -> Fields<'a> {
        Fields::over(&spec.extra)
    }

    /// Creates a writer whose fields yield to those in `extra`.
    pub(crate) fn over(extra: &'a Map<String, Value>) -> Fields<'a> {
        // Shortened at the end.
        Fields { out: Vec::with_capacity(USUAL_FIELDS), extra }
    }

    /// Writes `,"name":` and the value that `write` appends, unless `extra` has that field.
    pub(crate) fn field(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        if !self.extra.contains_key(name) {
            self.out.push(b',');
            json::string(&mut self.out, name);
            self.out.push(b':');
            write(&mut self.out);
        }
    }

    /// Writes the tools, each as an object with its schema under this name.
    pub(crate) fn tools(
        &mut self,
        tools: &[ToolDefinition],
        open: &[u8],
        schema: &str,
        close: &[u8],
    ) {
        self.marked_tools(tools, open, schema, close, b"");
    }

    /// Writes the tools, the last one with a mark before it is closed.
    pub(crate) fn marked_tools(
        &mut self,
        tools: &[ToolDefinition],
        open: &[u8],
        schema: &str,
        close: &[u8],
        mark: &[u8],
    ) {
        if tools.is_empty() {
            return;
        }
        self.field("tools", |out| {
            out.push(b'[');
            for (at, tool) in tools.iter().enumerate() {
                json::comma(out);
                out.extend_from_slice(open);
                tool.fields(out, schema);
                if at + 1 == tools.len() {
                    out.extend_from_slice(mark);
                }
                out.extend_from_slice(close);
            }
            out.push(b']');
        });
    }

    /// Writes the tools as OpenAI's Chat Completions has them, which other formats took over.
    pub(crate) fn function_tools(&mut self, tools: &[ToolDefinition]) {
        self.tools(tools, b"{\"type\":\"function\",\"function\":{", "parameters", b"}}");
    }

    /// Writes the temperature, and the stop strings under this name.
    pub(crate) fn sampling(&mut self, spec: &RequestSpec, stop: &str) {
        if let Some(t) = spec.temperature {
            self.field("temperature", |out| json::value(out, &t));
        }
        if !spec.stop.is_empty() {
            self.field(stop, |out| json::value(out, &spec.stop));
        }
    }

    /// Writes the extra fields and the closing brace. An extra field cannot replace the history.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        // `messages` and `input` are written by the encoder itself; a second copy would be a
        // duplicate key.
        let history = |name: &str| matches!(name, "messages" | "input");
        for (name, v) in self.extra.iter().filter(|(name, _)| !history(name)) {
            self.out.push(b',');
            json::string(&mut self.out, name);
            self.out.push(b':');
            json::value(&mut self.out, v);
        }
        self.out.push(b'}');
        // An encoder holds these bytes for the whole run.
        self.out.shrink_to_fit();
        self.out
    }
}

/// An object inside a request that holds the call's output cap next to constant fields, such as
/// Gemini's `generationConfig` or Ollama's `options`.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    name: &'static str,
    cap_name: &'static str,
    cap: Option<u64>,
    /// `true` if the extra fields already set the cap.
    own_cap: bool,
    /// The fields except the cap, each after a comma, and the closing brace.
    rest: Vec<u8>,
}

impl Settings {
    /// Removes the object with this name from the extra fields and returns it.
    pub(crate) fn own(extra: &mut Map<String, Value>, name: &str) -> Map<String, Value> {
        match extra.remove(name) {
            Some(Value::Object(fields)) => fields,
            // A value that is not an object cannot be merged, so it is dropped in favour of our
            // fields.
            _ => Map::new(),
        }
    }

    /// Creates the object. `cap` applies to calls that do not set their own.
    pub(crate) fn new(
        name: &'static str,
        cap_name: &'static str,
        cap: Option<u64>,
        fields: Fields<'_>,
    ) -> Settings {
        let own_cap = fields.extra.contains_key(cap_name);
        Settings { name, cap_name, cap, own_cap, rest: fields.finish() }
    }

    /// Writes the object, unless it would be empty.
    pub(crate) fn write(&self, out: &mut Vec<u8>, output_cap: Option<u64>) {
        let cap = output_cap.or(self.cap).filter(|_| !self.own_cap);
        if cap.is_none() && self.rest == b"}" {
            return;
        }
        json::key(out, self.name);
        out.push(b'{');
        let rest = match cap {
            Some(cap) => {
                json::key(out, self.cap_name);
                out.extend_from_slice(cap.to_string().as_bytes());
                &self.rest
            }
            // Without the cap the first constant field must not start with its comma.
            None => self.rest.strip_prefix(b",").unwrap_or(&self.rest),
        };
        out.extend_from_slice(rest);
    }
}

/// The encoded messages of a format in which a message is a list of blocks. Adjacent messages of
/// one role become one message, because these APIs require the roles to alternate. System messages
/// at the start of the history are collected, because they go into a field of their own.
#[derive(Clone, Debug)]
pub(crate) struct BlockHistory {
    pub(crate) kept: Kept,
    /// System messages at the start of the history.
    pub(crate) preamble: String,
    pub(crate) marks: HistoryMarks,
    /// Role of the message that is still open at the end of the encoded bytes.
    open: Option<&'static str>,
    /// Beginning of the body, up to the first message.
    head: &'static str,
    /// Field of a message that holds its blocks.
    blocks: &'static str,
}

impl BlockHistory {
    pub(crate) fn new(head: &'static str, blocks: &'static str) -> BlockHistory {
        BlockHistory {
            kept: Kept::default(),
            preamble: String::new(),
            marks: HistoryMarks::default(),
            open: None,
            head,
            blocks,
        }
    }

    /// Returns the number of messages that are already encoded.
    pub(crate) fn resume(&mut self, messages: &[Message], epoch: u64) -> usize {
        // Marks that were inserted for the last call shift the offsets of everything after them.
        if self.kept.is_taken() {
            self.marks.clear();
        } else {
            self.marks.remove(&mut self.kept.out);
        }
        let from = self.kept.resume(messages, epoch);
        if from == 0 {
            self.kept.out.extend_from_slice(self.head.as_bytes());
            self.open = None;
            self.marks.clear();
            self.preamble.clear();
        }
        from
    }

    /// `true` before the first block, where a system message belongs to the preamble.
    pub(crate) fn is_at_start(&self) -> bool {
        self.open.is_none()
    }

    /// Adds a system message to the preamble.
    pub(crate) fn instruct(&mut self, text: &str) {
        if !self.preamble.is_empty() {
            self.preamble.push_str("\n\n");
        }
        self.preamble.push_str(text);
    }

    /// Begins a block in a message of this role, which is the open message if that has the role.
    pub(crate) fn block(&mut self, role: &'static str) -> &mut Vec<u8> {
        let out = &mut self.kept.out;
        if self.open == Some(role) {
            out.push(b',');
            return out;
        }
        if self.open.is_some() {
            out.extend_from_slice(b"]}");
        }
        self.open = Some(role);
        open_message(out, role);
        json::key(out, self.blocks);
        out.push(b'[');
        out
    }

    /// Ends a block of the user that can carry a cache mark.
    pub(crate) fn markable(&mut self, role: &str) {
        if role == "user" {
            self.marks.block(self.kept.out.len());
        }
    }

    /// Closes the list of messages. Everything written afterwards belongs to this call only, and
    /// `resume` removes it.
    pub(crate) fn close(&mut self, messages: &[Message]) {
        self.kept.settle(messages);
        let out = &mut self.kept.out;
        if self.open.is_some() {
            out.extend_from_slice(b"]}");
        }
        out.push(b']');
    }
}

/// Begins a message of this role.
pub(crate) fn open_message(out: &mut Vec<u8>, role: &str) {
    json::comma(out);
    out.extend_from_slice(b"{\"role\":\"");
    out.extend_from_slice(role.as_bytes());
    out.push(b'"');
}

/// Writes a message whose content is a string.
pub(crate) fn plain_message(out: &mut Vec<u8>, role: &str, content: &str) {
    open_message(out, role);
    json::key(out, "content");
    json::string(out, content);
    out.push(b'}');
}

/// Writes the instructions and the preamble as the inside of one JSON string.
pub(crate) fn instructions(out: &mut Vec<u8>, system: &str, preamble: &str) {
    json::escaped(out, system);
    if !system.is_empty() && !preamble.is_empty() {
        out.extend_from_slice(b"\\n\\n");
    }
    json::escaped(out, preamble);
}

/// Writes the data URL of a document as a JSON string.
pub(crate) fn document_url(out: &mut Vec<u8>, document: &Document) {
    out.extend_from_slice(b"\"data:");
    json::escaped(out, &document.media_type);
    out.extend_from_slice(b";base64,");
    json::escaped(out, &document.data);
    out.push(b'"');
}

/// Returns the file name of a document, which some APIs require.
pub(crate) fn document_name(document: &Document) -> &str {
    document.name.as_deref().filter(|name| !name.is_empty()).unwrap_or("document.pdf")
}

/// Writes the URL of an image as a JSON string. Image data becomes a data URL.
pub(crate) fn image_url(out: &mut Vec<u8>, image: &Image) {
    out.push(b'"');
    match image {
        Image::Url(url) => json::escaped(out, url),
        Image::Base64 { media_type, data } => {
            out.extend_from_slice(b"data:");
            json::escaped(out, media_type);
            out.extend_from_slice(b";base64,");
            json::escaped(out, data);
        }
    }
    out.push(b'"');
}
