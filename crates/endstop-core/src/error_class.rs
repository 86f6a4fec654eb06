//! Classes of provider errors, the same for every provider, and their consequences for a run.
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

/// The class of a provider's error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorClass {
    /// The key is missing or wrong (HTTP 401).
    Authentication,
    /// The key lacks a permission (HTTP 403).
    Permission,
    /// The model, deployment or response does not exist, or the address is not that of an API.
    NotFound,
    /// The request is malformed.
    InvalidRequest,
    /// The prompt does not fit the model's context window.
    ContextLengthExceeded,
    /// The request's body is larger than the provider accepts.
    RequestTooLarge,
    /// A content policy rejected the prompt.
    ContentPolicy,
    /// Credit, plan or daily quota is used up; waiting does not help.
    QuotaExhausted,
    /// Too many requests or tokens in a time window; waiting helps.
    RateLimit,
    /// The provider has no capacity at the moment.
    Overloaded,
    /// The provider failed internally.
    ServerError,
    /// No response in time: the connection, the turn or a stall.
    Timeout,
    /// The stream closed before its end.
    IncompleteStream,
    /// The provider cancelled the request.
    Cancelled,
    /// An unclassified error. Not retried, because it may be one that repeats.
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

    /// The string form, for example `rate_limit`.
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

    /// `true` if the same request may be sent again.
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

    /// Returns the termination of a run that this error ended (after retries and compaction).
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
            // Retryable for the caller, even in classes that the run itself does not retry.
            ErrorClass::RateLimit
            | ErrorClass::Overloaded
            | ErrorClass::ServerError
            | ErrorClass::Timeout
            | ErrorClass::IncompleteStream
            | ErrorClass::Cancelled
            | ErrorClass::UnknownError => Termination::ErrorDuringExecution,
        }
    }

    /// Returns the category of the [`termination`](ErrorClass::termination).
    pub const fn category(self) -> Category {
        self.termination().category()
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The field and the value in [`ModelError::original`] of an address at which there is no server.
const CONNECTION: &str = "connection";
const NO_SERVER: &str = "no server";

/// The error of a model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelError {
    /// Class of the error.
    pub class: ErrorClass,
    /// HTTP status, if there was a response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The provider's message, or Endstop's own; never contains a credential.
    pub message: String,
    /// Wait time in milliseconds that the provider asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The field that determined the class (`error.code`), and its raw value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub original: Option<(String, String)>,
}

impl ModelError {
    /// Creates an error of this class with this message and no further information.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> ModelError {
        ModelError {
            class,
            status: None,
            message: message.into(),
            retry_after_ms: None,
            original: None,
        }
    }

    /// Creates the error of an address at which there is no server, as far as can be known: the host refuses connections,
    /// or its name is not known.
    pub fn no_server(message: impl Into<String>) -> ModelError {
        let original = Some((CONNECTION.to_owned(), NO_SERVER.to_owned()));
        ModelError { original, ..ModelError::new(ErrorClass::ServerError, message) }
    }

    /// `true` if it is that of an address at which there is no server.
    pub fn is_no_server(&self) -> bool {
        let original = self.original.as_ref();
        original.is_some_and(|(field, value)| field == CONNECTION && value == NO_SERVER)
    }

    /// `true` if the provider may bill the call, although it failed: the request was not refused, or it
    /// is not known if it was. A response that arrived with a status of success and cannot be read
    /// may be the most expensive one.
    pub fn may_be_billed(&self) -> bool {
        let succeeded = self.status.map(|status| (200..300).contains(&status));
        match self.class {
            ErrorClass::Timeout | ErrorClass::IncompleteStream | ErrorClass::Cancelled => true,
            ErrorClass::UnknownError => succeeded.unwrap_or(true),
            // Without a status no response arrived, such as from a host that refused the connection.
            // A page that a server sends with 200 in place of an answer is `NotFound`.
            ErrorClass::ServerError | ErrorClass::NotFound => succeeded.unwrap_or(false),
            ErrorClass::Authentication
            | ErrorClass::Permission
            | ErrorClass::InvalidRequest
            | ErrorClass::ContextLengthExceeded
            | ErrorClass::RequestTooLarge
            | ErrorClass::ContentPolicy
            | ErrorClass::QuotaExhausted
            | ErrorClass::RateLimit
            | ErrorClass::Overloaded => false,
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
