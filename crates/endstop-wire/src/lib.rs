//! Provider wire formats for Endstop. This crate is pure: it has no I/O and no clock.
//!
//! | task | module |
//! |---|---|
//! | List the supported APIs | [`dialect`] |
//! | Encode a request | [`codec`]: [`RequestSpec`], [`Encoder`] |
//! | Set parameters of a request | [`params`]: [`ModelParams`] |
//! | Cache prompts | [`caching`]: [`Caching`] |
//! | Decode a response or a stream | [`codec`]: [`decode_body`], [`StreamDecoder`] |
//! | Split a body into events | [`stream`] |
//! | Interpret a finish value | [`signal`] |
//! | Classify an error | [`errors`] |
//! | Detect why a recorded response ended | [`detect`](mod@detect) |
//! | Look up providers, prices and token limits | [`catalog`] |
//! | Resolve `provider/model` to a URL, a key and headers | [`endpoint`] |
//! | Recognise a request by its method and path | [`route`] |
//! | Read the use of a subscription's windows | [`windows`] |
//! | Redact secrets | [`redact`] |
//! | Implement termination detection for a custom provider | [`detect::detector`] |
//!
//! Each wire format has a folder in [`codec`] with the same set of files. A server that deviates
//! from the format it imitates is a row of the table in [`dialect`].
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bounded;
pub mod caching;
pub mod catalog;
pub mod codec;
pub mod detect;
pub mod dialect;
pub mod endpoint;
pub mod errors;
pub mod headers;
mod json;
pub mod media;
pub mod params;
pub mod redact;
pub mod route;
pub mod signal;
pub mod stream;
pub mod windows;

pub use caching::{CachePlan, Caching};
pub use codec::{Decoded, Delta, Eof, RequestFacts, RestClock, StreamDecoder, decode_body};
pub use codec::{Encoder, NamedSchema, RequestSpec, ToolDefinition};
pub use dialect::{Dialect, WireFormat};
pub use headers::Headers;
pub use json::{unescaped, without_lone_surrogates};
pub use params::{Effort, ModelParams, ParamError, Thinking, ToolChoice};
pub use signal::Finish;
