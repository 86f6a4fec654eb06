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

mod portable;

use endstop_core::structured;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
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
    validator: Option<jsonschema::Validator>,
    of_type: Option<OfType>,
}

/// Types that an answer can have: any that implements `Deserialize`, `JsonSchema` and `Send`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the type of an answer",
    label = "needs a JSON Schema, and must deserialize",
    note = "add `#[derive(serde::Deserialize, schemars::JsonSchema)]` to `{Self}`, and own its data instead of borrowing it"
)]
pub trait OutputType: DeserializeOwned + JsonSchema + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: DeserializeOwned + JsonSchema + Send + 'static> OutputType for T {}

/// The part of a schema that comes from a Rust type.
struct OfType {
    /// Deserializes the type, and drops the value.
    check: fn(&Value) -> Result<(), String>,
    /// The type's own schema, if its JSON is not an object. The whole schema is then that of
    /// [`Wrapped`].
    bare: Option<jsonschema::Validator>,
}

/// The form of an answer whose type is not an object, because providers require an object.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Wrapped<T> {
    /// The answer.
    #[allow(dead_code, reason = "only the schema is used")]
    value: T,
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
        Ok(OutputSchema { schema, validator: Some(validator), of_type: None })
    }

    /// Derives the schema of a type. An answer must satisfy it, and the type must deserialize from
    /// the answer.
    ///
    /// ```
    /// use endstop::schema::OutputSchema;
    /// use serde_json::json;
    /// let schema = OutputSchema::of::<Vec<u8>>();
    /// assert_eq!(schema.validate(&json!("{\"value\": [1, 2]}")), Ok(json!([1, 2])));
    /// assert!(schema.validate(&json!("[1, 256]")).unwrap_err().to_string().contains("256"));
    /// ```
    ///
    /// If the JSON of the type is not an object, the schema is that of an object with the value in
    /// its field `value`, because providers require an object. [`validate`](Self::validate) takes
    /// the value out of that field.
    pub fn of<T: OutputType>() -> OutputSchema {
        let own = schema_of::<T>();
        let is_object = own.get("type").and_then(Value::as_str) == Some("object");
        let schema = if is_object { own.clone() } else { schema_of::<Wrapped<T>>() };
        let bare = if is_object { None } else { validator_of(&own) };
        let validator = validator_of(&schema);
        let of_type = Some(OfType { check: |value| deserialize::<T>(value).map(drop), bare });
        OutputSchema { schema: portable::portable(schema), validator, of_type }
    }

    /// Returns the schema as it is sent to the model. A schema that was given is unchanged.
    pub fn as_value(&self) -> &Value {
        &self.schema
    }

    /// Returns the first value of an answer that satisfies the schema.
    ///
    /// # Errors
    /// No value satisfies the schema.
    pub fn validate(&self, candidate: &Value) -> Result<Value, SchemaError> {
        let answer = structured::accept(candidate, |value| self.check(value))
            .map_err(|problem| SchemaError::Unsatisfied(problem.to_string()))?;
        if self.is_wrapped(&answer) {
            Ok(answer.get("value").cloned().unwrap_or_default())
        } else {
            Ok(answer)
        }
    }

    /// `true` if validation runs the `Deserialize` of a type, which may block or panic.
    pub(crate) fn runs_user_code(&self) -> bool {
        self.of_type.is_some()
    }

    /// `true` if a valid answer has its value in the field `value`.
    fn is_wrapped(&self, answer: &Value) -> bool {
        let bare = self.of_type.as_ref().is_some_and(|of_type| of_type.bare.is_some());
        bare && problems(self.validator.as_ref(), answer).is_ok()
    }

    fn check(&self, value: &Value) -> Result<(), String> {
        let valid = problems(self.validator.as_ref(), value);
        let Some(OfType { check, bare }) = &self.of_type else { return valid };
        match (valid, bare) {
            (Ok(()), None) => check(value),
            (Ok(()), Some(_)) => check(value.get("value").unwrap_or(&Value::Null)),
            // Many models answer with the value itself, which is as clear.
            (Err(problem), Some(bare)) if problems(Some(bare), value).is_ok() => {
                check(value).map_err(|_| problem)
            }
            (Err(problem), _) => Err(problem),
        }
    }
}

fn problems(validator: Option<&jsonschema::Validator>, value: &Value) -> Result<(), String> {
    let Some(validator) = validator else { return Ok(()) };
    let problems: Vec<String> = validator
        .iter_errors(value)
        // More than five would take up context without helping the model.
        .take(5)
        .map(|e| {
            let at = e.instance_path().to_string();
            if at.is_empty() { e.to_string() } else { format!("at `{at}`: {e}") }
        })
        .collect();
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// Returns the schema of a type, with references only if the type is recursive.
fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// Returns the validator of a derived schema. A custom `JsonSchema` may be invalid; the type's
/// `Deserialize` then decides alone.
fn validator_of(schema: &Value) -> Option<jsonschema::Validator> {
    jsonschema::validator_for(schema).ok()
}

/// Returns the value of a type.
///
/// # Errors
/// The type does not deserialize from the value; the message names the place.
pub(crate) fn deserialize<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let (path, problem) = (error.path().to_string(), error.inner());
        // The path `.` stands for the value as a whole.
        if path == "." { problem.to_string() } else { format!("at `{path}`: {problem}") }
    })
}
