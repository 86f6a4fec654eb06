//! Access to the server: tokens, and the checks that keep web pages out.

mod request;
mod tokens;

pub(crate) use request::{Refusal, check_head, check_source, is_ambiguous};
pub use tokens::{Client, TokenFileError, Tokens};
