//! The events of a run: as frames, which are bytes of an event stream, and a reader of them.
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

use super::future::Waiting;
use bytes::Bytes;
use endstop::event::EventWriter;
use endstop::journal::{JournalError, RecordedRun};
use endstop::wire::redact::KnownKeys;
use endstop::{AgentEvent, AgentEventKind};
use serde_json::{Value, json};
use std::fmt::Write;

/// The place from which a reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// After the event with this number; 0 is the beginning.
    Number(u64),
    /// After the events so far.
    Now,
}

/// A reader of a run's events.
pub trait EventSource: Send {
    /// Waits for the next event, and returns it as a frame: the bytes of an event stream. `None` after
    /// the last one. Cancel-safe: an event that was not returned is returned by the next call.
    fn next(&mut self) -> Waiting<'_, Option<Bytes>>;

    /// Returns the next event if it is there already, so that it can be sent with the one before it. After
    /// `None`, [`next`](Self::next) waits for further events. The default implementation returns none.
    fn ready(&mut self) -> Option<Bytes> {
        None
    }
}

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
        let mut frames = Vec::with_capacity(1);
        let numbers = &mut self.numbers;
        // Text that was held back comes before the event that completed it, and is a delta.
        self.writer.json(event, &mut |event, json| {
            let numbered = is_numbered(event);
            *numbers += u64::from(numbered);
            let mut text = String::with_capacity(json.len() + 64);
            if numbered {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "id: {numbers}");
            }
            for part in ["event: ", event.kind.name(), "\ndata: ", &json, "\n\n"] {
                text.push_str(part);
            }
            frames.push(Frame { bytes: text.into(), numbered });
        });
        frames
    }
}

/// `true` if the event has a number: a lifecycle event that the journal can tell again.
fn is_numbered(event: &AgentEvent) -> bool {
    event.path().is_empty()
        && !event.kind.is_delta()
        && !matches!(event.kind, AgentEventKind::Warning { .. })
}

/// The numbered events of a run, as its journal tells them, as frames.
#[derive(Clone, Debug, Default)]
pub struct EventFrames {
    pub(crate) frames: Vec<Frame>,
    pub(crate) turns: u32,
    pub(crate) ended: bool,
    cost_usd: Option<f64>,
}

impl EventFrames {
    /// Derives the events of a run from its records, without secrets.
    ///
    /// # Errors
    /// The policy of the run was built in code, so the run cannot be replayed.
    pub fn of(recorded: &RecordedRun, secrets: KnownKeys) -> Result<EventFrames, JournalError> {
        let mut framer = Framer::after(0, secrets);
        let ended = recorded.outcome.is_some();
        let mut all = EventFrames { ended, ..EventFrames::default() };
        for event in recorded.events_again()? {
            match &event.kind {
                AgentEventKind::TurnFinished { .. } => all.turns += 1,
                AgentEventKind::Usage { cost, .. } => {
                    all.cost_usd = cost.map(endstop::NanoUsd::to_usd);
                }
                _ => {}
            }
            all.frames.extend(framer.frames(event));
        }
        Ok(all)
    }

    /// Returns the bytes of the event after this many numbered ones.
    pub fn get(&self, numbers: u64) -> Option<Bytes> {
        let at = usize::try_from(numbers).ok()?;
        self.frames.get(at).map(|frame| frame.bytes.clone())
    }

    /// Returns the number of events.
    pub fn numbers(&self) -> u64 {
        self.frames.len() as u64
    }

    /// Returns the number of complete turns.
    pub fn turns(&self) -> u32 {
        self.turns
    }

    /// Returns the cost so far in US dollars; `None` if no price is known.
    pub fn cost_usd(&self) -> Option<f64> {
        self.cost_usd
    }

    /// `true` if the run has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the requests for approval that are open, as [`Backend::open_requests`] does.
    ///
    /// [`Backend::open_requests`]: super::Backend::open_requests
    pub fn open_requests(&self) -> Vec<Value> {
        open_requests(self.frames.iter())
    }
}

/// Returns the requests for approval that no later event of their call has followed, as events.
pub(crate) fn open_requests<'a>(frames: impl Iterator<Item = &'a Frame>) -> Vec<Value> {
    let mut open: Vec<Value> = Vec::new();
    for frame in frames {
        let Some(event) = frame.event().filter(|event| event.get("path").is_none()) else {
            continue;
        };
        match event["type"].as_str() {
            Some("approval_requested") => {
                // A resumed run asks again under the same id.
                open.retain(|other| other["request_id"] != event["request_id"]);
                open.push(event);
            }
            Some("tool_started" | "tool_finished") => {
                open.retain(|other| other["call_id"] != event["call_id"]);
            }
            // A turn begins when the calls of the one before have been answered.
            Some("turn_started") => open.clear(),
            _ => {}
        }
    }
    let request = |event: Value| {
        json!({
            "request_id": event["request_id"], "tool": event["name"],
            "arguments": event["canonical"],
        })
    };
    open.into_iter().map(request).collect()
}
