//! A reader of the events of a run of this process: from its feed, or from its journal.

use super::blocking::blocking;
use super::feed::{Cursor, Next};
use super::hub::Runs;
use super::live::Live;
use crate::backend::{EventFrames, EventSource, Frame, Waiting};
use bytes::Bytes;
use std::sync::Arc;
use tokio::sync::watch;

/// The place of a reader, and where its events come from.
pub(super) struct FeedReader {
    runs: Runs,
    id: String,
    live: Option<Arc<Live>>,
    changes: Option<watch::Receiver<()>>,
    /// The events from the journal: of a run that has ended, or those that a feed no longer has.
    story: Option<Arc<EventFrames>>,
    cursor: Cursor,
}

impl FeedReader {
    /// Returns a reader of the events after a number.
    pub(super) fn new(
        runs: Runs,
        id: String,
        live: Option<Arc<Live>>,
        story: Option<Arc<EventFrames>>,
        numbers: u64,
    ) -> FeedReader {
        // Before the first frame is read, so that no change after it is missed.
        let changes = live.as_ref().map(|live| live.feed.changes());
        FeedReader { runs, id, live, changes, story, cursor: Cursor { numbers, tail: 0 } }
    }

    async fn next_frame(&mut self) -> Option<Bytes> {
        loop {
            if let Some(frame) = self.told_by_journal() {
                return Some(frame.bytes);
            }
            let Some(live) = &self.live else { return None };
            match live.feed.next(&mut self.cursor) {
                Next::Frame(frame) => {
                    // The copy from the journal can be large, and the feed has all that follows.
                    self.story = None;
                    return Some(frame.bytes);
                }
                Next::Older => {
                    let (runs, id) = (self.runs.clone(), self.id.clone());
                    // Without the journal the gap cannot be filled, so the stream ends, and the
                    // client connects again.
                    let story = blocking(move || runs.story(&id)).await.ok()?.ok()?;
                    if story.numbers() <= self.cursor.numbers {
                        return None;
                    }
                    self.story = Some(story);
                }
                Next::End => return None,
                Next::Wait => self.changes.as_mut()?.changed().await.ok()?,
            }
        }
    }

    /// Returns the next event from the journal, if it was read.
    fn told_by_journal(&mut self) -> Option<Frame> {
        let at = usize::try_from(self.cursor.numbers).unwrap_or(usize::MAX);
        let frame = self.story.as_ref()?.frames.get(at)?.clone();
        self.cursor = Cursor { numbers: self.cursor.numbers + 1, tail: 0 };
        Some(frame)
    }
}

impl EventSource for FeedReader {
    fn next(&mut self) -> Waiting<'_, Option<Bytes>> {
        Box::pin(self.next_frame())
    }

    fn ready(&mut self) -> Option<Bytes> {
        if let Some(frame) = self.told_by_journal() {
            return Some(frame.bytes);
        }
        match self.live.as_ref()?.feed.next(&mut self.cursor) {
            Next::Frame(frame) => {
                self.story = None;
                Some(frame.bytes)
            }
            Next::Older | Next::Wait | Next::End => None,
        }
    }
}
