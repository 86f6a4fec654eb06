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

use super::deltas::{is_mergeable, merge};
use crate::backend::{Frame, Framer, open_requests};
use endstop::AgentEvent;
use endstop::wire::redact::KnownKeys;
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

/// Bytes of a delta's text from which it is framed although no reader has taken it.
const MOST_HELD: usize = 8 << 10;

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
    /// Frames the events of the part that is being written.
    framer: Option<Framer>,
    /// A delta that no reader has taken, to which the next one of its text is appended: a frame for each
    /// token would cost more than the rest of the run.
    held: Option<AgentEvent>,
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

    /// Begins a part of the run, without these secrets. It ends when the value is dropped.
    pub(crate) fn write(&self, secrets: KnownKeys) -> FeedPart<'_> {
        let mut log = self.log();
        log.framer = Some(Framer::after(log.numbers(), secrets));
        FeedPart(self)
    }

    /// Appends an event of the part. Text that no reader has taken becomes one delta.
    pub(crate) fn push(&self, event: AgentEvent) {
        // Readers know of the delta that grows.
        if !self.log().take(event) {
            self.changed.send_replace(());
        }
    }

    /// Notifies waiters of a change of the frames or of the run's state.
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
        {
            let mut log = self.log();
            log.frame_held();
            log.closed = true;
        }
        self.changed.send_replace(());
    }

    /// Returns a receiver that notices every change from now on. Take it before [`next`](Self::next),
    /// so that no change between both is missed.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Returns the next frame of a reader, and moves its cursor.
    pub(crate) fn next(&self, cursor: &mut Cursor) -> Next {
        let mut log = self.log();
        match log.next(cursor) {
            Next::Wait if log.frame_held() => log.next(cursor),
            next => next,
        }
    }
}

/// A part of the run, whose events are appended.
#[must_use]
pub(crate) struct FeedPart<'a>(&'a Feed);

impl Drop for FeedPart<'_> {
    fn drop(&mut self) {
        let mut log = self.0.log();
        log.frame_held();
        log.framer = None;
    }
}

impl Log {
    /// Appends an event. Returns `true` if it became a part of the delta before it.
    fn take(&mut self, event: AgentEvent) -> bool {
        if let Some(length) = self.held.as_mut().and_then(|held| merge(held, &event)) {
            if length > MOST_HELD {
                self.frame_held();
            }
            return true;
        }
        self.frame_held();
        if is_mergeable(&event) {
            self.held = Some(event);
        } else {
            self.frame(event);
        }
        false
    }

    fn frame(&mut self, event: AgentEvent) {
        let frames = self.framer.as_mut().map(|framer| framer.frames(event));
        frames.into_iter().flatten().for_each(|frame| self.push(frame));
    }

    /// Frames the delta that is held. Returns `false` if there is none.
    fn frame_held(&mut self) -> bool {
        let held = self.held.take();
        let any = held.is_some();
        if let Some(event) = held {
            self.frame(event);
        }
        any
    }

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
    use endstop::AgentEventKind;
    use endstop::event::Origin;
    use proptest::prelude::*;

    impl Feed {
        fn push_frames(&self, frames: impl IntoIterator<Item = Frame>) {
            let mut log = self.log();
            frames.into_iter().for_each(|frame| log.push(frame));
        }
    }

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
        feed.push_frames([
            frame("1", true),
            frame("a", false),
            frame("b", false),
            frame("2", true),
        ]);
        feed.push_frames([frame("c", false), frame("3", true)]);
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
            feed.push_frames([frame(&large, true)]);
            feed.push_frames((0..100).map(|_| frame(&large[..10_000], false)));
        }
        let log = feed.log();
        assert!(log.bytes <= MOST_KEPT && log.tail_bytes <= MOST_TAIL, "{}", log.tail_bytes);
        assert_eq!(log.numbers(), 20);
        let held: usize =
            log.tails.iter().flat_map(|tail| &tail.frames).map(|f| f.bytes.len()).sum();
        assert_eq!(held, log.tail_bytes);
        assert!(matches!(log.next(&mut Cursor::default()), Next::Older));
    }

    /// A delta with a text, of which nothing could begin a secret, or for 9 the begin of a turn, which is numbered.
    fn event(number: u8) -> AgentEvent {
        let origin = Origin::new("r", [], Some(1));
        let kind = match number {
            9 => AgentEventKind::TurnStarted { attempt: 1 },
            _ => AgentEventKind::TextDelta { text: format!("{number} ") },
        };
        AgentEvent::new(origin, kind)
    }

    /// Returns the text of the deltas in frames, with `|` for any other event.
    fn text(frames: &[String]) -> String {
        let event = |frame: &String| frame_event(frame);
        let text = |event: Value| event["text"].as_str().map_or("|".to_owned(), str::to_owned);
        frames.iter().map(|frame| text(event(frame))).collect()
    }

    fn frame_event(frame: &str) -> Value {
        crate::backend::event_of(frame.as_bytes()).unwrap()
    }

    #[test]
    fn untaken_text_is_one_delta() {
        let feed = Feed::default();
        let (mut changes, mut early) = (feed.changes(), Cursor::default());
        let part = feed.write(KnownKeys::default());
        feed.push(event(9));
        feed.push(event(1));
        assert_eq!(read(&feed, &mut early).len(), 2);
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        feed.push(event(2));
        assert!(changes.has_changed().unwrap());
        changes.mark_unchanged();
        feed.push(event(3));
        // The reader knows of the text that grows.
        assert!(!changes.has_changed().unwrap());
        let taken = read(&feed, &mut early);
        assert_eq!((taken.len(), &*text(&taken)), (1, "2 3 "));
        feed.push(event(4));
        drop(part);
        assert_eq!(text(&read(&feed, &mut early)), "4 ");
        assert_eq!(text(&read(&feed, &mut Cursor::default())), "|1 2 3 4 ");
    }

    #[test]
    fn long_text_is_not_held() {
        let feed = Feed::default();
        let _part = feed.write(KnownKeys::default());
        let long = "x".repeat(MOST_HELD);
        for _ in 0..2 {
            let origin = Origin::new("r", [], Some(1));
            let text = long.clone();
            feed.push(AgentEvent::new(origin, AgentEventKind::TextDelta { text }));
        }
        assert!(feed.log().held.is_none());
    }

    proptest! {
        #[test]
        fn readers_get_the_same_text(
            events in proptest::collection::vec((0_u8..10, any::<[bool; 2]>()), 0..60),
        ) {
            let feed = Feed::default();
            let mut readers = [(Cursor::default(), String::new()), (Cursor::default(), String::new())];
            let part = feed.write(KnownKeys::default());
            let mut take = |(cursor, so_far): &mut (Cursor, String)| {
                *so_far += &text(&read(&feed, cursor));
            };
            for (number, reads) in &events {
                feed.push(event(*number));
                readers.iter_mut().zip(reads).filter(|(_, now)| **now).for_each(|(one, _)| take(one));
            }
            drop(part);
            readers.iter_mut().for_each(&mut take);
            let sent: String =
                events.iter().map(|(n, _)| if *n == 9 { "|".to_owned() } else { format!("{n} ") }).collect();
            prop_assert_eq!(&readers[0].1, &sent);
            prop_assert_eq!(&readers[1].1, &sent);
        }
    }
}
