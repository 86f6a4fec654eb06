//! The reason why a backend did not do what a client asked for.

use endstop::SteerError;

/// The kind of a refusal. It decides the HTTP status and the code of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such agent. 404
    UnknownAgent,
    /// There is no such run. 404
    UnknownRun,
    /// The run has made no such request for approval. 404
    UnknownRequest,
    /// The request for a run is not valid; the message names the part. 422
    InvalidRun,
    /// A message or a change of limits is not valid; the message names the part. 422
    InvalidChange,
    /// A message is too long. 413
    TooLarge,
    /// The key was used for another request. 422
    KeyReused,
    /// The queue is full. 429
    Full,
    /// The server is shutting down. 503
    Draining,
    /// The run has not started yet. 503
    NotStarted,
    /// The run is about to park. 503
    Parking,
    /// The process that drives the runs does not answer. A start had no effect; a stop, an answer or a
    /// message may have been taken. Repeating a stop or an answer changes nothing more. 503
    Unavailable,
    /// The run has ended, or no longer waits for this. 409
    NotOpen,
    /// The run is parked. 409
    Parked,
    /// The server has failed. The message is for its log only. 500
    Internal,
}

/// The reason why a backend did not do what a client asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BackendError {
    /// The kind.
    pub kind: ErrorKind,
    /// The reason and the fix, for the client. It contains no secret and no path of the machine.
    pub message: String,
}

impl BackendError {
    /// Creates an error.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> BackendError {
        BackendError { kind, message: message.into() }
    }

    /// Returns the error for a run that does not exist. It is also the answer for a run that the client
    /// may not see, so that ids cannot be tried.
    pub fn unknown_run() -> BackendError {
        let message = "there is no such run; GET /v1/runs lists the runs";
        BackendError::new(ErrorKind::UnknownRun, message)
    }

    /// Returns the error for an agent that does not exist, or that the client may not use.
    pub fn unknown_agent() -> BackendError {
        let message = "there is no such agent for this token; GET /v1/agents lists them";
        BackendError::new(ErrorKind::UnknownAgent, message)
    }

    /// Returns the error for a key that was used for another request.
    pub fn key_reused() -> BackendError {
        let message = "this Idempotency-Key was used for another request; use a new key";
        BackendError::new(ErrorKind::KeyReused, message)
    }

    /// Returns the error of a server that shuts down.
    pub fn draining() -> BackendError {
        let message = "the server is shutting down; repeat the request later";
        BackendError::new(ErrorKind::Draining, message)
    }

    /// Returns an error whose cause is in the server's log only.
    pub fn internal() -> BackendError {
        let message = "the server has failed; its log has the cause";
        BackendError::new(ErrorKind::Internal, message)
    }
}

impl From<&SteerError> for BackendError {
    fn from(error: &SteerError) -> BackendError {
        // The message of the error is for the client: it names the limit or the length, and no secret.
        let kind = match error {
            SteerError::Ended => ErrorKind::NotOpen,
            SteerError::Parked => ErrorKind::Parked,
            SteerError::TooLong { .. } | SteerError::TooMuch => ErrorKind::TooLarge,
            _ => ErrorKind::InvalidChange,
        };
        BackendError::new(kind, error.to_string())
    }
}
