//! A response in, the turn out: what was said, why it stopped, what it used, or which error it is.
//!
//! ```
//! use endstop_wire::{Delta, Eof, Headers, RequestFacts, StreamDecoder, dialect};
//! let mut stream = StreamDecoder::new(dialect::OPENAI_CHAT, 200, Headers::new(), RequestFacts::default());
//! let mut shown = String::new();
//! for chunk in ["data: {\"choices\":[{\"delta\":{\"content\":\"Hel", "lo\"},\"finish_reason\":\"stop\"}]}\n\n"] {
//!     stream.push(chunk.as_bytes(), &mut |delta| {
//!         if let Delta::Text(text) = delta {
//!             shown.push_str(text);
//!         }
//!     })?;
//! }
//! let decoded = stream.finish(Eof::Clean);
//! assert_eq!(shown, "Hello");
//! assert_eq!(decoded.signal.reason.as_str(), "natural_completion");
//! # Ok::<(), endstop_core::ModelError>(())
//! ```
//!
//! The content type is not trusted: the first bytes tell a stream from a JSON body, a page of HTML
//! or compressed bytes. Whatever comes, a [`Decoded`] comes out; what is not understood is an
//! error, never a success. A stream is complete where a finish value or the protocol's own end was
//! seen.

pub mod anthropic;
pub mod bedrock_converse;
pub mod bedrock_invoke;
pub mod cohere_v1;
pub mod cohere_v2;
pub mod gemini;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;

mod accumulator;
mod common;
mod conclude;
mod decoded;
mod decoder;
mod encoder;
mod request;

pub use decoded::{Decoded, Delta, Eof, RequestFacts};
pub use decoder::{StreamDecoder, decode_body};
pub use encoder::Encoder;
pub use request::{OutputSchema, RequestSpec, ToolSpec};
