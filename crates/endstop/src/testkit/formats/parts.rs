//! Parts that several wire formats encode alike.
//!
//! ```text
//! halves("hello") // ["he", "llo"]
//! ```

use crate::testkit::Turn;
use endstop_wire::stream::eventstream::frame;
use serde_json::Value;

/// Returns a binary frame of Amazon's event streams.
pub(super) fn message(event: &str, data: &Value) -> Vec<u8> {
    let headers =
        [(":event-type", event), (":content-type", "application/json"), (":message-type", "event")];
    frame(&headers, data.to_string().as_bytes())
}

/// Splits a string in two, so that a decoder has to join it.
pub(super) fn halves(text: &str) -> [&str; 2] {
    // Moves to a character boundary, because JSON strings cannot hold half a character.
    let at = (0..=text.len() / 2).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (first, second) = text.split_at(at);
    [first, second]
}

/// Returns the arguments of the call with this id as the script has them, in two chunks.
pub(super) fn raw_arguments<'a>(turn: &'a Turn, id: &Value) -> [&'a str; 2] {
    // The id ends in the number of the call, from 1. The block itself has parsed arguments, which
    // would hide truncated JSON.
    let number = id.as_str().and_then(|id| id.rsplit('_').next()?.parse::<usize>().ok());
    let call = number.and_then(|number| turn.calls.get(number.checked_sub(1)?));
    halves(call.map_or("", |(_, _, arguments)| arguments))
}
