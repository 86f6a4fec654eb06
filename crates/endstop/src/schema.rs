//! JSON Schema validation of answers. The schema is compiled once, and used by the kernel's
//! `Validate` effect.
//!
//! ```
//! use endstop::schema::OutputSchema;
//! use serde_json::json;
//! let schema = OutputSchema::new(json!({"type": "object", "required": ["age"]})).unwrap();
//! assert!(schema.validate(&json!("{\"age\": 36}")).is_ok());
//! assert!(schema.validate(&json!("{}")).unwrap_err().to_string().contains("age"));
//! ```

use endstop_core::structured;
use serde_json::Value;
use std::fmt;

/// Error of an output schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The schema is invalid.
    #[error("the output schema is not valid{}: {problem}", at(.path))]
    Invalid {
        /// Path of the invalid part; empty for the schema as a whole.
        path: String,
        /// The reason.
        problem: String,
    },
    /// No value of an answer satisfies the schema. The message is for the model: at most five
    /// violations with their paths.
    #[error("{0}")]
    Unsatisfied(String),
}

fn at(path: &str) -> String {
    if path.is_empty() { String::new() } else { format!(" at `{path}`") }
}

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
    /// The schema is invalid.
    pub fn new(schema: Value) -> Result<OutputSchema, SchemaError> {
        let validator = jsonschema::validator_for(&schema).map_err(|e| SchemaError::Invalid {
            path: e.instance_path().to_string(),
            problem: e.to_string(),
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
    /// No value satisfies the schema.
    pub fn validate(&self, candidate: &Value) -> Result<Value, SchemaError> {
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
        .map_err(|problem| SchemaError::Unsatisfied(problem.to_string()))
    }
}
