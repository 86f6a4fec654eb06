//! Which variables of the environment a command does not get to see.
//!
//! A command that a model wrote does not need the key that pays for the model. Variables that
//! [hold a secret](is_secret_variable), by their name or by their value, are therefore not handed on,
//! unless they are allowed by name. This keeps secrets out of what a command prints by accident; it is
//! not a wall: a command of the same user can still read the files of that user.

use endstop_wire::redact::{KnownKeys, is_secret_variable};

/// The variables of this process that a command must not get.
pub(super) fn withheld(allowed: &[String]) -> Vec<std::ffi::OsString> {
    let is_withheld = |name: &str, value: &str| {
        is_secret_variable(name, value) && !allowed.iter().any(|allowed| allowed == name)
    };
    std::env::vars_os()
        .filter(|(name, value)| is_withheld(&name.to_string_lossy(), &value.to_string_lossy()))
        .map(|(name, _)| name)
        .collect()
}

/// The secrets among this process's variables: what a journal or a log must not have.
pub(super) fn secrets() -> KnownKeys {
    // A path to a file of credentials is not one.
    let is_path = |value: &std::ffi::OsString| std::path::Path::new(value).exists();
    let variables = std::env::vars_os().filter(|(_, value)| !is_path(value));
    KnownKeys::of_variables(variables.map(|(name, value)| {
        (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
    }))
}
