//! Reads chunks with their usage. Usage of the common shape is read in the same pass as its chunk;
//! any other shape counts as missing, which takes a second pass.
//!
//! ```text
//! "usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}}  →  9, 4
//! "usage":{"prompt_tokens":9,"prompt_tokens_details":"none"}               →  9
//! "usage":"none"                                                           →  no counts
//! ```

use super::wire::{Chunk, Counts, Usage, filled};
use crate::json::lenient;
use serde_json::value::RawValue;

/// Reads a chunk.
///
/// # Errors
/// The text is not a chunk, whatever its usage is.
pub(super) fn chunk(text: &str) -> Result<Chunk<'_, Counts<'_>>, serde_json::Error> {
    match serde_json::from_str::<Chunk<'_, Counts<'_>>>(text) {
        // Empty usage leaves Groq's repetition in force, and only the raw value tells it apart.
        Ok(chunk) if chunk.x_groq.is_none() => return Ok(chunk),
        _ => {}
    }
    let chunk = serde_json::from_str::<Chunk<'_, &RawValue>>(text)?;
    // Unreadable usage is usage without counts: it still takes precedence over a repetition.
    Ok(chunk.with_usage(|raw| filled(Some(raw)).map(|raw| counts(raw).unwrap_or_default())))
}

/// Reads usage, or returns `None` if it has another shape.
pub(super) fn counts(raw: &RawValue) -> Option<Counts<'_>> {
    lenient::<Counts<'_>>(raw).or_else(|| {
        let usage = lenient::<Usage<'_, &RawValue>>(raw)?;
        Some(usage.with_details(|details| filled(Some(details)).and_then(lenient)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pass_reads_what_two_passes_read() {
        for usage in [
            r#"{"prompt_tokens":9,"completion_tokens":"2","prompt_tokens_details":{"cached_tokens":4}}"#,
            r#"{"prompt_tokens":9,"prompt_tokens_details":"none","reasoning_tokens":1.5}"#,
            r#"{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":1e999}}"#,
            r#"{"prompt_tokens":9,"prompt_tokens_details":[4],"other":{"a":[1]}}"#,
            r#"{"prompt_tokens":9,"prompt_tokens":8}"#,
            r#"{"prompt_tokens":1e999}"#,
            "[7,8]",
            "{}",
            "[]",
            "null",
            "false",
            r#""none""#,
            "5",
        ] {
            let text = format!(r#"{{"id":"x","choices":[],"usage":{usage}}}"#);
            let raw: &RawValue = serde_json::from_str(usage).unwrap();
            let want = filled(Some(raw)).and_then(|raw| {
                let usage = lenient::<Usage<'_, &RawValue>>(raw)?;
                Some(usage.with_details(|details| filled(Some(details)).and_then(lenient)))
            });
            let read = |usage: Option<Counts<'_>>| {
                let usage = usage.unwrap_or_default();
                let cached = usage.prompt_tokens_details.and_then(|details| details.cached.0);
                (usage.prompt_tokens.0, usage.completion_tokens.0, cached, usage.reasoning_tokens.0)
            };
            let one_pass = chunk(&text).unwrap().usage.map(|usage| *usage);
            assert_eq!(read(one_pass), read(want), "{usage}");
        }
    }

    #[test]
    fn unreadable_usage_precedes_its_repetition() {
        let counted = |usage: &str| {
            let text = format!(r#"{{"usage":{usage},"x_groq":{{"usage":{{}}}}}}"#);
            chunk(&text).unwrap().usage.is_some()
        };
        assert!(counted(r#""none""#) && counted("5") && !counted("{}") && !counted("null"));
    }
}
