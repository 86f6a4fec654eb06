//! The errors of the package, which the JavaScript half turns into its classes by their code.

/// The code of an error, which JavaScript sees as `error.code`.
#[derive(Clone, Copy)]
pub enum Code {
    /// An invalid limit, policy, price or argument.
    Config,
    /// A response in an unknown or ambiguous format.
    Format,
    /// An object that another call is using.
    Busy,
}

impl AsRef<str> for Code {
    fn as_ref(&self) -> &str {
        match self {
            Code::Config => "ENDSTOP_CONFIG",
            Code::Format => "ENDSTOP_FORMAT",
            Code::Busy => "ENDSTOP_BUSY",
        }
    }
}

/// The result of a function that JavaScript calls.
pub(crate) type Result<T> = napi::Result<T, Code>;

/// Builds the error for an invalid argument.
pub(crate) fn config(message: impl ToString) -> napi::Error<Code> {
    napi::Error::new(Code::Config, message.to_string())
}

/// Reads JSON as a value of the kernel; `name` is the argument in the error.
pub(crate) fn from_json<T: serde::de::DeserializeOwned>(json: &str, name: &str) -> Result<T> {
    serde_json::from_str(json).map_err(|problem| config(format!("invalid `{name}`: {problem}")))
}

/// Writes a value of the kernel as JSON.
pub(crate) fn to_json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|problem| config(format!("not valid as JSON: {problem}")))
}
