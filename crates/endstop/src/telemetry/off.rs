//! The empty spans for builds without the feature `tracing`: the same methods, without effect.

#![expect(
    clippy::unused_self,
    clippy::needless_pass_by_ref_mut,
    reason = "the signatures are those of the real spans"
)]

use super::facts::{Answer, CallFacts, RunFacts, SpanSettings};
use super::parent::TraceParent;
use crate::provider::{Provider, Response};
use endstop_core::{
    EffectId, ErrorClass, Message, NanoUsd, Outcome, Price, RunEvent, TerminationSignal, ToolStart,
    ToolStatus,
};
use endstop_wire::redact::KnownKeys;

/// The span of a run, without the feature `tracing`.
#[derive(Clone, Debug, Default)]
pub struct RunSpan(());

impl RunSpan {
    /// Does nothing.
    pub fn begin(_: &RunFacts<'_>) -> RunSpan {
        RunSpan(())
    }
    /// `true`.
    pub fn is_disabled(&self) -> bool {
        true
    }
    /// Does nothing.
    pub fn name(&self, _: &str, _: &str) {}
    /// Does nothing.
    pub fn call(&self, _: &CallFacts<'_>) -> CallSpan {
        CallSpan(())
    }
    /// Does nothing.
    pub fn end(&self, _: &Outcome) {}
}

/// The span of a call, without the feature `tracing`.
#[derive(Clone, Debug, Default)]
pub struct CallSpan(());

impl CallSpan {
    /// `true`.
    pub fn is_disabled(&self) -> bool {
        true
    }
    /// Does nothing.
    pub fn ask<'a>(&self, _: impl Iterator<Item = &'a Message>, _: &KnownKeys) {}
    /// Does nothing.
    pub fn answer(&self, _: &Answer<'_>, _: &KnownKeys) {}
    /// Does nothing.
    pub fn cost(&self, _: NanoUsd) {}
    /// Does nothing.
    pub fn fail(&self, _: &str) {}
    /// Does nothing.
    pub fn abort(&self) {}
    /// Does nothing.
    pub fn link(&self, _: &TraceParent) {}
    /// `None`.
    pub fn place(&self) -> Option<TraceParent> {
        None
    }
}

// The drivers call the same methods with and without the feature, so that no `cfg` is needed there.
#[derive(Default)]
pub(crate) struct Trace(());

impl Trace {
    pub(crate) fn begin(
        _: &dyn Provider,
        _: &RunFacts<'_>,
        _: bool,
        _: &SpanSettings,
        _: impl FnOnce() -> KnownKeys,
    ) -> Trace {
        Trace(())
    }
    pub(crate) fn switched(&mut self, _: &dyn Provider) {}
    pub(crate) fn call_begins(&mut self, _: u32, _: u32, _: Option<u64>) {}
    pub(crate) fn asks(&self, _: &[Message]) -> Option<TraceParent> {
        None
    }
    pub(crate) fn in_call<T>(&self, code: impl FnOnce() -> T) -> T {
        code()
    }
    pub(crate) fn answered(
        &mut self,
        _: &Response,
        _: &TerminationSignal,
        _: impl FnOnce() -> Option<Price>,
    ) {
    }
    pub(crate) fn failed(
        &mut self,
        _: ErrorClass,
        _: Option<&Response>,
        _: impl FnOnce() -> Option<Price>,
    ) {
    }
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
