//! The wire formats in both directions, a folder for each: requests are encoded and read, responses are decoded into a
//! turn (content, stop reason, usage, or a classified error) and written.
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
//! The decoder ignores the content type, because servers and proxies often send a wrong one. The
//! first bytes distinguish a stream from a JSON body, an HTML page and compressed data. Any input
//! produces a [`Decoded`]; input that is not understood is an error, never a success. A stream is
//! complete if it contained a finish value or the protocol's end marker.

pub mod anthropic;
pub mod bedrock_converse;
pub mod bedrock_invoke;
pub mod cohere_v1;
pub mod cohere_v2;
pub mod gemini;
pub mod ollama;
pub mod openai_chat;
pub mod openai_responses;

mod format;
pub mod request;
pub mod response;
mod table;

pub(crate) use request::asks_for_several;
pub use request::encoder::Encoder;
pub use request::{NamedSchema, RequestSpec, ToolDefinition};
pub use response::rest::RestClock;
pub use response::stream::{StreamDecoder, decode_body};
pub use response::{Decoded, Delta, Eof, RequestFacts, ServiceTier};
pub use table::{follow, request_reader, write, write_error, write_unknown_response};
