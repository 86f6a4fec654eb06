//! Ends a stream that is cut while the model writes text.
//!
//! A client that receives the closing events keeps the text and ends its turn. Inside a tool call
//! there is no such end: a client would complete the truncated arguments and run the wrong command.

use super::write::Event;
use crate::route::Delivery;
use crate::stream::eventstream::EventStreamDecoder;
use crate::stream::sse::{Item, SseDecoder};
use serde_json::Value;

/// The longest line of a stream of lines, in bytes.
const LONGEST_LINE: usize = 16 << 20;

/// The end of a stream at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// These bytes end the stream.
    Now(Vec<u8>),
    /// The stream is inside an event, in reasoning, or has not begun. Try again after more bytes, or
    /// abort the connection.
    Later,
    /// The turn has a tool call or is over, or the format has no clean end: abort the connection.
    Never,
}

/// Follows a stream that goes to a client, to end it cleanly.
pub struct Tail {
    framing: Framing,
    watch: Box<dyn Watch>,
    frame: fn(&Event) -> Vec<u8>,
}

enum Framing {
    Events {
        decoder: SseDecoder,
        last: [u8; 4],
    },
    Lines(Vec<u8>),
    Frames(EventStreamDecoder),
    /// The stream cannot be followed.
    Unknown,
}

/// Follows the events of one format, and writes the closing ones.
pub(crate) trait Watch: Send {
    /// Takes an event.
    fn event(&mut self, name: &str, data: &Value);
    /// Takes data that is not JSON.
    fn other(&mut self, _data: &str) {}
    /// Returns the events that end the stream between two events, with this text before them unless it is empty.
    ///
    /// # Errors
    /// The stream cannot be ended here.
    fn end(&self, note: &str) -> Result<Vec<Event>, NoEnd>;
}

/// The reason why a stream has no clean end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoEnd {
    /// There may be one after more events.
    Yet,
    /// There will be none.
    Ever,
}

/// A stream that cannot be ended.
pub(crate) struct Endless;

impl Watch for Endless {
    fn event(&mut self, _name: &str, _data: &Value) {}

    fn end(&self, _note: &str) -> Result<Vec<Event>, NoEnd> {
        Err(NoEnd::Ever)
    }
}

impl Tail {
    /// Starts at the beginning of a response. `frame` returns the bytes of an event.
    pub(crate) fn of(
        watch: Box<dyn Watch>,
        frame: fn(&Event) -> Vec<u8>,
        delivery: Delivery,
    ) -> Tail {
        let framing = match delivery {
            Delivery::Events => Framing::Events { decoder: SseDecoder::new(), last: [0; 4] },
            Delivery::Lines => Framing::Lines(Vec::new()),
            Delivery::Frames => Framing::Frames(EventStreamDecoder::new()),
            Delivery::Whole | Delivery::Array => Framing::Unknown,
        };
        Tail { framing, watch, frame }
    }

    /// Takes the next bytes that the client receives, in plain text.
    pub fn push(&mut self, chunk: &[u8]) {
        let watch = &mut self.watch;
        let read = match &mut self.framing {
            Framing::Unknown => true,
            Framing::Events { decoder, last } => {
                // The longest separator of events has four bytes.
                for byte in &chunk[chunk.len().saturating_sub(4)..] {
                    last.rotate_left(1);
                    last[3] = *byte;
                }
                let mut take = |item: Item<'_>| {
                    if let Item::Event { name, data, .. } = item {
                        give(watch.as_mut(), name, data);
                    }
                };
                decoder.push(chunk, &mut take).is_ok()
            }
            Framing::Lines(held) => {
                let mut rest = chunk;
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    held.extend_from_slice(&rest[..end]);
                    give(watch.as_mut(), "", String::from_utf8_lossy(held).trim());
                    held.clear();
                    rest = &rest[end + 1..];
                }
                held.extend_from_slice(rest);
                held.len() <= LONGEST_LINE
            }
            Framing::Frames(decoder) => {
                let read = decoder.push(chunk, &mut |message| {
                    let name = message.text(":event-type").unwrap_or_default();
                    give(watch.as_mut(), name, &String::from_utf8_lossy(message.payload));
                });
                read.is_ok()
            }
        };
        // A stream that cannot be read has no known state, so it is never ended.
        if !read {
            self.framing = Framing::Unknown;
        }
    }

    /// Returns the bytes that end the stream, with a note after the model's text. An empty note adds
    /// nothing.
    pub fn end(&self, note: &str) -> Ending {
        let between = match &self.framing {
            Framing::Unknown => return Ending::Never,
            Framing::Events { last, .. } => {
                *last == [0; 4]
                    || last.ends_with(b"\n\n")
                    || last.ends_with(b"\r\r")
                    || last == b"\r\n\r\n"
            }
            Framing::Lines(held) => held.is_empty(),
            Framing::Frames(decoder) => decoder.is_between(),
        };
        match self.watch.end(note) {
            // Closing events inside another event would be garbage.
            Ok(_) if !between => Ending::Later,
            Ok(events) => Ending::Now(events.iter().flat_map(self.frame).collect()),
            Err(NoEnd::Yet) => Ending::Later,
            Err(NoEnd::Ever) => Ending::Never,
        }
    }
}

fn give(watch: &mut dyn Watch, name: &str, data: &str) {
    match serde_json::from_str(data) {
        Ok(value) => watch.event(name, &value),
        Err(_) => watch.other(data),
    }
}

/// Position in a turn.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Nothing arrived.
    #[default]
    Before,
    /// The model writes text, or is about to.
    Text,
    /// A tool call arrived, or the turn is over.
    Closed,
}

impl Progress {
    /// Advances, unless the turn is closed.
    pub(crate) fn advance(&mut self, next: Progress) {
        if *self != Progress::Closed {
            *self = next;
        }
    }

    /// Returns nothing if the text can be ended after this event.
    ///
    /// # Errors
    /// It cannot.
    pub(crate) fn can_end(self) -> Result<(), NoEnd> {
        match self {
            Progress::Closed => Err(NoEnd::Ever),
            Progress::Before => Err(NoEnd::Yet),
            Progress::Text => Ok(()),
        }
    }
}

/// The position in an answer that consists of blocks, for the formats that number them.
#[derive(Default)]
pub(crate) struct Blocks {
    progress: Progress,
    /// The open block, and `true` if it is text.
    open: Option<(u64, bool)>,
    /// Index of the next block.
    next: u64,
}

/// The place at which an answer can be ended.
pub(crate) enum Place {
    /// Inside the text block with this index.
    Inside(u64),
    /// After the last block; another one would have this index.
    After(u64),
}

impl Blocks {
    /// Begins the answer.
    pub(crate) fn begin(&mut self) {
        self.progress.advance(Progress::Text);
    }

    /// Opens a block, or reports that it is still open. Without an index it is the next one.
    pub(crate) fn open(&mut self, index: Option<u64>, is_text: bool) {
        self.open = Some((index.unwrap_or(self.next), is_text));
    }

    /// Ends a block.
    pub(crate) fn end(&mut self, index: Option<u64>) {
        self.open = None;
        self.next = index.unwrap_or(self.next).saturating_add(1);
    }

    /// Records a tool call, an error or the end of the turn, after which the answer has no clean end.
    pub(crate) fn close(&mut self) {
        self.progress = Progress::Closed;
    }

    /// Returns the place for the closing events.
    ///
    /// # Errors
    /// There is no such place, or not yet.
    pub(crate) fn place(&self) -> Result<Place, NoEnd> {
        self.progress.can_end()?;
        match self.open {
            // Reasoning must be signed at its end, which only the provider can do.
            Some((_, false)) => Err(NoEnd::Yet),
            Some((index, true)) => Ok(Place::Inside(index)),
            None => Ok(Place::After(self.next)),
        }
    }
}
