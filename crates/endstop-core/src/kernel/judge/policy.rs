//! The step as policies see it, and the ending that a policy's stop means.

use super::facts::Step;
use crate::kernel::decided_by::{Decision, Layer};
use crate::kernel::ending::Ending;
use crate::policy::{PolicyEnd, StepCall, StepContext, StepOutput, StepResult, Stop};
use crate::termination::Termination;
use serde_json::{Map, Value};

/// Builds the step that policies evaluate.
pub(super) fn step_result(step: &Step<'_>, context: &StepContext) -> StepResult {
    let mut metadata = Map::new();
    if let Some(confidence) = context.metrics.get("confidence") {
        metadata.insert("confidence".to_owned(), confidence.clone());
    }
    let declared = step.is_declared();
    // The call that ends the run is not work, so policies do not see it among the tools.
    let tools = || step.calls.iter().filter(|(call, _)| !declared || call.name != "finish");
    let outputs: Vec<StepOutput> = tools()
        .map(|(_, result)| {
            let tool = step.tools.iter().find(|tool| tool.name == result.name);
            let action = if tool.is_some_and(|t| t.runs_code) { "code" } else { "tool" };
            StepOutput {
                action_type: action.to_owned(),
                name: result.name.clone(),
                success: !result.status.is_error(),
                output: result.content.clone(),
            }
        })
        .collect();
    StepResult {
        action_type: if declared { "final" } else { "message" }.to_owned(),
        success: outputs.is_empty() || outputs.iter().any(|output| output.success),
        output: Some(step.text.to_owned()),
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

/// Builds the ending of a policy's stop. The ending is a success only if there is an answer: the
/// policy's own, a text of the run, or the result of the tool that the policy waited for.
pub(super) fn stop_ending(stop: Stop, when: &str, has_text: bool) -> Box<Ending> {
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
        let deliverable = own.or_else(|| fallback.filter(|_| !has_text).map(Value::String));
        if deliverable.is_none() && !has_text {
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
