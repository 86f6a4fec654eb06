//! Bedrock InvokeModel decoder: removes Bedrock's envelope and passes the events to the decoder of
//! the model's own format.

use super::text;
use super::wire::{Chunk, Mark, Metrics};
use crate::bounded::noted;
use crate::codec::response::RequestFacts;
use crate::codec::response::halves::Halves;
use crate::codec::response::turn::{Accumulate, DeltaSink, Parsed};
use crate::codec::response::turn::{Common, DecodeFailure, DecodedTurn};
use crate::codec::{anthropic, bedrock_converse, openai_chat};
use crate::dialect::OPENAI_CHAT;
use crate::errors::ErrorBody;
use crate::json;
use crate::signal::finish::Finish;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use memchr::memmem;
use serde::de::Error as _;
use serde_json::{Map, Value};

/// Field that reports the guardrail's action.
const ACTION: &str = "amazon-bedrock-guardrailAction";

/// A partially received turn.
pub(crate) struct Accumulator {
    /// Decoder of the model's format. Anthropic's is used until the data shows another format.
    turn: Box<dyn Accumulate>,
    told: bool,
    /// Halves of characters in the events inside the envelope.
    halves: Halves,
    /// Reused buffer for an event decoded from Base64.
    unpacked: Vec<u8>,
    /// `true` if the guardrail intervened. Its findings are in `metadata`.
    intervened: bool,
    metadata: Map<String, Value>,
}

impl Accumulator {
    pub(crate) fn new() -> Accumulator {
        Accumulator {
            turn: Box::new(anthropic::Accumulator::new()),
            told: false,
            halves: Halves::default(),
            unpacked: Vec::new(),
            intervened: false,
            metadata: Map::new(),
        }
    }

    /// Decodes one Base64 chunk and handles the model's event inside.
    fn chunk(&mut self, bytes: &str, unpacked: &mut Vec<u8>, sink: DeltaSink<'_>) -> Parsed {
        STANDARD.decode_vec(bytes, unpacked).map_err(serde_json::Error::custom)?;
        let inner = std::str::from_utf8(unpacked).map_err(serde_json::Error::custom)?;
        for event in self.halves.next("", inner).into_iter().flatten() {
            self.look(&event.data)?;
            self.turn.event("", &event.data, sink)?;
        }
        Ok(())
    }

    /// Detects the model's format if it is still unknown, and reads the fields that Bedrock added.
    fn look(&mut self, data: &str) -> Parsed {
        // Once the format is known, only events with Bedrock's own fields need a second parse.
        if self.told && memmem::find(data.as_bytes(), b"\"amazon-bedrock-").is_none() {
            return Ok(());
        }
        let mut repaired = String::new();
        let mark: Mark<'_> = json::event(data, &mut repaired)?;
        if !self.told {
            self.tell(&mark);
        }
        let counted = mark.metrics.and_then(|m| serde_json::from_str::<Metrics>(m.get()).ok());
        if let Some(counted) = counted {
            // Counts that the model reported itself take precedence.
            let to = &mut self.turn.common().usage;
            to.input_tokens = to.input_tokens.or(counted.input.0);
            to.output_tokens = to.output_tokens.or(counted.output.0);
            to.cached_input_tokens = to.cached_input_tokens.or(counted.cache_read.0);
            to.cache_write_tokens = to.cache_write_tokens.or(counted.cache_write.0);
        }
        if let Some(action) = mark.guardrail.filled() {
            self.intervened |= action == "INTERVENED";
            self.metadata.insert(ACTION.to_owned(), Value::from(action));
        }
        if let Some(trace) = mark.trace.and_then(noted) {
            self.metadata.insert("amazon-bedrock-trace".to_owned(), trace);
        }
        Ok(())
    }

    fn tell(&mut self, m: &Mark<'_>) {
        let nova = [
            &m.output,
            &m.message_start,
            &m.content_block_start,
            &m.content_block_delta,
            &m.message_stop,
        ];
        let text = m.completion.is_some()
            || m.generation.is_some()
            || m.completions.is_some()
            || m.generations.is_some()
            || m.outputs.is_some()
            || m.results.is_some()
            || m.output_text.0.is_some()
            || m.text.0.is_some();
        // Both text models and OpenAI-compatible ones use `choices`; only the former have `text` in
        // it.
        let turn: Box<dyn Accumulate> = if let Some(choices) = &m.choices {
            match choices.first() {
                Some(first) if first.text.0.is_some() => Box::new(text::Accumulator::default()),
                _ => Box::new(openai_chat::Accumulator::new(OPENAI_CHAT, false)),
            }
        } else if nova.iter().any(|field| field.is_some()) {
            Box::new(bedrock_converse::Accumulator::new())
        } else if text {
            Box::new(text::Accumulator::default())
        // A `type` without the other marks is Anthropic's format, which is already in place.
        } else if m.kind.filled().is_some() {
            self.told = true;
            return;
        } else {
            return;
        };
        self.told = true;
        let before = std::mem::replace(&mut self.turn, turn);
        // The previous decoder has no content yet, but it may have recorded an error or unreadable
        // data.
        let (mut before, _) = before.conclude(&RequestFacts::default());
        let now = self.turn.common();
        now.error = before.error.take();
        now.broken = before.broken.take();
    }
}

impl Accumulate for Accumulator {
    fn event(&mut self, name: &str, data: &str, sink: DeltaSink<'_>) -> Parsed {
        let data = data.trim();
        // Only `chunk` frames carry the Base64 envelope. Other frames, and unpacked streams, are
        // plain.
        if name != "chunk" {
            if data.starts_with('{') {
                self.look(data)?;
            }
            return self.turn.event(name, data, sink);
        }
        let mut repaired = String::new();
        let chunk: Chunk<'_> = json::event(data, &mut repaired)?;
        // Take the buffer out because `self` is borrowed again by `chunk`.
        let mut unpacked = std::mem::take(&mut self.unpacked);
        unpacked.clear();
        let done = self.chunk(chunk.bytes.get(), &mut unpacked, sink);
        self.unpacked = unpacked;
        done
    }

    fn body(&mut self, text: &str) -> Parsed {
        let mut repaired = String::new();
        let mark: Mark<'_> = json::event(text, &mut repaired)?;
        self.look(text)?;
        if !self.told && mark.message.filled().is_some() {
            // AWS words an error like this. Its HTTP status was lost, for example in a recording.
            self.turn.common().fail(|| ErrorBody::read(text));
            return Ok(());
        }
        self.turn.body(text)
    }

    fn common(&mut self) -> &mut Common {
        self.turn.common()
    }

    fn conclude(mut self: Box<Self>, facts: &RequestFacts) -> (Common, DecodedTurn) {
        if let Some(event) = self.halves.last() {
            if let Err(e) = self.turn.event("", &event.data, &mut |_| ()) {
                let failure = DecodeFailure::json(&e, &event.data);
                self.turn.common().broken.get_or_insert(failure);
            }
        }
        let (mut common, mut said) = self.turn.conclude(facts);
        said.metadata.extend(self.metadata);
        let failed = matches!(said.finish, Finish::Error | Finish::Aborted);
        // An intervention overrides the model's own value, which stays in the metadata. A failure
        // is the stronger fact and is kept.
        if self.intervened && !failed {
            if let Some(raw) = common.finish.replace("INTERVENED".to_owned()) {
                said.metadata.insert(said.field.to_owned(), Value::from(raw));
            }
            said.finish = Finish::ContentFilter;
            said.field = ACTION;
            said.matched_stop = None;
        }
        (common, said)
    }
}
