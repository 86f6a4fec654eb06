//! The environment variables of a server process.

/// The environment variables of a server process.
#[derive(Clone, Default)]
pub(super) struct Variables {
    /// Names of inherited variables that it sees although they look like secrets.
    pub(super) allowed: Vec<String>,
    /// Variables of this process only, with their values.
    pub(super) set: Vec<(String, String)>,
}
