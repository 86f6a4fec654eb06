//! What kind of error a provider answered with, and what that means for the run.
//!
//! ```
//! use endstop_core::{Category, ErrorClass, Termination};
//! assert!(ErrorClass::RateLimit.is_retryable());
//! assert_eq!(ErrorClass::QuotaExhausted.termination(), Termination::ErrorProviderRejected);
//! assert_eq!(ErrorClass::Authentication.category(), Category::Fatal);
//! ```

use crate::termination::{Category, Termination};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The class of a provider's error, the same for every provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorClass {
    /// The key is missing or wrong.
    Authentication,
    /// The key may not do this.
    Permission,
    /// No such model, deployment or response.
    NotFound,
    /// The request is malformed.
    InvalidRequest,
    /// The prompt does not fit the model's context window.
    ContextLengthExceeded,
    /// The request's body is larger than the provider takes.
    RequestTooLarge,
    /// The prompt was refused by a content policy.
    ContentPolicy,
    /// Billing, plan or daily quota is used up; waiting does not help.
    QuotaExhausted,
    /// Too many requests or tokens in a window; waiting helps.
    RateLimit,
    /// The provider has no capacity now.
    Overloaded,
    /// The provider failed.
    ServerError,
    /// No answer in time: the connection, the turn or a stall.
    Timeout,
    /// The stream closed without its end.
    IncompleteStream,
    /// The request was cancelled on the provider's side.
    Cancelled,
    /// Not classified; not retried.
    UnknownError,
}

impl ErrorClass {
    /// All classes, in the order of the documentation.
    pub const ALL: [ErrorClass; 15] = [
        ErrorClass::Authentication,
        ErrorClass::Permission,
        ErrorClass::NotFound,
        ErrorClass::InvalidRequest,
        ErrorClass::ContextLengthExceeded,
        ErrorClass::RequestTooLarge,
        ErrorClass::ContentPolicy,
        ErrorClass::QuotaExhausted,
        ErrorClass::RateLimit,
        ErrorClass::Overloaded,
        ErrorClass::ServerError,
        ErrorClass::Timeout,
        ErrorClass::IncompleteStream,
        ErrorClass::Cancelled,
        ErrorClass::UnknownError,
    ];

    /// The string form: `rate_limit`.
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorClass::Authentication => "authentication",
            ErrorClass::Permission => "permission",
            ErrorClass::NotFound => "not_found",
            ErrorClass::InvalidRequest => "invalid_request",
            ErrorClass::ContextLengthExceeded => "context_length_exceeded",
            ErrorClass::RequestTooLarge => "request_too_large",
            ErrorClass::ContentPolicy => "content_policy",
            ErrorClass::QuotaExhausted => "quota_exhausted",
            ErrorClass::RateLimit => "rate_limit",
            ErrorClass::Overloaded => "overloaded",
            ErrorClass::ServerError => "server_error",
            ErrorClass::Timeout => "timeout",
            ErrorClass::IncompleteStream => "incomplete_stream",
            ErrorClass::Cancelled => "cancelled",
            ErrorClass::UnknownError => "unknown_error",
        }
    }

    /// Whether the same request may be sent again.
    pub const fn is_retryable(self) -> bool {
        matches!(
            self,
            ErrorClass::RateLimit
                | ErrorClass::Overloaded
                | ErrorClass::ServerError
                | ErrorClass::Timeout
                | ErrorClass::IncompleteStream
        )
    }

    /// How a run ends that this error ended (after retries and compaction).
    pub const fn termination(self) -> Termination {
        match self {
            ErrorClass::Authentication | ErrorClass::Permission => Termination::ErrorProviderAuth,
            ErrorClass::NotFound | ErrorClass::InvalidRequest | ErrorClass::QuotaExhausted => {
                Termination::ErrorProviderRejected
            }
            ErrorClass::ContextLengthExceeded | ErrorClass::RequestTooLarge => {
                Termination::ErrorPromptTooLong
            }
            ErrorClass::ContentPolicy => Termination::ErrorContentFiltered,
            ErrorClass::RateLimit
            | ErrorClass::Overloaded
            | ErrorClass::ServerError
            | ErrorClass::Timeout
            | ErrorClass::IncompleteStream
            | ErrorClass::Cancelled
            | ErrorClass::UnknownError => Termination::ErrorDuringExecution,
        }
    }

    /// The category of the [`termination`](ErrorClass::termination) it leads to.
    pub const fn category(self) -> Category {
        self.termination().category()
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error that a model call ended with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelError {
    /// What kind of error it is.
    pub class: ErrorClass,
    /// The HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's own words, or ours; never a credential.
    pub message: String,
    /// How long the provider asks to wait, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The field that told the class (`error.code`) and its raw value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<(String, String)>,
}

impl ModelError {
    /// An error of this class with this message and nothing else known.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> ModelError {
        ModelError {
            class,
            status: None,
            message: message.into(),
            retry_after_ms: None,
            original: None,
        }
    }
}

impl fmt::Display for ModelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.class)?;
        if let Some(status) = self.status {
            write!(f, " (HTTP {status})")?;
        }
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for ModelError {}
