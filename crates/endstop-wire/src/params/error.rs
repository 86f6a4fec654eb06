//! Errors of request parameters.

use std::fmt;

/// The reason why a request cannot have these parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParamError {
    /// The API has no such parameter.
    Unsupported {
        /// The parameter.
        param: String,
        /// The API, or the provider.
        api: String,
        /// The advice: another parameter, value or API.
        instead: String,
    },
    /// The value is not valid for the API.
    Invalid {
        /// The parameter.
        param: String,
        /// The expected value.
        problem: String,
    },
    /// Two settings contradict each other.
    Conflict(String),
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamError::Unsupported { param, api, instead } => {
                write!(f, "`{param}` is not a parameter of {api}; {instead}")
            }
            ParamError::Invalid { param, problem } => write!(f, "invalid `{param}`: {problem}"),
            ParamError::Conflict(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for ParamError {}

impl ParamError {
    /// Creates the error for a provider that takes no parameters.
    pub fn none_taken(param: &str, provider: &str) -> ParamError {
        ParamError::Unsupported {
            param: param.to_owned(),
            api: format!("the provider `{provider}`"),
            instead: "remove it, or have the provider accept it with `check_params`".to_owned(),
        }
    }
}
