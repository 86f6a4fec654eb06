//! The decision about a complete step: the policy's verdict, a watch rule, and the turn's own answer.

use super::decided_by::{Decision, Layer};
use super::effect::Effect;
use super::guard::{Flow, guarded};
use super::machine::{Machine, Phase};
use super::outcome::Ending;
use crate::message::{ToolCall, ToolResult};
use crate::policy::{PolicyEnd, StepCall, StepResult, Stop, ToolOutput, Verdict};
use crate::termination::Termination;
use serde_json::{Map, Value};
use std::ops::ControlFlow::{Break, Continue};

impl Machine {
    /// Combines the decisions about a step: the policy's verdict, a watch rule that stops the run,
    /// and an answer of the turn itself. An answer stands and outranks every other decision.
    ///
    /// Returns the decided ending, or else the message that the policy has for the model.
    pub(super) fn decide_step(
        &self,
        verdict: Flow<Verdict>,
        stop: Option<Stop>,
        answer: Option<Box<Ending>>,
    ) -> (Option<Box<Ending>>, Option<String>) {
        let mut endings = Vec::new();
        let mut told = None;
        match verdict {
            Continue(Verdict::Stop(stop)) => endings.push(self.stop_ending(stop, "")),
            Continue(Verdict::Tell(text)) => told = Some(text),
            Continue(Verdict::Continue) => {}
            Break(ending) => endings.push(ending),
        }
        endings.extend(stop.map(|stop| self.stop_ending(stop, "")));
        // `finish` outranks the policy. A policy's success outranks the natural end, because the
        // policy found the answer within the text. Every success outranks the rest.
        let by_finish =
            answer.as_ref().is_some_and(|answer| answer.termination != Termination::Stop);
        match answer {
            Some(answer) if by_finish => endings.insert(0, answer),
            Some(answer) => endings.push(answer),
            None => {}
        }
        if endings.is_empty() {
            return (None, told);
        }
        let success = endings.iter().position(|ending| ending.termination.is_success());
        // Only failures are recorded as outranked: a second success adds nothing to the outcome.
        let mut decided = endings.remove(success.filter(|_| !by_finish).unwrap_or(0));
        decided
            .outranked
            .extend(endings.into_iter().filter(|e| !e.termination.is_success()).map(|e| *e));
        (Some(decided), None)
    }

    /// Builds the step that policies evaluate.
    pub(super) fn step(
        &self,
        action: &str,
        text: &str,
        calls: &[(&ToolCall, &ToolResult)],
    ) -> StepResult {
        let mut metadata = Map::new();
        if let Some(confidence) = self.context.metrics.get("confidence") {
            metadata.insert("confidence".to_owned(), confidence.clone());
        }
        // The call that ends the run is not work, so policies do not see it among the tools.
        let tools = || calls.iter().filter(|(call, _)| action != "final" || call.name != "finish");
        let outputs: Vec<ToolOutput> = tools()
            .map(|(_, result)| {
                let tool = self.settings.tools.iter().find(|tool| tool.name == result.name);
                let action = if tool.is_some_and(|t| t.runs_code) { "code" } else { "tool" };
                ToolOutput {
                    action_type: action.to_owned(),
                    name: result.name.clone(),
                    success: !result.status.is_error(),
                    output: result.content.clone(),
                }
            })
            .collect();
        StepResult {
            action_type: action.to_owned(),
            success: outputs.is_empty() || outputs.iter().any(|output| output.success),
            output: Some(text.to_owned()),
            metadata,
            calls: tools()
                .map(|(call, _)| StepCall {
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                })
                .collect(),
            outputs,
        }
    }

    /// Shows the policy a complete step.
    pub(super) fn evaluate_policy(
        &mut self,
        action: &str,
        text: &str,
        calls: &[(&ToolCall, &ToolResult)],
    ) -> Flow<Verdict> {
        if self.policy.is_none() {
            return Continue(Verdict::Continue);
        }
        let step = self.step(action, text, calls);
        self.context.cost_usd = self.cost_so_far();
        let Some(policy) = &mut self.policy else { return Continue(Verdict::Continue) };
        let context = &self.context;
        guarded(policy.name().to_owned(), || policy.should_terminate(&step, context))
    }

    /// Ends the run because a policy stopped it.
    pub(super) fn policy_stop(&mut self, stop: Stop, effects: &mut Vec<Effect>) -> Flow {
        let ending = self.stop_ending(stop, "");
        self.end_or_succeed(ending, effects)
    }

    /// Builds the ending of a stop that comes before the turn is complete. The text streamed so far
    /// becomes the last text.
    pub(super) fn mid_stream_ending(&mut self, stop: Stop) -> Box<Ending> {
        if let Phase::Calling(call) = &self.phase
            && !call.text.trim().is_empty()
        {
            self.last_text = Some(call.text.clone());
        }
        self.stop_ending(stop, "in mid-stream")
    }

    /// Builds the ending of a policy's stop. The ending is a success only if there is an answer:
    /// the policy's own, the run's last text, or the result of the tool that the policy waited for.
    pub(super) fn stop_ending(&self, stop: Stop, when: &str) -> Box<Ending> {
        let blank =
            |value: &Value| value.is_null() || value.as_str().is_some_and(|t| t.trim().is_empty());
        let own = stop.deliverable().filter(|value| !blank(value));
        let fallback = stop.fallback.clone().filter(|text| !text.trim().is_empty());
        let evidence = match (stop.evidence.as_str(), when) {
            (evidence, "") => evidence.to_owned(),
            ("", when) => when.to_owned(),
            (evidence, when) => format!("{evidence}, {when}"),
        };
        if stop.ends_as == PolicyEnd::Submitted {
            let deliverable =
                own.or_else(|| fallback.filter(|_| self.last_text.is_none()).map(Value::String));
            if deliverable.is_none() && self.last_text.is_none() {
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
}
