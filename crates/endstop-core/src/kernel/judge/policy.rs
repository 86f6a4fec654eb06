//! The step as policies see it, and the ending that a policy's stop means.

use super::facts::Step;
use crate::kernel::outcome::decided_by::{Decision, Layer};
use crate::kernel::outcome::ending::Ending;
use crate::message::ToolResult;
use crate::policy::{PolicyEnd, StepCall, StepContext, StepOutput, StepResult, Stop};
use crate::termination::Termination;
use crate::visible::is_blank_value;
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
