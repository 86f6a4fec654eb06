//! Decoder for text-only models on Bedrock: Titan, Llama, Mistral, Cohere, DeepSeek, Jurassic and
//! Claude's text completions. Each uses its own names for the same four fields: the text, the
//! finish value, and the tokens of the prompt and of the answer.

use super::wire::{Choice, Mark};
use crate::codec::response::turn::{Accumulate, DeltaSink, Parsed};
use crate::codec::response::turn::{Common, DecodedTurn};
use crate::codec::response::{Delta, RequestFacts};
use crate::dialect::WireFormat;
use crate::json::{self, Str};
use crate::signal::finish::{Finish, finish_of};
use endstop_core::{Part, Usage};
use serde_json::Map;

/// Stop string that marks the natural end of a turn in Claude's text completions.
const HUMAN: &str = "\n\nHuman:";

/// A partially received turn.
#[derive(Default)]
pub(super) struct Accumulator {
    common: Common,
    text: String,
    field: Option<&'static str>,
    matched_stop: Option<String>,
    /// `true` if the model requests tool calls in a format that is not supported.
    calls: bool,
}

impl Accumulator {
    fn mark(&mut self, m: &Mark<'_>, sink: DeltaSink<'_>) {
        // These fields have another type in some formats, so a value that cannot be read as text is
        // ignored.
        for raw in [m.completion, m.generation].into_iter().flatten() {
            self.say(&serde_json::from_str(raw.get()).unwrap_or_default(), sink);
        }
        self.say(&m.output_text, sink);
        self.say(&m.text, sink);
        self.stop("completionReason", &m.completion_reason);
        self.stop("stop_reason", &m.stop_reason);
        self.stop("finish_reason", &m.finish_reason);
        if let Some(Choice { text, stop_reason, finish_reason, .. }) =
            m.choices.as_ref().and_then(|list| list.first())
        {
            self.say(text, sink);
            self.stop("stop_reason", stop_reason);
            self.stop("finish_reason", finish_reason);
        }
        // Requests ask for a single generation, so only the first item of each list is read.
        let pieces = [&m.outputs, &m.generations].into_iter().flatten();
        for piece in pieces.filter_map(|list| list.first()) {
            self.say(&piece.text, sink);
            self.stop("stop_reason", &piece.stop_reason);
            self.stop("finish_reason", &piece.finish_reason);
        }
        if let Some(result) = m.results.as_ref().and_then(|list| list.first()) {
            self.say(&result.output_text, sink);
            self.stop("completionReason", &result.completion_reason);
            self.count(None, result.token_count.0);
        }
        if let Some(completion) = m.completions.as_ref().and_then(|list| list.first()) {
            if let Some(data) = &completion.data {
                self.say(&data.text, sink);
            }
            if let Some(finish) = &completion.finish_reason {
                self.stop("finishReason.reason", &finish.reason);
            }
        }
        self.count(m.prompt_token_count.0, m.generation_token_count.0);
        self.count(m.input_text_token_count.0, m.total_output_text_token_count.0);
        if let Some(stop) = m.stop.filled() {
            self.matched_stop = Some(stop.to_owned());
        }
        self.calls |= m.tool_calls.as_ref().is_some_and(|list| !list.is_empty());
    }

    fn say(&mut self, text: &Str<'_>, sink: DeltaSink<'_>) {
        if let Some(text) = text.filled() {
            self.text.push_str(text);
            sink(Delta::Text(text));
        }
    }

    fn stop(&mut self, field: &'static str, value: &Str<'_>) {
        let Some(value) = &value.0 else { return };
        if self.common.finishes(WireFormat::BedrockInvoke, value) {
            self.field = Some(field);
        }
    }

    fn count(&mut self, input_tokens: Option<u64>, output_tokens: Option<u64>) {
        self.common.count(&Usage { input_tokens, output_tokens, ..Usage::default() });
    }
}

impl Accumulate for Accumulator {
    fn event(&mut self, _: &str, data: &str, sink: DeltaSink<'_>) -> Parsed {
        let mut repaired = String::new();
        let mark: Mark<'_> = json::event(data, &mut repaired)?;
        self.mark(&mark, sink);
        Ok(())
    }

    fn body(&mut self, text: &str) -> Parsed {
        self.event("", text, &mut |_| ())
    }

    fn common(&mut self) -> &mut Common {
        &mut self.common
    }

    fn conclude(mut self: Box<Self>, facts: &RequestFacts) -> (Common, DecodedTurn) {
        let raw = self.common.finish.as_deref().unwrap_or("");
        let mut finish = finish_of(WireFormat::BedrockInvoke, raw);
        let matched = self.matched_stop.take().filter(|_| finish == Finish::StopSequence);
        // Claude's text completions always end at this string, so a match is not the user's stop
        // string.
        if matched.as_deref() == Some(HUMAN) {
            finish = Finish::Natural;
        }
        // The calls cannot be decoded, so the turn must not be taken for a finished answer.
        if self.calls && matches!(finish, Finish::Natural | Finish::StopSequence) {
            finish = Finish::Unknown;
        }
        let text = std::mem::take(&mut self.text);
        let parts = if text.is_empty() { Vec::new() } else { vec![Part::Text { text }] };
        let said = DecodedTurn {
            parts,
            finish,
            field: self.field.unwrap_or("stop_reason"),
            matched_stop: matched.filter(|_| finish == Finish::StopSequence),
            stop_ambiguous: facts.stop_strings,
            metadata: Map::new(),
        };
        (self.common, said)
    }
}
