//! The size of the next prompt: what the provider has counted, and a bound or estimate for the rest.

use crate::media::ImageTokens;
use crate::message::Message;

/// The known size of the conversation.
#[derive(Debug, Default)]
pub(super) struct PromptSize {
    /// Bound on the messages counted so far, and the number of those messages. A cache:
    /// summing the whole conversation before each call would be quadratic over a run.
    counted: (u64, usize),
    /// Tokens of the last prompt and its answer as the provider counted them, and the number of
    /// messages that they cover.
    pub(super) known: Option<(u64, usize)>,
}

impl PromptSize {
    /// Upper bound on the tokens of the next prompt: the provider's count as far as there is one,
    /// and one token per byte for the rest, because no tokenizer makes more than one token of a
    /// byte. `overhead` is the bound on everything that is not a message.
    pub(super) fn bound(
        &mut self,
        messages: &[Message],
        overhead: u64,
        images: ImageTokens,
    ) -> u64 {
        let bound = |message: &Message| message.token_bound(images);
        if let Some((tokens, covered)) = self.known {
            let rest = messages.get(covered..).unwrap_or_default();
            return tokens.saturating_add(rest.iter().map(bound).sum());
        }
        let (bytes, counted) = &mut self.counted;
        // A shorter conversation than counted means that it was replaced by a compaction.
        if *counted > messages.len() {
            (*bytes, *counted) = (0, 0);
        }
        *bytes += messages[*counted..].iter().map(bound).sum::<u64>();
        *counted = messages.len();
        bytes.saturating_add(overhead)
    }

    /// Estimated tokens of the next prompt: one for every four bytes that the provider has not
    /// counted.
    pub(super) fn estimate(
        &mut self,
        messages: &[Message],
        overhead: u64,
        images: ImageTokens,
    ) -> u64 {
        let bound = self.bound(messages, overhead, images);
        match self.known {
            Some((tokens, _)) => tokens.saturating_add(bound.saturating_sub(tokens) / 4),
            None => bound / 4,
        }
    }
}
