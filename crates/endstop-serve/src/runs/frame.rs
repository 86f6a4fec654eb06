//! Frames: the events of a run as bytes of an event stream.
//!
//! ```text
//! id: 7
//! event: tool_finished
//! data: {"type":"tool_finished", …}
//! ```
//!
//! Lifecycle events of the run itself are numbered from 1. The numbers follow from the records of
//! the journal, so they are the same after a restart. Deltas, warnings and events of nested runs
//! have no number, and a reader that resumes does not get those that it missed.

use bytes::Bytes;
use endstop::AgentEvent;
use endstop::event::EventWriter;
use endstop::journal::{JournalError, SqliteJournal};
use endstop::wire::redact::KnownKeys;
use serde_json::Value;
use std::fmt::Write;

/// An event as bytes of an event stream. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    pub(crate) numbered: bool,
}

impl Frame {
    /// Returns the event of the frame.
    pub(crate) fn event(&self) -> Option<Value> {
        event_of(&self.bytes)
    }
}

/// Returns the event in the bytes of a frame.
pub(crate) fn event_of(frame: &[u8]) -> Option<Value> {
    let mut lines = frame.split(|byte| *byte == b'\n');
    serde_json::from_slice(lines.find_map(|line| line.strip_prefix(b"data: "))?).ok()
}

/// Writes the events of one run as frames, without secrets.
#[derive(Debug)]
pub(crate) struct Framer {
    writer: EventWriter,
    numbers: u64,
}

impl Framer {
    /// Creates a writer whose next numbered event follows that many others.
    pub(crate) fn after(numbers: u64, secrets: KnownKeys) -> Framer {
        Framer { writer: EventWriter::json_lines(secrets), numbers }
    }

    /// Returns the frames of an event. There may be none, because text that could be the beginning
    /// of a secret is held back, and more than one, if such text is complete.
    pub(crate) fn frames(&mut self, event: AgentEvent) -> Vec<Frame> {
        let numbered = is_numbered(&event);
        let written = self.writer.write(event);
        let lines: Vec<&[u8]> =
            written.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
        // The event itself is the last line; text that was held back comes before it.
        let last = lines.len().saturating_sub(1);
        let mut frames = Vec::with_capacity(lines.len());
        for (at, line) in lines.iter().enumerate() {
            // Held-back text comes before the event that completed it.
            let numbered = numbered && at == last;
            self.numbers += u64::from(numbered);
            let mut head = String::new();
            if numbered {
                // Writing to a string cannot fail.
                let _ = writeln!(head, "id: {}", self.numbers);
            }
            let _ = writeln!(head, "event: {}", kind(line));
            let bytes = [head.as_bytes(), b"data: ", line, b"\n\n"].concat();
            frames.push(Frame { bytes: bytes.into(), numbered });
        }
        frames
    }
}

/// `true` if the event has a number: a lifecycle event that the journal can tell again.
fn is_numbered(event: &AgentEvent) -> bool {
    event.path().is_empty() && !event.is_delta() && !matches!(event, AgentEvent::Warning { .. })
}

/// Returns the name of the event in a line of JSON, whose first member is `type`.
fn kind(line: &[u8]) -> &str {
    let rest = line.strip_prefix(b"{\"type\":\"").unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == b'"').unwrap_or(0);
    std::str::from_utf8(&rest[..end]).unwrap_or("message")
}

/// The numbered events of a run, as its journal tells them.
#[derive(Debug, Default)]
pub(crate) struct Story {
    pub(crate) frames: Vec<Frame>,
    /// Number of complete turns.
    pub(crate) turns: u32,
    /// `true` if the run has ended.
    pub(crate) ended: bool,
}

impl Story {
    /// Reads the events of a run from its journal. May block.
    pub(crate) fn read(
        journal: &SqliteJournal,
        id: &str,
        secrets: KnownKeys,
    ) -> Result<Story, JournalError> {
        let recorded = journal.load(id)?;
        let mut framer = Framer::after(0, secrets);
        let mut story = Story { ended: recorded.outcome.is_some(), ..Story::default() };
        for event in recorded.events_again()? {
            story.turns += u32::from(matches!(event, AgentEvent::TurnFinished { .. }));
            story.frames.extend(framer.frames(event));
        }
        Ok(story)
    }
}
