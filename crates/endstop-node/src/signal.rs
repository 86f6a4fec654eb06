//! The reason why a turn ended, and the error of a model call.

use crate::errors::{Result, config, to_json};
use endstop_core::{ErrorClass, TerminationSignal};
use endstop_guest::choice::error_class;
use napi_derive::napi;

/// The reason why the model stopped its turn, with the provider's own value.
#[napi(object, use_nullable = true)]
pub struct Signal {
    /// The reason.
    #[napi(readonly, ts_type = "SignalReason")]
    pub reason: String,
    /// True if the turn ends the model's part: it asks for no tool and is not paused.
    #[napi(readonly)]
    pub should_terminate: bool,
    /// The confidence that the reason was read correctly.
    #[napi(readonly, ts_type = "Confidence")]
    pub confidence: String,
    /// Name of the field that the reason was read from, for example `finish_reason`.
    #[napi(readonly)]
    pub original_field: String,
    /// Raw value of that field; empty if it was missing.
    #[napi(readonly)]
    pub original_value: String,
    /// Other data of the provider about the end of the turn.
    // JSON text here; the JavaScript half parses it.
    #[napi(readonly, ts_type = "Record<string, any>")]
    pub metadata: Option<String>,
    /// An explanation for a person, if there is one.
    #[napi(readonly)]
    pub message: Option<String>,
}

impl Signal {
    pub(crate) fn of(signal: &TerminationSignal) -> Result<Signal> {
        let specific = &signal.provider_specific;
        let metadata = &specific.metadata;
        Ok(Signal {
            reason: signal.reason.as_str().to_owned(),
            should_terminate: signal.should_terminate,
            confidence: signal.confidence.as_str().to_owned(),
            original_field: specific.original_field.clone().into_owned(),
            original_value: specific.original_value.clone(),
            // Most signals have none, and a null costs JavaScript no parsing.
            metadata: if metadata.is_empty() { None } else { Some(to_json(metadata)?) },
            message: signal.message.clone(),
        })
    }
}

/// The error of a model call, or a response that is an error.
#[napi(object, use_nullable = true)]
pub struct ModelError {
    /// Class of the error.
    #[napi(readonly, ts_type = "ErrorClass")]
    pub kind: String,
    /// The category, which determines what to do next.
    #[napi(readonly, ts_type = "Category")]
    pub category: String,
    /// HTTP status, if there was a response.
    #[napi(readonly)]
    pub status: Option<u16>,
    /// The provider's message, or Endstop's own. Contains no credential.
    #[napi(readonly)]
    pub message: String,
    /// Wait time in milliseconds that the provider asks for.
    #[napi(readonly)]
    pub retry_after_ms: Option<f64>,
}

impl From<&endstop_core::ModelError> for ModelError {
    fn from(error: &endstop_core::ModelError) -> ModelError {
        ModelError {
            kind: error.class.as_str().to_owned(),
            category: error.class.category().as_str().to_owned(),
            status: error.status,
            message: error.message.clone(),
            retry_after_ms: error.retry_after_ms.map(|ms| ms as f64),
        }
    }
}

impl ModelError {
    /// Returns the error of the kernel.
    pub(crate) fn read(self) -> Result<endstop_core::ModelError> {
        let mut error = endstop_core::ModelError::new(read_class(&self.kind)?, self.message);
        error.status = self.status;
        error.retry_after_ms = self.retry_after_ms.map(crate::usage::count);
        Ok(error)
    }
}

/// Reads the name of an error class.
pub(crate) fn read_class(kind: &str) -> Result<ErrorClass> {
    error_class(kind).map_err(config)
}
