//! Behaviour of `endstop-wire`, one module per subject. Recordings are in `testdata/`.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails the test where it stands")]

mod bad_input;
mod bedrock;
mod bodies;
mod caching;
mod catalogue;
mod cohere;
mod costs;
mod counted;
mod cuts;
mod decode;
mod encode;
mod errors;
mod eventstream;
mod finish_values;
mod gemini;
mod hostile;
mod json_end;
mod laws;
mod media;
mod ollama;
mod params;
mod precedence;
mod providers;
mod recordings;
mod responses;
mod sniffed;
mod sse;
mod text_frames;
mod tokens_counted;
