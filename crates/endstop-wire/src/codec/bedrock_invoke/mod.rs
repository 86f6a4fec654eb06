//! Amazon Bedrock `InvokeModel` and `InvokeModelWithResponseStream`: the model's own format inside
//! Bedrock's envelope.
//!
//! | file | purpose |
//! |---|---|
//! | `encode` | encodes messages into a request for an Anthropic model, incrementally |
//! | `read` | detects the format of a request's body |
//! | `decode` | removes the envelope, detects the model's format and applies its decoder |
//! | `text` | decodes responses of text-only models |
//! | `wire` | JSON shapes of responses |
//!
//! A body is the model's own. A stream consists of binary frames ([`crate::stream::eventstream`]) whose
//! chunks carry the model's own events in Base64. The first event shows the format: Anthropic
//! Messages, Converse's shape (Nova), OpenAI's (Jamba, gpt-oss), or a text-only one (Titan, Llama,
//! Mistral, Cohere, DeepSeek, Jurassic, Claude's text completions). Requests are encoded for
//! Anthropic models only; use Converse for the others.
//!
//! If a guardrail intervened, the turn counts as filtered, whatever the model's own value is. The
//! guardrail's action is recorded in the signal's metadata.

mod decode;
mod encode;
mod read;
mod text;
mod wire;

use crate::codec::format::{Format, ResponseWriter};
use crate::codec::response::tail::Endless;
use crate::codec::{anthropic, bedrock_converse};
use crate::stream::eventstream::invoke_frame;
use decode::Accumulator;
use encode::Encoder;

/// The row of the format.
pub(crate) const FORMAT: Format = Format {
    encode: Some(|_, spec| Box::new(Encoder::new(spec))),
    read: read::reader,
    decode: |_, _| Box::new(Accumulator::new()),
    write: Some(&WRITER),
    error: bedrock_converse::write::error,
    unknown_response: None,
};

/// Responses of an Anthropic model.
static WRITER: ResponseWriter = ResponseWriter {
    body: anthropic::write::body,
    events: anthropic::write::events,
    frame: |event| invoke_frame(&event.text()),
    // Base64 in frames has no clean end.
    watch: |_| Box::new(Endless),
};
