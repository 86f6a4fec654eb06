//! A tool call of the model.

use endstop_core::ToolCall;
use napi_derive::napi;

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
