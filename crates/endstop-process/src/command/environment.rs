//! Withholds secrets from the environment of commands.
//!
//! A command that a model wrote does not need the API key of the model. Therefore variables that
//! [hold a secret](is_secret_variable), by their name or by their value, are not passed on unless
//! they are allowed by name. This keeps secrets out of what a command prints by accident. It is not
//! a security boundary, because a command can still read the files of its user.

use endstop_wire::redact::{KnownKeys, is_secret_variable};

/// Returns the names of this process's variables that a command must not get.
pub(crate) fn withheld(allowed: &[String]) -> Vec<std::ffi::OsString> {
    let is_withheld = |name: &str, value: &str| {
        is_secret_variable(name, value) && !allowed.iter().any(|allowed| allowed == name)
    };
    std::env::vars_os()
        .filter(|(name, value)| is_withheld(&name.to_string_lossy(), &value.to_string_lossy()))
        .map(|(name, _)| name)
        .collect()
}

/// Returns the secrets among this process's environment variables, by name and by value. They must
/// not be written to a journal or a log. The rules are in [the documentation of
/// redaction](endstop_wire::redact#what-is-a-secret).
pub fn environment_secrets() -> KnownKeys {
    // The path to a credentials file is not a secret itself, for example
    // `GOOGLE_APPLICATION_CREDENTIALS`.
    let is_path = |value: &std::ffi::OsString| std::path::Path::new(value).exists();
    let variables = std::env::vars_os().filter(|(_, value)| !is_path(value));
    KnownKeys::of_variables(variables.map(|(name, value)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    }))
}
