//! A response: its calls, its usage, and the reason why it ended.

use crate::errors::{Result, config};
use crate::fields::{object, shown};
use endstop_core::{ErrorClass, TerminationSignal, ToolCall};
use endstop_guest::choice::error_class;
use endstop_guest::{model_error_fields, signal_fields, usage_fields};
use napi_derive::napi;
use std::sync::Arc;

/// A tool call that the model requested.
#[napi(object, use_nullable = true)]
pub struct Call {
    /// The provider's id of the call.
    #[napi(readonly)]
    pub id: String,
    /// Name of the tool.
    #[napi(readonly)]
    pub name: String,
    /// The arguments as the model wrote them: JSON text.
    #[napi(readonly)]
    pub arguments: String,
    /// The arguments, parsed; null if they are not a JSON object. Blank arguments are an empty one.
    // The JavaScript half parses them, because `JSON.parse` is faster than building the object here.
    #[napi(readonly, ts_type = "Record<string, any> | null")]
    pub args: Option<String>,
}

impl From<ToolCall> for Call {
    fn from(call: ToolCall) -> Call {
        Call { id: call.id, name: call.name, arguments: call.arguments, args: None }
    }
}

impl Call {
    /// Copies a call that its run keeps.
    pub(crate) fn of(call: &ToolCall) -> Call {
        Call::from(call.clone())
    }
}

usage_fields! { object
    /// Token usage of a response or of a run. Null stands for a count that was not reported.
    Usage(endstop_core::Usage);
}

/// Reads a count that JavaScript gave. Negative and broken numbers are 0.
pub(crate) fn count(number: f64) -> u64 {
    // The conversion saturates, and reads NaN as 0.
    number as u64
}

signal_fields! { object
    /// The reason why the model stopped its turn, with the provider's own value.
    Signal(TerminationSignal);
}

model_error_fields! { object
    /// The error of a model call, or a response that is an error.
    ModelError(endstop_core::ModelError);
}

impl ModelError {
    /// Returns the error of the kernel.
    pub(crate) fn read(self) -> Result<endstop_core::ModelError> {
        let mut error = endstop_core::ModelError::new(read_class(&self.kind)?, self.message);
        error.status = self.status;
        error.retry_after_ms = self.retry_after_ms.map(count);
        Ok(error)
    }
}

/// Reads the name of an error class.
pub(crate) fn read_class(kind: &str) -> Result<ErrorClass> {
    error_class(kind).map_err(config)
}

shown! { value:
    &endstop_core::Usage => Usage = Usage::of(value)?;
    &TerminationSignal => Signal = Signal::of(value)?;
    &endstop_core::ModelError => ModelError = ModelError::of(value)?;
    Vec<ToolCall> => Vec<Call> = value.into_iter().map(Call::from).collect();
    &[Arc<ToolCall>] => Vec<Call> = value.iter().map(|call| Call::of(call)).collect();
}
