//! InvokeModel and `InvokeModelWithResponseStream` of Amazon Bedrock: the model's own format, in
//! Bedrock's envelope.
//!
//! | file | what it does |
//! |---|---|
//! | `encode` | messages to a request of an Anthropic model, incrementally |
//! | `decode` | takes the envelope off, tells the model's format, and lets that one gather the turn |
//! | `text` | gathers what the models say that write text alone |
//! | `wire` | the shapes on the wire |
//!
//! A body is the model's own. A stream is one of binary frames ([`crate::stream::eventstream`]) whose
//! chunks are the model's own events in base64. What comes first tells whose format it is:
//! Anthropic's messages, Converse's shape (Nova), OpenAI's (Jamba, gpt-oss), or one of text alone
//! (Titan, Llama, Mistral, Cohere, DeepSeek, Jurassic, Claude's text completions). Requests are
//! written for Anthropic's models; the others are called by Converse.
//!
//! A guardrail that intervened is a filter, whatever the model's own value says; what it did stands
//! in the signal's metadata.

mod decode;
mod encode;
mod text;
mod wire;

pub(crate) use decode::Accumulator;
pub use encode::Encoder;
