//! The definition of the `finish` tool, with which a model declares its answer or that the task
//! cannot be done. The kernel handles the call itself.

use crate::provider::ToolDefinition;
use serde_json::json;

/// Returns the definition of `finish` for the model.
pub fn definition() -> ToolDefinition {
    ToolDefinition {
        name: "finish".to_owned(),
        description: "Ends the run. Call it when the task is done, with the answer as \
                      `deliverable`, or when it cannot be done, with the reason as `infeasible`."
            .to_owned(),
        schema: json!({
            "type": "object",
            "properties": {
                "deliverable": {"description": "The answer, as text or as a JSON value."},
                "summary": {"type": "string", "description": "What was done, in a sentence."},
                "infeasible": {
                    "type": "string",
                    "description": "Why the task cannot be done; leave it out when it is done."
                }
            }
        }),
    }
}
