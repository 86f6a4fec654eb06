//! JSON Schema validation of answers. The schema is compiled once, and used by the kernel's
//! `Validate` effect.
//!
//! ```
//! use endstop::schema::OutputSchema;
//! use serde_json::json;
//! let schema = OutputSchema::new(json!({"type": "object", "required": ["age"]})).unwrap();
//! assert!(schema.validate(&json!("{\"age\": 36}")).is_ok());
//! assert!(schema.validate(&json!("{}")).unwrap_err().contains("age"));
//! ```

use endstop_core::structured;
use serde_json::Value;
use std::fmt;

/// A compiled schema that answers must satisfy.
pub struct OutputSchema {
    schema: Value,
    validator: jsonschema::Validator,
}

impl fmt::Debug for OutputSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OutputSchema").field(&self.schema).finish()
    }
}

impl OutputSchema {
    /// Compiles a JSON Schema. References to other documents are not fetched.
    ///
    /// # Errors
    /// The schema is invalid. The message says at which path.
    pub fn new(schema: Value) -> Result<OutputSchema, String> {
        let validator =
            jsonschema::validator_for(&schema).map_err(|e| match e.instance_path().as_str() {
                "" => format!("the output schema is not valid: {e}"),
                at => format!("the output schema is not valid at `{at}`: {e}"),
            })?;
        Ok(OutputSchema { schema, validator })
    }

    /// Returns the schema as it was given.
    pub fn as_value(&self) -> &Value {
        &self.schema
    }

    /// Returns the first value of an answer that satisfies the schema.
    ///
    /// # Errors
    /// No value satisfies the schema. The message is for the model: at most five violations with
    /// their paths.
    pub fn validate(&self, candidate: &Value) -> Result<Value, String> {
        structured::accept(candidate, |value| {
            let problems: Vec<String> = self
                .validator
                .iter_errors(value)
                // More than five would take up context without helping the model.
                .take(5)
                .map(|e| {
                    let at = e.instance_path().to_string();
                    if at.is_empty() { e.to_string() } else { format!("at `{at}`: {e}") }
                })
                .collect();
            if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
        })
    }
}
