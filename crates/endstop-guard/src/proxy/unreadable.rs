//! The reasons why the copy of a body cannot be read.

/// The reason why the copy of a body cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unreadable {
    /// The body has a content encoding that is not supported, such as `br`.
    #[error("unsupported content encoding `{0}`")]
    Encoding(String),
    /// The compressed data are invalid.
    #[error("invalid compressed data")]
    Invalid,
    /// The decompressed body is larger than the limit.
    #[error("the decompressed body is too large")]
    TooLarge,
}

/// Receives parts of a decompressed body.
pub(crate) type Sink<'a> = dyn FnMut(&[u8]) -> Result<(), Unreadable> + 'a;
