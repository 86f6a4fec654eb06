//! The size of the next prompt: what the provider has counted, and a bound or estimate for the rest.

use crate::media::ImageTokens;
use crate::message::Message;
use crate::usage::Usage;

/// The known size of the conversation.
#[derive(Debug, Default)]
pub(crate) struct PromptSize {
    /// Bound on the messages counted so far, and the number of those messages. A cache:
    /// summing the whole conversation before each call would be quadratic over a run.
    counted: (u64, usize),
    /// Tokens of the last prompt and its answer as the provider counted them, and the number of
    /// messages that they cover.
    known: Option<(u64, usize)>,
    /// The next request of a guest. Its size replaces that of the conversation, because only the
    /// client knows its instructions and tools.
    request: Option<Request>,
}

/// The size of a guest's request.
#[derive(Debug)]
struct Request {
    /// Upper bound on the tokens.
    bytes: u64,
    /// The last request that the provider has counted: its tokens, its bytes, and `true` if it used
    /// a cache.
    counted: Option<(u64, u64, bool)>,
}

impl Request {
    /// Upper bound on the tokens. A request that grew has at most one token more per byte.
    fn bound(&self) -> u64 {
        match self.counted {
            Some((tokens, bytes, _)) if self.bytes >= bytes => {
                self.bytes.min(tokens.saturating_add(self.bytes - bytes))
            }
            _ => self.bytes,
        }
    }

    /// Estimated tokens: as many per byte as in the last request that was counted, else one for
    /// every four bytes.
    fn estimate(&self) -> u64 {
        let estimate = match self.counted {
            Some((tokens, bytes, _)) if bytes > 0 => {
                let scaled = u128::from(self.bytes) * u128::from(tokens) / u128::from(bytes);
                u64::try_from(scaled).unwrap_or(u64::MAX)
            }
            _ => self.bytes / 4,
        };
        estimate.min(self.bound())
    }

    /// The estimated usage of the prompt. What the last request had is assumed to be cached if that
    /// request used a cache.
    fn usage(&self) -> Usage {
        let prompt = self.estimate();
        let cached = self.counted.filter(|(.., cached)| *cached);
        Usage {
            input_tokens: Some(prompt),
            cached_input_tokens: cached.map(|(tokens, ..)| tokens.min(prompt)),
            ..Usage::default()
        }
    }
}

impl PromptSize {
    /// Sets the size of a guest's next request. The count of an earlier one is kept for the same
    /// model only, because models count differently.
    pub(crate) fn set_request(&mut self, bytes: u64, same_model: bool) {
        let counted = self.request.take().and_then(|request| request.counted);
        self.request = Some(Request { bytes, counted: counted.filter(|_| same_model) });
    }

    /// The size of a guest's request, in bytes.
    pub(crate) fn request_bytes(&self) -> Option<u64> {
        self.request.as_ref().map(|request| request.bytes)
    }

    /// Adjusts the numbers of messages after the first ones were removed.
    pub(crate) fn forget(&mut self, number: usize) {
        self.counted.1 = self.counted.1.saturating_sub(number);
        if let Some((_, covered)) = &mut self.known {
            *covered = covered.saturating_sub(number);
        }
    }

    /// The provider's count of the last prompt, and the number of messages that it covers.
    pub(crate) fn known(&self) -> Option<(u64, usize)> {
        self.known
    }

    /// The estimated usage of a guest's next request; `None` for a run that owns its loop.
    pub(super) fn request_usage(&self) -> Option<Usage> {
        self.request.as_ref().map(Request::usage)
    }

    /// Records that the provider has counted the prompt of the current request: `tokens` cover this
    /// number of messages.
    pub(crate) fn count(&mut self, usage: &Usage, tokens: u64, covered: usize) {
        self.known = Some((tokens, covered));
        if let Some(request) = &mut self.request {
            let cached = usage.cached_input_tokens.or(usage.cache_write_tokens);
            let used_cache = cached.is_some_and(|tokens| tokens > 0);
            request.counted = Some((usage.prompt_tokens(), request.bytes, used_cache));
        }
    }

    /// Upper bound on the tokens of the next prompt: the provider's count as far as there is one,
    /// and one token per byte for the rest, because no tokenizer makes more than one token of a
    /// byte. `overhead` is the bound on everything that is not a message.
    pub(crate) fn bound(
        &mut self,
        messages: &[Message],
        overhead: u64,
        images: ImageTokens,
    ) -> u64 {
        if let Some(request) = &self.request {
            return request.bound();
        }
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
    pub(crate) fn estimate(
        &mut self,
        messages: &[Message],
        overhead: u64,
        images: ImageTokens,
    ) -> u64 {
        if let Some(request) = &self.request {
            return request.estimate();
        }
        let bound = self.bound(messages, overhead, images);
        match self.known {
            Some((tokens, _)) => tokens.saturating_add(bound.saturating_sub(tokens) / 4),
            None => bound / 4,
        }
    }
}
