//! The parts of a JSON-RPC call that all methods share: parameters, results and errors.

use crate::api::Failure;
use crate::backend::BackendError;
use serde::de::DeserializeOwned;
use serde_json::{Value, json as value};

/// An error of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RpcError {
    pub(super) code: i32,
    pub(super) message: String,
}

/// The reason why a call has no result: an error of the protocol, or one of HTTP.
pub(super) enum Failed {
    Rpc(RpcError),
    Http(Failure),
}

impl RpcError {
    pub(super) fn new(code: i32, message: impl Into<String>) -> RpcError {
        RpcError { code, message: message.into() }
    }

    pub(super) fn params(message: impl Into<String>) -> RpcError {
        RpcError::new(-32602, message)
    }

    pub(super) fn unknown_task() -> RpcError {
        RpcError::new(-32001, "there is no such task of this agent")
    }

    /// Returns the name that clients match on; `None` for the errors of JSON-RPC itself.
    fn reason(&self) -> Option<&'static str> {
        Some(match self.code {
            -32001 => "TASK_NOT_FOUND",
            -32002 => "TASK_NOT_CANCELABLE",
            -32003 => "PUSH_NOTIFICATION_NOT_SUPPORTED",
            -32004 => "UNSUPPORTED_OPERATION",
            -32005 => "CONTENT_TYPE_NOT_SUPPORTED",
            -32007 => "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
            -32009 => "VERSION_NOT_SUPPORTED",
            _ => return None,
        })
    }

    fn to_json(&self) -> Value {
        // Clients match on the reason, and people read the message.
        let mut error = value!({"code": self.code, "message": self.message});
        if let Some(reason) = self.reason() {
            error["data"] = value!([{
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": reason,
                "domain": "a2a-protocol.org",
            }]);
        }
        error
    }
}

impl From<RpcError> for Failed {
    fn from(error: RpcError) -> Failed {
        Failed::Rpc(error)
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        Failed::Http(failure)
    }
}

impl From<BackendError> for Failed {
    fn from(error: BackendError) -> Failed {
        Failed::Http(error.into())
    }
}

/// Reads the parameters of a method.
pub(super) fn params<T: DeserializeOwned>(params: Value) -> Result<T, RpcError> {
    serde_json::from_value(params).map_err(|error| RpcError::params(format!("params: {error}")))
}

/// Returns the object that answers a call.
pub(super) fn envelope(id: &Value, result: Result<Value, &RpcError>) -> Value {
    match result {
        Ok(result) => value!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => value!({"jsonrpc": "2.0", "id": id, "error": error.to_json()}),
    }
}
