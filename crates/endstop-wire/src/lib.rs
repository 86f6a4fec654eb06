//! Provider wire formats for Endstop, pure: no I/O, no clock.
//!
//! | question | where |
//! |---|---|
//! | Which APIs are supported? | [`dialect`] |
//! | What do I send? | [`codec`]: [`RequestSpec`], [`Encoder`] |
//! | What did the model say, and why did it stop? | [`codec`]: [`decode_body`], [`StreamDecoder`] |
//! | How is a body split into events? | [`stream`] |
//! | What does this finish value mean? | [`signal`] |
//! | What does this error mean? | [`errors`] |
//! | Which signal does a raw response give? | [`detect`](mod@detect) |
//! | What does a model cost, and how much can it read and write? | [`catalog`] |
//! | Which providers are known? | [`catalog`] |
//! | Which address and which key does a model need? | [`endpoint`] |
//!
//! Each wire format is a folder of [`codec`] with the same files. Servers that speak a format with
//! differences are rows of the table in [`dialect`].

mod bounded;
pub mod catalog;
pub mod codec;
pub mod detect;
pub mod dialect;
pub mod endpoint;
pub mod errors;
pub mod headers;
mod json;
pub mod redact;
pub mod signal;
pub mod stream;

pub use codec::{Decoded, Delta, Eof, RequestFacts, StreamDecoder, decode_body};
pub use codec::{Encoder, OutputSchema, RequestSpec, ToolSpec};
pub use dialect::{Dialect, Family};
pub use headers::Headers;
pub use signal::Finish;
