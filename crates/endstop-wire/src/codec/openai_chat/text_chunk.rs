//! Recognises chunks that add text and nothing else, so that equal ones need not be parsed.
//!
//! ```text
//! {"id":"x","choices":[{"delta":{"content":"It"}}]} → "It"
//! {"id":"x","choices":[{"delta":{"content":"It","tool_calls":[…]}}]} → none
//! ```

use super::wire::{Choice, Chunk, Content, Counts};
use crate::bounded::First;

/// Returns the text of a chunk that adds nothing else to a turn which has read the same chunk before,
/// with any text. The values that a chunk sets, such as its service tier, are set again to the same.
pub(super) fn only_text<'a>(chunk: &'a Chunk<'_, Counts<'_>>) -> Option<&'a str> {
    let Chunk {
        choices: Some(First(Some(choice))), usage: None, error: None, x_groq: None, ..
    } = chunk
    else {
        return None;
    };
    let Choice {
        delta: Some(delta), message: None, logprobs: None, usage: None, error: None, ..
    } = choice
    else {
        return None;
    };
    let silent = |content: &Content<'_>| match content {
        Content::None => true,
        Content::Text(text) => text.is_empty(),
        Content::Parts(_) => false,
    };
    let Content::Text(text) = &delta.content else { return None };
    let alone = silent(&delta.reasoning_content)
        && silent(&delta.reasoning)
        && delta.refusal.filled().is_none()
        && delta.reasoning_details.is_none()
        && delta.tool_calls.as_ref().is_none_or(|calls| calls.is_empty())
        && delta.function_call.is_none();
    alone.then_some(text)
}
