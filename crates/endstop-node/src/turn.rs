//! A turn that a run accepted, with the calls that may run.

use crate::call::Call;
use crate::outcome::OutcomeFields;
use crate::signal::{ModelError, Signal};
use crate::usage::Usage;
use napi_derive::napi;

/// A response that was fed to a run.
#[napi(object, use_nullable = true)]
pub struct TurnFields {
    /// The visible text.
    #[napi(readonly)]
    pub text: String,
    /// The calls that may run, and no others of the response: a cut call is never among them.
    /// Empty if the run has ended.
    #[napi(readonly, ts_type = "readonly Call[]")]
    pub calls: Vec<Call>,
    /// The calls of the response that must not run: it was cut, or their arguments are not a JSON
    /// object, or the run has ended. The kernel has answered them.
    #[napi(readonly, ts_type = "readonly Call[]")]
    pub held_back: Vec<Call>,
    /// The reason why the model stopped.
    #[napi(readonly)]
    pub signal: Signal,
    /// Token usage of the response.
    #[napi(readonly)]
    pub usage: Usage,
    /// The error that the response is, or that ended it.
    #[napi(readonly)]
    pub error: Option<ModelError>,
    /// The ending that the run has if its loop ends now; null while the model waits for its tools.
    /// An ending that is not a success, such as `error_output_truncated`, means that the response is
    /// not an answer; the loop may still continue from it.
    #[napi(readonly, ts_type = "Termination | null")]
    pub ending: Option<String>,
    /// True if the run has ended: call neither the model nor a tool.
    #[napi(readonly)]
    pub stopped: bool,
    /// The outcome, if the run has ended.
    #[napi(readonly)]
    pub outcome: Option<OutcomeFields>,
}
