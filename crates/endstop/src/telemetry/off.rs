//! The empty trace for builds without the feature `tracing`: the same methods, without effect.

#![expect(
    clippy::unused_self,
    clippy::needless_pass_by_ref_mut,
    reason = "the signatures are those of the real trace"
)]

use crate::provider::{Provider, Response};
use endstop_core::{
    EffectId, ErrorClass, Outcome, RunEvent, TerminationSignal, ToolStart, ToolStatus,
};

// The drivers call the same methods with and without the feature, so that no `cfg` is needed there.
#[derive(Default)]
pub(crate) struct Trace(());

impl Trace {
    pub(crate) fn begin(
        _: &dyn Provider,
        _: (Option<&str>, Option<&str>),
        _: bool,
        _: Option<&str>,
    ) -> Trace {
        Trace(())
    }
    pub(crate) fn switched(&mut self, _: &dyn Provider) {}
    pub(crate) fn call_begins(&mut self, _: u32, _: u32, _: Option<u64>) {}
    pub(crate) fn in_call<T>(&self, code: impl FnOnce() -> T) -> T {
        code()
    }
    pub(crate) fn answered(&mut self, _: &Response, _: &TerminationSignal) {}
    pub(crate) fn failed(&mut self, _: ErrorClass, _: Option<&Response>) {}
    pub(crate) fn call_panicked(&mut self) {}
    pub(crate) fn aborted(&mut self) {}
    pub(crate) fn tool_begins(&mut self, _: &ToolStart) {}
    pub(crate) fn of_tool<F>(&self, _: EffectId, work: F) -> F {
        work
    }
    pub(crate) fn tool_ends(&mut self, _: EffectId, _: ToolStatus) {}
    pub(crate) fn tool_panicked(&mut self, _: EffectId) {}
    pub(crate) fn of_run<F>(&self, work: F) -> F {
        work
    }
    pub(crate) fn told(&mut self, _: &RunEvent) {}
    pub(crate) fn settle(&mut self) {}
    pub(crate) fn ended(&mut self, _: &Outcome) {}
}
