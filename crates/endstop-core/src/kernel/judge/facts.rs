//! The facts that the judge reads, the step as policies see it, the ending that a policy's stop means,
//! and the judgement.

use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::Ending;
use crate::kernel::setup::spec::ToolPolicy;
use crate::message::{ToolCall, ToolResult};
use crate::policy::{PolicyEnd, StepCall, StepContext, StepOutput, StepResult, Stop};
use crate::termination::Termination;
use crate::usage::NanoUsd;
use crate::visible::{is_blank, is_blank_value, visible_text};
use serde_json::{Map, Value};

/// The facts that the judge reads, by the point at which it is asked.
pub(crate) enum Facts<'a> {
    /// A chunk of visible text has arrived.
    Delta {
        piece: &'a str,
        turn: u32,
        /// Returns the answer of a stop without one of its own: the visible text so far.
        answer: &'a dyn Fn() -> Option<String>,
        /// A stop may end the run now. Otherwise the answer can still be rejected, so a stop waits
        /// for the complete turn.
        may_stop: bool,
    },
    /// A response is complete. `streamed` is the part of its text that the policy has read as deltas;
    /// `None` if it must read the whole text again.
    Text { streamed: Option<&'a str>, said: SaidText<'a> },
    /// The tools of a complete response are about to run.
    Calls { said: SaidText<'a> },
    /// A step is complete: a text, or calls with their results.
    Step(Step<'a>),
}

/// The visible text of the model: policies and rules read it, and it is the answer of a stop that
/// has no answer of its own.
#[derive(Clone, Copy)]
pub(crate) struct SaidText<'a> {
    /// The text of the step. Of a continued or paused answer, all parts so far.
    pub(crate) text: &'a str,
    /// The last text of the run, from this step or an earlier one.
    pub(crate) last: Option<&'a str>,
}

impl SaidText<'_> {
    /// Returns the text that is the answer, unless it is blank.
    pub(crate) fn answer(self) -> Option<String> {
        let texts = [Some(self.text), self.last.map(visible_text)];
        let text = texts.into_iter().flatten().find(|text| !is_blank(text));
        text.map(str::to_owned)
    }
}

/// A complete step.
pub(crate) struct Step<'a> {
    pub(crate) turn: u32,
    pub(crate) said: SaidText<'a>,
    pub(crate) calls: &'a [(&'a ToolCall, &'a ToolResult)],
    /// The calls that count as progress or repetition; calls that only waited do not.
    pub(crate) counted: &'a [(&'a ToolCall, &'a ToolResult)],
    /// The answer of the step itself: declared by `finish`, or its text.
    pub(crate) answer: Option<Box<Ending>>,
    /// The ending of a policy that panicked on the text of the step.
    pub(crate) fault: Option<Box<Ending>>,
    pub(crate) tools: &'a [ToolPolicy],
    /// The cost of the run so far, if every part of it has a known price.
    pub(crate) cost: Option<NanoUsd>,
    /// The limit on unproductive turns, if the model is to be warned one turn before it.
    pub(crate) warn_before: Option<u32>,
}

impl Step<'_> {
    /// `true` if a call is compared with similar ones: it counts, and its result is all text.
    pub(super) fn compares(&self, call: &ToolCall, result: &ToolResult) -> bool {
        let counts = self.counted.iter().any(|(counted, _)| std::ptr::eq(*counted, call));
        counts && result.attachments.is_empty()
    }

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

/// Builds the step that policies evaluate.
pub(super) fn step_result(step: &Step<'_>, context: &StepContext) -> StepResult {
    let mut metadata = Map::new();
    if let Some(confidence) = context.metrics.get("confidence") {
        metadata.insert("confidence".to_owned(), confidence.clone());
    }
    let declared = step.is_declared();
    // The call that ends the run is not work, so policies do not see it among the tools.
    let tools = || step.calls.iter().filter(|(call, _)| !declared || call.name != "finish");
    // What a tool returns is data: a file or a page may contain a declaration, which is not the
    // model's. Only the output of the model's own code may declare an answer.
    let is_code = |result: &ToolResult| {
        let tool = step.tools.iter().find(|tool| tool.name == result.name);
        tool.is_some_and(|tool| tool.runs_code) && !result.status.is_error()
    };
    let outputs = tools().filter(|(_, result)| is_code(result)).map(|(_, result)| StepOutput {
        action_type: "code".to_owned(),
        name: result.name.clone(),
        success: true,
        output: result.content.clone(),
    });
    StepResult {
        action_type: if declared { "final" } else { "message" }.to_owned(),
        success: tools().next().is_none() || tools().any(|(_, result)| !result.status.is_error()),
        output: Some(step.said.text.to_owned()),
        metadata,
        calls: tools()
            .map(|(call, result)| StepCall {
                name: call.name.clone(),
                arguments: call.arguments.clone(),
                success: Some(!result.status.is_error()),
                result: Some(result.content.clone()),
            })
            .collect(),
        outputs: outputs.collect(),
    }
}

/// Builds the ending of a policy's stop. The ending is a success only if there is an answer: the
/// policy's own, or `answer`, what the model has said.
pub(super) fn stop_ending(
    stop: Stop,
    when: &str,
    answer: impl FnOnce() -> Option<String>,
) -> Box<Ending> {
    let own = stop.deliverable().filter(|value| !is_blank_value(value));
    let evidence = match (stop.evidence.as_str(), when) {
        (evidence, "") => evidence.to_owned(),
        ("", when) => when.to_owned(),
        (evidence, when) => format!("{evidence}, {when}"),
    };
    if stop.ends_as == PolicyEnd::Submitted {
        let deliverable = own.or_else(|| answer().map(Value::String));
        if deliverable.is_none() {
            let policy = &stop.policy;
            let reason =
                format!("the policy `{policy}` stopped the run without an answer: {evidence}");
            return Ending::halted(Layer::Policy, Decision::Custom(stop.policy), reason);
        }
        let mut ending = Ending::new(
            Termination::Submitted,
            Layer::Policy,
            Decision::Custom(stop.policy),
            evidence,
        );
        ending.deliverable = deliverable;
        return ending;
    }
    let mut ending = Ending::new(
        stop.ends_as.into(),
        Layer::Policy,
        Decision::Custom(stop.policy),
        evidence.clone(),
    );
    if stop.ends_as == PolicyEnd::Halted {
        ending.halted_reason = Some(evidence);
    }
    ending
}
