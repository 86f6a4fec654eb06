//! The blocks of an answer, for the formats that number them.

use super::watch::{Ending, Progress};

/// The position in an answer that consists of blocks.
#[derive(Default)]
pub(super) struct Blocks {
    progress: Progress,
    /// The open block, and `true` if it is text.
    open: Option<(u64, bool)>,
    /// Index of the next block.
    next: u64,
}

/// The place at which an answer can be ended.
pub(super) enum Place {
    /// Inside the text block with this index.
    Inside(u64),
    /// After the last block; another one would have this index.
    After(u64),
}

impl Blocks {
    /// Begins the answer.
    pub(super) fn begin(&mut self) {
        self.progress.go(Progress::Text);
    }

    /// Opens a block, or reports that it is still open. Without an index it is the next one.
    pub(super) fn open(&mut self, index: Option<u64>, is_text: bool) {
        self.open = Some((index.unwrap_or(self.next), is_text));
    }

    /// Ends a block.
    pub(super) fn end(&mut self, index: Option<u64>) {
        self.open = None;
        self.next = index.unwrap_or(self.next).saturating_add(1);
    }

    /// Records a tool call, an error or the end of the turn, after which the answer has no clean end.
    pub(super) fn close(&mut self) {
        self.progress = Progress::Closed;
    }

    /// Returns the place for the closing events.
    ///
    /// # Errors
    /// Returns the ending if there is no such place, or not yet.
    pub(super) fn place(&self) -> Result<Place, Ending> {
        match (self.progress, self.open) {
            (Progress::Closed, _) => Err(Ending::Never),
            // Reasoning must be signed at its end, which only the provider can do.
            (Progress::Before, _) | (_, Some((_, false))) => Err(Ending::Later),
            (_, Some((index, true))) => Ok(Place::Inside(index)),
            (_, None) => Ok(Place::After(self.next)),
        }
    }
}
