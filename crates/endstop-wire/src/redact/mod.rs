//! Detection and redaction of secrets in everything that is written.
//!
//! ```
//! use endstop_wire::redact::excerpt;
//! assert_eq!(excerpt("bad key: sk-abcdef1234567890"), "bad key: [redacted]");
//! ```
//!
//! # What is a secret
//!
//! - A credential of a known format is a secret, wherever it comes from: [`secrets_out`].
//! - The value of a variable that [holds a secret](is_secret_variable) and the keys that a provider
//!   uses are secrets: [`KnownKeys`]. A value that is a word, a number, a date or a path is not
//!   searched for, because such words occur in text for other reasons. A value must have 12
//!   characters with letters and digits, or eight that change often, or be a phrase of four words.
//!   The variable is withheld from commands in any case.
//! - In JSON, PEM, URLs and connection strings only the secret parts are searched for.
//!
//! Secrets are removed from string values, never from member names or from the structure of JSON.

mod chars;
mod context;
mod entropy;
mod excerpt;
mod formats;
mod frames;
mod json;
mod known;
mod names;
mod patterns;
mod redacted;
mod secret_names;
mod stream;
mod tail;
mod text;
mod value;
mod variables;

pub use entropy::is_random;
pub use excerpt::{EXCERPT_CHARS, excerpt, secrets_out};
pub use known::KnownKeys;
pub use names::{REDACTED, address, is_secret_header, is_secret_parameter};
pub use redacted::{Redacted, Sealed};
pub use secret_names::is_secret_name;
pub use stream::TextRedactor;
pub use variables::is_secret_variable;
