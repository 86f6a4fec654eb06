//! The end of a response whose connection stays open: the times that decide when it is complete.
//!
//! ```
//! use endstop_wire::{Headers, RequestFacts, RestClock, StreamDecoder, dialect};
//! use std::time::Duration;
//! let mut stream = StreamDecoder::new(dialect::OPENAI_CHAT, 200, Headers::new(), RequestFacts::default());
//! let mut rest = RestClock::default();
//! let chunk = b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";
//! stream.push(chunk, &mut |_| {})?;
//! let due = rest.note(Duration::from_secs(1), &mut stream, false);
//! assert_eq!(due, Some(Duration::from_secs(11)), "its usage may follow");
//! # Ok::<(), endstop_core::ModelError>(())
//! ```

use super::stream::StreamDecoder;
use std::time::Duration;

/// The wait for the rest of a response that has its finish value and its usage. Only content extends it, so that a server
/// that keeps the connection open, perhaps with pings, does not cost a complete answer.
const REST_WAIT: Duration = Duration::from_secs(2);
/// The same wait for a response that has no usage yet, or that continued after a finish value.
const USAGE_WAIT: Duration = Duration::from_secs(10);
/// The time by which the wait ends before the run's `stall_timeout`, at most.
const STALL_MARGIN: Duration = Duration::from_millis(250);

/// The times that decide when a response is complete although its connection is open, on one clock of the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct RestClock {
    /// The time without content after which the caller gives the response up. The wait for the rest ends before it.
    pub stall_timeout: Option<Duration>,
    last_content: Option<Duration>,
    /// The time of the finish value, or of the last content after it.
    quiet_since: Option<Duration>,
    /// `true` if content followed the finish value. Some servers send one with each event.
    has_resumed: bool,
}

impl RestClock {
    /// Notes that the decoder has read a chunk, with content or without. Returns the time at which the response is
    /// complete if nothing follows; `None` if it is not known to have ended.
    pub fn note(
        &mut self,
        now: Duration,
        decoder: &mut StreamDecoder,
        has_content: bool,
    ) -> Option<Duration> {
        if has_content {
            self.last_content = Some(now);
            self.has_resumed |= self.quiet_since.is_some();
            self.quiet_since = None;
        }
        if !decoder.has_ended_turn() {
            return None;
        }
        let since = *self.quiet_since.get_or_insert(now);
        let is_whole = decoder.has_usage() && !self.has_resumed;
        let due = since.saturating_add(if is_whole { REST_WAIT } else { USAGE_WAIT });
        let stalls = self.last_content.zip(self.stall_timeout).and_then(|(last, timeout)| {
            last.checked_add(timeout.saturating_sub(STALL_MARGIN.min(timeout / 10)))
        });
        Some(stalls.map_or(due, |stalls| due.min(stalls)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::RequestFacts;
    use crate::dialect::OPENAI_CHAT;
    use crate::headers::Headers;

    const TEXT: &str = r#"{"choices":[{"delta":{"content":"Hi"}}]}"#;
    const FINISH: &str = r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#;
    const BOTH: &str = r#"{"choices":[{"delta":{"content":"Hi"},"finish_reason":"stop"}]}"#;
    const UNKNOWN: &str = r#"{"choices":[{"delta":{},"finish_reason":"banana"}]}"#;
    const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}"#;
    const ZEROS: &str = r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#;
    const PING: &str = r#"{"choices":[]}"#;

    /// Returns the time in milliseconds at which the response of these events is complete.
    fn due(events: &[(u64, &str)], stall_timeout: Option<u64>) -> Option<u64> {
        let facts = RequestFacts::default();
        let mut decoder = StreamDecoder::new(OPENAI_CHAT, 200, Headers::new(), facts);
        let stall_timeout = stall_timeout.map(Duration::from_millis);
        let mut rest = RestClock { stall_timeout, ..RestClock::default() };
        let mut due = None;
        for (at, event) in events {
            let mut has_content = false;
            let event = format!("data: {event}\n\n");
            decoder.push(event.as_bytes(), &mut |_| has_content = true).unwrap();
            due = rest.note(Duration::from_millis(*at), &mut decoder, has_content);
        }
        due.map(|due| due.as_millis() as u64)
    }

    #[test]
    fn finish_value_ends_the_wait() {
        for (events, stall_timeout, want) in [
            (&[(0, TEXT)][..], None, None),
            (&[(0, TEXT), (1, USAGE)], None, None),
            (&[(0, TEXT), (100, FINISH)], None, Some(10_100)),
            (&[(0, TEXT), (100, FINISH), (300, USAGE)], None, Some(2_100)),
            (&[(0, TEXT), (100, USAGE), (300, FINISH)], None, Some(2_300)),
            (&[(0, TEXT), (100, FINISH), (300, ZEROS)], None, Some(10_100)),
            (&[(0, TEXT), (100, FINISH), (5_000, USAGE)], None, Some(2_100)),
            (&[(0, TEXT), (100, UNKNOWN), (300, USAGE)], None, None),
            (&[(0, TEXT), (100, FINISH), (300, UNKNOWN)], None, None),
            // Only content extends the wait.
            (&[(0, TEXT), (100, FINISH), (200, USAGE), (1_900, PING)], None, Some(2_100)),
            (&[(0, TEXT), (100, FINISH), (200, FINISH)], None, Some(10_100)),
            (&[(0, TEXT), (100, FINISH), (200, USAGE), (1_900, TEXT)], None, Some(11_900)),
            // A finish value with each event.
            (&[(0, USAGE), (100, BOTH)], None, Some(2_100)),
            (&[(0, USAGE), (100, BOTH), (200, BOTH)], None, Some(10_200)),
            // The run must not find a stall first.
            (&[(0, TEXT), (100, FINISH)], Some(60_000), Some(10_100)),
            (&[(0, TEXT), (100, FINISH)], Some(5_000), Some(4_750)),
            (&[(0, TEXT), (100, FINISH), (200, USAGE)], Some(1_000), Some(900)),
            (&[(0, FINISH)], Some(1_000), Some(10_000)),
        ] {
            assert_eq!(due(events, stall_timeout), want, "{events:?} {stall_timeout:?}");
        }
    }
}
