//! Provider wire formats for Endstop. This crate is pure: it has no I/O and no clock.
//!
//! | task | module |
//! |---|---|
//! | List the supported APIs | [`api`] |
//! | Encode a request | [`request`]: [`RequestSpec`], [`Encoder`] |
//! | Decode a response or a stream | [`decode`]: [`decode_body`], [`StreamDecoder`] |
//! | Interpret a finish value | [`finish`], [`precedence`] |
//! | Classify an error | [`errors`] |
//! | Detect why a recorded response ended | [`detect`](mod@detect) |
//! | Price usage | [`prices`] |
//! | Look up token limits of a model | [`models`] |
//! | Resolve `provider/model` to a URL, a key and headers | [`providers`] |
//! | Redact secrets | [`redact`] |
//! | Implement termination detection for a custom provider | [`provider`] |
//!
//! Each wire format has a folder ([`openai_chat`], [`openai_responses`], [`anthropic`], [`gemini`],
//! [`bedrock_converse`], [`bedrock_invoke`], [`cohere_v2`], [`cohere_v1`], [`ollama`]) with the
//! same set of files. A server that deviates from the format it imitates is a row of the table in
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
