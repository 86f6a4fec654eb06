//! The part of a decoded response that all wire formats have in common.

use super::billing::Bill;
use crate::bounded::ITEMS_CAP;
use crate::dialect::WireFormat;
use crate::errors::ErrorBody;
use crate::json::Count;
use crate::redact::excerpt;
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{ErrorClass, NanoUsd, Part, Usage};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// State that every format collects.
#[derive(Debug, Default)]
pub(crate) struct Common {
    pub(crate) model: Option<String>,
    pub(crate) id: Option<String>,
    pub(crate) usage: Usage,
    pub(crate) cost: Option<NanoUsd>,
    /// What the response reports about its bill in addition to the tokens.
    pub(crate) bill: Bill,
    /// The finish value.
    pub(crate) finish: Option<String>,
    /// `true` if the protocol's end marker arrived, or if the body is a complete JSON document.
    pub(crate) terminated: bool,
    /// An error object inside the body. Boxed, because few responses have one.
    pub(crate) error: Option<Box<ErrorBody>>,
    /// The first part of the body that could not be parsed.
    pub(crate) broken: Option<DecodeFailure>,
    /// Mean probability of the generated tokens.
    pub(crate) confidence: Option<f64>,
}

/// Text that makes the arguments of a call unparseable, whatever is before and after it: JSON allows no control character,
/// also within a string.
pub(crate) const NOT_JSON: &str = "\u{1a}";

impl Common {
    /// Stores the first model name and the first response id.
    pub(crate) fn named(&mut self, model: Option<&str>, id: Option<&str>) {
        if self.model.is_none() {
            self.model = model.map(str::to_owned);
        }
        if self.id.is_none() {
            self.id = id.map(str::to_owned);
        }
    }

    /// Stores an error object inside the body, unless there was one before.
    pub(crate) fn fail(&mut self, error: impl FnOnce() -> ErrorBody) {
        self.error.get_or_insert_with(|| Box::new(error()));
    }

    /// Stores a finish value. An empty one counts only until a real one arrives, and one of a cut or
    /// failed answer is only replaced by another one. Returns `true` if it was stored.
    pub(crate) fn finishes(&mut self, family: WireFormat, value: &str) -> bool {
        let replaces = match self.finish.as_deref() {
            None => true,
            Some(_) if value.is_empty() => false,
            Some(before) => {
                !finish_of(family, before).is_sticky() || finish_of(family, value).is_sticky()
            }
        };
        if replaces {
            self.finish = Some(value.to_owned());
        }
        replaces
    }

    /// Stores token counts. Later events repeat some counts and omit others, and some gateways send zeros, so that a count
    /// of a response never falls.
    pub(crate) fn count(&mut self, new: &Usage) {
        let to = &mut self.usage;
        to.input_tokens = new.input_tokens.max(to.input_tokens);
        to.output_tokens = new.output_tokens.max(to.output_tokens);
        to.cached_input_tokens = new.cached_input_tokens.max(to.cached_input_tokens);
        to.cache_write_tokens = new.cache_write_tokens.max(to.cache_write_tokens);
        to.cache_write_1h_tokens = new.cache_write_1h_tokens.max(to.cache_write_1h_tokens);
        to.reasoning_tokens = new.reasoning_tokens.max(to.reasoning_tokens);
    }

    /// Returns the tokens that only the total of a response has, without those of the cache. Some proxies count the
    /// cached tokens in addition to the prompt, which shows if the prompt has fewer, or if they are the whole rest.
    pub(crate) fn in_total_only(
        &mut self,
        total: Count,
        prompt: Count,
        output: Count,
    ) -> Option<u64> {
        let counted = prompt.0.unwrap_or(0).saturating_add(output.0.unwrap_or(0));
        let rest = total.0?.checked_sub(counted)?;
        let usage = &mut self.usage;
        let count = |count: Option<u64>| count.unwrap_or(0);
        let cached =
            count(usage.cached_input_tokens).saturating_add(count(usage.cache_write_tokens));
        let is_whole_rest = rest == cached && usage.reasoning_tokens != Some(rest);
        let is_apart =
            cached > 0 && rest >= cached && (is_whole_rest || cached > count(usage.input_tokens));
        usage.cache_apart |= is_apart;
        Some(if is_apart { rest - cached } else { rest })
    }

    /// Returns the JSON object of an event, or `None` for data that carries none. Some gateways end
    /// the stream of any format with `[DONE]`.
    pub(crate) fn event_object<'a>(&mut self, data: &'a str) -> Option<&'a str> {
        let data = data.trim();
        let object = data.starts_with('{');
        self.terminated |= data == "[DONE]";
        object.then_some(data)
    }

    /// Parses a part of the content. An object or a list that fails to parse marks the response as
    /// broken, because skipping it could lose a tool call or part of the answer.
    pub(crate) fn read<'a, T: Deserialize<'a>>(&mut self, raw: &'a RawValue) -> Option<T> {
        match serde_json::from_str(raw.get()) {
            Ok(value) => Some(value),
            Err(e) => {
                // A stray string or number in such a place carries no content, so it may be
                // skipped.
                if raw.get().starts_with(['{', '[']) {
                    self.broken.get_or_insert_with(|| DecodeFailure::json(&e, raw.get()));
                }
                None
            }
        }
    }

    /// Returns `true` if a turn with this many parts may have another. Otherwise marks the response
    /// as broken.
    pub(crate) fn room(&mut self, parts: usize) -> bool {
        if parts >= ITEMS_CAP {
            self.broken.get_or_insert_with(|| {
                DecodeFailure::unreadable(format!("the turn has more than {ITEMS_CAP} parts"))
            });
        }
        parts < ITEMS_CAP
    }
}

/// A body that could not be parsed.
#[derive(Debug)]
pub(crate) struct DecodeFailure {
    pub(crate) class: ErrorClass,
    pub(crate) message: String,
    /// Excerpt of the unparsed text.
    pub(crate) value: String,
}

impl DecodeFailure {
    pub(crate) fn unreadable(message: String) -> DecodeFailure {
        DecodeFailure { class: ErrorClass::ServerError, message, value: String::new() }
    }

    pub(crate) fn json(e: &serde_json::Error, text: &str) -> DecodeFailure {
        DecodeFailure {
            class: if is_cut(e, text) {
                ErrorClass::IncompleteStream
            } else {
                ErrorClass::ServerError
            },
            // The parser's message quotes its input, so it is redacted and shortened like any other
            // text.
            message: excerpt(&format!("the response is not the expected JSON: {e}")),
            value: excerpt(text),
        }
    }
}

/// `true` if the text ends too early. The parser reports a number that ends after its sign, point
/// or exponent as a syntax error, but no complete object ends like that, so it counts as cut too.
pub(super) fn is_cut(e: &serde_json::Error, text: &str) -> bool {
    e.is_eof() || e.is_syntax() && text.trim_end().ends_with(['-', '+', '.', 'e', 'E'])
}

/// Content of a turn as one format decoded it.
#[derive(Debug)]
pub(crate) struct DecodedTurn {
    pub(crate) parts: Vec<Part>,
    /// Meaning of the finish value in this format.
    pub(crate) finish: Finish,
    /// Field that carries the finish value.
    pub(crate) field: &'static str,
    pub(crate) matched_stop: Option<String>,
    /// `true` if this API reports a matched stop string as a natural stop.
    pub(crate) stop_ambiguous: bool,
    /// Additional facts that the provider reported about the end of the turn.
    pub(crate) metadata: Map<String, Value>,
}
