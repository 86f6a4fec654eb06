//! Writes events as server-sent events or as lines of JSON.
//!
//! ```
//! use endstop::event::{AgentEvent, AgentEventKind, EventWriter, Origin};
//! let mut writer = EventWriter::sse(Default::default());
//! let text = "Hello.\n\ndata: forged".to_owned();
//! let origin = Origin::new("k3v9", [], Some(1));
//! let written = writer.write(AgentEvent::new(origin, AgentEventKind::TextDelta { text }));
//! let expected = "event: text_delta\n\
//!     data: {\"type\":\"text_delta\",\"run_id\":\"k3v9\",\"turn\":1,\"text\":\"Hello.\\n\\ndata: forged\"}\n\n";
//! assert_eq!(String::from_utf8(written).unwrap(), expected);
//! ```

use super::agent_event::AgentEvent;
use super::redaction::Redaction;
use endstop_wire::redact::KnownKeys;

/// Length of the JSON of most events, in bytes.
const USUAL_BYTES: usize = 512;

/// Writes events as server-sent events or as lines of JSON, without secrets.
///
/// One writer writes one stream: it holds text back that could be the beginning of a secret, until
/// the next delta or the end of the turn. [`RunHandle::sse`](crate::RunHandle::sse) and
/// [`RunHandle::json_lines`](crate::RunHandle::json_lines) write a whole run.
#[derive(Debug)]
pub struct EventWriter {
    sse: bool,
    /// `None` if secrets are written.
    redaction: Option<Redaction>,
}

impl EventWriter {
    /// Creates a writer of server-sent events. The name of each is
    /// [`AgentEventKind::name`](crate::event::AgentEventKind::name), its data the
    /// JSON of the event in one line. These secrets and credentials of a known format are redacted.
    pub fn sse(secrets: KnownKeys) -> EventWriter {
        EventWriter { sse: true, redaction: Some(Redaction::new(secrets)) }
    }

    /// Creates a writer of lines of JSON. These secrets and credentials of a known format are
    /// redacted.
    pub fn json_lines(secrets: KnownKeys) -> EventWriter {
        EventWriter { sse: false, redaction: Some(Redaction::new(secrets)) }
    }

    /// Writes events as they are, with any secret in them.
    #[must_use]
    pub fn unredacted(mut self) -> EventWriter {
        self.redaction = None;
        self
    }

    /// Returns the bytes to write for this event. They are empty if the whole text of a delta could
    /// belong to a secret, and more than one event if such a text has ended.
    pub fn write(&mut self, event: AgentEvent) -> Vec<u8> {
        let (sse, mut out) = (self.sse, Vec::new());
        self.json(event, &mut |event, json| put(sse, event, &json, &mut out));
        out
    }

    /// Passes on the events that [`write`](Self::write) would write, each with its JSON in one line, for
    /// programs that frame events themselves.
    pub fn json(&mut self, event: AgentEvent, each: &mut dyn FnMut(&AgentEvent, String)) {
        match &mut self.redaction {
            None => each(&event, json(None, &event)),
            Some(redaction) => {
                let secrets = redaction.secrets.clone();
                redaction.take(event, &mut |event| each(&event, json(Some(&secrets), &event)));
            }
        }
    }

    /// Returns the text that was held back, if the stream ended before
    /// [`AgentEventKind::Finished`](crate::event::AgentEventKind::Finished).
    pub fn finish(&mut self) -> Vec<u8> {
        let (sse, mut out) = (self.sse, Vec::new());
        if let Some(redaction) = &mut self.redaction {
            let secrets = redaction.secrets.clone();
            redaction.finish_all(&mut |event| {
                put(sse, &event, &json(Some(&secrets), &event), &mut out);
            });
        }
        out
    }
}

/// Returns the JSON of an event.
fn json(secrets: Option<&KnownKeys>, event: &AgentEvent) -> String {
    // Most events are a few hundred bytes long. Without room for them, most are copied several times.
    let mut out = Vec::with_capacity(USUAL_BYTES);
    // Events contain no map with keys that JSON does not have, so this cannot fail.
    let _ = serde_json::to_writer(&mut out, event);
    // JSON is UTF-8.
    let json = String::from_utf8(out).unwrap_or_default();
    match secrets {
        Some(secrets) => secrets.out_of_json_text(json),
        None => json,
    }
}

/// Appends an event.
fn put(sse: bool, event: &AgentEvent, json: &str, out: &mut Vec<u8>) {
    if sse {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event.kind.name().as_bytes());
        out.extend_from_slice(b"\ndata: ");
    }
    // JSON escapes the line breaks in strings, so the text of a model cannot end the line.
    out.extend_from_slice(json.as_bytes());
    out.extend_from_slice(if sse { b"\n\n" } else { b"\n" });
}
