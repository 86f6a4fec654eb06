//! Provider wire formats for Endstop, pure: no I/O, no clock.
//!
//! | question | where |
//! |---|---|
//! | Which APIs are understood? | [`api`] |
//! | What do I send? | [`request`]: [`RequestSpec`], [`Encoder`] |
//! | What did the model say, and why did it stop? | [`decode`]: [`decode_body`], [`StreamDecoder`] |
//! | What does this finish value mean? | [`finish`], [`precedence`] |
//! | What does this error mean? | [`errors`] |
//! | A raw response in, the signal out | [`detect`](mod@detect) |
//! | What does it cost? | [`prices`] |
//! | How much can a model read and write? | [`models`] |
//! | Where is a provider, and which key does it want? | [`providers`] |
//! | What does a provider implement? | [`provider`] |
//!
//! One folder a wire format ([`openai_chat`], [`openai_responses`], [`anthropic`], [`gemini`],
//! [`bedrock_converse`], [`bedrock_invoke`], [`cohere_v2`], [`cohere_v1`], [`ollama`]), each with the
//! same files; servers that speak a format with differences of their own are rows of the table in
//! [`api`].

pub mod anthropic;
pub mod api;
pub mod bedrock_converse;
pub mod bedrock_invoke;
mod bounded;
pub mod cohere_v1;
pub mod cohere_v2;
pub mod decode;
pub mod detect;
pub mod errors;
pub mod eventstream;
pub mod finish;
pub mod gemini;
pub mod headers;
mod json;
pub mod models;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;
pub mod precedence;
pub mod prices;
pub mod provider;
pub mod providers;
pub mod redact;
pub mod request;
pub mod sniff;
pub mod sse;

pub use api::{Dialect, Family};
pub use decode::{Decoded, Delta, Eof, RequestFacts, StreamDecoder, decode_body};
pub use finish::Finish;
pub use headers::Headers;
pub use request::{Encoder, OutputSchema, RequestSpec, ToolSpec};
