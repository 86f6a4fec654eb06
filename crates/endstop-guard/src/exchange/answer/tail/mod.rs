//! The end of a stream that is cut while the model writes text.
//!
//! A client that receives the closing events keeps the text and ends its turn. Inside a tool call
//! there is no such end: a client would complete the truncated arguments and run the wrong command.

mod anthropic;
mod blocks;
mod chat;
mod cohere;
mod converse;
mod follow;
mod gemini;
mod ollama;
mod responses;
mod watch;

pub use follow::Tail;
pub use watch::Ending;
