//! Takes Bedrock's envelope off, and lets the format of the model gather the turn.

use super::text;
use super::wire::{Chunk, Mark, Metrics};
use crate::bounded::noted;
use crate::codec::common::{Common, Said};
use crate::codec::decoded::{Accumulate, DeltaSink, RequestFacts};
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

/// What a guardrail did.
const ACTION: &str = "amazon-bedrock-guardrailAction";

/// A turn on its way.
pub(crate) struct Accumulator {
    /// The model's format: Anthropic's until something tells another.
    turn: Box<dyn Accumulate>,
    told: bool,
    /// Room for an event that was in base64.
    unpacked: Vec<u8>,
    /// What the guardrail did, and what it found.
    intervened: bool,
    metadata: Map<String, Value>,
}

impl Accumulator {
    pub(crate) fn new() -> Accumulator {
        Accumulator {
            turn: Box::new(anthropic::Accumulator::new()),
            told: false,
            unpacked: Vec::new(),
            intervened: false,
            metadata: Map::new(),
        }
    }

    /// The model's own event.
    fn chunk(
        &mut self,
        bytes: &str,
        unpacked: &mut Vec<u8>,
        sink: DeltaSink<'_>,
    ) -> Result<(), serde_json::Error> {
        STANDARD.decode_vec(bytes, unpacked).map_err(serde_json::Error::custom)?;
        let inner = std::str::from_utf8(unpacked).map_err(serde_json::Error::custom)?;
        self.look(inner)?;
        self.turn.event("", inner, sink)
    }

    /// Looks whose format this is, where that is not known, and at what Bedrock put into it.
    fn look(&mut self, data: &str) -> Result<(), serde_json::Error> {
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
            // What the model itself says goes before.
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
        let turn: Box<dyn Accumulate> = if let Some(choices) = &m.choices {
            match choices.first() {
                Some(first) if first.text.0.is_some() => Box::new(text::Accumulator::default()),
                _ => Box::new(openai_chat::Accumulator::new(OPENAI_CHAT)),
            }
        } else if nova.iter().any(|field| field.is_some()) {
            Box::new(bedrock_converse::Accumulator::new())
        } else if text {
            Box::new(text::Accumulator::default())
        } else if m.kind.filled().is_some() {
            self.told = true;
            return;
        } else {
            return;
        };
        self.told = true;
        let before = std::mem::replace(&mut self.turn, turn);
        // Nothing was said yet, but an error may have come, or something that does not read.
        let (mut before, _) = before.conclude(&RequestFacts::default());
        let now = self.turn.common();
        now.error = before.error.take();
        now.broken = before.broken.take();
    }
}

impl Accumulate for Accumulator {
    fn event(
        &mut self,
        name: &str,
        data: &str,
        sink: DeltaSink<'_>,
    ) -> Result<(), serde_json::Error> {
        let data = data.trim();
        if name != "chunk" {
            if data.starts_with('{') {
                self.look(data)?;
            }
            return self.turn.event(name, data, sink);
        }
        let mut repaired = String::new();
        let chunk: Chunk<'_> = json::event(data, &mut repaired)?;
        let mut unpacked = std::mem::take(&mut self.unpacked);
        unpacked.clear();
        let done = self.chunk(chunk.bytes.get(), &mut unpacked, sink);
        self.unpacked = unpacked;
        done
    }

    fn body(&mut self, text: &str) -> Result<(), serde_json::Error> {
        let mut repaired = String::new();
        let mark: Mark<'_> = json::event(text, &mut repaired)?;
        self.look(text)?;
        if !self.told && mark.message.filled().is_some() {
            // As AWS words an error whose status somebody lost.
            self.turn.common().error.get_or_insert_with(|| ErrorBody::read(text));
            return Ok(());
        }
        self.turn.body(text)
    }

    fn common(&mut self) -> &mut Common {
        self.turn.common()
    }

    fn conclude(self: Box<Self>, facts: &RequestFacts) -> (Common, Said) {
        let (mut common, mut said) = self.turn.conclude(facts);
        said.metadata.extend(self.metadata);
        let failed = matches!(said.finish, Finish::Error | Finish::Aborted);
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
