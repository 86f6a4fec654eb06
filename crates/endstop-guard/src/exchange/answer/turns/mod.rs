//! The final turn: a text that ends the client's loop, one file for each format.

pub(super) mod anthropic;
pub(super) mod chat;
pub(super) mod cohere;
pub(super) mod converse;
pub(super) mod final_text;
mod final_turn;
pub(super) mod gemini;
pub(super) mod ollama;
pub(super) mod responses;

pub use final_turn::final_turn;
