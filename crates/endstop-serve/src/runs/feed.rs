//! The feed of a live run: its frames, from which any number of readers take at their own speed.
//!
//! A reader holds only its place, so a slow one costs no memory and delays no other. Numbered frames
//! are kept up to a bound; a reader that is further behind takes them from the journal. Unnumbered
//! frames are kept for a moment: a reader that lags skips the rest of a turn's deltas, because the
//! end of the turn contains the whole text.
//!
//! ```text
//! frames:  [1 turn_started] [2 usage] [3 turn_finished] …
//! tails:    └ delta delta delta          (the frames without numbers after frame 1)
//! ```

use crate::backend::{Frame, open_requests};
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Bytes of numbered frames that a live run keeps in memory.
const MOST_KEPT: usize = 4 << 20;

/// Bytes of unnumbered frames that a live run keeps in memory.
const MOST_TAIL: usize = 256 << 10;

/// The place of a reader: how many numbered frames it has, and how many of the unnumbered ones
/// after them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cursor {
    pub(crate) numbers: u64,
    pub(crate) tail: usize,
}

/// The answer to a reader.
#[derive(Debug)]
pub(crate) enum Next {
    /// The next frame; the cursor was moved.
    Frame(Frame),
    /// The next frame is no longer in memory: read it from the journal.
    Older,
    /// There is no further frame yet.
    Wait,
    /// There is no further frame.
    End,
}

#[derive(Debug, Default)]
struct Log {
    /// Number of numbered frames before those in `frames`.
    dropped: u64,
    frames: VecDeque<Frame>,
    bytes: usize,
    tails: VecDeque<Tail>,
    tail_bytes: usize,
    /// `true` until the frames before a restart are there. Without them the place of a reader could
    /// not be found.
    incomplete: bool,
    closed: bool,
}

/// The unnumbered frames after a numbered one.
#[derive(Debug, Default)]
struct Tail {
    after: u64,
    frames: Vec<Frame>,
}

/// The frames of a live run.
#[derive(Debug)]
pub(crate) struct Feed {
    log: Mutex<Log>,
    changed: watch::Sender<()>,
}

impl Default for Feed {
    fn default() -> Feed {
        Feed { log: Mutex::default(), changed: watch::Sender::new(()) }
    }
}

impl Feed {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends frames.
    pub(crate) fn push(&self, frames: impl IntoIterator<Item = Frame>) {
        {
            let mut log = self.log();
            for frame in frames {
                log.push(frame);
            }
        }
        self.changed.send_replace(());
    }

    /// Wakes those who wait for a change, of the frames or of the run's state.
    pub(crate) fn notify(&self) {
        self.changed.send_replace(());
    }

    /// Returns the feed of a run that began before the process was restarted. Readers wait until
    /// [`continue_with`](Self::continue_with) was called.
    pub(crate) fn of_resumed() -> Feed {
        let feed = Feed::default();
        feed.log().incomplete = true;
        feed
    }

    /// Continues with the frames that the journal has and the feed does not: after a restart all,
    /// after a park those of the decision.
    pub(crate) fn continue_with(&self, frames: impl IntoIterator<Item = Frame>) {
        {
            let mut log = self.log();
            log.incomplete = false;
            let known = usize::try_from(log.numbers()).unwrap_or(usize::MAX);
            // Under the same lock, because a reader would otherwise find its place too early.
            for frame in frames.into_iter().filter(|frame| frame.numbered).skip(known) {
                log.push(frame);
            }
        }
        self.changed.send_replace(());
    }

    /// Returns the requests for approval that no later event of their call has followed, as events.
    /// A request that is no longer in memory is missing.
    pub(crate) fn open_requests(&self) -> Vec<Value> {
        open_requests(self.log().frames.iter())
    }

    /// Number of numbered frames so far.
    pub(crate) fn numbers(&self) -> u64 {
        self.log().numbers()
    }

    /// Marks the feed as complete.
    pub(crate) fn close(&self) {
        self.log().closed = true;
        self.changed.send_replace(());
    }

    /// Returns a receiver that notices every change from now on. Take it before [`next`](Self::next),
    /// so that no change between both is missed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the next frame of a reader, and moves its cursor.
    pub(crate) fn next(&self, cursor: &mut Cursor) -> Next {
        self.log().next(cursor)
    }
}

impl Log {
    fn numbers(&self) -> u64 {
        self.dropped + self.frames.len() as u64
    }

    fn push(&mut self, frame: Frame) {
        if frame.numbered {
            self.bytes += frame.bytes.len();
            self.frames.push_back(frame);
            // The newest frame stays, however large it is.
            while self.bytes > MOST_KEPT && self.frames.len() > 1 {
                let gone = self.frames.pop_front();
                self.bytes -= gone.map_or(0, |frame| frame.bytes.len());
                self.dropped += 1;
            }
            return;
        }
        let after = self.numbers();
        if self.tails.back().is_none_or(|tail| tail.after != after) {
            self.tails.push_back(Tail { after, frames: Vec::new() });
        }
        self.tail_bytes += frame.bytes.len();
        while self.tail_bytes > MOST_TAIL && self.tails.len() > 1 {
            let gone = self.tails.pop_front().unwrap_or_default();
            self.tail_bytes -= gone.frames.iter().map(|frame| frame.bytes.len()).sum::<usize>();
        }
        // The end of a long tail is left out and not its beginning, so that the text of a reader is
        // always a prefix of the turn's text.
        if self.tail_bytes > MOST_TAIL {
            self.tail_bytes -= frame.bytes.len();
        } else if let Some(tail) = self.tails.back_mut() {
            tail.frames.push(frame);
        }
    }

    fn next(&self, cursor: &mut Cursor) -> Next {
        if self.incomplete {
            return if self.closed { Next::End } else { Next::Wait };
        }
        // A client may name a number that no frame has.
        cursor.numbers = cursor.numbers.min(self.numbers());
        if cursor.numbers < self.dropped {
            return Next::Older;
        }
        let tail = self.tails.iter().find(|tail| tail.after == cursor.numbers);
        if let Some(frame) = tail.and_then(|tail| tail.frames.get(cursor.tail)) {
            cursor.tail += 1;
            return Next::Frame(frame.clone());
        }
        // Not below the first frame: a reader that is behind it was sent to the journal.
        let at = usize::try_from(cursor.numbers - self.dropped).unwrap_or(usize::MAX);
        match self.frames.get(at) {
            Some(frame) => {
                *cursor = Cursor { numbers: cursor.numbers + 1, tail: 0 };
                Next::Frame(frame.clone())
            }
            None if self.closed => Next::End,
            None => Next::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(text: &str, numbered: bool) -> Frame {
        Frame { bytes: text.to_owned().into(), numbered }
    }

    fn read(feed: &Feed, cursor: &mut Cursor) -> Vec<String> {
        let mut all = Vec::new();
        while let Next::Frame(frame) = feed.next(cursor) {
            all.push(String::from_utf8(frame.bytes.to_vec()).unwrap());
        }
        all
    }

    #[test]
    fn readers_resume_after_any_number() {
        let feed = Feed::default();
        feed.push([frame("1", true), frame("a", false), frame("b", false), frame("2", true)]);
        feed.push([frame("c", false), frame("3", true)]);
        assert_eq!(read(&feed, &mut Cursor::default()), ["1", "a", "b", "2", "c", "3"]);
        let from = |numbers| read(&feed, &mut Cursor { numbers, tail: 0 });
        assert_eq!(from(1), ["a", "b", "2", "c", "3"]);
        assert_eq!(from(2), ["c", "3"]);
        assert!(from(3).is_empty() && from(u64::MAX).is_empty());
        let mut cursor = Cursor::default();
        read(&feed, &mut cursor);
        assert!(matches!(feed.next(&mut cursor), Next::Wait));
        feed.close();
        assert!(matches!(feed.next(&mut cursor), Next::End));
    }

    #[test]
    fn readers_wait_for_earlier_frames() {
        let feed = Feed::of_resumed();
        let mut cursor = Cursor { numbers: 2, tail: 0 };
        assert!(matches!(feed.next(&mut cursor), Next::Wait));
        assert_eq!(cursor.numbers, 2);
        feed.continue_with([
            frame("1", true),
            frame("a", false),
            frame("2", true),
            frame("3", true),
        ]);
        assert_eq!(read(&feed, &mut cursor), ["3"]);
    }

    #[test]
    fn long_runs_keep_bounded_memory() {
        let feed = Feed::default();
        let large = "x".repeat(1 << 20);
        for _ in 0..20 {
            feed.push([frame(&large, true)]);
            feed.push((0..100).map(|_| frame(&large[..10_000], false)));
        }
        let log = feed.log();
        assert!(log.bytes <= MOST_KEPT && log.tail_bytes <= MOST_TAIL, "{}", log.tail_bytes);
        assert_eq!(log.numbers(), 20);
        let held: usize =
            log.tails.iter().flat_map(|tail| &tail.frames).map(|f| f.bytes.len()).sum();
        assert_eq!(held, log.tail_bytes);
        assert!(matches!(log.next(&mut Cursor::default()), Next::Older));
    }
}
