//! The facts that the judge reads, and the judgement that it returns.

use crate::kernel::ending::Ending;
use crate::kernel::spec::ToolPolicy;
use crate::message::{ToolCall, ToolResult};
use crate::termination::Termination;
use crate::usage::NanoUsd;

/// The facts that the judge reads, by the point at which it is asked.
pub(crate) enum Facts<'a> {
    /// A chunk of a response has arrived; `text` is the response so far.
    Delta {
        piece: &'a str,
        text: &'a str,
        turn: u32,
        /// The run has a text that could be the answer, from an earlier response.
        has_text: bool,
        /// A stop may end the run now. Otherwise the answer can still be rejected, so a stop waits
        /// for the complete turn.
        may_stop: bool,
    },
    /// A response is complete. `streamed` is the part of it that the policy has read as deltas;
    /// `None` if it must read the whole text again.
    Text { text: &'a str, streamed: Option<&'a str>, has_text: bool },
    /// The tools of a complete response are about to run.
    Calls { text: &'a str, has_text: bool },
    /// A step is complete: a text, or calls with their results.
    Step(Step<'a>),
}

/// A complete step.
pub(crate) struct Step<'a> {
    pub(crate) turn: u32,
    pub(crate) text: &'a str,
    pub(crate) calls: &'a [(&'a ToolCall, &'a ToolResult)],
    /// The calls that count as progress or repetition; calls that only waited do not.
    pub(crate) counted: &'a [(&'a ToolCall, &'a ToolResult)],
    /// The answer of the step itself: declared by `finish`, or its text.
    pub(crate) answer: Option<Box<Ending>>,
    /// The ending of a policy that panicked on the text of the step.
    pub(crate) fault: Option<Box<Ending>>,
    pub(crate) has_text: bool,
    pub(crate) tools: &'a [ToolPolicy],
    /// The cost of the run so far, if every part of it has a known price.
    pub(crate) cost: Option<NanoUsd>,
    /// The limit on unproductive turns, if the model is to be warned one turn before it.
    pub(crate) warn_before: Option<u32>,
}

impl Step<'_> {
    /// `true` if `finish` declared the answer. The answer of a text ends as `stop`.
    pub(super) fn is_declared(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.termination != Termination::Stop)
    }
}

/// The decision of the judge.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    /// Ends the run.
    pub(crate) ending: Option<Box<Ending>>,
    /// A policy panicked. The run ends, unless its text is an answer.
    pub(crate) fault: Option<Box<Ending>>,
    /// The policy requested a stop that must wait for the complete turn.
    pub(crate) deferred: bool,
    /// The policy's message for the model.
    pub(crate) told: Option<String>,
    /// The messages of watch rules for the model.
    pub(crate) nudges: Vec<String>,
    /// The warning that the run is about to end without progress.
    pub(crate) warning: Option<String>,
}

impl Judgement {
    pub(super) fn end(ending: Box<Ending>) -> Judgement {
        Judgement { ending: Some(ending), ..Judgement::default() }
    }

    pub(super) fn fault(ending: Box<Ending>) -> Judgement {
        Judgement { fault: Some(ending), ..Judgement::default() }
    }

    /// Returns the ending, by decision or by a panic.
    pub(crate) fn any_ending(self) -> Option<Box<Ending>> {
        self.ending.or(self.fault)
    }
}
